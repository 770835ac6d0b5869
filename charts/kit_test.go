package charts

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"
)

// kubeVersion is the Kubernetes version for rendering.
const kubeVersion = "1.33.0"

// part returns the path of a tool that scripts/parts.sh builds.
func part(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", ".cache", "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is not there: run scripts/parts.sh %s", name, name)
	}
	return path
}

// run runs a tool in this folder with input, and returns its output.
func run(t *testing.T, input []byte, tool string, args ...string) (string, string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), part(t, tool), args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &errs
	err := cmd.Run()
	return out.String(), errs.String(), err
}

// rendered caches helm's output by arguments, for several tests.
var rendered sync.Map

// render runs `helm template` for a chart in a namespace.
func render(t *testing.T, chart, namespace string, args ...string) (string, error) {
	t.Helper()
	key := strings.Join(append([]string{chart, namespace}, args...), "\x00")
	if text, ok := rendered.Load(key); ok {
		return text.(string), nil
	}
	out, errs, err := run(t, nil, "helm",
		append([]string{"template", "release", chart, "--namespace", namespace, "--kube-version",
			kubeVersion}, args...)...)
	if err != nil {
		return "", errors.New(errs)
	}
	rendered.Store(key, out)
	return out, nil
}

type object map[string]any

// objects returns the objects of a chart with the values of a file in its folder ci.
func objects(t *testing.T, chart, namespace string, args ...string) []object {
	t.Helper()
	text, err := render(t, chart, namespace, args...)
	if err != nil {
		t.Fatal(err)
	}
	var all []object
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if o != nil {
			all = append(all, o)
		}
	}
}

func ci(chart, name string) []string {
	return []string{"--values", filepath.Join(chart, "ci", name+"-values.yaml")}
}

func (o object) String() string { return o.at("kind") + "/" + o.at("metadata", "name") }

// get returns the value at a path of keys, or nil.
func (o object) get(path ...string) any {
	var v any = map[string]any(o)
	for _, key := range path {
		m, ok := asMap(v)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

func asMap(v any) (map[string]any, bool) {
	switch m := v.(type) {
	case map[string]any:
		return m, true
	case object:
		return m, true
	}
	return nil, false
}

// at returns the text at a path, or "".
func (o object) at(path ...string) string {
	text, _ := o.get(path...).(string)
	return text
}

// find returns the only object of a kind with a name.
func find(t *testing.T, all []object, kind, name string) object {
	t.Helper()
	var found []object
	for _, o := range all {
		if o.at("kind") == kind && o.at("metadata", "name") == name {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects are %s/%s, of %v", len(found), kind, name, all)
	}
	return found[0]
}

// pod returns the Pod spec of a Pod or a workload, or nil.
func (o object) pod() object {
	spec, _ := asMap(o.get("spec", "template", "spec"))
	if o.at("kind") == "Pod" {
		spec, _ = asMap(o.get("spec"))
	}
	return spec
}

func (o object) list(path ...string) []object {
	items, _ := o.get(path...).([]any)
	var all []object
	for _, i := range items {
		m, _ := asMap(i)
		all = append(all, m)
	}
	return all
}

// text returns a value as JSON, for comparisons.
func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
