package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// split is a store with acme/prod, which has two Applications in each quarter. Its slice 0 is on
// eu-1 and its slice 1 on eu-2.
type split struct {
	testing.TB
	url     string
	s       *postgres.Store
	loop    mirror.Lease
	workers map[fleet.EngineName]mirror.Lease
	records int
}

func newSplit(t testing.TB) *split {
	t.Helper()
	d := &split{TB: t, url: newDatabase(t), workers: map[fleet.EngineName]mirror.Lease{}}
	var rows []mirror.Row
	for _, s := range []fleet.Slice{"00", "01", "10", "11"} {
		engine := "eu-1"
		if s[0] == '1' {
			engine = "eu-2"
		}
		for _, name := range deploymentsOf(s, 2) {
			rows = append(rows, application(engine, "acme", string(name), "prod", "v1"))
		}
	}
	d.s, d.loop, d.workers["eu-1"], _ = recorded(t, d.url, rows...)
	for _, name := range []fleet.EngineName{"eu-2", "eu-3", "eu-4"} {
		d.workers[name] = hold(t, d.s, "engine/"+string(name))
	}
	d.record(func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{environmentDeclaration("acme", "prod"),
			engineDeclaration("eu-1"), engineDeclaration("eu-2")}
		r.Unplaced = []fleet.SliceID{prod.Whole()}
		r.Placements = []fleet.Placement{placedSlice("0", "eu-1"), placedSlice("1", "eu-2")}
	})
	return d
}

// deploymentsOf returns names of n deployments that a slice holds.
func deploymentsOf(s fleet.Slice, n int) (names []fleet.DeploymentName) {
	for i := 0; len(names) < n; i++ {
		if name := fleet.DeploymentName(fmt.Sprintf("d-%d", i)); s.Holds(name) {
			names = append(names, name)
		}
	}
	return names
}

func placedSlice(s fleet.Slice, engine string) fleet.Placement {
	p := placement("acme", "prod", engine)
	p.Slice, p.Applications = s, 4
	return p
}

func (d *split) record(fill func(*mirror.Record)) {
	d.Helper()
	d.records++
	must(d.s.Plans.Record(d.Context(), d.loop, step(1, 1, func(r *mirror.Record) {
		r.PlanHash = fmt.Sprint("record ", d.records)
		fill(r)
	})))(d)
}

func (d *split) request(s fleet.Slice, to fleet.EngineName) (mirror.MoveRequest, error) {
	m := mirror.MoveRequest{Environment: prod, Slice: s, To: to, By: "token:ann"}
	var err error
	m.Operation, err = d.s.Decisions.RequestMove(d.Context(), m)
	return m, err
}

func (d *split) apps(s fleet.Slice) (all []fleet.ApplicationID) {
	for _, q := range []fleet.Slice{"00", "01", "10", "11"} {
		if !strings.HasPrefix(string(q), string(s)) && !strings.HasPrefix(string(s), string(q)) {
			continue
		}
		for _, name := range deploymentsOf(q, 2) {
			if s.Holds(name) {
				all = append(all, fleet.ApplicationID{Tenant: "acme", Environment: "prod",
					Deployment: name})
			}
		}
	}
	return all
}

// begin moves a slice.
func (d *split) begin(s fleet.Slice, from, to fleet.EngineName) mirror.MoveRequest {
	d.Helper()
	m, err := d.request(s, to)
	check(d, err)
	d.record(func(r *mirror.Record) {
		r.Moves = []mirror.Move{{MoveRequest: m, From: from, Applications: d.apps(s)}}
		p := placedSlice(s, string(to))
		p.From = from
		r.Placements = []fleet.Placement{p}
	})
	return m
}

func (d *split) of(id fleet.ApplicationID) mirror.ApplicationMove {
	d.Helper()
	m, moves, err := d.s.Work.ApplicationMove(d.Context(), d.workers["eu-1"], id)
	if err != nil || !moves {
		d.Fatalf("%s: %v %v", id, moves, err)
	}
	return m
}

func (d *split) advance(id fleet.ApplicationID, next mirror.MoveStep) {
	d.Helper()
	d.advanceWithin(d.Context(), id, next)
}

