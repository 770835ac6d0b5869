package catalog

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// Each case adds files to the small fleet of acme and lists the expected problems: key, field and
// code.
var unfounded = map[string]struct {
	in   []Input
	want string
}{
	"a folder without a tenant": {
		[]Input{environment("globex/prod"), sealed("globex/environments/prod"),
			syncRun("globex/run", "shop", "v1")},
		"ManagedEnvironment globex/prod unknown-tenant; SealedSecret globex/environments/prod " +
			"unknown-tenant; SyncRun globex/run unknown-tenant"},
	"an unknown environment": {[]Input{deployment("acme/cart", "prod", "nowhere")},
		"GitOpsDeployment acme/cart spec.destination.environments[1] unknown-environment"},
	"another tenant's environment": {[]Input{tenant("globex"), deployment("globex/shop", "prod")},
		"GitOpsDeployment globex/shop spec.destination.environments[0] unknown-environment"},
	"a namespace that an environment lacks": {
		[]Input{deploymentWith("acme/cart", func(d *fleet.Declaration) {
			d.Deployment.Destination = fleet.Destinations{
				Environments: []fleet.EnvironmentName{"prod"}, Namespace: "cart"}
		})}, "GitOpsDeployment acme/cart spec.destination.namespace namespace-not-in-environment"},
	"a selector that selects nothing": {
		[]Input{deploymentWith("acme/cart", selector("tier", "none"))},
		"GitOpsDeployment acme/cart spec.destination.environmentSelector selects-nothing"},
	"a selected environment without the namespace": {
		[]Input{deploymentWith("acme/cart", selector("tier", "prod")),
			environment("acme/edge", func(d *fleet.Declaration) {
				d.Environment.Namespaces = []string{"plc"}
			})},
		"GitOpsDeployment acme/cart spec.destination.namespace namespace-not-in-environment"},
	"an override of an environment that is not named": {
		[]Input{override(deployment("acme/cart", "prod"), "staging")},
		"GitOpsDeployment acme/cart spec.overrides[0].environment not-a-destination"},
	"an override of an environment that is not selected": {
		[]Input{override(deploymentWith("acme/cart", selector("tier", "prod")), "staging")},
		"GitOpsDeployment acme/cart spec.overrides[0].environment unused-override"},
	"an override of nothing": {
		[]Input{override(deploymentWith("acme/cart", selector("tier", "prod")), "nowhere")},
		"GitOpsDeployment acme/cart spec.overrides[0].environment unknown-environment"},
	"two overrides of one environment": {
		[]Input{override(deployment("acme/cart", "prod"), "prod", "prod")},
		"GitOpsDeployment acme/cart spec.overrides[1].environment duplicate-override"},
	"replace and namespace metadata without a grant": {
		[]Input{deploymentWith("acme/cart", func(d *fleet.Declaration) {
			d.Deployment.Destination.Environments = []fleet.EnvironmentName{"prod"}
			d.Deployment.Sync = settings()
		})}, "GitOpsDeployment acme/cart spec.sync.managedNamespaceMetadata.annotations " +
			"namespace-metadata-not-granted; GitOpsDeployment acme/cart " +
			"spec.sync.managedNamespaceMetadata.labels namespace-metadata-not-granted; " +
			"GitOpsDeployment acme/cart spec.sync.replace replace-not-granted"},
	"a repository beside the grant": {
		[]Input{source(deployment("acme/cart", "prod"), "https://git.example.com/acme-evil/cart"),
			credential("acme/c", "https://git.example.com/globex/x")},
		"GitOpsDeployment acme/cart spec.source.repoURL repository-not-granted; " +
			"RepositoryCredential acme/c spec.repoURL repository-not-granted"},
	"a host that the fleet does not list": {
		[]Input{source(deployment("acme/cart", "prod"), "https://evil.example.com/acme/cart")},
		"GitOpsDeployment acme/cart spec.source.repoURL git-host-not-allowed; GitOpsDeployment " +
			"acme/cart spec.source.repoURL repository-not-granted"},
	"a loopback API server": {[]Input{server(environment("acme/edge"), "https://127.0.0.1:6443")},
		"ManagedEnvironment acme/edge spec.cluster.server cluster-host-not-allowed"},
	"cluster resources without a grant": {
		[]Input{
			environment("acme/edge", func(d *fleet.Declaration) {
				d.Environment.ClusterResources = true
			})},
		"ManagedEnvironment acme/edge spec.clusterResources cluster-resources-not-granted"},
	"a region that the tenant may not use": {
		[]Input{
			tenant("globex", func(d *fleet.Declaration) {
				d.Tenant.Placement.Regions = []string{"us"}
			}), environment("globex/prod")},
		"ManagedEnvironment globex/prod spec.region region-not-allowed"},
	"a region without an engine": {
		[]Input{
			environment("acme/edge", func(d *fleet.Declaration) { d.Environment.Region = "mars" })},
		"ManagedEnvironment acme/edge spec.region region-without-engine"},
	"an environment with an agent in a region without an engine": {
		[]Input{
			environment("acme/edge", behindAgent(""), func(d *fleet.Declaration) {
				d.Environment.Region = "mars"
			})}, ""},
	"an environment with an agent in a region that the tenant may not use": {
		[]Input{
			tenant("globex", func(d *fleet.Declaration) {
				d.Tenant.Placement.Regions = []string{"us"}
			}), environment("globex/edge", behindAgent(""))},
		"ManagedEnvironment globex/edge spec.region region-not-allowed"},
	"the namespace of the cluster's own Argo CD": {
		[]Input{environment("acme/edge", behindAgent(""), func(d *fleet.Declaration) {
			d.Environment.Agent.ArgoCDNamespace, d.Environment.Namespaces = "gitops",
				[]string{"web", "gitops"}
		})}, "ManagedEnvironment acme/edge spec.namespaces[1] namespace-of-engine"},
	"one namespace of the clusters of two agents": {
		[]Input{tenant("globex"), environment("acme/edge", behindAgent("")),
			environment("globex/edge", behindAgent(""))}, ""},
	"an autonomous environment that is named": {
		[]Input{environment("acme/edge", behindAgent(fleet.AgentAutonomous)),
			deployment("acme/cart", "prod", "edge")},
		"GitOpsDeployment acme/cart spec.destination.environments[1] autonomous-environment"},
	"an autonomous environment that is selected": {
		[]Input{environment("acme/edge", behindAgent(fleet.AgentAutonomous)),
			deploymentWith("acme/cart", selector("tier", "prod"))},
		"GitOpsDeployment acme/cart spec.destination.environmentSelector autonomous-environment"},
	"an autonomous environment without the namespace": {
		[]Input{
			environment("acme/edge", behindAgent(fleet.AgentAutonomous),
				func(d *fleet.Declaration) {
					d.Environment.Namespaces = []string{"plc"}
				}), deploymentWith("acme/cart", selector("tier", "prod"))},
		"GitOpsDeployment acme/cart spec.destination.namespace namespace-not-in-environment"},
	"two engines behind agents of one namespace": {
		[]Input{engine("far-1", farAway), engine("far-2", farAway)}, ""},
	"an engine whose agent is to follow an address": {
		[]Input{
			engine("far-1", farAway, func(d *fleet.Declaration) {
				d.Engine.Metrics = &fleet.EngineMetrics{RepoServer: []fleet.MetricsEndpoint{
					{Pod: &fleet.MetricsPort{Name: "argocd-repo-server-0", Port: 8084}},
					{URL: "http://10.0.0.1:8084"}}}
			})},
		"Engine far-1 spec.metrics.repoServer[1].url metrics-url-behind-agent"},
	"an engine dedicated to an unknown tenant": {
		[]Input{
			engine("eu-2", func(d *fleet.Declaration) {
				d.Engine.DedicatedTo = []fleet.TenantName{"acme", "globex"}
			})},
		"Engine eu-2 spec.dedicatedTo[1] unknown-tenant"},
	"an engine with an unknown platform tenant": {
		[]Input{
			engine("eu-2", func(d *fleet.Declaration) { d.Engine.PlatformTenant = "globex" })},
		"Engine eu-2 spec.platformTenant unknown-tenant"},
	"a second Fleet": {
		[]Input{
			declare(
				fleet.Declaration{Key: fleet.Key{Kind: fleet.KindFleet, Name: "other"},
					Fleet: &fleet.FleetSpec{}})},
		"Fleet other metadata.name fleet-name"},
	"a tenant named as Kubernetes names things": {
		[]Input{tenant("default")}, "Tenant default metadata.name reserved-name"},
	"a SyncRun of an unknown deployment": {
		[]Input{syncRun("acme/run", "shopp", "v1")},
		"SyncRun acme/run spec.deployment unknown-deployment"},
	"a SyncRun in an environment that the deployment does not go to": {
		[]Input{
			environment("acme/edge"), syncRun("acme/run", "shop", "v1", "prod", "edge", "nowhere")},
		"SyncRun acme/run spec.environments[1] not-a-destination; SyncRun acme/run " +
			"spec.environments[2] unknown-environment"},
	"one identity in two files": {
		[]Input{
			deployment("acme/cart", "prod"),
			at(deployment("acme/cart", "staging"), "tenants/acme/deployments/CART.yaml")},
		"GitOpsDeployment acme/cart duplicate-identity"},
	"nothing wrong": {
		[]Input{tenant("globex"), deployment("acme/cart", "prod"),
			syncRun("acme/run", "cart", "v1", "prod"),
			credential("acme/c", "https://git.example.com/acme/cart.git"),
			sealed("acme/credentials/c")}, ""},
}

