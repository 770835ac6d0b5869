// Package rollout decides how a change of a deployment goes through the waves of its environments.
// It is pure: a rollout, what is known of its Applications, the decisions of people and the time
// in; the rollout after its next step out. A plan takes the step: it writes the Applications that
// changed their state, and one transaction records both. So a replica that dies has taken a step or
// has not.
package rollout

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Change is an Application with a change.
type Change struct {
	Environment fleet.EnvironmentName
	Key         fleet.ObjectKey
	Hash        string                // of the manifest with the change
	Before      *mirror.RolloutBefore // its present state; nil: it does not exist, or is lost
	Lost        bool                  // the mirror was lost with its present state
}

// Beginning is what a rollout begins with.
type Beginning struct {
	Deployment fleet.DeploymentID
	Spec       fleet.Rollout // with its defaults
	Changes    []Change
	// Replaces is the deployment's rollout that has not ended; nil: there is none. Its Applications
	// that do not change again stay members, and
	// all keep the last good state that it has for them.
	Replaces *mirror.Rollout
	// Environment returns an environment in effect, or nil.
	Environment func(fleet.EnvironmentName) *fleet.Declaration
	Revision    fleet.Revision
	Now         time.Time
}

// Begin returns a rollout at its begin: no Application has the change.
//
// If each Application gets its last good state back, as after a revert, they are one wave, without
// gates.
func Begin(b Beginning) mirror.Rollout {
	r := mirror.Rollout{Tenant: b.Deployment.Tenant, Deployment: b.Deployment.Name,
		State: mirror.RolloutRunning, Since: b.Now, BegunAt: b.Now, Revision: b.Revision,
		OnFailure: b.Spec.OnFailure, Timeout: b.Spec.Timeout, Patience: b.Spec.Patience}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", r.Of(), r.Revision, b.Now.UnixNano()))
	r.ID = hex.EncodeToString(sum[:6])
	was := map[fleet.EnvironmentName]mirror.RolloutMember{}
	if b.Replaces != nil {
		for _, m := range b.Replaces.Members {
			was[m.Environment] = m
		}
	}
	back := true
	for _, c := range b.Changes {
		m := mirror.RolloutMember{Environment: c.Environment, Key: c.Key, Hash: c.Hash,
			Before: c.Before, State: mirror.MemberWaiting, Since: b.Now}
		if old, is := was[c.Environment]; is {
			m.Before = old.Before
		}
		back = back && m.Before != nil && m.Before.Hash == m.Hash
		r.Members = append(r.Members, m)
		delete(was, c.Environment)
	}
	for _, m := range was { // that do not change again
		if m.State.Changed() {
			m.State = mirror.MemberChanging
		} else {
			m.State = mirror.MemberWaiting
			back = false
		}
		m.Since, m.Message, m.BadSince = b.Now, "", nil
		r.Members = append(r.Members, m)
	}
	setWaves(&r, b, back)
	if slices.ContainsFunc(b.Changes, func(c Change) bool { return c.Lost }) {
		r.State = mirror.RolloutPaused
		r.Message = fmt.Sprintf("the mirror was lost with the state of its rollout, and the engines "+
			"do not have the manifest of %s. Nothing of it changes: `argosy rollouts resume %s/%s` "+
			"begins at the first wave, without a last good state to return to",
			environments(r.Members), r.Tenant, r.Deployment)
	}
	return r
}

// environments names the environments of members, at most five.
func environments(of []mirror.RolloutMember) string {
	var names []string
	for _, m := range of[:min(len(of), 5)] {
		names = append(names, string(m.Environment))
	}
	if more := len(of) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more environments", more))
	}
	return strings.Join(names, ", ")
}

// BackWave is the name of the only wave of a rollout that leads back to the last good state.
const BackWave = "back"

// setWaves gives each member its wave, and the rollout the waves that have members.
func setWaves(r *mirror.Rollout, b Beginning, back bool) {
	waves := slices.Clone(b.Spec.Waves)
	waves = append(waves, fleet.RolloutWave{Name: fleet.RestWave})
	if back {
		waves = []fleet.RolloutWave{{Name: BackWave}}
	}
	used := make([]bool, len(waves))
	for i := range r.Members {
		m := &r.Members[i]
		if env := b.Environment(m.Environment); env != nil && !back {
			m.Wave = b.Spec.WaveOf(env)
		} else {
			m.Wave = len(waves) - 1
		}
		used[m.Wave] = true
	}
	place := make([]int, len(waves))
	for i, w := range waves {
		place[i] = len(r.Waves)
		if !used[i] {
			continue
		}
		next := mirror.RolloutWave{Name: w.Name, Soak: w.Soak, MaxConcurrent: w.MaxConcurrent,
			Approval: w.Approval, State: mirror.WaveWaiting, Since: b.Now}
		for _, name := range w.Metrics {
			next.Metrics = append(next.Metrics, mirror.RolloutMetric{Name: name,
				State: mirror.MetricWaiting, Since: b.Now})
		}
		r.Waves = append(r.Waves, next)
	}
	for i := range r.Members {
		r.Members[i].Wave = place[r.Members[i].Wave]
	}
	slices.SortFunc(r.Members, func(x, y mirror.RolloutMember) int {
		return cmp.Or(cmp.Compare(x.Wave, y.Wave), cmp.Compare(x.Environment, y.Environment))
	})
}

// Drop removes the members whose Applications are no longer wanted. A rollout without members has
// ended.
func Drop(r mirror.Rollout, gone func(mirror.RolloutMember) bool, now time.Time) mirror.Rollout {
	r = r.Copy()
	r.Members = slices.DeleteFunc(r.Members, gone)
	if len(r.Members) == 0 {
		return End(r, "no Application is left in it", now)
	}
	return r
}

// End returns a rollout that another change replaces, with the reason.
func End(r mirror.Rollout, why string, now time.Time) mirror.Rollout {
	r.State, r.Message, r.Since, r.EndedAt = mirror.RolloutReplaced, why, now, &now
	return r
}

// Note returns when a member gets the change, for the plan of a pull request.
func Note(r mirror.Rollout, m mirror.RolloutMember) string {
	w := r.Waves[m.Wave]
	text := fmt.Sprintf("wave %d of %d (%s): begins ", m.Wave+1, len(r.Waves), w.Name)
	if r.State == mirror.RolloutPaused {
		return text + fmt.Sprintf("once `argosy rollouts resume %s/%s` resumes it", r.Tenant,
			r.Deployment)
	}
	switch {
	case m.Wave == 0 && w.Approval:
		return text + "once it is approved"
	case m.Wave == 0:
		return text + "at once"
	}
	before := r.Waves[m.Wave-1]
	text += fmt.Sprintf("once wave %d (%s) is Synced and Healthy", m.Wave, before.Name)
	if before.Soak > 0 {
		text += " for " + before.Soak.Short()
	}
	if w.Approval {
		text += ", and it is approved"
	}
	return text
}
