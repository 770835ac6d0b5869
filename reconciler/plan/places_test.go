package plan

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

const prodFile = "tenants/acme/environments/prod.yaml"

// prefixed is a fleet with an environment that has the prefix acme-.
func prefixed() tree {
	files := tree{
		"fleet/fleet.yaml":        fleetFile(""),
		"fleet/engines/eu-1.yaml": engineFile("eu-1", "eu", ""),
		"fleet/tenants/acme.yaml": tenantFile("acme", ""),
		prodFile: strings.ReplaceAll(environmentFile("prod", "eu", "", "NAMES"), "NAMES",
			"web, acme-"),
	}
	return files
}

func service(name, namespace, rest string) (path, text string) {
	text = fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: GitOpsDeployment
metadata: {name: %s}
spec:
  source: {repoURL: "https://git.example.com/acme/shop", path: %s, targetRevision: v1}
  destination: {environments: [prod], namespace: %s}
%s`, name, name, namespace, rest)
	return "tenants/acme/deployments/" + name + ".yaml", text
}

// granted returns what the AppProject and the Cluster of the house allow, e.g. "acme-shop web".
func (h *house) granted() (project, cluster string, kinds []fleet.GroupKind) {
	h.t.Helper()
	for k, r := range h.rows {
		switch {
		case r.Unwanted:
		case k.Kind == fleet.ObjectProject:
			var of struct{ Spec fleet.Project }
			unmarshal(h.t, r.Manifest.Body, &of)
			var names []string
			for _, d := range of.Spec.Destinations {
				names = append(names, d.Namespace)
			}
			project, kinds = strings.Join(names, " "), of.Spec.ClusterResources
		case k.Kind == fleet.ObjectCluster:
			var of struct{ Spec fleet.Cluster }
			unmarshal(h.t, r.Manifest.Body, &of)
			cluster = strings.Join(of.Spec.Namespaces, " ")
		}
	}
	return project, cluster, kinds
}

func (h *house) wantGranted(want string) {
	h.t.Helper()
	if project, cluster, _ := h.granted(); project != want || cluster != want {
		h.t.Errorf("the AppProject allows %q, the Cluster %q; want %q", project, cluster, want)
	}
}

func TestAPrefixBecomesTheNamesThatDeploymentsUse(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarts %t", restarts), func(t *testing.T) {
			h := newHouse(t)
			rest := func() {
				if restarts {
					h.restart()
				}
			}
			files := prefixed()
			h.apply(files)
			h.wantGranted("web")
			files = files.with(service("shop", "acme-shop", "")).with(
				service("cart", "acme-cart", ""))
			h.apply(files)
			h.wantGranted("acme-cart acme-shop web")
			rest()
			// One file more is one service more.
			p := h.apply(files.with(service("search", "acme-search", "")))
			wantActions(t, p, "update AppProject acme", "update Cluster prod",
				"create Application search@prod")
			h.wantGranted("acme-cart acme-search acme-shop web")
			rest()
			p = h.apply(h.files.with(service("docs", "acme-shop", "")))
			wantActions(t, p, "create Application docs@prod")
			rest()
			// A right stays until nothing that needs it is left.
			h.apply(h.files.without("tenants/acme/deployments/search",
				"tenants/acme/deployments/docs"))
			h.wantGranted("acme-cart acme-search acme-shop web")
			rest()
			if restarts {
				h.workWithRestarts()
			} else {
				h.work()
			}
			h.wantGranted("acme-cart acme-shop web")
		})
	}
}

func TestAnApplicationKeepsItsFormerNamespace(t *testing.T) {
	h := newHouse(t)
	files := prefixed().with(service("shop", "acme-shop", ""))
	h.apply(files)
	h.apply(files.with(service("shop", "acme-store", "")))
	h.wantGranted("acme-shop acme-store web")
	h.restart()
	h.apply(h.files.with(service("cart", "acme-cart", "")))
	h.wantGranted("acme-cart acme-shop acme-store web")
	h.apply(h.files.without("tenants/acme/deployments/"))
	h.work()
	h.wantGranted("web")
	h.apply(h.files.with(service("shop", "acme-new", "")))
	h.wantGranted("acme-new web")
}

func TestAPrefixInUseCannotBeDropped(t *testing.T) {
	h := newHouse(t)
	files := prefixed().with(service("shop", "acme-shop", ""))
	h.apply(files)
	p := h.apply(files.edit(prodFile, "web, acme-", "web"))
	if len(p.Problems) != 1 || p.Problems[0].Code != "namespace-in-use" {
		t.Errorf("problems: %v", p.Problems)
	}
	h.wantGranted("acme-shop web")
	h.apply(h.files.without("tenants/acme/deployments/"))
	h.wantGranted("acme-shop web")
	h.work()
	h.wantGranted("web")
}

func TestAnUnusedPrefixGrantsNothing(t *testing.T) {
	h := newHouse(t)
	files := prefixed()
	h.apply(files.edit(prodFile, "web, acme-", "acme-"))
	h.wantGranted("")
	for k, r := range h.rows {
		if k.Kind == fleet.ObjectCluster && !strings.Contains(string(r.Manifest.Body), "Unused") {
			t.Errorf("the Cluster lists no namespace, which is all of them: %s", r.Manifest.Body)
		}
	}
}

func TestCreateNamespaceAllowsTheKindWhileAnApplicationHasIt(t *testing.T) {
	h := newHouse(t)
	files := prefixed().with(service("shop", "acme-shop", ""))
	h.apply(files)
	want := func(n int) {
		t.Helper()
		if _, _, kinds := h.granted(); len(kinds) != n {
			t.Errorf("kinds: %v, want %d", kinds, n)
		}
	}
	want(0)
	create := files.with(service("shop", "acme-shop", "  sync: {createNamespace: true}\n"))
	p := h.apply(create)
	wantActions(t, p, "update AppProject acme", "update Application shop@prod")
	want(1)
	h.restart()
	h.apply(create.with(service("cart", "acme-cart", "  sync: {createNamespace: true}\n")))
	h.apply(create)
	h.work()
	want(1)
	// Cluster-scoped resources without the kind: no repository may make a Namespace then.
	wide := create.edit(prodFile, "  region:", "  clusterResources: true\n  region:").edit(
		"fleet/tenants/acme.yaml", "spec:\n",
		"spec:\n  clusterResources: [{group: rbac.authorization.k8s.io, kind: ClusterRole}]\n")
	h.apply(wide)
	if _, _, kinds := h.granted(); len(kinds) != 1 || kinds[0].Kind != "ClusterRole" {
		t.Errorf("kinds: %v", kinds)
	}
	h.apply(files)
	want(0)
}
