package placement

import (
	"fmt"
	"testing"

	"argosy.dev/argosy/fleet"
)

// The benchmarks place 25,000 environments of 1,250 tenants on 4, 10 and 50 engines, each with the
// loads of the earlier placements.

func BenchmarkAssign25000(b *testing.B) {
	in := items(25_000)
	on(b, func(es []Engine) { Assign(in, es) })
}

// BenchmarkFleet25000 records every engine's ranking for every environment, as a plan does.
func BenchmarkFleet25000(b *testing.B) {
	in := items(25_000)
	on(b, func(es []Engine) {
		f, loads := NewFleet(es), map[fleet.EngineName]fleet.EngineLoad{}
		for _, it := range in {
			f.Carry(carried(f.Decide(it, nil), loads))
		}
	})
}

// BenchmarkDecide25000 evaluates all engines for each environment.
func BenchmarkDecide25000(b *testing.B) {
	in := items(25_000)
	on(b, func(es []Engine) {
		for _, it := range in {
			Decide(it, es, nil)
		}
	})
}

// BenchmarkStraightforward25000 measures Assign and Fleet of the tests' reference implementation.
func BenchmarkStraightforward25000(b *testing.B) {
	in := items(25_000)
	b.Run("assign", func(b *testing.B) { on(b, func(es []Engine) { plainAssign(in, es) }) })
	b.Run("decide", func(b *testing.B) {
		on(b, func(es []Engine) {
			for _, it := range in {
				plainDecide(it, es, nil)
			}
		})
	})
}

func on(b *testing.B, place func([]Engine)) {
	for _, n := range []int{4, 10, 50} {
		b.Run(fmt.Sprintf("engines=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				place(engines(n))
			}
		})
	}
}

// carried adds a placement to the load of its engine.
func carried(p fleet.Placement, loads map[fleet.EngineName]fleet.EngineLoad) (fleet.EngineName,
	fleet.EngineLoad) {
	l := loads[p.Engine]
	l.Applications += p.Applications
	l.Environments++
	loads[p.Engine] = l
	return p.Engine, l
}
