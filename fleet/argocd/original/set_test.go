package original_test

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/adoption"
)

const clusterSet = `apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: monitoring, namespace: argocd}
spec:
  goTemplate: true
  generators:
  - clusters: {selector: {matchLabels: {tier: prod}}}
  template:
    metadata: {name: "{{.name}}-monitoring"}
    spec:
      project: default
      source:
        repoURL: https://git.example.com/acme/monitoring
        path: "envs/{{.metadata.labels.region}}/{{.name}}"
        targetRevision: main
      destination: {server: "{{.server}}", namespace: monitoring}
`

func clusterSecret(name, labels string) string {
	return "---\napiVersion: v1\nkind: Secret\nmetadata: {name: " + name +
		", namespace: argocd, labels: {argocd.argoproj.io/secret-type: cluster, " + labels +
		"}}\nstringData: {name: " + name + ", server: 'https://" + name + ".example.com'}\n"
}

func importText(t *testing.T, text string) (*adoption.Outcome, map[string]string) {
	t.Helper()
	found, refused := adoption.Read("all.yaml", []byte(text))
	outcome, err := adoption.Import(adoption.Input{Originals: found, Refused: refused}, options,
		tools)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range outcome.Files {
		files[f.Path] = string(f.Bytes)
	}
	return outcome, files
}

func setResult(t *testing.T, o *adoption.Outcome) adoption.Result {
	t.Helper()
	for _, r := range o.Report.Objects {
		if r.Kind == adoption.KindApplicationSet {
			return r
		}
	}
	t.Fatal("no result of an ApplicationSet")
	return adoption.Result{}
}

// Without a cluster Secret, two assumed clusters prove the deployment, and variables take the place
// of what differs between them.
func TestAnApplicationSetOverUnknownClustersBecomesASelector(t *testing.T) {
	t.Parallel()
	outcome, files := importText(t, clusterSet)
	r := setResult(t, outcome)
	if r.Status != adoption.Exact || r.File != "tenants/platform/deployments/monitoring.yaml" {
		t.Fatalf("%+v", r)
	}
	text := files[r.File]
	for _, want := range []string{"path: envs/${environment.labels.region}/${environment.name}\n",
		"environmentSelector:\n      matchLabels:\n        tier: prod\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "zqx") {
		t.Errorf("a mark is left in\n%s", text)
	}
}

// One selector replaces a merge that changes no cluster, and the choice of a Placement.
func TestOneSelectorReplacesOtherGeneratorsOfClusters(t *testing.T) {
	t.Parallel()
	const clusters = "clusters: {selector: {matchLabels: {tier: prod}}}"
	if !strings.Contains(clusterSet, clusters) {
		t.Fatal("the ApplicationSet has another generator")
	}
	for name, c := range map[string]struct {
		generator, selector string
		status              adoption.Status
	}{
		"merge": {"merge: {mergeKeys: [name], generators: [{" + clusters +
			"}, {list: {elements: []}}]}", "tier: prod", adoption.Exact},
		"a merge by a label": {"merge: {mergeKeys: [metadata.labels.zone], generators: [{" +
			clusters + "}, {list: {elements: [{metadata.labels.zone: eu, x: y}]}}]}", "",
			adoption.Refused},
		"placement": {"clusterDecisionResource: {configMapRef: acm, labelSelector: {matchLabels: " +
			"{cluster.open-cluster-management.io/placement: all}}}",
			"cluster.open-cluster-management.io/placement: all", adoption.Changed},
	} {
		text := strings.Replace(clusterSet, clusters, c.generator, 1)
		if name == "placement" { // it knows no label of a cluster
			text = strings.Replace(text, "{{.metadata.labels.region}}/", "", 1)
		}
		outcome, files := importText(t, text)
		r := setResult(t, outcome)
		if r.Status != c.status || !strings.Contains(files[r.File], c.selector) {
			t.Errorf("%s: %+v\n%s", name, r, files[r.File])
		}
	}
}