func farAway(d *fleet.Declaration) {
	d.Engine.ArgoCD.Namespace, d.Engine.Connection = "argocd-far", fleet.Connection{
		Agent: &fleet.AgentConnection{}}
}

func override(i Input, environments ...fleet.EnvironmentName) Input {
	return remake(i, func(d *fleet.Declaration) {
		for _, n := range environments {
			d.Deployment.Overrides = append(d.Deployment.Overrides, fleet.Override{Environment: n})
		}
	})
}

func source(i Input, url string) Input {
	return remake(i, func(d *fleet.Declaration) { d.Deployment.Source.RepoURL = url })
}

func server(i Input, url string) Input {
	return remake(i, func(d *fleet.Declaration) { d.Environment.Cluster.Server = url })
}

func namespaces(i Input, ns ...string) Input {
	return remake(i, func(d *fleet.Declaration) { d.Environment.Namespaces = ns })
}

func remake(i Input, e edit) Input {
	d := *i.Declaration
	d.Blob = ""
	return declare(d, e)
}

func at(i Input, path string) Input {
	i.Path = path
	return i
}

func TestWhatDoesNotHoldIsNamed(t *testing.T) {
	for name, tc := range unfounded {
		t.Run(name, func(t *testing.T) {
			c := New()
			good(t, c, acme()...)
			s := c.Prepare(tc.in)
			if got := codes(s.Problems()); got != tc.want {
				t.Errorf("found %q\nwant  %q", got, tc.want)
			}
			for _, p := range s.Problems() {
				if p.Path == "" || p.Message == "" || p.Fix == "" || p.Line != 0 ||
					Codes()[p.Code] == "" {
					t.Errorf("badly reported: %+v", p)
				}
				if _, held := s.Quarantine(p.Key); held != (p.Severity == fleet.SeverityError) {
					t.Errorf("%s is of severity %s and quarantined is %v", p.Code, p.Severity, held)
				}
			}
			for _, ch := range s.Changes() {
				if ch.Before != nil {
					t.Errorf("%s of the others changed", ch.Key)
				}
			}
			commit(t, c, s)
			if again := c.Prepare(tc.in); len(again.Changes())+len(again.Quarantined())+
				len(again.Cleared()) > 0 {
				t.Errorf("the same files again change something: %s", outcome(again))
			}
		})
	}
}

