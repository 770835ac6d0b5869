package catalog

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// environmentGrants is a tenant with these grants for single environments.
func environmentGrants(name string, clusters []string, grants ...fleet.EnvironmentGrant) Input {
	return tenant(name, func(d *fleet.Declaration) {
		d.Tenant.Clusters, d.Tenant.Environments = clusters, grants
	})
}

func wholeCluster(d *fleet.Declaration) {
	d.Environment.Namespaces, d.Environment.AllNamespaces = nil, true
}

func clusterResources(d *fleet.Declaration) { d.Environment.ClusterResources = true }

func TestAReservedNamespaceIsGrantedToOneEnvironment(t *testing.T) {
	c := New()
	good(t, c, theFleet(), engine("eu-1"), environmentGrants("acme", []string{ownURL},
		fleet.EnvironmentGrant{Name: "prod", Namespaces: []string{"kube-system", "default"}}))
	s := refused(t, c,
		"ManagedEnvironment acme/test spec.namespaces[1] namespace-reserved",
		"+ManagedEnvironment acme/prod",
		deploysTo("acme/prod", ownURL, "web", "kube-system", "default"),
		deploysTo("acme/test", ownURL, "shop", "kube-system"))
	p := s.Problems()[0]
	if p.Message != `namespace "kube-system" is reserved by Kubernetes or Argo CD, and not granted `+
		`to environment "test"` || p.Fix != "use another namespace, or ask the platform to add "+
		"{name: test, namespaces: [kube-system]} to environments of fleet/tenants/acme.yaml" {
		t.Errorf("%s\n%s", p.Message, p.Fix)
	}
	refused(t, c, "", "+GitOpsDeployment acme/shop",
		gone(deploysTo("acme/test", ownURL)),
		deploymentWith("acme/shop", func(d *fleet.Declaration) {
			d.Deployment.Destination = fleet.Destinations{Namespace: "kube-system",
				Environments: []fleet.EnvironmentName{"prod"}}
		}))
	// A revoked grant breaks no running workload.
	refused(t, c, "", "~Tenant acme; ~ManagedEnvironment acme/prod",
		environmentGrants("acme", []string{ownURL}),
		deploysTo("acme/prod", ownURL, "web", "kube-system"))
	refused(t, c, "ManagedEnvironment acme/prod spec.namespaces[1] namespace-reserved", "",
		deploysTo("acme/prod", ownURL, "kube-system", "default"))
}

func TestAnEnginesNamespaceIsGrantedOnlyWhereTheEngineServesOneTenant(t *testing.T) {
	dedicated := func(tenants ...fleet.TenantName) Input {
		return engine("eu-1", func(d *fleet.Declaration) { d.Engine.DedicatedTo = tenants })
	}
	grant := environmentGrants("acme", []string{ownURL},
		fleet.EnvironmentGrant{Name: "prod", Namespaces: []string{"argocd-eu-1"}})
	prod := deploysTo("acme/prod", ownURL, "web", "argocd-eu-1")
	c := New()
	good(t, c, theFleet(), engine("eu-1"), grant, tenant("globex"))
	s := refused(t, c, "ManagedEnvironment acme/prod spec.namespaces[1] namespace-of-engine", "",
		prod)
	if fix := s.Problems()[0].Fix; !strings.Contains(fix, "dedicatedTo: [acme]") {
		t.Error(fix)
	}
	refused(t, c, "", "~Engine eu-1", dedicated("acme", "globex"))
	refused(t, c, "", "~Engine eu-1; +ManagedEnvironment acme/prod", dedicated("acme"))
	// The engine cannot be shared as long as the tenant may write to its namespace.
	refused(t, c, "Engine eu-1 spec.dedicatedTo namespace-of-engine", "", engine("eu-1"))
	refused(t, c, "Engine eu-1 spec.dedicatedTo namespace-of-engine", "",
		dedicated("acme", "globex"))
	refused(t, c, "", "~Engine eu-1; ~ManagedEnvironment acme/prod", dedicated("acme", "globex"),
		deploysTo("acme/prod", ownURL, "web"))
	refused(t, c, "ManagedEnvironment acme/prod spec.namespaces[1] namespace-of-engine", "", prod)
}

func TestAnAgentsOwnNamespaceIsGranted(t *testing.T) {
	edge := func(ns ...string) Input {
		return environment("acme/edge", behindAgent(""), func(d *fleet.Declaration) {
			d.Environment.Namespaces = ns
		})
	}
	c := New()
	good(t, c, theFleet(), environmentGrants("acme", nil))
	refused(t, c, "ManagedEnvironment acme/edge spec.namespaces[0] namespace-of-engine; "+
		"ManagedEnvironment acme/edge spec.namespaces[0] namespace-reserved", "", edge("argocd"))
	refused(t, c, "", "~Tenant acme; +ManagedEnvironment acme/edge", environmentGrants("acme", nil,
		fleet.EnvironmentGrant{Name: "edge", Namespaces: []string{"argocd"}}))
}