func (d *split) advanceWithin(ctx context.Context, id fleet.ApplicationID, next mirror.MoveStep) {
	d.Helper()
	m := d.of(id)
	lease := d.workers[m.At()]
	m.Departure.UID = "uid of " + string(id.Deployment)
	check(d, d.s.Work.AdvanceMove(ctx, lease, m, next, mirror.Row{}))
}

func (d *split) steps(s fleet.Slice) (steps []mirror.MoveStep) {
	d.Helper()
	for _, id := range d.apps(s) {
		steps = append(steps, d.of(id).Step)
	}
	return steps
}

func TestSlicesOfOneEnvironmentMoveAtOnce(t *testing.T) {
	t.Parallel()
	d := newSplit(t)
	zero := d.begin("0", "eu-1", "eu-3")
	one := d.begin("1", "eu-2", "eu-4")
	for _, s := range []fleet.Slice{"", "0", "00", "1", "111"} {
		if _, err := d.request(s, "eu-9"); !errors.Is(err, mirror.ErrMoving) {
			t.Errorf("another move of slice %q: %v", s, err)
		}
	}
	for _, id := range d.apps("0") {
		d.advance(id, mirror.MoveCompare)
	}
	// a worker of the other slice is at work for as long as it likes
	conn := connect(t, d.url)
	defer conn.Close(t.Context())
	tx := must(conn.Begin(t.Context()))(t)
	_, err := tx.Exec(t.Context(), `SELECT FROM application_moves WHERE slice = '1' FOR UPDATE`)
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, id := range d.apps("0") {
		d.advanceWithin(ctx, id, mirror.MoveReady)
	}
	check(t, tx.Rollback(t.Context()))
	only := func(of []mirror.MoveStep, want mirror.MoveStep) {
		t.Helper()
		if len(of) != 4 || slices.ContainsFunc(of, func(s mirror.MoveStep) bool {
			return s != want
		}) {
			t.Errorf("%v, want %s", of, want)
		}
	}
	only(d.steps("0"), mirror.MoveFreeze)
	only(d.steps("1"), mirror.MoveCheck)
	first := d.apps("0")[0]
	d.advance(first, mirror.MoveAdopt)
	if m := d.of(first); m.Unadopted != 4 {
		t.Errorf("%d Applications are yet to be adopted", m.Unadopted)
	}
	// what has left with slice 0 lets nothing of slice 1 leave
	for _, id := range d.apps("1")[:3] {
		d.advance(id, mirror.MoveCompare)
		d.advance(id, mirror.MoveReady)
	}
	if got := d.of(d.apps("1")[0]).Step; got != mirror.MoveReady {
		t.Errorf("an Application of slice 1 is at %s before all are equal", got)
	}
	moved, _, err := d.s.Views.Moves(t.Context(), view.Scope{Tenant: "acme"}, view.Filter{},
		view.Page{Limit: 1})
	check(t, err)
	if len(moved) != 1 || moved[0].Slice != "0" || moved[0].Operation != zero.Operation ||
		len(moved[0].Applications) != 4 {
		t.Errorf("the first page of moves: %+v", moved)
	}
	all, _, err := d.s.Views.Moves(t.Context(), view.Scope{}, view.Filter{Environment: "prod"},
		view.Page{Limit: 9})
	if check(t, err); len(all) != 2 || all[1].Slice != "1" || all[1].Operation != one.Operation {
		t.Errorf("moves: %+v", all)
	}

	// slice 1 returns; slice 0 goes on
	back, err := d.request("1", "eu-2")
	check(t, err)
	if m := d.of(d.apps("1")[0]); !m.Undo {
		t.Errorf("%+v", m)
	}
	if m := d.of(first); m.Undo {
		t.Errorf("an undo of slice 1 undoes %+v", m)
	}
	check(t, d.s.Plans.RefuseMove(t.Context(), back.Operation, "x"))
	if m := d.of(d.apps("1")[0]); m.Undo {
		t.Errorf("a refused undo goes on: %+v", m)
	}
	back, err = d.request("1", "eu-2")
	check(t, err)
	back.Undo = true
	d.record(func(r *mirror.Record) {
		r.Moves = []mirror.Move{{MoveRequest: back, From: "eu-4", Applications: d.apps("1")}}
		r.Placements = []fleet.Placement{placedSlice("1", "eu-2")}
	})
	expect(t, d.url, `SELECT count(*) FROM application_moves WHERE slice = '1'`, 0)
	ended := func(m mirror.MoveRequest, want string) {
		t.Helper()
		expect(t, d.url, `SELECT count(*) FROM operations
			WHERE id = '`+m.Operation+`' AND `+want, 1)
	}
	ended(one, `state = 'Failed'`)
	ended(zero, `state = 'Running'`)
	for i, id := range d.apps("0") {
		if i > 0 {
			d.advance(id, mirror.MoveAdopt)
		}
		d.advance(id, mirror.MoveDelete)
		d.advance(id, mirror.MoveEnable)
		check(t, d.s.Work.EndMove(t.Context(), d.workers["eu-3"], d.of(id)))
	}
	ended(zero, `state = 'Succeeded' AND done = 4`)
	// the record of slice 0 stays for people while slice 1 moves
	d.begin("1", "eu-2", "eu-4")
	expect(t, d.url, `SELECT count(*) FROM application_moves WHERE slice = '0' AND step = 'Done'`, 4)
}

