package adoption

import (
	"strings"
	"testing"
)

const ofAllClusters = `apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: web, namespace: argocd}
spec:
  generators:
  - merge:
      mergeKeys: [nameNormalized]
      generators:
      - clusters: {values: {folder: base}}
      - list: {elements: [{nameNormalized: eu-1, values.folder: eu}]}
  template:
    metadata: {name: 'web-{{nameNormalized}}'}
    spec:
      project: default
      source: {repoURL: "https://git.example.com/acme/web", path: 'at/{{values.folder}}'}
      destination: {server: '{{server}}', namespace: web}
`

// The Applications of the clusters at hand join the deployment of all clusters, unless the label of
// its overrides has another meaning there. It has a name of its own.
func TestAMergeOverAllClustersBecomesASelector(t *testing.T) {
	t.Parallel()
	const eu = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: eu-1, namespace: argocd, " +
		"labels: {argocd.argoproj.io/secret-type: cluster}}\n" +
		"stringData: {name: eu-1, server: 'https://eu.example.com'}\n"
	const other = "---\napiVersion: argoproj.io/v1alpha1\nkind: Application\n" +
		"metadata: {name: web, namespace: argocd}\nspec: {project: default, source: {repoURL: " +
		"'https://git.example.com/acme/x', path: x}, destination: {name: in-cluster, " +
		"namespace: x}}\n"
	for name, c := range map[string]struct {
		text, file string
	}{
		"alone": {ofAllClusters, "web.yaml"},
		"its own Secret": {ofAllClusters + strings.NewReplacer("eu.example.com",
			"kubernetes.default.svc", "eu-1", "in-cluster").Replace(eu), "web.yaml"},
		"another cluster": {ofAllClusters + eu, "web.yaml"},
		"a label of another meaning": {ofAllClusters + strings.Replace(eu, "secret-type: cluster",
			"secret-type: cluster, cluster: b", 1), "web-eu-1.yaml"},
		"a name is taken": {ofAllClusters + other, "web-2.yaml"},
		"a selector has the name": {ofAllClusters + "---\n" + strings.NewReplacer("{name: web,",
			"{name: x,", "clusters: {", "clusters: {selector: {matchLabels: {a: b}}, ").Replace(
			ofAllClusters), "web-2.yaml"},
		"nothing to merge": {strings.Replace(ofAllClusters,
			"{nameNormalized: eu-1, values.folder: eu}", "", 1), "web-in-cluster.yaml"},
	} {
		found, _ := Read("set.yaml", []byte(c.text))
		outcome, err := Import(Input{Originals: found}, Options{Engine: "main", Region: "main",
			DefaultTenant: "platform"}, renderNothing)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range outcome.Report.Objects {
			if r.Kind != KindApplicationSet || r.Name != "web" {
				continue
			}
			if r.File != "tenants/platform/deployments/"+c.file {
				t.Errorf("%s: %+v", name, r)
			}
			text := ""
			for _, f := range outcome.Files {
				if f.Path == r.File {
					text = string(f.Bytes)
				}
			}
			lost := strings.Contains(writeYAML(r.Differences), "a new cluster gets")
			joined := strings.Contains(text, "cluster: eu-1") &&
				strings.Contains(text, "key: without-web\n")
			want := c.file == "web.yaml" || c.file == "web-2.yaml"
			if joined != want || lost == (want || name == "nothing to merge") {
				t.Errorf("%s: %+v\n%s", name, r, text)
			}
		}
	}
}

// A later generator of a merge that selects none of the clusters at hand changes nothing. If no
// cluster is at hand, what it changes is not known.
func TestALaterGeneratorOfAMergeMaySelectNothing(t *testing.T) {
	t.Parallel()
	spec := `
generators:
- merge:
    mergeKeys: [name]
    generators:
    - list: {elements: [{name: cart}]}
    - clusters: {selector: {matchLabels: {tier: none}}}
template:
  metadata: {name: '{{name}}'}
  spec: {source: {repoURL: r, path: p}, destination: {name: in-cluster}}
`
	if got, _ := names(t, spec, eu); len(got) != 1 || got[0] != "cart" {
		t.Errorf("with a cluster at hand: %q", got)
	}
	if got, _ := names(t, spec); len(got) != 1 || !strings.Contains(got[0], "no cluster Secret") {
		t.Errorf("without one: %q", got)
	}
}
