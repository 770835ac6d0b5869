package fleet

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"time"
)

// AgentMode says whose Applications an environment behind an agent runs.
type AgentMode string

// Agent modes.
const (
	AgentManaged    AgentMode = "managed"    // the config repo owns the Applications; default
	AgentAutonomous AgentMode = "autonomous" // the cluster's own Applications are the truth; the mirror shows them and writes nothing
)

// AgentSpec is an environment whose cluster deploys to itself: an agent on it dials out.
type AgentSpec struct {
	ArgoCDNamespace string    `json:"argocdNamespace,omitempty"` // of the cluster's Argo CD; default argocd
	Mode            AgentMode `json:"mode,omitempty"`            // default managed
}

// AgentConnection is an engine whose Argo CD is reached by an agent beside it. It has no field yet.
type AgentConnection struct{}

// InClusterServer is the API server as an Argo CD knows the cluster that it runs on.
const InClusterServer = "https://kubernetes.default.svc"

// AgentEngine is the engine of an environment that deploys to itself: "<tenant>.<environment>", with a hash for what does not fit into 63
// characters. The dot keeps it apart from every declared engine, whose name is a DNS label.
func AgentEngine(id EnvironmentID) EngineName {
	tenant, name := string(id.Tenant), string(id.Name)
	if len(tenant)+1+len(name) <= maxName {
		return EngineName(tenant + "." + name)
	}
	sum := identityHash("Agent", []string{tenant, name})
	readable := strings.TrimRight((tenant + "-" + name)[:maxName-1-len(sum)], "-")
	return EngineName(readable + "." + sum)
}

// OfEnvironment reports whether the engine is one environment's own cluster, served by an agent, rather than a declared Engine.
func (n EngineName) OfEnvironment() bool { return strings.Contains(string(n), ".") }

// AgentKeys are the public keys that an agent is known by. The private ones never leave its cluster.
type AgentKeys struct {
	Sign []byte `json:"sign"` // Ed25519, 32 bytes: proves each request
	Seal []byte `json:"seal"` // X25519, 32 bytes: repository credentials are sealed to it
}

// Thumb names the pair: SHA-256 over both, base64url without padding.
func (k AgentKeys) Thumb() string {
	sum := sha256.Sum256(append(append([]byte("argosy agent keys\x00"), k.Sign...), k.Seal...))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Agent is one identity: it serves one engine, and is whoever holds the keys.
type Agent struct {
	ID          string
	Engine      EngineName
	Tenant      TenantName      // of an environment's own agent; empty: of an Engine, the platform's
	Environment EnvironmentName // likewise
	Keys        AgentKeys
	ClusterUID  string // of the kube-system namespace where it joined
	JoinedAt    time.Time
	ExpiresAt   time.Time // unless the keys are rotated before; then it has to join again
}

// AgentJoin is what an agent says of itself when it joins.
type AgentJoin struct {
	Keys       AgentKeys
	ClusterUID string
	Version    string // of the agent
}

// AgentToken is a one-time registration token as people may see it. The store holds a hash of it.
type AgentToken struct {
	ID        string     `json:"id"`
	Engine    EngineName `json:"engine"`
	Tenant    TenantName `json:"tenant,omitempty"`
	CreatedBy string     `json:"createdBy"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt time.Time  `json:"expiresAt"`
	UsedAt    *time.Time `json:"usedAt,omitempty"`
	Legacy    bool       `json:"legacy,omitempty"` // may also read GET /api/v1/cluster/<token>/applications, where that is switched on
}

// AgentSession is one process of an agent, connected.
type AgentSession struct {
	Agent    string // ID
	Instance string // the process: random, made at its start
	Replica  string // of the hub that serves it
	Floor    int64  // the highest epoch that its cluster's objects show: the lease's is above it
	Version  string
}

// AgentReport is how an agent stands, as it says. Every text is the cluster's: capped, and escaped where it is shown.
type AgentReport struct {
	Reachable        bool
	Message          string
	ArgoCD           string // version
	Version          string // of the agent
	PendingDeletions int    // asked for by rows and not done
	HeldDeletions    int    // of those: wait for the cluster's own admin, above the agent's own cap
	Strays           int    // objects of ours on the cluster that no row names; they are left alone
}

// OwnApplication is an Application that the cluster's own people made (AgentAutonomous). It is shown, never written.
type OwnApplication struct {
	Namespace      string      `json:"namespace"`
	Name           string      `json:"name"`
	UID            string      `json:"uid"`
	Project        string      `json:"project"`
	RepoURL        string      `json:"repoURL"`
	Path           string      `json:"path,omitempty"`
	TargetRevision string      `json:"targetRevision,omitempty"`
	Sync           SyncState   `json:"sync"`
	Health         HealthState `json:"health"`
	SyncedRevision string      `json:"syncedRevision,omitempty"`
	OperationPhase string      `json:"operationPhase,omitempty"`
	OperationID    string      `json:"operationID,omitempty"` // of a sync that was asked for here
	Message        string      `json:"message,omitempty"`
	Resources      int         `json:"resources"`
	Gone           bool        `json:"gone,omitempty"`
}

// AgentView is one agent, or one that is declared and has not joined yet.
type AgentView struct {
	Engine           EngineName      `json:"engine"`
	Tenant           TenantName      `json:"tenant,omitempty"`
	Environment      EnvironmentName `json:"environment,omitempty"`
	ID               string          `json:"id,omitempty"` // empty: nobody has joined
	Mode             AgentMode       `json:"mode"`
	Connected        bool            `json:"connected"`
	SeenAt           *time.Time      `json:"seenAt,omitempty"`
	JoinedAt         *time.Time      `json:"joinedAt,omitempty"`
	ExpiresAt        *time.Time      `json:"expiresAt,omitempty"`
	RevokedAt        *time.Time      `json:"revokedAt,omitempty"`
	Cloned           bool            `json:"cloned,omitempty"` // two processes use one identity: both are refused until it joins again
	Version          string          `json:"version,omitempty"`
	ArgoCD           string          `json:"argocd,omitempty"`
	Message          string          `json:"message,omitempty"`
	Pending          int             `json:"pending"`   // rows not yet acknowledged
	Lag              int             `json:"lag"`       // revisions of the config repo that these rows are of
	PendingDeletions int             `json:"deletions"` // rows that ask for a deletion, not yet done
	HeldDeletions    int             `json:"heldDeletions"`
	Strays           int             `json:"strays"`
}

// Errors of agents that a caller tells apart with errors.Is.
var (
	// ErrUsed says that a one-time token was used before, by other keys.
	ErrUsed = errors.New("the token was used already")
	// ErrReplayed says that a proof or a report was seen before, or is older than one that was.
	ErrReplayed = errors.New("seen before")
	// ErrCloned says that two processes use one identity in turn.
	ErrCloned = errors.New("two processes use this identity")
	// ErrSuperseded says that another process of the same identity has taken over.
	ErrSuperseded = errors.New("another process of this agent has taken over")
)
