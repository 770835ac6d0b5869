package original_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/adoption"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/argocd/original"
	"argosy.dev/argosy/fleet/policy"
	"argosy.dev/argosy/reconciler/plan"
)

func render(files []configschema.File) (all []adoption.Rendered, _ []fleet.Problem, _ error) {
	p, err := plan.Offline(configschema.Inputs(files), "", policy.New().Judge, argocd.Renderer{})
	if err != nil {
		return nil, nil, err
	}
	for _, r := range p.Rows {
		if r.Row.Key.Kind == fleet.ObjectApplication {
			var object map[string]any
			if err := json.Unmarshal(r.Row.Manifest.Body, &object); err != nil {
				return nil, nil, err
			}
			all = append(all, adoption.Rendered{Tenant: r.Row.Tenant, Object: object,
				Deployment: r.Row.Deployment, Environment: r.Row.Environment})
		}
	}
	failed := p.Problems
	for _, placed := range p.Placements {
		if placed.Engine == "" {
			failed = append(failed, fleet.Problem{Severity: fleet.SeverityError,
				Message: placed.Reason, Key: fleet.Key{Kind: fleet.KindManagedEnvironment,
					Tenant: placed.Environment.Tenant, Name: string(placed.Environment.Name)}})
		}
	}
	return all, failed, nil
}

var tools = adoption.Tools{Render: render,
	Normalize: func(o map[string]any, charts func(string) bool) (adoption.Normal, error) {
		n, err := original.Normalize(o, charts)
		return adoption.Normal{Spec: n.Spec, Unknown: n.Unknown}, err
	}}

var options = adoption.Options{Engine: "main", Region: "main", DefaultTenant: "platform"}

// chance picks one of some values.
func chance[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// anApplication is any Application of the shapes that people write.
func anApplication(r *rand.Rand, i int) map[string]any {
	source := map[string]any{"repoURL": chance(r, "https://git.example.com/acme/a",
		"https://git.example.com/acme/b.git", "git@git.example.com:acme/c.git",
		"https://GIT.example.com/acme/a/"), "path": chance(r, "deploy", "./x", "a/b/"),
		"targetRevision": chance(r, "main", "HEAD", "", "v1.2.3")}
	switch r.IntN(5) {
	case 0:
		source = map[string]any{"repoURL": "https://charts.example.com/stable", "chart": "redis",
			"targetRevision": "1.2.3", "helm": map[string]any{"releaseName": chance(r, "", "cache"),
				"valuesObject": map[string]any{"on": r.IntN(2) == 0, "n": r.IntN(9),
					"s": chance(r, "", "null", "1", "multi\nline\n")}}}
	case 1:
		source["helm"] = map[string]any{
			"values":     chance(r, "a: 1\n", "# none\n", "a: [1, {b: ''}]"),
			"parameters": []any{map[string]any{"name": "x", "value": "1"}}}
	case 2:
		source["kustomize"] = map[string]any{"namePrefix": chance(r, "", "eu-"),
			"images": []any{"a=b:c"}}
	case 3:
		source["directory"] = map[string]any{"recurse": r.IntN(2) == 0,
			"exclude": chance(r, "", "x.yaml")}
	}
	policy := map[string]any{"syncOptions": []any{chance(r, "CreateNamespace=true", "Validate=true",
		"ServerSideApply=true", "Nonsense=true")}}
	if r.IntN(3) > 0 {
		policy["automated"] = map[string]any{"prune": r.IntN(2) == 0, "selfHeal": r.IntN(2) == 0}
	}
	if r.IntN(4) == 0 {
		policy["retry"] = map[string]any{"limit": r.IntN(9)}
	}
	metadata := map[string]any{"name": fmt.Sprintf("app-%d", i), "namespace": "argocd"}
	if r.IntN(4) == 0 {
		metadata["annotations"] = map[string]any{"argocd.argoproj.io/sync-wave": "2"}
	}
	spec := map[string]any{
		"project": chance(r, "default", "shop"), "source": source, "syncPolicy": policy,
		"destination": map[string]any{
			"server":    chance(r, "https://kubernetes.default.svc", "https://eu.example.com"),
			"namespace": chance(r, "app", "web", "kube-system", "argocd", "")}}
	decorate(r, metadata, spec)
	return map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": metadata, "spec": spec}
}

// decorate adds fields that declarations have in another form, in part or not at all.
func decorate(r *rand.Rand, metadata, spec map[string]any) {
	switch r.IntN(12) {
	case 0:
		metadata["labels"] = map[string]any{"team": "shop", "kubernetes.io/x": "y"}
	case 1:
		metadata["annotations"] = map[string]any{"description": "a text",
			"notifications.argoproj.io/subscribe.on-deployed.slack": "shop",
			"link.argocd.argoproj.io/docs":                          "https://docs.example.com"}
	case 2:
		metadata["finalizers"] = []any{chance(r, "resources-finalizer.argocd.argoproj.io",
			"resources-finalizer.argocd.argoproj.io/background", "example.com/own")}
	case 3:
		spec["info"] = []any{map[string]any{"name": "owner", "value": "shop"}}
	case 4:
		spec["revisionHistoryLimit"] = chance(r, 0, 3, 10000)
	case 5:
		spec["ignoreDifferences"] = []any{map[string]any{"group": "apps", "kind": "Deployment",
			"jsonPointers": []any{"/spec/replicas"}, chance(r, "name", "names"): "x"}}
	case 6:
		spec["nonsense"] = map[string]any{"on": false, "n": 0}
	case 7:
		spec["sources"] = []any{spec["source"], map[string]any{"ref": "values",
			"repoURL": "https://git.example.com/acme/values", "targetRevision": "main"}}
		delete(spec, "source")
	case 8:
		spec["sources"] = []any{spec["source"]}
		delete(spec, "source")
	}
}

// TestWhatAnImportWritesValidatesAndExactIsEqual imports Applications of any shape. The written
// repo must validate. An exact Application has no difference and the spec of its original but for
// project and cluster; the test renders and compares it by itself.
func TestWhatAnImportWritesValidatesAndExactIsEqual(t *testing.T) {
	t.Parallel()
	exact := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		var in adoption.Input
		byName := map[string]map[string]any{}
		for i := range 1 + r.IntN(12) {
			o := anApplication(r, i)
			byName[fmt.Sprintf("app-%d", i)] = o
			in.Originals = append(in.Originals, adoption.FromObject("apps.yaml", o)...)
		}
		options := options
		options.Adopt = seed%2 == 1
		outcome, err := adoption.Import(in, options, tools)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, p := range configschema.Check(outcome.Files) {
			if p.Severity == fleet.SeverityError {
				t.Errorf("seed %d: %s", seed, p)
			}
		}
		exact += checkExact(t, outcome, byName, options.Adopt)
		if options.Adopt {
			checkKept(t, outcome, byName)
		}
		r.Shuffle(len(in.Originals), func(i, j int) {
			in.Originals[i], in.Originals[j] = in.Originals[j], in.Originals[i]
		})
		again, err := adoption.Import(in, options, tools)
		if err != nil || !reflect.DeepEqual(again, outcome) {
			t.Errorf("seed %d: the order of the originals changes the outcome", seed)
		}
	}
	if exact < 20 {
		t.Errorf("only %d Applications are exact", exact)
	}
}