func TestTheFixNamesWhatWasMeant(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	for want, in := range map[string]Input{
		`did you mean "prod"?`:                              deployment("acme/cart", "prdo"),
		`did you mean "shop"?`:                              syncRun("acme/run", "sohp", "v1"),
		`did you mean the folder of tenant "acme"?`:         environment("acmee/prod"),
		`declare it in tenants/acme/environments/mars.yaml`: deployment("acme/cart", "mars"),
		`use one of git.example.com,`: source(deployment("acme/cart", "prod"),
			"https://evil.example.com/acme/cart"),
		`use https://git.example.com/acme/,`: source(deployment("acme/cart", "prod"),
			"https://git.example.com/globex/cart"),
		`use one of shop, web,`: remake(deployment("acme/cart", "prod"),
			func(d *fleet.Declaration) {
				d.Deployment.Destination.Namespace = "cart"
			}),
	} {
		p := c.Prepare([]Input{in}).Problems()
		if len(p) == 0 || !strings.Contains(p[0].Fix, want) {
			t.Errorf("no fix contains %s: %+v", want, p)
		}
	}
}

func TestHostsThatTheFleetAllowsLater(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	commit(
		t, c,
		c.Prepare(
			[]Input{server(environment("acme/edge"), "https://127.0.0.1:6443"),
				tenant("globex", func(d *fleet.Declaration) {
					d.Tenant.Repositories = []string{"http://127.0.0.1:3000/globex/"}
				}), environment("globex/prod"),
				source(deployment("globex/shop", "prod"), "http://127.0.0.1:3000/globex/shop")}))
	s := c.Prepare([]Input{theFleet(func(d *fleet.Declaration) {
		d.Fleet.GitHosts = append(d.Fleet.GitHosts, "http://127.0.0.1:3000")
		d.Fleet.ClusterHosts = []string{"127.0.0.1"}
	})})
	if got := keys(
		s.Changes()); got != "~Fleet fleet; +ManagedEnvironment acme/edge; +GitOpsDeployment "+
		"globex/shop" {
		t.Errorf("changes: %s", got)
	}
	commit(t, c, s)
	s = c.Prepare([]Input{theFleet()})
	if got := codes(
		s.Problems()); got != "GitOpsDeployment globex/shop spec.source.repoURL "+
		"git-host-not-allowed; ManagedEnvironment acme/edge spec.cluster.server "+
		"cluster-host-not-allowed" {
		t.Errorf("a host that is no longer allowed: %s", got)
	}
	if got := keys(s.Changes()); got != "~Fleet fleet" {
		t.Errorf("its dependents are lost: %s", got)
	}
}

