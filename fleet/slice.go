package fleet

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// Slice is a part of an environment: the Applications of the deployments whose names hash to a
// prefix of bits. "" is the whole environment, "0" and "1" are its halves, and "01" is a quarter.
// A slice is placed on an engine and moves as a whole environment does. The slices of an
// environment are a partition: each deployment is in exactly one of them.
type Slice string

// MaxSliceBits is the length of the smallest slice: at most 64 slices make up an environment.
const MaxSliceBits = 6

// ParseSlice returns the slice that a person wrote.
func ParseSlice(s string) (Slice, error) {
	if len(s) > MaxSliceBits || strings.Trim(s, "01") != "" {
		return "", fmt.Errorf("slice %+q is no slice: write at most %d digits 0 and 1, such as 01",
			s, MaxSliceBits)
	}
	return Slice(s), nil
}

// Holds reports whether the Applications of a deployment are in the slice.
func (s Slice) Holds(d DeploymentName) bool {
	if s == "" {
		return true
	}
	h := sliceHash(d)
	for i := range len(s) {
		if byte('0'+h>>(63-i)&1) != s[i] {
			return false
		}
	}
	return true
}

// Leaves returns the smallest slices within the slice, as bits.
func (s Slice) Leaves() uint64 {
	first := 0
	for _, bit := range s {
		first = first<<1 | int(bit-'0')
	}
	n := 1 << (MaxSliceBits - len(s))
	return (1<<n - 1) << (first * n)
}

// LeafOf returns the smallest slice that holds a deployment, as a bit of Leaves.
func LeafOf(d DeploymentName) uint64 { return 1 << (sliceHash(d) >> (64 - MaxSliceBits)) }

// sliceHash must never change: the engine of each Application of a split environment depends on
// it. It is FNV-1a with the finalizer of SplitMix64, since FNV alone leaves the high bits of names
// that differ in their last byte equal.
func sliceHash(d DeploymentName) uint64 {
	f := fnv.New64a()
	f.Write([]byte(d))
	h := f.Sum64()
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// Halves returns the two halves of the slice.
func (s Slice) Halves() (first, second Slice) { return s + "0", s + "1" }

// Divisible reports whether the slice has halves.
func (s Slice) Divisible() bool { return len(s) < MaxSliceBits }

// Parent returns the slice of which the slice is a half. "" has none, and returns "".
func (s Slice) Parent() Slice { return s[:max(0, len(s)-1)] }

// Sibling returns the other half of the slice's parent. "" has none, and returns "".
func (s Slice) Sibling() Slice {
	if s == "" {
		return ""
	}
	first, second := s.Parent().Halves()
	if s == first {
		return second
	}
	return first
}

// SliceOf returns the slice of a partition that holds a deployment.
func SliceOf(d DeploymentName, partition []Slice) (Slice, bool) {
	for _, s := range partition {
		if s.Holds(d) {
			return s, true
		}
	}
	return "", false
}

// JoinSlices returns the sorted slices with commas between them.
func JoinSlices(all []Slice) string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = string(s)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// SlicesIn is the inverse of JoinSlices, without what is no slice.
func SlicesIn(text string) (all []Slice) {
	for s := range strings.SplitSeq(text, ",") {
		if parsed, err := ParseSlice(s); err == nil && parsed != "" {
			all = append(all, parsed)
		}
	}
	return all
}

// Refine returns the coarsest partition in which each slice is a union of parts, sorted.
func Refine(all []Slice) []Slice {
	parts := []Slice{""}
	for _, s := range all {
		for i := 0; i < len(parts); i++ {
			if p := parts[i]; p != s && strings.HasPrefix(string(s), string(p)) {
				first, second := p.Halves()
				parts[i] = first
				parts = append(parts, second)
				i = -1
			}
		}
	}
	slices.Sort(parts)
	return parts
}

// Partition reports whether each deployment is in exactly one of the slices.
func Partition(all []Slice) bool {
	sorted := slices.Sorted(slices.Values(all))
	covered := 0
	for i, s := range sorted {
		if _, err := ParseSlice(string(s)); err != nil ||
			i > 0 && strings.HasPrefix(string(s), string(sorted[i-1])) {
			return false
		}
		covered += 1 << (MaxSliceBits - len(s))
	}
	return covered == 1<<MaxSliceBits
}

// SliceID identifies a slice in the fleet: what is placed on an engine.
type SliceID struct {
	Tenant      TenantName      `json:"tenant"`
	Environment EnvironmentName `json:"environment"`
	Slice       Slice           `json:"slice,omitempty"`
}

// In returns the environment.
func (id SliceID) In() EnvironmentID {
	return EnvironmentID{Tenant: id.Tenant, Name: id.Environment}
}

// Of returns another slice of the same environment.
func (id SliceID) Of(s Slice) SliceID {
	id.Slice = s
	return id
}

// Holds reports whether an Application of the environment is in the slice.
func (id SliceID) Holds(app ApplicationID) bool { return id.Slice.Holds(app.Deployment) }

// String returns "acme/prod", or "acme/prod slice 01".
func (id SliceID) String() string {
	if id.Slice == "" {
		return id.In().String()
	}
	return id.In().String() + " slice " + string(id.Slice)
}

// Compare orders slices by the text TENANT/NAME of their environments, then by their bits.
func (id SliceID) Compare(o SliceID) int {
	return cmp.Or(cmp.Compare(id.In().String(), o.In().String()), cmp.Compare(id.Slice, o.Slice))
}

// Whole is the slice of an environment that is not split.
func (id EnvironmentID) Whole() SliceID {
	return SliceID{Tenant: id.Tenant, Environment: id.Name}
}

// Slice returns a slice of the environment.
func (id EnvironmentID) Slice(s Slice) SliceID { return id.Whole().Of(s) }
