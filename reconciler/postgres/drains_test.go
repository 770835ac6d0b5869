package postgres_test

import (
	"errors"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// draining is a store whose engine eu-1 drains, with four environments of acme.
func draining(t *testing.T) (*postgres.Store, mirror.Lease, []mirror.MoveRequest) {
	t.Helper()
	s, loop, _, _ := recorded(t, newDatabase(t))
	var moves []mirror.MoveRequest
	must(s.Plans.Record(t.Context(), loop, step(1, 2, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{engineDeclaration("eu-1")}
		r.Declarations[0].Engine.State = fleet.EngineDraining
		for _, name := range []string{"a", "b", "c", "d"} {
			p := placement("acme", name, "eu-1")
			r.Placements = append(r.Placements, p)
			moves = append(moves, mirror.MoveRequest{Environment: p.Environment, To: "eu-2",
				By: "argosy", Drain: true})
		}
	})))(t)
	if f := must(s.Plans.Drain(t.Context(), "eu-1", time.Hour))(t); f.Environments != 4 ||
		f.State != mirror.DrainMoving || len(f.Open)+len(f.Failed)+f.BegunLastHour != 0 {
		t.Fatalf("%+v", f)
	}
	return s, loop, moves
}

func TestTheBudgetOfADrainHoldsInItsTransaction(t *testing.T) {
	t.Parallel()
	s, loop, moves := draining(t)
	request := func(churn fleet.Churn, want int) {
		t.Helper()
		if n := must(s.Plans.RequestDrain(t.Context(), "eu-1", churn, moves))(t); n != want {
			t.Fatalf("%d requests, want %d", n, want)
		}
	}
	request(fleet.Churn{AtOnce: 2, PerHour: 3}, 2)
	request(fleet.Churn{AtOnce: 2, PerHour: 3}, 0)
	f := must(s.Plans.Drain(t.Context(), "eu-1", time.Hour))(t)
	if len(f.Open) != 2 || f.Open[1].Environment.Name != "b" || f.BegunLastHour != 2 {
		t.Fatalf("%+v", f)
	}
	requests := must(s.Plans.MoveRequests(t.Context()))(t)
	if len(requests) != 2 || !requests[0].Drain {
		t.Fatalf("%+v", requests)
	}
	check(t, s.Plans.RefuseMove(t.Context(), requests[0].Operation, "engine eu-2 is full"))
	f = must(s.Plans.Drain(t.Context(), "eu-1", time.Hour))(t)
	if len(f.Failed) != 1 || f.Failed[0].Trouble != "was refused: engine eu-2 is full" ||
		!f.Failed[0].Counts || len(f.Open) != 1 || f.BegunLastHour != 1 {
		t.Fatalf("%+v", f)
	}
	if f = must(s.Plans.Drain(t.Context(), "eu-1", 0))(t); len(f.Failed) != 0 {
		t.Errorf("after its time: %+v", f.Failed)
	}
	request(fleet.Churn{AtOnce: 9, PerHour: 2}, 1)
	request(fleet.Churn{AtOnce: 9, PerHour: 2}, 0)
	check(t, s.Plans.EndDrains(t.Context(), loop, []fleet.EngineName{"eu-1"}))
	if f = must(s.Plans.Drain(t.Context(), "eu-1", 0))(t); f.BegunLastHour != 2 {
		t.Errorf("%+v", f)
	}
	former := loop
	former.Epoch--
	if err := s.Plans.EndDrains(t.Context(), former, nil); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("a former leader ends drains: %v", err)
	}
	if f = must(s.Plans.Drain(t.Context(), "eu-1", 0))(t); f.BegunLastHour != 2 {
		t.Errorf("after a former leader: %+v", f)
	}
	check(t, s.Plans.EndDrains(t.Context(), loop, nil))
	if f = must(s.Plans.Drain(t.Context(), "eu-1", 0))(t); f.BegunLastHour != 0 {
		t.Errorf("a drain that begins again: %+v", f)
	}
}

