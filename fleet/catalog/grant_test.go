package catalog

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// granted is a tenant with these API servers and namespaces.
func granted(name string, clusters []string, namespaces ...string) Input {
	return tenant(name, func(d *fleet.Declaration) {
		d.Tenant.Clusters, d.Tenant.Namespaces = clusters, namespaces
	})
}

const (
	sharedURL = "https://shared.example.net:6443"
	ownURL    = "https://k8s.acme.example.org"
)

func deploysTo(id, url string, ns ...string) Input {
	return namespaces(server(environment(id), url), ns...)
}

func TestAnAPIServerIsGrantedToItsTenant(t *testing.T) {
	c := New()
	good(t, c, theFleet(), engine("eu-1"), granted("acme", []string{ownURL, ".acme.example.com"}),
		granted("evil", nil))
	refused(t, c, "", "+ManagedEnvironment acme/a; +ManagedEnvironment acme/b",
		deploysTo("acme/a", ownURL, "web"),
		deploysTo("acme/b", "https://b.acme.example.com:6443", "web"))
	s := c.Prepare(
		[]Input{deploysTo("evil/a", ownURL, "web"), deploysTo("acme/c", "https://10.96.0.1", "web"),
			deploysTo("acme/d", "https://acme.example.com", "web")})
	if got := codes(
		s.Problems()); got != "ManagedEnvironment acme/c spec.cluster.server cluster-not-granted; "+
		"ManagedEnvironment acme/d spec.cluster.server cluster-not-granted; ManagedEnvironment "+
		"evil/a spec.cluster.server cluster-not-granted" {
		t.Errorf("found %s", got)
	}
	for _, p := range s.Problems() {
		if !strings.Contains(p.Fix, "clusters of fleet/tenants/"+string(p.Key.Tenant)+".yaml") ||
			strings.Contains(p.Message+p.Fix, "acme/a") {
			t.Errorf("%s\n%s", p.Message, p.Fix)
		}
	}
	commit(t, c, s)
	refused(t, c, "", "+ManagedEnvironment evil/edge", environment("evil/edge", behindAgent("")))
	refused(t, c, "", "~Tenant evil; -ManagedEnvironment acme/a; +ManagedEnvironment evil/a",
		granted("evil", []string{ownURL}, "web"), gone(deploysTo("acme/a", ownURL)))
}

// settings replace resources and set two keys of the namespace.
func settings() fleet.SyncSettings {
	yes := true
	return fleet.SyncSettings{CreateNamespace: &yes, Replace: &yes,
		ManagedNamespaceMetadata: &fleet.NamespaceMetadata{
			Labels:      map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
			Annotations: map[string]string{"example.com/cost-center": "4711"}}}
}

func TestATenantIsAllowedSyncSettings(t *testing.T) {
	allow := func(a fleet.Allowances) Input {
		return tenant("acme", func(d *fleet.Declaration) {
			d.Tenant.Allow = a
			d.Tenant.ClusterResources = []fleet.GroupKind{{Kind: "Namespace"}}
		})
	}
	prod := environment("acme/prod", func(d *fleet.Declaration) {
		d.Environment.ClusterResources = true
	})
	deploy := deployment("acme/web", "prod")
	deploy.Declaration.Deployment.Sync = settings()
	deploy.Blob = "settings"
	c := New()
	good(t, c, theFleet(), engine("eu-1"), prod, allow(fleet.Allowances{
		Replace: true, NamespaceMetadata: []string{"pod-security.kubernetes.io/",
			"example.com/cost-center"}}), deploy)
	s := c.Prepare([]Input{allow(fleet.Allowances{NamespaceMetadata: []string{"example.com/"}})})
	if got, want := codes(onlyErrors(s.Problems()))+" / "+keys(s.Changes()),
		"GitOpsDeployment acme/web spec.sync.managedNamespaceMetadata.labels "+
			"namespace-metadata-not-granted; GitOpsDeployment acme/web spec.sync.replace "+
			"replace-not-granted / ~Tenant acme"; got != want {
		t.Errorf("withdrawn grants: %s", got)
	}
	for _, p := range onlyErrors(s.Problems()) {
		if !strings.Contains(p.Fix, "fleet/tenants/acme.yaml") {
			t.Errorf("fix %q does not name the file of the grant", p.Fix)
		}
	}
}

