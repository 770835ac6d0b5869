package placement

import (
	"cmp"
	"slices"

	"argosy.dev/argosy/fleet"
)

// MinGain is how far beyond a bound an engine's load must be, relative to the average, before
// environments move. They move until it is at the bound: so small changes of the load move nothing.
const MinGain = 0.05

// relieve moves environments to or from the change's engine. An environment moves only if one of
// the two engines is outside of the bounds, LoadFactor times the average load of the engines that
// may serve the environment and the average divided by LoadFactor, and if the fuller of the two
// gets emptier. Of all such moves the one with the largest gain is first, so that few environments
// move. The change's engine either gives or takes.
func (m *simulation) relieve() {
	first := len(m.moves)
	next := m.take
	if m.change.Pool == "" && m.overloaded() {
		next = m.give
	} else {
		m.findGivers()
	}
	slack := MinGain
	for {
		best := next(slack)
		if best.environment == nil {
			break
		}
		m.exchanged = append(m.exchanged, exchange{m.index(best.environment.Engine), best.to,
			best.environment.Item})
		m.move(best.environment, best.to)
		slack = 0
	}
	slices.SortFunc(m.moves[first:], func(a, b Move) int {
		return cmp.Or(cmp.Compare(a.Unready, b.Unready),
			cmp.Compare(a.Applications, b.Applications),
			compareNames(a.ID(), b.ID()))
	})
}

// candidate is a possible move; its environment is nil if there is none.
type candidate struct {
	environment *Served
	to          int
	gain        float64
	after       float64 // of Rebalance: the load of the new engine
}

// overloaded reports whether the change's engine is above the bound for one of its environments.
func (m *simulation) overloaded() bool {
	return slices.ContainsFunc(m.Environments, func(e Served) bool {
		return e.Engine == m.change.Engine && e.Fixed == "" &&
			m.over(m.subject, m.mean(&e), MinGain)
	})
}

// give returns the best move off the change's engine.
func (m *simulation) give(slack float64) (best candidate) {
	for i := range m.Environments {
		e := &m.Environments[i]
		if e.Engine != m.change.Engine || e.Fixed != "" || !m.over(m.subject, m.mean(e), slack) {
			continue
		}
		for _, to := range m.class(&e.Item).free {
			best = m.better(best, e, m.subject, to)
		}
	}
	return best
}

// take returns the best move from the fullest engine that can give one to the change's engine.
func (m *simulation) take(slack float64) (best candidate) {
	donors := slices.Clone(m.byName)
	slices.SortStableFunc(donors, func(i, j int) int { return cmp.Compare(m.fill(j), m.fill(i)) })
	for _, from := range donors {
		for _, e := range m.givers[from] {
			if e.Engine != m.engines[from].Name {
				continue // it has moved
			}
			mean := m.mean(e)
			if !m.under(m.subject, mean, slack) && !m.over(from, mean, slack) {
				continue
			}
			best = m.better(best, e, from, m.subject)
		}
		if best.environment != nil {
			break
		}
	}
	return best
}

// exchange is a move that relieve has made.
type exchange struct {
	from, to int
	item     Item
}

// final reports whether a move leaves no reason to take back an earlier one: nothing moves back and
// forth.
func (m *simulation) final(e *Served, from, to int) bool {
	after := func(i int) (fleet.EngineLoad, fleet.Capacity) {
		load := m.engines[i].Load
		switch i {
		case from:
			load = without(load, e.Item)
		case to:
			load = with(load, e.Item)
		}
		return load, m.engines[i].Spec.Capacity
	}
	return !slices.ContainsFunc(m.exchanged, func(x exchange) bool {
		back, capacity := after(x.from)
		return fill(with(back, x.item), capacity) < fill(after(x.to))
	})
}

// findGivers finds the environments that the change's engine may take, by their engine. An engine
// that violates a constraint of an environment does not give it: its load is not the reason.
func (m *simulation) findGivers() {
	m.givers = make([][]*Served, len(m.engines))
	for i := range m.Environments {
		e := &m.Environments[i]
		from := m.index(e.Engine)
		if e.Fixed != "" || from < 0 || from == m.subject {
			continue
		}
		if of := m.engines[from].Spec.Pool; m.change.Pool != "" &&
			(of == nil || of.Pool != m.change.Pool || of.State != fleet.MemberServing) {
			continue
		}
		b := m.class(&e.Item).ineligible
		if b[m.subject] == free && (b[from] == free || b[from] == cordoned) {
			m.givers[from] = append(m.givers[from], e)
		}
	}
}

// better returns the better one of a candidate and a move, if that is possible.
func (m *simulation) better(than candidate, e *Served, from, to int) candidate {
	if from == to || full(&e.Item, &m.engines[to]) != free {
		return than
	}
	a, b := &m.engines[from], &m.engines[to]
	gain := m.fill(from) - max(fill(without(a.Load, e.Item), a.Spec.Capacity),
		fill(with(b.Load, e.Item), b.Spec.Capacity))
	const least = 1e-9 // rounding is no gain
	if !(gain > max(than.gain, least)) || !m.final(e, from, to) || m.conflict(e, b.Name) != "" {
		return than
	}
	return candidate{environment: e, to: to, gain: gain}
}

// mean is the average load, relative to capacity, of the engines that may serve an environment.
func (m *simulation) mean(e *Served) float64 {
	r := m.hold(e.Item, nil)
	return fill(r.load, r.capacity)
}

// over reports whether an engine is above the upper bound, or above its capacity.
func (m *simulation) over(i int, mean, slack float64) bool {
	return m.fill(i) > min(1, (LoadFactor+slack)*mean)
}

// under reports whether an engine is below the lower bound.
func (m *simulation) under(i int, mean, slack float64) bool {
	return m.fill(i) < (1/LoadFactor-slack)*mean
}

// fill returns how full an engine is, by the tighter of the two capacities.
func (m *simulation) fill(i int) float64 {
	return fill(m.engines[i].Load, m.engines[i].Spec.Capacity)
}

func fill(l fleet.EngineLoad, c fleet.Capacity) float64 {
	return max(ratio(l.Applications, c.Applications), ratio(l.Environments, c.Environments))
}

// ratio is infinite for a load without capacity.
func ratio(load, capacity int) float64 {
	if load <= 0 {
		return 0
	}
	return float64(load) / float64(max(0, capacity))
}