func TestASplitMovesTheSecondHalf(t *testing.T) {
	t.Parallel()
	d := newSplit(t)
	d.record(func(r *mirror.Record) {
		r.Unplaced = []fleet.SliceID{prod.Slice("0"), prod.Slice("1")}
		r.Placements = []fleet.Placement{placedSlice("", "eu-1")}
	})
	m := mirror.MoveRequest{Environment: prod, Split: true, To: "eu-2", By: "token:ann"}
	m.Operation = must(d.s.Decisions.RequestMove(t.Context(), m))(t)
	if all := must(d.s.Plans.MoveRequests(t.Context()))(t); len(all) != 1 || all[0] != m {
		t.Fatalf("%+v", all)
	}
	expect(t, d.url, `SELECT count(*) FROM operations WHERE kind = 'Move'
		AND subject = 'acme/prod slice 1 to engine eu-2, split off acme/prod'`, 1)
	if _, err := d.request("1", "eu-2"); !errors.Is(err, mirror.ErrMoving) {
		t.Errorf("a part of a requested move: %v", err)
	}
	exec(t, d.url, `UPDATE desired SET engine = 'eu-1' WHERE engine = 'eu-2'`)
	exec(t, d.url, `INSERT INTO status (engine, kind, name, tenant, seq, uid, state, sync)
		SELECT engine, kind, name, tenant, seq, 'u', 'Applied', 'OutOfSync' FROM desired
		ON CONFLICT (engine, kind, name) DO UPDATE SET uid = 'u', state = 'Applied', sync = 'OutOfSync'`)
	obstacles := must(d.s.Plans.MoveObstacles(t.Context(), m))(t)
	obstacles = slices.DeleteFunc(obstacles, func(o mirror.MoveObstacle) bool {
		return !strings.Contains(o.Text, "is OutOfSync")
	})
	if len(obstacles) != len(d.apps("1")) {
		t.Errorf("%+v, want one for each Application that moves", obstacles)
	}
	d.record(func(r *mirror.Record) {
		r.Unplaced = []fleet.SliceID{prod.Whole()}
		r.Placements = []fleet.Placement{placedSlice("0", "eu-1"), placedSlice("1", "eu-2")}
		r.Moves = []mirror.Move{{MoveRequest: m, From: "eu-1", Applications: d.apps("1")}}
	})
	expect(t, d.url, `SELECT count(*) FROM move_requests`, 0)
	expect(t, d.url, `SELECT count(*) FROM application_moves WHERE slice = '1'`, 4)
	snap := must(d.s.Plans.Load(t.Context()))(t)
	if len(snap.Placements) != 2 || snap.Placements[0].Slice != "0" ||
		snap.Placements[1].ID() != prod.Slice("1") || snap.Placements[1].Engine != "eu-2" {
		t.Errorf("%+v", snap.Placements)
	}
	// the other half may move meanwhile
	d.begin("0", "eu-1", "eu-3")
	d.record(func(r *mirror.Record) {
		r.Unplaced = []fleet.SliceID{prod.Slice("0"), prod.Slice("1")}
		r.Placements = []fleet.Placement{placedSlice("", "eu-3")}
	})
	if snap = must(d.s.Plans.Load(t.Context()))(t); len(snap.Placements) != 1 ||
		snap.Placements[0].Slice != "" {
		t.Errorf("after a join: %+v", snap.Placements)
	}
	expect(t, d.url, `SELECT count(*) FROM placements_of_slices`, 0)
}

