package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// inWaves is the deployment of all environments, three of which begin.
func inWaves(n int, revision, rest string) map[string]string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("e%02d", i))
	}
	files := deployment("acme", "app00", revision, "Delete", names...)
	for path, text := range files {
		files[path] = strings.TrimSuffix(text, "\n") + "\n  rollout:\n    waves:\n      - {name: " +
			"canary, environments: [e00, e01, e02], soak: 1s}\n      - {name: half, " +
			"environments: [e03, e04, e05, e06], maxConcurrent: 50%" + rest + "}\n"
	}
	return files
}

// rollout is the newest one, the zero value if there is none.
func (h *house) rollout() mirror.Rollout {
	h.t.Helper()
	all, _, err := h.store.Views.Rollouts(h.t.Context(), view.Scope{}, view.Filter{},
		view.Page{Limit: 1})
	if err != nil {
		h.t.Fatal(err)
	}
	if len(all) == 0 {
		return mirror.Rollout{}
	}
	return all[0]
}

func (h *house) rolls(state mirror.RolloutState, not string) (r mirror.Rollout) {
	h.t.Helper()
	h.eventually("the rollout is "+string(state), func() error {
		if r = h.rollout(); r.State != state || r.ID == not {
			return fmt.Errorf("%s %s %s", r.ID, r.State, r.Message)
		}
		return nil
	})
	return r
}

// Three leaders die one after the other while a change goes to 30 environments: each step is taken
// once, in the order of the waves. An aborted change returns to the manifests of before.
func TestARolloutGoesOnUnderAnotherLeader(t *testing.T) {
	t.Parallel()
	const n = 30
	d := newDrained(t, n, 1, "{atOnce: 1}")
	leader := d.start("r0", options{})
	d.eventually("the fleet is in sync", d.converged)
	d.commit("app00 goes in waves", inWaves(n, "v1", ""))
	began := time.Now()
	d.commit("v2", inWaves(n, "v2", ""))
	for i := 1; i <= 3; i++ {
		last := d.rollout()
		d.eventually("the rollout takes a step", func() error {
			if now := d.rollout(); now.ID == "" || reflect.DeepEqual(now, last) {
				return errors.New("it does not")
			}
			return nil
		})
		next := d.start(fmt.Sprintf("r%d", i), options{})
		d.kill(leader)
		d.expire(leader)
		leader = next
	}
	r := d.rolls(mirror.RolloutDone, "")
	t.Logf("30 environments in 3 waves, with 3 changes of the leader: %s", time.Since(began))
	d.eventually("the fleet is in sync", d.converged)
	since := map[int]time.Time{}
	for _, m := range r.Members {
		if m.State != mirror.MemberHealthy {
			t.Errorf("%s is %s", m.Environment, m.State)
		}
		if m.Since.After(since[m.Wave]) {
			since[m.Wave] = m.Since
		}
	}
	if len(r.Members) != n || len(since) != 3 || since[1].Before(since[0].Add(time.Second)) ||
		since[2].Before(since[1]) {
		t.Errorf("%d members, waves done at %v", len(r.Members), since)
	}

	before := map[fleet.ObjectKey]string{}
	for k, row := range d.rows() {
		before[k] = row.Manifest.Hash
	}
	d.commit("v3", inWaves(n, "v3", ", approval: true"))
	d.rolls(mirror.RolloutAwaits, r.ID)
	abort := mirror.RolloutDecision{Tenant: "acme", Deployment: "app00",
		Verb: mirror.AbortRollout, By: "token:ann", Reason: "lunch"}
	if err := d.store.Decisions.DecideRollout(t.Context(), abort); err != nil {
		t.Fatal(err)
	}
	next := d.start("last", options{})
	d.kill(leader)
	d.expire(leader)
	r = d.rolls(mirror.RolloutReturned, r.ID)
	if !strings.Contains(r.Message, "aborted by token:ann: lunch") {
		t.Error(r.Message)
	}
	for k, row := range d.rows() {
		if before[k] != row.Manifest.Hash && k.Kind == fleet.ObjectApplication {
			t.Errorf("%s is not as before", k.Name)
		}
	}
	d.passes(next, 3)
	if now := d.rollout(); !reflect.DeepEqual(now, r) {
		t.Errorf("a returned rollout goes on: %+v", now)
	}
}

