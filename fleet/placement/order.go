package placement

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// order sorts engines by score, highest first, then by name. A score, in the thousandths that are told, and a place among the names make one
// number, since numbers are sorted several times as fast as what needs a function to compare.
type order struct {
	keys   []uint64  // of engines that may serve the item
	scores []float64 // as they are told, by place among the names
	rest   []int     // engines that may not serve it, by name
	bits   int       // of a key that hold the place; the upper ones hold how far the score is below the greatest
}

// countable is the score, in thousandths, below which no two divided by a thousand are rounded to one float64.
const countable = 1 << 52

func (o *order) reset(engines int) {
	if o.scores == nil {
		o.keys, o.scores, o.rest = make([]uint64, 0, engines), make([]float64, engines), make([]int, 0, engines)
	}
	o.keys, o.rest, o.bits = o.keys[:0], o.rest[:0], bits.Len(uint(engines))
}

// greatest is the score, in thousandths, from which on all have the least upper bits, 0.
func (o *order) greatest() uint64 { return min(uint64(1)<<(64-o.bits)-1, countable) }

func (o *order) add(at int, score float64) {
	n, greatest := math.Round(score*1000), o.greatest()
	o.scores[at] = n / 1000
	key := uint64(at)
	if n < float64(greatest) {
		key |= (greatest - uint64(n)) << o.bits
	}
	o.keys = append(o.keys, key)
}

func (o *order) at(key uint64) int { return int(key & (1<<o.bits - 1)) }

// sort sorts by key, and those whose scores are too great for that, which weights beyond 10^9 make, by what they are told.
func (o *order) sort() {
	slices.Sort(o.keys)
	alike, _ := slices.BinarySearch(o.keys, 1<<o.bits)
	if alike < 2 {
		return
	}
	slices.SortFunc(o.keys[:alike], func(a, b uint64) int {
		if c := cmp.Compare(o.scores[o.at(b)], o.scores[o.at(a)]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
}
