package catalog

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// refused commits inputs and checks that they have only these problems and make only these changes.
func refused(t *testing.T, c *Catalog, problems, changes string, in ...Input) *Changeset {
	t.Helper()
	s := c.Prepare(in)
	if got := codes(s.Problems()); got != problems {
		t.Errorf("problems: %s\nwant:     %s", got, problems)
	}
	if got := keys(s.Changes()); got != changes {
		t.Errorf("changes: %s\nwant:    %s", got, changes)
	}
	commit(t, c, s)
	return s
}

func TestAnEnvironmentStaysWhileADeploymentNamesIt(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	prod := environment("acme/prod")
	s := refused(t, c, "ManagedEnvironment acme/prod still-referenced", "", gone(prod))
	p := s.Problems()[0]
	if !strings.Contains(
		p.Message, "tenants/acme/deployments/shop.yaml (spec.destination.environments[0])") {
		t.Errorf("the referring file and field are not named: %v", p)
	}
	q, _ := c.Quarantine(prod.Key)
	if !q.Removed || !q.HasLastGood ||
		c.Environment(fleet.EnvironmentID{Tenant: "acme", Name: "prod"}) == nil {
		t.Errorf("the environment did not stay: %+v", q)
	}
	s = refused(t, c, "", "-ManagedEnvironment acme/prod; ~GitOpsDeployment acme/shop",
		deployment("acme/shop", "staging"))
	if got := fmt.Sprint(s.Cleared()); got != "[ManagedEnvironment acme/prod]" {
		t.Errorf("cleared: %s", got)
	}
}

func TestAnEnvironmentGoesWithTheDeploymentThatNamedIt(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	good(t, c, gone(environment("acme/prod")), deployment("acme/shop", "staging"))
	good(t, c, gone(environment("acme/staging")), gone(deployment("acme/shop")))
	if used := c.Used("acme"); used != (fleet.Quota{}) {
		t.Errorf("use is %+v", used)
	}
}

func TestAnEnvironmentStaysWhenTheDeploymentThatWasToLeaveItIsBad(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	for name, bad := range map[string]Input{
		"does not decode":     broken(deployment("acme/shop", "staging")),
		"names another wrong": deployment("acme/shop", "staging", "nowhere"),
	} {
		t.Run(name, func(t *testing.T) {
			c := c.restored()
			s := c.Prepare([]Input{gone(environment("acme/prod")), bad})
			if got := keys(s.Changes()); got != "" {
				t.Errorf("changes: %s", got)
			}
			if q, held := s.Quarantine(environment("acme/prod").Key); !held || !q.Removed ||
				q.Problems[0].Code != codeReferenced {
				t.Errorf("the removal: %+v", q)
			}
			commit(t, c, s)
			refused(t, c, "", "-ManagedEnvironment acme/prod; ~GitOpsDeployment acme/shop",
				deployment("acme/shop", "staging"))
		})
	}
}

func TestAnEnvironmentStaysForAQuarantinedDeploymentThatNamesIt(t *testing.T) {
	c := New()
	good(t, c, append(acme(), environment("acme/edge"))...)
	commit(t, c, c.Prepare([]Input{deployment("acme/cart", "edge", "nowhere")}))
	refused(t, c, "ManagedEnvironment acme/edge still-referenced", "",
		gone(environment("acme/edge")))
	s := refused(t, c, "", "-ManagedEnvironment acme/edge", gone(deployment("acme/cart")))
	if len(s.Cleared()) != 2 {
		t.Errorf("cleared: %v", s.Cleared())
	}
}

func TestASelectedEnvironmentMayGo(t *testing.T) {
	c := New()
	good(
		t, c, append(acme(), environment("acme/edge", label("tier", "edge")),
			deploymentWith("acme/cart", selector("tier", "edge")))...)
	refused(t, c, "GitOpsDeployment acme/cart spec.destination.environmentSelector selects-nothing",
		"-ManagedEnvironment acme/edge", gone(environment("acme/edge")))
	if n := c.Used("acme").Applications; n != 2 {
		t.Errorf("%d applications are counted", n)
	}
}

func TestATenantStaysWhileItsFolderDoes(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	refused(t, c, "Tenant acme still-referenced",
		"-ManagedEnvironment acme/staging; ~GitOpsDeployment acme/shop",
		gone(tenant("acme")), gone(environment("acme/staging")), deployment("acme/shop", "prod"))
}

func TestATenantGoesWithAllOfItsFiles(t *testing.T) {
	c := New()
	good(t, c, append(acme(), sealed("acme/environments/prod"), syncRun("acme/run", "shop", "v1"),
		credential("acme/c", "https://git.example.com/acme/shop"))...)
	all := []Input{gone(tenant("acme"))}
	for _, d := range c.Effective() {
		if d.Key.Tenant == "acme" {
			all = append(all, Input{Key: d.Key, Path: d.Path, Removed: true})
		}
	}
	s := c.Prepare(all)
	if len(s.Problems()) > 0 || len(s.Changes()) != 7 {
		t.Errorf("changes %s, problems %v", keys(s.Changes()), s.Problems())
	}
	commit(t, c, s)
	if n, held := c.Count(); n != 2 || held != 0 {
		t.Errorf("%d declarations stay, %d quarantined", n, held)
	}
}

