package placement

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// served puts environments on an engine, one for each number of Applications.
func served(engine string, applications ...int) (out []Served) {
	for i, n := range applications {
		out = append(out, Served{Item: item(engine, fmt.Sprintf("env-%d", i), n),
			Engine: fleet.EngineName(engine)})
	}
	return out
}

// snapshot counts the loads of the engines.
func snapshot(engines []Engine, environments ...[]Served) Snapshot {
	s := Snapshot{Engines: slices.Clone(engines), Environments: slices.Concat(environments...)}
	for i := range s.Engines {
		e := &s.Engines[i]
		for _, x := range s.Environments {
			if x.Engine == e.Name {
				e.Load = with(e.Load, x.Item)
			}
		}
	}
	return s
}

func simulate(t *testing.T, s Snapshot, c Change) Outcome {
	t.Helper()
	out, err := Simulate(s, c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// lines is an outcome in short: moves, then environments that are left.
func lines(o Outcome) (out []string) {
	for _, m := range o.Moves {
		out = append(out, fmt.Sprintf("%s: %s to %s", m.Environment, m.From, m.To))
	}
	for _, l := range o.Left {
		out = append(out, fmt.Sprintf("%s stays: %s", l.Environment, l.Reason))
	}
	return out
}

func TestADrainMovesTheEnvironmentsOfItsEngineTheRiskiestLast(t *testing.T) {
	es := []Engine{engine("a", 100, 10), engine("b", 100, 10)}
	s := snapshot(es, served("a", 7, 1, 3, 1), served("b", 2, 2))
	s.Environments[1].Unready = 1
	got := simulate(t, s, Change{Kind: Drain, Engine: "a"})
	want := []string{"a/env-3: a to b", "a/env-2: a to b", "a/env-0: a to b", "a/env-1: a to b"}
	if !slices.Equal(lines(got), want) {
		t.Errorf("%q", lines(got))
	}
	a, b := got.Engines[0], got.Engines[1]
	if a.State != fleet.EngineDraining || a.Before != (fleet.EngineLoad{Applications: 12,
		Environments: 4}) || a.After != (fleet.EngineLoad{}) || b.State != fleet.EngineActive ||
		b.After != (fleet.EngineLoad{Applications: 16, Environments: 6}) {
		t.Errorf("%+v", got.Engines)
	}
	if lost := simulate(t, s, Change{Kind: Lose, Engine: "a"}); lost.Engines[0].State != Lost ||
		!slices.Equal(lines(lost), want) {
		t.Errorf("%+v", lost)
	}
}

func TestADrainFillsTheLeastLoadedEngine(t *testing.T) {
	es := []Engine{engine("a", 100, 100), engine("b", 100, 100), engine("c", 100, 100),
		engine("d", 20, 100)}
	s := snapshot(es, served("a", 1, 2, 3, 4, 5, 6), served("b", 40), served("c", 4),
		served("d", 10))
	for _, m := range simulate(t, s, Change{Kind: Drain, Engine: "a"}).Moves {
		if m.To != "c" {
			t.Errorf("%+v", m)
		}
	}
}

func TestAnEnvironmentThatCannotMoveStaysWithItsReason(t *testing.T) {
	es := []Engine{engine("a", 100, 10), engine("b", 10, 10), engine("c", 100, 10)}
	es[2].Spec.DedicatedTo = []fleet.TenantName{"other"}
	s := snapshot(es, served("a", 2, 20, 1), served("b", 1))
	s.Environments[2].Fixed = "runs on the engine's own cluster"
	got := lines(simulate(t, s, Change{Kind: Drain, Engine: "a"}))
	if len(got) != 3 || got[0] != "a/env-0: a to b" ||
		got[1] != "a/env-2 stays: runs on the engine's own cluster" ||
		!strings.Contains(got[2], "a/env-1 stays: it is too large for every engine that may take "+
			"it: one is too small for 20 applications, with a capacity of at most 10; one is "+
			"dedicated to other tenants; one is draining") {
		t.Errorf("%q", got)
	}
}

func TestTwoTenantsWithCredentialsForOneRepositoryDoNotMoveToOneEngine(t *testing.T) {
	es := []Engine{engine("a", 100, 10), engine("b", 100, 10)}
	s := snapshot(es, served("a", 1, 2, 3))
	for i := range s.Environments {
		s.Environments[i].Environment.Tenant = fleet.TenantName(fmt.Sprintf("t%d", i))
		s.Environments[i].Reads = []string{"https://git.example.com/shared"}
	}
	s.Environments[2].Environment.Tenant = "t0"
	got := lines(simulate(t, s, Change{Kind: Drain, Engine: "a"}))
	if len(got) != 3 || got[0] != "t0/env-0: a to b" || got[1] != "t0/env-2: a to b" ||
		!strings.Contains(got[2], "t1/env-1 stays") || !strings.Contains(got[2],
		"another tenant that reads https://git.example.com/shared") {
		t.Errorf("%q", got)
	}
}

func TestATenantWithACredentialDoesNotMoveToAnotherReaderOfTheRepository(t *testing.T) {
	repository := []string{"https://git.example.com/shared"}
	for name, c := range map[string]struct {
		private []int
		want    string
	}{
		"no credential":       {nil, "0 1 2"},
		"the first has one":   {[]int{0}, "0"},
		"a later one has one": {[]int{1}, "0 2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshot([]Engine{engine("a", 100, 10), engine("b", 100, 10)},
				served("a", 1, 2, 3))
			for i := range s.Environments {
				e := &s.Environments[i]
				e.Environment.Tenant = fleet.TenantName(fmt.Sprint(i))
				if slices.Contains(c.private, i) {
					e.Reads = repository
				} else {
					e.ReadsOpen = repository
				}
			}
			var moved []string
			for _, m := range simulate(t, s, Change{Kind: Drain, Engine: "a"}).Moves {
				moved = append(moved, string(m.Environment.Tenant))
			}
			slices.Sort(moved)
			if got := strings.Join(moved, " "); got != c.want {
				t.Errorf("%s move, not %s", got, c.want)
			}
		})
	}
}

