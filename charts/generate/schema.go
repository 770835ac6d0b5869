package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"go.yaml.in/yaml/v3"
)

type schema = map[string]any

// object returns the schema of a mapping with documented keys. It rejects other keys.
func object(path string, n *yaml.Node) (schema, []row, error) {
	properties := schema{}
	var rows []row
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		p, more, err := property(at, comment(key.HeadComment), value)
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: %s: %w", key.Line, at, err)
		}
		properties[key.Value] = p
		rows = append(rows, more...)
	}
	return schema{"type": "object", "additionalProperties": false, "properties": properties}, rows,
		nil
}

// description is a parsed comment of a key.
type description struct{ text, schema string }

// comment parses the last paragraph of the comment above a key: earlier paragraphs describe the
// section.
func comment(head string) description {
	var s description
	inText := false
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#"))
		words, isSchema := strings.CutPrefix(line, "@schema ")
		text, begins := strings.CutPrefix(line, "-- ")
		switch {
		case isSchema:
			s.schema, inText = words, false
		case begins:
			s, inText = description{text: text}, true
		case inText && line != "":
			s.text += " " + line
		default:
			inText = false
		}
	}
	return s
}

func property(path string, s description, value *yaml.Node) (schema, []row, error) {
	if value.Kind == yaml.MappingNode && len(value.Content) > 0 && s.text == "" && s.schema == "" {
		return object(path, value)
	}
	if s.text == "" {
		return nil, nil, errors.New(`has no description: write "# -- ..." above it`)
	}
	if s.schema == "settings" {
		return settingsSchema(s.text)
	}
	p, err := inferred(value, s.schema)
	if err != nil {
		return nil, nil, err
	}
	p["description"] = s.text
	fallback, err := inline(value)
	return p, []row{{path, fallback, s.text}}, err
}

var words = map[string]schema{
	"open":         {"type": "object"},
	"strings":      {"type": "object", "additionalProperties": schema{"type": "string"}},
	"list open":    {"type": "array", "items": schema{"type": "object"}},
	"list strings": {"type": "array", "items": schema{"type": "string", "minLength": 1}},
	"list names": {"type": "array", "items": schema{
		"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"}},
}

// inferred returns the schema of a value from its default and the comment's additions.
func inferred(value *yaml.Node, added string) (schema, error) {
	if w, ok := words[added]; ok {
		return maps.Clone(w), nil
	}
	p := schema{}
	switch {
	case value.Kind == yaml.SequenceNode:
		p["type"] = "array"
	case value.Kind == yaml.MappingNode:
		p["type"] = "object"
	case value.Tag == "!!int":
		p["type"] = "integer"
	case value.Tag == "!!bool":
		p["type"] = "boolean"
	case value.Tag == "!!str":
		p["type"] = "string"
	default:
		return nil, fmt.Errorf("a default of the type %s has no type to infer",
			value.Tag)
	}
	if added != "" {
		more := schema{}
		if err := json.Unmarshal([]byte(added), &more); err != nil {
			return nil, fmt.Errorf("@schema %q is none of the known words and no JSON: %w", added,
				err)
		}
		maps.Copy(p, more)
	}
	if value.Kind != yaml.ScalarNode && p["items"] == nil && p["properties"] == nil &&
		p["additionalProperties"] == nil {
		return nil, errors.New("the schema accepts anything: add @schema, if only `open`")
	}
	return p, nil
}

// inline returns a default on one line, as JSON.
func inline(value *yaml.Node) (string, error) {
	var v any
	if err := value.Decode(&v); err != nil {
		return "", err
	}
	text, err := json.Marshal(v)
	return string(text), err
}
