package original_test

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/adoption"
	configschema "argosy.dev/argosy/config-schema"
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

// Applications that were released from their ApplicationSet keep the selector that an earlier
// import wrote, and the proof is made with it; a selector of other environments is not theirs.
func TestAnEarlierSelectorIsProven(t *testing.T) {
	t.Parallel()
	web := func(cluster string) string {
		return "---\n" + strings.NewReplacer("{name: web,", "{name: web-"+cluster+",").Replace(
			named("web", cluster))
	}
	var in adoption.Input
	in.Originals, in.Refused = adoption.Read("apps.yaml", []byte(
		clusterSecret("eu", "tier: prod")+clusterSecret("us", "tier: prod")+
			clusterSecret("dev", "tier: test")+web("eu")+web("us")+"---\n"+named("other", "dev")))
	const path = "tenants/platform/deployments/web.yaml"
	imported := func() (string, *adoption.Outcome) {
		outcome, err := adoption.Import(in, options, tools)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range outcome.Files {
			if f.Path == path {
				return string(f.Bytes), outcome
			}
		}
		t.Fatalf("%+v", outcome.Report)
		return "", nil
	}
	names, _ := imported()
	const environments = "    environments:\n      - eu\n      - us\n"
	for selector, kept := range map[string]bool{
		"matchLabels: {tier: prod}":                                        true,
		"matchExpressions: [{key: tier, operator: NotIn, values: [test]}]": true,
		"matchExpressions: [{key: tier, operator: Exists}]":                false,
		"matchLabels: {tier: test}":                                        false,
	} {
		in.Present = []configschema.File{{Path: path, Bytes: []byte("# ours\n" + strings.Replace(
			names, environments, "    environmentSelector: {"+selector+"}\n", 1))}}
		text, outcome := imported()
		if got := strings.Contains(text, "environmentSelector:"); got != kept ||
			strings.Contains(text, environments) == kept {
			t.Errorf("%s:\n%s", selector, text)
		}
		for _, name := range []string{"web-eu", "web-us"} {
			if s := status(outcome, name); s != adoption.Exact {
				t.Errorf("%s: %s is %s", selector, name, s)
			}
		}
	}
	in.Present[0].Bytes = []byte(strings.Replace(string(in.Present[0].Bytes), "main", "v1", 1))
	if text, _ := imported(); text != names {
		t.Errorf("the selector of another deployment is kept:\n%s", text)
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

// An engine has one clone of a repository for all its tenants. If tenants share an unscoped Secret
// of Argo CD, the import proposes that they may read the repository in full.
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
	for name, projects := range map[string]string{
		"open":   project("shop", "*") + project("ops", "*"),
		"closed": project("shop", "cart") + project("ops", "metrics"),
	} {
		outcome, files := importText(t, apps+projects)
		for _, r := range outcome.Report.Objects {
			if r.Kind == adoption.KindApplication && r.Status == adoption.Refused {
				t.Errorf("%s: %+v", name, r)
			}
		}
		for file, text := range map[string]string{
			"tenants/shop/deployments/cart.yaml":   "https://git.example.com/acme/app",
			"tenants/ops/deployments/metrics.yaml": "https://git.example.com/acme/app",
			"fleet/fleet.yaml":                     "sharedRepositories:",
		} {
			if !strings.Contains(files[file], text) {
				t.Errorf("%s: %s: %q", name, file, files[file])
			}
		}
	}
}

// A merge of clusters becomes one deployment with overrides, which is proven on each cluster at
// hand: those that a list names get the label of their override.
func TestAMergeOfClustersIsProvenOnThoseAtHand(t *testing.T) {
	t.Parallel()
	set := func(of string) string {
		return strings.NewReplacer("clusters: {selector: {matchLabels: {tier: prod}}}",
			"merge: {mergeKeys: [name], generators: [{clusters: {"+of+"values: {at: base}}}, "+
				"{list: {elements: [{name: eu, values: {at: eu}}]}}, "+
				"{clusters: {selector: {matchLabels: {zone: b}}, values: {at: b}}}]}",
			"envs/{{.metadata.labels.region}}/{{.name}}", "at/{{.values.at}}",
			"{{.name}}-monitoring", "monitoring-{{.name}}").Replace(clusterSet)
	}
	secrets := clusterSecret("eu", "tier: prod") + clusterSecret("us", "tier: prod, zone: b") +
		clusterSecret("dev", "tier: test")
	for what, c := range map[string]struct {
		text   string
		status adoption.Status
		labels map[string]string // of environments
		want   string
	}{
		"all": {set("") + secrets, adoption.Exact, map[string]string{"eu": "cluster: eu\n"},
			"without-monitoring\n"},
		"those of a label": {set("selector: {matchLabels: {tier: prod}}, ") + secrets + "---\n" +
			named("other", "dev"), adoption.Exact, map[string]string{"eu": "cluster: eu\n"},
			"tier: prod\n"},
		"the own one alone": {set(""), adoption.Changed, nil, "without-monitoring\n"},
		"no namespace": {strings.Replace(set("")+secrets, ", namespace: monitoring}", "}", 1),
			adoption.Changed, nil, "namespace: monitoring\n"},
	} {
		outcome, files := importText(t, c.text)
		r := setResult(t, outcome)
		if r.Status != c.status || r.File != "tenants/platform/deployments/monitoring.yaml" ||
			!strings.Contains(files[r.File], "overrides:") ||
			!strings.Contains(files[r.File], c.want) {
			t.Errorf("%s: %+v\n%s", what, r, files[r.File])
		}
		unproven := strings.Contains(fmt.Sprint(r.Differences), "not proven on Argo CD's own")
		if unproven != (what == "the own one alone") {
			t.Errorf("%s: %+v", what, r.Differences)
		}
		for env, want := range c.labels {
			if text := files["tenants/platform/environments/"+env+".yaml"]; !strings.Contains(text,
				want) {
				t.Errorf("%s: %q is not in\n%s", what, want, text)
			}
		}
	}
	// what no deployment repeats on a cluster at hand stays a deployment of its own
	odd := strings.Replace(set("")+secrets, "monitoring-{{.name}}", "{{.name}}", 1)
	odd = strings.Replace(odd, "at/{{.values.at}}", "at/{{.values.at}}-{{.name}}", 1)
	outcome, files := importText(t, odd)
	if r := setResult(t, outcome); r.Status != adoption.Changed ||
		strings.Contains(files[r.File], "overrides:") {
		t.Errorf("%+v\n%s", r, files[r.File])
	}
}

// Several generators of clusters that differ in one label are one selector, with an override for
// the values of each.
func TestSeveralGeneratorsOfClustersBecomeOneSelector(t *testing.T) {
	t.Parallel()
	set := func(prod, test string) string {
		return strings.NewReplacer("- clusters: {selector: {matchLabels: {tier: prod}}}",
			"- clusters: {selector: {matchLabels: {tier: prod, pick: x}}"+prod+"}\n"+
				"  - clusters: {selector: {matchLabels: {tier: test, pick: x}}"+test+"}",
			"envs/{{.metadata.labels.region}}/{{.name}}", "at/{{.values.at}}").Replace(clusterSet)
	}
	const selector = "environmentSelector:\n      matchLabels:\n        pick: x\n" +
		"      matchExpressions:\n        - key: tier\n          operator: In\n" +
		"          values:\n            - prod\n            - test\n"
	const override = "overrides:\n    - selector:\n        matchLabels:\n" +
		"          pick: x\n          tier: test\n      source:\n        path: at/t\n"
	for what, c := range map[string]struct {
		prod, test string
		secrets    string
		want       []string
		status     adoption.Status
	}{
		"equal values": {", values: {at: a}", ", values: {at: a}", "", []string{selector,
			"path: at/a\n"}, adoption.Exact},
		"other values": {", values: {at: p}", ", values: {at: t}", "", []string{selector, override,
			"path: at/p\n"}, adoption.Exact},
		"clusters at hand": {", values: {at: p}", ", values: {at: t}",
			clusterSecret("eu", "tier: prod, pick: x") + clusterSecret("us", "tier: test, pick: x"),
			[]string{selector, override}, adoption.Exact},
		"other fields": {", values: {at: p}", ", values: {at: t, more: x}", "", nil,
			adoption.Refused},
	} {
		outcome, files := importText(t, set(c.prod, c.test)+c.secrets)
		r := setResult(t, outcome)
		if r.Status != c.status {
			t.Errorf("%s: %+v", what, r)
		}
		for _, want := range c.want {
			if !strings.Contains(files[r.File], want) {
				t.Errorf("%s: %q is not in\n%s", what, want, files[r.File])
			}
		}
		if strings.Contains(fmt.Sprintf("%+v", r), ".merge") {
			t.Errorf("%s: the report names a generator that the ApplicationSet lacks: %+v", what, r)
		}
	}
}

// An import of a part grants no more than an import of the whole: the AppProject is at hand.
func TestAPartOfAnImportIsGrantedNoMoreThanItsProjectPermits(t *testing.T) {
	t.Parallel()
	const text = `apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: PROJECT, namespace: argocd}
spec:
  sourceRepos: ["*"]
  destinations: [{server: "*", namespace: "*"}]
  clusterResourceWhitelist: [{group: rbac.authorization.k8s.io, kind: ClusterRole}]
  roles: [{name: admin, groups: ["acme:shop"]}]
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: checkout, namespace: argocd}
spec:
  project: PROJECT
  source: {repoURL: "https://git.example.com/acme/checkout", path: deploy, targetRevision: main}
  destination: {server: "https://kubernetes.default.svc", namespace: checkout}
`
	for project, tenant := range map[string]string{"shop": "shop", "default": "platform"} {
		var tenants []string
		for _, only := range [][]string{nil, {"checkout"}} {
			found, _ := adoption.Read("all.yaml", []byte(strings.ReplaceAll(text, "PROJECT",
				project)))
			o := options
			o.Only = only
			outcome, err := adoption.Import(adoption.Input{Originals: found}, o, tools)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range outcome.Files {
				if f.Path == "fleet/tenants/"+tenant+".yaml" {
					tenants = append(tenants, string(f.Bytes))
				}
			}
		}
		if len(tenants) != 2 || tenants[0] != tenants[1] || strings.Count(tenants[1],
			"- group: rbac.authorization.k8s.io\n") != 1 {
			t.Errorf("the tenant of project %s is\n%s", project, strings.Join(tenants, "\nthen\n"))
		}
	}
}

// An account gets the rights of Argo CD, and an environment all namespaces of its cluster, only if
// it is proven that no other tenant has Applications there.
func TestATenantGetsNoRightsOverOthersThatTheImportMayHaveMissed(t *testing.T) {
	t.Parallel()
	const text = `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: NAME, namespace: argocd}
spec:
  project: TENANT
  source: {repoURL: "https://git.example.com/acme/NAME", path: deploy, targetRevision: main}
  destination: {server: "SERVER", namespace: NAME}
---
`
	const own, remote = "https://kubernetes.default.svc", "https://eu.example.com"
	app := func(name, tenant, server string) string {
		return strings.NewReplacer("NAME", name, "TENANT", tenant, "SERVER", server).Replace(text)
	}
	shop := app("web", "shop", own) + app("cart", "shop", remote) + `apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: shop, namespace: argocd}
spec:
  sourceRepos: ["*"]
  destinations: [{server: "*", namespace: "*"}]
  clusterResourceWhitelist: [{group: "", kind: Namespace}]
---
`
	present := func(tenant, cluster string) func(*adoption.Input) {
		return func(in *adoption.Input) {
			in.Present = []configschema.File{{Path: "tenants/" + tenant + "/environments/x.yaml",
				Bytes: []byte("spec:\n  cluster: " + cluster + "\n")}}
		}
	}
	nothing := func(*adoption.Input) {}
	for name, c := range map[string]struct {
		text        string
		only        []string
		change      func(*adoption.Input)
		admin, all  bool
		widenedLate bool // a note names the proof
	}{
		"one tenant": {shop, nil, nothing, true, true, false},
		"manifests": {shop, nil, func(in *adoption.Input) { in.Whole = false }, false, false,
			true},
		"a list that is denied": {shop, nil, func(in *adoption.Input) {
			in.Unread = []string{"ApplicationSet: forbidden"}
		}, false, false, true},
		"a document that does not parse": {shop, nil, func(in *adoption.Input) {
			in.Refused = []adoption.Result{{Kind: adoption.KindApplication, Name: "x",
				Status: adoption.Refused, Reason: "it is a template"}}
		}, false, false, true},
		"two tenants on one cluster": {shop + app("blog", "blog", own), nil, nothing, false, true,
			false},
		"one of two tenants": {shop + app("blog", "blog", remote), []string{"web", "cart"},
			nothing, false, false, false},
		"the other one is refused": {shop + strings.Replace(app("blog", "blog", own), "server:",
			"nowhere:", 1), nil, nothing, false, false, false},
		"Argosy created one of another tenant": {shop + strings.Replace(
			app("blog", "blog", remote), "metadata: {", "metadata: {labels: {"+
				"app.kubernetes.io/managed-by: argosy, argosy.dev/tenant: blog}, ", 1), nil,
			nothing, false, false, false},
		"another tenant in the folder": {shop, nil, present("blog", "{server: '"+remote+"'}"),
			false, false, false},
		"another tenant on another cluster": {shop, nil,
			present("blog", "{server: 'https://us.example.com'}"), false, true, false},
		"another tenant on an unknown cluster": {shop, nil, present("blog", "{ref: x}"), false,
			false, false},
		"a broken environment of another tenant": {shop, nil, present("blog", "["), false, false,
			false},
		"the tenant itself in the folder": {shop, nil, present("shop", "{ref: x}"), true, true,
			false},
	} {
		found, _ := adoption.Read("all.yaml", []byte(c.text))
		o := options
		o.Only = c.only
		in := adoption.Input{Originals: found, Whole: true}
		c.change(&in)
		outcome, err := adoption.Import(in, o, tools)
		if err != nil {
			t.Fatal(err)
		}
		commands := strings.Join(outcome.Report.Commands, "\n")
		if got := strings.Contains(commands, "=cluster-admin"); got != c.admin ||
			!strings.Contains(commands, "create serviceaccount") {
			t.Errorf("%s: the commands are\n%s", name, commands)
		}
		all := false
		for _, f := range outcome.Files {
			all = all || strings.HasPrefix(f.Path, "tenants/shop/environments/") &&
				strings.Contains(string(f.Bytes), "allNamespaces: true")
		}
		if all != c.all {
			t.Errorf("%s: allNamespaces %t: %v", name, all, outcome.Files)
		}
		notes := strings.Join(outcome.Report.Notes, "\n")
		if got := strings.Contains(notes, "import the live Argo CD whole"); got != c.widenedLate {
			t.Errorf("%s: the notes are\n%s", name, notes)
		}
	}
}

// A group that no owner can name, such as one with a blank in it, is reported with the owners
// that the tenant has instead.
func TestTheReportNamesGroupsThatOwnNothing(t *testing.T) {
	t.Parallel()
	for group, owner := range map[string]string{"all of acme": "group:shop",
		"leads": "group:leads", "acme:leads": "group:acme:leads"} {
		outcome, _ := importText(t, strings.Replace(project, "spec:",
			"spec:\n  roles: [{name: admin, groups: [\""+group+"\"]}]", 1))
		for _, r := range outcome.Report.Objects {
			reported := ""
			for _, d := range r.Differences {
				if d.Path == "spec.roles[].groups" {
					reported = fmt.Sprint(d.From, d.To)
				}
			}
			want := ""
			if owner == "group:shop" {
				want = fmt.Sprint([]any{group}, []any{owner})
			}
			if reported != want {
				t.Errorf("group %s is reported as %q, want %q", group, reported, want)
			}
		}
	}
}

// One note has the variables of all ApplicationSets, and one the annotations without which a
// repository is not known.
func TestNotesSumUpWhatClustersNeed(t *testing.T) {
	t.Parallel()
	set := func(name, url string) string {
		return strings.NewReplacer("name: monitoring,", "name: "+name+",",
			"{{.name}}-monitoring", "{{.name}}-"+name,
			"https://git.example.com/acme/monitoring", url,
			"{{.metadata.labels.region}}", "{{.metadata.annotations.at}}").Replace(clusterSet)
	}
	outcome, _ := importText(t, set("logs", "'{{.metadata.annotations.repo_url}}'")+"---\n"+
		set("traces", "https://git.example.com/acme/traces"))
	notes := strings.Join(outcome.Report.Notes, "\n")
	for _, want := range []string{
		"give each environment that a selector chooses the variables at (2 ApplicationSets)",
		"import again with --annotation repo_url=VALUE: no cluster at hand has these annotations, " +
			"without which 1 ApplicationSet cannot deploy"} {
		if strings.Count(notes, want) != 1 {
			t.Errorf("%q is not in\n%s", want, notes)
		}
	}
}
