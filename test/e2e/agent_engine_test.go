package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/view"
)

const (
	plantEngine = "fleet/engines/plant-1.yaml"
	plantTenant = "fleet/tenants/umbrella.yaml"
)

// plant is an engine that an agent serves, with a tenant whose two environments are clusters that
// only the engine reaches: here one API server, by its own loopback, with another account for each.
func plant(t *testing.T, s *site) map[string]string {
	t.Helper()
	files := map[string]string{
		plantEngine: `apiVersion: argosy.dev/v1alpha1
kind: Engine
metadata: {name: plant-1}
spec:
  argocd: {namespace: argocd, installationID: edge}
  connection: {agent: {}}
  region: plant
  capacity: {applications: 10, environments: 10}
`,
		plantTenant: fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: Tenant
metadata: {name: umbrella}
spec:
  owners: ["github:example/umbrella"]
  quota: {environments: 5, deployments: 5, applications: 5}
  repositories: [%q]
  clusters: [%q]
  namespaces: [umbrella-press, umbrella-mill]
  placement: {regions: [plant]}
`, s.Git.URL+"/acme/storefront", s.edge.Cluster.Server),
	}
	for _, name := range []string{"press", "mill"} {
		token, err := s.edge.Cluster.TenantToken(t.Context(), "umbrella-"+name, "umbrella-"+name)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.WriteSecret("umbrella", name, "token", token); err != nil {
			t.Fatal(err)
		}
		files["tenants/umbrella/environments/"+name+".yaml"] = fmt.Sprintf(
			`apiVersion: argosy.dev/v1alpha1
kind: ManagedEnvironment
metadata:
  name: %[1]s
  labels: {tier: staging}
spec:
  cluster:
    server: %[2]s
    caData: %[3]s
    credentialsRef: {name: %[1]s}
  namespaces: [umbrella-%[1]s]
  region: plant
`, name, s.edge.Cluster.Server, base64.StdEncoding.EncodeToString(s.edge.Cluster.CA))
		s.files["tenants/umbrella/deployments/"+name+".yaml"] = s.deployment(name, name,
			"umbrella-"+name, "")
	}
	return files
}

// TestAnArgoCDBehindAFirewallServesSeveralEnvironmentsThere is about a declared engine whose agent
// dials out.
func TestAnArgoCDBehindAFirewallServesSeveralEnvironmentsThere(t *testing.T) {
	f := edges.use(t)
	s := &site{system: f, edge: f.Edge, name: "plant-1", engine: "plant-1",
		files: map[string]string{}}
	around := plant(t, s)
	for path := range around {
		if path != plantEngine {
			s.around = append(s.around, path)
		}
	}
	var tapped bytes.Buffer
	s.edge.Hub.Tap(&tapped)
	defer s.edge.Hub.Tap(nil)
	f.commit(t, "an engine behind a firewall", map[string]string{plantEngine: around[plantEngine]})
	defer f.remove(t, "the engine goes", plantEngine)
	defer s.leave(t)
	s.join(t)
	f.commit(t, "who uses it", around)
	f.commit(t, "what is deployed there", s.files)
	for _, name := range []string{"press", "mill"} {
		eventually(t, name+" is Healthy there", f.healthy(t, "umbrella/"+name+"@"+name))
		s.pods(t, "umbrella-"+name)
	}
	for _, e := range list[view.Engine](t, f, "engines") {
		if e.Name == "plant-1" && (!e.Reachable || e.Pending > 0) {
			t.Errorf("the engine is shown as %+v", e)
		}
	}
	tokens := s.clusterTokens(t)
	if len(tokens) != 2 {
		t.Fatalf("%d cluster Secrets", len(tokens))
	}
	rotated, err := s.edge.Cluster.TenantToken(t.Context(), "umbrella-again", "umbrella-press")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSecret("umbrella", "press", "token", rotated); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new token reaches the cluster Secret", func() string {
		if !strings.Contains(strings.Join(s.clusterTokens(t), " "), rotated) {
			return "it has the old one"
		}
		return ""
	})
	tokens = append(tokens, rotated)
	s.leave(t)
	s.edge.Hub.Tap(nil)
	all := f.places(t, string(s.engine), tapped.Bytes())
	for _, token := range tokens {
		nowhere(t, "the token of an environment's cluster", token, all)
	}
}

// clusterTokens are the tokens in the cluster Secrets of the site.
func (s *site) clusterTokens(t *testing.T) []string {
	t.Helper()
	var tokens []string
	for _, o := range s.ours(t, secrets) {
		secret, err := s.edge.Cluster.Client().CoreV1().Secrets("argocd").Get(t.Context(),
			o.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(secret.Data["config"]), `"bearerToken":"`)
		if token, _, ok := strings.Cut(rest, `"`); ok {
			tokens = append(tokens, token)
		}
	}
	return tokens
}