func TestATenantStaysWhenOneOfItsFilesMust(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	// The deployment's file is broken and not removed, so its last good state holds the
	// environments, and they the tenant.
	refused(
		t, c,
		"GitOpsDeployment acme/shop syntax; ManagedEnvironment acme/prod still-referenced; "+
			"ManagedEnvironment acme/staging still-referenced; Tenant acme still-referenced", "",
		gone(tenant("acme")), gone(environment("acme/prod")), gone(environment("acme/staging")),
		broken(deployment("acme/shop")))
	s := refused(
		t, c, "",
		"-Tenant acme; -ManagedEnvironment acme/prod; -ManagedEnvironment acme/staging; "+
			"-GitOpsDeployment acme/shop", gone(deployment("acme/shop")))
	if len(s.Cleared()) != 4 {
		t.Errorf("cleared: %v", s.Cleared())
	}
}

func TestATenantStaysWhileAnEngineNamesIt(t *testing.T) {
	in := func(namespace string, t fleet.TenantName) fleet.ApplicationNamespace {
		return fleet.ApplicationNamespace{Namespace: namespace, Tenant: t}
	}
	for field, names := range map[string]fleet.EngineSpec{
		"spec.dedicatedTo[0]": {DedicatedTo: []fleet.TenantName{"acme"}},
		"spec.platformTenant": {PlatformTenant: "acme"},
		"spec.applicationNamespaces[0].tenant": {
			ApplicationNamespaces: []fleet.ApplicationNamespace{in("a", "acme")}},
		"spec.applicationNamespaces[1].tenant": {DedicatedTo: []fleet.TenantName{"globex"},
			PlatformTenant: "globex", ApplicationNamespaces: []fleet.ApplicationNamespace{
				in("a", "globex"), in("b", "acme")}},
	} {
		c := New()
		good(t, c, theFleet(), tenant("acme"), tenant("globex"),
			engine("eu-1", func(d *fleet.Declaration) {
				d.Engine.DedicatedTo, d.Engine.PlatformTenant = names.DedicatedTo,
					names.PlatformTenant
				d.Engine.ApplicationNamespaces = names.ApplicationNamespaces
			}))
		s := refused(t, c, "Tenant acme still-referenced", "", gone(tenant("acme")))
		if p := s.Problems(); len(p) != 1 || !strings.HasSuffix(p[0].Message,
			"is still named by fleet/engines/eu-1.yaml ("+field+")") {
			t.Errorf("%s: %v", field, p)
		}
		refused(t, c, "", "-Tenant acme; ~Engine eu-1", engine("eu-1"))
	}
}

func TestADeploymentStaysWhileASyncRunNamesIt(t *testing.T) {
	c := New()
	good(t, c, append(acme(), syncRun("acme/run", "shop", "v1"))...)
	refused(t, c, "GitOpsDeployment acme/shop still-referenced", "", gone(deployment("acme/shop")))
	// Going through the deployment, the environment's removal waits for the SyncRun.
	refused(t, c, "ManagedEnvironment acme/prod still-referenced", "",
		gone(environment("acme/prod")))
	refused(
		t, c, "", "-ManagedEnvironment acme/prod; -GitOpsDeployment acme/shop; -SyncRun acme/run",
		gone(syncRun("acme/run", "shop", "v1")))
}

func TestTheFleetStays(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	refused(t, c, "Fleet fleet fleet-required", "", gone(theFleet()))
}

func TestAFileThatWasNeverGoodMayGo(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	commit(
		t, c, c.Prepare([]Input{broken(environment("acme/edge")), deployment("acme/cart", "edge")}))
	s := refused(
		t, c, "GitOpsDeployment acme/cart spec.destination.environments[0] unknown-environment", "",
		gone(environment("acme/edge")))
	if got := fmt.Sprint(s.Cleared()); got != "[ManagedEnvironment acme/edge]" {
		t.Errorf("cleared: %s", got)
	}
}

func TestAFileThatMovesIsNotRemoved(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	moved := at(deployment("acme/shop", "prod", "staging"), "tenants/acme/deployments/Shop.yaml")
	s := c.Prepare([]Input{gone(moved), deployment("acme/shop", "prod", "staging")})
	if len(s.Changes())+len(s.Problems()) > 0 {
		t.Errorf("changes %s, problems %v", keys(s.Changes()), s.Problems())
	}
}