const mergedSet = `apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: ingress, namespace: argocd}
spec:
  generators:
  - merge:
      mergeKeys: [name]
      generators:
      - clusters:
          selector:
            matchLabels: {argocd.argoproj.io/secret-type: cluster}
            matchExpressions: [{key: ingress, operator: Exists}]
          values: {version: 1.0.0, size: small, folder: "{{metadata.annotations.folder}}"}
      - clusters: {selector: {matchLabels: {tier: prod}}, values: {version: 2.0.0, size: big}}
      - clusters: {selector: {matchLabels: {tier: same}}, values: {version: 1.0.0}}
      - list: {elements: [{name: eu, values.version: 3.0.0}]}
  template:
    metadata: {name: "{{name}}-ingress"}
    spec:
      project: "{{name}}"
      sources:
      - repoURL: "{{metadata.annotations.values_url}}"
        targetRevision: "{{metadata.annotations.revision}}"
        ref: values
      - repoURL: https://charts.example.com
        chart: ingress
        targetRevision: "{{values.version}}"
        helm:
          valueFiles: ["$values/{{values.folder}}/{{metadata.labels.tier}}/{{name}}.yaml"]
          values: |
            size: {{values.size}}
            account: {{metadata.annotations.example.com/account}}
      destination: {name: "{{name}}", namespace: ingress}
`