func TestATenantIsAllowedToAdopt(t *testing.T) {
	adopting := func(env fleet.EnvironmentName) Input {
		in := deployment("acme/web", "prod")
		in.Declaration.Deployment.Adopt = []fleet.Adoption{{Environment: env, Application: "web"}}
		in.Blob = "adopts in " + string(env)
		return in
	}
	allowed := tenant("acme", func(d *fleet.Declaration) { d.Tenant.Allow.Adopt = true })
	good(t, New(), theFleet(), engine("eu-1"), environment("acme/prod"), allowed, adopting("prod"))
	for _, c := range []struct {
		tenant, deployment Input
		want               string
	}{
		{tenant("acme"), adopting("prod"), "GitOpsDeployment acme/web spec.adopt adopt-not-granted"},
		{allowed, adopting("test"),
			"GitOpsDeployment acme/web spec.adopt[0].environment not-a-destination"},
	} {
		s := New().Prepare([]Input{theFleet(), engine("eu-1"), environment("acme/prod"), c.tenant,
			c.deployment})
		if got := codes(onlyErrors(s.Problems())); got != c.want {
			t.Errorf("found %s, want %s", got, c.want)
		}
	}
}

// The platform's defaults need no grant.
func TestDefaultsOfTheFleetReplaceWithoutAGrant(t *testing.T) {
	good(t, New(), theFleet(func(d *fleet.Declaration) { d.Fleet.Defaults.Sync = settings() }),
		engine("eu-1"), tenant("acme"), environment("acme/prod"), deployment("acme/web", "prod"))
}

func TestATenantWhoseGrantGoesKeepsWhatItHas(t *testing.T) {
	c := New()
	good(t, c, theFleet(), engine("eu-1"), granted("acme", []string{ownURL}),
		deploysTo("acme/a", ownURL, "web"))
	s := c.Prepare([]Input{granted("acme", nil)})
	if got := codes(s.Problems()) + " / " +
		keys(
			s.Changes()); got != "ManagedEnvironment acme/a spec.cluster.server "+
		"cluster-not-granted / ~Tenant acme" {
		t.Error(got)
	}
}

// An environment that names every free namespace gets none of them.
func TestANamespaceOfASharedServerIsGrantedAndNotSquatted(t *testing.T) {
	c := New()
	good(t, c, theFleet(), engine("eu-1"), granted("acme", []string{sharedURL}, "acme-"),
		granted("evil", []string{".example.net"}, "evil-a"))
	squat := []string{"evil-a", "acme-payments", "argocd-eu-2", "new"}
	s := c.Prepare([]Input{deploysTo("evil/squat", sharedURL, squat...)})
	want :=
		"ManagedEnvironment evil/squat spec.namespaces[1] namespace-not-granted; " +
			"ManagedEnvironment evil/squat spec.namespaces[2] namespace-not-granted; " +
			"ManagedEnvironment evil/squat spec.namespaces[3] namespace-not-granted"
	if got := codes(s.Problems()); got != want {
		t.Errorf("found %s", got)
	}
	for _, p := range s.Problems() {
		if strings.Contains(p.Message+p.Fix, "tenant \"acme\"") ||
			!strings.Contains(p.Fix, "namespaces of fleet/tenants/evil.yaml") {
			t.Errorf("%s\n%s", p.Message, p.Fix)
		}
	}
	commit(t, c, s)
	refused(
		t, c,
		"ManagedEnvironment evil/squat spec.namespaces[1] namespace-not-granted; "+
			"ManagedEnvironment evil/squat spec.namespaces[2] namespace-not-granted; "+
			"ManagedEnvironment evil/squat spec.namespaces[2] namespace-of-engine; "+
			"ManagedEnvironment evil/squat spec.namespaces[3] namespace-not-granted",
		"+Engine eu-2; +ManagedEnvironment acme/prod", engine("eu-2"),
		deploysTo("acme/prod", sharedURL, "acme-payments", "acme-shop"))
	refused(t, c, "", "+ManagedEnvironment evil/squat",
		deploysTo("evil/squat", sharedURL, "evil-a"))
}

