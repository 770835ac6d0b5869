package plan

import (
	"fmt"
	"strings"
	"testing"
)

func TestOverridesAndVariablesAreResolvedInEachEnvironment(t *testing.T) {
	h := newHouse(t)
	text := strings.Replace(deploymentFile("shop", "acme/shop",
		"environmentSelector: {matchExpressions: [{key: tier, operator: Exists}]}",
		"  overrides:\n"+
			"    - {selector: {matchLabels: {tier: prod}}, namespace: other, sync: {prune: false}, "+
			"values: {replicas: 3, host: null}}\n"+
			"    - {environment: staging, sync: {mode: manual}, values: {replicas: 1}}\n"),
		"path: deploy", "path: \"deploy/${environment.name}\", helm: {valueFiles: "+
			"[\"${environment.labels.tier}.yaml\"], values: {host: \"${environment.name}.example.com\"}}",
		1)
	h.apply(small().with("tenants/acme/deployments/shop.yaml", text))
	apps := h.applications()
	prod, staging := apps["shop@prod"], apps["shop@staging"]
	if s := prod.Sources[0]; prod.Destination.Namespace != "other" || prod.Sync.Prune ||
		s.Path != "deploy/prod" || s.Helm.ValueFiles[0] != "prod.yaml" ||
		s.Helm.Values != "{\n  \"host\": null,\n  \"replicas\": 3\n}" {
		t.Errorf("prod: %+v, helm %+v", prod, s.Helm)
	}
	if s := staging.Sources[0]; staging.Destination.Namespace != "app" || staging.Sync.Automated ||
		s.Path != "deploy/staging" || s.Helm.ValueFiles[0] != "dev.yaml" ||
		s.Helm.Values != "{\n  \"host\": \"staging.example.com\",\n  \"replicas\": 1\n}" {
		t.Errorf("staging: %+v, helm %+v", staging, s.Helm)
	}
	t.Run("a label changes what it is in", func(t *testing.T) {
		p := h.apply(h.files.edit("tenants/acme/environments/prod.yaml", "tier: prod",
			"tier: prod2"))
		wantActions(t, p, "delete Application cart@prod", "update Application shop@prod")
	})
	t.Run("a label that is missing is refused", func(t *testing.T) {
		p := h.apply(h.files.edit("tenants/acme/deployments/shop.yaml", "labels.tier",
			"labels.zone"))
		wantActions(t, p)
	})
}

func TestAVariableOfAnEnvironmentChangesOnlyWhatItIsIn(t *testing.T) {
	h := newHouse(t)
	const prod = "tenants/acme/environments/prod.yaml"
	text := strings.Replace(deploymentFile("shop", "acme/shop", "environments: [prod]", ""),
		"path: deploy", "path: \"${environment.variables.team/folder}/${environment.name}\"", 1)
	files := small().with("tenants/acme/deployments/shop.yaml", text)
	files = files.edit(prod, "region:", "variables: {team/folder: a/b, unused: \"\"}\n  region:")
	h.apply(files)
	if path := h.applications()["shop@prod"].Sources[0].Path; path != "a/b/prod" {
		t.Errorf("path %q", path)
	}
	wantActions(t, h.apply(h.files.edit(prod, "a/b", "c")), "update Application shop@prod")
	wantActions(t, h.apply(h.files.edit(prod, `unused: ""`, "unused: x")))
	wantActions(t, h.apply(h.files.edit(prod, "team/folder: c, ", "")))
}

func TestATenantsDefaultsAreInheritedByItsDeploymentsAlone(t *testing.T) {
	h := newHouse(t)
	files := small().edit("fleet/fleet.yaml", "gitHosts:",
		"defaults: {sync: {selfHeal: false, pruneLast: true}, deletionPolicy: Orphan}\n  gitHosts:")
	files = files.with("fleet/tenants/globex.yaml", tenantFile("globex", "")).
		with("tenants/globex/environments/dc.yaml", strings.Replace(
			environmentFile("dc", "eu", "", "shop"), "namespaces", "namespaces", 1)).
		with("tenants/globex/deployments/web.yaml", strings.Replace(deploymentFile("web",
			"globex/web", "environments: [dc]", ""), "namespace: app", "namespace: shop", 1)).
		with("tenants/acme/deployments/checkout.yaml", deploymentFile("checkout",
			"acme/checkout", "environments: [prod, staging]", "  sync: {mode: manual}\n"+
				"  overrides: [{environment: prod, sync: {mode: automated}}]\n"))
	h.apply(files)
	p := h.apply(h.files.with("tenants/acme/defaults.yaml", defaultsFile(
		"  sync: {prune: false, selfHeal: true, mode: manual}\n  deletionPolicy: Delete\n"+
			"  revisionHistoryLimit: 3\n")))
	wantActions(t, p, "update Application cart@prod", "update Application checkout@prod",
		"update Application checkout@staging")
	apps := h.applications()
	if a := apps["cart@prod"]; a.Sync.Automated || a.Sync.Prune || !a.Sync.SelfHeal ||
		!a.Sync.PruneLast || *a.RevisionHistoryLimit != 3 {
		t.Errorf("cart: %+v", a.Sync)
	}
	if a := apps["checkout@prod"]; !a.Sync.Automated || a.Sync.Prune {
		t.Errorf("checkout: %+v", a.Sync)
	}
	if a := apps["web@dc"]; !a.Sync.Automated || !a.Sync.Prune || a.RevisionHistoryLimit != nil {
		t.Errorf("another tenant: %+v", a.Sync)
	}
	p = h.apply(h.files.without("tenants/acme/defaults.yaml"))
	wantActions(t, p, "update Application cart@prod", "update Application checkout@prod",
		"update Application checkout@staging")
}

func TestALabelRendersOnlyWhatItConcerns(t *testing.T) {
	h := newHouse(t)
	files := small()
	for n := range 50 {
		name := fmt.Sprintf("d%d", n)
		files = files.with("tenants/acme/deployments/"+name+".yaml",
			deploymentFile(name, "acme/"+name, "environments: [prod]", ""))
	}
	files = files.with("tenants/acme/deployments/shop.yaml", strings.Replace(deploymentFile("shop",
		"acme/shop", "environments: [prod]", ""), "path: deploy",
		"path: \"deploy/${environment.region}\"", 1))
	h.apply(files)
	before := h.render.rendered
	h.apply(h.files.edit("tenants/acme/environments/prod.yaml", "tier: prod",
		"tier: prod, zone: a"))
	if n := h.render.rendered - before; n > 5 {
		t.Errorf("%d objects are rendered", n)
	}
}
