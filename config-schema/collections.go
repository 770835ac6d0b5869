package configschema

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

func (d *decoder) object(v *value, n node, into reflect.Value) bool {
	if n.Kind != yaml.MappingNode {
		d.wrongType(v, n)
		return false
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(v.bound))
		into = into.Elem()
	}
	// seen is the line of each field, or of a probable misspelling of it. An object with a field
	// that belongs elsewhere gets no error for missing fields: its author meant another object.
	var seen [32]int32
	ok, excused := !d.repeatsKeys(n), false
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
			if f.raw {
				ok = !d.blank(&f.value, n.Content[i+1]) && ok
			} else {
				ok = d.value(&f.value, n.Content[i+1], into.Field(f.index)) && ok
			}
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
	for _, p := range v.pairs {
		if child(n, p[0]) != nil && child(n, p[1]) == nil {
			d.missing(n, v.fieldNamed(p[1]))
			ok = false
		}
	}
	return ok
}

// unknown reports an unknown field and returns the index of the closest known field. It returns -1
// if the field belongs elsewhere or none is close.
func (d *decoder) unknown(v *value, key node) (meant int) {
	w, ok := v.never[key.Value]
	if !ok {
		w, ok = neverAnywhere[key.Value]
	}
	if ok {
		message := w.message
		if !strings.Contains(message, key.Value) {
			message = fieldPath(d.steps) + ": " + message
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

func (v *value) fieldNamed(name string) *field {
	for i := range v.fields {
		if v.fields[i].name == name {
			return &v.fields[i]
		}
	}
	return nil
}

func (d *decoder) list(v *value, n node, into reflect.Value) bool {
	if n.Kind != yaml.SequenceNode {
		d.wrongType(v, n)
		return false
	}
	most := int(v.most)
	if most == 0 {
		most = maxItems
	}
	if len(n.Content) > most {
		d.problem(n, codeOutOfRange,
			fmt.Sprintf("%s has %d entries; at most %d are allowed", d.subject(), len(n.Content),
				most), "name fewer")
		return false
	}
	if len(n.Content) == 0 {
		return true
	}
	into.Set(reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content)))
	ok := true
	for i, item := range n.Content {
		d.steps, d.optional = append(d.steps, step{"", i}), false
		ok = d.value(v.item, item, into.Index(i)) && ok
		d.steps = d.steps[:len(d.steps)-1]
	}
	return d.uniqueEntries(v, n) && ok
}

// uniqueEntries refuses a repeated entry of a list: an equal text, or an object with an equal key
// field.
func (d *decoder) uniqueEntries(v *value, n node) bool {
	if len(n.Content) < 2 || v.repeats {
		return true
	}
	first, ok := make(map[string]int, len(n.Content)), true
	for i, item := range n.Content {
		id := item
		if v.unique != "" {
			id = child(item, v.unique)
		}
		if id == nil || id.Kind != yaml.ScalarNode {
			continue
		}
		if before, twice := first[id.Value]; twice {
			d.steps = append(d.steps, step{"", i})
			d.problem(id, codeDuplicateEntry,
				fmt.Sprintf("%s is named twice; first on line %d", quoted(id.Value), before),
				"remove one of them")
			d.steps = d.steps[:len(d.steps)-1]
			ok = false
			continue
		}
		first[id.Value] = id.Line
	}
	return ok
}

var labelValue = value{format: formatLabel}

// labels decodes a map of text. Its entries are called labels unless the description has a key and
// a value of its own.
func (d *decoder) labels(v *value, n node, into reflect.Value) bool {
	if n.Kind != yaml.MappingNode {
		d.wrongType(v, n)
		return false
	}
	if len(n.Content)/2 > maxLabels {
		d.problem(n, codeOutOfRange,
			fmt.Sprintf("%s has %d %s; at most %d are allowed", d.subject(), len(n.Content)/2,
				v.entries(), maxLabels), "keep fewer")
		return false
	}
	labels, ok := make(map[string]string, len(n.Content)/2), !d.repeatsKeys(n)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		d.steps, d.optional = append(d.steps, step{key.Value, -1}), false
		if text, good := d.entry(v, key, val); good {
			labels[key.Value] = text
		} else {
			ok = false
		}
		d.steps = d.steps[:len(d.steps)-1]
	}
	into.Set(reflect.ValueOf(labels))
	return ok
}

// entry decodes one entry of a map of text.
func (d *decoder) entry(v *value, key, val node) (string, bool) {
	if v.item != nil {
		var text string
		if !d.plainString(key, "the key") || !d.label(v.key, key) ||
			!d.value(v.item, val, reflect.ValueOf(&text).Elem()) {
			return "", false
		}
		return text, true
	}
	if !d.plainString(key, "the key of a label") || !d.label(formatLabelKey, key) ||
		d.blank(&labelValue, val) {
		return "", false
	}
	if val.Kind != yaml.ScalarNode {
		d.wrongType(&labelValue, val)
		return "", false
	}
	return val.Value, d.plainString(val, "the value of a label") && d.label(formatLabel, val)
}

// entries names the entries of a map of text.
func (v *value) entries() string {
	if v.item != nil {
		return "entries"
	}
	return "labels"
}

// repeatsKeys reports the keys that a map has twice.
func (d *decoder) repeatsKeys(n node) bool {
	repeated := repeatedKeys(n)
	for _, r := range repeated {
		d.at(
			r.second.Value,
			func() { d.problem(r.second, codeDuplicateKey, r.message(), "keep one of them") })
	}
	return len(repeated) > 0
}

func (d *decoder) label(f *format, n node) bool {
	if err := f.check(n.Value); err != nil {
		d.problem(n, f.code, quoted(n.Value)+": "+err.Error(), "write "+f.what)
		return false
	}
	return true
}