func TestANamespaceStaysWhileADeploymentThatNamesTheEnvironmentUsesIt(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	refused(t, c, "ManagedEnvironment acme/prod spec.namespaces namespace-in-use", "",
		namespaces(environment("acme/prod"), "shop"))
	refused(t, c, "", "~ManagedEnvironment acme/prod; ~GitOpsDeployment acme/shop",
		deployment("acme/shop", "staging"))
}

func TestADeploymentAndItsEnvironmentChangeNamespaceTogether(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	there := func(i Input) Input {
		return remake(i, func(d *fleet.Declaration) { d.Deployment.Destination.Namespace = "new" })
	}
	both := []Input{
		namespaces(environment("acme/prod"), "new"),
		namespaces(environment("acme/staging", label("tier", "test")), "new")}
	good := there(deployment("acme/shop", "prod", "staging"))
	s := c.Prepare(append(both, good))
	if len(s.Problems()) > 0 || len(s.Changes()) != 3 {
		t.Errorf("changes %s, problems %v", keys(s.Changes()), s.Problems())
	}
	// A deployment that is bad for another reason keeps its last good state, so its namespace must
	// stay, in both environments.
	s = c.Prepare(append(both, source(good, "https://git.example.com/globex/x")))
	if got := codes(
		s.Problems()); got != "GitOpsDeployment acme/shop spec.destination.namespace "+
		"namespace-not-in-environment; "+
		"GitOpsDeployment acme/shop spec.destination.namespace namespace-not-in-environment; "+
		"GitOpsDeployment acme/shop spec.source.repoURL repository-not-granted; "+
		"ManagedEnvironment acme/prod spec.namespaces namespace-in-use; ManagedEnvironment "+
		"acme/staging spec.namespaces namespace-in-use" {
		t.Errorf("problems: %s", got)
	}
	if len(s.Changes()) > 0 {
		t.Errorf("changes %s", keys(s.Changes()))
	}
}

// Each deployment moves from one environment's namespace to one that the next environment adds
// while it drops its own; the last one cannot. Every round rejects one more.
func TestAChainOfNarrowingsThatNeedEachOtherEnds(t *testing.T) {
	const links = 40
	in := []Input{theFleet(), engine("eu-1"), tenant("acme", func(d *fleet.Declaration) {
		d.Tenant.Quota = fleet.Quota{Environments: 99, Deployments: 99, Applications: 99}
	}),
		environment("acme/aside")}
	next := []Input{environment("acme/bystander"), gone(environment("acme/aside"))}
	for i := range links {
		env, dep := fmt.Sprintf("acme/e%d", i), fmt.Sprintf("acme/d%d", i)
		at := func(n int, ns string) Input {
			return remake(deployment(dep, fleet.EnvironmentName(fmt.Sprintf("e%d", n))),
				func(d *fleet.Declaration) { d.Deployment.Destination.Namespace = ns })
		}
		in = append(in, namespaces(environment(env), "old"), at(i, "old"))
		next = append(next, namespaces(environment(env), "new"), at(i+1, "new"))
	}
	c := New()
	good(t, c, in...)
	s := c.Prepare(next)
	if got := keys(s.Changes()); got != "+ManagedEnvironment acme/bystander" {
		t.Errorf("changes: %s", got)
	}
	if _, quarantined := s.Count(); quarantined != 2*links+1 {
		t.Errorf("%d are quarantined", quarantined)
	}
	commit(t, c, s)
	if got := keys(
		c.Prepare(nil, gone(environment("acme/aside")).Key).
			Changes()); got != "-ManagedEnvironment acme/aside" {
		t.Errorf("judged again, the removal that only waited changes %s", got)
	}
}

func TestAPlannerRefusesAChangeThatTheCatalogAllows(t *testing.T) {
	c := New()
	good(t, c, acme()...)
	eu1 := gone(engine("eu-1"))
	why := fleet.Problem{Key: eu1.Key, Path: eu1.Path, Code: "engine-in-use",
		Message: "engine \"eu-1\" serves 2 environments"}
	all := c.Prepare([]Input{eu1, deployment("acme/cart", "prod")})
	s := all.Refuse(why)
	if got := keys(s.Changes()); got != "+GitOpsDeployment acme/cart" {
		t.Errorf("changes: %s", got)
	}
	if got := keys(all.Changes()); got != "-Engine eu-1; +GitOpsDeployment acme/cart" {
		t.Errorf("the stage that was refused changed: %s", got)
	}
	commit(t, c, s)
	if q, _ := c.Quarantine(eu1.Key); !q.Removed || !q.HasLastGood ||
		q.Problems[0].Severity != fleet.SeverityError {
		t.Errorf("the engine: %+v", q)
	}
	if got := keys(c.Prepare(nil).Changes()); got != "" {
		t.Errorf("the refusal does not last: %s", got)
	}
	if got := keys(c.Prepare(nil, eu1.Key).Changes()); got != "-Engine eu-1" {
		t.Errorf("judged again: %s", got)
	}
}
