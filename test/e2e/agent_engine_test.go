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

// plant is an engine that an agent serves, with a tenant. Two of its environments are clusters that
// only the engine reaches: here one API server, by its own loopback, with another account for each.
// The third one is the engine's own cluster, where the agent requests the token.
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
  clusters: [%q, "engine:plant-1"]
  namespaces: [umbrella-press, umbrella-mill, umbrella-home]
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
	files["tenants/umbrella/environments/home.yaml"] = `apiVersion: argosy.dev/v1alpha1
kind: ManagedEnvironment
metadata: {name: home, labels: {tier: staging}}
spec:
  cluster: {engine: plant-1}
  namespaces: [umbrella-home]
  region: plant
`
	serviceAccount(t, s.edge.Cluster, "umbrella", "home", "umbrella-home", agentNamespace,
		agentNamespace)
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
	var tokens []string
	eventually(t, "each environment has a cluster Secret", func() string {
		if tokens = s.clusterTokens(t, ""); len(tokens) != 3 {
			return fmt.Sprintf("%d cluster Secrets", len(tokens))
		}
		return ""
	})
	requested := s.clusterTokens(t, "home")
	isAccount(t, s.edge.Cluster, requested[0], "umbrella", "home")
	check(t, s.edge.Cluster.Client().CoreV1().Secrets("argocd").DeleteCollection(t.Context(),
		metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "argosy.dev/environment=home"}))
	eventually(t, "the agent has requested another token", func() string {
		if now := s.clusterTokens(t, "home"); len(now) != 1 || now[0] == requested[0] {
			return "not yet"
		}
		return ""
	})
	tokens = append(tokens, s.clusterTokens(t, "home")...)
	isAccount(t, s.edge.Cluster, tokens[3], "umbrella", "home")
	rotated, err := s.edge.Cluster.TenantToken(t.Context(), "umbrella-again", "umbrella-press")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSecret("umbrella", "press", "token", rotated); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new token reaches the cluster Secret", func() string {
		if !strings.Contains(strings.Join(s.clusterTokens(t, "press"), " "), rotated) {
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

// clusterTokens are the tokens in the cluster Secrets of an environment at the site, or of all.
func (s *site) clusterTokens(t *testing.T, environment string) []string {
	t.Helper()
	var tokens []string
	for _, o := range s.ours(t, secrets) {
		if environment != "" && o.GetLabels()["argosy.dev/environment"] != environment {
			continue
		}
		secret, err := s.edge.Cluster.Client().CoreV1().Secrets("argocd").Get(t.Context(),
			o.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, bearerToken(secret.Data))
	}
	return tokens
}
