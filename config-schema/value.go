package configschema

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// value decodes a node as described into a value of the domain, and reports whether it is whole. Every mistake below it is reported.
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
	if !null && (n.Kind == yaml.ScalarNode && strings.TrimSpace(n.Value) != "" || n.Kind != yaml.ScalarNode && len(n.Content) > 0) {
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
	d.problem(n, codeBlank, d.subject()+" is blank ("+written+")", "write "+v.kindOfValue()+", or leave the field out if it is optional; a blank never means a default")
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
	var seen [32]int32 // the line of each field, in the order of the description
	ok := d.uniqueKeys(n)
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
			d.unknown(v, key)
			ok = false
		} else {
			f := &v.fields[at]
			ok = d.value(&f.value, n.Content[i+1], into.Field(f.index)) && ok
			seen[at] = int32(key.Line)
		}
		d.steps = d.steps[:len(d.steps)-1]
	}
	for i := range v.fields {
		if f := &v.fields[i]; f.required && seen[i] == 0 {
			d.missing(n, f)
			ok = false
		}
	}
	for _, g := range v.groups {
		ok = d.group(v, g, n) && ok
	}
	return ok
}

func (d *decoder) unknown(v *value, key node) {
	if w, ok := v.never[key.Value]; ok {
		d.problem(key, w.code, w.message, w.fix)
		return
	}
	if w, ok := neverAnywhere[key.Value]; ok {
		d.problem(key, w.code, w.message, w.fix)
		return
	}
	fix := "fields here: " + strings.Join(v.names(), ", ")
	if meant := closest(key.Value, v.names()); meant != "" {
		fix = "did you mean " + meant + "?"
	}
	d.problem(key, codeUnknownField, "there is no field "+quoted(key.Value)+" here", fix)
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

func (d *decoder) group(v *value, g group, n node) bool {
	var set []string
	var second node
	for i := 0; i+1 < len(n.Content); i += 2 {
		for _, name := range g.names {
			if n.Content[i].Value == name {
				if set = append(set, name); len(set) == 2 {
					second = n.Content[i]
				}
			}
		}
	}
	switch {
	case len(set) > 1:
		d.problem(second, codeExclusive, strings.Join(set, " and ")+" exclude one another", "keep one of them")
		return false
	case len(set) == 0 && g.exactly:
		example := ""
		if f := v.fieldNamed(g.names[0]); f.example != "" {
			example = ", e.g. " + f.name + ": " + f.example
		}
		d.problem(n, codeExclusive, "one of "+strings.Join(g.names, ", ")+" is required", "set exactly one"+example)
		return false
	}
	return true
}