// A merge of clusters becomes overrides, and annotations of clusters become variables of
// environments. A repository has the same value in every environment: the report names it.
func TestAMergeOverUnknownClustersBecomesOverrides(t *testing.T) {
	t.Parallel()
	for given, repository := range map[string]string{
		"":                              "https://values-url.invalid/set-me",
		"https://git.example.com/a/val": "https://git.example.com/a/val",
	} {
		o := options
		if given != "" {
			o.Annotations = map[string]string{"values_url": given}
		}
		found, refused := adoption.Read("all.yaml", []byte(mergedSet))
		outcome, err := adoption.Import(adoption.Input{Originals: found, Refused: refused}, o,
			tools)
		if err != nil {
			t.Fatal(err)
		}
		r := setResult(t, outcome)
		if r.Status != adoption.Changed || r.File != "tenants/platform/deployments/ingress.yaml" {
			t.Fatalf("%+v", r)
		}
		text := ""
		for _, f := range outcome.Files {
			if f.Path == r.File {
				text = string(f.Bytes)
			}
		}
		for _, want := range []string{"repoURL: " + repository + "\n",
			"targetRevision: ${environment.variables.revision}\n", "targetRevision: 1.0.0\n",
			"$values/${environment.variables.folder}/${environment.labels.tier}/" +
				"${environment.name}.yaml",
			"account: ${environment.variables.example.com/account}\n",
			"releaseName: ${environment.name}-ingress\n",
			"environmentSelector:\n      matchExpressions:\n        - key: ingress\n",
			"    - selector:\n        matchLabels:\n          tier: prod\n",
			"    - selector:\n        matchLabels:\n          cluster: eu\n",
			"of: ingress\n", "targetRevision: 2.0.0\n", "targetRevision: 3.0.0\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
		if n := strings.Count(text, "- selector:"); n != 2 || strings.Contains(text, "zqx") {
			t.Errorf("%d overrides in\n%s", n, text)
		}
		report := fmt.Sprint(r.Differences, r.Notes)
		for _, want := range []string{"metadata.annotations.values_url", "--annotation",
			"spec.template.spec.project", "list.elements[0]",
			"variables example.com/account, folder, revision:"} {
			if !strings.Contains(report, want) {
				t.Errorf("%q is not in the report: %s", want, report)
			}
		}
	}
}

// Without its repository, an ApplicationSet becomes a set that Argo CD's own form proves for an
// assumed item.
func TestASetIsProvenWithoutItsRepository(t *testing.T) {
	t.Parallel()
	const clusters = "clusters: {selector: {matchLabels: {tier: prod}}}"
	const git = "git: {repoURL: 'https://git.example.com/acme/x', revision: v1, directories: " +
		"[{path: '*/deploy'}]}"
	for name, c := range map[string]struct{ generator, server, environments string }{
		"in place": {git, "https://kubernetes.default.svc", "environments:\n          - main\n"},
		"over clusters": {"matrix: {generators: [{" + clusters + "}, {" + git + "}]}",
			"{{.server}}", "environmentSelector:\n          matchLabels:\n            tier: prod\n"},
	} {
		text := strings.NewReplacer(clusters, c.generator, "{{.server}}", c.server,
			"{{.name}}-monitoring", "x-{{index .path.segments 0}}",
			"envs/{{.metadata.labels.region}}/{{.name}}", "{{.path.path}}/a").Replace(clusterSet)
		outcome, files := importText(t, text)
		r := setResult(t, outcome)
		if r.Status != adoption.Changed || len(r.Differences) != 1 ||
			r.Differences[0].Path != "spec.generators.git" {
			t.Errorf("%s: %+v", name, r)
		}
		for _, want := range []string{"targetRevision: v1\n    paths:\n      - '*/deploy'\n",
			"name: x-${item.path.segments.0}\n", "path: ${item.path}/a\n", c.environments} {
			if !strings.Contains(files[r.File], want) {
				t.Errorf("%s: %q is not in\n%s", name, want, files[r.File])
			}
		}
	}
}

// The result of a comparison with a label of a cluster that is not at hand is that of no cluster.
func TestATemplateThatComparesALabelOfAnUnknownClusterIsRefused(t *testing.T) {
	t.Parallel()
	for with, want := range map[string]adoption.Status{
		`{{if eq .metadata.labels.tier "prod"}}a{{else}}b{{end}}`: adoption.Refused,
		`{{if hasPrefix "p" .metadata.labels.tier}}a{{end}}`:      adoption.Refused,
		`{{default "a" .metadata.labels.tier}}`:                   adoption.Changed,
		`{{index .metadata.labels "tier"}}`:                       adoption.Exact,
	} {
		outcome, files := importText(t, strings.Replace(clusterSet, "{{.name}}\"\n        target",
			strings.ReplaceAll(with, `"`, `\"`)+"\"\n        target", 1))
		if r := setResult(t, outcome); r.Status != want {
			t.Errorf("%s: %+v\n%s", with, r, files[r.File])
		}
	}
}

// A template that changes the name of its cluster has no variable for the result.
func TestATemplateThatVariablesCannotRepeatIsRefused(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]string{
		"a changed name": "{{.name | upper}}",
		"an annotation":  "{{.metadata.annotations.path | upper}}",
	} {
		outcome, files := importText(
			t, strings.Replace(clusterSet, "/{{.name}}\"", "/"+with+"\"", 1))
		if r := setResult(t, outcome); r.Status == adoption.Exact {
			t.Errorf("%s: %+v\n%s", name, r, files[r.File])
		}
	}
}

// With the cluster Secrets at hand, equal Applications become one deployment with the selector; a
// cluster that does not match keeps its environment out of it.
func TestAnApplicationSetOverKnownClustersBecomesASelector(t *testing.T) {
	t.Parallel()
	set := strings.NewReplacer("envs/{{.metadata.labels.region}}/{{.name}}", "deploy").Replace(
		clusterSet)
	other := "---\n" + named("other", "dev")
	outcome, files := importText(t, set+clusterSecret("eu", "tier: prod")+
		clusterSecret("us", "tier: prod")+clusterSecret("dev", "tier: test")+other)
	r := setResult(t, outcome)
	if r.Status != adoption.Exact {
		t.Fatalf("%+v", r)
	}
	if text := files[r.File]; !strings.Contains(text, "environmentSelector:") {
		t.Errorf("no selector in\n%s", text)
	}
	for _, env := range []string{"eu", "us", "dev"} {
		if files["tenants/platform/environments/"+env+".yaml"] == "" {
			t.Errorf("environment %s is not written", env)
		}
	}
}

