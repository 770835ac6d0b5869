package configschema

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// maxItemFields limits the fields that a file gives its item.
const maxItemFields = 100

// setItem is one item of a set: of one source, or a combination of several.
type setItem struct {
	label   string // for people: `item 3`, `folder "services/cart"`
	field   string // of the set's file
	fields  map[string]string
	problem string // why the item has no fields of its own
}

// items returns the items of a set: those of its source, or each combination of its sources.
func (d *decoder) items(set *fleet.SetSpec, at node) []setItem {
	var sources [][]setItem
	for _, r := range set.Requests(d.key.Tenant) {
		name, of := "directories", folderItem
		if r.Files {
			name, of = "files", fileItem
		}
		d.at(name, func() {
			listing, err := d.listings.Listing(r)
			switch {
			case err != nil:
				d.problem(child(at, name), CodeNotExpanded, fmt.Sprintf("%s: %v", r, err),
					keepsAll)
				return
			case len(listing.Entries) == 0:
				d.problem(child(at, name), codeNothingListed, r.String()+": nothing matches",
					keepsAll+"; remove the set's file to delete its deployments")
				return
			}
			set.Listings = append(set.Listings, listing)
			items := make([]setItem, len(listing.Entries))
			for i, e := range listing.Entries {
				items[i] = of(e)
				items[i].field = "spec." + name
			}
			sources = append(sources, items)
		})
	}
	if set.List != nil {
		items := make([]setItem, len(set.List))
		for i, fields := range set.List {
			items[i] = setItem{label: "item " + strconv.Itoa(i+1), fields: fields,
				field: fmt.Sprintf("spec.list[%d]", i)}
		}
		sources = append(sources, items)
	}
	if d.any() {
		return nil
	}
	return d.product(sources, at)
}

// keepsAll is the effect of an absent listing.
const keepsAll = "nothing is deleted: the set's deployments keep their last good state"

// product returns each combination of the sources' items.
func (d *decoder) product(sources [][]setItem, at node) []setItem {
	size := 1
	var counts []string
	for _, items := range sources {
		size *= len(items)
		counts = append(counts, strconv.Itoa(len(items)))
	}
	if size > fleet.MaxSetItems {
		d.problem(at, codeOutOfRange, fmt.Sprintf(
			"the sources of items give %s = %d combinations; at most %d are allowed",
			strings.Join(counts, " x "), size, fleet.MaxSetItems),
			"narrow the patterns, or write another set for some of the items")
		return nil
	}
	all := sources[0]
	for _, items := range sources[1:] {
		combined := make([]setItem, 0, len(all)*len(items))
		for _, a := range all {
			for _, b := range items {
				c, twice := a.with(b)
				if twice != "" {
					d.problem(at, codeDuplicateEntry, fmt.Sprintf(
						"%s and %s both have the field %q", a.label, b.label, twice),
						"rename the field in one of the sources")
					return nil
				}
				combined = append(combined, c)
			}
		}
		all = combined
	}
	return all
}

// with returns the combination of two items, or a field that both have.
func (a setItem) with(b setItem) (c setItem, twice string) {
	c = setItem{label: a.label + " with " + b.label, field: b.field, problem: a.problem,
		fields: make(map[string]string, len(a.fields)+len(b.fields))}
	if c.problem == "" {
		c.problem = b.problem
	}
	for k, v := range a.fields {
		c.fields[k] = v
	}
	for k, v := range b.fields {
		if _, there := c.fields[k]; there && (twice == "" || k < twice) {
			twice = k
		}
		c.fields[k] = v
	}
	return c, twice
}

// folderItem is the item of a folder.
func folderItem(e fleet.Listed) setItem {
	item := setItem{label: fmt.Sprintf("folder %q", e.Path), fields: map[string]string{}}
	item.check(e.Path)
	item.place(e.Path)
	item.fields["name"] = path.Base(e.Path)
	return item
}

// fileItem is the item of a file. The fields of its place win over the file's own.
func fileItem(e fleet.Listed) setItem {
	item := setItem{label: fmt.Sprintf("file %q", e.Path), fields: map[string]string{}}
	for k, v := range e.Fields {
		if k != "path" && !strings.HasPrefix(k, "path.") {
			item.fields[k] = v
		}
	}
	item.place(path.Dir(e.Path))
	item.check(e.Path)
	item.fields["path.filename"] = path.Base(e.Path)
	if e.Problem != "" && item.problem == "" {
		item.problem = e.Path + ": " + e.Problem
	}
	return item
}

// check refuses a path that no value of a list may be: a line break would add lines to a text of
// the template, and "${" a variable.
func (a *setItem) check(path string) {
	if formatItemValue.check(path) != nil || unseen(path) {
		a.problem = fmt.Sprintf("the path %+q holds a line break, an invisible character or ${", path)
	}
}

// place sets the fields of a folder.
func (a *setItem) place(folder string) {
	a.fields["path"], a.fields["path.basename"] = folder, path.Base(folder)
	for i, segment := range strings.Split(folder, "/") {
		a.fields["path.segments."+strconv.Itoa(i)] = segment
	}
}

// ListFile reads one file of a listing. It has the texts, numbers and booleans of the file, as they
// are written, that may be the value of an item; what else the file holds, it leaves out.
func ListFile(path string, content []byte) fleet.Listed {
	listed := fleet.Listed{Path: path}
	found := checkText(File{Path: path, Bytes: content})
	if !found.any() {
		found = findSecrets(content)
	}
	var root node
	if !found.any() {
		root, found = parse(content, true)
	}
	var d decoder
	if root != nil && root.Kind == yaml.MappingNode {
		listed.Fields = map[string]string{}
		d.collectFields(root, "", listed.Fields)
		found = d.findings
	}
	switch {
	case found.any():
		p := found.report(fleet.Key{}, path)[0]
		listed.Fields, listed.Problem = nil, fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column,
			p.Message)
	case root.Kind != yaml.MappingNode:
		listed.Problem = fmt.Sprintf("line %d, column %d: the file holds no map of fields",
			root.Line, root.Column)
	case len(listed.Fields) > maxItemFields:
		listed.Fields, listed.Problem = nil, fmt.Sprintf(
			"the file has more than %d fields", maxItemFields)
	case len(listed.Fields) == 0:
		listed.Fields = nil // as it comes back from JSON
	}
	return listed
}

// collectFields adds the fields below a node. A key that a map has twice is a problem.
func (d *decoder) collectFields(n node, name string, into map[string]string) {
	if len(into) > maxItemFields {
		return
	}
	dot := ""
	if name != "" {
		dot = "."
	}
	switch n.Kind {
	case yaml.MappingNode:
		d.repeatsKeys(n)
		for i := 0; i+1 < len(n.Content); i += 2 {
			// a dot inside a key would make two fields of one name
			if key := n.Content[i].Value; !strings.Contains(key, ".") {
				d.collectFields(n.Content[i+1], name+dot+key, into)
			}
		}
	case yaml.SequenceNode:
		for i, c := range n.Content {
			d.collectFields(c, name+dot+strconv.Itoa(i), into)
		}
	case yaml.ScalarNode:
		if n.Tag != "!!null" && fleet.IsItemPath(name) && len(n.Value) <= maxItemValue &&
			formatItemValue.check(n.Value) == nil && !unseen(n.Value) {
			into[name] = n.Value
		}
	}
}
