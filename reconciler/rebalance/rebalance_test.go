package rebalance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
)

func env(name string) fleet.EnvironmentID {
	return fleet.EnvironmentID{Tenant: "acme", Name: fleet.EnvironmentName(name)}
}

func moves(from, to fleet.EngineName, names ...string) (all []placement.Move) {
	for _, name := range names {
		all = append(all, placement.Move{Environment: env(name), From: from, To: to})
	}
	return all
}

// outcome has moves, and environments that stay because of the reason x.
func outcome(moves []placement.Move, left ...string) (o placement.Outcome) {
	o.Moves = moves
	for _, name := range left {
		o.Left = append(o.Left, placement.Left{Environment: env(name), Reason: "x"})
	}
	return o
}

func proposed(all []placement.Move) *mirror.Rebalance {
	r := New(outcome(all))
	for i := range r.Moves {
		r.Moves[i].State = mirror.RebalanceMovePlanned
	}
	return &r
}

func TestAProposalStaysWhileItHolds(t *testing.T) {
	two, other := moves("a", "b", "1", "2"), moves("a", "b", "3")
	for name, c := range map[string]struct {
		open         *mirror.Rebalance
		fresh, still placement.Outcome
		awaited      int
		want         Verdict
	}{
		"no engine is overloaded": {want: Verdict{}},
		"an engine is overloaded": {fresh: outcome(two), want: Verdict{Propose: true}},
		"it holds":                {open: proposed(two), fresh: outcome(two), still: outcome(two)},
		"the load is below":       {open: proposed(two), still: outcome(two)},
		"others would do as well": {open: proposed(two), fresh: outcome(other),
			still: outcome(two)},
		"one of it is not right":   {open: proposed(two), still: outcome(two[1:], "1")},
		"it is not measured again": {open: proposed(two), awaited: 2},
		"one is not right, others are": {proposed(two), outcome(other), outcome(two[1:], "1"), 0,
			Verdict{Propose: true}},
		"the health has changed the order": {proposed(two), outcome([]placement.Move{
			{Environment: env("1"), From: "a", To: "b", Unready: 1}, two[1]}), outcome(two, "x"), 0,
			Verdict{}},
		"another engine is overloaded": {proposed(two),
			outcome(append(moves("c", "b", "9"), two...)), outcome(two), 0, Verdict{Propose: true}},
		"none is right": {proposed(two), outcome(nil), outcome(nil, "1", "2"), 0,
			Verdict{End: "none of its moves is right any more: acme/1: x; acme/2: x"}},
	} {
		if got := Review(c.open, c.fresh, c.still, c.awaited); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestARebalanceIsAssessed(t *testing.T) {
	churn := fleet.Churn{AtOnce: 5, PerHour: 10}
	of := func(planned, requested, moved int) *mirror.Rebalance {
		var r mirror.Rebalance
		for n, s := range map[mirror.RebalanceMoveState]int{
			mirror.RebalanceMovePlanned: planned, mirror.RebalanceMoveRequested: requested,
			mirror.RebalanceMoveMoved: moved} {
			for range s {
				r.Moves = append(r.Moves, mirror.RebalanceMove{State: n})
			}
		}
		return &r
	}
	three := []string{"acme/1 x", "acme/2 y", "acme/3 z"}
	for name, c := range map[string]struct {
		facts   mirror.RebalanceFacts
		state   mirror.RebalanceState
		text    string
		allowed int
	}{
		"it begins": {mirror.RebalanceFacts{Open: of(9, 0, 0)}, "Moving", "0 under way, 9 left", 5},
		"open moves of others count": {mirror.RebalanceFacts{Open: of(9, 0, 0), UnderWay: 4},
			"Moving", "", 1},
		"they use the budget": {mirror.RebalanceFacts{Open: of(9, 0, 0), UnderWay: 5}, "Waiting",
			"churn.atOnce is 5", 0},
		"its own do": {mirror.RebalanceFacts{Open: of(9, 5, 0), UnderWay: 5}, "Moving",
			"5 under way, 9 left", 0},
		"the hour's budget is used": {mirror.RebalanceFacts{Open: of(9, 0, 1), BegunLastHour: 10},
			"Waiting", "churn.perHour is 10", 0},
		"drains go first": {mirror.RebalanceFacts{Open: of(9, 0, 0),
			Draining: []fleet.EngineName{"eu-1"}}, "Waiting", "drains go first: engine eu-1", 0},
		"two have failed": {mirror.RebalanceFacts{Open: of(9, 0, 0), Troubles: three[:2],
			Counts: 2}, "Moving", "acme/2 y", 5},
		"three have failed": {mirror.RebalanceFacts{Open: of(9, 0, 0), Troubles: three, Counts: 3},
			"Stopped", "acme/3 z", 0},
		"a person has resumed it": {mirror.RebalanceFacts{Open: of(9, 0, 0), Troubles: three},
			"Moving", "acme/3 z", 5},
		"the last ones move": {mirror.RebalanceFacts{Open: of(0, 2, 0), UnderWay: 2}, "Moving",
			"2 under way, 0 left", 0},
		"the last one waits": {mirror.RebalanceFacts{Open: of(0, 1, 0), UnderWay: 1,
			Troubles: three[:1], Counts: 1}, "Waiting", "acme/1 x", 0},
		"it is done": {mirror.RebalanceFacts{Open: of(0, 0, 3)}, "Done", "3 moved", 0},
		"it is done, with failures": {mirror.RebalanceFacts{Open: of(0, 0, 3), Troubles: three,
			Counts: 3}, "Done", "3 moved", 0},
	} {
		state, text, allowed := Assess(c.facts, churn)
		if state != c.state || !strings.Contains(text, c.text) || allowed != c.allowed {
			t.Errorf("%s: %s, %q, %d", name, state, text, allowed)
		}
	}
}

// random is a fleet of up to ten engines, some of which are not measured.
func random(w *rand.Rand) placement.Snapshot {
	s := placement.Snapshot{Measured: map[fleet.EngineName]float64{}}
	for i := range 2 + w.IntN(8) {
		name := fleet.EngineName(fmt.Sprintf("e%d", i))
		e := placement.Engine{Name: name, Spec: fleet.EngineSpec{Region: "eu",
			Capacity: fleet.Capacity{Applications: 300, Environments: 30}}}
		each := 0.05 + 0.3*w.Float64()
		for n := range w.IntN(25) {
			applications := 1 + w.IntN(10)
			s.Environments = append(s.Environments, placement.Served{Engine: name,
				Unready: w.IntN(3), Item: placement.Item{Region: "eu", Applications: applications,
					Environment: env(fmt.Sprintf("%s-%d", name, n))}})
			e.Load.Applications += applications
			e.Load.Environments++
		}
		s.Engines = append(s.Engines, e)
		if w.IntN(8) > 0 {
			s.Measured[name] = 0.01 + each*float64(e.Load.Applications)
		}
	}
	return s
}

// carryOut moves an environment with its part of the load.
func carryOut(t *testing.T, s *placement.Snapshot, r mirror.MoveRequest) placement.Move {
	t.Helper()
	i := slices.IndexFunc(s.Environments, func(e placement.Served) bool {
		return e.Environment == r.Environment
	})
	e := &s.Environments[i]
	m := placement.Move{Environment: r.Environment, From: e.Engine, To: r.To}
	at := func(name fleet.EngineName) *placement.Engine {
		return &s.Engines[slices.IndexFunc(s.Engines, func(e placement.Engine) bool {
			return e.Name == name
		})]
	}
	from, to := at(m.From), at(m.To)
	part := s.Measured[m.From] * float64(e.Applications) / float64(from.Load.Applications)
	s.Measured[m.From] -= part
	if _, measured := s.Measured[m.To]; measured {
		s.Measured[m.To] += part
	}
	from.Load.Applications, to.Load.Applications = from.Load.Applications-e.Applications,
		to.Load.Applications+e.Applications
	from.Load.Environments--
	to.Load.Environments++
	e.Engine = m.To
	return m
}

// Random fleets whose load also changes by itself: an accepted rebalance makes moves of its
// proposal only, in their order, within its budget, and comes to an end. With a load that changes
// by nothing but the moves, it makes all of them.
func TestARebalanceMakesItsMovesAndNoOther(t *testing.T) {
	whole, skipped := 0, 0
	for seed := range uint64(400) {
		w := rand.New(rand.NewPCG(seed, 64))
		s, steady := random(w), seed%2 == 0
		o, err := placement.Simulate(s, placement.Change{Kind: placement.Rebalance})
		if err != nil || len(o.Moves) == 0 {
			continue
		}
		open := proposed(o.Moves)
		planned := Moves(open.Moves)
		var made []placement.Move
		for rounds := 0; ; rounds++ {
			if rounds > len(planned)+1 {
				t.Fatalf("seed %d: no end after %d rounds", seed, rounds)
			}
			f := mirror.RebalanceFacts{Open: open, UnderWay: w.IntN(2)}
			churn := fleet.Churn{AtOnce: 1 + w.IntN(3) + f.UnderWay, PerHour: 99}
			state, _, allowed := Assess(f, churn)
			if state == mirror.RebalanceDone {
				break
			}
			still, err := placement.Continue(s, Moves(open.Moves))
			if err != nil {
				t.Fatal(err)
			}
			next, skip := Next("id", still, allowed)
			if len(next) > allowed || len(next)+len(skip) == 0 {
				t.Fatalf("seed %d: %d moves, %d skipped, %d allowed", seed, len(next), len(skip),
					allowed)
			}
			set := func(id fleet.EnvironmentID, state mirror.RebalanceMoveState) {
				i := slices.IndexFunc(open.Moves, func(m mirror.RebalanceMove) bool {
					return m.Environment == id && m.State == mirror.RebalanceMovePlanned
				})
				open.Moves[i].State = state
			}
			for _, m := range skip {
				set(m.Environment, mirror.RebalanceMoveSkipped)
				skipped++
			}
			for _, r := range next {
				if r.Rebalance != "id" || r.By != "argosy" {
					t.Fatalf("%+v", r)
				}
				set(r.Environment, mirror.RebalanceMoveMoved)
				made = append(made, carryOut(t, &s, r))
			}
			for name := range s.Measured {
				if !steady {
					s.Measured[name] *= 0.5 + w.Float64()
				}
			}
		}
		rest := planned
		for _, m := range made {
			i := slices.IndexFunc(rest, func(p placement.Move) bool { return alike(p, m) })
			if i < 0 {
				t.Fatalf("seed %d: %+v is not in its place among %+v", seed, m, planned)
			}
			rest = rest[i+1:]
		}
		if steady && len(made) == len(planned) {
			whole++
		}
		if !everyMeasured(s) {
			continue // an estimate changes with each move
		}
		if steady && len(made) != len(planned) {
			t.Errorf("seed %d: made %+v of %+v", seed, made, planned)
		}
	}
	if whole < 20 || skipped < 20 {
		t.Errorf("%d rebalances were made as a whole, %d moves skipped", whole, skipped)
	}
}

func everyMeasured(s placement.Snapshot) bool { return len(s.Measured) == len(s.Engines) }

func TestMovesAwaitTheirMeasurements(t *testing.T) {
	all := append(moves("a", "b", "1"), append(moves("a", "c", "2"), moves("d", "c", "3")...)...)
	now, awaited := Await(all, map[fleet.EngineName]bool{"b": true})
	if awaited != 1 || !slices.Equal(now, all[1:]) {
		t.Errorf("%+v, %d", now, awaited)
	}
	if now, awaited = Await(all, map[fleet.EngineName]bool{"a": true, "c": true}); awaited != 3 ||
		len(now) != 0 {
		t.Errorf("%+v, %d", now, awaited)
	}
	r := mirror.Rebalance{Moves: []mirror.RebalanceMove{{State: mirror.RebalanceMovePlanned}}}
	if state, why := Wait(r, "x", true, nil); state != mirror.RebalanceWaiting ||
		why != "x; engines are measured again 15m after their moves" {
		t.Errorf("%s: %s", state, why)
	}
	r.Moves[0].State = mirror.RebalanceMoveRequested
	if state, _ := Wait(r, "x", true, nil); state != mirror.RebalanceMoving {
		t.Errorf("%s with a move under way", state)
	}
}

func TestAMoveThatCannotBeginIsDeferredAndThenRefused(t *testing.T) {
	moves := Moves(proposed([]placement.Move{{Environment: env("a")}, {Environment: env("b")},
		{Environment: env("c")}}).Moves)
	in := map[fleet.SliceID]string{env("a").Whole(): "web is OutOfSync",
		env("b").Whole(): "eu-2 is silent"}
	begin := time.Now()
	ready, deferred, refused := Defer(moves, in, nil, begin, 15*time.Minute)
	if len(ready) != 1 || ready[0].Environment != env("c") || len(deferred) != 2 ||
		len(refused) != 0 {
		t.Fatalf("%v, %v, %v", ready, deferred, refused)
	}
	open := proposed(moves)
	state, why := Wait(*open, "0 under way, 2 left", false, deferred)
	if state != mirror.RebalanceWaiting || why != "0 under way, 2 left; "+env("a").String()+
		" cannot move now: web is OutOfSync; "+env("b").String()+
		" cannot move now: eu-2 is silent" {
		t.Errorf("%s, %q", state, why)
	}
	open.Moves[2].State = mirror.RebalanceMoveRequested
	if state, _ = Wait(*open, "", false, deferred); state != mirror.RebalanceMoving {
		t.Errorf("another one moves, and it is %s", state)
	}
	// the obstacle of b ends for a while: its time begins again
	delete(in, env("b").Whole())
	_, deferred, _ = Defer(moves, in, deferred, begin.Add(8*time.Minute),
		15*time.Minute)
	in[env("b").Whole()] = "eu-2 is silent"
	ready, deferred, refused = Defer(moves, in, deferred, begin.Add(15*time.Minute),
		15*time.Minute)
	if len(ready) != 1 || len(deferred) != 1 || deferred[0].Slice != env("b").Whole() ||
		len(refused) != 1 || refused[0].Environment != env("a") ||
		refused[0].State != mirror.RebalanceMoveRefused ||
		refused[0].Message !=
			"was refused, since it could not begin for 15m: web is OutOfSync" {
		t.Errorf("%v, %v, %+v", ready, deferred, refused)
	}
}