func named(name, cluster string) string {
	return "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: " + name +
		", namespace: argocd}\nspec:\n  project: default\n  source: {repoURL: " +
		"'https://git.example.com/acme/" + name + "', path: x, targetRevision: main}\n" +
		"  destination: {name: " + cluster + ", namespace: " + name + "}\n"
}

// Applications that are named for their environments become one deployment, whose overrides hold
// what differs; each is still exact.
func TestApplicationsOfOneServiceAreJoinedByOverrides(t *testing.T) {
	t.Parallel()
	app := func(env, path, namespace, policy string) string {
		return "---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: " +
			"checkout-" +
			env + ", namespace: argocd}\nspec:\n  project: default\n  source: {repoURL: " +
			"'https://git.example.com/acme/checkout', path: " + path + ", targetRevision: main, " +
			"helm: {valuesObject: {env: " + env + "}}}\n  syncPolicy: " + policy +
			"\n  destination: {name: " + env + ", namespace: " + namespace + "}\n"
	}
	outcome, files := importText(t, app("eu", "chart", "checkout", "{automated: {prune: true}}")+
		app("us", "chart/us", "checkout-us", "{syncOptions: [ServerSideApply=true]}")+
		clusterSecret("eu", "tier: prod")+clusterSecret("us", "tier: prod"))
	text := files["tenants/platform/deployments/checkout.yaml"]
	for _, want := range []string{"overrides:\n", "environment: us\n", "namespace: checkout-us\n",
		"releaseName: checkout-us\n", "releaseName: checkout-eu\n", "path: chart/us\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, r := range outcome.Report.Objects {
		if r.Kind == adoption.KindApplication && r.Status != adoption.Exact {
			t.Errorf("%+v", r)
		}
	}
}

// An engine holds one credential of a repository. If tenants share an unscoped Secret of Argo CD,
// the reason names the repository; open projects become one tenant.
func TestTenantsThatShareACredential(t *testing.T) {
	t.Parallel()
	const secret = `
---
apiVersion: v1
kind: Secret
metadata: {name: repo, namespace: argocd, labels: {argocd.argoproj.io/secret-type: repository}}
stringData: {type: git, url: "https://git.example.com/acme/app", username: x, password: y}
`
	application := func(name, project string) string {
		return "---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: " +
			name + ", namespace: argocd}\nspec:\n  project: " + project + "\n  source: {repoURL: " +
			"'https://git.example.com/acme/app', path: deploy, targetRevision: main}\n" +
			"  destination: {name: in-cluster, namespace: " + name + "}\n"
	}
	project := func(name, namespace string) string {
		return "---\napiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: " +
			name + ", namespace: argocd}\nspec:\n  sourceRepos: ['*']\n  destinations: [{name: in-cluster, " +
			"namespace: '" + namespace + "'}]\n"
	}
	apps := application("cart", "shop") + application("metrics", "ops") + secret
	for name, c := range map[string]struct {
		projects string
		refused  int
		file     string
	}{
		"open": {project("shop", "*") + project("ops", "*"), 0,
			"tenants/platform/deployments/cart.yaml"},
		"closed": {project("shop", "cart") + project("ops", "metrics"), 1, ""},
	} {
		outcome, files := importText(t, apps+c.projects)
		refused := 0
		for _, r := range outcome.Report.Objects {
			if r.Kind == adoption.KindApplication && r.Status == adoption.Refused {
				refused++
				if !strings.Contains(r.Reason, "https://git.example.com/acme/app") {
					t.Errorf("%s: the reason does not name the repository: %s", name, r.Reason)
				}
			}
		}
		if refused != c.refused || c.file != "" && files[c.file] == "" {
			t.Errorf("%s: %d refused: %+v", name, refused, outcome.Report.Objects)
		}
	}
}
