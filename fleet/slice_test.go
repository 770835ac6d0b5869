package fleet

import (
	"fmt"
	"slices"
	"testing"
)

// TestSliceHash pins the hash: another one would give Applications of split environments another
// engine.
func TestSliceHash(t *testing.T) {
	for name, want := range map[DeploymentName]Slice{
		"checkout": "000001", "cart": "110101", "a": "000000", "b": "001111", "app-1": "110001",
		"app-2": "100000", "payments-api": "011010", "": "111101",
	} {
		if got := smallestSlice(name); got != want {
			t.Errorf("deployment %q is in slice %s, want %s", name, got, want)
		}
	}
}

// smallestSlice returns the slice with the most bits that holds a deployment.
func smallestSlice(d DeploymentName) (s Slice) {
	for s.Divisible() {
		first, second := s.Halves()
		if s = first; !first.Holds(d) {
			s = second
		}
	}
	return s
}

func TestHalvesDivideASlice(t *testing.T) {
	for _, s := range []Slice{"", "0", "1", "01", "11010"} {
		first, second := s.Halves()
		if first.Parent() != s || second.Parent() != s || first.Sibling() != second ||
			second.Sibling() != first {
			t.Errorf("the halves of slice %q are %q and %q, whose parents are %q and %q", s, first,
				second, first.Parent(), second.Parent())
		}
		var held, inFirst int
		for i := range 20_000 {
			d := DeploymentName(fmt.Sprintf("app-%d", i))
			a, b := first.Holds(d), second.Holds(d)
			if a && b || s.Holds(d) != (a || b) {
				t.Fatalf("slice %q holds %s: %v, its halves: %v, %v", s, d, s.Holds(d), a, b)
			}
			if a || b {
				held++
			}
			if a {
				inFirst++
			}
		}
		if share := float64(inFirst) / float64(held); share < 0.45 || share > 0.55 {
			t.Errorf("the first half of slice %q holds %.0f %% of its deployments", s, 100*share)
		}
	}
	if Slice("").Sibling() != "" || Slice("").Parent() != "" || Slice("010101").Divisible() {
		t.Error("a whole environment has a sibling or a parent, or the smallest slice has halves")
	}
}

func TestPartition(t *testing.T) {
	for _, c := range []struct {
		all  []Slice
		want bool
	}{
		{[]Slice{""}, true},
		{[]Slice{"1", "0"}, true},
		{[]Slice{"01", "1", "00"}, true},
		{[]Slice{"000000", "000001", "00001", "0001", "001", "01", "1"}, true},
		{nil, false},
		{[]Slice{"0"}, false},
		{[]Slice{"", "0"}, false},
		{[]Slice{"0", "0"}, false},
		{[]Slice{"0", "1", "1"}, false},
		{[]Slice{"0", "01", "1"}, false},
		{[]Slice{"00", "1"}, false},
		{[]Slice{"0", "2"}, false},
		{[]Slice{"0000000", "0000001", "000001", "00001", "0001", "001", "01", "1"}, false},
	} {
		if got := Partition(c.all); got != c.want {
			t.Errorf("slices %q are a partition: %v, want %v", c.all, got, c.want)
		}
		if !c.want {
			continue
		}
		for i := range 100 {
			d := DeploymentName(fmt.Sprintf("app-%d", i))
			of, found := SliceOf(d, c.all)
			holders := slices.DeleteFunc(slices.Clone(c.all),
				func(s Slice) bool { return !s.Holds(d) })
			if !found || len(holders) != 1 || holders[0] != of {
				t.Errorf("of slices %q, %q hold %s, and SliceOf is %q", c.all, holders, d, of)
			}
		}
	}
}

func TestLeaves(t *testing.T) {
	for _, s := range []Slice{"", "0", "1", "01", "110101"} {
		for i := range 200 {
			d := DeploymentName(fmt.Sprintf("app-%d", i))
			if got := s.Leaves()&LeafOf(d) != 0; got != s.Holds(d) {
				t.Fatalf("the leaves of slice %q have %s: %v", s, d, got)
			}
		}
	}
}

func TestParseSlice(t *testing.T) {
	for _, s := range []string{"", "0", "1", "010101"} {
		if got, err := ParseSlice(s); err != nil || string(got) != s {
			t.Errorf("slice %q is %q, %v", s, got, err)
		}
	}
	for _, s := range []string{"2", "0101010", "a", " 0", "0\n"} {
		if got, err := ParseSlice(s); err == nil {
			t.Errorf("slice %q is accepted as %q", s, got)
		}
	}
}

func TestSliceIDsAreOrdered(t *testing.T) {
	whole := EnvironmentID{Tenant: "acme", Name: "prod"}.Whole()
	if whole.String() != "acme/prod" || whole.Of("01").String() != "acme/prod slice 01" {
		t.Errorf("slices are %s and %s", whole, whole.Of("01"))
	}
	other := EnvironmentID{Tenant: "acme", Name: "prod-2"}.Whole()
	ids := []SliceID{other, whole.Of("1"), whole.Of("01"), whole}
	slices.SortFunc(ids, SliceID.Compare)
	if want := []SliceID{whole, whole.Of("01"), whole.Of("1"), other}; !slices.Equal(ids, want) {
		t.Errorf("slices are ordered %v, want %v", ids, want)
	}
}
