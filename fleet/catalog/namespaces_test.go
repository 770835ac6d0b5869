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

// The platform's own tenant may own an Argo CD that serves others too. No other tenant may, and
// nothing but the platform's word in the Engine and the grant of the Tenant together opens it.
func TestThePlatformsTenantOwnsAnEngineThatOthersUse(t *testing.T) {
	trusting := func(t fleet.TenantName, only ...fleet.TenantName) Input {
		return engine("eu-1", func(d *fleet.Declaration) {
			d.Engine.PlatformTenant, d.Engine.DedicatedTo = t, only
		})
	}
	near := func(id string, ns ...string) Input {
		return namespaces(environment(id, func(d *fleet.Declaration) {
			d.Environment.Cluster.Server, d.Environment.Cluster.Engine = "", "eu-1"
		}), ns...)
	}
	grant := func(tenant, namespace string) Input {
		in := environmentGrants(tenant, []string{"engine:eu-1"}, fleet.EnvironmentGrant{
			Name: "home", Namespaces: []string{"argocd-eu-1", "kube-system"}})
		in.Declaration.Tenant.Namespaces = []string{namespace}
		return in
	}
	const (
		owns = "namespace-of-engine"
		mine = "ManagedEnvironment acme/home spec.namespaces"
	)
	c := New()
	good(t, c, theFleet(), engine("eu-1"), grant("acme", "web"), grant("globex", "shop"),
		near("globex/home", "shop"))
	s := refused(t, c, mine+"[1] "+owns+"; "+mine+"[2] "+owns, "",
		near("acme/home", "web", "argocd-eu-1", "kube-system"))
	for _, p := range s.Problems() {
		if !strings.Contains(p.Fix, "platformTenant: acme") {
			t.Error(p.Fix)
		}
	}
	refused(t, c, "", "~Engine eu-1; +ManagedEnvironment acme/home", trusting("acme"))
	// The grant alone opens the namespaces to no other tenant.
	const theirs = "ManagedEnvironment globex/home spec.namespaces"
	refused(t, c, theirs+"[1] namespace-claimed; "+theirs+"[1] "+owns+"; "+
		theirs+"[2] namespace-claimed; "+theirs+"[2] "+owns, "",
		near("globex/home", "shop", "argocd-eu-1", "kube-system"))
	good(t, c, near("globex/home", "shop"))
	// The engine alone opens no namespace that the Tenant is not granted.
	refused(t, c, "", "~Tenant acme; ~ManagedEnvironment acme/home",
		granted("acme", []string{"engine:eu-1"}, "web"), near("acme/home", "web"))
	refused(t, c, mine+"[1] namespace-not-granted; "+mine+"[1] "+owns+"; "+
		mine+"[2] namespace-not-granted; "+mine+"[2] namespace-reserved", "",
		near("acme/home", "web", "argocd-eu-1", "kube-system"))
	good(t, c, grant("acme", "web"))
	// As long as the tenant has them, it stays the platform's, or has the engine alone.
	refused(t, c, "Engine eu-1 spec.platformTenant "+owns, "", engine("eu-1"))
	refused(t, c, "Engine eu-1 spec.platformTenant "+owns, "", trusting("globex"))
	refused(t, c, "Tenant acme still-referenced", "", gone(grant("acme", "web")))
	refused(t, c, "", "", gone(environment("acme/none")), grant("acme", "web"))
	refused(t, c, "", "~Engine eu-1; ~ManagedEnvironment acme/home", near("acme/home", "web"),
		engine("eu-1"))
	// It gets no whole cluster that others use.
	all := environmentGrants("acme", []string{"engine:eu-1"}, fleet.EnvironmentGrant{
		Name: "home", AllNamespaces: true})
	refused(t, c, "ManagedEnvironment acme/home spec.allNamespaces whole-cluster",
		"~Tenant acme; ~Engine eu-1", all, trusting("acme"), remake(near("acme/home"),
			wholeCluster))
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

func TestAPrefixIsATenantsAlone(t *testing.T) {
	both := func(name string, namespaces ...string) Input {
		return granted(name, []string{sharedURL}, namespaces...)
	}
	c := New()
	good(t, c, theFleet(), engine("eu-1"), both("acme", "acme-", "shop-"),
		both("evil", "acme-x", "acme-x-", "acme-", "evil-", "s-"))
	good(t, c, deploysTo("acme/a", sharedURL, "acme-", "shop-eu"))
	taken := "ManagedEnvironment evil/a spec.namespaces[%] namespace-claimed"
	for i, ns := range []string{"acme-x", "acme-x-", "acme-", "acme-x-y"} {
		want := strings.Replace(taken, "%", "0", 1)
		if i == 3 {
			want += "; ManagedEnvironment evil/a spec.namespaces[1] namespace-not-granted"
		}
		entries := []string{ns}
		if i == 3 {
			entries = append(entries, "shop-")
		}
		s := c.Prepare([]Input{deploysTo("evil/a", sharedURL, entries...)})
		if got := codes(s.Problems()); got != want {
			t.Errorf("%v: found %s, want %s", entries, got, want)
		}
	}
	refused(t, c, "", "+ManagedEnvironment evil/a", deploysTo("evil/a", sharedURL, "evil-", "s-x"))
	// The owner of a prefix may name what it covers, and another of its environments too.
	refused(t, c, "", "+ManagedEnvironment acme/b", deploysTo("acme/b", sharedURL, "acme-y"))
	// When the prefix goes, what waited for it goes on.
	refused(t, c, "ManagedEnvironment evil/b spec.namespaces[0] namespace-claimed", "",
		deploysTo("evil/b", sharedURL, "acme-z"))
	refused(t, c, "", "~ManagedEnvironment acme/a; +ManagedEnvironment evil/b",
		deploysTo("acme/a", sharedURL, "shop-eu"))
	// A prefix over a name that another tenant has in effect is refused.
	refused(t, c, "ManagedEnvironment acme/c spec.namespaces[0] namespace-claimed", "",
		deploysTo("acme/c", sharedURL, "acme-"))
	refused(t, c, "", "+ManagedEnvironment acme/c; -ManagedEnvironment evil/b",
		gone(deploysTo("evil/b", sharedURL)))
}

func TestAPrefixCoversNoEnginesNamespaceAndNothingReserved(t *testing.T) {
	c := New()
	good(t, c, theFleet(), engine("eu-1"), tenant("acme", func(d *fleet.Declaration) {
		d.Tenant.Clusters, d.Tenant.Namespaces = []string{sharedURL}, []string{"argocd-", "web"}
	}), granted("globex", []string{sharedURL}, "web-"))
	refused(t, c, "ManagedEnvironment acme/a spec.namespaces[0] namespace-of-engine", "",
		deploysTo("acme/a", sharedURL, "argocd-"))
	refused(t, c, "", "~Engine eu-1; +ManagedEnvironment acme/a",
		engine("eu-1", func(d *fleet.Declaration) { d.Engine.ArgoCD.Namespace = "engine-1" }))
	refused(t, c, "Engine eu-2 spec.argocd.namespace namespace-of-engine", "", engine("eu-2"))
	refused(t, c, "", "+Engine eu-2; ~ManagedEnvironment acme/a",
		deploysTo("acme/a", sharedURL, "web"))
	env := &fleet.EnvironmentSpec{Namespaces: []string{"default-", "kube-system"}}
	for ns, want := range map[string]bool{"default": false, "default-x": true, "kube-system": true,
		"kube-public": false} {
		if env.Lists(ns) != want {
			t.Errorf("%s is listed: %t", ns, !want)
		}
	}
	for entry, good := range map[string]bool{"acme-": true, "a-": true, "kube-": false,
		"kube-x-": false, "argosy-": false, "-": false, "acme--": false, "acme": true,
		"Acme-":    false,
		"argosy-x": false, "kube-system": true, "": false, "acme-*": false} {
		if err := fleet.CheckNamespaceEntry(entry); (err == nil) != good {
			t.Errorf("%q: %v", entry, err)
		}
	}
}

func TestDeploymentsGoToNamespacesThatAPrefixCovers(t *testing.T) {
	to := func(namespace string) Input {
		return deploymentWith("acme/shop", func(d *fleet.Declaration) {
			d.Deployment.Destination = fleet.Destinations{Namespace: namespace,
				Environments: []fleet.EnvironmentName{"a"}}
		})
	}
	c := New()
	good(t, c, theFleet(), engine("eu-1"), granted("acme", []string{ownURL}),
		deploysTo("acme/a", ownURL, "acme-", "web"))
	for ns, code := range map[string]string{"acme-shop": "", "web": "", "acme": "x", "shop": "x"} {
		s := c.Prepare([]Input{to(ns)})
		if (len(s.Problems()) == 0) != (code == "") {
			t.Errorf("%s: %v", ns, s.Problems())
		}
	}
	good(t, c, to("acme-shop"))
	refused(t, c, "ManagedEnvironment acme/a spec.namespaces namespace-in-use", "",
		deploysTo("acme/a", ownURL, "acme-cart", "web"))
	refused(t, c, "", "~ManagedEnvironment acme/a", deploysTo("acme/a", ownURL, "acme-shop"))
}

func TestCreateNamespaceNeedsTheKindOnlyBesideClusterScopedResources(t *testing.T) {
	create := func(environments ...fleet.EnvironmentName) Input {
		return deploymentWith("acme/new", func(d *fleet.Declaration) {
			yes := true
			d.Deployment.Destination.Environments = environments
			d.Deployment.Sync.CreateNamespace = &yes
		})
	}
	c := New()
	good(t, c, theFleet(), engine("eu-1"), tenant("acme", func(d *fleet.Declaration) {
		d.Tenant.ClusterResources = []fleet.GroupKind{{Group: "x.io", Kind: "Thing"}}
	}), environment("acme/a"), environment("acme/edge", behindAgent("")), create("a"))
	warned := "GitOpsDeployment acme/new spec.sync.createNamespace create-namespace"
	refused(t, c, warned, "~GitOpsDeployment acme/new", create("edge"))
	refused(t, c, warned, "+ManagedEnvironment acme/wide; ~GitOpsDeployment acme/new",
		create("a", "wide"), environment("acme/wide", clusterResources))
	refused(t, c, warned, "~GitOpsDeployment acme/new", create("a"))
}

func TestTheClusterOfAnEngineIsGranted(t *testing.T) {
	near := func(id string, ns ...string) Input {
		return namespaces(environment(id, func(d *fleet.Declaration) {
			d.Environment.Cluster.Server, d.Environment.Cluster.Engine = "", "eu-1"
		}), ns...)
	}
	on := []string{"engine:eu-1"}
	c := New()
	good(t, c, theFleet(), engine("eu-1"), granted("acme", on, "acme-"), granted("evil", nil))
	refused(t, c, "ManagedEnvironment evil/a spec.cluster.engine cluster-not-granted", "",
		near("evil/a", "web"))
	// It is never a tenant's alone, unless the engine is.
	refused(t, c, "ManagedEnvironment acme/a spec.namespaces[1] namespace-not-granted",
		"", near("acme/a", "acme-shop", "web"))
	refused(t, c, "", "+ManagedEnvironment acme/a", near("acme/a", "acme-shop"))
	refused(t, c, "ManagedEnvironment evil/a spec.namespaces[0] namespace-claimed", "~Tenant evil",
		granted("evil", on, "acme-shop"), near("evil/a", "acme-shop"))
	refused(t, c, "", "~Tenant evil", gone(near("evil/a")), granted("evil", nil))
	refused(t, c, "Engine eu-1 still-referenced", "", gone(engine("eu-1")))
	refused(t, c, "", "~Engine eu-1; ~ManagedEnvironment acme/a",
		near("acme/a", "acme-shop", "web"), engine("eu-1", func(d *fleet.Declaration) {
			d.Engine.DedicatedTo = []fleet.TenantName{"acme"}
		}))
	// Write access to kube-system is the cluster, and the engine with it.
	whole := func(on ...string) Input {
		return tenant("acme", func(d *fleet.Declaration) {
			d.Tenant.Clusters, d.Tenant.Namespaces = on, []string{"acme-"}
			d.Tenant.Environments = []fleet.EnvironmentGrant{{Name: "a",
				Namespaces: []string{"kube-system"}, AllNamespaces: true}}
		})
	}
	good(t, c, whole(on...), near("acme/a", "acme-shop", "kube-system"))
	refused(t, c, "Engine eu-1 spec.dedicatedTo namespace-of-engine", "", engine("eu-1"))
	good(t, c, remake(near("acme/a"), wholeCluster))
	refused(t, c, "", "", engine("eu-1"))
	refused(t, c, "", "~Tenant acme; ~Engine eu-1; ~ManagedEnvironment acme/a",
		granted("acme", on, "acme-"), near("acme/a", "acme-shop"))
	refused(t, c, "ManagedEnvironment acme/a spec.namespaces[0] namespace-of-engine",
		"~Tenant acme",
		whole(on...), near("acme/a", "kube-system"))
	far := near("acme/b", "acme-b")
	far.Declaration.Environment.Region = "us"
	far.Declaration.Environment.Cluster.Engine = "eu-1"
	refused(t, c, "ManagedEnvironment acme/b spec.region region-not-allowed", "", far)
	missing := near("acme/c", "acme-c")
	missing.Declaration.Environment.Cluster.Engine = "eu-9"
	refused(t, c, "ManagedEnvironment acme/c spec.cluster.engine cluster-not-granted; "+
		"ManagedEnvironment acme/c spec.cluster.engine unknown-engine", "", missing)
}

// An environment that waits for another tenant's whole cluster takes effect when the platform
// revokes that grant.
func TestARevokedWholeClusterFreesItsNeighbours(t *testing.T) {
	grant := func(all bool) Input {
		return tenant("acme", func(d *fleet.Declaration) {
			d.Tenant.Clusters = []string{sharedURL}
			d.Tenant.ClusterResources = []fleet.GroupKind{fleet.KindNamespace}
			if all {
				d.Tenant.Environments = []fleet.EnvironmentGrant{{Name: "prod",
					AllClusterResources: true}}
			}
		})
	}
	c := New()
	good(t, c, theFleet(), engine("eu-1"), grant(true),
		remake(deploysTo("acme/prod", sharedURL, "shop"), clusterResources))
	refused(t, c, "ManagedEnvironment globex/prod spec.cluster.server whole-cluster",
		"+Tenant globex", granted("globex", []string{sharedURL}, "web"),
		deploysTo("globex/prod", sharedURL, "web"))
	refused(t, c, "", "~Tenant acme; +ManagedEnvironment globex/prod", grant(false))
}
