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
	doc: "Sources of items and a template: each item gives one GitOpsDeployment, which is " +
		"checked, planned, guarded and counted as if it had a file of its own. Several sources " +
		"give their product: an item for each combination, at most 1000.",
}, object(
	field{
		name: "directories",
		doc: "Each folder of a Git repository that matches and holds a file is an item. Its " +
			"fields are `name` and `path.basename` (its last segment), `path`, and " +
			"`path.segments.0`, `path.segments.1`, ... A folder that is removed is a deployment " +
			"that is removed, unless no folder is left.",
		value: discovery(`["services/*", "!services/legacy"]`)},
	field{
		name: "files",
		doc: "Each YAML or JSON file of a Git repository that matches is an item. Its fields are " +
			"the file's own texts, numbers and booleans, with dots for nested ones " +
			"(`cluster.name`, `zones.0`); `path`, `path.basename` and `path.segments.0` of the " +
			"folder that it is in, and `path.filename`. A file that is removed is a deployment " +
			"that is removed, unless no file is left.",
		value: discovery(`["services/*/config.yaml"]`)},
	field{
		name: "list",
		doc: "The items, at most 1000: each a map of at most 32 texts of at most 1024 bytes. An " +
			"item that is removed is a deployment that is removed. An item with a mistake " +
			"hurts its own deployment alone; two items that give one name are both refused.",
		example: "[{name: cart, revision: v1.2.0}, {name: checkout, revision: v1.4.0}]",
		first:   true,
		value: listOf(mapOf(formatItemField,
			textOf(formatItemValue).mayBeEmpty().atMost(maxItemValue))).atMost(fleet.MaxSetItems)},
	field{
		name: "template",
		doc: "`metadata` (`name`, `labels`) and `spec` of a GitOpsDeployment. In each text, " +
			"`${item.<field>}` is replaced by the item's value, and the result is checked as a " +
			"declaration that was written so; `$${item.<field>}` is the text itself. Numbers, " +
			"booleans and keys hold no variable. The name must differ between items.",
		required: true, raw: true, value: relaxed(templateValue)},
).without("listings", "generated", "unexpanded").checked(expandSet),
	func(d *fleet.Declaration, s *fleet.SetSpec) { d.Set = s })

// discovery describes a fleet.Discovery.
func discovery(paths string) value {
	return object(
		field{name: "repoURL", doc: "The Git repository, which the Tenant grants.",
			example: "https://git.example.com/acme/services.git", required: true,
			value: textOf(formatRepoURL).atMost(1024)},
		field{name: "targetRevision", doc: "Branch, tag or commit.", example: "main",
			required: true, value: textOf(formatListed)},
		field{
			name: "paths",
			doc: "Patterns of paths: `*` and `?` match within a segment, `**` as a whole segment " +
				"any number of folders, and none of them a `.` at the beginning of a segment. A " +
				"pattern with `!` in front excludes what it matches. 4 KiB together.",
			example: paths, required: true,
			value: listOf(textOf(formatListPattern)).atMost(fleet.MaxListPatterns)},
	).checked(discoverable)
}

// discoverable refuses a source that is no Git repository, that excludes only, or whose patterns
// cost too much: a match costs their bytes times those of a path.
func discoverable(d *decoder, into reflect.Value, at node) {
	s := into.Addr().Interface().(*fleet.Discovery)
	if u, err := fleet.ParseRepoURL(s.RepoURL); err == nil && (u.OCI() || !u.Git()) {
		d.at("repoURL", func() {
			d.problem(child(at, "repoURL"), codeInvalidURL, "the URL names no Git repository",
				"write https:// or ssh:// and the path of the repository")
		})
	}
	if n := len(strings.Join(s.Paths, "")); n > fleet.MaxPatternBytes {
		d.at("paths", func() {
			d.problem(child(at, "paths"), codeOutOfRange, fmt.Sprintf(
				"the patterns have %d bytes; at most %d are allowed", n, fleet.MaxPatternBytes),
				"match several folders with one pattern, or write another set")
		})
	}
	if !slices.ContainsFunc(s.Paths, func(p string) bool { return !strings.HasPrefix(p, "!") }) {
		d.at("paths", func() {
			d.problem(child(at, "paths"), codeInvalidValue, "every pattern excludes",
				`add a pattern of what is an item, such as "services/*"`)
		})
	}
}

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

// maxItemValue limits the bytes of an item's value.
const maxItemValue = 1024

