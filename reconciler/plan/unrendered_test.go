package plan

import (
	"slices"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan/diff"
	"argosy.dev/argosy/reconciler/plan/effective"
	"argosy.dev/argosy/reconciler/plan/report"
)

// A declaration that passes validation and that the renderer refuses must not stop another tenant
// (promise 1).
func TestADeclarationThatCannotBeRenderedHurtsOnlyItself(t *testing.T) {
	const bad = "bad"
	application := func(o fleet.Object) bool {
		return o.Application != nil && o.Application.Sources[0].TargetRevision == bad
	}
	cluster := func(o fleet.Object) bool {
		return o.Cluster != nil && slices.Contains(o.Cluster.Namespaces, bad)
	}
	project := func(o fleet.Object) bool {
		return o.Project != nil &&
			slices.Contains(o.Project.SourceRepos, "https://git.example.com/acme/bad")
	}
	other := func(s tree) tree {
		return s.with("fleet/tenants/globex.yaml", tenantFile("globex", "")).
			with("tenants/globex/environments/prod.yaml",
				environmentFile("prod", "eu", "", "shop")).
			with("tenants/globex/deployments/cart.yaml",
				"apiVersion: argosy.dev/v1alpha1\nkind: GitOpsDeployment\nmetadata: {name: "+
					"cart}\nspec:\n  source: {repoURL: \"https://git.example.com/globex/cart\", "+
					"path: deploy, targetRevision: v1}\n  destination: {environments: [prod], "+
					"namespace: shop}\n")
	}
	for name, c := range map[string]struct {
		refuses func(fleet.Object) bool
		path    string
		change  func(tree) tree
	}{
		"an Application": {application, "tenants/acme/deployments/checkout.yaml",
			func(s tree) tree {
				return s.edit("tenants/acme/deployments/checkout.yaml", "targetRevision: v1",
					"targetRevision: bad")
			}},
		"a Cluster": {cluster, "tenants/acme/environments/prod.yaml", func(s tree) tree {
			return s.edit("tenants/acme/environments/prod.yaml", "app, other", "app, other, bad")
		}},
		"an AppProject": {project, "tenants/acme/deployments/extra.yaml", func(s tree) tree {
			return s.with("tenants/acme/deployments/extra.yaml",
				deploymentFile("extra", "acme/bad", "environments: [prod]", ""))
		}},
		"a new environment": {cluster, "tenants/acme/environments/new.yaml", func(s tree) tree {
			return s.with("tenants/acme/environments/new.yaml",
				environmentFile("new", "eu", "", "app, bad"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.apply(small())
			before := h.desired()
			h.render.refuses = c.refuses
			p := h.apply(other(c.change(small())))
			if len(p.Quarantined) != 1 || p.Quarantined[0].Path != c.path ||
				p.Quarantined[0].Problems[0].Code != effective.CodeUnrendered {
				t.Fatalf("quarantined: %+v", p.Quarantined)
			}
			after := h.desired()
			for key, hash := range before {
				if after[key] != hash {
					t.Errorf("%s %s did not keep its last good state", key.Kind, key.Name)
				}
			}
			name := fleet.ApplicationName(
				fleet.ApplicationID{Tenant: "globex", Deployment: "cart", Environment: "prod"})
			if !slices.ContainsFunc(p.Rows, func(c diff.RowChange) bool {
				return c.Action == report.Create && c.Row.Key.Name == name
			}) {
				t.Error("the other tenant's commit did not proceed")
			}
			h.render.refuses = nil
			p = h.apply(other(small()))
			if len(p.Cleared) != 1 {
				t.Errorf("fixed, and still quarantined: cleared %v", p.Cleared)
			}
		})
	}
}