// The database is lost while a change waits for its second wave. The engines have the change in
// the first wave and not in the others: the rollout waits for a person, and nothing else does.
func TestALostMirrorHoldsOnlyTheRolloutThatWasUnderWay(t *testing.T) {
	t.Parallel()
	const n, app01 = 10, "tenants/acme/deployments/app01.yaml"
	d := newDrained(t, n, 2, "{atOnce: 1}")
	r := d.start("a", options{})
	d.eventually("the fleet is in sync", d.converged)
	d.commit("app00 goes in waves", inWaves(n, "v1", ""))
	d.commit("v2", inWaves(n, "v2", ", approval: true"))
	d.rolls(mirror.RolloutAwaits, "")
	r.stop()
	d.newDatabase()
	d.commit("app01 changes", map[string]string{app01: strings.ReplaceAll(
		filesOf(n, 2, "{atOnce: 1}")[app01], "v1}", "v2}")})
	of := func(app string) (hashes map[string]string) {
		hashes = map[string]string{}
		for _, o := range d.engines["eu-1"].inventory() {
			if string(o.Deployment) == app {
				hashes[string(o.Environment)] = o.Hash
			}
		}
		return hashes
	}
	before := of("app00")
	d.start("b", options{})
	now := d.rolls(mirror.RolloutPaused, "")
	if len(now.Members) != n-3 || now.Member("e00") >= 0 ||
		!strings.Contains(now.Message, "argosy rollouts resume acme/app00") {
		t.Errorf("%d members: %s", len(now.Members), now.Message)
	}
	d.wants("acme/app01@e09", "v2")
	if after := of("app00"); !maps.Equal(after, before) || len(before) != n {
		t.Errorf("the engines have other Applications of app00: %v, %v", before, after)
	}
	decide := func(verb mirror.RolloutVerb) {
		t.Helper()
		if err := d.store.Decisions.DecideRollout(t.Context(), mirror.RolloutDecision{
			Tenant: "acme", Deployment: "app00", Verb: verb, By: "token:ann"}); err != nil {
			t.Fatal(err)
		}
	}
	decide(mirror.ResumeRollout)
	d.rolls(mirror.RolloutAwaits, "")
	decide(mirror.ApproveRollout)
	d.rolls(mirror.RolloutDone, "")
	d.eventually("the fleet is in sync", d.converged)
}

