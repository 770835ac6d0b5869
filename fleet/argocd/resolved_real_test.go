package argocd

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/test/stack"
)

// A deployment's overrides and variables reach Argo CD and Helm as values, value files and a path
// that are exact; Helm takes the merged map as it takes several files of values.
func TestRealArgoCDDeploysAResolvedDeployment(t *testing.T) {
	for _, version := range stack.ArgoVersions {
		t.Run(version, func(t *testing.T) {
			newArgoLabWith(t, "resolved-"+strings.ReplaceAll(version, ".", "-"),
				stack.ArgoOptions{Version: version}).deploysResolved()
		})
	}
}

func (w *argoLab) deploysResolved() {
	w.Helper()
	w.commit(map[string]string{
		"apps/checkout/Chart.yaml": strings.ReplaceAll(chartOfOne, "name: one", "name: checkout"),
		"apps/checkout/values.yaml": "a: {of: chart, gone: yes, list: [1, 2]}\nfile: chart\n" +
			"host: chart\n",
		"apps/checkout/prod.yaml": "file: of prod\n",
		"apps/checkout/templates/cm.yaml": "apiVersion: v1\nkind: ConfigMap\n" +
			"metadata: {name: resolved}\ndata: {value: {{ toJson .Values | quote }}}\n",
	})
	foundation := w.foundation(prodEU, w.spaceA)
	token, err := w.cluster.TenantToken(w.Context(), "acme-"+w.spaceA, w.spaceA)
	if err != nil {
		w.Fatal(err)
	}
	w.apply(foundation[0], fleet.Secret{})
	w.apply(foundation[1], fleet.NewSecret(map[string][]byte{"token": []byte(token)}))
	environment := &fleet.Declaration{
		Key: fleet.Key{Kind: fleet.KindManagedEnvironment, Tenant: acme,
			Name: string(prodEU.Name)},
		Labels:      map[string]string{"tier": "prod"},
		Environment: &fleet.EnvironmentSpec{Region: "eu"}}
	deployment := &fleet.Declaration{
		Key: fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: acme, Name: "checkout"},
		Deployment: &fleet.DeploymentSpec{
			Source: fleet.Source{RepoURL: w.repo.URL, Path: "apps/${deployment.name}",
				TargetRevision: "main", Helm: &fleet.HelmSource{
					ValueFiles: []string{"${environment.labels.tier}.yaml"},
					Values: `{"a": {"of": "deployment", "list": [3]}, "n": 12345678901,
						"host": "${environment.name}.example.com", "kept": "${HOME}"}`}},
			Destination: fleet.Destinations{Namespace: "elsewhere"},
			Overrides: []fleet.Override{
				{Environment: prodEU.Name, Values: `{"a": {"of": "override"}}`},
				{Selector: &fleet.LabelSelector{MatchLabels: environment.Labels},
					Namespace: w.spaceA,
					Values:    `{"a": {"of": "selector", "gone": null, "list": []}}`},
			},
		}}
	target, unresolved := deployment.TargetIn(environment, fleet.Defaults{})
	if len(unresolved) > 0 {
		w.Fatal(unresolved)
	}
	id := fleet.ApplicationID{Tenant: acme, Deployment: "checkout", Environment: prodEU.Name}
	w.apply(w.app(id, "", target.Namespace, fleet.DeletionOrphan, func(a *fleet.Application) {
		a.Sources, a.Sync = target.Sources, target.Sync
	}), fleet.Secret{})
	want := `{"a":{"list":[],"of":"override"},"file":"of prod",` +
		`"host":"prod-eu.example.com","kept":"${HOME}","n":12345678901}`
	got := ""
	w.until("the resolved values are deployed", func() bool {
		got, _ = w.value(w.spaceA, "resolved")
		return got != ""
	})
	if strings.ReplaceAll(got, "12345678901", "n") != strings.ReplaceAll(want, "12345678901", "n") {
		w.Errorf("Helm's values are %s, want %s", got, want)
	}
}