func TestTwoAdoptedApplicationsOfOneNameDoNotMoveToOneEngine(t *testing.T) {
	es := []Engine{engine("a", 100, 10), engine("b", 100, 10)}
	for _, c := range []struct {
		names [2]string
		moves int
	}{{[2]string{"shop", "cart"}, 2}, {[2]string{"shop", "shop"}, 1}} {
		s := snapshot(es, served("a", 10, 30), served("b", 10, 30))
		s.Environments[1].Fixed, s.Environments[3].Fixed = "fixed", "fixed"
		s.Environments[0].Adopts, s.Environments[2].Adopts = c.names[:1], c.names[1:]
		got := lines(simulate(t, s, Change{Kind: Join, Engine: "c", Like: "a"}))
		if len(got) != c.moves {
			t.Errorf("%v: %q", c.names, got)
		}
	}
}

func TestAJoiningEngineTakesLittleFromTheFullestOnes(t *testing.T) {
	es := []Engine{engine("a", 100, 100), engine("b", 100, 100)}
	s := snapshot(es, served("a", 10, 10, 10, 10, 10, 10), served("b", 10, 10, 10))
	got := simulate(t, s, Change{Kind: Join, Engine: "c", Like: "a"})
	want := []string{"a/env-0: a to c", "a/env-1: a to c", "a/env-2: a to c"}
	if !slices.Equal(lines(got), want) {
		t.Errorf("%q", lines(got))
	}
	c := got.Engines[2]
	if c.Engine != "c" || c.Before != (fleet.EngineLoad{}) || c.Capacity != es[0].Spec.Capacity ||
		c.After != (fleet.EngineLoad{Applications: 30, Environments: 3}) {
		t.Errorf("%+v", c)
	}
}

