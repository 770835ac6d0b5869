package configschema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// SchemaFiles are the published files by name.
func SchemaFiles() map[string][]byte {
	files := map[string][]byte{"argosy.json": CombinedSchema()}
	for name, s := range Schemas() {
		files[schemaFile(name)] = s
	}
	return files
}

// SchemaBase is where the schemas are published; the file of a kind is named for it in lower case.
const SchemaBase = "https://argosy.dev/schema/v1alpha1/"

// CombinedSchema is the schema of any declaration: it chooses by `kind`, so that an editor needs
// one schema for all files.
func CombinedSchema() []byte {
	names, choices, definitions := []any{}, []any{}, map[string]any{}
	for _, k := range kindOrder {
		s := k.document.schema()
		s["title"], s["description"] = string(k.name), k.doc
		names = append(names, string(k.name))
		definitions[string(k.name)] = s
		choices = append(choices, map[string]any{
			"if": map[string]any{
				"required": []any{"kind"}, "properties": map[string]any{
					"kind": map[string]any{"const": string(k.name)}}},
			"then": map[string]any{"$ref": "#/definitions/" + string(k.name)},
		})
	}
	return indented(map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#", "$id": SchemaBase + "argosy.json",
		"title": "Argosy", "description": "A declaration of an Argosy config repo.",
		"type": "object", "required": []any{"apiVersion", "kind", "metadata", "spec"},
		"properties": map[string]any{
			"apiVersion": map[string]any{"const": fleet.APIVersion},
			"kind":       map[string]any{"enum": names},
		},
		"allOf": choices, "definitions": definitions,
	})
}

// Schemas returns the JSON Schemas (draft-07) of the kinds, from the descriptions that the decoder
// follows. A schema accepts everything that the decoder accepts; the descriptions of the fields
// hold the rules that JSON Schema cannot express.
func Schemas() map[fleet.Kind][]byte {
	out := make(map[fleet.Kind][]byte, len(kindOrder))
	for _, k := range kindOrder {
		s := k.document.schema()
		s["$schema"], s["$id"] = "http://json-schema.org/draft-07/schema#",
			SchemaBase+schemaFile(k.name)
		s["title"], s["description"] = string(k.name), k.doc
		out[k.name] = indented(s)
	}
	return out
}

func (v *value) schema() map[string]any {
	switch v.shape {
	case shapeInteger:
		return map[string]any{"type": "integer", "minimum": v.least, "maximum": v.most}
	case shapeBoolean:
		return map[string]any{"type": "boolean"}
	case shapeDuration:
		return map[string]any{
			"type": "string", "pattern": `^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)`}
	case shapeLabels:
		if v.item != nil {
			return map[string]any{"type": "object", "minProperties": 1, "maxProperties": maxLabels,
				"propertyNames":        map[string]any{"pattern": v.key.pattern},
				"additionalProperties": v.item.schema()}
		}
		return map[string]any{"type": "object", "minProperties": 1, "maxProperties": maxLabels,
			"propertyNames": map[string]any{"pattern": formatLabelKey.pattern},
			"additionalProperties": map[string]any{
				"type": "string", "pattern": formatLabel.pattern}}
	case shapeMap:
		return map[string]any{"type": "object", "minProperties": 1}
	case shapeList:
		s := map[string]any{
			"type": "array", "items": v.item.schema(), "maxItems": orDefault(v.most, maxItems)}
		if v.item.shape != shapeObject && !v.repeats {
			s["uniqueItems"] = true
		}
		if !v.empty {
			s["minItems"] = 1
		}
		return s
	case shapeObject:
		return v.objectSchema()
	}
	return v.textSchema()
}

func (v *value) objectSchema() map[string]any {
	properties, required := map[string]any{}, []string{}
	for i := range v.fields {
		f := &v.fields[i]
		s := f.schema()
		s["description"] = f.summary()
		if f.example != "" && len(f.words) != 1 {
			s["examples"] = []any{exampleValue(f.example)}
		}
		properties[f.name] = s
		if f.required {
			required = append(required, f.name)
		}
	}
	s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if !v.empty {
		s["minProperties"] = 1
	}
	if len(required) > 0 {
		s["required"] = required
	}
	if all := v.groupSchemas(); len(all) > 0 {
		s["allOf"] = all
	}
	return s
}

// summary returns an editor's description of a field.
func (f *field) summary() string {
	s := f.doc
	if f.format != nil && f.format.what != "" && f.format != formatAny {
		s += " (" + f.format.what + ")"
	}
	if f.holdsVariables() {
		s += " May hold variables, e.g. ${environment.name}."
	}
	if f.fallback != "" {
		s += " Default: " + f.fallback + "."
	}
	return s
}

// holdsVariables reports whether the field, or an entry of it, may hold variables.
func (f *field) holdsVariables() bool {
	v := &f.value
	if v.shape == shapeList {
		v = v.item
	}
	return v.format != nil && v.format.variables
}

// exampleValue reads an example, which is written in YAML.
func exampleValue(example string) any {
	var v any
	if err := yaml.Unmarshal([]byte(example), &v); err != nil {
		panic(fmt.Sprintf("configschema: example %q: %v", example, err))
	}
	return v
}

// groupSchemas expresses "exactly one of" and "at most one of" as pairs that exclude each other,
// which editors can explain, and a field that needs another one as the absence of the first.
func (v *value) groupSchemas() []any {
	var all []any
	for _, g := range v.groups {
		var anyOf []any
		for i, a := range g.names {
			anyOf = append(anyOf, map[string]any{"required": []string{a}})
			for _, b := range g.names[i+1:] {
				all = append(all, map[string]any{"not": map[string]any{"required": []string{a, b}}})
			}
		}
		if g.exactly {
			all = append(all, map[string]any{"anyOf": anyOf})
		}
	}
	for _, p := range v.pairs {
		all = append(all, map[string]any{"anyOf": []any{
			map[string]any{"not": map[string]any{"required": []string{p[0]}}},
			map[string]any{"required": []string{p[1]}}}})
	}
	return all
}

func (v *value) textSchema() map[string]any {
	if len(v.words) == 1 {
		return map[string]any{"const": v.words[0]}
	}
	if len(v.words) > 1 {
		return map[string]any{"type": "string", "enum": v.words}
	}
	s := map[string]any{"type": "string", "maxLength": orDefault(v.most, maxText)}
	if v.format.pattern != "" {
		s["pattern"] = v.format.pattern
	}
	if !v.empty {
		s["minLength"] = 1
	}
	if v.orMap {
		return map[string]any{"anyOf": []any{
			s, (&value{shape: shapeMap}).schema()}}
	}
	return s
}

func orDefault(n, fallback int64) int64 {
	if n == 0 {
		return fallback
	}
	return n
}

func indented(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("configschema: %v", err)) // maps of text and numbers: cannot fail
	}
	return b.Bytes()
}

func schemaFile(k fleet.Kind) string { return strings.ToLower(string(k)) + ".json" }

// Kinds are the kinds of this version, sorted.
func Kinds() []fleet.Kind { return slices.Sorted(maps.Keys(kinds)) }