func TestViewsOfASplitEnvironment(t *testing.T) {
	t.Parallel()
	d := newSplit(t)
	d.record(func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{environmentDeclaration("acme", "whole")}
		r.Placements = []fleet.Placement{placement("acme", "whole", "eu-2")}
	})
	list := func(by view.Filter, scope view.Scope) string {
		t.Helper()
		all, _, err := d.s.Views.Environments(t.Context(), scope, by, view.Page{Limit: 9})
		check(t, err)
		var text []string
		for _, e := range all {
			line := string(e.Name) + " " + string(e.Engine)
			for _, p := range e.Slices {
				line += fmt.Sprintf(" %s@%s:%d/%d", p.Slice, p.Engine, p.Applications,
					len(p.Alternatives))
			}
			text = append(text, line)
		}
		return strings.Join(text, ", ")
	}
	const divided, whole = "prod eu-1 0@eu-1:4/1 1@eu-2:4/1", "whole eu-2"
	for _, c := range []struct {
		engine fleet.EngineName
		want   string
	}{{"", divided + ", " + whole}, {"eu-1", divided}, {"eu-2", divided + ", " + whole},
		{"eu-3", ""}} {
		for _, scope := range []view.Scope{{}, {Tenant: "acme"}} {
			if got := list(view.Filter{Engine: c.engine}, scope); got != c.want {
				t.Errorf("on %q as %q: %s, want %s", c.engine, scope.Tenant, got, c.want)
			}
		}
	}
	if got := list(view.Filter{}, view.Scope{Tenant: "globex"}); got != "" {
		t.Errorf("another tenant reads %s", got)
	}
	e := must(d.s.Views.Explain(t.Context(), view.Scope{Tenant: "acme"}, prod))(t)
	if e.Slice != "0" || len(e.Alternatives) != 1 {
		t.Errorf("%+v", e)
	}
	if _, err := d.s.Views.Explain(t.Context(), view.Scope{Tenant: "globex"}, prod); !errors.Is(
		err, mirror.ErrNotFound) {
		t.Errorf("another tenant: %v", err)
	}
	check(t, d.s.Work.ReportReach(t.Context(), d.workers["eu-2"], nil, false))
	for i, engine := range []string{"eu-1", "eu-2"} {
		exec(t, d.url, `INSERT INTO desired (engine, kind, name, tenant, environment, deployment, seq, created_at, changed_at, absent, deletion, revision, hash, body)
			VALUES ($1, 'Cluster', 'c', 'acme', 'prod', '', 9, now(), now(), false, '', '', '', '')`, engine)
		check(t, d.s.Work.ReportReach(t.Context(), d.workers[fleet.EngineName(engine)],
			[]mirror.Reach{{Environment: prod, Unreachable: &mirror.Unreachable{
				Reason: mirror.UnreachableRefused, Message: engine,
				Since: time.Now().Add(-time.Duration(i) * time.Hour)}}}, true))
	}
	all, _, err := d.s.Views.Environments(t.Context(), view.Scope{}, view.Filter{
		Environment: "prod"}, view.Page{Limit: 9})
	check(t, err)
	if len(all) != 1 || all[0].Unreachable == nil || all[0].Unreachable.Message != "eu-2" {
		t.Errorf("%+v, want the engine that cannot read the cluster for the longest time", all)
	}
	unready := must(d.s.Views.Unready(t.Context()))(t)
	if unready[prod.Slice("0")] != 4 || unready[prod.Slice("1")] != 4 || len(unready) != 2 {
		t.Errorf("unready: %v", unready)
	}
}

