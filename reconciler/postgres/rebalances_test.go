package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// rebalancing is a store whose engine eu-1 has four environments of acme, with a proposal that
// moves three of them.
func rebalancing(t *testing.T) (s *postgres.Store, loop mirror.Lease, url string,
	r mirror.Rebalance) {
	t.Helper()
	url = newDatabase(t)
	s, loop, _, _ = recorded(t, url)
	must(s.Plans.Record(t.Context(), loop, step(1, 2, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{engineDeclaration("eu-1")}
		for _, name := range []string{"a", "b", "c", "d"} {
			r.Placements = append(r.Placements, placement("acme", name, "eu-1"))
		}
	})))(t)
	check(t, s.Plans.ProposeRebalance(t.Context(), loop, proposal("a", "b", "c"), ""))
	return s, loop, url, openRebalance(t, s)
}

func proposal(environments ...fleet.EnvironmentName) mirror.Rebalance {
	r := mirror.Rebalance{Message: "why", Engines: []mirror.RebalanceEngine{{Engine: "eu-1",
		CPUBefore: 4, CPUAfter: 1}}}
	for i, name := range environments {
		r.Moves = append(r.Moves, mirror.RebalanceMove{From: "eu-1", To: "eu-2",
			Environment: fleet.EnvironmentID{Tenant: "acme", Name: name}, Applications: i})
	}
	return r
}

func openRebalance(t *testing.T, s *postgres.Store) mirror.Rebalance {
	t.Helper()
	f := must(s.Plans.Rebalance(t.Context(), time.Hour))(t)
	if f.Open == nil {
		t.Fatalf("none is open: %+v", f)
	}
	return *f.Open
}

func requests(r mirror.Rebalance) (all []mirror.MoveRequest) {
	for _, m := range r.Moves {
		all = append(all, mirror.MoveRequest{Environment: m.Environment, To: m.To, By: "argosy",
			Rebalance: r.ID})
	}
	return all
}

func TestARebalanceRequestsNothingUnlessItIsAcceptedAndGoesOn(t *testing.T) {
	t.Parallel()
	s, loop, _, r := rebalancing(t)
	churn := fleet.Churn{AtOnce: 1, PerHour: 2}
	request := func(want int) {
		t.Helper()
		n := must(s.Plans.RequestRebalance(t.Context(), loop, r.ID, churn, requests(r), nil))(t)
		if n != want {
			t.Fatalf("%d requests, want %d", n, want)
		}
	}
	decide := func(of func(context.Context, mirror.RebalanceDecision) error, want error) {
		t.Helper()
		err := of(t.Context(), mirror.RebalanceDecision{ID: r.ID, By: "token:ann", Reason: "x"})
		if !errors.Is(err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
	}
	if r.State != mirror.RebalanceProposed || len(r.Moves) != 3 || r.Moves[2].Applications != 2 ||
		r.Moves[0].State != mirror.RebalanceMovePlanned || r.Engines[0].CPUBefore != 4 {
		t.Fatalf("%+v", r)
	}
	request(0)
	decide(s.Decisions.PauseRebalance, mirror.ErrRebalanceState)
	decide(s.Decisions.AcceptRebalance, nil)
	decide(s.Decisions.AcceptRebalance, mirror.ErrRebalanceState)
	decide(s.Decisions.PauseRebalance, nil)
	request(0)
	decide(s.Decisions.ResumeRebalance, nil)
	former := loop
	former.Epoch--
	if _, err := s.Plans.RequestRebalance(t.Context(), former, r.ID, churn, requests(r),
		nil); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("a former leader requests moves: %v", err)
	}
	request(1)
	request(0) // atOnce
	asked := must(s.Plans.MoveRequests(t.Context()))(t)
	if len(asked) != 1 || asked[0].Rebalance != r.ID || asked[0].Drain {
		t.Fatalf("%+v", asked)
	}
	if m := must(s.Views.Measured(t.Context(), 0))(t); !m.Moving["eu-1"] || !m.Moving["eu-2"] {
		t.Errorf("the engines of a requested move are measured: %+v", m)
	}
	check(t, s.Plans.RefuseMove(t.Context(), asked[0].Operation, "engine eu-2 is full"))
	f := must(s.Plans.Rebalance(t.Context(), time.Hour))(t)
	if f.Counts != 1 || len(f.Troubles) != 1 || f.UnderWay != 0 ||
		f.Troubles[0] != "acme/a was refused: engine eu-2 is full" {
		t.Fatalf("%+v", f)
	}
	m := must(s.Views.Measured(t.Context(), 0))(t)
	if m.Fixed[asked[0].ID()] == "" || len(m.Moving) != 0 {
		t.Errorf("%+v", m)
	}
	decide(s.Decisions.ResumeRebalance, nil)
	if f = must(s.Plans.Rebalance(t.Context(), time.Hour))(t); f.Counts != 0 {
		t.Errorf("a refusal before the resumption counts: %+v", f)
	}
	r = openRebalance(t, s)
	r.Moves = r.Moves[1:]
	request(1)
	decide(s.Decisions.RejectRebalance, nil)
	request(0)
	decide(s.Decisions.RejectRebalance, mirror.ErrRebalanceState)
	all, _, err := s.Views.Rebalances(t.Context(), view.Scope{}, view.Filter{Name: r.ID},
		view.Page{Limit: 9})
	check(t, err)
	var states []mirror.RebalanceMoveState
	for _, m := range all[0].Moves {
		states = append(states, m.State)
	}
	if len(all) != 1 || all[0].State != mirror.RebalanceRejected || all[0].EndedAt == nil ||
		states[0] != "Refused" || states[1] != "Requested" || states[2] != "Skipped" {
		t.Errorf("%+v", all)
	}
	if m = must(s.Views.Measured(t.Context(), 0))(t); len(m.Fixed) != 4 {
		t.Errorf("the environments of the engine are not fixed: %+v", m)
	}
	if f = must(s.Plans.Rebalance(t.Context(), time.Hour))(t); f.Open != nil || f.UnderWay != 1 ||
		f.BegunLastHour != 1 {
		t.Errorf("%+v", f)
	}
}

