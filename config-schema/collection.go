package configschema

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
		d.problem(n, codeOutOfRange, fmt.Sprintf("%s has %d entries; at most %d are allowed",
			d.subject(), len(n.Content), most), "name fewer")
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

// uniqueEntries refuses a list that names a thing twice: a text, or an object by the field that
// tells it apart.
func (d *decoder) uniqueEntries(v *value, n node) bool {
	if len(n.Content) < 2 {
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
			d.problem(id, codeDuplicateEntry, fmt.Sprintf("%s is named twice; first on line %d",
				quoted(id.Value), before), "remove one of them")
			d.steps = d.steps[:len(d.steps)-1]
			ok = false
			continue
		}
		first[id.Value] = id.Line
	}
	return ok
}

func (d *decoder) labels(n node, into reflect.Value) bool {
	if n.Kind != yaml.MappingNode {
		d.wrongType(&value{shape: shapeLabels}, n)
		return false
	}
	if len(n.Content)/2 > maxLabels {
		d.problem(n, codeOutOfRange, fmt.Sprintf("%s has %d labels; at most %d are allowed",
			d.subject(), len(n.Content)/2, maxLabels), "keep fewer")
		return false
	}
	labels, ok := make(map[string]string, len(n.Content)/2), d.uniqueKeys(n)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		d.steps, d.optional = append(d.steps, step{key.Value, -1}), false
		if d.plainString(key, "the key of a label") && d.label(formatLabelKey, key) &&
			!d.blank(&labelValue, val) {
			if val.Kind != yaml.ScalarNode {
				d.wrongType(&labelValue, val)
				ok = false
			} else if d.plainString(val, "the value of a label") && d.label(formatLabel, val) {
				labels[key.Value] = val.Value
			} else {
				ok = false
			}
		} else {
			ok = false
		}
		d.steps = d.steps[:len(d.steps)-1]
	}
	into.Set(reflect.ValueOf(labels))
	return ok
}

var labelValue = value{format: formatLabel}

func (d *decoder) label(f *format, n node) bool {
	if err := f.check(n.Value); err != nil {
		d.problem(n, f.code, quoted(n.Value)+": "+err.Error(), "write "+f.what)
		return false
	}
	return true
}

// uniqueKeys refuses a key that stands twice, or twice but for its case: parsers differ on which
// one counts (kubernetes-sigs/yaml#15).
func (d *decoder) uniqueKeys(n node) bool {
	if len(n.Content) > 64 {
		return d.uniqueKeysOfMany(n)
	}
	ok := true
	for i := 2; i+1 < len(n.Content); i += 2 {
		for j := 0; j < i; j += 2 {
			if a, b := n.Content[j], n.Content[i]; len(a.Value) == len(b.Value) &&
				strings.EqualFold(a.Value, b.Value) {
				d.duplicateKey(a, b)
				ok = false
				break
			}
		}
	}
	return ok
}

func (d *decoder) uniqueKeysOfMany(n node) bool {
	first, ok := make(map[string]node, len(n.Content)/2), true
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		folded := strings.ToLower(key.Value)
		if before, twice := first[folded]; twice {
			d.duplicateKey(before, key)
			ok = false
			continue
		}
		first[folded] = key
	}
	return ok
}

func (d *decoder) duplicateKey(first, second node) {
	d.at(second.Value, func() {
		how := "stands twice"
		if first.Value != second.Value {
			how = "stands twice with different case"
		}
		d.problem(second, codeDuplicateKey, fmt.Sprintf("key %s %s; first on line %d",
			quoted(second.Value), how, first.Line), "keep one of them")
	})
}
