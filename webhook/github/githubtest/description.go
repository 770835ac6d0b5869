package githubtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// description is GitHub's published description of the operations in Paths.
type description struct {
	Operations []*operation   `json:"operations"`
	Defs       map[string]any `json:"$defs"`

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

type operation struct {
	Method       string         `json:"method"`
	Path         string         `json:"path"`
	Parameters   []parameter    `json:"parameters"`
	Body         any            `json:"body"`
	BodyRequired bool           `json:"bodyRequired"`
	Answers      map[string]any `json:"answers"` // schema of the body by status; nil for none

	at string // its path in the description
}

type parameter struct {
	Name     string         `json:"name"`
	In       string         `json:"in"`
	Required bool           `json:"required"`
	Schema   map[string]any `json:"schema"`
}

const location = "operations.json"

// described reads the description once for all tests of a process.
var described = sync.OnceValues(func() (*description, error) {
	root, err := root()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(root, ".cache", "github-openapi", "operations.json")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil,
			fmt.Errorf(
				"GitHub's OpenAPI description is not there: run scripts/parts.sh github-openapi (%w)", err)
	}
	return load(text)
})

// root is the checkout that the test runs in.
func root() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, gone := os.Stat(filepath.Join(dir, "scripts", "parts.sh")); gone == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("the test does not run in a checkout")
		}
	}
	return "", err
}

func load(text []byte) (*description, error) {
	d := &description{compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	for i, o := range d.Operations {
		o.at = "#/operations/" + strconv.Itoa(i)
	}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	return d, d.compiler.AddResource(location, doc)
}

// schema compiles the schema at a place of the description.
func (d *description) schema(at string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.compiled[at]; s != nil {
		return s, nil
	}
	s, err := d.compiler.Compile(location + at)
	if err == nil {
		d.compiled[at] = s
	}
	return s, err
}

func (d *description) check(at string, v any) error {
	s, err := d.schema(at)
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// find gives the operation of a request and the parameters in its path.
func (d *description) find(method, path string) (*operation, map[string]string) {
	for _, o := range d.Operations {
		if o.Method != method {
			continue
		}
		if values, ok := match(o.Path, path); ok {
			return o, values
		}
	}
	return nil, nil
}

func match(template, path string) (map[string]string, bool) {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	if last := want[len(want)-1]; len(got) > len(want) && (last == "{path}" || last == "{ref}") {
		n := len(want) - 1 // the rest of the path is one value
		got = append(got[:n:n], url.PathEscape(strings.Join(got[n:], "/")))
	}
	if len(want) != len(got) {
		return nil, false
	}
	values := map[string]string{}
	for i, part := range want {
		text, err := url.PathUnescape(got[i])
		switch {
		case err != nil || text == "":
			if part != got[i] {
				return nil, false
			}
		case strings.HasPrefix(part, "{"):
			values[strings.Trim(part, "{}")] = text
		case part != text:
			return nil, false
		}
	}
	return values, true
}

// checkRequest returns the parts of a request that GitHub's description does not know.
func (d *description) checkRequest(o *operation, r *http.Request, inPath map[string]string,
	body []byte) error {
	known := map[string]bool{}
	for i, p := range o.Parameters {
		text, given := inPath[p.Name]
		if p.In == "query" {
			known[p.Name] = true
			text, given = r.URL.Query().Get(p.Name), r.URL.Query().Has(p.Name)
		}
		if !given && p.Required {
			return fmt.Errorf("the %s parameter %s is missing", p.In, p.Name)
		}
		if given {
			if err := d.check(o.at+"/parameters/"+strconv.Itoa(i)+"/schema",
				typed(p.Schema, text)); err != nil {
				return fmt.Errorf("%s parameter %s: %w", p.In, p.Name, err)
			}
		}
	}
	for name, values := range r.URL.Query() {
		if !known[name] || len(values) != 1 {
			return fmt.Errorf("there is no query parameter %s, or only one of it", name)
		}
	}
	return d.checkBody(o, r, body)
}

func (d *description) checkBody(o *operation, r *http.Request, body []byte) error {
	switch {
	case len(body) == 0 && o.BodyRequired:
		return errors.New("a body is required")
	case len(body) == 0:
		return nil
	case o.Body == nil:
		return errors.New("the operation has no body")
	case r.Header.Get("Content-Type") != "application/json":
		return errors.New("the Content-Type is not application/json")
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	if err := d.check(o.at+"/body", v); err != nil {
		return fmt.Errorf("body: %w", err)
	}
	return d.unknown(o.Body, v, "body")
}

// typed is a parameter's text as its schema means it.
func typed(schema map[string]any, text string) any {
	switch schema["type"] {
	case "integer", "number":
		return json.Number(text)
	case "boolean":
		return text == "true"
	}
	return text
}

// unknown finds a field that the schema has not: GitHub ignores it, and so a misspelt one would go
// unnoticed.
func (d *description) unknown(schema, v any, at string) error {
	s := d.resolve(schema)
	switch v := v.(type) {
	case map[string]any:
		properties, closed := s["properties"].(map[string]any)
		if !closed || s["additionalProperties"] != nil {
			return nil
		}
		for name, value := range v {
			p, ok := properties[name]
			if !ok {
				return fmt.Errorf("%s.%s: there is no such field", at, name)
			}
			if err := d.unknown(p, value, at+"."+name); err != nil {
				return err
			}
		}
	case []any:
		for _, item := range v {
			if err := d.unknown(s["items"], item, at+"[]"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *description) resolve(schema any) map[string]any {
	s, _ := schema.(map[string]any)
	if ref, ok := s["$ref"].(string); ok {
		return d.resolve(d.Defs[strings.TrimPrefix(ref, "#/$defs/")])
	}
	return s
}

// usual are the statuses that any operation may answer with, whether the description lists them for
// it or not.
var usual = map[int]bool{304: true, 401: true, 403: true, 404: true, 422: true, 429: true,
	500: true, 502: true, 503: true}

// checkAnswer returns the parts of a response that do not fit the description.
func (d *description) checkAnswer(o *operation, status int, body []byte) error {
	at := o.at + "/answers/" + strconv.Itoa(status)
	schema, listed := o.Answers[strconv.Itoa(status)]
	switch {
	case !listed && !usual[status]:
		return fmt.Errorf("%s %s does not answer %d", o.Method, o.Path, status)
	case status == http.StatusNotModified || listed && schema == nil:
		if len(body) > 0 {
			return fmt.Errorf("%d has no body", status)
		}
		return nil
	case !listed:
		at = "#/$defs/basic-error"
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return d.check(at, v)
}
