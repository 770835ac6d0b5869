package placement

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"argosy.dev/argosy/fleet"
)

// TestHashesOfOneWeightAreOrderedAsTheirScoresAre compares pairs from far apart to neighbours, at
// the ends and in the middle, where logarithms are closest to each other and may be rounded to one.
func TestHashesOfOneWeightAreOrderedAsTheirScoresAre(t *testing.T) {
	const most = 1<<53 - 1
	r := rand.New(rand.NewPCG(3, 3))
	es := engines(2)
	equal := 0
	for range 200_000 {
		at := []uint64{r.Uint64N(1 << 53), most, 0, r.Uint64N(1 << 20), most - r.Uint64N(1<<20),
			most/2 + r.Uint64N(1<<20)}[r.IntN(6)]
		other := at - min(at, r.Uint64N(2<<r.IntN(20)))
		w := 1 + r.IntN(2_000_000)
		es[0].Spec.Capacity.Applications, es[1].Spec.Capacity.Applications = w, w
		f := round{Fleet: newFleet(es)}
		a, b := score(at, w), score(other, w)
		if a == b {
			equal++
		}
		if a < b || math.IsInf(a, 0) || at-other > closest/16 && a == b {
			t.Fatalf("hashes %d and %d of weight %d score %v and %v", at, other, w, a, b)
		}
		if got := f.better(1, at, 0, other); got != (a > b) {
			t.Fatalf("hash %d is better than %d of weight %d: %v, with scores %v and %v", at, other,
				w, got, a, b)
		}
	}
	if equal < 1_000 {
		t.Errorf("only %d pairs have one score", equal)
	}
}

// TestClassesDifferInEveryConstraint fails if alike ignores a new field.
func TestClassesDifferInEveryConstraint(t *testing.T) {
	whole := func() fleet.TenantPlacement {
		return fleet.TenantPlacement{Regions: []string{"eu"}, Dedicated: true, Alone: true,
			EngineSelector: &fleet.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Tolerations:    []fleet.Taint{{Key: "k"}}}
	}
	a := whole()
	if b := whole(); !alike(&a, &b) {
		t.Error("a copy makes a class of its own")
	}
	for i := range reflect.TypeOf(a).NumField() {
		name := reflect.TypeOf(a).Field(i).Name
		if reflect.ValueOf(a).Field(i).IsZero() {
			t.Fatalf("%s is not set here: set it, and see that alike compares it", name)
		}
		b := whole()
		reflect.ValueOf(&b).Elem().Field(i).SetZero()
		if alike(&a, &b) || alike(&b, &a) {
			t.Errorf("%s is not compared", name)
		}
	}
	b := whole()
	b.EngineSelector.MatchLabels["a"] = "c"
	if alike(&a, &b) {
		t.Error("the selector's labels are not compared")
	}
}
