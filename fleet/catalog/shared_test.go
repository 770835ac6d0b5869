package catalog

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

const theServer = "https://one.example.com"

// on is an environment on the one API server with the given namespaces.
func on(id string, ns ...string) Input {
	return namespaces(server(environment(id), theServer), ns...)
}

func crowd(t *testing.T, in ...Input) *Catalog {
	t.Helper()
	c := New()
	good(
		t, c,
		append(
			[]Input{theFleet(), engine("eu-1"), tenant("acme"), tenant("globex"),
				tenant("initech")}, in...)...)
	return c
}

func TestANamespaceBelongsToItsFirstEffectiveOwner(t *testing.T) {
	c := crowd(t, on("acme/prod", "web"))
	s := refused(t, c, "ManagedEnvironment globex/prod spec.namespaces[1] namespace-claimed", "",
		on("globex/prod", "shop", "web"))
	if m := s.Problems()[0]; strings.Contains(m.Message+m.Fix, "acme") {
		t.Errorf("a tenant learns who the other is: %v", m)
	}
	refused(t, c, "", "+ManagedEnvironment acme/second", on("acme/second", "web"))
	refused(t, c, "", "-ManagedEnvironment acme/second", gone(on("acme/second", "web")))
	refused(t, c, "", "-ManagedEnvironment acme/prod; +ManagedEnvironment globex/prod",
		gone(on("acme/prod", "web")))
}

func TestTwoNewcomersBothWait(t *testing.T) {
	c := crowd(t)
	refused(
		t, c,
		"ManagedEnvironment acme/prod spec.namespaces[0] namespace-claimed; ManagedEnvironment "+
			"globex/prod spec.namespaces[0] namespace-claimed", "",
		on("acme/prod", "web"), on("globex/prod", "web"))
	refused(t, c, "ManagedEnvironment initech/prod spec.namespaces[0] namespace-claimed", "",
		on("initech/prod", "web"))
	refused(t, c, "", "", gone(on("initech/prod", "web")))
	refused(t, c, "", "+ManagedEnvironment acme/prod", gone(on("globex/prod", "web")))
}

func TestAClaimWithAnotherErrorBlocksNoOther(t *testing.T) {
	c := crowd(t)
	wrong := remake(on("acme/prod", "web"), func(d *fleet.Declaration) {
		d.Environment.ClusterResources = true
	})
	refused(
		t, c,
		"ManagedEnvironment acme/prod spec.clusterResources cluster-resources-not-granted; "+
			"ManagedEnvironment acme/prod spec.namespaces[0] namespace-claimed",
		"+ManagedEnvironment globex/prod", wrong, on("globex/prod", "web"))
	refused(t, c, "ManagedEnvironment acme/prod spec.namespaces[0] namespace-claimed", "",
		on("acme/prod", "web"))
}

func TestAnOwnerChangesFreelyDespiteItsRival(t *testing.T) {
	c := crowd(t, on("acme/prod", "web", "shop"))
	refused(t, c, "ManagedEnvironment globex/prod spec.namespaces[0] namespace-claimed", "",
		on("globex/prod", "web"))
	refused(t, c, "", "~ManagedEnvironment acme/prod", on("acme/prod", "web"))
	refused(t, c, "", "~ManagedEnvironment acme/prod; +ManagedEnvironment globex/prod",
		on("acme/prod", "shop"))
}

func TestANamespaceChangesHandsInOneCommit(t *testing.T) {
	c := crowd(t, on("acme/prod", "web"), on("globex/prod", "shop"))
	refused(t, c, "", "~ManagedEnvironment acme/prod; ~ManagedEnvironment globex/prod",
		on("acme/prod", "api"), on("globex/prod", "web"))
}

func TestAnArgoCDNamespaceIsNobodys(t *testing.T) {
	c := crowd(t, on("acme/prod", "argocd-eu-2"))
	refused(t, c, "ManagedEnvironment globex/prod spec.namespaces[0] namespace-of-engine", "",
		namespaces(environment("globex/prod"), "argocd-eu-1"))
	refused(t, c, "Engine eu-2 spec.argocd.namespace namespace-of-engine", "", engine("eu-2"))
	refused(t, c, "", "+Engine eu-2; ~ManagedEnvironment acme/prod", on("acme/prod", "web"))
}

