package review

import (
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/rollout"
)

// course is a merged change on its way through two waves: staging, which soaks for ten minutes,
// and prod, which an owner approves.
type course struct {
	r     mirror.Rollout
	facts mirror.RolloutFacts
}

// soaked is as long as staging soaks.
const soaked = 10 * time.Minute

// event is what happens to the course before its next step.
type event func(*course)

func (c *course) step() {
	c.r, _ = rollout.Next(c.r, c.facts)
	for _, m := range c.r.Members {
		hash := m.Hash
		if m.State == mirror.MemberReturning || m.State == mirror.MemberReturned {
			hash = m.Before.Hash
		}
		at := c.facts.Status[m.Key]
		if now := m.State != mirror.MemberWaiting; now && at.Hash != hash {
			c.facts.Status[m.Key] = mirror.RolloutStatus{Hash: hash, Apply: mirror.ApplyApplied,
				Compared: hash, Sync: mirror.SyncSynced, Health: mirror.HealthProgressing}
		}
	}
}

func reports(state mirror.HealthState, message string, of ...fleet.EnvironmentName) event {
	return func(c *course) {
		for _, m := range c.r.Members {
			if slices.Contains(of, m.Environment) {
				at := c.facts.Status[m.Key]
				at.Health, at.Message = state, message
				c.facts.Status[m.Key] = at
			}
		}
	}
}

func healthy(of ...fleet.EnvironmentName) event { return reports(mirror.HealthHealthy, "", of...) }

func degraded(of ...fleet.EnvironmentName) event {
	return reports(mirror.HealthDegraded, "Deployment checkout: ImagePullBackOff", of...)
}

func after(d time.Duration) event { return func(c *course) { c.facts.Now = c.facts.Now.Add(d) } }

func approved(c *course) {
	c.facts.Decisions = map[string][]mirror.RolloutDecision{c.r.ID: {{N: 1,
		Verb: mirror.ApproveRollout, Wave: "prod", By: "token:alice"}}}
}

// rolledOut returns the merged pull request after the events.
func rolledOut(events ...event) func(*testing.T) (Facts, []forge.Outcome) {
	return func(t *testing.T) (Facts, []forge.Outcome) {
		f, outcomes := mergedOf(t, bumped)
		c := &course{facts: mirror.RolloutFacts{Now: noon,
			Status: map[fleet.ObjectKey]mirror.RolloutStatus{}}}
		var changes []rollout.Change
		for _, e := range f.Merge.Effects {
			if e.Key.Kind == fleet.ObjectApplication {
				changes = append(changes, rollout.Change{Environment: e.Environment, Key: e.Key,
					Hash: e.Hash, Before: &mirror.RolloutBefore{Hash: "before " + e.Hash}})
				c.facts.Status[e.Key] = mirror.RolloutStatus{Hash: "before " + e.Hash,
					Apply: mirror.ApplyApplied, Compared: "before " + e.Hash,
					Sync: mirror.SyncSynced, Health: mirror.HealthHealthy}
			}
		}
		spec := fleet.Rollout{Waves: []fleet.RolloutWave{
			{Name: "canary", Environments: []fleet.EnvironmentName{"staging"},
				Soak: fleet.Duration(soaked)},
			{Name: "prod", Environments: []fleet.EnvironmentName{"prod"}, Approval: true}}}
		c.r = rollout.Begin(rollout.Beginning{
			Deployment: fleet.DeploymentID{Tenant: "acme", Name: "checkout"},
			Spec:       spec.OrDefaults(), Changes: changes, Revision: merge, Now: noon,
			Environment: func(env fleet.EnvironmentName) *fleet.Declaration {
				return &fleet.Declaration{Key: fleet.Key{Name: string(env)}}
			}})
		for _, e := range append([]event{func(*course) {}}, events...) {
			e(c)
			c.step()
			c.step()
		}
		for i := range outcomes {
			o := &outcomes[i]
			at, is := c.facts.Status[o.Key]
			if !is {
				continue
			}
			m := c.r.Members[slices.IndexFunc(c.r.Members, func(m mirror.RolloutMember) bool {
				return m.Key == o.Key
			})]
			o.Hash, o.Health, o.Message = at.Hash, at.Health, at.Message
			if !c.r.State.Ended() { // the store shows open rollouts alone
				o.Rollout = forge.Rolling{Hash: m.Hash, State: c.r.State, Message: c.r.Message,
					Wave: m.Wave, Waves: c.r.Waves}
			}
		}
		return f, outcomes
	}
}

func TestTheCommentFollowsARollout(t *testing.T) {
	for name, want := range map[string]struct {
		line  string
		text  []string
		final bool
	}{
		"merged-wave-1": {line: "Merged: 0 of 2 Applications done",
			text: []string{"1 canary changes", "begins after wave 1 of 2 (canary)"}},
		"merged-wave-1-soaks": {line: "Merged: 1 of 2 Applications done",
			text: []string{"1 canary soaks since 2026-11-20 12:00 UTC for 10m"}},
		"merged-wave-2-waits": {line: "Merged: wave 2 of 2 (prod) waits for an approval",
			text: []string{"argosy rollouts approve acme/checkout"}},
		"merged-wave-2": {line: "Merged: 1 of 2 Applications done",
			text: []string{"2 prod changes"}},
		"merged-waves-returned": {line: "Merged, and returned to the last good state",
			text: []string{"the change was returned", "argosy rollouts resume acme/checkout"}},
		"merged-waves-done": {line: "Merged: 2 Applications Synced and Healthy", final: true},
	} {
		f, outcomes := results[name](t)
		r := Result(f, outcomes, MostComment)
		if r.Line != want.line || r.Final != want.final {
			t.Errorf("%s: %q, final %v", name, r.Line, r.Final)
		}
		for _, text := range want.text {
			if !strings.Contains(r.Text, text) {
				t.Errorf("%s has no %q:\n%s", name, text, r.Text)
			}
		}
	}
}
