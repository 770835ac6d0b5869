package configschema

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// valuesMap decodes a map of any content into fleet.Values. Every scalar must mean the same to each
// parser that reads it later, in Argosy, Argo CD and Helm.
func (d *decoder) valuesMap(n node, into reflect.Value) bool {
	if n.Kind != yaml.MappingNode {
		d.wrongType(&value{shape: shapeMap}, n)
		return false
	}
	before := len(d.problems)
	tree, _ := d.anyValue(n).(map[string]any)
	if len(d.problems) > before {
		return false
	}
	values, err := fleet.ValuesOf(tree)
	if err != nil || len(values) > fleet.MaxValues {
		d.problem(n, codeOutOfRange, d.subject()+" is larger than "+
			strconv.Itoa(fleet.MaxValues>>10)+" KiB", "put some of it into a file of valueFiles")
		return false
	}
	into.SetString(string(values))
	return true
}

// jsonNumber is a number that YAML 1.1, YAML 1.2 and JSON read alike.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// anyValue returns the value of a node as encoding/json has it, numbers as they are written.
func (d *decoder) anyValue(n node) any {
	switch n.Kind {
	case yaml.MappingNode:
		d.repeatsKeys(n)
		tree := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			d.steps = append(d.steps, step{key.Value, -1})
			d.hides(key)
			if jsonNumber.MatchString(key.Value) || d.plainString(key, "a key of values") {
				tree[key.Value] = d.anyValue(n.Content[i+1])
			}
			d.steps = d.steps[:len(d.steps)-1]
		}
		return tree
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for i, item := range n.Content {
			d.steps = append(d.steps, step{"", i})
			list = append(list, d.anyValue(item))
			d.steps = d.steps[:len(d.steps)-1]
		}
		return list
	}
	switch {
	case n.Style != 0:
		d.hides(n)
		return n.Value
	case n.Tag == "!!null":
		return nil
	case n.Value == "true" || n.Value == "false":
		return n.Value == "true"
	case jsonNumber.MatchString(n.Value):
		return json.Number(n.Value)
	}
	d.plainString(n, d.subject()) // a text that some parser takes for a number or a boolean
	return n.Value
}