func TestAnEngineAndAnEnvironmentThatWantOneNamespaceAtOnce(t *testing.T) {
	c := crowd(t)
	refused(t, c, "ManagedEnvironment acme/prod spec.namespaces[0] namespace-of-engine",
		"+Engine eu-2", engine("eu-2"), on("acme/prod", "argocd-eu-2"))
}

func TestEnginesAreDistinct(t *testing.T) {
	c := crowd(t)
	as := func(name, id, ns string) Input {
		return engine(name, func(d *fleet.Declaration) {
			d.Engine.ArgoCD = fleet.ArgoCDInstance{Namespace: ns, InstallationID: id}
		})
	}
	refused(t, c, "Engine a spec.argocd.installationID installation-id-taken", "",
		as("a", "eu-1", "argocd-a"))
	refused(t, c, "Engine b spec.argocd.namespace instance-taken", "", as("b", "b", "argocd-eu-1"))
	refused(t, c, "", "+Engine c", remake(as("c", "c", "argocd-eu-1"), func(d *fleet.Declaration) {
		d.Engine.Connection = fleet.Connection{KubeconfigRef: &fleet.SecretRef{Name: "far"}}
	}))
	refused(
		t, c,
		"Engine d spec.argocd.installationID installation-id-taken; Engine e "+
			"spec.argocd.installationID installation-id-taken", "",
		as("d", "new", "argocd-d"), as("e", "new", "argocd-e"))
	refused(t, c, "", "+Engine d", gone(engine("e")))
}

func TestANamespaceOfApplicationsBelongsToOneTenantOfOneEngine(t *testing.T) {
	c := crowd(t)
	as := func(name, argocd string, given ...fleet.ApplicationNamespace) Input {
		return engine(name, func(d *fleet.Declaration) {
			d.Engine.ArgoCD = fleet.ArgoCDInstance{Namespace: argocd, InstallationID: name}
			d.Engine.ApplicationNamespaces = given
		})
	}
	apps := fleet.ApplicationNamespace{Namespace: "apps", Tenant: "acme"}
	refused(t, c, "", "+Engine a", as("a", "argocd-a", apps))
	refused(t, c, "Engine b spec.applicationNamespaces[0].namespace instance-taken", "",
		as("b", "argocd-b", apps))
	refused(t, c, "Engine b spec.argocd.namespace instance-taken", "", as("b", "apps"))
	refused(t, c, "Engine b spec.applicationNamespaces[0].namespace application-namespace", "",
		as("b", "argocd-b", fleet.ApplicationNamespace{Namespace: "argocd-b", Tenant: "acme"}))
	refused(t, c, "Engine b spec.applicationNamespaces[0].namespace instance-taken", "",
		as("b", "argocd-b", fleet.ApplicationNamespace{Namespace: "argocd-a", Tenant: "acme"}))
	refused(t, c, "Engine b spec.applicationNamespaces[0].tenant unknown-tenant", "",
		as("b", "argocd-b", fleet.ApplicationNamespace{Namespace: "more", Tenant: "nobody"}))
	refused(t, c, "", "+Engine far", remake(as("far", "argocd", apps),
		func(d *fleet.Declaration) {
			d.Engine.Connection = fleet.Connection{Agent: &fleet.AgentConnection{}}
		}))
	refused(t, c, "", "+Engine b", remake(as("b", "argocd-b", apps), func(d *fleet.Declaration) {
		d.Engine.Connection = fleet.Connection{KubeconfigRef: &fleet.SecretRef{Name: "far"}}
	}))
}