func TestAPausedDrainRequestsNothingUntilItIsResumed(t *testing.T) {
	t.Parallel()
	s, _, moves := draining(t)
	churn := fleet.Churn{AtOnce: 1, PerHour: 9}
	pause := mirror.DrainPause{Engine: "eu-1", By: "token:ann", Reason: "lunch"}
	check(t, s.Decisions.PauseDrain(t.Context(), pause))
	if n := must(s.Plans.RequestDrain(t.Context(), "eu-1", churn, moves))(t); n != 0 {
		t.Errorf("%d requests", n)
	}
	shown := func() *mirror.Drain {
		t.Helper()
		all, _, err := s.Views.Engines(t.Context(), view.Scope{}, view.Filter{Engine: "eu-1"},
			view.Page{Limit: 1})
		if err != nil || len(all) != 1 || all[0].Drain == nil {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0].Drain
	}
	if got := shown().State; got != mirror.DrainPaused {
		t.Errorf("shown as %s", got)
	}
	f := must(s.Plans.Drain(t.Context(), "eu-1", time.Hour))(t)
	if f.PausedBy != "token:ann" || f.PauseReason != "lunch" {
		t.Errorf("%+v", f)
	}
	check(t, s.Decisions.ResumeDrain(t.Context(), pause))
	if n := must(s.Plans.RequestDrain(t.Context(), "eu-1", churn, moves))(t); n != 1 {
		t.Errorf("%d requests after the pause", n)
	}
	requests := must(s.Plans.MoveRequests(t.Context()))(t)
	check(t, s.Plans.RefuseMove(t.Context(), requests[0].Operation, "x"))
	check(t, s.Decisions.ResumeDrain(t.Context(), pause))
	if f := must(s.Plans.Drain(t.Context(), "eu-1", time.Hour))(t); len(f.Failed) != 0 {
		t.Errorf("a refusal before the resumption counts: %+v", f.Failed)
	}
	check(t, s.Plans.SetDrain(t.Context(), "eu-1", mirror.Drain{State: mirror.DrainStopped,
		Message: "why"}))
	if got := shown(); got.State != mirror.DrainStopped || got.Message != "why" {
		t.Errorf("%+v", got)
	}
	pause.Engine = "eu-9"
	if err := s.Decisions.PauseDrain(t.Context(), pause); !errors.Is(err, mirror.ErrNotDraining) {
		t.Errorf("an engine that does not drain: %v", err)
	}
}

func TestAnUndoneMoveOffADrainingEngineIsNotRequestedAgain(t *testing.T) {
	t.Parallel()
	m := begin(t)
	must(m.s.Plans.Drain(t.Context(), "eu-1", time.Hour))(t)
	m.ask("eu-1")
	back := mirror.Move{MoveRequest: m.request, From: "eu-2"}
	must(m.s.Plans.Record(t.Context(), m.loop, step(1, 1, func(r *mirror.Record) {
		r.PlanHash, r.Moves = "undone", []mirror.Move{back}
		r.Placements = []fleet.Placement{placement("acme", "prod", "eu-1")}
	})))(t)
	f := must(m.s.Plans.Drain(t.Context(), "eu-1", 0))(t)
	if len(f.Failed) != 1 || f.Failed[0].Environment != prod || !f.Failed[0].Counts ||
		f.Failed[0].Trouble != "was undone by token:ann" || len(f.Open) != 0 {
		t.Fatalf("%+v", f)
	}
	check(t, m.s.Decisions.ResumeDrain(t.Context(), mirror.DrainPause{Engine: "eu-1"}))
	if f := must(m.s.Plans.Drain(t.Context(), "eu-1", 0))(t); len(f.Failed) != 0 {
		t.Errorf("%+v", f.Failed)
	}
}

func TestAMoveThatWaitsIsInTrouble(t *testing.T) {
	t.Parallel()
	m := begin(t)
	check(t, m.s.Work.DelayMove(t.Context(), m.old, m.of("a"), "it is OutOfSync"))
	for patience, want := range map[time.Duration]string{
		time.Hour: "", 0: "waits in Check: it is OutOfSync"} {
		f := must(m.s.Plans.Drain(t.Context(), "eu-1", patience))(t)
		if len(f.Open) != 1 || f.Open[0].Trouble != want || f.Open[0].Counts != (want != "") {
			t.Errorf("patience %s: %+v", patience, f.Open)
		}
	}
	check(t, m.s.Decisions.ResumeDrain(t.Context(), mirror.DrainPause{Engine: "eu-1"}))
	f := must(m.s.Plans.Drain(t.Context(), "eu-1", 0))(t)
	if len(f.Open) != 1 || f.Open[0].Counts || f.Open[0].Trouble == "" {
		t.Errorf("after a resumption: %+v", f.Open)
	}
	expect(t, m.url, `WITH back AS (UPDATE application_moves SET message = '', since = now(), departure =
		'{"returns": "its spec differs"}' WHERE deployment = 'a' RETURNING 1) SELECT count(*) FROM back`, 1)
	f = must(m.s.Plans.Drain(t.Context(), "eu-1", time.Hour))(t)
	if len(f.Open) != 1 || f.Open[0].Trouble != "waits in Check: its spec differs" {
		t.Errorf("an Application that cannot be adopted: %+v", f.Open)
	}
}
