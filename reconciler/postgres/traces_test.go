package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

func traceOf(t *testing.T, s *postgres.Store, scope view.Scope, n int) view.Trace {
	t.Helper()
	return must(s.Views.Trace(t.Context(), scope, revision(n), view.Filter{}))(t)
}

// observedAs is a report with which an engine's Application has a state.
func observedAs(row mirror.Row, sync mirror.SyncState, health mirror.HealthState,
	resources int) []mirror.Observation {
	return []mirror.Observation{{Key: row.Key, Sync: sync, Health: health, Resources: resources}}
}

// A trace has the time of each step in order. It keeps the first Synced and Healthy after the write
// when the Application changes again.
func TestTraceHasTheTimeOfEachStep(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	lease, worker := hold(t, s, "reconciler"), hold(t, s, "engine/eu-1")
	fetched := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	must(s.Plans.Record(t.Context(), lease, step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{tenantDeclaration("acme")}
		r.Rows = []mirror.Row{application("eu-1", "acme", "a", "prod", "v1")}
		r.Created = 1
		r.FetchedAt, r.CheckedAt, r.PlannedAt = fetched, fetched.Add(time.Second),
			fetched.Add(2*time.Second)
	})))(t)
	exec(t, url, `INSERT INTO pushes (after_commit, before_commit, account, login, at)
		VALUES ($1, '', 1, 'ann', $2)`, string(revision(1)), fetched.Add(-time.Second))
	row := must(s.Work.Changed(t.Context(), "eu-1", 0, 10))(t)[0]

	queued := traceOf(t, s, view.Scope{}, 1)
	var names []string
	for _, step := range queued.Steps() {
		names = append(names, step.Name)
	}
	if got := strings.Join(names, " "); !strings.HasSuffix(got,
		"delivered fetched checked planned recorded") {
		t.Errorf("steps %s", got)
	}
	if a := queued.Applications[0]; a.WrittenAt != nil || a.WaitsFor == "" || queued.Complete() {
		t.Errorf("before the write: %+v", a)
	}
	check(t, s.Work.Acknowledge(t.Context(), worker, applied([]mirror.Row{row})))
	reports := []struct {
		sync   mirror.SyncState
		health mirror.HealthState
	}{{mirror.SyncOutOfSync, mirror.HealthHealthy}, {mirror.SyncSynced, mirror.HealthProgressing},
		{mirror.SyncSynced, mirror.HealthHealthy}}
	for i, r := range reports {
		check(t, s.Work.Observe(t.Context(), worker, observedAs(row, r.sync, r.health, i)))
		a := traceOf(t, s, view.Scope{}, 1).Applications[0]
		if a.WrittenAt == nil || (a.SyncedAt != nil) != (i > 0) ||
			(a.HealthyAt != nil) != (i > 1) || (a.WaitsFor == "") != (i > 1) {
			t.Errorf("after report %d: %+v", i, a)
		}
	}
	check(t, s.Plans.CompleteRevisions(t.Context()))
	ended := traceOf(t, s, view.Scope{}, 1)
	if !ended.Complete() || ended.AppliedAt == nil || ended.Written != 1 {
		t.Errorf("at its end: %+v", ended)
	}
	a := ended.Applications[0]
	if a.QueuedAt.After(*a.WrittenAt) || a.WrittenAt.After(*a.SyncedAt) ||
		a.SyncedAt.After(*a.HealthyAt) {
		t.Errorf("its steps are not in order: %+v", a)
	}
	for i, health := range []mirror.HealthState{mirror.HealthDegraded, mirror.HealthHealthy} {
		check(t, s.Work.Observe(t.Context(), worker,
			observedAs(row, mirror.SyncSynced, health, 10+i)))
		later := traceOf(t, s, view.Scope{}, 1).Applications[0]
		if later.HealthyAt == nil || !later.HealthyAt.Equal(*a.HealthyAt) {
			t.Errorf("after it was %s: %v, before %v", health, later.HealthyAt, a.HealthyAt)
		}
	}
}

// An Application whose state a write does not change stays Healthy from the write on, once its
// engine has reported, or has had the time.
func TestTraceOfAnApplicationThatStaysHealthy(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, lease, worker, rows := recorded(t, url, application("eu-1", "acme", "a", "prod", "v1"))
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(rows)))
	check(t, s.Work.Observe(t.Context(), worker,
		observedAs(rows[0], mirror.SyncSynced, mirror.HealthHealthy, 1)))
	must(s.Plans.Record(t.Context(), lease, step(1, 2, func(r *mirror.Record) {
		r.Rows, r.Changed = []mirror.Row{application("eu-1", "acme", "a", "prod", "v2")}, 1
	})))(t)
	row := must(s.Work.Changed(t.Context(), "eu-1", rows[0].Seq, 10))(t)
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(row)))
	if a := traceOf(t, s, view.Scope{}, 2).Applications[0]; a.HealthyAt != nil {
		t.Errorf("by a report about the row before: %+v", a)
	}
	exec(t, url, `UPDATE status SET acked_at = acked_at - interval '2 minutes',
		synced_at = synced_at - interval '3 minutes', healthy_at = healthy_at - interval '3 minutes',
		observed_at = observed_at - interval '3 minutes'`)
	a := traceOf(t, s, view.Scope{}, 2).Applications[0]
	if a.HealthyAt == nil || !a.HealthyAt.Equal(*a.WrittenAt) {
		t.Errorf("two minutes after the write: %+v", a)
	}
	if first := traceOf(t, s, view.Scope{}, 1); first.Objects != 0 || first.Replaced != 1 {
		t.Errorf("the commit before: %+v", first)
	}
}

