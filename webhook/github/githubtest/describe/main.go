// Command describe extracts the operations that githubtest answers from GitHub's OpenAPI
// description, with their schemas, and writes them as JSON Schema. The description has 13 MB and
// some thousand operations; a test reads the extract in milliseconds.
//
//	describe api.github.com.json operations.json
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"argosy.dev/argosy/webhook/github/githubtest"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: describe api.github.com.json operations.json")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "describe:", err)
		os.Exit(1)
	}
}

func run(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	d := description{defs: map[string]any{}}
	if err := json.Unmarshal(text, &d.whole); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	d.need("basic-error") // the body of errors that an operation does not list
	var operations []any
	for _, p := range githubtest.Paths {
		item, ok := d.at("#/paths/" + strings.ReplaceAll(p, "/", "~1")).(map[string]any)
		if !ok {
			return fmt.Errorf("%s has no path %s", from, p)
		}
		for _, method := range []string{"get", "post", "put", "patch", "delete"} {
			if o, ok := item[method].(map[string]any); ok {
				operations = append(operations, d.operation(strings.ToUpper(method), p, o))
			}
		}
	}
	d.correct()
	out, err := json.Marshal(map[string]any{"operations": operations, "$defs": d.defs})
	if err != nil {
		return err
	}
	return os.WriteFile(to, out, 0o600)
}

// correct fixes the description where GitHub differs from it: the repository of a head is null once
// the fork is deleted.
func (d *description) correct() {
	for _, name := range []string{"pull-request", "pull-request-simple"} {
		now := d.defs[name]
		for _, part := range []string{"properties", "head", "properties"} {
			m, _ := now.(map[string]any)
			now = m[part]
		}
		head, ok := now.(map[string]any)
		if ok {
			head["repo"] = map[string]any{
				"anyOf": []any{map[string]any{"type": "null"}, head["repo"]}}
		}
	}
}

// description is the whole description, and the definitions that the extract needs.
type description struct {
	whole any
	defs  map[string]any
}

// at follows a reference within the description; nil if it leads nowhere.
func (d *description) at(ref string) any {
	now := d.whole
	for _, part := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		m, _ := now.(map[string]any)
		now = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return now
}

// follow returns the target of a reference, and everything else unchanged.
func (d *description) follow(v any) map[string]any {
	m, _ := v.(map[string]any)
	if ref, ok := m["$ref"].(string); ok {
		m, _ = d.at(ref).(map[string]any)
	}
	return m
}

func (d *description) operation(method, path string, o map[string]any) any {
	parameters, answers := []any{}, map[string]any{}
	list, _ := o["parameters"].([]any)
	for _, p := range list {
		p := d.follow(p)
		parameters = append(parameters, map[string]any{"name": p["name"], "in": p["in"],
			"required": p["required"] == true, "schema": d.schema(p["schema"])})
	}
	responses, _ := o["responses"].(map[string]any)
	for status, r := range responses {
		answers[status] = d.content(d.follow(r))
	}
	out := map[string]any{"method": method, "path": path, "parameters": parameters,
		"answers": answers}
	if body := d.follow(o["requestBody"]); body != nil {
		out["body"], out["bodyRequired"] = d.content(body), body["required"] == true
	}
	return out
}

// content is the schema of a JSON body; nil where there is none.
func (d *description) content(v map[string]any) any {
	all, _ := v["content"].(map[string]any)
	media, _ := all["application/json"].(map[string]any)
	if media["schema"] == nil {
		return nil
	}
	return d.schema(media["schema"])
}

// schema turns a schema of OpenAPI 3.0 into one of JSON Schema: null is a type there, and
// references lead to $defs.
func (d *description) schema(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = d.schema(v[i])
		}
		return out
	case map[string]any:
		return d.object(v)
	}
	return v
}

func (d *description) object(v map[string]any) any {
	if ref, ok := v["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/components/schemas/")
		d.need(name)
		return map[string]any{"$ref": "#/$defs/" + name}
	}
	out := map[string]any{}
	for key, value := range v {
		switch key {
		case "nullable", "description", "title", "example", "examples", "deprecated",
			"externalDocs":
			if _, property := value.(map[string]any); !property { // a property may have such a name
				continue
			}
			out[key] = d.schema(value)
		case "enum", "default", "required":
			out[key] = value
		default:
			out[key] = d.schema(value)
		}
	}
	if v["nullable"] == true {
		return map[string]any{"anyOf": []any{map[string]any{"type": "null"}, out}}
	}
	return out
}

// need takes a definition along, once.
func (d *description) need(name string) {
	if _, ok := d.defs[name]; ok {
		return
	}
	d.defs[name] = true // a definition may need itself
	d.defs[name] = d.schema(d.at("#/components/schemas/" + name))
}
