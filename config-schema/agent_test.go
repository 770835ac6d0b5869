package configschema

import (
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
		e := spec.Agent.Engine(spec.Region)
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
