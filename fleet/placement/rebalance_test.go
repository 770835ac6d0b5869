package placement

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

func TestAnEngineWithAHighMeasuredLoadGivesEnvironmentsAway(t *testing.T) {
	es := []Engine{engine("a", 100, 10), engine("b", 100, 10), engine("c", 100, 10)}
	s := snapshot(es, served("a", 10, 10, 10, 10), served("b", 10, 10, 10, 10),
		served("c", 10, 10, 10, 10))
	for name, c := range map[string]struct {
		measured map[fleet.EngineName]float64
		want     []string
	}{
		// 9 cores, 3 on average: the bounds are 4.5 and 3.75
		"above the upper bound": {map[fleet.EngineName]float64{"a": 6, "b": 2, "c": 1},
			[]string{"a/env-0: a to c", "a/env-1: a to b"}},
		"between the bounds": {map[fleet.EngineName]float64{"a": 4.4, "b": 2.3, "c": 2.3}, nil},
		"alike":              {map[fleet.EngineName]float64{"a": 3, "b": 3, "c": 3}, nil},
		// b and c count as their Applications, each as one of a
		"the only measured one": {map[fleet.EngineName]float64{"a": 6}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := s
			s.Measured = c.measured
			o := simulate(t, s, Change{Kind: Rebalance})
			if got := lines(o); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			sum := 0.0
			for _, e := range o.Engines {
				_, measured := c.measured[e.Engine]
				if sum += e.Measured.After - e.Measured.Before; e.Measured.Estimated == measured {
					t.Errorf("%+v", e.Measured)
				}
			}
			if math.Abs(sum) > 1e-9 {
				t.Errorf("the moves change the whole load by %g", sum)
			}
		})
	}
}

