package postgres_test

import (
	"errors"
	"slices"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// moving is a store with acme/prod on eu-1 and its Applications a and b, whose move to eu-2 has
// begun.
type moving struct {
	testing.TB
	url        string
	s          *postgres.Store
	loop       mirror.Lease
	old, young mirror.Lease // of eu-1 and eu-2
	request    mirror.MoveRequest
}

var prod = fleet.EnvironmentID{Tenant: "acme", Name: "prod"}

func begin(t testing.TB) *moving {
	t.Helper()
	return beginWith(t, "a", "b")
}

func beginWith(t testing.TB, names ...string) *moving {
	t.Helper()
	m := &moving{TB: t, url: newDatabase(t)}
	var rows []mirror.Row
	for _, name := range names {
		rows = append(rows, application("eu-1", "acme", name, "prod", "v1"))
	}
	m.s, m.loop, m.old, _ = recorded(t, m.url, rows...)
	m.young = hold(t, m.s, "engine/eu-2")
	m.ask("eu-2")
	move := mirror.Move{MoveRequest: m.request, From: "eu-1"}
	var changed []mirror.Row
	for _, row := range rows {
		arrives := row
		arrives.Key.Engine, arrives.Moving = "eu-2", false
		row.Unwanted, row.Deletion = true, fleet.DeletionOrphan
		changed = append(changed, row, arrives)
		move.Applications = append(move.Applications, row.Application())
	}
	must(m.s.Plans.Record(t.Context(), m.loop, step(1, 1, func(r *mirror.Record) {
		r.PlanHash, r.Rows, r.Moves = "moved", changed, []mirror.Move{move}
	})))(t)
	return m
}

func (m *moving) ask(to fleet.EngineName) {
	m.Helper()
	undo := to == "eu-1"
	m.request = mirror.MoveRequest{Environment: prod, To: to, By: "token:ann", Note: "emptier"}
	m.request.Operation = must(m.s.Decisions.RequestMove(m.Context(), m.request))(m)
	m.request.Undo = undo
	if all := must(m.s.Plans.MoveRequests(m.Context()))(m); len(all) != 1 || all[0] != m.request {
		m.Fatalf("requests %+v, want %+v", all, m.request)
	}
}

func (m *moving) of(name string) mirror.ApplicationMove {
	m.Helper()
	id := fleet.ApplicationID{Tenant: "acme", Environment: "prod",
		Deployment: fleet.DeploymentName(name)}
	a, moves, err := m.s.Work.ApplicationMove(m.Context(), m.old, id)
	if err != nil || !moves {
		m.Fatalf("%s: %v %v", name, moves, err)
	}
	return a
}

func (m *moving) advance(name string, lease mirror.Lease, next mirror.MoveStep) {
	m.Helper()
	a := m.of(name)
	a.Departure.UID, a.Calls = "uid of "+name, 3
	var row mirror.Row
	for _, r := range must(m.s.Work.Changed(m.Context(), a.From, 0, 100))(m) {
		if string(r.Deployment) == name {
			row = r
		}
	}
	check(m, m.s.Work.AdvanceMove(m.Context(), lease, a, next, row))
}

func (m *moving) steps() (a, b mirror.MoveStep) {
	m.Helper()
	return m.of("a").Step, m.of("b").Step
}

func TestNothingIsFrozenBeforeEveryApplicationIsEqual(t *testing.T) {
	t.Parallel()
	m := begin(t)
	for _, row := range must(m.s.Work.Changed(t.Context(), "eu-2", 0, 10))(t) {
		if !row.Moving {
			t.Errorf("%s would be applied at once", row.Key.Name)
		}
	}
	m.advance("a", m.old, mirror.MoveCompare)
	m.advance("a", m.young, mirror.MoveReady)
	m.advance("b", m.old, mirror.MoveCompare)
	if a, b := m.steps(); a != mirror.MoveReady || b != mirror.MoveCompare {
		t.Fatalf("%s, %s", a, b)
	}
	m.advance("b", m.young, mirror.MoveReady)
	if a, b := m.steps(); a != mirror.MoveFreeze || b != mirror.MoveFreeze {
		t.Fatalf("%s, %s", a, b)
	}
	if got := m.of("a").Departure.UID; got != "uid of a" {
		t.Errorf("departure of %q", got)
	}
}

// The others stay in the care of the old engine.
func TestFewApplicationsOfAMoveAreWithoutAutomationAtATime(t *testing.T) {
	t.Parallel()
	const movesAtOnce = 8 // docs/moving.md
	var names []string
	for i := range movesAtOnce + 3 {
		names = append(names, string(rune('a'+i)))
	}
	m := beginWith(t, names...)
	for _, name := range names {
		m.advance(name, m.old, mirror.MoveCompare)
		m.advance(name, m.young, mirror.MoveReady)
	}
	at := func(step mirror.MoveStep, want int) {
		t.Helper()
		expect(t, m.url, `SELECT count(*) FROM application_moves WHERE step = '`+string(step)+`'`,
			want)
	}
	at(mirror.MoveFreeze, movesAtOnce)
	leave := func(name string) {
		m.advance(name, m.old, mirror.MoveAdopt)
		m.advance(name, m.young, mirror.MoveDelete)
		m.advance(name, m.old, mirror.MoveEnable)
	}
	leave("a")
	at(mirror.MoveReady, 3)
	check(t, m.s.Work.EndMove(t.Context(), m.young, m.of("a")))
	at(mirror.MoveReady, 2)
	if got := m.of(names[movesAtOnce]).Step; got != mirror.MoveFreeze {
		t.Errorf("the next one is at %s", got)
	}
	// The old engine has synced b since: b begins again, and another Application takes its place.
	m.advance("b", m.old, mirror.MoveCheck)
	at(mirror.MoveReady, 1)
	at(mirror.MoveFreeze, movesAtOnce)
	for _, name := range names[2:] {
		leave(name)
		check(t, m.s.Work.EndMove(t.Context(), m.young, m.of(name)))
	}
	m.advance("b", m.old, mirror.MoveCompare)
	m.advance("b", m.young, mirror.MoveReady)
	at(mirror.MoveFreeze, 1)
}

func TestAMoveEndsWithItsLastApplication(t *testing.T) {
	t.Parallel()
	m := begin(t)
	for _, name := range []string{"a", "b"} {
		m.advance(name, m.old, mirror.MoveCompare)
		m.advance(name, m.young, mirror.MoveReady)
	}
	for i, name := range []string{"a", "b"} {
		m.advance(name, m.old, mirror.MoveAdopt)
		m.advance(name, m.young, mirror.MoveDelete)
		last := m.of(name)
		m.advance(name, m.old, mirror.MoveEnable)
		// a retry after a lost answer
		check(t, m.s.Work.AdvanceMove(t.Context(), m.old, last, mirror.MoveEnable, mirror.Row{}))
		if rows := must(m.s.Work.Changed(t.Context(), "eu-1", 0, 10))(t); len(rows) != 1-i {
			t.Errorf("%d rows on the engine that it left", len(rows))
		}
		a := m.of(name)
		check(t, m.s.Work.EndMove(t.Context(), m.young, a))
		check(t, m.s.Work.EndMove(t.Context(), m.young, a))
	}
	expect(t, m.url, `SELECT count(*) FROM application_moves WHERE step <> 'Done'`, 0)
	moved, _, err := m.s.Views.Moves(t.Context(), view.Scope{Tenant: "acme"}, view.Filter{
		Environment: "prod"}, view.Page{Limit: 10})
	if err != nil || len(moved) != 1 || moved[0].State != mirror.OperationSucceeded ||
		moved[0].EndedAt == nil || moved[0].To != "eu-2" || len(moved[0].Applications) != 2 {
		t.Fatalf("%+v, %v", moved, err)
	}
	for _, a := range moved[0].Applications {
		var steps []mirror.MoveStep
		for _, s := range a.Took {
			steps = append(steps, s.Step)
		}
		want := []mirror.MoveStep{mirror.MoveCheck, mirror.MoveCompare, mirror.MoveReady,
			mirror.MoveFreeze, mirror.MoveAdopt, mirror.MoveDelete, mirror.MoveEnable}
		if !slices.Equal(steps, want) || a.Took[0].Calls != 3 || a.Step != mirror.MoveDone {
			t.Errorf("%s: %+v", a.Deployment, a)
		}
	}
	if others, _, err := m.s.Views.Moves(t.Context(), view.Scope{Tenant: "globex"}, view.Filter{},
		view.Page{Limit: 10}); err != nil || len(others) > 0 {
		t.Errorf("another tenant reads %+v, %v", others, err)
	}
	expect(t, m.url, `SELECT count(*) FROM operations
		WHERE kind = 'Move' AND state = 'Succeeded' AND done = 2 AND total = 2 AND ended_at IS NOT NULL`, 1)
	for _, row := range must(m.s.Work.Changed(t.Context(), "eu-2", 0, 10))(t) {
		if row.Moving {
			t.Errorf("%s still moves", row.Key.Name)
		}
	}
}

func TestAMoveIsUndoneUntilAnApplicationLeaves(t *testing.T) {
	t.Parallel()
	m := begin(t)
	other := mirror.MoveRequest{Environment: prod, To: "eu-3"}
	if _, err := m.s.Decisions.RequestMove(t.Context(), other); !errors.Is(err, mirror.ErrMoving) {
		t.Fatalf("a second move: %v", err)
	}
	moved := m.request.Operation
	for _, name := range []string{"a", "b"} {
		m.advance(name, m.old, mirror.MoveCompare)
		m.advance(name, m.young, mirror.MoveReady)
	}
	m.advance("a", m.old, mirror.MoveAdopt)
	before := m.of("b")
	halted := func(steps ...mirror.MoveStep) {
		t.Helper()
		// the worker of eu-1 was at work
		check(t, m.s.Work.AdvanceMove(t.Context(), m.old, before, mirror.MoveAdopt, mirror.Row{}))
		a, b := m.of("a"), m.of("b")
		if !slices.Equal([]mirror.MoveStep{a.Step, b.Step}, steps) || !a.Undo || a.At() != "" ||
			b.At() != "" {
			t.Fatalf("%+v, %+v", a, b)
		}
	}
	m.ask("eu-1")
	halted(mirror.MoveAdopt, mirror.MoveFreeze)
	if _, err := m.s.Decisions.RequestMove(t.Context(), other); !errors.Is(err, mirror.ErrMoving) {
		t.Errorf("a move while another one is undone: %v", err)
	}
	check(t, m.s.Plans.RefuseMove(t.Context(), m.request.Operation, "b was added"))
	if a := m.of("a"); a.Undo || a.At() != "eu-2" || m.of("b").At() != "eu-1" {
		t.Fatalf("a refused request has ended the move: %+v", a)
	}
	m.ask("eu-1")
	halted(mirror.MoveAdopt, mirror.MoveFreeze)
	must(m.s.Plans.Record(t.Context(), m.loop, step(1, 1, func(r *mirror.Record) {
		r.PlanHash = "undone"
		r.Moves = []mirror.Move{{MoveRequest: m.request, From: "eu-2",
			Applications: []fleet.ApplicationID{m.of("a").Application, m.of("b").Application}}}
	})))(t)
	expect(t, m.url, `SELECT count(*) FROM operations
		WHERE id = '`+moved+`' AND state = 'Failed'`, 1)
	expect(t, m.url, `SELECT count(*) FROM move_requests`, 0)
	expect(t, m.url, `SELECT count(*) FROM application_moves`, 1)
	a := m.of("a")
	if a.Step != mirror.MoveReturn || a.At() != "eu-1" || a.From != "eu-2" ||
		a.Departure.UID != "uid of a" {
		t.Errorf("eu-1 does not mark the resources of a: %+v", a)
	}
	for on, moves := range map[fleet.EngineName]bool{"eu-1": true, "eu-2": false} {
		for _, row := range must(m.s.Work.Changed(t.Context(), on, 0, 10))(t) {
			if row.Deployment == "a" && row.Moving != moves {
				t.Errorf("a on %s: moving %t", on, row.Moving)
			}
		}
	}
	if _, err := m.s.Decisions.RequestMove(t.Context(), mirror.MoveRequest{Environment: prod,
		To: "eu-2"}); !errors.Is(err, mirror.ErrMoving) {
		t.Errorf("an undone move is undone: %v", err)
	}
	check(t, m.s.Work.AdvanceMove(t.Context(), m.old, a, mirror.MoveEnable, mirror.Row{}))
	check(t, m.s.Work.EndMove(t.Context(), m.old, m.of("a")))
	expect(t, m.url, `SELECT count(*) FROM operations
		WHERE id = '`+m.request.Operation+`' AND state = 'Succeeded' AND done = 2 AND total = 2`, 1)

	m = begin(t)
	for _, name := range []string{"a", "b"} {
		m.advance(name, m.old, mirror.MoveCompare)
		m.advance(name, m.young, mirror.MoveReady)
	}
	m.advance("a", m.old, mirror.MoveAdopt)
	m.advance("a", m.young, mirror.MoveDelete)
	back := mirror.MoveRequest{Environment: prod, To: "eu-1"}
	if _, err := m.s.Decisions.RequestMove(t.Context(), back); !errors.Is(err, mirror.ErrMoving) {
		t.Errorf("an Application is being deleted on eu-1: %v", err)
	}
}

// The new engine may have marked some of its resources before it gave up.
func TestAnUndoMarksTheResourcesOfAnApplicationThatReturns(t *testing.T) {
	t.Parallel()
	m := begin(t)
	for _, name := range []string{"a", "b"} {
		m.advance(name, m.old, mirror.MoveCompare)
		m.advance(name, m.young, mirror.MoveReady)
	}
	m.advance("a", m.old, mirror.MoveAdopt)
	if a := m.of("a"); a.Unadopted != 2 {
		t.Errorf("%d Applications are yet to be adopted", a.Unadopted)
	}
	a := m.of("a")
	a.Departure.Returns = "the adoption has failed"
	check(t, m.s.Work.AdvanceMove(t.Context(), m.young, a, mirror.MoveFreeze, mirror.Row{}))
	if a = m.of("a"); a.At() != "eu-1" || a.Departure.Returns != "the adoption has failed" {
		t.Fatalf("%+v", a)
	}
	m.ask("eu-1")
	must(m.s.Plans.Record(t.Context(), m.loop, step(1, 1, func(r *mirror.Record) {
		r.PlanHash = "undone"
		r.Moves = []mirror.Move{{MoveRequest: m.request, From: "eu-2",
			Applications: []fleet.ApplicationID{a.Application, m.of("b").Application}}}
	})))(t)
	expect(t, m.url, `SELECT count(*) FROM application_moves`, 1)
	if a = m.of("a"); a.Step != mirror.MoveReturn || a.At() != "eu-1" {
		t.Errorf("eu-1 does not mark the resources of a: %+v", a)
	}
}

func TestARebuildEndsEveryMove(t *testing.T) {
	t.Parallel()
	m := begin(t)
	m.advance("a", m.old, mirror.MoveCompare)
	moved := m.request.Operation
	m.ask("eu-1") // no plan has taken it up
	check(t, m.s.Reset(t.Context()))
	expect(t, m.url, `SELECT count(*) FROM application_moves`, 0)
	expect(t, m.url, `SELECT count(*) FROM move_requests`, 0)
	expect(t, m.url, `SELECT count(*) FROM operations WHERE id IN ('`+moved+`', '`+
		m.request.Operation+`') AND state = 'Failed' AND ended_at IS NOT NULL`, 2)
}

func TestADryRunNamesEveryObstacleAndMovesNothing(t *testing.T) {
	t.Parallel()
	m := &moving{TB: t, url: newDatabase(t)}
	m.s, m.loop, m.old, _ = recorded(t, m.url,
		application("eu-1", "acme", "outofsync", "prod", "v1"),
		application("eu-1", "acme", "unread", "prod", "v1"),
		application("eu-1", "acme", "runs", "prod", "v1"),
		application("eu-1", "acme", "rejected", "prod", "v1"),
		application("eu-1", "acme", "pending", "prod", "v1"),
		application("eu-1", "acme", "never", "prod", "v1"))
	m.request = mirror.MoveRequest{Environment: prod, To: "eu-2", By: "token:ann", DryRun: true}
	m.request.Operation = must(m.s.Decisions.RequestMove(t.Context(), m.request))(t)
	if all := must(m.s.Plans.MoveRequests(t.Context()))(t); len(all) != 1 || all[0] != m.request {
		t.Fatalf("%+v", all)
	}
	exec(t, m.url, `INSERT INTO placements (tenant, environment, engine, applications, body)
		VALUES ('acme', 'prod', 'eu-1', 2, '{}') ON CONFLICT (tenant, environment) DO UPDATE SET engine = 'eu-1'`)
	exec(t, m.url, `INSERT INTO engines (engine, reachable, message) VALUES ('eu-1', true, ''), ('eu-2', false, 'no route')
		ON CONFLICT (engine) DO UPDATE SET reachable = excluded.reachable, message = excluded.message`)
	exec(t, m.url, `INSERT INTO status (engine, kind, name, tenant, seq, uid, state, state_message, sync, operation_phase)
		SELECT d.engine, d.kind, d.name, d.tenant, d.seq, s.uid, s.state, s.message, s.sync, s.phase FROM desired d JOIN (VALUES
			('outofsync', 'u', 'Applied', '', 'OutOfSync', ''), ('unread', 'u', 'Applied', '', 'Unknown', ''), ('runs', 'u', 'Applied', '', 'OutOfSync', 'Running'),
			('rejected', 'u', 'Failed', 'no such field', 'Synced', ''), ('pending', 'u', 'Pending', '', 'Synced', ''), ('never', '', 'Failed', 'no', 'Unknown', ''))
			AS s (deployment, uid, state, message, sync, phase) USING (deployment)
		ON CONFLICT (engine, kind, name) DO UPDATE SET seq = excluded.seq, uid = excluded.uid, state = excluded.state,
			state_message = excluded.state_message, sync = excluded.sync, operation_phase = excluded.operation_phase`)
	obstacles := func() []mirror.MoveObstacle {
		return must(m.s.Plans.MoveObstacles(t.Context(), m.request))(t)
	}
	of := []mirror.MoveObstacle{{Text: "acme/outofsync@prod is OutOfSync; sync it first"},
		{Text: "acme/rejected@prod: its last change is not on the engine: no such field"},
		{Text: "acme/runs@prod: an operation runs", Passes: true},
		{Text: "acme/unread@prod is Unknown: Argo CD has not compared it"}}
	if got, want := obstacles(), append(of, mirror.MoveObstacle{
		Text: "engine eu-2 does not answer: no route"}); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	exec(t, m.url, `UPDATE engines SET reachable = true, unfit = 'it tracks by label' WHERE engine = 'eu-2'`)
	if got, want := obstacles(), append(of, mirror.MoveObstacle{
		Text: "engine eu-2 refuses writes: it tracks by label"}); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	check(t, m.s.Plans.EndDryRun(t.Context(), m.request.Operation, "2 Applications would move"))
	expect(t, m.url, `SELECT count(*) FROM move_requests`, 0)
	expect(t, m.url, `SELECT count(*) FROM operations
		WHERE state = 'Succeeded' AND message = '2 Applications would move' AND ended_at IS NOT NULL`, 1)
}

func TestStepsNeedTheLeaseOfTheirEngine(t *testing.T) {
	t.Parallel()
	m := begin(t)
	a, stale := m.of("a"), m.old
	stale.Epoch--
	for what, err := range map[string]error{
		"advance": m.s.Work.AdvanceMove(t.Context(), stale, a, mirror.MoveCompare, mirror.Row{}),
		"delay":   m.s.Work.DelayMove(t.Context(), stale, a, "x"),
		"end":     m.s.Work.EndMove(t.Context(), stale, a),
	} {
		if !errors.Is(err, mirror.ErrFenced) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := m.s.Work.ApplicationMove(t.Context(), stale, a.Application); !errors.Is(err,
		mirror.ErrFenced) {
		t.Errorf("read: %v", err)
	}
	check(t, m.s.Work.DelayMove(t.Context(), m.old, a, "eu-1 does not answer"))
	if got := m.of("a"); got.Message != "eu-1 does not answer" || got.Step != mirror.MoveCheck {
		t.Errorf("%+v", got)
	}
	check(t, m.s.Plans.RefuseMove(t.Context(), m.request.Operation, "no"))
}
