package postgres_test

import (
	"errors"
	"slices"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// runsWith is a report of an Application.
func runsWith(key fleet.ObjectKey, revision string, health mirror.HealthState) mirror.Observation {
	return mirror.Observation{Key: key, UID: "u", Sync: mirror.SyncSynced, Health: health,
		SyncedRevision: revision}
}

func TestARevisionThatGetsDegradedSoonIsNotAHealthyOne(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	a := application("eu-1", "acme", "a", "prod", "v1")
	s, _, worker, _ := recorded(t, url, a)
	id := fleet.ApplicationID{Tenant: "acme", Deployment: "a", Environment: "prod"}
	healthy := func(scope fleet.TenantName) (out []string) {
		t.Helper()
		for _, r := range must(s.Views.HealthyRevisions(t.Context(), view.Scope{Tenant: scope},
			id))(t) {
			name := r.Revision
			if r.Runs {
				name += " runs"
			}
			out = append(out, name)
		}
		return out
	}
	for _, o := range []mirror.Observation{
		runsWith(a.Key, "r1", mirror.HealthProgressing),
		runsWith(a.Key, "r1", mirror.HealthHealthy),
		runsWith(a.Key, "r2", mirror.HealthHealthy), runsWith(a.Key, "r2", mirror.HealthDegraded),
		{Key: a.Key, UID: "u", Sync: mirror.SyncOutOfSync, Health: mirror.HealthHealthy,
			SyncedRevision: "r3"},
	} {
		check(t, s.Work.Observe(t.Context(), worker, []mirror.Observation{o}))
	}
	if got := healthy("acme"); len(got) != 1 || got[0] != "r1" {
		t.Errorf("%v", got)
	}
	if got := healthy("globex"); len(got) != 0 {
		t.Errorf("another tenant sees %v", got)
	}
	exec(t, url, `UPDATE healthy_revisions SET first_at = now() - interval '1 day', last_at = now() - interval '2 hours'`)
	check(t, s.Work.Observe(t.Context(), worker,
		[]mirror.Observation{runsWith(a.Key, "r1", mirror.HealthDegraded)}))
	check(t, s.Work.Observe(t.Context(), worker,
		[]mirror.Observation{runsWith(a.Key, "r1", mirror.HealthHealthy)}))
	if got := healthy(""); len(got) != 1 || got[0] != "r1 runs" {
		t.Errorf("a revision that was Healthy for a day is forgotten: %v", got)
	}
	if n := one[int](t, url, `SELECT count(*) FROM healthy_revisions WHERE last_at > now() - interval '1 minute'
		AND first_at < now() - interval '23 hours'`); n != 1 {
		t.Error("the time of the last report is not kept")
	}
	// After a rollback to r1, Argo CD compares with r2.
	for _, o := range []mirror.Observation{runsWith(a.Key, "r2", mirror.HealthHealthy),
		{Key: a.Key, UID: "u", Sync: mirror.SyncOutOfSync, Health: mirror.HealthHealthy,
			SyncedRevision: "r2", OperationRevision: "r1"}} {
		check(t, s.Work.Observe(t.Context(), worker, []mirror.Observation{o}))
	}
	if got := healthy(""); !slices.Equal(got, []string{"r2", "r1 runs"}) {
		t.Errorf("rolled back: %v", got)
	}
	// A later tenant of the name inherits nothing.
	exec(t, url, `UPDATE tenants SET removed_at = now(); INSERT INTO tenants (tenant) VALUES ('acme')`)
	if got := healthy("acme"); len(got) != 0 {
		t.Errorf("a later tenant of the name sees %v", got)
	}
}

func TestARollbackIsTakenByOnePlanAndEndsWithItsSync(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	a := application("eu-1", "acme", "a", "prod", "v1")
	s, reconciler, worker, _ := recorded(t, url, a)
	ctx := t.Context()
	ask := actionOf("r-1", mirror.ActionRollback)
	ask.Options.Revision = "r1"
	if _, err := s.Decisions.RequestAction(ctx, view.Scope{}, ask); !errors.Is(err,
		mirror.ErrNeverHealthy) {
		t.Errorf("a revision that never ran: %v", err)
	}
	check(t, s.Work.Observe(ctx, worker,
		[]mirror.Observation{runsWith(a.Key, "r1", mirror.HealthHealthy)}))
	made := must(s.Decisions.RequestAction(ctx, view.Scope{Tenant: "acme"}, ask))(t)
	if open := must(s.Work.OpenActions(ctx, "eu-1"))(t); len(open) != 0 {
		t.Errorf("the worker takes it: %+v", open)
	}
	pending := must(s.Plans.PendingRollbacks(ctx))(t)
	if len(pending) != 1 || pending[0].ID != made.ID || pending[0].Options.Revision != "r1" {
		t.Fatalf("pending %+v", pending)
	}
	id := made.Application()
	hold := mirror.SyncHold{SyncRun: mirror.RollbackHold(made.ID), Application: id,
		TargetRevision: "v1"}
	must(s.Plans.Record(ctx, reconciler, step(1, 2, func(r *mirror.Record) {
		r.Rollbacks = []string{made.ID}
		r.SyncHolds = []mirror.SyncHold{hold}
		r.Syncs = []mirror.SyncRequest{{ID: string(hold.SyncRun), Operation: made.ID, Key: a.Key,
			Tenant: "acme", Deployment: "a", Environment: "prod", SyncRun: hold.SyncRun,
			Revision: "r1"}}
	})))(t)
	if pending := must(s.Plans.PendingRollbacks(ctx))(t); len(pending) != 0 {
		t.Errorf("it is taken again: %+v", pending)
	}
	check(t, s.Work.UpdateSync(ctx, worker, string(hold.SyncRun), mirror.OperationSucceeded, "ok"))
	operations, _, err := s.Views.Operations(ctx, view.Scope{Tenant: "acme"}, view.Filter{},
		view.Page{Limit: 10})
	check(t, err)
	if len(operations) != 1 || operations[0].Kind != mirror.OperationRollback ||
		operations[0].State != mirror.OperationSucceeded || operations[0].ID != made.ID ||
		operations[0].RequestedBy != "token:ann" {
		t.Errorf("operations %+v", operations)
	}
	acted, _, err := s.Views.Actions(ctx, view.Scope{Tenant: "acme"}, view.Filter{Name: made.ID},
		view.Page{Limit: 10})
	check(t, err)
	if len(acted) != 1 || acted[0].State != mirror.OperationSucceeded {
		t.Errorf("action %+v", acted)
	}

	end := actionOf("r-2", mirror.ActionRollback)
	end.Options.End = true
	ended := must(s.Decisions.RequestAction(ctx, view.Scope{}, end))(t)
	must(s.Plans.Record(ctx, reconciler, step(2, 3, func(r *mirror.Record) {
		r.Rollbacks = []string{ended.ID}
		r.EndedSyncHolds = []fleet.ApplicationID{id}
	})))(t)
	if got := one[string](t, url, `SELECT state FROM operations WHERE id = '`+ended.ID+
		`' AND ended_at IS NOT NULL`); got != "Succeeded" {
		t.Errorf("the end is %s", got)
	}
	again := actionOf("r-3", mirror.ActionRollback)
	again.Options.End = true
	if _, err := s.Decisions.RequestAction(ctx, view.Scope{}, again); !errors.Is(err,
		mirror.ErrNotRolledBack) {
		t.Errorf("nothing is left to end: %v", err)
	}
	ask.Request = "r-4"
	refused := must(s.Decisions.RequestAction(ctx, view.Scope{}, ask))(t)
	check(t, s.Plans.RefuseRollback(ctx, refused.ID, "a change of it waits"))
	if got := one[string](t, url, `SELECT o.state || ' ' || o.message || ' ' || a.state FROM operations o JOIN actions a USING (id)
		WHERE id = '`+refused.ID+`' AND o.ended_at IS NOT NULL AND a.ended_at IS NOT NULL`); got !=
		"Failed a change of it waits Failed" {
		t.Errorf("refused: %s", got)
	}
}
