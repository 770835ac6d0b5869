package placement

import (
	"cmp"
	"slices"

	"argosy.dev/argosy/fleet"
)

// Overload is the measured load, relative to the average of the engines that may serve an
// environment, above which an engine gives environments away. It gives them until it is within
// LoadFactor: between the two, nothing moves.
const Overload = 1.5

// rebalance moves environments off the engines whose measured load is above Overload. A measured
// load is the CPU in use relative to the capacity of Applications. An environment has a part of the
// load of its engine, by its Applications.
//
// Each move takes an environment to an engine that stays within LoadFactor, and makes the fuller of
// the two emptier by MinGain of the average at least. Of all such moves the one with the largest
// gain is first, and of those with one gain that to the least loaded engine. An engine that gives
// takes nothing, so that nothing moves back.
//
// Moves are made in the order of their risk, and only while their engine is above the bound, so
// that Continue returns the remaining moves after any of them.
func (m *simulation) rebalance() error {
	if !m.measure() {
		return &ImpossibleError{Why: "the load of no engine is measured",
			Fix: "declare spec.metrics of the engines, and wait until `argosy get engines -o wide` " +
				"shows their CPU; an engine is measured again 15 minutes after a move"}
	}
	before := m.Snapshot
	before.Environments = slices.Clone(m.Environments)
	moves := m.choose()
	slices.SortFunc(moves, func(a, b Move) int {
		return cmp.Or(cmp.Compare(a.Unready, b.Unready),
			cmp.Compare(a.Applications, b.Applications),
			compareNames(a.ID(), b.ID()))
	})
	again, err := newSimulation(before, m.change)
	if err != nil {
		return err
	}
	*m = *again
	m.measure()
	m.follow(moves)
	m.left = m.left[:0] // a move that is not needed leaves nothing unresolved
	m.explain()
	return nil
}

// choose makes the best move as long as there is one.
func (m *simulation) choose() []Move {
	for {
		best := candidate{}
		for i := range m.Environments {
			if e := &m.Environments[i]; e.Fixed == "" {
				best = m.relief(best, e)
			}
		}
		if best.environment == nil {
			return m.moves
		}
		m.relieveBy(best.environment, best.to)
	}
}

// relieveBy moves an environment with its part of the load.
func (m *simulation) relieveBy(e *Served, to int) {
	part := m.parts[e.ID()]
	m.cores[m.index(e.Engine)] -= part
	m.cores[to] += part
	m.move(e, to)
}

// Continue returns the moves of an earlier rebalance that are still right, in their order. The
// others are Left with the reason: their environment is elsewhere or fixed, the new engine cannot
// take it or would have as much load as the one that it relieves, or the latter is within the bound
// or is not measured any more. It chooses no other move.
func Continue(s Snapshot, moves []Move) (Outcome, error) {
	m, err := newSimulation(s, Change{Kind: Rebalance})
	if err != nil {
		return Outcome{}, err
	}
	if m.measure() {
		m.follow(moves)
	} else {
		for _, move := range moves {
			m.left = append(m.left, Left{Environment: move.Environment, Slice: move.Slice,
				Engine:       move.From,
				Applications: move.Applications, Reason: notMeasured(move.From)})
		}
	}
	return m.outcome(), nil
}

func notMeasured(e fleet.EngineName) string { return "engine " + string(e) + " is not measured" }

// follow makes those of the moves that are still right.
func (m *simulation) follow(moves []Move) {
	of := map[fleet.SliceID]*Served{}
	for i := range m.Environments {
		of[m.Environments[i].ID()] = &m.Environments[i]
	}
	for _, move := range moves {
		e, to := of[move.ID()], m.index(move.To)
		if why := m.superseded(e, move, to); why != "" {
			m.left = append(m.left, Left{Environment: move.Environment, Slice: move.Slice,
				Engine:       move.From,
				Applications: move.Applications, Reason: why})
			continue
		}
		m.relieveBy(e, to)
	}
}

// superseded returns why a move is not to be made any more, or "".
func (m *simulation) superseded(e *Served, move Move, to int) string {
	switch {
	case e == nil:
		return "it is not declared any more"
	case e.Engine != move.From:
		return "it is on engine " + string(e.Engine) + " already"
	case e.Fixed != "":
		return e.Fixed
	case to < 0:
		return "engine " + string(move.To) + " is not declared any more"
	}
	from := m.index(e.Engine)
	if _, measured := m.Measured[e.Engine]; !measured || from < 0 {
		return notMeasured(move.From)
	}
	mean := m.meanUse(e, from)
	switch {
	case m.used(from) <= LoadFactor*mean:
		return "engine " + string(move.From) + " is not overloaded any more"
	case m.usedWith(to, m.parts[e.ID()]) > Overload*mean:
		return "engine " + string(move.To) + " would be overloaded itself"
	case m.usedWith(to, m.parts[e.ID()]) >= m.used(from):
		return "engine " + string(move.To) + " would have as much load as engine " +
			string(move.From) + " has"
	case !slices.Contains(m.class(&e.Item).free, to) || full(&e.Item, &m.engines[to]) != free:
		return "engine " + string(move.To) + " may not serve it any more, or has no room for it"
	}
	if why := m.conflict(e, move.To); why != "" {
		return "engine " + string(move.To) + " " + why
	}
	return ""
}