func TestAServerOfOneTenantHasEveryNamespaceForIt(t *testing.T) {
	c := New()
	good(t, c, theFleet(), engine("eu-1"), granted("acme", []string{ownURL}),
		deploysTo("acme/a", ownURL, "web", "argocd-eu-2"))
	// The platform's engine is not kept from a name by what a tenant names on a cluster of its own.
	refused(t, c, "", "+Engine eu-2", engine("eu-2"))
	refused(t, c, "ManagedEnvironment acme/b spec.namespaces[0] namespace-of-engine", "",
		deploysTo("acme/b", ownURL, "argocd-eu-2"))

	// A second tenant on the server does not affect effective declarations; new ones need a grant.
	refused(
		t, c,
		"ManagedEnvironment acme/b spec.namespaces[0] namespace-not-granted; ManagedEnvironment "+
			"acme/b spec.namespaces[0] namespace-of-engine",
		"+Tenant globex", granted("globex", []string{ownURL}))
	refused(
		t, c,
		"ManagedEnvironment acme/b spec.namespaces[0] namespace-not-granted; ManagedEnvironment "+
			"globex/a spec.namespaces[0] namespace-not-granted",
		"~ManagedEnvironment acme/a", deploysTo("acme/a", ownURL, "web"),
		deploysTo("acme/b", ownURL, "shop"), deploysTo("globex/a", ownURL, "shop"))
	// Once it is one tenant's again, what waited goes on.
	refused(t, c, "ManagedEnvironment globex/a spec.cluster.server cluster-not-granted",
		"~Tenant globex; +ManagedEnvironment acme/b", granted("globex", nil))
}

func TestPrivateAddressesAreRefusedIfTheFleetRefusesThem(t *testing.T) {
	c := New()
	const private = "https://10.1.2.3:6443"
	good(t, c, theFleet(), engine("eu-1"), granted("acme", []string{private}),
		deploysTo("acme/a", private, "web"))
	refused(t, c, "ManagedEnvironment acme/a spec.cluster.server cluster-host-not-allowed",
		"~Fleet fleet", theFleet(
			func(d *fleet.Declaration) { d.Fleet.RefusePrivateClusters = true }))
	refused(t, c, "", "~Fleet fleet", theFleet(func(d *fleet.Declaration) {
		d.Fleet.RefusePrivateClusters, d.Fleet.ClusterHosts = true, []string{"10.1.2.3:6443"}
	}))
}

// One more environment costs the same beside 10 tenants and beside 1,000.
func TestAGrantCostsNothingOfTheOthers(t *testing.T) {
	allocated := func(tenants int) float64 {
		c := New()
		in := []Input{theFleet(), engine("eu-1")}
		for i := range tenants {
			name := fmt.Sprintf("t%d", i)
			in = append(in, granted(name, []string{"." + name + ".example.com"}),
				environment(name+"/prod"))
		}
		good(t, c, in...)
		edit := []Input{deploysTo("t1/prod", "https://other.t1.example.com", "web")}
		return testing.AllocsPerRun(20, func() { c.Prepare(edit) })
	}
	if few, many := allocated(10), allocated(1000); many > 1.5*few {
		t.Errorf("%.0f allocations beside 10 tenants, %.0f beside 1,000", few, many)
	}
}
