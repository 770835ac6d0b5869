package catalog

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

const clusterURL = "https://api.prod-1.example.net:6443"

func cluster(name string, edits ...edit) Input {
	return declare(fleet.Declaration{Key: clusterKey(fleet.PlatformClusterName(name)),
		Cluster: &fleet.PlatformClusterSpec{Server: clusterURL,
			CredentialsRef: &fleet.SecretRef{Name: name}}}, edits...)
}

func onEKS(d *fleet.Declaration) {
	d.Cluster.CredentialsRef, d.Cluster.EKS = nil, &fleet.EKSIdentity{ClusterName: "prod-1"}
}

// onCluster is an environment that names a Cluster.
func onCluster(id, cluster string, ns ...string) Input {
	return environment(id, func(d *fleet.Declaration) {
		d.Environment.Cluster = &fleet.ClusterSpec{Ref: fleet.PlatformClusterName(cluster)}
		d.Environment.Namespaces = ns
	})
}

func TestAClusterIsGrantedByName(t *testing.T) {
	c := New()
	good(t, c, theFleet(), engine("eu-1"), cluster("prod-1"),
		granted("acme", []string{"cluster:prod-1"}),
		granted("globex", []string{clusterURL, ".example.net"}))
	refused(t, c, "ManagedEnvironment acme/b spec.cluster.ref cluster-not-granted; "+
		"ManagedEnvironment acme/b spec.cluster.ref unknown-cluster; "+
		"ManagedEnvironment globex/a spec.cluster.ref cluster-not-granted",
		"+ManagedEnvironment acme/a", onCluster("acme/a", "prod-1", "web"),
		onCluster("acme/b", "prod-2", "web"), onCluster("globex/a", "prod-1", "cart"))
	// A URL or a domain grants no Cluster, and a Cluster is not named by its URL.
	s := refused(t, c, "ManagedEnvironment globex/c spec.cluster.server server-of-cluster", "",
		deploysTo("globex/c", clusterURL, "cart"))
	if fix := s.Problems()[0].Fix; fix != "write cluster: {ref: prod-1}, granted as "+
		"cluster:prod-1" {
		t.Error(fix)
	}
}

func TestTenantsOnOneClusterHaveNamespacesOfTheirOwn(t *testing.T) {
	c, grant := New(), []string{"cluster:prod-1"}
	good(t, c, theFleet(), engine("eu-1"), cluster("prod-1"), granted("acme", grant, "web"),
		granted("globex", grant, "cart", "web"))
	refused(t, c, "ManagedEnvironment acme/a spec.namespaces[1] namespace-not-granted", "",
		onCluster("acme/a", "prod-1", "web", "shop"))
	refused(t, c, "", "+ManagedEnvironment acme/a", onCluster("acme/a", "prod-1", "web"))
	refused(t, c, "ManagedEnvironment globex/a spec.namespaces[0] namespace-claimed",
		"+ManagedEnvironment globex/b", onCluster("globex/a", "prod-1", "web"),
		onCluster("globex/b", "prod-1", "cart"))
	refused(t, c, "", "-ManagedEnvironment acme/a; +ManagedEnvironment globex/a",
		gone(onCluster("acme/a", "prod-1")))
}

// Environments that were on the API server before it was declared keep what they have.
func TestAClusterIsDeclaredUnderRunningEnvironments(t *testing.T) {
	c, both := New(), []string{clusterURL, "cluster:prod-1"}
	good(t, c, theFleet(), engine("eu-1"), granted("acme", both, "web", "shop"),
		granted("globex", both, "web", "cart"), deploysTo("acme/a", clusterURL, "web"))
	good(t, c, cluster("prod-1"))
	refused(t, c, "ManagedEnvironment acme/a spec.cluster.server server-of-cluster; "+
		"ManagedEnvironment globex/a spec.namespaces[0] namespace-claimed", "",
		deploysTo("acme/a", clusterURL, "web", "shop"), onCluster("globex/a", "prod-1", "web"))
	// The tenant moves, and keeps its namespace.
	refused(t, c, "", "~ManagedEnvironment acme/a",
		onCluster("acme/a", "prod-1", "web", "shop"))
	refused(t, c, "", "~ManagedEnvironment acme/a; +ManagedEnvironment globex/a",
		onCluster("acme/a", "prod-1", "shop"))
}