// measure computes the load of each engine and the part of each environment. An engine that is not
// measured counts as its Applications, each with the average load of those that are measured. It
// reports whether any engine is.
func (m *simulation) measure() bool {
	var cores float64
	applications := 0
	for i := range m.engines {
		if used, ok := m.Measured[m.engines[i].Name]; ok {
			cores, applications = cores+used, applications+m.engines[i].Load.Applications
		}
	}
	if applications == 0 {
		return false
	}
	m.cores, m.gives = make([]float64, len(m.engines)), make([]bool, len(m.engines))
	for i := range m.engines {
		used, ok := m.Measured[m.engines[i].Name]
		if !ok {
			used = cores / float64(applications) * float64(m.engines[i].Load.Applications)
		}
		m.cores[i] = used
	}
	m.coresBefore = slices.Clone(m.cores)
	for i := range m.Environments {
		e := &m.Environments[i]
		from := m.index(e.Engine)
		if from < 0 || m.engines[from].Load.Applications == 0 {
			continue
		}
		m.parts[e.ID()] = m.cores[from] * float64(e.Applications) /
			float64(m.engines[from].Load.Applications)
	}
	for i := range m.Environments {
		e := &m.Environments[i]
		from := m.index(e.Engine)
		if from < 0 || !m.servesRightly(e, from) {
			continue
		}
		_, measured := m.Measured[e.Engine]
		if measured && m.used(from) > Overload*m.meanUse(e, from) {
			m.gives[from] = true
		}
	}
	return true
}

// servesRightly reports whether an engine satisfies the constraints of an environment that it
// serves: its load is no reason to move another one.
func (m *simulation) servesRightly(e *Served, from int) bool {
	b := m.class(&e.Item).ineligible[from]
	return b == free || b == cordoned
}

// used is the measured load of an engine, relative to its capacity.
func (m *simulation) used(i int) float64 { return m.usedWith(i, 0) }

func (m *simulation) usedWith(i int, more float64) float64 {
	return (m.cores[i] + more) / max(1, float64(m.engines[i].Spec.Capacity.Applications))
}

// meanUse is the average load of an environment's engine and of those that may serve it.
func (m *simulation) meanUse(e *Served, from int) float64 {
	cores, capacity, counted := 0.0, 0, false
	add := func(i int) {
		cores, capacity = cores+m.cores[i], capacity+m.engines[i].Spec.Capacity.Applications
		counted = counted || i == from
	}
	for _, i := range m.class(&e.Item).free {
		add(i)
	}
	if !counted {
		add(from)
	}
	return cores / max(1, float64(capacity))
}

// relief returns the better one of a candidate and the best move of an environment.
func (m *simulation) relief(best candidate, e *Served) candidate {
	from := m.index(e.Engine)
	part := m.parts[e.ID()]
	if from < 0 || !m.gives[from] || part <= 0 || !m.servesRightly(e, from) {
		return best
	}
	mean := m.meanUse(e, from)
	if m.used(from) <= LoadFactor*mean {
		return best
	}
	for _, to := range m.class(&e.Item).free {
		if to == from || m.gives[to] || full(&e.Item, &m.engines[to]) != free {
			continue
		}
		after := m.usedWith(to, part)
		gain := m.used(from) - max(m.usedWith(from, -part), after)
		if after > LoadFactor*mean || gain < MinGain*mean || gain < best.gain ||
			gain == best.gain && after >= best.after || m.conflict(e, m.engines[to].Name) != "" {
			continue
		}
		best = candidate{environment: e, to: to, gain: gain, after: after}
	}
	return best
}

// explain lists the environments of engines that stay above the bound, with the reason.
func (m *simulation) explain() {
	for i := range m.Environments {
		e := &m.Environments[i]
		from := m.index(e.Engine)
		if from < 0 || !m.gives[from] || !m.servesRightly(e, from) ||
			m.used(from) <= LoadFactor*m.meanUse(e, from) {
			continue
		}
		why := e.Fixed
		if why == "" {
			r := m.hold(e.Item, func(engine fleet.EngineName) string {
				if engine == e.Engine {
					return "serves it now"
				}
				return m.conflict(e, engine)
			})
			why = "each engine that may serve it would be overloaded itself, or would relieve " +
				"engine " + string(e.Engine) + " by less than 5 %"
			if r.choose() < 0 {
				why = r.hopeless(r.tooLarge())
			}
		}
		m.leave(e, why)
	}
}