// An instance takes environments from the serving instances of its pool, and no others.
func TestAnInstanceTakesFromItsPoolAlone(t *testing.T) {
	member := func(name string, state fleet.PoolMemberState, applications ...int) ([]Engine,
		[]Served) {
		e := engine(name, 10, 100)
		if state != "" {
			e.Spec.Pool = &fleet.PoolMember{Pool: "p", State: state}
		}
		return []Engine{e}, served(name, applications...)
	}
	a, onA := member("p-1", fleet.MemberServing, 3, 3, 3)
	b, onB := member("p-2", fleet.MemberMaking, 3, 3, 3)
	c, onC := member("p-3", fleet.MemberServing)
	d, onD := member("x", "", 5, 5)
	s := snapshot(slices.Concat(a, b, c, d), onA, onB, onC, onD,
		[]Served{{Item: item("acme", "waits", 1)}})
	out := simulate(t, s, Change{Kind: Join, Engine: "p-3", Pool: "p"})
	if want := []string{"p-1/env-0: p-1 to p-3"}; !slices.Equal(lines(out), want) {
		t.Errorf("%q", lines(out))
	}
	// the fullest instance of a pool whose other engines are empty gives nothing either
	s = snapshot(slices.Concat(a, c, d), onA, onC)
	if out := simulate(t, s, Change{Kind: Join, Engine: "p-1", Pool: "p"}); len(out.Moves) > 0 {
		t.Errorf("%q", lines(out))
	}
}

func TestAJoiningEngineServesWaitingEnvironmentsFirst(t *testing.T) {
	es := []Engine{engine("a", 10, 2)}
	s := snapshot(es, served("a", 5, 5), served("", 4))
	s.Environments[2].Environment.Tenant = "waits"
	got := lines(simulate(t, s, Change{Kind: Join, Engine: "b", Like: "a"}))
	if !slices.Equal(got, []string{"waits/env-0:  to b"}) {
		t.Errorf("%q", got)
	}
}

func TestACordonedEngineJoinsWhenItIsActive(t *testing.T) {
	es := []Engine{engine("a", 100, 100), engine("b", 100, 100)}
	es[1].Spec.State = fleet.EngineCordoned
	s := snapshot(es, served("a", 10, 10, 10, 10))
	got := simulate(t, s, Change{Kind: Join, Engine: "b"})
	if len(got.Moves) != 2 || got.Engines[1].State != fleet.EngineActive {
		t.Errorf("%+v", got)
	}
}

func TestASmallerEngineGivesUntilItIsNearTheAverage(t *testing.T) {
	es := []Engine{engine("a", 100, 100), engine("b", 100, 100)}
	s := snapshot(es, served("a", 10, 10, 10, 10), served("b", 10, 10, 10, 10))
	got := simulate(t, s, Change{Kind: Scale, Engine: "a",
		Capacity: fleet.Capacity{Applications: 50}})
	if !slices.Equal(lines(got), []string{"a/env-0: a to b"}) ||
		got.Engines[0].Capacity != (fleet.Capacity{Applications: 50, Environments: 100}) {
		t.Errorf("%+v", got)
	}
	got = simulate(t, s, Change{Kind: Scale, Engine: "a",
		Capacity: fleet.Capacity{Applications: 5}})
	if after := got.Engines[0].After; after.Applications > 5 {
		t.Errorf("an engine keeps %d Applications above its capacity", after.Applications)
	}
}

func TestAnEngineWithinTheBoundsMovesNothing(t *testing.T) {
	es := []Engine{engine("a", 100, 100), engine("b", 100, 100)}
	for name, s := range map[string]Snapshot{
		"as full as the other": snapshot(es, served("a", 10, 10), served("b", 10, 10)),
		"a little below it":    snapshot(es, served("a", 20, 20, 1), served("b", 20, 7)),
		"the only environment": snapshot(es, served("a", 10)),
		"one for each":         snapshot(es, served("a", 30), served("b", 10)),
	} {
		t.Run(name, func(t *testing.T) {
			for _, e := range []fleet.EngineName{"a", "b"} {
				if got := lines(simulate(t, s, Change{Kind: Scale, Engine: e})); len(got) > 0 {
					t.Errorf("%s: %q", e, got)
				}
			}
		})
	}
}