func TestAnIdentityOfACloudServesOneTenant(t *testing.T) {
	c, grant := New(), []string{"cluster:prod-1"}
	good(t, c, theFleet(), engine("eu-1"), cluster("prod-1", onEKS), granted("acme", grant, "web"))
	refused(t, c, "", "+ManagedEnvironment acme/a", onCluster("acme/a", "prod-1", "web"))
	s := refused(t, c, "ManagedEnvironment acme/b spec.cluster.ref cluster-identity-shared; "+
		"ManagedEnvironment globex/a spec.cluster.ref cluster-identity-shared", "+Tenant globex",
		granted("globex", grant, "cart"), onCluster("globex/a", "prod-1", "cart"),
		onCluster("acme/b", "prod-1", "web"))
	if fix := s.Problems()[0].Fix; !strings.Contains(fix, "cluster:prod-1 to this tenant alone") {
		t.Error(fix)
	}
	// With a service account for each environment, both tenants may use it.
	refused(t, c, "", "~Cluster prod-1; +ManagedEnvironment acme/b; +ManagedEnvironment globex/a",
		cluster("prod-1"))
	refused(t, c, "Cluster prod-1 spec cluster-identity-shared", "", cluster("prod-1", onEKS))
}

func TestAClusterStaysUnderItsEnvironments(t *testing.T) {
	move := func(d *fleet.Declaration) { d.Cluster.Server = "https://api.prod-9.example.net" }
	c := New()
	good(t, c, theFleet(), engine("eu-1"), cluster("prod-1"),
		granted("acme", []string{"cluster:prod-1"}), onCluster("acme/a", "prod-1", "web"))
	refused(t, c, "Cluster prod-1 spec.server immutable", "", cluster("prod-1", move))
	refused(t, c, "Cluster prod-1 still-referenced", "", gone(cluster("prod-1")))
	refused(t, c, "Cluster prod-2 spec.server duplicate-cluster", "~Cluster prod-1",
		cluster("prod-1", func(d *fleet.Declaration) {
			d.Cluster.CredentialsRef = &fleet.SecretRef{Name: "rotated"}
		}), cluster("prod-2"))
	refused(t, c, "", "-Cluster prod-1; +Cluster prod-2; -ManagedEnvironment acme/a",
		gone(onCluster("acme/a", "prod-1")), gone(cluster("prod-1")))
}

func TestAClusterHasNoInternalAddress(t *testing.T) {
	lab := cluster("lab", func(d *fleet.Declaration) {
		d.Cluster.Server = "https://127.0.0.1:6443"
	})
	c := New()
	good(t, c, theFleet(), engine("eu-1"))
	refused(t, c, "Cluster lab spec.server cluster-host-not-allowed", "", lab)
	refused(t, c, "", "~Fleet fleet; +Cluster lab", theFleet(func(d *fleet.Declaration) {
		d.Fleet.ClusterHosts = []string{"127.0.0.1:6443"}
	}))
}

// A verdict about one name of an API server changes with what is there under the other.
func TestTheNamesOfAnAPIServerWakeEachOther(t *testing.T) {
	c, both := New(), []string{clusterURL, "cluster:prod-1"}
	good(t, c, theFleet(), engine("eu-1"), granted("acme", both, "web", "shop"),
		granted("globex", both, "web", "cart"), deploysTo("acme/a", clusterURL, "web"))
	good(t, c, cluster("prod-1"))
	refused(t, c, "ManagedEnvironment acme/b spec.cluster.server server-of-cluster; "+
		"ManagedEnvironment globex/a spec.namespaces[0] namespace-claimed", "",
		onCluster("globex/a", "prod-1", "web"), deploysTo("acme/b", clusterURL, "shop"))
	refused(t, c, "", "-ManagedEnvironment acme/a; +ManagedEnvironment globex/a",
		gone(deploysTo("acme/a", clusterURL)))
	refused(t, c, "", "-Cluster prod-1; +ManagedEnvironment acme/b; -ManagedEnvironment globex/a",
		gone(onCluster("globex/a", "prod-1")), gone(cluster("prod-1")))
}
