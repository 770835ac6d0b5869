package settings

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// Schema is the JSON Schema (draft-07) of argosy.yaml, made from the same struct that the file is
// decoded into.
func Schema() []byte {
	schema := object(reflect.TypeFor[Settings]())
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	schema["title"] = "argosy.yaml"
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(schema); err != nil {
		panic(err) // maps of text and maps always encode
	}
	return b.Bytes()
}

func object(t reflect.Type) map[string]any {
	properties := map[string]any{}
	var required []string
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		p := property(f.Type)
		p["description"] = f.Tag.Get("doc")
		if d := f.Tag.Get("default"); d != "" {
			p["description"] = f.Tag.Get("doc") + " Default: " + d + "."
		}
		properties[name] = p
		if options != "omitempty" {
			required = append(required, name)
		}
	}
	o := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

func property(t reflect.Type) map[string]any {
	if t == reflect.TypeFor[Duration]() {
		return map[string]any{"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return property(t.Elem())
	case reflect.Struct:
		return object(t)
	case reflect.Slice:
		return map[string]any{"type": "array", "items": property(t.Elem())}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	default:
		return map[string]any{"type": "string"}
	}
}
