package configschema

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

var kindSet = describe(kind{
	name: fleet.KindGitOpsDeploymentSet, place: "tenants/<tenant>/sets/<name>.yaml",
	doc: "A list of items and a template: each item gives one GitOpsDeployment, which is checked, " +
		"planned, guarded and counted as if it had a file of its own.",
}, object(
	field{
		name: "list",
		doc: "The items, at most 1000: each a map of at most 32 texts of at most 1024 bytes. An " +
			"item that is removed is a deployment that is removed. An item with a mistake " +
			"hurts its own deployment alone; two items that give one name are both refused.",
		example:  "[{name: cart, revision: v1.2.0}, {name: checkout, revision: v1.4.0}]",
		required: true,
		value: listOf(mapOf(formatItemField, textOf(formatItemValue).mayBeEmpty().atMost(1024))).
			atMost(fleet.MaxSetItems)},
	field{
		name: "template",
		doc: "`metadata` (`name`, `labels`) and `spec` of a GitOpsDeployment. In each text, " +
			"`${item.<field>}` is replaced by the item's value, and the result is checked as a " +
			"declaration that was written so; `$${item.<field>}` is the text itself. Numbers, " +
			"booleans and keys hold no variable. The name must differ between items.",
		required: true, raw: true, value: relaxed(templateValue)},
).without("generated").checked(expandSet),
	func(d *fleet.Declaration, s *fleet.SetSpec) { d.Set = s })

// deploymentTemplate is a template after the variables of one item were replaced.
type deploymentTemplate struct {
	Metadata metadata             `json:"metadata"`
	Spec     fleet.DeploymentSpec `json:"spec"`
}

// templateValue describes a deploymentTemplate by the description of a deployment.
var templateValue = func() value {
	v := object(
		field{name: "metadata", doc: "Identity of the deployment.", required: true, value: value{
			shape: shapeObject, never: neverMetadata, fields: []field{
				{name: "name", doc: "The deployment's name, which differs between items.",
					required: true, example: "${item.name}", value: textOf(formatName)},
				{name: "labels", doc: "Labels of the deployment.", example: "{team: payments}",
					value: value{shape: shapeLabels, most: maxLabels}},
			}}},
		field{name: "spec", doc: "The spec of the deployment.", required: true,
			value: kindDeployment.document.fieldNamed("spec").value})
	bind(&v, reflect.TypeFor[deploymentTemplate](), "template")
	return v
}()

// relaxed returns a description for editors, in which each text may hold variables.
func relaxed(v value) value {
	switch v.shape {
	case shapeText, shapeDuration:
		most := v.most
		if v.shape == shapeDuration || v.words != nil {
			most = 0
		}
		v = value{format: formatAny, most: most, empty: v.empty, orMap: v.orMap}
	case shapeLabels:
		key, item := v.key, textOf(formatAny)
		if v.item != nil {
			item = relaxed(*v.item)
		} else {
			key = formatLabelKey
		}
		v.key, v.item = key, &item
	case shapeList:
		item := relaxed(*v.item)
		v.item = &item
	case shapeObject:
		v.fields = slices.Clone(v.fields)
		for i := range v.fields {
			v.fields[i].value = relaxed(v.fields[i].value)
		}
	}
	return v
}

// maxExpansion limits the bytes that a set's template has for all items together.
const maxExpansion = 4 << 20

// itemResult is the template with the variables of one item replaced.
type itemResult struct {
	name        string // "" if the item gives no valid name
	declaration *fleet.Declaration
	problems    []fleet.Problem
}

// expandSet makes the deployments of a set. It refuses the set if a mistake is in every item, hence
// in the template, and if an item has no valid name: Argosy could not know which deployment that
// item is, and would delete it.
func expandSet(d *decoder, into reflect.Value, at node) {
	set, template := into.Addr().Interface().(*fleet.SetSpec), child(at, "template")
	longest := 0
	for _, item := range set.List {
		for _, v := range item {
			longest = max(longest, len(v))
		}
	}
	if n := weight(template, longest) * len(set.List); n > maxExpansion {
		d.problem(template, codeOutOfRange, fmt.Sprintf(
			"the template and %d items give up to %d KiB; at most %d KiB are allowed",
			len(set.List), n>>10, maxExpansion>>10),
			"write another set for some of the items, or put values into a file of valueFiles")
		return
	}
	results := make([]itemResult, len(set.List))
	for i, item := range set.List {
		results[i] = d.expandItem(template, item)
	}
	if d.refusesSet(results) {
		return
	}
	set.Generated = generated(d.key, results)
}

// weight is the most bytes that the texts of a node can have after the variables are replaced.
func weight(n node, longest int) int {
	sum := len(n.Value) + strings.Count(n.Value, "${item")*longest + 16
	for _, c := range n.Content {
		sum += weight(c, longest)
	}
	return sum
}