func TestAnImpossibleChangeIsAnError(t *testing.T) {
	s := snapshot([]Engine{engine("a", 100, 100)})
	for why, c := range map[string]Change{
		"engine b is not declared; `argosy get": {Kind: Drain, Engine: "b"},
		"engine b is not declared; declare it":  {Kind: Join, Engine: "b"},
		"engine c is not declared; `argosy get": {Kind: Join, Engine: "b", Like: "c"},
		"engine a is declared; leave out":       {Kind: Join, Engine: "a", Like: "a"},
		`"burn" is no change`:                   {Kind: "burn", Engine: "a"},
	} {
		if _, err := Simulate(s, c); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%+v: %v, want %q", c, err, why)
		}
	}
}

// snapshot is a random fleet: engines with constraints, environments that they serve or that wait,
// and conflicts.
func (w generator) snapshot() Snapshot {
	es := w.engines()
	for i := range es {
		es[i].Load = fleet.EngineLoad{}
	}
	s := Snapshot{Conflicts: func(id fleet.SliceID, _, e fleet.EngineName) string {
		if hash64(id.String()+string(e))%11 == 0 {
			return "a conflict"
		}
		return ""
	}}
	f := NewFleet(es)
	for n := range 60 {
		e := Served{Item: w.item(n), Unready: max(0, w.IntN(6)-3)}
		if w.IntN(8) == 0 {
			e.Fixed = "fixed"
		}
		if w.IntN(4) == 0 {
			e.Reads = []string{fmt.Sprintf("repository-%d", w.IntN(3))}
		} else if w.IntN(4) == 0 {
			e.ReadsOpen = []string{fmt.Sprintf("repository-%d", w.IntN(3))}
		}
		p := f.Decide(e.Item, nil)
		e.Engine = p.Engine
		if i := slices.IndexFunc(es, func(x Engine) bool { return x.Name == p.Engine }); i >= 0 {
			es[i].Load = with(es[i].Load, e.Item)
			f.Carry(p.Engine, es[i].Load)
		}
		s.Environments = append(s.Environments, e)
	}
	s.Engines = es
	return s
}

func (w generator) change(s Snapshot) Change {
	c := Change{Kind: []ChangeKind{Drain, Join, Lose, Scale}[w.IntN(4)],
		Engine: s.Engines[w.IntN(len(s.Engines))].Name}
	switch {
	case c.Kind == Join && w.IntN(2) == 0:
		c.Like, c.Engine = c.Engine, "new"
	case c.Kind == Scale:
		c.Capacity = fleet.Capacity{Applications: 1 + w.IntN(200), Environments: 1 + w.IntN(40)}
	}
	return c
}

// histories calls check for random changes of random fleets.
func histories(t *testing.T, stream uint64,
	check func(generator, Snapshot, Change, Outcome) string) {
	t.Helper()
	for seed := range uint64(300) {
		w := generator{rand.New(rand.NewPCG(seed, stream))}
		s := w.snapshot()
		if len(s.Engines) == 0 {
			continue
		}
		c := w.change(s)
		o := simulate(t, s, c)
		if why := check(w, s, c, o); why != "" {
			t.Fatalf("seed %d, %+v: %s", seed, c, why)
		}
	}
}

