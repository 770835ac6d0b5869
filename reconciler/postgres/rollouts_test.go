package postgres_test

import (
	"errors"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// The transaction that begins a rollout keeps the manifests of before, and the one that ends it
// forgets them. A tenant sees its own rollouts.
func TestARolloutKeepsTheManifestsOfBefore(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	row := application("eu-1", "acme", "web", "prod", "v1")
	s, lease, worker, stored := recorded(t, url, row)
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(stored)))
	r := mirror.Rollout{ID: "r-1", Tenant: "acme", Deployment: "web", State: mirror.RolloutRunning,
		Revision: revision(2), BegunAt: time.Now().UTC().Truncate(time.Microsecond),
		Waves: []mirror.RolloutWave{{Name: "rest", State: mirror.WaveRunning}},
		Members: []mirror.RolloutMember{{Environment: "prod", Key: row.Key, Hash: "new",
			Before: &mirror.RolloutBefore{Hash: row.Manifest.Hash}, State: mirror.MemberChanging}}}
	after := application("eu-1", "acme", "web", "prod", "v2")
	must(s.Plans.Record(t.Context(), lease, step(1, 2, func(rec *mirror.Record) {
		rec.Rollouts, rec.Rows = []mirror.Rollout{r}, []mirror.Row{after}
	})))(t)
	kept := must(s.Plans.RolloutManifests(t.Context(), r))(t)
	if string(kept["prod"].Body) != string(row.Manifest.Body) ||
		kept["prod"].Hash != row.Manifest.Hash {
		t.Errorf("%+v", kept)
	}
	if got := must(s.Plans.Load(t.Context()))(t).Rollouts; len(got) != 1 || got[0].ID != "r-1" ||
		!got[0].BegunAt.Equal(r.BegunAt) {
		t.Errorf("%+v", got)
	}
	check(t, s.Work.Observe(t.Context(), worker, []mirror.Observation{{Key: row.Key, UID: "u",
		Sync: mirror.SyncSynced, Health: mirror.HealthHealthy, Compared: "seen"}}))
	f := must(s.Plans.RolloutFacts(t.Context(), []mirror.Rollout{r}))(t)
	if at := f.Status[row.Key]; at.Hash != after.Manifest.Hash || at.Apply != mirror.ApplyPending ||
		at.Compared != "seen" || at.Health != mirror.HealthHealthy || at.SilentSince != nil {
		t.Errorf("%+v", at)
	}
	for tenant, want := range map[fleet.TenantName]int{"": 1, "acme": 1, "globex": 0} {
		got, _, err := s.Views.Rollouts(t.Context(), view.Scope{Tenant: tenant}, view.Filter{},
			view.Page{Limit: 10})
		if err != nil || len(got) != want {
			t.Errorf("%q sees %+v, %v", tenant, got, err)
		}
	}

	if o := must(s.Views.Outcomes(t.Context(), []fleet.ObjectKey{row.Key}))(t)[0].Rollout; o.Hash !=
		"new" || o.State != mirror.RolloutRunning || o.Wave != 0 || len(o.Waves) != 1 ||
		o.Waves[0].Name != "rest" || o.Waves[0].State != mirror.WaveRunning {
		t.Errorf("the outcome has the rollout %+v", o)
	}

	if got := must(s.Plans.RowManifests(t.Context(), []fleet.ObjectKey{row.Key}))(t); len(got) !=
		1 || string(got[after.Manifest.Hash].Body) != string(after.Manifest.Body) {
		t.Errorf("the row has the manifests %+v", got)
	}
	// the Application moves: its last good state is that for another engine
	moved := r.Copy()
	moved.Members[0].Before = &mirror.RolloutBefore{Hash: "elsewhere"}
	must(s.Plans.Record(t.Context(), lease, step(2, 2, func(rec *mirror.Record) {
		rec.Rollouts, rec.PlanHash = []mirror.Rollout{moved}, "a move"
		rec.LastGood = []mirror.RolloutManifest{{Rollout: r.Of(), Environment: "prod",
			Manifest: fleet.Manifest{Hash: "elsewhere", Body: []byte(`{}`)}}}
	})))(t)
	if kept = must(s.Plans.RolloutManifests(t.Context(), moved))(t); kept["prod"].Hash !=
		"elsewhere" || string(kept["prod"].Body) != "{}" {
		t.Errorf("after a move it keeps %+v", kept)
	}
	expect(t, url, `SELECT count(*) FROM rollout_manifests`, 1)

	d := mirror.RolloutDecision{Tenant: "acme", Deployment: "web", Verb: mirror.ApproveRollout,
		By: "ann"}
	if err := s.Decisions.DecideRollout(t.Context(), d); !errors.Is(err, mirror.ErrRolloutState) {
		t.Errorf("nothing awaits approval: %v", err)
	}
	d.Verb = mirror.PauseRollout
	check(t, s.Decisions.DecideRollout(t.Context(), d))
	f = must(s.Plans.RolloutFacts(t.Context(), []mirror.Rollout{r}))(t)
	if got := f.Decisions["r-1"]; len(got) != 1 || got[0].Verb != mirror.PauseRollout ||
		got[0].By != "ann" {
		t.Errorf("%+v", f.Decisions)
	}
	r.Decided = f.Decisions["r-1"][0].N
	if f = must(s.Plans.RolloutFacts(t.Context(), []mirror.Rollout{r}))(t); len(f.Decisions) > 0 {
		t.Errorf("a decision is read again: %+v", f.Decisions)
	}

	now := time.Now()
	r.State, r.EndedAt = mirror.RolloutDone, &now
	next := r
	next.ID, next.State, next.EndedAt, next.Members = "r-2", mirror.RolloutRunning, nil, nil
	must(s.Plans.Record(t.Context(), lease, step(2, 3, func(rec *mirror.Record) {
		rec.Rollouts = []mirror.Rollout{next, r}
	})))(t)
	expect(t, url, `SELECT count(*) FROM rollout_manifests`, 0)
	got := must(s.Plans.Load(t.Context()))(t).Rollouts
	if len(got) != 1 || got[0].ID != "r-2" {
		t.Errorf("%+v", got)
	}
	for page := (view.Page{Limit: 1}); ; {
		all, after, err := s.Views.Rollouts(t.Context(), view.Scope{},
			view.Filter{Deployment: "web"}, page)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		if page.After = after; after == "" {
			break
		}
	}
}
