// Package placement decides which engine serves an environment, and says why.
//
// Rules:
//   - pure: the same item, engines and loads give the same answer, on every replica;
//   - sticky: nothing here moves what is placed. Verify says what no longer holds, and the move procedure acts on it;
//   - weighted rendezvous hashing (Thaler and Ravishankar, 1998; weights by logarithm) ranks the engines, so that an engine that comes or
//     goes changes the first choice only of what it wins or had;
//   - bounded load (Mirrokni, Thorup, Zadimoghaddam, 2016): an engine at or above 1.25 times the average load, relative to capacity, of the
//     engines that may serve the item is passed over, and no engine is ever filled above its capacity.
package placement

import (
	"math"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// LoadFactor is how far above the average an engine may be and still be given more.
const LoadFactor = 1.25

// Engine is an engine as placement sees it.
type Engine struct {
	Name   fleet.EngineName
	Labels map[string]string
	Spec   fleet.EngineSpec
	Load   fleet.EngineLoad // without the item that is being placed
}

// Item is an environment that wants an engine.
type Item struct {
	Environment  fleet.EnvironmentID
	Region       string
	Constraints  fleet.TenantPlacement
	Applications int // that it brings
}

// Decide places one environment, with every engine's standing told, best first. conflicts says why an engine cannot take the item for a
// reason that lies outside of both (a repository that two tenants read with different credentials), or ""; nil means that there is none.
// When no engine may serve it, Engine is empty and Reason says what to change.
func Decide(item Item, engines []Engine, conflicts func(fleet.EngineName) string) fleet.Placement {
	r := newRound(item, engines, conflicts)
	p := fleet.Placement{Environment: item.Environment, Applications: item.Applications, Alternatives: r.alternatives()}
	best := r.choose()
	if best < 0 {
		p.Reason = r.hopeless()
		return p
	}
	p.Engine, p.Reason = engines[best].Name, r.reason(best)
	i := slices.IndexFunc(p.Alternatives, func(a fleet.Alternative) bool { return a.Engine == p.Engine })
	chosen := p.Alternatives[i]
	p.Alternatives = slices.Insert(slices.Delete(p.Alternatives, i, i+1), 0, chosen)
	return p
}

// Verify says why an engine that serves the item would not be given it today, or "". Load and capacity are no reason: what is placed
// stays, and neither is a cordon, which only keeps new environments off.
func Verify(item Item, e Engine) string {
	switch b := constraint(item, &e); b {
	case free, cordoned:
		if e.Spec.State == fleet.EngineDraining {
			return draining.text(item, &e)
		}
		return ""
	default:
		return b.text(item, &e)
	}
}

// Assign places items one after the other, each with the loads that the earlier ones made, and returns the engine of each; "" where none
// may serve it. It is the what-if of a whole fleet: the same choices as Decide makes, without their words. engines' loads are updated.
func Assign(items []Item, engines []Engine) []fleet.EngineName {
	out := make([]fleet.EngineName, len(items))
	r := round{engines: engines, bars: make([]bar, len(engines)), scores: make([]float64, len(engines)), seeds: seeds(engines)}
	for i, item := range items {
		r.look(item, nil)
		best := r.choose()
		if best < 0 {
			continue
		}
		out[i] = engines[best].Name
		engines[best].Load.Applications += item.Applications
		engines[best].Load.Environments++
	}
	return out
}

// round is one item held against all engines.
type round struct {
	item    Item
	engines []Engine
	seeds   []uint64
	bars    []bar
	scores  []float64 // of engines that are eligible or only full; 0 otherwise
	told    []string  // conflicts, by engine; nil when none were asked for
	load    fleet.EngineLoad
	room    fleet.Capacity // of the engines that count for the average
}

func newRound(item Item, engines []Engine, conflicts func(fleet.EngineName) string) *round {
	r := &round{engines: engines, bars: make([]bar, len(engines)), scores: make([]float64, len(engines)), seeds: seeds(engines), told: make([]string, len(engines))}
	r.look(item, conflicts)
	return r
}

func (r *round) look(item Item, conflicts func(fleet.EngineName) string) {
	r.item, r.load, r.room = item, fleet.EngineLoad{}, fleet.Capacity{}
	key := itemHash(item.Environment)
	for i := range r.engines {
		e := &r.engines[i]
		b := constraint(item, e)
		if b == free && conflicts != nil {
			if r.told[i] = conflicts(e.Name); r.told[i] != "" {
				b = conflict
			}
		}
		r.scores[i] = 0
		if b == free {
			r.load.Applications += e.Load.Applications
			r.load.Environments += e.Load.Environments
			r.room.Applications += e.Spec.Capacity.Applications
			r.room.Environments += e.Spec.Capacity.Environments
			r.scores[i] = score(key, r.seeds[i], e.Spec.Capacity.Applications)
			b = full(item, e)
		}
		r.bars[i] = b
	}
}

// choose is the index of the eligible engine with the highest score below the bound; when all are above it, as a large item can make
// them, the one that is least loaded with the item; -1 when none is eligible.
func (r *round) choose() int {
	best, least := -1, -1
	for i, b := range r.bars {
		if b != free {
			continue
		}
		if r.belowBound(i) && (best < 0 || r.better(i, best)) {
			best = i
		}
		if least < 0 || r.fill(i) < r.fill(least) || r.fill(i) == r.fill(least) && r.better(i, least) {
			least = i
		}
	}
	if best < 0 {
		return least
	}
	return best
}

func (r *round) better(i, j int) bool {
	if r.scores[i] != r.scores[j] {
		return r.scores[i] > r.scores[j]
	}
	return r.engines[i].Name < r.engines[j].Name
}

// belowBound holds the engine's present load against 1.25 times the average that the item makes. Applications that the item does not
// bring are no reason to pass an engine over.
func (r *round) belowBound(i int) bool {
	e := &r.engines[i]
	apps := r.item.Applications == 0 || float64(e.Load.Applications) < r.bound(e.Spec.Capacity.Applications, r.load.Applications+r.item.Applications, r.room.Applications)
	return apps && float64(e.Load.Environments) < r.bound(e.Spec.Capacity.Environments, r.load.Environments+1, r.room.Environments)
}

func (r *round) bound(capacity, load, room int) float64 {
	return LoadFactor * float64(capacity) * float64(load) / float64(room)
}

// fill is how full the engine would be, by whichever of the two capacities is the tighter.
func (r *round) fill(i int) float64 {
	e := &r.engines[i]
	f := float64(e.Load.Environments+1) / float64(e.Spec.Capacity.Environments)
	if r.item.Applications > 0 {
		f = max(f, float64(e.Load.Applications+r.item.Applications)/float64(e.Spec.Capacity.Applications))
	}
	return f
}

// score is weighted rendezvous: the hash as a number between 0 and 1, its logarithm divided into the weight.
func score(item, engine uint64, weight int) float64 {
	u := (float64(mix(item^engine)>>11) + 0.5) / (1 << 53)
	return -float64(max(weight, 1)) / math.Log(u)
}

func seeds(engines []Engine) []uint64 {
	out := make([]uint64, len(engines))
	for i, e := range engines {
		out[i] = mix(fnv(fnvOffset, string(e.Name)))
	}
	return out
}

// itemHash keeps the two names apart by a byte that no name holds: ("a", "b-c") and ("a-b", "c") differ.
func itemHash(id fleet.EnvironmentID) uint64 {
	return mix(fnv(fnv(fnv(fnvOffset, string(id.Tenant)), "/"), string(id.Name)))
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func fnv(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

// mix is the finalizer of SplitMix64: FNV alone leaves names that differ in their last byte alike in the high bits.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// alternatives is every engine, best first: the eligible by score, then the others by name.
func (r *round) alternatives() []fleet.Alternative {
	out := make([]fleet.Alternative, len(r.engines))
	for i := range r.engines {
		out[i] = fleet.Alternative{Engine: r.engines[i].Name, Eligible: r.bars[i] == free, Reason: r.standing(i)}
		if r.bars[i] == free {
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