// TestNoMoveViolatesAConstraint carries out the moves one by one and evaluates each with the rules
// of the reference implementation.
func TestNoMoveViolatesAConstraint(t *testing.T) {
	moves, kinds := 0, map[ChangeKind]int{}
	histories(t, 11, func(_ generator, s Snapshot, c Change, o Outcome) string {
		after := changed(s, c)
		for _, m := range o.Moves {
			moves++
			kinds[c.Kind]++
			i := slices.IndexFunc(after.Environments, func(e Served) bool {
				return e.Environment == m.Environment
			})
			e := &after.Environments[i]
			if e.Engine != m.From || m.From != "" && e.Fixed != "" {
				return fmt.Sprintf("%+v, of %+v", m, *e)
			}
			if m.From != "" && m.From != c.Engine && m.To != c.Engine {
				return fmt.Sprintf("no rule asks for %+v", m)
			}
			p := plainDecide(e.Item, only(after.Engines, m.To), func(to fleet.EngineName) string {
				return after.Conflicts(e.ID(), "", to)
			})
			if p.Engine != m.To {
				return fmt.Sprintf("%+v: %+v", m, p)
			}
			for _, other := range after.Environments {
				if other.Engine == m.To && other.Environment.Tenant != e.Environment.Tenant &&
					arrivedWith(o.Moves, other) && shared(*e, other) != "" {
					return fmt.Sprintf("%+v meets %+v", m, other)
				}
			}
			carryOut(&after, m)
		}
		for _, e := range o.Engines {
			for _, x := range after.Engines {
				if x.Name == e.Engine && (x.Load != e.After || x.Spec.Capacity != e.Capacity) {
					return fmt.Sprintf("%+v, but %+v", e, x)
				}
			}
		}
		for _, l := range o.Left {
			i := slices.IndexFunc(after.Environments, func(e Served) bool {
				return e.Environment == l.Environment
			})
			if e := after.Environments[i]; l.Reason == "" || e.Engine != l.Engine {
				return fmt.Sprintf("%+v, but %+v", l, e)
			}
		}
		return ""
	})
	if moves < 300 || len(kinds) < 4 {
		t.Errorf("only %d moves: %v", moves, kinds)
	}
}

func arrivedWith(moves []Move, e Served) bool {
	return slices.ContainsFunc(moves, func(m Move) bool {
		return m.Environment == e.Environment && m.To == e.Engine
	})
}

func only(engines []Engine, name fleet.EngineName) []Engine {
	i := slices.IndexFunc(engines, func(e Engine) bool { return e.Name == name })
	return engines[i : i+1]
}

// changed is a snapshot after the change and before its moves.
func changed(s Snapshot, c Change) Snapshot {
	s.Engines, s.Environments = slices.Clone(s.Engines), slices.Clone(s.Environments)
	for i := range s.Engines {
		e := &s.Engines[i]
		if e.Name == c.Like {
			joining := *e
			joining.Name, joining.Load = c.Engine, fleet.EngineLoad{}
			joining.Spec.State = fleet.EngineActive
			s.Engines = append(s.Engines, joining)
			break
		}
		if e.Name != c.Engine {
			continue
		}
		switch c.Kind {
		case Drain, Lose:
			e.Spec.State = fleet.EngineDraining
		case Join:
			e.Spec.State = fleet.EngineActive
		case Scale:
			e.Spec.Capacity = c.Capacity
		}
	}
	return s
}

func carryOut(s *Snapshot, m Move) {
	var moved Item
	for i := range s.Environments {
		if e := &s.Environments[i]; e.Environment == m.Environment {
			e.Engine, moved = m.To, e.Item
		}
	}
	for i := range s.Engines {
		switch e := &s.Engines[i]; e.Name {
		case m.From:
			e.Load = without(e.Load, moved)
		case m.To:
			e.Load = with(e.Load, moved)
		}
	}
}

func TestTheOrderOfTheListsDoesNotMatter(t *testing.T) {
	histories(t, 12, func(w generator, s Snapshot, c Change, o Outcome) string {
		w.Shuffle(len(s.Engines), func(i, j int) {
			s.Engines[i], s.Engines[j] = s.Engines[j], s.Engines[i]
		})
		w.Shuffle(len(s.Environments), func(i, j int) {
			s.Environments[i], s.Environments[j] = s.Environments[j], s.Environments[i]
		})
		if again := simulate(t, s, c); !reflect.DeepEqual(again, o) {
			return fmt.Sprintf("%+v, then %+v", o, again)
		}
		return ""
	})
}