// A commit that waits as a whole is found before it is recorded, with what it waits for.
func TestTraceOfACommitThatIsNotRecorded(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, lease, _, _ := recorded(t, url, application("eu-1", "acme", "a", "prod", "v1"))
	must(s.Plans.Record(t.Context(), lease, step(1, 2, func(r *mirror.Record) {
		r.RevisionHeld = true
		r.Holds = []mirror.Hold{{Revision: revision(2), Reason: mirror.HoldDeletions,
			Message: "it deletes much"}}
	})))(t)
	held := traceOf(t, s, view.Scope{}, 2)
	if held.RecordedAt != nil || len(held.Waits) != 1 || held.Waits[0].Until != nil ||
		held.Waits[0].Text != "it deletes much" || held.Complete() {
		t.Errorf("held: %+v", held)
	}
	exec(t, url, `UPDATE source SET head = $1, error = 'cannot be planned', since = now()`,
		string(revision(3)))
	broken := traceOf(t, s, view.Scope{}, 3)
	if len(broken.Waits) != 1 || broken.Waits[0].Text != "cannot be planned" {
		t.Errorf("unplanned: %+v", broken)
	}
	for _, n := range []int{2, 3} {
		if _, err := s.Views.Trace(t.Context(), view.Scope{Tenant: "acme"}, revision(n),
			view.Filter{}); !errors.Is(err, mirror.ErrNotFound) {
			t.Errorf("a tenant reads revision %d: %v", n, err)
		}
	}
}

// A tenant's trace has its own objects and waits; a commit without one is like a missing one.
func TestTraceOfATenantHasItsOwnPartOnly(t *testing.T) {
	t.Parallel()
	s, _ := populated(t)
	all, own := traceOf(t, s, view.Scope{}, 1), traceOf(t, s, view.Scope{Tenant: "acme"}, 1)
	if own.Objects == 0 || 2*own.Objects != all.Objects || own.Subject != "" ||
		own.AppliedAt != nil || own.Replaced != 0 {
		t.Errorf("%d of %d objects: %+v", own.Objects, all.Objects, own)
	}
	for _, a := range own.Applications {
		if a.Tenant != "acme" {
			t.Errorf("it has %+v", a)
		}
	}
	if len(own.Waits) != 1 || own.Waits[0].Text != "of acme" || len(all.Waits) != 2 {
		t.Errorf("waits %+v, of all %+v", own.Waits, all.Waits)
	}
	one := must(s.Views.Trace(t.Context(), view.Scope{}, revision(1)[:8], view.Filter{
		Tenant: "globex", Deployment: "cart", Environment: "prod"}))(t)
	if one.Traced != 1 || one.Revision != revision(1) {
		t.Errorf("of one Application: %+v", one)
	}
	for _, c := range []struct {
		scope    view.Scope
		revision fleet.Revision
		by       view.Filter
	}{{view.Scope{Tenant: "acme"}, revision(1), view.Filter{Tenant: "globex"}},
		{view.Scope{Tenant: "initech"}, revision(1), view.Filter{}},
		{view.Scope{}, revision(99), view.Filter{}}} {
		if _, err := s.Views.Trace(t.Context(), c.scope, c.revision, c.by); !errors.Is(err,
			mirror.ErrNotFound) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Each commit is claimed for export once, when it has come to its end or after the patience, and
// again after it was given back, within a day.
func TestACommitIsClaimedForExportOnce(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, _, worker, rows := recorded(t, url, application("eu-1", "acme", "a", "prod", "v1"))
	take := func(patience time.Duration) []view.Trace {
		t.Helper()
		return must(s.Traces.Take(t.Context(), patience))(t)
	}
	if taken := take(time.Hour); len(taken) != 0 {
		t.Errorf("before its end: %+v", taken)
	}
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(rows)))
	check(t, s.Work.Observe(t.Context(), worker,
		observedAs(rows[0], mirror.SyncSynced, mirror.HealthHealthy, 1)))
	check(t, s.Plans.CompleteRevisions(t.Context()))
	taken := take(time.Hour)
	if len(taken) != 1 || taken[0].Revision != revision(1) || len(taken[0].Applications) != 1 {
		t.Fatalf("at its end: %+v", taken)
	}
	if again := take(time.Hour); len(again) != 0 {
		t.Errorf("it is claimed twice: %+v", again)
	}
	if dropped := must(s.Traces.Return(t.Context(), taken))(t); dropped != 0 ||
		len(take(time.Hour)) != 1 {
		t.Errorf("given back, %d dropped, and not claimed again", dropped)
	}
	check(t, s.Work.Observe(t.Context(), worker,
		observedAs(rows[0], mirror.SyncSynced, mirror.HealthDegraded, 1)))
	exec(t, url, `UPDATE status SET healthy_at = NULL`)
	exec(t, url, `UPDATE revisions SET recorded_at = now() - interval '2 hours', traced_at = NULL`)
	if late := take(time.Hour); len(late) != 1 || late[0].Complete() {
		t.Errorf("after the patience: %+v", late)
	}
	exec(t, url, `UPDATE revisions SET recorded_at = now() - interval '25 hours'`)
	if dropped := must(s.Traces.Return(t.Context(), taken))(t); dropped != 1 ||
		len(take(time.Hour)) != 0 {
		t.Errorf("after a day: %d dropped", dropped)
	}
}