// A writer of a namespace of Applications deploys as its tenant. The platform may let a tenant of
// its own do so.
func TestNoOtherTenantDeploysToANamespaceOfApplications(t *testing.T) {
	giving := func(tenant fleet.TenantName, edits ...edit) Input {
		return remake(engine("eu-2", edits...), func(d *fleet.Declaration) {
			d.Engine.ApplicationNamespaces = []fleet.ApplicationNamespace{
				{Namespace: "more", Tenant: "acme"}, {Namespace: "shop-apps", Tenant: tenant}}
		})
	}
	platform := func(d *fleet.Declaration) { d.Engine.PlatformTenant = "globex" }
	grant := environmentGrants("globex", []string{".example.com"},
		fleet.EnvironmentGrant{Name: "prod", Namespaces: []string{"shop-apps"}})
	const (
		mine   = "ManagedEnvironment globex/prod spec.namespaces[0] namespace-of-engine"
		theirs = "Engine eu-2 spec.applicationNamespaces[1].namespace namespace-of-engine"
	)
	everywhere := func(name string) Input {
		return tenant(name, func(d *fleet.Declaration) {
			d.Tenant.Namespaces = append(d.Tenant.Namespaces, "shop-", "shop-apps")
		})
	}
	for name, c := range map[string]struct {
		before, change []Input
		errors, cause  string
	}{
		"an environment of the tenant": {[]Input{giving("acme")},
			[]Input{on("acme/prod", "shop-apps")}, "", "+ManagedEnvironment acme/prod"},
		"an environment of the tenant with a prefix": {[]Input{giving("acme")},
			[]Input{on("acme/prod", "shop-")}, "", "+ManagedEnvironment acme/prod"},
		"an environment of another tenant": {[]Input{giving("acme")},
			[]Input{on("globex/prod", "shop-apps")}, mine, ""},
		"an environment of another tenant with a prefix": {[]Input{giving("acme")},
			[]Input{on("globex/prod", "shop-")}, mine, ""},
		"an engine, after an environment of the tenant": {[]Input{on("acme/prod", "shop-apps")},
			[]Input{giving("acme")}, "", "+Engine eu-2"},
		"an engine, after an environment of another tenant": {
			[]Input{on("globex/prod", "shop-apps")}, []Input{giving("acme")}, theirs, ""},
		"an engine, after a prefix of another tenant": {
			[]Input{on("globex/prod", "shop-")}, []Input{giving("acme")}, theirs, ""},
		"another tenant of the namespace": {
			[]Input{giving("acme"), on("acme/prod", "shop-apps")}, []Input{giving("globex")},
			theirs, ""},
		"both at once": {nil, []Input{giving("acme"), on("globex/prod", "shop-apps")}, mine,
			"+Engine eu-2"},
		"an engine, and an environment that leaves": {[]Input{on("globex/prod", "shop-apps")},
			[]Input{giving("acme"), on("globex/prod", "web")}, "",
			"+Engine eu-2; ~ManagedEnvironment globex/prod"},
		"an environment, and an engine that takes the namespace back": {[]Input{giving("acme")},
			[]Input{engine("eu-2"), on("globex/prod", "shop-apps")}, "",
			"~Engine eu-2; +ManagedEnvironment globex/prod"},
		"the platform's tenant without a grant": {[]Input{giving("acme", platform)},
			[]Input{on("globex/prod", "shop-apps")}, mine, ""},
		"a grant alone": {[]Input{giving("acme"), grant},
			[]Input{on("globex/prod", "shop-apps")}, mine, ""},
		"the platform's tenant with a grant": {[]Input{giving("acme", platform), grant},
			[]Input{on("globex/prod", "shop-apps")}, "", "+ManagedEnvironment globex/prod"},
		"a platform's tenant no more": {
			[]Input{giving("acme", platform), grant, on("globex/prod", "shop-apps")},
			[]Input{giving("acme")}, "Engine eu-2 spec.platformTenant namespace-of-engine", ""},
		"an engine beside a tenant on a cluster of its own": {
			[]Input{granted("acme", []string{ownURL}), granted("globex", nil),
				deploysTo("acme/own", ownURL, "shop-apps")},
			[]Input{giving("globex")}, "", "+Engine eu-2"},
		"an engine that is a tenant's alone no more": {
			[]Input{granted("acme", []string{"engine:eu-2"}), granted("globex", nil),
				engine("eu-2", func(d *fleet.Declaration) {
					d.Engine.DedicatedTo = []fleet.TenantName{"acme"}
				}), namespaces(environment("acme/own", func(d *fleet.Declaration) {
					d.Environment.Cluster.Server, d.Environment.Cluster.Engine = "", "eu-2"
				}), "shop-apps")},
			[]Input{giving("globex")}, theirs, ""},
		"an environment that leaves a cluster of its own": {
			[]Input{granted("acme", []string{ownURL}), granted("globex", nil),
				deploysTo("acme/own", ownURL, "shop-apps"), giving("globex"),
				granted("acme", []string{ownURL, sharedURL}, "shop-apps"),
				granted("globex", []string{sharedURL})},
			[]Input{deploysTo("acme/own", sharedURL, "shop-apps")},
			"ManagedEnvironment acme/own spec.namespaces[0] namespace-of-engine", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cat := crowd(t, everywhere("acme"), everywhere("globex"))
			for _, in := range c.before {
				good(t, cat, in)
			}
			s := refused(t, cat, c.errors, c.cause, c.change...)
			for _, p := range s.Problems() {
				if p.Key.Tenant == "globex" && strings.Contains(p.Message+p.Fix, "acme") {
					t.Errorf("a tenant learns of another: %s", p)
				}
			}
		})
	}
}