func TestADrainRequestsSlices(t *testing.T) {
	t.Parallel()
	d := newSplit(t)
	d.record(func(r *mirror.Record) {
		r.Unplaced = []fleet.SliceID{prod.Slice("0")}
		r.Placements = []fleet.Placement{placedSlice("00", "eu-1"), placedSlice("01", "eu-1")}
	})
	expect(t, d.url, `SELECT count(*) FROM placements`, 3)
	facts := func() mirror.DrainFacts {
		t.Helper()
		return must(d.s.Plans.Drain(t.Context(), "eu-1", time.Hour))(t)
	}
	if f := facts(); f.Environments != 2 {
		t.Fatalf("%+v", f)
	}
	moves := []mirror.MoveRequest{
		{Environment: prod, Slice: "00", To: "eu-2", By: "argosy", Drain: true},
		{Environment: prod, Slice: "01", To: "eu-3", By: "argosy", Drain: true, Split: true}}
	churn := fleet.Churn{AtOnce: 9, PerHour: 9}
	if n := must(d.s.Plans.RequestDrain(t.Context(), "eu-1", churn, moves))(t); n != 2 {
		t.Fatalf("%d requests", n)
	}
	f := facts()
	if len(f.Open) != 2 || f.Open[0].ID() != prod.Slice("00") || f.Open[1].Slice != "01" ||
		f.BegunLastHour != 2 {
		t.Fatalf("%+v", f)
	}
	if n := must(d.s.Plans.RequestDrain(t.Context(), "eu-1", churn, moves))(t); n != 0 {
		t.Errorf("%d requests again", n)
	}
	requested := must(d.s.Plans.MoveRequests(t.Context()))(t)
	slices.SortFunc(requested, func(a, b mirror.MoveRequest) int { return a.ID().Compare(b.ID()) })
	check(t, d.s.Plans.RefuseMove(t.Context(), requested[0].Operation, "no"))
	f = facts()
	if len(f.Failed) != 1 || f.Failed[0].ID() != prod.Slice("00") || len(f.Open) != 1 {
		t.Fatalf("%+v", f)
	}
	// the second half of 01 begins to move, and a person undoes it: the halves are joined again
	m := requested[1]
	d.record(func(r *mirror.Record) {
		r.Unplaced = []fleet.SliceID{prod.Slice("01")}
		moving := placedSlice("011", "eu-3")
		moving.From = "eu-1"
		r.Placements = []fleet.Placement{placedSlice("010", "eu-1"), moving}
		r.Moves = []mirror.Move{{MoveRequest: m, From: "eu-1", Applications: d.apps("011")}}
	})
	if f = facts(); len(f.Open) != 1 || f.Open[0].Slice != "011" || f.BegunLastHour != 1 {
		t.Fatalf("%+v", f)
	}
	undo, err := d.request("011", "eu-1")
	check(t, err)
	undo.Undo = true
	d.record(func(r *mirror.Record) {
		r.Unplaced = []fleet.SliceID{prod.Slice("010"), prod.Slice("011")}
		r.Placements = []fleet.Placement{placedSlice("01", "eu-1")}
		r.Moves = []mirror.Move{{MoveRequest: undo, From: "eu-3", Applications: d.apps("011")}}
	})
	f = facts()
	if len(f.Failed) != 2 || f.Failed[1].ID() != prod.Slice("01") ||
		f.Failed[1].Trouble != "was undone by token:ann" || f.BegunLastHour != 1 {
		t.Errorf("a split that was undone is requested again: %+v", f)
	}
}