func TestOneProposalReplacesAnother(t *testing.T) {
	t.Parallel()
	s, loop, url, r := rebalancing(t)
	propose := func(instead string, want error) {
		t.Helper()
		if err := s.Plans.ProposeRebalance(t.Context(), loop, proposal("d"), instead); !errors.Is(
			err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
	}
	propose("", mirror.ErrRebalanceState) // one is open
	propose(r.ID, nil)
	expect(t, url, `SELECT count(*) FROM rebalances WHERE state = 'Obsolete' AND message LIKE 'rebalance % replaces it'`, 1)
	expect(t, url, `SELECT count(*) FROM rebalance_moves WHERE state = 'Skipped'`, 3)
	r = openRebalance(t, s)
	check(t, s.Plans.TakeRebalance(t.Context(), loop, r.ID, "argosy"))
	propose(r.ID, mirror.ErrRebalanceState) // accepted meanwhile
	stale := r
	check(t, s.Plans.SetRebalance(t.Context(), loop, stale, mirror.RebalanceObsolete, "why"))
	if r = openRebalance(t, s); r.State != mirror.RebalanceMoving || r.AcceptedBy != "argosy" {
		t.Fatalf("%+v", r)
	}
	check(t, s.Plans.SetRebalance(t.Context(), loop, r, mirror.RebalanceWaiting, "for x"))
	r = openRebalance(t, s)
	check(t, s.Plans.SetRebalance(t.Context(), loop, r, mirror.RebalanceDone, "0 moved"))
	former := loop
	former.Epoch--
	if err := s.Plans.ProposeRebalance(t.Context(), former, proposal("d"),
		""); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("a former leader proposes: %v", err)
	}
	propose("", nil)
	exec(t, url, `UPDATE rebalances SET ended_at = now() - interval '91 days' WHERE ended_at IS NOT NULL`)
	must(s.Prune(t.Context(), postgres.Retention{}))(t)
	expect(t, url, `SELECT count(*) FROM rebalances`, 1)
	expect(t, url, `SELECT count(*) FROM rebalance_moves`, 1)
}

// A move that could not begin counts for a day, and does not stop the rebalance.
func TestAMoveThatCouldNotBeginIsNoTrouble(t *testing.T) {
	t.Parallel()
	s, loop, _, r := rebalancing(t)
	check(t, s.Plans.TakeRebalance(t.Context(), loop, r.ID, "argosy"))
	must(s.Plans.RequestRebalance(t.Context(), loop, r.ID, fleet.Churn{AtOnce: 9, PerHour: 9}, nil,
		[]mirror.RebalanceMove{{Environment: r.Moves[2].Environment,
			State: mirror.RebalanceMoveRefused, Message: "was refused"}}))(t)
	if f := must(s.Plans.Rebalance(t.Context(), time.Hour))(t); f.Counts != 0 ||
		len(f.Troubles) != 0 || f.Open.Moves[2].State != mirror.RebalanceMoveRefused {
		t.Errorf("%+v", f)
	}
	m := must(s.Views.Measured(t.Context(), 0))(t)
	if m.Fixed[r.Moves[2].ID()] == "" || len(m.Fixed) != 1 {
		t.Errorf("%+v", m)
	}
}

// A requested move ends with its operation, also after the rebalance.
func TestAMoveOfARebalanceEndsWithItsOperation(t *testing.T) {
	t.Parallel()
	s, loop, url, r := rebalancing(t)
	check(t, s.Plans.TakeRebalance(t.Context(), loop, r.ID, "argosy"))
	churn := fleet.Churn{AtOnce: 9, PerHour: 9}
	n := must(s.Plans.RequestRebalance(t.Context(), loop, r.ID, churn, requests(r)[:2],
		[]mirror.RebalanceMove{{Environment: r.Moves[2].Environment,
			State: mirror.RebalanceMoveSkipped, Message: "why not"}}))(t)
	if n != 2 {
		t.Fatalf("%d requests", n)
	}
	exec(t, url, `DELETE FROM move_requests;
		UPDATE operations SET state = 'Succeeded', ended_at = now() WHERE subject LIKE 'acme/a %';
		UPDATE operations SET state = 'Failed', message = 'undone by ann', ended_at = now() WHERE subject LIKE 'acme/b %'`)
	moves := openRebalance(t, s).Moves
	if moves[0].State != mirror.RebalanceMoveMoved ||
		moves[1].State != mirror.RebalanceMoveUndone ||
		moves[1].Message != "has ended: undone by ann" ||
		moves[2].State != mirror.RebalanceMoveSkipped || moves[2].Message != "why not" {
		t.Errorf("%+v", moves)
	}
}