func TestOneCredentialPerRepository(t *testing.T) {
	c := crowd(t, credential("acme/a", "https://git.example.com/acme/shop"))
	refused(t, c, "RepositoryCredential acme/b spec.repoURL duplicate-credential", "",
		credential("acme/b", "https://git.example.com/Acme/Shop.git"))
	refused(t, c, "", "-RepositoryCredential acme/a; +RepositoryCredential acme/b",
		gone(credential("acme/a", "https://git.example.com/acme/shop")))
	refused(
		t, c,
		"RepositoryCredential acme/c spec.repoURL duplicate-credential; RepositoryCredential "+
			"acme/d spec.repoURL duplicate-credential", "",
		credential("acme/c", "https://git.example.com/acme/x"),
		credential("acme/d", "https://git.example.com/acme/x.git"))
}

func TestQuota(t *testing.T) {
	quota := func(envs, deps, apps int) Input {
		return tenant("acme", func(d *fleet.Declaration) {
			d.Tenant.Quota = fleet.Quota{Environments: envs, Deployments: deps, Applications: apps}
		})
	}
	t.Run("newcomers beyond it wait in the order of their paths", func(t *testing.T) {
		c := crowd(t, quota(2, 2, 9))
		refused(t, c, "ManagedEnvironment acme/c spec quota-exceeded",
			"+ManagedEnvironment acme/a; +ManagedEnvironment acme/b",
			environment("acme/c"), environment("acme/b"), environment("acme/a"))
		refused(t, c, "GitOpsDeployment acme/z spec quota-exceeded",
			"+GitOpsDeployment acme/x; +GitOpsDeployment acme/y",
			deployment("acme/z", "a"), deployment("acme/y", "a"), deployment("acme/x", "a"))
		refused(t, c, "", "-GitOpsDeployment acme/x; +GitOpsDeployment acme/z",
			gone(deployment("acme/x")))
		refused(t, c, "", "~Tenant acme; +ManagedEnvironment acme/c", quota(3, 2, 9))
	})
	t.Run("a bad newcomer takes no room", func(t *testing.T) {
		c := crowd(t, quota(2, 1, 9), environment("acme/a"))
		refused(
			t, c, "GitOpsDeployment acme/x spec.destination.environments[0] unknown-environment",
			"+GitOpsDeployment acme/y", deployment("acme/x", "q"), deployment("acme/y", "a"))
	})
	t.Run("a rename needs no room", func(t *testing.T) {
		c := crowd(t, quota(1, 1, 1), on("acme/a", "web"), deployment("acme/x", "a"))
		refused(
			t, c, "",
			"-ManagedEnvironment acme/a; +ManagedEnvironment acme/b; -GitOpsDeployment acme/x; "+
				"+GitOpsDeployment acme/y",
			gone(on("acme/a", "web")), on("acme/b", "web"), gone(deployment("acme/x")),
			deployment("acme/y", "b"))
	})
	t.Run("what is in effect stays when it is lowered", func(t *testing.T) {
		c := crowd(t, quota(2, 2, 4), environment("acme/a"), environment("acme/b"),
			deployment("acme/x", "a", "b"), deployment("acme/y", "a", "b"))
		refused(
			t, c,
			"Tenant acme spec.quota.applications quota-below-use; Tenant acme "+
				"spec.quota.deployments quota-below-use; Tenant acme spec.quota.environments "+
				"quota-below-use",
			"~Tenant acme", quota(1, 1, 1))
		changed := remake(deployment("acme/x", "a", "b"), func(d *fleet.Declaration) {
			d.Deployment.Source.TargetRevision = "v2"
		})
		refused(t, c, "", "~GitOpsDeployment acme/x", changed)
		s := refused(
			t, c,
			"Tenant acme spec.quota.applications quota-below-use; Tenant acme "+
				"spec.quota.environments quota-below-use", "-GitOpsDeployment acme/y",
			gone(deployment("acme/y")))
		if got := fmt.Sprint(s.Checked()); got != "[Tenant acme GitOpsDeployment acme/y]" {
			t.Errorf("checked: %s", got)
		}
	})
	t.Run("applications are counted where they come from", func(t *testing.T) {
		c := crowd(t, quota(5, 5, 3), environment("acme/a"),
			deploymentWith("acme/x", selector("tier", "prod")), deployment("acme/y", "a"))
		refused(t, c, "", "+ManagedEnvironment acme/b", environment("acme/b"))
		refused(t, c, "ManagedEnvironment acme/c spec quota-exceeded", "", environment("acme/c"))
		refused(t, c, "GitOpsDeployment acme/y spec.destination quota-exceeded", "",
			deployment("acme/y", "a", "b"))
		refused(t, c, "", "~ManagedEnvironment acme/b; +ManagedEnvironment acme/c",
			environment("acme/b", label("tier", "test")))
	})
	t.Run("an environment waits less when a selector narrows", func(t *testing.T) {
		c := crowd(t, quota(5, 5, 2), environment("acme/a"),
			deploymentWith("acme/x", selector("tier", "prod")), deployment("acme/y", "a"))
		refused(t, c, "ManagedEnvironment acme/b spec quota-exceeded", "", environment("acme/b"))
		refused(t, c, "", "+ManagedEnvironment acme/b; ~GitOpsDeployment acme/x",
			deployment("acme/x", "a"))
	})
	t.Run("an environment waits less when it is selected and would no longer be",
		func(t *testing.T) {
			c := crowd(t, quota(5, 5, 1), environment("acme/a", label("tier", "test")),
				deployment("acme/y", "a"))
			refused(
				t, c,
				"GitOpsDeployment acme/x spec.destination.environmentSelector selects-nothing",
				"+GitOpsDeployment acme/x", deploymentWith("acme/x", selector("tier", "prod")))
			refused(t, c, "ManagedEnvironment acme/a spec quota-exceeded", "",
				environment("acme/a"))
			refused(
				t, c,
				"GitOpsDeployment acme/y spec.destination.environmentSelector selects-nothing",
				"~ManagedEnvironment acme/a; ~GitOpsDeployment acme/y",
				deploymentWith("acme/y", selector("tier", "test")))
		})
}

func TestOneTenantsQuotaIsNotAnothers(t *testing.T) {
	c := crowd(
		t, tenant("acme", func(d *fleet.Declaration) {
			d.Tenant.Quota = fleet.Quota{Environments: 1}
		}), environment("acme/a"))
	refused(t, c, "ManagedEnvironment acme/b spec quota-exceeded", "+ManagedEnvironment globex/a",
		environment("acme/b"), environment("globex/a"))
}
