package original_test

import (
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/fleet/argocd/original"
)

func normal(t *testing.T, spec string, charts ...string) original.Application {
	t.Helper()
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(spec), &tree); err != nil {
		t.Fatal(err)
	}
	n, err := original.Normalize(map[string]any{"metadata": map[string]any{"name": "app"},
		"spec": tree}, func(folder string) bool { return len(charts) > 0 && charts[0] == folder })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const source = "source: {repoURL: 'https://git.example.com/acme/app', path: deploy, " +
	"targetRevision: HEAD}\n"

// Each pair has one meaning for Argo CD.
func TestTwoWaysOfWritingOneApplicationHaveOneForm(t *testing.T) {
	t.Parallel()
	for name, pair := range map[string][2]string{
		"project default": {source, "project: default\n" + source},
		"no revision": {source,
			"source: {repoURL: 'https://git.example.com/acme/app', path: deploy}"},
		"spellings of a repository": {source,
			"source: {repoURL: 'https://GIT.example.com/acme/app.git', path: ./deploy/}"},
		"scp form": {
			"source: {repoURL: 'ssh://git@git.example.com/acme/app', path: deploy}",
			"source: {repoURL: 'git@git.example.com:acme/app.git', path: deploy}"},
		"empty tools": {source, "source: {repoURL: 'https://git.example.com/acme/app', " +
			"path: deploy, directory: {recurse: false}, kustomize: {}, helm: {}}"},
		"options with their defaults": {source + "syncPolicy: {syncOptions: [A=1, B=2]}",
			source + "syncPolicy: {syncOptions: [B=2, Validate=true, PruneLast=false, A=1, A=1]}"},
		"an empty policy": {source, source + "syncPolicy: {syncOptions: []}"},
		"automated.enabled": {source + "syncPolicy: {automated: {prune: true}}",
			source + "syncPolicy: {automated: {enabled: true, prune: true, selfHeal: false}}"},
		"automated that is not enabled": {source,
			source + "syncPolicy: {automated: {enabled: false, prune: true}}"},
		"values as text and as an object": {
			"source: {repoURL: 'https://c.example.com', chart: x, targetRevision: 1.0.0, " +
				"helm: {values: \"# two\\na: {b: 1}\\n\"}}",
			"source: {repoURL: 'https://c.example.com/', chart: x, targetRevision: 1.0.0, " +
				"helm: {version: v3, values: 'ignored: true', valuesObject: {a: {b: 1}}}}"},
		"the release's default name": {
			"source: {repoURL: 'https://c.example.com', chart: x, targetRevision: 1.0.0}",
			"source: {repoURL: 'https://c.example.com', chart: x, targetRevision: 1.0.0, " +
				"helm: {releaseName: app}}"},
	} {
		a, b := normal(t, pair[0]), normal(t, pair[1])
		if !reflect.DeepEqual(a.Spec, b.Spec) {
			t.Errorf("%s:\n%v\n%v", name, a.Spec, b.Spec)
		}
	}
}

func TestDifferentApplicationsHaveDifferentForms(t *testing.T) {
	t.Parallel()
	for name, pair := range map[string][2]string{
		"self-heal": {source + "syncPolicy: {automated: {}}",
			source + "syncPolicy: {automated: {selfHeal: true}}"},
		"automation": {source, source + "syncPolicy: {automated: {}}"},
		"a value that is false": {source,
			"source: {repoURL: 'https://git.example.com/acme/app', path: deploy, " +
				"helm: {valuesObject: {a: false}}}"},
		"an excluded file": {source, "source: {repoURL: 'https://git.example.com/acme/app', " +
			"path: deploy, directory: {exclude: x.yaml}}"},
		"a pattern of a folder": {source,
			"source: {repoURL: 'https://git.example.com/acme/app', path: deploy, plugin: {}}"},
	} {
		a, b := normal(t, pair[0]), normal(t, pair[1])
		if reflect.DeepEqual(a.Spec, b.Spec) {
			t.Errorf("%s: %v", name, a.Spec)
		}
	}
}

func TestAFolderWithAChartHasTheNameOfItsRelease(t *testing.T) {
	t.Parallel()
	n := normal(t, source, "deploy")
	if helm, _ := n.Spec["source"].(map[string]any)["helm"].(map[string]any); helm == nil ||
		helm["releaseName"] != "app" {
		t.Errorf("%v", n.Spec)
	}
}

func TestAFieldThatArgoCDLacksIsUnknown(t *testing.T) {
	t.Parallel()
	n := normal(t, source+"syncPolicy: {automated: {selfheal2: true}}\nnonsense: [1]\nzero: 0\n")
	want := map[string]any{"spec.nonsense": true, "spec.syncPolicy.automated.selfheal2": true}
	for k := range want {
		if n.Unknown[k] == nil {
			t.Errorf("%s is not unknown: %v", k, n.Unknown)
		}
	}
	if len(n.Unknown) != len(want) {
		t.Errorf("%v", n.Unknown)
	}
}

func TestASpecOfAnotherTypeIsRefusedWithItsField(t *testing.T) {
	t.Parallel()
	_, err := original.Normalize(map[string]any{"spec": map[string]any{"source": map[string]any{
		"targetRevision": 1.5}}}, nil)
	if err == nil || err.Error() !=
		"spec is no Application's: source.targetRevision cannot be a number" {
		t.Errorf("%v", err)
	}
}
