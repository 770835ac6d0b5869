package fleet

import (
	"cmp"
	"strings"
)

// AgentMode says whose Applications an environment behind an agent runs.
type AgentMode string

// Agent modes.
const (
	AgentManaged AgentMode = "managed" // the config repo owns the Applications; default
	// the cluster's own Applications are the truth; the mirror shows them and writes nothing
	AgentAutonomous AgentMode = "autonomous"
)

// AgentSpec is an environment whose cluster deploys to itself: an agent on it dials out.
type AgentSpec struct {
	// of the cluster's Argo CD; default argocd
	ArgoCDNamespace string    `json:"argocdNamespace,omitempty"`
	Mode            AgentMode `json:"mode,omitempty"` // default managed
}

// Autonomous reports whether the cluster's own Applications are the truth, so that nothing is
// deployed to it from here.
func (a *AgentSpec) Autonomous() bool { return a != nil && a.Mode == AgentAutonomous }

// Namespace is that of the cluster's Argo CD, argocd where none is declared.
func (a AgentSpec) Namespace() string { return cmp.Or(a.ArgoCDNamespace, "argocd") }

// Engine is the environment's own cluster as an engine: it serves this environment and no other.
// Its Argo CD belongs to its own people, so that it has no installationID that is known here, and
// no capacity that placement could give away.
func (a AgentSpec) Engine(region string) EngineSpec {
	return EngineSpec{
		ArgoCD: ArgoCDInstance{Namespace: a.Namespace()}, Connection: Connection{
			Agent: &AgentConnection{}},
		Region: region, State: EngineActive,
	}
}

// AgentConnection is an engine whose Argo CD is reached by an agent beside it. It has no field yet.
type AgentConnection struct{}

// InClusterServer is the API server as an Argo CD knows the cluster that it runs on.
const InClusterServer = "https://kubernetes.default.svc"

// AgentEngine is the engine of an environment that deploys to itself: "<tenant>.<environment>", or
// "<readable>.h.<hash>" for a name that does not fit into 63 characters. The dots keep it apart
// from every declared engine, whose name is a DNS label, and the second dot keeps the two forms
// apart: no tenant and environment can be named so that their engine is another's hash.
func AgentEngine(id EnvironmentID) EngineName {
	tenant, name := string(id.Tenant), string(id.Name)
	if len(tenant)+1+len(name) <= maxName {
		return EngineName(tenant + "." + name)
	}
	sum := identityHash("Agent", []string{tenant, name})
	readable := strings.TrimRight((tenant + "-" + name)[:maxName-len(hashed)-len(sum)], "-")
	return EngineName(readable + hashed + sum)
}

// hashed stands before the hash in the name of an engine, where two dots tell that it is one.
const hashed = ".h."

// OfEnvironment reports whether the engine is one environment's own cluster, served by an agent,
// rather than a declared Engine.
func (n EngineName) OfEnvironment() bool { return strings.Contains(string(n), ".") }
