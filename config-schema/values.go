package configschema

import (
	"reflect"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// valuesArePlainYAML holds a chart's values to the same rules as the file: a map, no anchors, no
// tags, not too deep, no key twice. They are parsed again by Argo CD and by Helm, and must not be a
// bomb there nor mean different things to the two.
func valuesArePlainYAML(d *decoder, into reflect.Value, at node) {
	values := into.Addr().Interface().(*fleet.HelmSource).Values
	if values == "" {
		return
	}
	n := child(at, "values")
	inner := decoder{key: d.key, path: d.path, inValues: true}
	root := inner.parse([]byte(values))
	if root != nil && root.Kind != yaml.MappingNode {
		inner.lineProblem(1, 1, codeWrongType, "values are a map", "write key: value")
	} else if root != nil {
		inner.uniqueKeysBelow(root)
	}
	d.at("values", func() {
		for _, p := range inner.problems {
			place := *n
			if n.Style&yaml.LiteralStyle != 0 && p.Line > 0 {
				place.Line, place.Column = n.Line+p.Line, 1
			}
			d.problem(&place, p.Code, "in the values: "+p.Message, p.Fix)
		}
	})
}

func (d *decoder) uniqueKeysBelow(n node) {
	if n.Kind == yaml.MappingNode {
		d.uniqueKeys(n)
	}
	for _, c := range n.Content {
		d.uniqueKeysBelow(c)
	}
}