// A drain takes hours, and each of its steps is computed again.
func TestADrainThatIsComputedAgainAfterEachMoveIsTheOneThatWasShown(t *testing.T) {
	histories(t, 13, func(_ generator, s Snapshot, c Change, _ Outcome) string {
		c = Change{Kind: Drain, Engine: c.Engine}
		if c.Engine == "new" {
			return ""
		}
		o := simulate(t, s, c)
		now := changed(s, c)
		// arrivals keep what they read: the store knows it, the simulation of the rest asks it
		now.Conflicts = func(id fleet.SliceID, from, e fleet.EngineName) string {
			if why := s.Conflicts(id, from, e); why != "" {
				return why
			}
			return readsApart(now, o.Moves, id.In(), e)
		}
		for n, m := range o.Moves {
			carryOut(&now, m)
			rest := simulate(t, now, c)
			if !slices.Equal(rest.Moves, o.Moves[n+1:]) || len(rest.Left) != len(o.Left) {
				return fmt.Sprintf("after %d moves: %+v, shown %+v", n+1, rest.Moves, o.Moves[n+1:])
			}
		}
		return ""
	})
}

func readsApart(s Snapshot, moves []Move, id fleet.EnvironmentID, on fleet.EngineName) string {
	i := slices.IndexFunc(s.Environments, func(e Served) bool { return e.Environment == id })
	for _, other := range s.Environments {
		if other.Engine != on || other.Environment.Tenant == id.Tenant ||
			!arrivedWith(moves, other) {
			continue
		}
		if r := shared(s.Environments[i], other); r != "" {
			return CredentialConflict(r)
		}
	}
	return ""
}

// shared returns a repository that both read, one of them with a credential, or "".
func shared(a, b Served) string {
	for _, r := range a.Reads {
		if slices.Contains(b.Reads, r) || slices.Contains(b.ReadsOpen, r) {
			return r
		}
	}
	for _, r := range a.ReadsOpen {
		if slices.Contains(b.Reads, r) {
			return r
		}
	}
	return ""
}

// Environments do not move back and forth.
func TestASecondSimulationOfAnEngineThatJoinedMovesNothing(t *testing.T) {
	histories(t, 14, func(_ generator, s Snapshot, c Change, o Outcome) string {
		if c.Kind != Join && c.Kind != Scale {
			return ""
		}
		now := changed(s, c)
		for _, m := range o.Moves {
			carryOut(&now, m)
		}
		again := simulate(t, now, Change{Kind: Scale, Engine: c.Engine})
		for _, m := range again.Moves {
			if i := slices.IndexFunc(o.Moves, func(n Move) bool {
				return n.Environment == m.Environment
			}); i >= 0 && o.Moves[i].From == m.To && m.To != "" {
				return fmt.Sprintf("%+v moves back: %+v", o.Moves[i], m)
			}
		}
		return ""
	})
}

func TestAnEnvironmentThatIsTooLargeIsPlacedOnceAnEngineIsScaled(t *testing.T) {
	s := snapshot([]Engine{engine("a", 30, 10), engine("b", 50, 10)}, served("", 60))
	for applications, want := range map[int]string{
		59: "/env-0 stays: it is too large for every engine that may take it: each of 2 is too " +
			"small for 60 applications, with a capacity of at most 59",
		60: "/env-0:  to b",
	} {
		got := simulate(t, s, Change{Kind: Scale, Engine: "b",
			Capacity: fleet.Capacity{Applications: applications}})
		if !slices.Equal(lines(got), []string{want}) {
			t.Errorf("with %d: %q, want %q", applications, lines(got), want)
		}
	}
}

func TestARebalanceExplainsAnEnvironmentThatIsTooLargeForTheOthers(t *testing.T) {
	s := snapshot([]Engine{engine("a", 100, 10), engine("b", 30, 10), engine("c", 39, 10)},
		served("a", 40), served("b", 1))
	s.Measured = map[fleet.EngineName]float64{"a": 8, "b": 0.1}
	got := lines(simulate(t, s, Change{Kind: Rebalance}))
	want := "a/env-0 stays: it is too large for every engine that may take it: each of 2 is too " +
		"small for 40 applications, with a capacity of at most 39; one serves it now"
	if !slices.Equal(got, []string{want}) {
		t.Errorf("%q, want %q", got, want)
	}
}
