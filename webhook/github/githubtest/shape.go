package githubtest

import (
	"encoding/json"
	"slices"
	"strings"
)

// object is a part of a response: the fields that the state knows.
type object = map[string]any

// shape fills the known fields into the schema, so that a response has every field of GitHub's.
func (d *description) shape(schema, v any) any {
	s := d.resolve(schema)
	for _, choice := range []string{"anyOf", "oneOf"} {
		if branches, ok := s[choice].([]any); ok && s["properties"] == nil {
			return d.shapeOne(s, branches, v)
		}
	}
	if parts, ok := s["allOf"].([]any); ok {
		return d.shapeAll(parts, v)
	}
	switch v := v.(type) {
	case nil:
		return d.blank(s)
	case object:
		return d.shapeObject(s, v)
	case []object:
		all := make([]any, len(v))
		for i := range v {
			all[i] = d.shape(s["items"], v[i])
		}
		return all
	}
	return v
}

// shapeAll is what the parts require together. The first part that knows a field shapes it.
func (d *description) shapeAll(parts []any, v any) any {
	out := object{}
	for _, part := range parts {
		shaped, _ := d.shape(part, v).(object)
		for name, value := range shaped {
			if _, known := out[name]; !known {
				out[name] = value
			}
		}
	}
	return out
}

// shapeOne takes the branch that the value names or that suits it: null for nothing if it may be
// null.
func (d *description) shapeOne(s map[string]any, branches []any, v any) any {
	if teller, ok := s["discriminator"].(map[string]any); ok {
		name, _ := teller["propertyName"].(string)
		mapping, _ := teller["mapping"].(map[string]any)
		fields, _ := v.(object)
		kind, _ := fields[name].(string)
		if ref, ok := mapping[kind].(string); ok {
			return d.shape(map[string]any{
				"$ref": "#/$defs/" + strings.TrimPrefix(ref, "#/components/schemas/")}, v)
		}
	}
	if v == nil {
		null := func(b any) bool { return d.resolve(b)["type"] == "null" }
		if slices.ContainsFunc(branches, null) {
			return nil
		}
		return d.shape(branches[0], nil)
	}
	_, fields := v.(object)
	_, items := v.([]object)
	for _, b := range branches {
		s := d.resolve(b)
		switch {
		case s["anyOf"] != nil || fields && s["properties"] != nil || items && s["items"] != nil:
			return d.shape(b, v)
		}
	}
	return v
}

func (d *description) shapeObject(s map[string]any, v object) object {
	properties, _ := s["properties"].(map[string]any)
	out := object{}
	required, _ := s["required"].([]any)
	for _, name := range required {
		name := name.(string)
		out[name] = d.shape(properties[name], v[name])
	}
	for name, value := range v {
		if value == nil && properties[name] != nil {
			continue // unknown and optional
		}
		out[name] = d.shape(properties[name], value)
	}
	return out
}

// blank is an empty value that the schema accepts.
func (d *description) blank(s map[string]any) any {
	if values, ok := s["enum"].([]any); ok && len(values) > 0 {
		return values[0]
	}
	switch s["type"] {
	case "object":
		return d.shapeObject(s, nil)
	case "array":
		return []any{}
	case "integer", "number":
		return json.Number("0")
	case "boolean":
		return false
	case "string":
		switch s["format"] {
		case "uri":
			return "https://example.com/"
		case "date-time":
			return "2026-01-01T00:00:00Z"
		case "email":
			return "someone@example.com"
		}
		return ""
	}
	if s["properties"] != nil {
		return d.shapeObject(s, nil)
	}
	return nil
}
