package inspect

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"

	"argosy.dev/argosy/fleet/mirror"
)

const hidden = "aHVudGVyMg=="

// secretManifest is a Secret whose value is in every place that tools put it into.
func secretManifest(value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db","uid":"u1",
		"managedFields":[{"fieldsV1":{"x":%q}}],
		"annotations":{"kubectl.kubernetes.io/last-applied-configuration":%q,
			"reflector.example.com/copy":%q,"argocd.argoproj.io/tracking-id":"acme:/Secret:shop/db"}},
		"data":{"password":%q,"user":"YWNtZQ=="},"stringData":{"password":%q}}`, value, value, value,
		value, value)
}

func secretDiff(live, target string) *v1alpha1.ResourceDiff {
	return &v1alpha1.ResourceDiff{Kind: "Secret", Namespace: "shop", Name: "db", LiveState: live,
		TargetState: target, NormalizedLiveState: live, PredictedLiveState: target, Modified: true,
		Diff: live}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNoValueOfASecretLeaves(t *testing.T) {
	const other = "c3dvcmRmaXNo"
	app := &v1alpha1.Application{}
	node := mirror.TreeNode{ResourceRef: mirror.ResourceRef{Kind: "Secret", Namespace: "shop",
		Name: "db", UID: "u1"}}
	for name, r := range map[string]*v1alpha1.ResourceDiff{
		"changed":   secretDiff(secretManifest(hidden), secretManifest(other)),
		"created":   secretDiff("null", secretManifest(hidden)),
		"pruned":    secretDiff(secretManifest(hidden), "null"),
		"not a map": secretDiff(`{"data":"`+hidden+`"}`, `{"data":["`+other+`"]}`),
		"normalized": {Kind: "Secret", Namespace: "shop", Name: "db", LiveState: secretManifest(
			hidden), TargetState: secretManifest(other), Modified: true},
	} {
		all := []*v1alpha1.ResourceDiff{r}
		d, err := Diff(app, all)
		if err != nil {
			t.Fatal(err)
		}
		detail, _, err := Detail(all, node)
		if err != nil {
			t.Fatal(err)
		}
		shown := mustJSON(t, d) + mustJSON(t, detail)
		for _, value := range []string{hidden, other, "YWNtZQ=="} {
			if strings.Contains(shown, value) {
				t.Errorf("%s: a value is shown: %s", name, shown)
			}
		}
		if len(d.Resources) != 1 || !d.Resources[0].Masked {
			t.Errorf("%s: %+v", name, d)
		}
	}
	var o map[string]any
	if err := json.Unmarshal([]byte(secretManifest(hidden)), &o); err != nil {
		t.Fatal(err)
	}
	if live := Live(node, o); strings.Contains(mustJSON(t, live), hidden) || !live.Masked {
		t.Errorf("a value is shown: %+v", live)
	}
}

func TestAMaskedDiffShowsWhichKeysDiffer(t *testing.T) {
	d, err := Diff(&v1alpha1.Application{}, []*v1alpha1.ResourceDiff{secretDiff(
		`{"data":{"same":"YQ==","changed":"Yg==","removed":"Yw=="}}`,
		`{"data":{"same":"YQ==","changed":"ZA==","added":"ZQ=="}}`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"-  changed: ++++++++\n", "+  changed: ++++++++ (differs)\n",
		"-  removed: ++++++++\n", "+  added: ++++++++\n", "   same: ++++++++"} {
		if !strings.Contains(d.Resources[0].Diff, line) {
			t.Errorf("%q is not in\n%s", line, d.Resources[0].Diff)
		}
	}
}

func TestTheLastAppliedConfigurationIsNeverShown(t *testing.T) {
	const manifest = `{"kind":"ConfigMap","metadata":{"name":"c","annotations":` +
		`{"kubectl.kubernetes.io/last-applied-configuration":"hunter2"}},"data":{"a":"1"}}`
	d, _, err := Detail([]*v1alpha1.ResourceDiff{{Kind: "ConfigMap", Name: "c",
		LiveState: manifest, TargetState: manifest}}, mirror.TreeNode{
		ResourceRef: mirror.ResourceRef{Kind: "ConfigMap", Name: "c"}})
	if err != nil || strings.Contains(d.Live+d.Desired, "hunter2") || !strings.Contains(d.Live,
		`a: "1"`) {
		t.Errorf("got %v %+v", err, d)
	}
}

func TestDifferencesAreBounded(t *testing.T) {
	var all []*v1alpha1.ResourceDiff
	for i := range mirror.MaxDiffs + 7 {
		all = append(all, &v1alpha1.ResourceDiff{Kind: "ConfigMap", Name: fmt.Sprint("c", i),
			LiveState: "null", TargetState: `{"data":{"a":"1"}}`})
	}
	d, err := Diff(&v1alpha1.Application{}, all)
	if err != nil || len(d.Resources) != mirror.MaxDiffs || d.More != 7 {
		t.Errorf("%v: %d and %d more", err, len(d.Resources), d.More)
	}
	large := `{"data":{"a":"` + strings.Repeat(`line\n`, 1<<20) + `"}}`
	d, err = Diff(&v1alpha1.Application{}, []*v1alpha1.ResourceDiff{{Kind: "ConfigMap", Name: "c",
		LiveState: "null", TargetState: large}})
	if err != nil || len(d.Resources[0].Diff) > mirror.MaxManifestBytes ||
		!d.Resources[0].Truncated {
		t.Errorf("%v: %d bytes", err, len(d.Resources[0].Diff))
	}
}

func FuzzNoSecretValueIsShown(f *testing.F) {
	f.Add(secretManifest("X"), secretManifest("Y"))
	f.Add(`{"data":{"a":{"b":"X"}}}`, `{"stringData":["X"]}`)
	f.Add(`{"metadata":{"annotations":{"a":"X"}}}`, `null`)
	f.Fuzz(func(t *testing.T, live, target string) {
		const value = "kq7wz0value"
		live, target = strings.ReplaceAll(live, "X", value), strings.ReplaceAll(target, "X", value)
		// outside of the secret fields, a manifest may contain anything
		for _, text := range []string{live, target} {
			var o map[string]any
			if json.Unmarshal([]byte(text), &o) != nil && text != "null" {
				return
			}
			meta, _ := o["metadata"].(map[string]any)
			for _, in := range []map[string]any{o, meta} {
				for name, v := range in {
					secret := name == "data" || name == "stringData" || name == "annotations" ||
						name == "managedFields"
					if s, _ := json.Marshal(v); strings.Contains(name, value) ||
						!secret && name != "metadata" && strings.Contains(string(s), value) {
						return
					}
				}
			}
			for _, in := range []any{o["data"], o["stringData"], meta["annotations"]} {
				if m, ok := in.(map[string]any); ok {
					for name := range m {
						if strings.Contains(name, value) || strings.HasPrefix(name, "argocd.") ||
							strings.Contains(name, "helm") || strings.HasPrefix(name, "kube") {
							return
						}
					}
				}
			}
		}
		d, err := Diff(&v1alpha1.Application{}, []*v1alpha1.ResourceDiff{secretDiff(live, target)})
		if err == nil && strings.Contains(mustJSON(t, d), value) {
			t.Errorf("the value is in %+v", d)
		}
	})
}
