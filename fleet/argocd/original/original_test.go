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
		"retries that are off": {source + "syncPolicy: {automated: {}}",
			source + "syncPolicy: {automated: {}, retry: {limit: 0}}"},
		"a repository in another case": {source, "source: {repoURL: " +
			"'https://git.example.com/Acme/app', path: deploy, targetRevision: HEAD}"},
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
	n := normal(t, source+"syncPolicy: {automated: {selfheal2: true, Prune: true}}\n"+
		"nonsense: [1]\nzero: 0\nnone: null\nignoreDifferences: [{kind: A, kinds: B}]\n")
	want := map[string]any{"spec.nonsense": true, "spec.syncPolicy.automated.selfheal2": true,
		"spec.syncPolicy.automated.Prune": true, "spec.zero": true,
		"spec.ignoreDifferences[0].kinds": true}
	for k := range want {
		if n.Unknown[k] == nil {
			t.Errorf("%s is not unknown: %v", k, n.Unknown)
		}
	}
	if len(n.Unknown) != len(want) {
		t.Errorf("%v", n.Unknown)
	}
}

func TestEveryFieldOfArgoCDIsKnown(t *testing.T) {
	t.Parallel()
	n := normal(t, `
project: x
destination: {name: a, namespace: b}
sourceHydrator: {drySource: {repoURL: a, path: b, targetRevision: c}}
revisionHistoryLimit: 0
info: [{name: a, value: b}]
source:
  repoURL: https://git.example.com/acme/app
  helm: {valuesObject: {a: {b: c}}, fileParameters: [{name: a, path: b}], skipTests: true}
  kustomize: {patches: [{target: {kind: A, labelSelector: a=b}, patch: x, options: {y: true}}],
    replicas: [{name: a, count: 2}]}
  directory: {jsonnet: {tlas: [{name: a, value: b, code: true}]}}
  plugin: {parameters: [{name: a, array: [b]}, {name: c, map: {d: e}}], env: [{name: f, value: g}]}
syncPolicy:
  retry: {limit: 3, backoff: {duration: 5s, factor: 2, maxDuration: 3m}}
  managedNamespaceMetadata: {labels: {a: b}, annotations: {c: d}}
ignoreDifferences: [{group: a, kind: b, jqPathExpressions: [c], managedFieldsManagers: [d]}]
`)
	if len(n.Unknown) > 0 {
		t.Error(n.Unknown)
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
