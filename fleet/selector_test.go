package fleet

import (
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func TestASelectorSelectsAsKubernetesDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	for range 20_000 {
		s := &LabelSelector{}
		if r.IntN(2) == 0 {
			s.MatchLabels = map[string]string{pick("tier", "zone"): pick("a", "b")}
		}
		for range r.IntN(3) {
			e := LabelRequirement{Key: pick("tier", "zone", "team"), Operator: SelectorOperator(
				pick("In", "NotIn", "Exists", "DoesNotExist"))}
			if e.Operator == SelectorIn || e.Operator == SelectorNotIn {
				e.Values = []string{pick("a", "b"), pick("b", "c")}
			}
			s.MatchExpressions = append(s.MatchExpressions, e)
		}
		if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
			continue
		}
		of := map[string]string{}
		for range r.IntN(3) {
			of[pick("tier", "zone", "team")] = pick("a", "b", "c")
		}
		theirs := metav1.LabelSelector{MatchLabels: s.MatchLabels}
		for _, e := range s.MatchExpressions {
			theirs.MatchExpressions = append(theirs.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: e.Key,
					Operator: metav1.LabelSelectorOperator(e.Operator), Values: e.Values})
		}
		want, err := metav1.LabelSelectorAsSelector(&theirs)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Matches(of); got != want.Matches(labels.Set(of)) {
			t.Fatalf("%s on %v: %v", s, of, got)
		}
		read, err := labels.Parse(s.String())
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if got := s.Matches(of); got != read.Matches(labels.Set(of)) {
			t.Fatalf("%s as kubectl reads it, on %v: %v", s, of, got)
		}
	}
}

func TestAnEmptySelectorMatchesNothing(t *testing.T) {
	for _, s := range []*LabelSelector{nil, {}, {MatchLabels: map[string]string{}}} {
		if s.Matches(nil) || s.Matches(map[string]string{"tier": "prod"}) {
			t.Errorf("%v matches", s)
		}
	}
}
