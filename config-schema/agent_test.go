package configschema

import (
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

func agentEnvironment(t *testing.T, agent string) *fleet.EnvironmentSpec {
	t.Helper()
	doc := Decode(
		File{
			Path: "tenants/acme/environments/berlin.yaml",
			Bytes: []byte(`apiVersion: argosy.dev/v1alpha1
kind: ManagedEnvironment
metadata: {name: berlin}
spec:
  agent: ` + agent + `
  namespaces: [plc]
  region: eu
`)})
	for _, p := range doc.Problems {
		t.Fatal(p)
	}
	return doc.Declaration.Environment
}

func TestAnEnvironmentWithAnAgentNeedsNoServerAndNoCredential(t *testing.T) {
	for agent, want := range map[string]struct {
		namespace  string
		autonomous bool
	}{
		"{}":                                     {"argocd", false},
		"{mode: managed}":                        {"argocd", false},
		"{argocdNamespace: gitops}":              {"gitops", false},
		"{argocdNamespace: a, mode: autonomous}": {"a", true},
	} {
		spec := agentEnvironment(t, agent)
		if spec.Cluster != nil || spec.Agent == nil || spec.Agent.Namespace() != want.namespace ||
			spec.Agent.Autonomous() != want.autonomous {
			t.Errorf("%s: %+v", agent, spec)
		}
		e := spec.Agent.Engine("acme", spec.Region)
		if e.ArgoCD != (fleet.ArgoCDInstance{Namespace: want.namespace}) ||
			e.Connection.Agent == nil || e.Region != "eu" {
			t.Errorf("%s as an engine: %+v", agent, e)
		}
	}
}

func TestAnEngineIsReachedByItsAgent(t *testing.T) {
	text := strings.Replace(string(New(fleet.KindEngine, "", "eu-1")), "inCluster: true",
		"agent: {}", 1)
	doc := Decode(File{Path: "fleet/engines/eu-1.yaml", Bytes: []byte(text)})
	if len(doc.Problems) > 0 {
		t.Fatalf("%+v", doc)
	}
	agent := doc.Declaration.Engine.Connection.Agent
	if doc.Declaration.Engine.Connection != (fleet.Connection{Agent: agent}) || agent == nil {
		t.Errorf("%v\n%s", doc.Problems, text)
	}
}

func TestAnEngineHasExactEndpointsOfMetrics(t *testing.T) {
	for endpoint, want := range map[string]string{
		"service: {name: argocd-metrics, port: 8082}":                       "",
		"pod: {name: argocd-application-controller-0, port: 8082}":          "",
		"service: {name: a, port: 1}, pod: {name: b, port: 1}":              "pod",
		"service: {name: ../x, port: 1}":                                    "name",
		"service: {name: x}":                                                "port",
		"service: {name: x, port: 0}":                                       "port",
		"service: {name: x, port: 1, path: /debug/pprof}":                   "path",
		"url: http://169.254.169.254":                                       "metadata",
		"service: {name: x, port: 1, namespace: kube-system, scheme: http}": "namespace",
	} {
		text := strings.Replace(string(New(fleet.KindEngine, "", "eu-1")), "inCluster: true",
			"agent: {}", 1) + "\n  metrics:\n    applicationController: [{" + endpoint + "}]\n"
		doc := Decode(File{Path: "fleet/engines/eu-1.yaml", Bytes: []byte(text)})
		found := ""
		for _, p := range doc.Problems {
			found += p.Message + p.Field + "\n"
		}
		if want == "" && found != "" || !strings.Contains(found, want) {
			t.Errorf("%s: %q, want %q", endpoint, found, want)
		}
	}
}

func TestAnAgentHasExactNamespacesOfApplications(t *testing.T) {
	spec := agentEnvironment(t, "{applicationNamespaces: [shop-apps, more]}")
	want := []fleet.ApplicationNamespace{{Namespace: "shop-apps", Tenant: "acme"},
		{Namespace: "more", Tenant: "acme"}}
	if e := spec.Agent.Engine("acme", spec.Region); !slices.Equal(e.ApplicationNamespaces, want) {
		t.Errorf("%v", e.ApplicationNamespaces)
	}
}