func (d *decoder) expandItem(template node, item map[string]string) itemResult {
	sub := decoder{key: fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: d.key.Tenant},
		bytes: d.bytes, steps: []step{{"spec", -1}, {"template", -1}}}
	var r itemResult
	if n := child(child(template, "metadata"), "name"); n != nil {
		name, err := fleet.ExpandItem(n.Value, item)
		if err == nil && n.Kind == yaml.ScalarNode && fleet.ValidateName(name) == nil {
			r.name, sub.key.Name = name, name
		}
	}
	expanded := sub.expand(template, item)
	var t deploymentTemplate
	if !sub.any() {
		sub.value(&templateValue, expanded, reflect.ValueOf(&t).Elem())
	}
	r.problems = sub.report(sub.key, PathOf(d.key))
	if !slices.ContainsFunc(r.problems, func(p fleet.Problem) bool {
		return p.Severity == fleet.SeverityError
	}) {
		r.declaration = &fleet.Declaration{Key: sub.key, Path: PathOf(d.key),
			Labels: t.Metadata.Labels, Deployment: &t.Spec}
	}
	return r
}

// expand returns a copy of a node with the variables of the item replaced. A text that held one
// stays a text with any value of the item.
func (d *decoder) expand(n node, item map[string]string) node {
	out := *n
	out.Content = make([]node, len(n.Content))
	for i, c := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			d.steps = append(d.steps, step{"", i})
			out.Content[i] = d.expand(c, item)
			d.steps = d.steps[:len(d.steps)-1]
		case i%2 == 1:
			d.at(n.Content[i-1].Value, func() { out.Content[i] = d.expand(c, item) })
		default:
			if strings.Contains(c.Value, "${item") {
				d.problem(c, codeInvalidValue, "a key holds no variable",
					"write the key itself, and the variable in its value")
			}
			out.Content[i] = c
		}
	}
	if n.Kind != yaml.ScalarNode {
		return &out
	}
	text, err := fleet.ExpandItem(n.Value, item)
	if err != nil {
		d.problem(n, codeInvalidValue, d.subject()+": "+err.Error(),
			"write ${item.<field>} with a field of every item: "+
				strings.Join(slices.Sorted(maps.Keys(item)), ", "))
	}
	if text != n.Value {
		out.Value = text
		if n.Style == 0 {
			out.Style, out.Tag = yaml.DoubleQuotedStyle, "!!str"
		}
	}
	return &out
}

// refusesSet reports the problems that no single deployment can have: those of the template, and
// those of items without a name.
func (d *decoder) refusesSet(results []itemResult) bool {
	type place struct {
		line, column         int
		field, code, message string
	}
	of := func(p fleet.Problem) place {
		return place{p.Line, p.Column, p.Field, p.Code, p.Message}
	}
	times, before := map[place]int{}, len(d.problems)
	for _, r := range results {
		seen := map[place]bool{}
		for _, p := range r.problems {
			if at := of(p); !seen[at] {
				seen[at] = true
				times[at]++
			}
		}
	}
	for i, r := range results {
		for _, p := range r.problems {
			everywhere := times[of(p)] == len(results)
			switch {
			case everywhere && i == 0:
				d.addAt(p.Field, p.Line, p.Column, p.Code, p.Message, p.Fix)
			case !everywhere && r.name == "":
				d.addAt(p.Field, p.Line, p.Column, p.Code,
					fmt.Sprintf("item %d: %s", i+1, p.Message), p.Fix)
			}
		}
	}
	return len(d.problems) > before
}

// generated returns the deployments of a set. Items that give the same name are all refused.
func generated(set fleet.Key, results []itemResult) []fleet.Generated {
	items := map[string][]int{}
	for i, r := range results {
		items[r.name] = append(items[r.name], i)
	}
	all := make([]fleet.Generated, 0, len(items))
	for _, name := range slices.Sorted(maps.Keys(items)) {
		first := items[name][0]
		g := fleet.Generated{Name: fleet.DeploymentName(name),
			Declaration: results[first].declaration, Problems: results[first].problems}
		for i := range g.Problems {
			p := &g.Problems[i]
			p.Message = fmt.Sprintf("deployment %q, item %d: %s", name, first+1, p.Message)
		}
		if len(items[name]) > 1 {
			g.Declaration, g.Problems = nil, []fleet.Problem{{
				Key:  fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: set.Tenant, Name: name},
				Path: PathOf(set), Field: fmt.Sprintf("spec.list[%d]", items[name][1]),
				Severity: fleet.SeverityError, Code: codeDuplicateEntry,
				Message: fmt.Sprintf("items %d and %d both give a deployment named %q", first+1,
					items[name][1]+1, name),
				Fix: "remove one of them, or let the template's metadata.name hold a field in " +
					"which they differ",
			}}
		}
		hash, err := g.Hash()
		if err != nil {
			// a declaration is made of texts, numbers and booleans: it always has a JSON form
			panic(err)
		}
		if g.Blob = hash; g.Declaration != nil {
			g.Declaration.Blob = hash
		}
		all = append(all, g)
	}
	return all
}
