package placement

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// plain is the direct implementation of the rules: it evaluates each item against each engine,
// computes every score and formats every text. The tests compare Decide, Fleet and Assign with it.
type plain struct {
	item       Item
	engines    []Engine
	ineligible []ineligibility
	scores     []float64 // of engines that are eligible or only full; 0 otherwise
	conflicts  []string
	load       fleet.EngineLoad
	capacity   fleet.Capacity // of the engines that count for the average
}

func plainDecide(item Item, engines []Engine,
	conflicts func(fleet.EngineName) string) fleet.Placement {
	r := evaluatePlain(item, engines, conflicts)
	p := fleet.Placement{Environment: item.Environment, Applications: item.Applications,
		Alternatives: r.alternatives()}
	best := r.choose()
	if best < 0 {
		p.TooLarge = r.tooLarge()
		p.Reason = r.hopeless()
		return p
	}
	p.Engine, p.Reason = engines[best].Name, r.reason()
	i := slices.IndexFunc(p.Alternatives, func(a fleet.Alternative) bool {
		return a.Engine == p.Engine
	})
	chosen := p.Alternatives[i]
	p.Alternatives = slices.Insert(slices.Delete(p.Alternatives, i, i+1), 0, chosen)
	return p
}

func plainAssign(items []Item, engines []Engine) []fleet.EngineName {
	out := make([]fleet.EngineName, len(items))
	for i, item := range items {
		best := evaluatePlain(item, engines, nil).choose()
		if best < 0 {
			continue
		}
		out[i] = engines[best].Name
		engines[best].Load.Applications += item.Applications
		engines[best].Load.Environments++
	}
	return out
}

func evaluatePlain(item Item, engines []Engine, conflicts func(fleet.EngineName) string) *plain {
	n := len(engines)
	r := &plain{item: item, engines: engines, ineligible: make([]ineligibility, n),
		scores:    make([]float64, n),
		conflicts: make([]string, n)}
	key := itemHash(item.ID())
	for i := range engines {
		e := &engines[i]
		b := constraint(item, e)
		if b == free && conflicts != nil {
			if r.conflicts[i] = conflicts(e.Name); r.conflicts[i] != "" {
				b = conflict
			}
		}
		if b == free {
			r.load.Applications += e.Load.Applications
			r.load.Environments += e.Load.Environments
			r.capacity.Applications += e.Spec.Capacity.Applications
			r.capacity.Environments += e.Spec.Capacity.Environments
			r.scores[i] = plainScore(key, mix(fnv(fnvOffset, string(e.Name))),
				e.Spec.Capacity.Applications)
			b = full(&item, e)
		}
		r.ineligible[i] = b
	}
	return r
}

func plainScore(item, engine uint64, weight int) float64 {
	u := (float64(mix(item^engine)>>11) + 0.5) / (1 << 53)
	return -float64(max(weight, 1)) / math.Log(u)
}

func (r *plain) choose() int {
	best, least := -1, -1
	for i, b := range r.ineligible {
		if b != free {
			continue
		}
		if r.belowBound(i) && (best < 0 || r.better(i, best)) {
			best = i
		}
		if least < 0 || r.fill(i) < r.fill(least) || r.fill(i) == r.fill(least) &&
			r.better(i, least) {
			least = i
		}
	}
	if best < 0 {
		return least
	}
	return best
}

func (r *plain) better(i, j int) bool {
	if r.scores[i] != r.scores[j] {
		return r.scores[i] > r.scores[j]
	}
	return r.engines[i].Name < r.engines[j].Name
}

func (r *plain) belowBound(i int) bool {
	e := &r.engines[i]
	bound := func(capacity, load, total int) float64 {
		return LoadFactor * float64(capacity) * float64(load) / float64(total)
	}
	apps := r.item.Applications == 0 || float64(e.Load.Applications) < bound(
		e.Spec.Capacity.Applications, r.load.Applications+r.item.Applications,
		r.capacity.Applications)
	return apps && float64(e.Load.Environments) < bound(e.Spec.Capacity.Environments,
		r.load.Environments+1, r.capacity.Environments)
}

func (r *plain) fill(i int) float64 {
	e := &r.engines[i]
	f := float64(e.Load.Environments+1) / float64(e.Spec.Capacity.Environments)
	if r.item.Applications > 0 {
		f = max(f, float64(e.Load.Applications+r.item.Applications)/float64(
			e.Spec.Capacity.Applications))
	}
	return f
}