// checkExact counts the exact Applications. adopted: each is rendered with its name.
func checkExact(t *testing.T, outcome *adoption.Outcome, byName map[string]map[string]any,
	adopted bool) (n int) {
	t.Helper()
	rendered, _, err := render(outcome.Files)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcome.Report.Objects {
		if o.Status != adoption.Exact {
			if len(o.Differences) == 0 && o.Reason == "" {
				t.Errorf("%s %s is %s without a reason", o.Kind, o.Name, o.Status)
			}
			continue
		}
		n++
		was := spec(t, byName[o.Name])
		if !slices.ContainsFunc(rendered, func(r adoption.Rendered) bool {
			metadata, _ := r.Object["metadata"].(map[string]any)
			return reflect.DeepEqual(was, spec(t, r.Object)) &&
				(!adopted || metadata["name"] == o.Name)
		}) {
			t.Errorf("%s is exact, and nothing is rendered with its spec %v", o.Name, was)
		}
	}
	return n
}

// checkKept reports each field of an Application that is neither rendered nor declared nor in a
// difference.
func checkKept(t *testing.T, outcome *adoption.Outcome, byName map[string]map[string]any) {
	t.Helper()
	rendered, _, err := render(outcome.Files)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range outcome.Files {
		files[f.Path] = string(f.Bytes)
	}
	for _, o := range outcome.Report.Objects {
		if o.Kind != adoption.KindApplication || o.Status == adoption.Refused {
			continue
		}
		is := map[string]any{}
		for _, r := range rendered {
			metadata, _ := r.Object["metadata"].(map[string]any)
			if metadata["name"] == o.Name {
				leaves("spec", spec(t, r.Object), is)
				leaves("metadata", metadata, is)
			}
		}
		was := map[string]any{}
		leaves("spec", spec(t, byName[o.Name]), was)
		n, err := original.Normalize(byName[o.Name], nil)
		if err != nil {
			t.Fatal(err)
		}
		for path, v := range n.Unknown {
			was[path] = v
		}
		metadata, _ := byName[o.Name]["metadata"].(map[string]any)
		for _, k := range []string{"labels", "annotations", "finalizers"} {
			leaves("metadata."+k, metadata[k], was)
		}
		for path, v := range was {
			// the declaration has labels, links, the wave and the deletion policy for itself
			text, _ := v.(string)
			declared := path == "metadata.finalizers[0]" &&
				v == "resources-finalizer.argocd.argoproj.io" ||
				path == "metadata.annotations.argocd.argoproj.io/sync-wave" &&
					strings.Contains(files[o.File], "wave: "+text) ||
				(strings.HasPrefix(path, "metadata.labels.") || strings.HasPrefix(path,
					"metadata.annotations.link.")) && strings.Contains(files[o.File], text)
			if !declared && !reflect.DeepEqual(is[path], v) &&
				!slices.ContainsFunc(o.Differences, func(d adoption.Difference) bool {
					at := strings.NewReplacer(`["`, ".", `"]`, "").Replace(d.Path)
					return at == path || strings.HasPrefix(path, at+".") ||
						strings.HasPrefix(path, at+"[")
				}) {
				t.Errorf("%s is %s, and %s = %v is lost: %+v", o.Name, o.Status, path, v,
					o.Differences)
			}
		}
	}
}

