package adoption

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// Kinds of originals.
const (
	KindApplication    = "Application"
	KindApplicationSet = "ApplicationSet"
	KindProject        = "AppProject"
	KindSecret         = "Secret"
)

// Original is one object of Argo CD as it was found.
type Original struct {
	Kind, Namespace, Name string
	File                  string // path below the folder that is read; empty: from a cluster
	Object                map[string]any

	adopted bool // by Argosy; Object is as it was before
}

// maxText bounds the bytes of one file of manifests.
const maxText = 16 << 20

var (
	separator = regexp.MustCompile(`(?m)^---(?:[ \t].*)?\r?$`)
	ourKind   = regexp.MustCompile(
		`(?m)^kind:[ \t]*["']?(Application|ApplicationSet|AppProject)["']?[ \t]*\r?$`)
	ourName = regexp.MustCompile(`(?m)^  name:[ \t]*["']?([^"'\r\n]+?)["']?[ \t]*\r?$`)
)

// Read returns the objects of Argo CD in a file of manifests: YAML of several documents, Lists, or
// JSON. A document that does not parse costs only itself: if it is an object of Argo CD, it is
// returned as refused with the reason. Other objects are skipped.
func Read(file string, text []byte) (found []Original, refused []Result) {
	if len(text) > maxText || !bytes.Contains(text, []byte("argoproj.io")) {
		return nil, nil
	}
	for _, doc := range separator.Split(string(text), -1) {
		if !strings.Contains(doc, "argoproj.io") {
			continue
		}
		object, err := parse(doc)
		if err != nil {
			if r, ours := unreadable(file, doc, err); ours {
				refused = append(refused, r)
			}
			continue
		}
		found = append(found, originals(file, object, 0)...)
	}
	return found, refused
}

func parse(doc string) (object map[string]any, err error) {
	defer func() {
		// a panic of the parser, which is third-party code
		if recover() != nil {
			object, err = nil, fmt.Errorf("it cannot be parsed")
		}
	}()
	b, err := yaml.YAMLToJSON([]byte(doc))
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	object, _ = tree.(map[string]any)
	return object, nil
}

// FromObject returns the originals of one decoded object, which may be a List.
func FromObject(file string, object map[string]any) []Original {
	return originals(file, object, 0)
}

func originals(file string, object map[string]any, depth int) (found []Original) {
	kind, group := text(object, "kind"), group(text(object, "apiVersion"))
	if items, ok := object["items"].([]any); ok && strings.HasSuffix(kind, "List") && depth < 4 {
		for _, item := range items {
			if o, ok := item.(map[string]any); ok {
				if text(o, "kind") == "" { // the items of a typed list may omit them
					o["kind"] = strings.TrimSuffix(kind, "List")
					o["apiVersion"] = object["apiVersion"]
				}
				found = append(found, originals(file, o, depth+1)...)
			}
		}
		return found
	}
	argo := group == "argoproj.io" && (kind == KindApplication || kind == KindApplicationSet ||
		kind == KindProject)
	if !argo && (group != "" || kind != KindSecret || secretType(object) == "") {
		return nil
	}
	return []Original{{Kind: kind, Namespace: text(object, "metadata", "namespace"),
		Name: text(object, "metadata", "name"), File: file, Object: object}}
}

// secretType is "cluster", "repository", "repo-creds" or another type of Argo CD's Secrets.
func secretType(object map[string]any) string {
	return text(object, "metadata", "labels", "argocd.argoproj.io/secret-type")
}

func group(apiVersion string) string {
	g, _, found := strings.Cut(apiVersion, "/")
	if !found {
		return ""
	}
	return g
}

// unreadable is the result of a document that does not parse, if it is an object of Argo CD.
func unreadable(file, doc string, err error) (Result, bool) {
	kind := ourKind.FindStringSubmatch(doc)
	if kind == nil {
		return Result{}, false
	}
	r := Result{Kind: kind[1], Source: file, Status: Refused}
	if name := ourName.FindStringSubmatch(doc); name != nil {
		r.Name = name[1]
	}
	if r.Reason = templated(doc); r.Reason == "" {
		line, _, _ := strings.Cut(err.Error(), "\n")
		r.Reason = "it is not YAML: " + strings.TrimPrefix(line, "error converting YAML to JSON: ")
	}
	return r, true
}

var templates = []struct {
	form   *regexp.Regexp
	reason string
}{
	{regexp.MustCompile(`\{\{`),
		"it is a template: render it first, e.g. with helm template, or import the live objects"},
	{regexp.MustCompile(`\$\{[A-Za-z_]|\$[A-Z_]{3,}|\$\([A-Za-z_]`),
		"it has placeholders of a shell or a pipeline: fill them first, or import the live objects"},
	{regexp.MustCompile(`<[A-Za-z][A-Za-z0-9 _.-]*>|<%|%[A-Z_]{3,}%|@@`),
		"it has placeholders: fill them first, or import the live objects"},
}

// templated is the reason why a text is a template, or "".
func templated(s string) string {
	for _, t := range templates {
		if t.form.MatchString(s) {
			return t.reason
		}
	}
	return ""
}

// text is the text at a path of a tree, or "".
func text(tree map[string]any, path ...string) string {
	s, _ := at(tree, path...).(string)
	return s
}

func at(tree map[string]any, path ...string) any {
	var v any = tree
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return v
}

func object(tree map[string]any, path ...string) map[string]any {
	m, _ := at(tree, path...).(map[string]any)
	return m
}

func list(tree map[string]any, path ...string) []any {
	l, _ := at(tree, path...).([]any)
	return l
}

// texts are the texts of a list, without other values.
func texts(tree map[string]any, path ...string) (out []string) {
	for _, v := range list(tree, path...) {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