// maxExpansion limits the bytes that a set's template has for all items together.
const maxExpansion = 4 << 20

// itemResult is the template with the variables of one item replaced.
type itemResult struct {
	item        setItem
	name        string // "" if the item gives no valid name
	declaration *fleet.Declaration
	problems    []fleet.Problem
}

// expandSet makes the deployments of a set. It refuses the set if a mistake is in every item, hence
// in the template, and if an item has no valid name: Argosy could not know which deployment that
// item is, and would delete it.
//
// A set that requests listings is refused by the catalog, with Unexpanded: its declaration must
// exist, since it contains the requests.
func expandSet(d *decoder, into reflect.Value, at node) {
	set := into.Addr().Interface().(*fleet.SetSpec)
	if set.Directories == nil && set.Files == nil && set.List == nil {
		d.problem(at, codeMissingField, "the set has no source of items",
			"add list: [{name: cart}], directories: or files:")
		return
	}
	expansion := decoder{key: d.key, bytes: d.bytes, steps: slices.Clone(d.steps),
		listings: d.listings}
	results := expansion.results(set, at)
	switch {
	case len(set.Requests(d.key.Tenant)) > 0 && expansion.any():
		set.Unexpanded = expansion.report(d.key, PathOf(d.key))
	case expansion.any():
		d.problems, d.omitted = append(d.problems, expansion.problems...), expansion.omitted
	default:
		set.Generated = generated(d.key, results)
	}
}

// results expands the template for each item. With problems of the set, it has no use.
func (d *decoder) results(set *fleet.SetSpec, at node) []itemResult {
	items, template := d.items(set, at), child(at, "template")
	longest := 0
	for _, item := range items {
		for _, v := range item.fields {
			longest = max(longest, len(v))
		}
	}
	if n := weight(template, longest) * len(items); n > maxExpansion {
		d.problem(template, codeOutOfRange, fmt.Sprintf(
			"the template and %d items give up to %d KiB; at most %d KiB are allowed",
			len(items), n>>10, maxExpansion>>10),
			"write another set for some of the items, or put values into a file of valueFiles")
		return nil
	}
	results := make([]itemResult, len(items))
	for i, item := range items {
		results[i] = d.expandItem(template, item)
	}
	d.refuseSet(results)
	return results
}

// weight is the most bytes that the texts of a node can have after the variables are replaced.
func weight(n node, longest int) int {
	sum := len(n.Value) + strings.Count(n.Value, "${item")*longest + 16
	for _, c := range n.Content {
		sum += weight(c, longest)
	}
	return sum
}

func (d *decoder) expandItem(template node, item setItem) itemResult {
	sub := decoder{key: fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: d.key.Tenant},
		bytes: d.bytes, steps: []step{{"spec", -1}, {"template", -1}}}
	r := itemResult{item: item}
	if n := child(child(template, "metadata"), "name"); n != nil {
		name, err := fleet.ExpandItem(n.Value, item.fields)
		if err == nil && n.Kind == yaml.ScalarNode && fleet.ValidateName(name) == nil {
			r.name, sub.key.Name = name, name
		}
	}
	var t deploymentTemplate
	if item.problem != "" {
		sub.problem(template, codeInvalidValue, item.problem, "fix it in its repository")
	} else if expanded := sub.expand(template, item.fields); !sub.any() {
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

// refuseSet reports the problems that no single deployment can have: those of the template, and
// those of items without a name.
func (d *decoder) refuseSet(results []itemResult) {
	type place struct {
		line, column         int
		field, code, message string
	}
	of := func(p fleet.Problem) place {
		return place{p.Line, p.Column, p.Field, p.Code, p.Message}
	}
	times := map[place]int{}
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
					fmt.Sprintf("%s: %s", r.item.label, p.Message), p.Fix)
			}
		}
	}
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
			p.Message = fmt.Sprintf("deployment %q, %s: %s", name, results[first].item.label,
				p.Message)
		}
		if len(items[name]) > 1 {
			a, b := results[first].item, results[items[name][1]].item
			g.Declaration, g.Problems = nil, []fleet.Problem{{
				Key:  fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: set.Tenant, Name: name},
				Path: PathOf(set), Field: b.field,
				Severity: fleet.SeverityError, Code: codeDuplicateEntry,
				Message: fmt.Sprintf("%s and %s both give a deployment named %q", a.label,
					b.label, name),
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