func TestARebalanceMovesSlices(t *testing.T) {
	t.Parallel()
	d := newSplit(t)
	r := proposal("prod", "prod")
	r.Moves[0].Slice, r.Moves[1].Slice, r.Moves[1].From = "0", "1", "eu-2"
	r.Moves[1].To = "eu-3"
	check(t, d.s.Plans.ProposeRebalance(t.Context(), d.loop, r, ""))
	r = openRebalance(t, d.s)
	if r.Moves[0].ID() != prod.Slice("0") || r.Moves[1].ID() != prod.Slice("1") {
		t.Fatalf("%+v", r.Moves)
	}
	check(t, d.s.Decisions.AcceptRebalance(t.Context(), mirror.RebalanceDecision{ID: r.ID,
		By: "token:ann"}))
	ask := requests(r)
	ask[0].Slice, ask[1].Slice = "0", "1"
	n := must(d.s.Plans.RequestRebalance(t.Context(), d.loop, r.ID, fleet.Churn{AtOnce: 9,
		PerHour: 9}, ask, nil))(t)
	if r = openRebalance(t, d.s); n != 2 || r.Moves[0].Operation == r.Moves[1].Operation ||
		r.Moves[1].State != mirror.RebalanceMoveRequested {
		t.Fatalf("%d, %+v", n, r.Moves)
	}
	m := ask[1]
	m.Operation = r.Moves[1].Operation
	d.record(func(r *mirror.Record) {
		r.Moves = []mirror.Move{{MoveRequest: m, From: "eu-2", Applications: d.apps("1")}}
	})
	undo, err := d.request("1", "eu-2")
	check(t, err)
	undo.Undo = true
	d.record(func(r *mirror.Record) {
		r.Moves = []mirror.Move{{MoveRequest: undo, From: "eu-3", Applications: d.apps("1")}}
	})
	f := must(d.s.Plans.Rebalance(t.Context(), time.Hour))(t)
	if f.Open.Moves[0].State != mirror.RebalanceMoveRequested ||
		f.Open.Moves[1].State != mirror.RebalanceMoveUndone || len(f.Troubles) != 1 ||
		f.Troubles[0] != "acme/prod slice 1 was undone by token:ann" || f.UnderWay != 1 {
		t.Errorf("%+v", f)
	}
	fixed := must(d.s.Views.Measured(t.Context(), 0))(t).Fixed
	if fixed[prod.Slice("1")] == "" || len(fixed) != 1 {
		t.Errorf("fixed: %v", fixed)
	}
	d.record(func(r *mirror.Record) {
		r.Unplaced = []fleet.SliceID{prod.Slice("0"), prod.Slice("1")}
		r.Placements = []fleet.Placement{placedSlice("", "eu-2")}
	})
	if fixed = must(d.s.Views.Measured(t.Context(), 0))(t).Fixed; fixed[prod.Whole()] == "" {
		t.Errorf("after a join: %v", fixed)
	}
}

func TestAnEvacuatedEngineLosesItsSlices(t *testing.T) {
	t.Parallel()
	d := newSplit(t)
	exec(t, d.url, `INSERT INTO evacuations (engine, operation, state, by) VALUES ('eu-2', 'o', 'Moving', 'token:ann')`)
	d.begin("0", "eu-1", "eu-3")
	d.record(func(r *mirror.Record) {
		p := placedSlice("1", "eu-4")
		p.Evacuated = []fleet.EngineName{"eu-2"}
		r.Placements = []fleet.Placement{p}
		r.Moves = []mirror.Move{{MoveRequest: mirror.MoveRequest{Environment: prod, Slice: "1",
			To: "eu-4", By: "argosy", Evacuates: true}, From: "eu-2", Applications: d.apps("1")}}
	})
	expect(t, d.url, `SELECT count(*) FROM application_moves WHERE slice = '1' AND step = 'Return' AND to_engine = 'eu-4'`, 4)
	expect(t, d.url, `SELECT count(*) FROM application_moves WHERE slice = '0' AND step = 'Check' AND to_engine = 'eu-3'`, 4)
	away := must(d.s.Work.Away(t.Context(), "eu-2"))(t)
	if !away[prod.Slice("1")] || len(away) != 1 {
		t.Errorf("away from eu-2: %v", away)
	}
	if evacuated := must(d.s.Plans.EvacuatedEngines(t.Context()))(t); !evacuated["eu-2"] {
		t.Errorf("%v", evacuated)
	}
}