// An engine drains while a rollout is paused, and back while it is returned: its environments move
// as they are. The rollout returns and goes on from wherever they are.
func TestADrainDoesNotWaitForARolloutThatWaitsForAPerson(t *testing.T) {
	t.Parallel()
	const n = 10
	d := newDrained(t, n, 1, "{atOnce: 2, perHour: 100}")
	d.start("a", options{})
	d.ready()
	d.commit("app00 goes in waves", inWaves(n, "v1", ""))
	d.eventually("the fleet is in sync", d.converged)
	d.commit("v2", inWaves(n, "v2", ", approval: true"))
	d.rolls(mirror.RolloutAwaits, "")
	decide := func(verb mirror.RolloutVerb, becomes mirror.RolloutState) {
		t.Helper()
		if err := d.store.Decisions.DecideRollout(t.Context(), mirror.RolloutDecision{
			Tenant: "acme", Deployment: "app00", Verb: verb, By: "token:ann"}); err != nil {
			t.Fatal(err)
		}
		d.rolls(becomes, "")
	}
	serves := func(engine fleet.EngineName, canary, others string) {
		t.Helper()
		d.eventually(fmt.Sprintf("%s serves %s and %s", engine, canary, others), func() error {
			for env, want := range map[string]string{"e00": canary, "e02": canary, "e03": others,
				"e09": others} {
				key := keyOf(d.engines[engine], "acme", "app00", env)
				if got := d.engines[engine].server.Field(key,
					"spec.source.targetRevision"); got != want {
					return fmt.Errorf("%s has %q", env, got)
				}
			}
			return d.converged()
		})
	}
	decide(mirror.PauseRollout, mirror.RolloutPaused)
	id := d.rollout().ID
	d.declare("Draining")
	d.reaches(mirror.DrainEmpty, "")
	serves("eu-2", "v2", "v1")
	decide(mirror.AbortRollout, mirror.RolloutReturned)
	serves("eu-2", "v1", "v1")

	d.declare("Active")
	d.commit("eu-2 drains", engineState("eu-2", "Draining"))
	d.eventually("eu-2 is empty", func() error {
		if got := d.engine("eu-2").Drain; got == nil || got.State != mirror.DrainEmpty {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	serves("eu-1", "v1", "v1")
	if now := d.rollout(); now.ID != id || now.State != mirror.RolloutReturned {
		t.Errorf("the rollout is %s %s", now.ID, now.State)
	}
	decide(mirror.ResumeRollout, mirror.RolloutAwaits)
	serves("eu-1", "v2", "v1")
	decide(mirror.ApproveRollout, mirror.RolloutDone)
	serves("eu-1", "v2", "v2")
}

// gauge answers every query with one value.
type gauge struct {
	mu    sync.Mutex
	value float64
	asked map[string]bool
}

func (g *gauge) Query(_ context.Context, _ fleet.Prometheus, query string) (float64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked[query] = true
	return g.value, nil
}

// A metric that is bad in the first wave returns the change, and one that is good lets it go on.
// The leader asks for the environments of the wave alone.
func TestAMetricGatesAWave(t *testing.T) {
	t.Parallel()
	const n = 10
	d := newDrained(t, n, 1, "{atOnce: 1}")
	prometheus := &gauge{value: 0.5, asked: map[string]bool{}}
	d.start("a", options{prometheus: prometheus})
	d.eventually("the fleet is in sync", d.converged)
	declared := filesOf(n, 1, "{atOnce: 1}")["fleet/fleet.yaml"]
	d.commit("a metric", map[string]string{"fleet/fleet.yaml": strings.TrimSuffix(declared, "\n") +
		"\n  prometheus:\n    url: http://prometheus.example.com\n    metrics:\n      - {name: " +
		"error-rate, query: 'rate(errors{in={{environment}}}[1m])', max: \"0.1\", failures: 1}\n"})
	gated := func(revision string) map[string]string {
		files := inWaves(n, revision, "")
		for path, text := range files {
			files[path] = strings.Replace(text, "soak: 1s", "metrics: [error-rate]", 1)
		}
		return files
	}
	d.commit("waves", gated("v1"))
	d.eventually("the fleet is in sync", d.converged)
	d.commit("v2", gated("v2"))
	r := d.rolls(mirror.RolloutReturned, "")
	if !strings.Contains(r.Message, "metric error-rate is 0.5, above 0.1 in e00") {
		t.Error(r.Message)
	}
	prometheus.mu.Lock()
	if prometheus.value = 0.05; len(prometheus.asked) != 3 ||
		!prometheus.asked[`rate(errors{in="e00"}[1m])`] {
		t.Errorf("asked %v", prometheus.asked)
	}
	prometheus.mu.Unlock()
	d.commit("v3", gated("v3"))
	if r = d.rolls(mirror.RolloutDone, r.ID); r.Waves[0].Metrics[0].State != mirror.MetricGood {
		t.Errorf("%+v", r.Waves[0])
	}
}
