package placement

import (
	"math"

	"argosy.dev/argosy/fleet"
)

// closest is the distance of two hashes beyond which their scores differ at equal weight. Hashes
// have 53 bits. A logarithm is below 37 and exact to a few units in its last place, so that it
// distinguishes numbers between 0 and 1 that are more than 2^-44 apart: 2^9 of the hash. The rest
// is margin.
const closest = 1 << 13

// hash returns the hash of an engine for an item, with 53 bits.
func hash(item, engine uint64) uint64 { return mix(item^engine) >> 11 }

// score is weighted rendezvous: the hash as a number between 0 and 1, its logarithm divided into
// the weight.
func score(hash uint64, weight int) float64 {
	u := (float64(hash) + 0.5) / (1 << 53)
	return -float64(max(weight, 1)) / math.Log(min(u, 1-1.0/(1<<53)))
}

// itemHash separates the two names by a byte that no name contains: ("a", "b-c") and ("a-b", "c")
// differ. The halves of an environment differ too.
func itemHash(id fleet.SliceID) uint64 {
	h := fnv(fnv(fnv(fnvOffset, string(id.Tenant)), "/"), string(id.Environment))
	if id.Slice != "" {
		h = fnv(fnv(h, "/"), string(id.Slice))
	}
	return mix(h)
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

// mix is the finalizer of SplitMix64: FNV alone leaves the high bits of names that differ in their
// last byte equal.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