func TestAWholeClusterIsGrantedToOneTenantAlone(t *testing.T) {
	whole := fleet.EnvironmentGrant{Name: "prod", AllNamespaces: true, AllClusterResources: true}
	prod := environment("acme/prod", wholeCluster, clusterResources, func(d *fleet.Declaration) {
		d.Environment.Cluster.Server = sharedURL
	})
	c := New()
	good(t, c, theFleet(), engine("eu-1"), environmentGrants("acme", []string{sharedURL}))
	refused(t, c, "ManagedEnvironment acme/prod spec.allNamespaces whole-cluster; "+
		"ManagedEnvironment acme/prod spec.clusterResources cluster-resources-not-granted", "",
		prod)
	refused(t, c, "", "~Tenant acme; +ManagedEnvironment acme/prod",
		environmentGrants("acme", []string{sharedURL}, whole))
	refused(t, c, "", "+GitOpsDeployment acme/shop", deploymentWith("acme/shop",
		func(d *fleet.Declaration) {
			d.Deployment.Destination = fleet.Destinations{Namespace: "kube-system",
				Environments: []fleet.EnvironmentName{"prod"}}
		}))
	// Another tenant that is granted the server later deploys nothing there.
	refused(t, c, "ManagedEnvironment globex/prod spec.cluster.server whole-cluster",
		"+Tenant globex", granted("globex", []string{sharedURL}, "web"),
		deploysTo("globex/prod", sharedURL, "web"))
	refused(t, c, "", "-ManagedEnvironment acme/prod; "+
		"+ManagedEnvironment globex/prod; -GitOpsDeployment acme/shop", gone(prod),
		gone(deployment("acme/shop")))
	refused(t, c, "ManagedEnvironment acme/prod spec.allNamespaces whole-cluster; "+
		"ManagedEnvironment acme/prod spec.cluster.server whole-cluster", "", prod)
}

// The AppProject takes the kinds from the grant: it must not open what is in effect on a server of
// several tenants.
func TestAllKindsAreNotGrantedOnASharedServer(t *testing.T) {
	c := New()
	good(t, c, theFleet(), engine("eu-1"), granted("globex", []string{sharedURL}, "web"),
		tenant("acme", func(d *fleet.Declaration) {
			d.Tenant.Clusters, d.Tenant.Namespaces = []string{sharedURL}, []string{"shop"}
			d.Tenant.ClusterResources = []fleet.GroupKind{fleet.KindNamespace}
		}))
	good(t, c, remake(deploysTo("acme/prod", sharedURL, "shop"), clusterResources))
	refused(t, c, "Tenant acme spec.environments[0].allClusterResources whole-cluster", "",
		tenant("acme", func(d *fleet.Declaration) {
			d.Tenant.Clusters, d.Tenant.Namespaces = []string{sharedURL}, []string{"shop"}
			d.Tenant.Environments = []fleet.EnvironmentGrant{{Name: "prod",
				AllClusterResources: true}}
		}))
}

func TestEnvironmentsOfOneRegionHaveTheSameClusterScopedKinds(t *testing.T) {
	roles := []fleet.GroupKind{{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}}
	grant := func(grants ...fleet.EnvironmentGrant) Input {
		return tenant("acme", func(d *fleet.Declaration) {
			d.Tenant.ClusterResources = []fleet.GroupKind{fleet.KindNamespace}
			d.Tenant.Environments = grants
		})
	}
	c := New()
	good(t, c, theFleet(), engine("eu-1"), engine("us-1", func(d *fleet.Declaration) {
		d.Engine.Region = "us"
	}), grant(fleet.EnvironmentGrant{Name: "a", ClusterResources: roles}),
		environment("acme/a", clusterResources), environment("acme/none"),
		environment("acme/far", clusterResources, func(d *fleet.Declaration) {
			d.Environment.Region = "us"
		}))
	refused(t, c, "ManagedEnvironment acme/b spec.clusterResources cluster-resources-differ", "",
		environment("acme/b", clusterResources))
	refused(t, c, "", "~Tenant acme; +ManagedEnvironment acme/b",
		grant(fleet.EnvironmentGrant{Name: "a", ClusterResources: roles},
			fleet.EnvironmentGrant{Name: "b", ClusterResources: roles}))
}
