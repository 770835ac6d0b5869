package policy

import (
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
)

// Limits of an expression's cost, in units of CEL: about one for each step, one for each ten
// characters of a searched text.
const (
	// MostAtWorst is the limit over the largest possible declaration. It lets a rule walk the lists
	// of each application and compare applications with one another, and rejects a rule that walks
	// lists for each pair of them.
	MostAtWorst = 100_000_000
	// Most is the limit of one expression over one declaration. Declarations with hundreds of
	// environments and rules that compare each with each reach it; evaluation then takes a few
	// hundredths of a second.
	Most = 100_000
)

// bound is the maximum size of a field: entries of a list, bytes of a text or of each text of a
// list.
type bound struct{ entries, text uint64 }

// bounds lists the fields whose bound differs from the default. The decoder of the config repo
// enforces them.
var bounds = map[string]bound{
	"annotations":           {text: 1024},
	"apiVersions":           {entries: 100},
	"array":                 {100, 4096},
	"caData":                {text: 64 << 10},
	"chart":                 {text: 100},
	"clusterResources":      {entries: 50},
	"commonAnnotations":     {text: 1024},
	"components":            {50, 512},
	"exclude":               {text: 1024},
	"fileParameters":        {entries: 50},
	"ignoreDifferences":     {entries: 50},
	"images":                {100, 512},
	"include":               {text: 1024},
	"info":                  {entries: 20},
	"jqPathExpressions":     {20, 1024},
	"jsonPointers":          {50, 512},
	"extVars":               {entries: 50},
	"libs":                  {50, 512},
	"links":                 {entries: 10},
	"kustomizeVersions":     {entries: 20},
	"managedFieldsManagers": {entries: 20},
	"namespaceMetadata":     {entries: 100},
	"notifications":         {entries: 20},
	"owners":                {100, 256},
	"parameters":            {entries: 200},
	"patch":                 {text: 16 << 10},
	"patches":               {entries: 50},
	"path":                  {text: 512},
	"recipients":            {100, 253},
	"regions":               {100, 256},
	"replicas":              {entries: 100},
	"repoURL":               {text: 1024},
	"revisions":             {entries: 20},
	"sources":               {entries: 20},
	"string":                {text: 4096},
	"tlas":                  {entries: 50},
	"tolerations":           {entries: 20},
	"url":                   {text: 1024},
	"value":                 {text: 4096},
	"valueFiles":            {50, 512},
	"values":                {text: 64 << 10},
	"watchPaths":            {50, 512},
}

const mostLabels = 32

// Bound returns the maximum entries of a list of this name and the maximum bytes of a text, for the
// estimate of a rule's cost.
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

// estimator gives CEL the maximum sizes of a rule's values.
type estimator struct{}

// EstimateSize uses the last name of the path to the value.
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

// EstimateCallCost uses CEL's defaults, which cover every permitted function.
func (estimator) EstimateCallCost(string, string, *checker.AstNode,
	[]checker.AstNode) *checker.CallEstimate {
	return nil
}
