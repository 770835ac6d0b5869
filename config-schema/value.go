package configschema

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// value decodes a node as described into a value of the domain, and reports whether it is whole.
// Every mistake below it is reported.
func (d *decoder) value(v *value, n node, into reflect.Value) bool {
	if d.blank(v, n) || !d.shaped(v, n, into) {
		return false
	}
	for _, c := range v.checks {
		c(d, reflect.Indirect(into), n)
	}
	return true
}

func (d *decoder) shaped(v *value, n node, into reflect.Value) bool {
	switch v.shape {
	case shapeObject:
		return d.object(v, n, into)
	case shapeList:
		return d.list(v, n, into)
	case shapeLabels:
		return d.labels(n, into)
	}
	if n.Kind != yaml.ScalarNode {
		d.wrongType(v, n)
		return false
	}
	switch v.shape {
	case shapeInteger:
		return d.integer(v, n, into)
	case shapeBoolean:
		return d.boolean(v, n, into)
	case shapeDuration:
		return d.duration(v, n, into)
	default:
		return d.text(v, n, into)
	}
}

// blank refuses null, "" and empty collections, except where an empty one has a meaning.
func (d *decoder) blank(v *value, n node) bool {
	null := n.Tag == "!!null"
	if !null && (n.Kind == yaml.ScalarNode && strings.TrimSpace(n.Value) != "" ||
		n.Kind != yaml.ScalarNode && len(n.Content) > 0) {
		return false
	}
	if v.empty && !null && (n.Kind == yaml.ScalarNode) == (v.shape == shapeText) {
		return false
	}
	written := map[bool]string{true: "null", false: `""`}[null]
	switch n.Kind {
	case yaml.SequenceNode:
		written = "[]"
	case yaml.MappingNode:
		written = "{}"
	}
	fix := "write " + v.kindOfValue() + "; a blank never means a default"
	if d.optional {
		fix = "leave the field out, or write " + v.kindOfValue() + "; a blank never means a default"
	}
	d.problem(n, codeBlank, d.subject()+" is blank ("+written+")", fix)
	return true
}

func (d *decoder) object(v *value, n node, into reflect.Value) bool {
	if n.Kind != yaml.MappingNode {
		d.wrongType(v, n)
		return false
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(v.bound))
		into = into.Elem()
	}
	// seen is the line of each field, or of what was probably meant to be it. What is missing is
	// not told of an object with a field that belongs elsewhere: its author meant another thing.
	var seen [32]int32
	ok, excused := d.uniqueKeys(n), false
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, at := n.Content[i], -1
		for j := range v.fields {
			if v.fields[j].name == key.Value {
				at = j
				break
			}
		}
		d.steps = append(d.steps, step{key.Value, -1})
		if at < 0 {
			meant := d.unknown(v, key)
			if meant >= 0 {
				seen[meant] = int32(key.Line)
			}
			ok, excused = false, excused || meant < 0
		} else {
			f := &v.fields[at]
			d.optional = !f.required
			ok = d.value(&f.value, n.Content[i+1], into.Field(f.index)) && ok
			seen[at] = int32(key.Line)
		}
		d.steps = d.steps[:len(d.steps)-1]
	}
	for i := range v.fields {
		if f := &v.fields[i]; f.required && seen[i] == 0 && !excused {
			d.missing(n, f)
			ok = false
		}
	}
	for _, g := range v.groups {
		ok = d.group(v, g, n, excused) && ok
	}
	return ok
}

// unknown tells of a field that does not exist here, and returns the place of the one that was
// probably meant; -1 when it belongs elsewhere, or none is near.
func (d *decoder) unknown(v *value, key node) (meant int) {
	w, ok := v.never[key.Value]
	if !ok {
		w, ok = neverAnywhere[key.Value]
	}
	if ok {
		message := w.message
		if !strings.Contains(message, key.Value) {
			message = d.field() + ": " + message
		}
		d.problem(key, w.code, message, w.fix)
		return -1
	}
	fix, near := "fields here: "+strings.Join(v.names(), ", "), fleet.Closest(key.Value, v.names())
	if near != "" {
		fix = "did you mean " + near + "?"
	}
	d.problem(key, codeUnknownField, "there is no field "+quoted(key.Value)+" here", fix)
	return slices.Index(v.names(), near)
}

func (d *decoder) missing(n node, f *field) {
	d.at(f.name, func() {
		fix := "add " + f.name + ": " + f.example
		if f.example == "" {
			fix = "add " + f.name + ":"
		}
		d.problem(n, codeMissingField, f.name+" is required", fix)
	})
}

func (d *decoder) group(v *value, g group, n node, excused bool) bool {
	var set []string
	var second node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if name := n.Content[i].Value; slices.Contains(g.names, name) &&
			!slices.Contains(set, name) {
			if set = append(set, name); len(set) == 2 {
				second = n.Content[i]
			}
		}
	}
	switch {
	case len(set) > 1:
		d.problem(second, codeExclusive, strings.Join(set, " and ")+" exclude one another",
			"keep one of them"+g.when)
		return false
	case len(set) == 0 && g.exactly && !excused:
		example := ""
		if f := v.fieldNamed(g.names[0]); f.example != "" {
			example = ", e.g. " + f.name + ": " + f.example
		}
		d.problem(n, codeExclusive, "one of "+strings.Join(g.names, ", ")+" is required",
			"set exactly one"+example+g.when)
		return false
	}
	return true
}