func TestARebalanceExplainsAnEngineThatStaysOverloaded(t *testing.T) {
	es := []Engine{engine("a", 100, 10), engine("b", 100, 10), engine("c", 100, 10)}
	s := snapshot(es, served("a", 40, 1, 1), served("b", 10), served("c", 10))
	s.Measured = map[fleet.EngineName]float64{"a": 8, "b": 1, "c": 1}
	s.Environments[1].Fixed = "fixed"
	got := strings.Join(lines(simulate(t, s, Change{Kind: Rebalance})), "\n")
	for _, want := range []string{"a/env-0 stays: each engine that may serve it would be overloaded",
		"a/env-1 stays: fixed"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	s.Measured = nil
	for c, want := range map[Change]string{{Kind: Rebalance}: "no engine is measured",
		{Kind: Rebalance, Engine: "a"}: "concerns all engines",
		{Kind: Drain}:                  "no engine is named"} {
		if _, err := Simulate(s, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Random fleets with constraints: each move is one that the rules allow, takes load from an
// overloaded engine to one that gives nothing. No environment moves back.
func TestARebalanceViolatesNothing(t *testing.T) {
	moves := 0
	for seed := range uint64(300) {
		w := generator{rand.New(rand.NewPCG(seed, 23))}
		s := w.snapshot()
		s.Measured = map[fleet.EngineName]float64{}
		for _, e := range s.Engines {
			if w.IntN(5) > 0 {
				s.Measured[e.Name] = float64(e.Load.Applications) * (0.1 + 3*w.Float64())
			}
		}
		o, err := Simulate(s, Change{Kind: Rebalance})
		if err != nil {
			continue
		}
		after := s
		after.Engines, after.Environments = slices.Clone(s.Engines), slices.Clone(s.Environments)
		gave := map[fleet.EngineName]bool{}
		for _, m := range o.Moves {
			gave[m.From] = true
		}
		for _, m := range o.Moves {
			moves++
			i := slices.IndexFunc(after.Environments, func(e Served) bool {
				return e.Environment == m.Environment
			})
			e := &after.Environments[i]
			if e.Engine != m.From || e.Fixed != "" || gave[m.To] {
				t.Fatalf("seed %d: %+v of %+v", seed, m, *e)
			}
			if p := plainDecide(e.Item, only(after.Engines, m.To),
				func(to fleet.EngineName) string { return after.Conflicts(e.ID(), e.Engine, to) },
			); p.Engine != m.To {
				t.Fatalf("seed %d: %+v: %+v", seed, m, p)
			}
			for _, other := range after.Environments {
				if other.Engine == m.To && other.Environment.Tenant != e.Environment.Tenant &&
					arrivedWith(o.Moves, other) && shared(*e, other) != "" {
					t.Fatalf("seed %d: %+v meets %+v", seed, m, other)
				}
			}
			carryOut(&after, m)
		}
		for _, e := range o.Engines {
			if gave[e.Engine] != (e.Measured.After < e.Measured.Before-1e-9) {
				t.Fatalf("seed %d: %s has %+v", seed, e.Engine, e.Measured)
			}
			if gave[e.Engine] && e.Measured.Estimated {
				t.Fatalf("seed %d: %s is not measured, and gives", seed, e.Engine)
			}
		}
		after.Measured = map[fleet.EngineName]float64{}
		for _, e := range o.Engines {
			if !e.Measured.Estimated {
				after.Measured[e.Engine] = e.Measured.After
			}
		}
		if again, err := Simulate(after, Change{Kind: Rebalance}); err == nil {
			for _, m := range again.Moves {
				if slices.ContainsFunc(o.Moves, func(was Move) bool {
					return was.Environment == m.Environment && was.From == m.To
				}) {
					t.Fatalf("seed %d: %+v goes back", seed, m)
				}
			}
		}
		// in another order, the same
		mixed := s
		mixed.Engines, mixed.Environments = slices.Clone(s.Engines), slices.Clone(s.Environments)
		w.Shuffle(len(mixed.Environments), func(i, j int) {
			mixed.Environments[i], mixed.Environments[j] = mixed.Environments[j],
				mixed.Environments[i]
		})
		if got := lines(simulate(t, mixed, Change{Kind: Rebalance})); fmt.Sprint(got) !=
			fmt.Sprint(lines(o)) {
			t.Fatalf("seed %d: in another order %q, not %q", seed, got, lines(o))
		}
	}
	if moves < 100 {
		t.Errorf("only %d moves", moves)
	}
}

// After any number of the moves, and with the load that follows them, Continue returns the rest.
func TestARebalanceContinuesAsItWasShown(t *testing.T) {
	several := 0
	for seed := range uint64(400) {
		w := generator{rand.New(rand.NewPCG(seed, 29))}
		s := w.snapshot()
		s.Measured = map[fleet.EngineName]float64{}
		for _, e := range s.Engines {
			s.Measured[e.Name] = float64(e.Load.Applications) * (0.1 + 3*w.Float64())
		}
		o, err := Simulate(s, Change{Kind: Rebalance})
		if err != nil || len(o.Moves) == 0 {
			continue
		}
		if len(o.Moves) > 1 {
			several++
		}
		after := s
		after.Engines, after.Environments = slices.Clone(s.Engines), slices.Clone(s.Environments)
		for made := range len(o.Moves) + 1 {
			got, err := Continue(after, o.Moves[made:])
			if err != nil || !slices.Equal(got.Moves, o.Moves[made:]) || len(got.Left) > 0 {
				t.Fatalf("seed %d: after %d of %+v: %+v, left %+v, %v", seed, made, o.Moves,
					got.Moves, got.Left, err)
			}
			if made == len(o.Moves) {
				break
			}
			m := o.Moves[made]
			part := partOf(after, m)
			after.Measured = maps.Clone(after.Measured)
			after.Measured[m.From] -= part
			after.Measured[m.To] += part
			carryOut(&after, m)
		}
	}
	if several < 20 {
		t.Errorf("only %d rebalances with several moves", several)
	}
}

// partOf is the load that a move takes along.
func partOf(s Snapshot, m Move) float64 {
	i := slices.IndexFunc(s.Engines, func(e Engine) bool { return e.Name == m.From })
	return s.Measured[m.From] * float64(m.Applications) / float64(s.Engines[i].Load.Applications)
}

func TestARebalanceLeavesOutMovesWhoseReasonIsGone(t *testing.T) {
	es := []Engine{engine("a", 100, 10), engine("b", 100, 10), engine("c", 100, 10)}
	of := func() Snapshot {
		s := snapshot(slices.Clone(es), served("a", 10, 10, 10, 10), served("b", 10, 10, 10, 10),
			served("c", 10, 10, 10, 10))
		s.Measured = map[fleet.EngineName]float64{"a": 6, "b": 2, "c": 1}
		return s
	}
	moves := simulate(t, of(), Change{Kind: Rebalance}).Moves
	if len(moves) != 2 || moves[0].To != "c" || moves[1].To != "b" {
		t.Fatalf("%+v", moves)
	}
	for want, change := range map[string]func(*Snapshot){
		"engine a is not measured":            func(s *Snapshot) { delete(s.Measured, "a") },
		"engine a is not overloaded any more": func(s *Snapshot) { s.Measured["a"] = 2 },
		"engine c would be overloaded itself": func(s *Snapshot) { s.Measured["c"] = 6 },
		"engine c would have as much load as engine a has": func(s *Snapshot) {
			s.Measured = map[fleet.EngineName]float64{"a": 6, "b": 3, "c": 4.7}
		},
		"engine c is not declared any more": func(s *Snapshot) { s.Engines = s.Engines[:2] },
		"engine c may not serve it any more": func(s *Snapshot) {
			s.Engines[2].Spec.Region = "us"
		},
		"engine c is broken": conflicting("is broken"),
		"it is fixed": func(s *Snapshot) {
			s.Environments[0].Fixed = "it is fixed"
		},
		"it is on engine c already": func(s *Snapshot) { s.Environments[0].Engine = "c" },
		"it is not declared any more": func(s *Snapshot) {
			s.Environments = s.Environments[1:]
		},
		"engine a is not measured; all are not": func(s *Snapshot) { s.Measured = nil },
	} {
		s := of()
		change(&s)
		o, err := Continue(s, moves)
		want, _, _ := strings.Cut(want, ";")
		if err != nil || len(o.Left) == 0 || !strings.HasPrefix(o.Left[0].Reason, want) ||
			len(o.Left)+len(o.Moves) != len(moves) {
			t.Errorf("%s: %+v, left %+v, %v", want, o.Moves, o.Left, err)
		}
	}
}

func conflicting(why string) func(*Snapshot) {
	return func(s *Snapshot) {
		s.Conflicts = func(_ fleet.SliceID, _, e fleet.EngineName) string {
			if e == "c" {
				return why
			}
			return ""
		}
	}
}
