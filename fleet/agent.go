package fleet

import (
	"cmp"
	"strings"
)

// AgentMode selects who owns the Applications of an environment behind an agent.
type AgentMode string

// Agent modes.
const (
	AgentManaged AgentMode = "managed" // the config repo owns the Applications; default
	// the cluster's own Applications are the truth; Argosy shows them and writes nothing
	AgentAutonomous AgentMode = "autonomous"
)

// AgentSpec is an environment that is served by an agent on its own cluster. The agent dials out.
type AgentSpec struct {
	// of the cluster's Argo CD; default argocd
	ArgoCDNamespace string    `json:"argocdNamespace,omitempty"`
	Mode            AgentMode `json:"mode,omitempty"` // default managed
	// namespaces besides ArgoCDNamespace with Applications that the tenant may adopt; the agent's
	// own settings must allow each of them too
	ApplicationNamespaces []string `json:"applicationNamespaces,omitempty"`
}

// OwnCluster reports whether the environment deploys to itself and no engine reaches it. Both
// connections are in effect while its Applications move from one to the other.
func (s *EnvironmentSpec) OwnCluster() bool { return s.Agent != nil && s.Cluster == nil }

// ReachedBy reports whether an engine has a connection to the environment: the engine of its own
// agent, or any other one by the address of its cluster.
func (s *EnvironmentSpec) ReachedBy(engine EngineName) bool {
	if engine.OfEnvironment() {
		return s.Agent != nil
	}
	return s.Cluster != nil
}

// Autonomous reports whether the cluster's own Applications are the truth. Argosy deploys nothing
// to it.
func (a *AgentSpec) Autonomous() bool { return a != nil && a.Mode == AgentAutonomous }

// Namespace is the namespace of the cluster's Argo CD, argocd by default.
func (a AgentSpec) Namespace() string { return cmp.Or(a.ArgoCDNamespace, "argocd") }

// Engine is the environment's own cluster as an engine. It serves this environment and no other.
// Its Argo CD belongs to the tenant, so it has no known installationID and no capacity for
// placement.
func (a AgentSpec) Engine(t TenantName, region string) EngineSpec {
	return EngineSpec{
		ArgoCD: ArgoCDInstance{Namespace: a.Namespace()}, Connection: Connection{
			Agent: &AgentConnection{}},
		Region: region, State: EngineActive, ApplicationNamespaces: a.Given(t),
	}
}

// Given returns ApplicationNamespaces with the tenant of the environment, whose Applications are in
// all of them.
func (a *AgentSpec) Given(t TenantName) (given []ApplicationNamespace) {
	if a == nil {
		return nil
	}
	for _, namespace := range a.ApplicationNamespaces {
		given = append(given, ApplicationNamespace{Namespace: namespace, Tenant: t})
	}
	return given
}

// AgentConnection is an engine whose Argo CD an agent on its cluster reaches. It has no field yet.
type AgentConnection struct{}

// InClusterServer is the API server URL that an Argo CD uses for its own cluster.
const InClusterServer = "https://kubernetes.default.svc"

// AgentEngine is the engine of an environment that is served by an agent: "<tenant>.<environment>",
// or "<readable>.h.<hash>" for a name that does not fit into 63 characters. The dots distinguish it
// from every declared engine, whose name is a DNS label. The second dot distinguishes the two
// forms: no tenant and environment can be named so that their engine is another environment's hash.
func AgentEngine(id EnvironmentID) EngineName {
	tenant, name := string(id.Tenant), string(id.Name)
	if len(tenant)+1+len(name) <= maxName {
		return EngineName(tenant + "." + name)
	}
	sum := identityHash("Agent", []string{tenant, name})
	readable := strings.TrimRight((tenant + "-" + name)[:maxName-len(hashed)-len(sum)], "-")
	return EngineName(readable + hashed + sum)
}

// hashed separates the readable part from the hash in the name of an engine.
const hashed = ".h."

// OfEnvironment reports whether the engine is one environment's own cluster, served by an agent,
// rather than a declared Engine.
func (n EngineName) OfEnvironment() bool { return strings.Contains(string(n), ".") }