// leaves collects the values of a tree by path. Sync options are a set.
func leaves(at string, v any, into map[string]any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			leaves(at+"."+k, e, into)
		}
	case []any:
		for i, e := range v {
			if strings.HasSuffix(at, ".syncOptions") {
				into[fmt.Sprintf("%s[%v]", at, e)] = e
			} else {
				leaves(fmt.Sprintf("%s[%d]", at, i), e, into)
			}
		}
	default:
		into[at] = v
	}
}

func spec(t *testing.T, o map[string]any) map[string]any {
	t.Helper()
	n, err := original.Normalize(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	delete(n.Spec, "project")
	destination, _ := n.Spec["destination"].(map[string]any)
	delete(destination, "server")
	return n.Spec
}

func TestAnImportOfThousandsTakesSeconds(t *testing.T) {
	t.Parallel()
	var in adoption.Input
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		in.Originals = append(in.Originals, adoption.FromObject("", anApplication(r, i))...)
	}
	outcome, err := adoption.Import(in, options, tools)
	if err != nil || len(outcome.Report.Objects) != 2000 {
		t.Fatalf("%v", err)
	}
	t.Logf("%+v", outcome.Report.Summary)
}

// A value of a credential appears in no file and in no line of the report.
func TestNoCredentialIsWrittenOrReported(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-value-of-a-credential"
	found, _ := adoption.Read("all.yaml", []byte(`
apiVersion: v1
kind: Secret
metadata: {name: repo, namespace: argocd, labels: {argocd.argoproj.io/secret-type: repository}}
stringData: {type: git, url: "https://git.example.com/acme/app", username: x, password: `+secret+`}
---
apiVersion: v1
kind: Secret
metadata: {name: eu, namespace: argocd, labels: {argocd.argoproj.io/secret-type: cluster}}
stringData:
  name: eu-1
  server: https://eu.example.com
  config: '{"bearerToken": "`+secret+`"}'
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: app, namespace: argocd}
spec:
  project: default
  source: {repoURL: "https://git.example.com/acme/app", path: deploy, targetRevision: main}
  destination: {name: eu-1, namespace: app}
`))
	outcome, err := adoption.Import(adoption.Input{Originals: found}, options, tools)
	if err != nil {
		t.Fatal(err)
	}
	report, err := yaml.Marshal(outcome.Report)
	if err != nil {
		t.Fatal(err)
	}
	texts := [][]byte{report}
	for _, f := range outcome.Files {
		texts = append(texts, f.Bytes)
	}
	for _, text := range texts {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("the credential is in\n%s", text)
		}
	}
	all := outcome.Report.Commands
	for i, want := range []string{" create namespace ", " create secret ", " create secret "} {
		if len(all) != 3 || !strings.Contains(all[i], want) {
			t.Fatalf("commands: %q", all)
		}
	}
	for _, o := range outcome.Report.Objects {
		if o.Status != adoption.Exact {
			t.Errorf("%s %s is %s: %s %+v", o.Kind, o.Name, o.Status, o.Reason, o.Differences)
		}
	}
}