// The previous version goes on as long as no environment is split, and records nothing after that.
func TestTheVersionBeforeSlicesRecordsNothingForASplitEnvironment(t *testing.T) {
	t.Parallel()
	d := newSplit(t)
	conn := connect(t, d.url)
	defer conn.Close(t.Context())
	for what, sql := range map[string]string{
		"placement": `INSERT INTO placements (tenant, environment, engine, applications, body) VALUES ('acme', 'w', 'eu-1', 1, '{}')
			ON CONFLICT (tenant, environment) DO UPDATE SET engine = excluded.engine`,
		"request": `INSERT INTO move_requests (tenant, environment, operation, to_engine, by, note, undo, dry_run)
			VALUES ('acme', 'w', 'o', 'eu-1', '', '', false, true) ON CONFLICT (tenant, environment) DO NOTHING`,
		"drain": `INSERT INTO drain_moves (tenant, environment, engine, operation) VALUES ('acme', 'w', 'eu-1', 'o')
			ON CONFLICT (tenant, environment) DO UPDATE SET engine = excluded.engine`,
	} {
		for range 2 {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	at := must(d.s.Plans.Mirror(t.Context()))(t)
	record := func() error {
		_, err := conn.Exec(t.Context(), `SELECT move_mirror($1, $1, 'as before', 0, false)`,
			string(at.Applied))
		return err
	}
	var refused *pgconn.PgError
	if err := record(); !errors.As(err, &refused) || !strings.Contains(refused.Message,
		"environment acme/prod is split") {
		t.Errorf("%v", err)
	}
	d.record(func(r *mirror.Record) {
		r.Unplaced = []fleet.SliceID{prod.Slice("0"), prod.Slice("1")}
		r.Placements = []fleet.Placement{placedSlice("", "eu-1")}
	})
	if err := record(); err != nil {
		t.Errorf("after a join: %v", err)
	}
}

// A tenant reads slices as it reads whole environments: its own, and none in their tables.
func TestSlicesAreBehindTheWall(t *testing.T) {
	t.Parallel()
	d := newSplit(t)
	must(d.request("0", "eu-3"))(t)
	conn := connect(t, d.url)
	defer conn.Close(t.Context())
	for tenant, want := range map[string]int{"acme": 2, "globex": 0} {
		tx := must(conn.Begin(t.Context()))(t)
		as := `SET LOCAL argosy.tenant = '` + tenant + `'; SET LOCAL ROLE argosy_reader`
		_, err := tx.Exec(t.Context(), as)
		check(t, err)
		var n int
		check(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM placements WHERE slice <> ''`).Scan(&n))
		if n != want {
			t.Errorf("%s reads %d slices, want %d", tenant, n, want)
		}
		for _, table := range []string{"placements_of_slices", "move_requests_of_slices",
			"drain_moves_of_slices"} {
			nested := must(tx.Begin(t.Context()))(t)
			var refused *pgconn.PgError
			_, err := nested.Exec(t.Context(), `SELECT FROM `+table)
			if !errors.As(err, &refused) || refused.Code != "42501" {
				t.Errorf("%s: %v", table, err)
			}
			check(t, nested.Rollback(t.Context()))
		}
		check(t, tx.Rollback(t.Context()))
		// also if someone grants it one day
		tx = must(conn.Begin(t.Context()))(t)
		_, err = tx.Exec(t.Context(), `GRANT SELECT ON placements_of_slices, move_requests_of_slices TO argosy_reader; `+as)
		check(t, err)
		var asked int
		check(t, tx.QueryRow(t.Context(), `
			SELECT (SELECT count(*) FROM placements_of_slices), (SELECT count(*) FROM move_requests_of_slices)`).Scan(&n, &asked))
		if n != want || asked != want/2 {
			t.Errorf("%s: %d slices, %d requests in the tables", tenant, n, asked)
		}
		check(t, tx.Rollback(t.Context()))
	}
}

// The environments of an engine are found by its placements, however many others there are.
func TestEnvironmentsOfAnEngineAreFoundByItsPlacements(t *testing.T) {
	t.Parallel()
	d := newSplit(t)
	var seen asked
	s := openWith(t, d.url, postgres.Options{Tracer: &seen})
	exec(t, d.url, `INSERT INTO declarations (kind, tenant, name, path, blob, body)
		SELECT kind, 'globex', 'e-' || n, path, blob, body FROM declarations, generate_series(1, 5000) n WHERE kind = 'ManagedEnvironment'`)
	exec(t, d.url, `INSERT INTO placements (tenant, environment, engine, applications, body)
		SELECT 'globex', 'e-' || n, 'us-' || n % 50, 1, '{}' FROM generate_series(1, 5000) n`)
	exec(t, d.url, `INSERT INTO placements_of_slices (tenant, environment, slice, engine, applications, body)
		SELECT 'globex', 'split-' || n, s, 'us-' || n % 50, 1, '{}' FROM generate_series(1, 1000) n, unnest(ARRAY['0', '1']) s`)
	exec(t, d.url, `ANALYZE`)
	all, _, err := s.Views.Environments(t.Context(), view.Scope{}, view.Filter{Engine: "eu-2"},
		view.Page{Limit: 50})
	if check(t, err); len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	how := explain(t, d.url, view.Scope{}, seen.of(t, "slices ON true"))
	if strings.Contains(how, "Seq Scan on placements") || strings.Contains(how,
		"Seq Scan on declarations") || !strings.Contains(how, "placements_of_slices_engine") ||
		!strings.Contains(how, "placements_engine") {
		t.Error(how)
	}
}
