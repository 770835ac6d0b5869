package placement

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestOrderIsByTheScoreThatIsToldThenByName sorts scores from all magnitudes, many of them told alike, for few engines and for many.
func TestOrderIsByTheScoreThatIsToldThenByName(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	var o order
	for _, n := range []int{1, 2, 50, 5_000} {
		o = order{}
		for range 100_000 / n {
			told, want := make([]float64, n), make([]int, n)
			o.reset(n)
			start := math.Ldexp(1+r.Float64(), r.IntN(70)-5) / 1000
			for at := range n {
				s := start * (1 + float64(r.IntN(60)-30)*math.Ldexp(1, -5-r.IntN(49)))
				o.add(at, s)
				told[at], want[at] = math.Round(s*1000)/1000, at
			}
			slices.SortStableFunc(want, func(a, b int) int { return cmp.Compare(told[b], told[a]) })
			o.sort()
			for i, key := range o.keys {
				if at := o.at(key); at != want[i] || o.scores[at] != told[at] {
					t.Fatalf("place %d of %d is %v of engine %d, want %v of engine %d", i, n, o.scores[at], at, told[want[i]], want[i])
				}
			}
		}
	}
}