func TestGuardsAloneJudgeNothingAgain(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	s := c.Prepare([]Input{theFleet(func(d *fleet.Declaration) { d.Fleet.Guards.MaxDeletes = 3 })})
	if got := fmt.Sprint(s.Checked()); got != "[Fleet fleet]" {
		t.Errorf("checked: %s", got)
	}
	if s.Fleet().Guards.MaxDeletes != 3 || c.Fleet().Guards.MaxDeletes != 20 {
		t.Error("the stage changes its base, or not itself")
	}
}

func TestASyncRunIsImmutableOnceInEffect(t *testing.T) {
	c := New()
	good(t, c, append(acme(), syncRun("acme/run", "shop", "v1", "prod"))...)
	s := c.Prepare([]Input{syncRun("acme/run", "shop", "v2", "prod")})
	if got := codes(s.Problems()); got != "SyncRun acme/run spec immutable" {
		t.Errorf("problems: %s", got)
	}
	commit(t, c, s)
	if c.SyncRun(fleet.SyncRunID{Tenant: "acme", Name: "run"}).SyncRun.Revision != "v1" {
		t.Error("the SyncRun changed")
	}
	s = c.Prepare([]Input{syncRun("acme/run", "shop", "v1", "prod")})
	if got := fmt.Sprint(s.Cleared()); got != "[SyncRun acme/run]" || len(s.Changes()) > 0 {
		t.Errorf("restored, it clears %s and changes %s", got, keys(s.Changes()))
	}
	commit(t, c, s)
	s = c.Prepare([]Input{deployment("acme/shop", "staging")})
	if got := codes(s.Problems()); got != "SyncRun acme/run spec.environments[0] spent-sync-run" {
		t.Errorf("a SyncRun that has had its effect: %s", got)
	}
	commit(t, c, s)
	good(t, c, gone(syncRun("acme/run", "shop", "v1", "prod")))
	good(t, c, syncRun("acme/run", "shop", "v2", "staging"))
}

func TestAWarningComesAndGoesWithItsCause(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	us := environment("acme/us", func(d *fleet.Declaration) { d.Environment.Region = "us" })
	commit(t, c, c.Prepare([]Input{us}))
	s := c.Prepare([]Input{engine("us-1", func(d *fleet.Declaration) { d.Engine.Region = "us" })})
	if got := fmt.Sprint(s.Checked()); got != "[Engine us-1 ManagedEnvironment acme/us]" ||
		len(s.Problems()) > 0 {
		t.Errorf("the region's first engine: checked %s, %v", got, s.Problems())
	}
	commit(t, c, s)
	s = c.Prepare([]Input{engine("us-2", func(d *fleet.Declaration) { d.Engine.Region = "us" })})
	if got := fmt.Sprint(s.Checked()); got != "[Engine us-2]" {
		t.Errorf("the region's second engine: checked %s", got)
	}
	s = c.Prepare([]Input{gone(engine("us-1"))})
	if got := codes(
		s.Problems()); got != "ManagedEnvironment acme/us spec.region region-without-engine" {
		t.Errorf("the region's last engine goes: %s", got)
	}
}

func TestRepositoriesOfAnEnvironmentNameTheirCredential(t *testing.T) {
	c := New()
	good(
		t, c,
		append(
			acme(),
			source(deployment("acme/cart", "prod"), "https://git.example.com/acme/Shop.git"),
			deployment("acme/open", "prod"),
			credential("acme/shop-git", "https://git.example.com/acme/shop"))...)
	var got []string
	for _, r := range c.Repositories(fleet.EnvironmentID{Tenant: "acme", Name: "prod"}) {
		got = append(got, r.Identity())
	}
	want := "https://git.example.com/acme/open, https://git.example.com/acme/shop acme/shop-git"
	if strings.Join(got, ", ") != want {
		t.Errorf("repositories: %s", strings.Join(got, ", "))
	}
	if from := c.DeploymentsFrom("acme", "https://git.example.com/ACME/shop"); fmt.Sprint(
		from) != "[acme/cart acme/shop]" {
		t.Errorf("deployments from the repository: %v", from)
	}
	if cr := c.CredentialFor("acme", "https://git.example.com/acme/shop.git"); cr == nil ||
		cr.Key.Name != "shop-git" {
		t.Errorf("credential: %v", cr)
	}
	if c.CredentialFor("globex", "https://git.example.com/acme/shop") != nil {
		t.Error("another tenant reads the repository with it")
	}
}