func (r *plain) alternatives() []fleet.Alternative {
	out := make([]fleet.Alternative, len(r.engines))
	for i := range r.engines {
		out[i] = fleet.Alternative{Engine: r.engines[i].Name, Eligible: r.ineligible[i] == free,
			Reason: r.text(i)}
		if r.ineligible[i] == free {
			out[i].Score = math.Round(r.scores[i]*1000) / 1000
		}
	}
	slices.SortFunc(out, func(a, b fleet.Alternative) int {
		switch {
		case a.Eligible != b.Eligible:
			if a.Eligible {
				return -1
			}
			return 1
		case a.Score != b.Score:
			if a.Score > b.Score {
				return -1
			}
			return 1
		}
		return strings.Compare(string(a.Engine), string(b.Engine))
	})
	return out
}

func (r *plain) text(i int) string {
	e := &r.engines[i]
	switch b := r.ineligible[i]; b {
	case conflict:
		return r.conflicts[i]
	case free:
		s := plainLoaded(e)
		if !r.belowBound(i) {
			s += ", above 1.25 times the average"
		}
		return s
	default:
		return b.text(r.item, e)
	}
}

func plainLoaded(e *Engine) string {
	return fmt.Sprintf("%d of %d applications, %d of %d environments", e.Load.Applications,
		e.Spec.Capacity.Applications, e.Load.Environments, e.Spec.Capacity.Environments)
}

func (r *plain) reason() string {
	eligible, above := 0, 0
	for i, b := range r.ineligible {
		if b != free {
			continue
		}
		eligible++
		if !r.belowBound(i) {
			above++
		}
	}
	switch {
	case eligible == 1:
		return "the only engine that may serve it"
	case above == eligible:
		return fmt.Sprintf("the least loaded of %d engines that may serve it", eligible)
	case above > 0:
		return fmt.Sprintf(
			"the best score of %d engines that may serve it and are below the bound (%d above it)",
			eligible-above, above)
	}
	return fmt.Sprintf("the best score of %d engines that may serve it", eligible)
}

func (r *plain) tooLarge() *fleet.TooLarge {
	var sizes []int
	for i, b := range r.ineligible {
		size := r.engines[i].Spec.Capacity.Applications
		switch {
		case b == tooSmall:
			sizes = append(sizes, size)
		case b == fullApplications, b == fullEnvironments,
			b == cordoned && size >= r.item.Applications:
			return nil
		}
	}
	if len(sizes) == 0 {
		return nil
	}
	return &fleet.TooLarge{Applications: r.item.Applications, Engines: len(sizes),
		LargestCapacity: slices.Max(sizes)}
}

func (r *plain) hopeless() string {
	if len(r.engines) == 0 {
		return "no engine is declared; add one under fleet/engines/"
	}
	largest := 0
	for i, b := range r.ineligible {
		if b == tooSmall {
			largest = max(largest, r.engines[i].Spec.Capacity.Applications)
		}
	}
	number := map[string]int{}
	var reasons []string
	for i := range r.engines {
		why, _, _ := strings.Cut(r.text(i), ": ")
		switch r.ineligible[i] {
		case labels:
			why = r.text(i)
		case tooSmall:
			why += fmt.Sprintf(", with a capacity of at most %d", largest)
		}
		if number[why]++; number[why] == 1 {
			reasons = append(reasons, why)
		}
	}
	lead, first := "no engine may serve it: ", func(string) bool { return false }
	if r.tooLarge() != nil {
		lead = "it is too large for every engine that may take it: "
		first = func(s string) bool { return strings.HasPrefix(s, "is too small") }
	}
	slices.Sort(reasons)
	slices.SortStableFunc(reasons, func(a, b string) int {
		switch {
		case first(a):
			return -1
		case first(b):
			return 1
		}
		return number[b] - number[a]
	})
	var parts []string
	for _, s := range reasons[:min(3, len(reasons))] {
		if number[s] == 1 {
			parts = append(parts, "one "+s)
		} else {
			parts = append(parts, fmt.Sprintf("each of %d %s", number[s], s))
		}
	}
	if len(reasons) > 3 {
		parts = append(parts, fmt.Sprintf("and %d other reasons", len(reasons)-3))
	}
	return lead + strings.Join(parts, "; ")
}
