package jq

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/itchyny/gojq"
)

// accepted are the shapes of expressions in real manifests.
var accepted = []string{
	`.spec.replicas`,
	`.spec.data[].remoteRef.conversionStrategy`,
	`.webhooks[]?.clientConfig.caBundle`,
	`.spec.template.metadata.annotations."example.com/injected-by"`,
	`.metadata.annotations["a.b/c"]`,
	`.spec.template.spec.containers[] | select(.name == "proxy")`,
	`.spec.template.spec.initContainers[]? | select(.name | test("^init-")) | .image`,
	`.spec.containers[0, 1].image, .spec.volumes[-1]`,
	`.spec.ports[1:3]`,
	`.spec.env[] | select(.name == "A" or (.value // "" | startswith("x")) and (.b | not))`,
	`.spec.containers[] | select(.env[].name == "A") | .env[] | select(.name | IN("A", "B"))`,
	`.spec.containers[] | select(any(.ports[]; .containerPort == 80)) | .ports`,
	`if .kind == "Deployment" then .spec.a elif .x then .b else .spec.c end`,
	`.spec | .a? // .b`,
	`.data | objects | .["tls.key"]`,
	`first(.a[] | select(.b > -1))`,
	`.spec.template.spec.containers[].resources | select(has("limits")) | .limits.cpu`,
	`."$patch"`,
}

var refusals = map[string]struct{ expression, message string }{
	"nothing":                   {``, "empty"},
	"the resource":              {`.`, "whole resource"},
	"an open bracket":           {`.a[`, "parse"},
	"a second call":             {`.a) | (.b`, "parse"},
	"a comment":                 {".a # b", "comments"},
	"recursive descent":         {`..`, "no bound"},
	"recurse":                   {`recurse | .a`, "recurse/0"},
	"recurse with a step":       {`recurse(.a)`, "recurse/1"},
	"a loop":                    {`[limit(1e9; repeat(1))]`, "not allowed"},
	"a range":                   {`.[range(1e9)]`, "only a text"},
	"a range in a condition":    {`.a | select(range(1e9) == .)`, "range/1"},
	"until":                     {`.a | select(until(false; .))`, "until/2"},
	"a definition":              {`def f: f; .a | f`, "def"},
	"a definition inside":       {`.a | (def f: f; f)`, "def"},
	"a variable":                {`. as $x | .a`, "variable"},
	"an environment variable":   {`.a | select($ENV.PATH == "x")`, "not allowed"},
	"the environment":           {`.a | select(env.PATH == "x")`, "env/0"},
	"input":                     {`.a | select(input == 1)`, "input/0"},
	"a module":                  {`import "a" as a; .a`, "module"},
	"reduce":                    {`reduce .a[] as $x (.; .)`, "not allowed"},
	"foreach":                   {`.a | select(foreach .[] as $x (0; .))`, "not allowed"},
	"a label":                   {`label $f | .a`, "not allowed"},
	"a repeated text":           {`.a | select(("x" * 1e9) == .)`, "operator *"},
	"a sum":                     {`.a | select(. + . == 1)`, "operator +"},
	"an update":                 {`.a |= .b`, "operator |="},
	"an interpolation":          {`.a | select("\(.)" == "x")`, "interpolation"},
	"a format":                  {`.a | select(@base64 == "x")`, "not allowed"},
	"a text of the resource":    {`.a | select(tojson == "x")`, "tojson/0"},
	"a pattern of the resource": {`.a | select(test(.b))`, "only a text"},
	"a counted pattern":         {`.a | select(test("(a{30}){30}"))`, "instructions"},
	"a broken pattern":          {`.a | select(test("("))`, "test"},
	"contains of the resource":  {`.a | select(contains(.))`, "only a text"},
	"a value":                   {`"a"`, "not allowed"},
	"a length":                  {`.a | length`, "length/0"},
	"entries":                   {`to_entries[]`, "to_entries/0"},
	"an object":                 {`{a: .b}`, "not allowed"},
	"a list":                    {`[.a]`, "not allowed"},
	"two iterated conditions":   {`.a | select(.b[]) | select(.c[])`, "more than once"},
	"a cartesian product":       {`.a | select(.b[] == .c[])`, "more than once"},
	"many alternatives":         {strings.Repeat("(.,.)|", 7) + ".a", "alternatives"},
	"many steps":                {strings.Repeat(".a", maxSteps+1), "steps"},
	"a long text":               {"." + strings.Repeat("a", MaxText), "bytes"},
	"no path":                   {`.a | not`, "not/0"},
}

func TestPathsOfRealManifestsAreAccepted(t *testing.T) {
	for _, e := range accepted {
		if err := Check(e); err != nil {
			t.Errorf("%s: %v", e, err)
		}
	}
}

func TestExpressionsWithoutBoundAreRefused(t *testing.T) {
	for name, c := range refusals {
		if err := Check(c.expression); err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %s: %v, want %q", name, c.expression, err, c.message)
		}
	}
}

// wide returns a resource with n values in one list.
func wide(n int) map[string]any {
	list := make([]any, n)
	for i := range list {
		list[i] = map[string]any{"name": "a", "a": []any{"b"}, "b": "c"}
	}
	return map[string]any{"kind": "Deployment", "a": list, "b": "x", "spec": map[string]any{
		"a": list[:n/2], "data": map[string]any{"a": "b"}}}
}

// evaluate runs an expression as Argo CD runs it, and returns the bytes that it allocates.
func evaluate(t testing.TB, expression string, resource map[string]any) uint64 {
	t.Helper()
	query, err := gojq.Parse("del(" + expression + ")")
	if err != nil {
		t.Fatalf("%q passes, and Argo CD cannot parse it: %v", expression, err)
	}
	code, err := gojq.Compile(query)
	if err != nil {
		t.Fatalf("%q passes, and Argo CD cannot compile it: %v", expression, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	results := code.RunWithContext(ctx, resource)
	result, _ := results.Next()
	if err, failed := result.(error); failed {
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%q does not end", expression)
		}
	} else if _, more := results.Next(); more {
		t.Fatalf("%q has several results", expression)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestTheCostIsProportionalToTheResource(t *testing.T) {
	small, large := wide(500), wide(5000)
	for _, e := range append([]string{`.a[] | select(.a[] == "b") | .name`,
		strings.Repeat("(.,.)|", 6) + ".a[].name", `.a[] | select(any(.a[]; . == "b"))`},
		accepted...) {
		if err := Check(e); err != nil {
			t.Errorf("%s: %v", e, err)
			continue
		}
		a, b := evaluate(t, e, small), evaluate(t, e, large)
		if b > 20*a+1<<20 {
			t.Errorf("%s allocates %d bytes for 500 values and %d for 5,000", e, a, b)
		}
	}
}

// FuzzCheck finds accepted expressions that Argo CD cannot compile, that return more than one
// result, do not end, or allocate out of proportion to the resource.
func FuzzCheck(f *testing.F) {
	for _, e := range accepted {
		f.Add(e)
	}
	for _, c := range refusals {
		f.Add(c.expression)
	}
	resource := wide(20)
	size, err := json.Marshal(resource)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		if Check(expression) != nil {
			return
		}
		if n := evaluate(t, expression, resource); n > uint64(len(size))*100*maxAlternatives {
			t.Errorf("%q allocates %d bytes for a resource of %d", expression, n, len(size))
		}
	})
}
