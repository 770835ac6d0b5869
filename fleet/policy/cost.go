package policy

import (
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
)

// Bounds of an expression's cost, in the units of CEL: about one for each step, one for each ten
// characters of a text that is looked through.
const (
	// MostAtWorst is what an expression may cost over the largest declaration that there can be. It
	// lets a rule walk the lists of each application and compare applications with one another, and
	// refuses what does so for each pair of them.
	MostAtWorst = 100_000_000
	// Most is what one expression may cost over one declaration. It is reached by declarations with
	// hundreds of environments and by rules that compare each with each; it takes a few hundredths
	// of a second.
	Most = 100_000
)

// bound is how much there can be in a field: entries of a list, bytes of a text or of each text of
// a list.
type bound struct{ entries, text uint64 }

// bounds are of the fields that differ from the others. The decoder of the config repo holds
// declarations to them.
var bounds = map[string]bound{
	"caData":           {text: 64 << 10},
	"chart":            {text: 100},
	"clusterResources": {entries: 50},
	"images":           {100, 512},
	"owners":           {100, 256},
	"parameters":       {entries: 200},
	"path":             {text: 512},
	"regions":          {100, 256},
	"repoURL":          {text: 1024},
	"tolerations":      {entries: 20},
	"value":            {text: 4096},
	"valueFiles":       {50, 512},
	"values":           {text: 64 << 10},
}

const mostLabels = 32

// Bound is how many entries a list of this name is taken to have at most, and how many bytes a
// text, when a rule's cost is estimated.
func Bound(field string) (entries, text uint64) {
	b := bounds[field]
	if b.entries == 0 {
		b.entries = 1000
	}
	if b.text == 0 {
		b.text = 256
	}
	return b.entries, b.text
}

// estimator tells CEL how large the values can be that a rule looks at.
type estimator struct{}

// EstimateSize goes by the last name on the way to the value.
func (estimator) EstimateSize(n checker.AstNode) *checker.SizeEstimate {
	name := ""
	for _, part := range n.Path() {
		if part != "@items" && part != "@keys" && part != "@values" {
			name = part
		}
	}
	entries, text := Bound(name)
	switch n.Type().Kind() {
	case types.StringKind:
		return &checker.SizeEstimate{Max: text}
	case types.ListKind:
		return &checker.SizeEstimate{Max: entries}
	case types.MapKind:
		return &checker.SizeEstimate{Max: mostLabels}
	}
	return nil
}

// EstimateCallCost leaves calls to CEL, which knows all that a rule may call.
func (estimator) EstimateCallCost(string, string, *checker.AstNode,
	[]checker.AstNode) *checker.CallEstimate {
	return nil
}
