// Command schemas writes the JSON Schemas that kubeconform checks the charts' objects by: those of
// Kubernetes from its OpenAPI document, those of other kinds from their CustomResourceDefinitions.
// A field that is not described is refused, as `kubectl apply --validate=strict` does.
//
//	schemas OUT FILE...   FILE: swagger.json of Kubernetes, or YAML with CustomResourceDefinitions
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

type object = map[string]any

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: schemas OUT FILE...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

func run(out string, files []string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, file := range files {
		read := definitions
		if filepath.Ext(file) == ".json" {
			read = openAPI
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := read(out, content); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// write names a file as kubeconform expects it: kind-group-version, in small letters, the group in
// full. It takes the version for the group of the kinds that have none.
func write(out, kind, group, version string, schema object) error {
	if group == "" {
		group = version
	}
	content, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, strings.ToLower(kind+"-"+group+"-"+version+".json")),
		content, 0o644)
}

// openAPI writes every kind of the document, each with the definitions that it needs.
func openAPI(out string, content []byte) error {
	var doc struct{ Definitions map[string]object }
	if err := json.Unmarshal(content, &doc); err != nil {
		return err
	}
	for _, d := range doc.Definitions {
		shut(d)
	}
	for name, d := range doc.Definitions {
		for _, kind := range kinds(d) {
			needed := object{}
			collect(doc.Definitions, name, needed)
			if err := write(out, kind[0], kind[1], kind[2], object{"$ref": "#/definitions/" + name,
				"definitions": needed}); err != nil {
				return err
			}
		}
	}
	return nil
}

// kinds are the kind, group and version that a definition is for; most are for none.
func kinds(d object) [][3]string {
	var all [][3]string
	list, _ := d["x-kubernetes-group-version-kind"].([]any)
	for _, v := range list {
		k, _ := v.(object)
		kind, _ := k["kind"].(string)
		group, _ := k["group"].(string)
		version, _ := k["version"].(string)
		all = append(all, [3]string{kind, group, version})
	}
	return all
}

// collect adds a definition and all that it refers to.
func collect(all map[string]object, name string, into object) {
	if into[name] != nil {
		return
	}
	into[name] = all[name]
	walk(all[name], func(o object) {
		if ref, ok := o["$ref"].(string); ok {
			collect(all, strings.TrimPrefix(ref, "#/definitions/"), into)
		}
	})
}

func walk(v any, visit func(object)) {
	switch v := v.(type) {
	case object:
		visit(v)
		for _, x := range v {
			walk(x, visit)
		}
	case []any:
		for _, x := range v {
			walk(x, visit)
		}
	}
}

// shut refuses fields that are not described, and expresses OpenAPI's formats in JSON Schema.
func shut(schema object) {
	walk(schema, func(o object) {
		if _, ok := o["properties"].(object); ok && o["type"] == "object" &&
			o["additionalProperties"] == nil && o["x-kubernetes-preserve-unknown-fields"] != true {
			o["additionalProperties"] = false
		}
		if o["format"] == "int-or-string" || o["x-kubernetes-int-or-string"] == true {
			delete(o, "format")
			o["type"] = []any{"string", "integer"}
		}
		// A Quantity may be written as a number.
		if text, _ := o["description"].(string); o["type"] == "string" &&
			strings.HasPrefix(text, "Quantity is") {
			o["type"] = []any{"string", "number"}
		}
		delete(o, "x-kubernetes-validations") // CEL: the API server's
	})
}

// definitions writes the versions of every CustomResourceDefinition in a file.
func definitions(out string, content []byte) error {
	for d := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var crd struct {
			Kind string
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct {
						OpenAPIV3Schema object `yaml:"openAPIV3Schema"`
					}
				}
			}
		}
		err := d.Decode(&crd)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, v := range crd.Spec.Versions {
			schema := v.Schema.OpenAPIV3Schema
			if crd.Kind != "CustomResourceDefinition" || schema == nil {
				continue
			}
			shut(schema)
			open(schema)
			if err := write(out, crd.Spec.Names.Kind, crd.Spec.Group, v.Name, schema); err != nil {
				return err
			}
		}
	}
}

// open leaves the metadata to Kubernetes.
func open(schema object) {
	if properties, ok := schema["properties"].(object); ok {
		properties["metadata"] = object{"type": "object"}
		properties["apiVersion"], properties["kind"] = object{"type": "string"},
			object{"type": "string"}
	}
}
