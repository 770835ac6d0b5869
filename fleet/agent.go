package fleet

import (
	"cmp"
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

// AgentKeys are the public keys that an agent is known by. The private ones never leave its
// cluster.
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
	ID     string
	Engine EngineName
	// of an environment's own agent; empty: of an Engine, the platform's
	Tenant      TenantName
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

// AgentLife is how long an identity lasts unless its keys are rotated before.
const AgentLife = 30 * 24 * time.Hour

// AgentToken is a one-time registration token as people may see it. The store holds a hash of it.
type AgentToken struct {
	ID string `json:"id"`
	// of an environment's own agent: AgentEngine of the two below
	Engine      EngineName      `json:"engine"`
	Tenant      TenantName      `json:"tenant,omitempty"`
	Environment EnvironmentName `json:"environment,omitempty"`
	CreatedBy   string          `json:"createdBy"`
	CreatedAt   time.Time       `json:"createdAt"`
	ExpiresAt   time.Time       `json:"expiresAt"`
	UsedAt      *time.Time      `json:"usedAt,omitempty"`
	RevokedAt   *time.Time      `json:"revokedAt,omitempty"`
	// may also read GET /api/v1/cluster/<token>/applications, where that is switched on
	Legacy bool `json:"legacy,omitempty"`
}

// AgentSession is one process of an agent, connected.
type AgentSession struct {
	Agent    string // ID
	Instance string // the process: random, made at its start
	Replica  string // of the hub that serves it
	Floor    int64  // the highest epoch that its cluster's objects show: the lease's is above it
	Version  string
	// of AgentOpening, to close what was opened and nothing newer; not looked at when it is opened
	Opening int64

	// Confirmed is the incarnation of the database whose rows are known to follow from the config
	// repo, "" for none: in it, an epoch of another incarnation is replaced by a higher one.
	Confirmed string

	// Proof is the ID of the proof with which the session is opened, 1 to 64 bytes: it opens one,
	// on whichever replica. Not looked at when it is closed.
	Proof string
}

// AgentOpening is what a session begins with.
type AgentOpening struct {
	Agent Agent
	// "engine/<engine>", held by "agent/<id>/<instance>" until another process takes over; it needs
	// no renewal
	Lease     Lease
	ReportSeq int64 // the last report that was taken: the next is numbered above it
	// where the agent is to work; InstallationID is empty for an environment's own Argo CD, which
	// keeps whatever it has
	ArgoCD     ArgoCDInstance
	Mode       AgentMode // of an Engine always AgentManaged
	Opening    int64     // grows with each session that is opened for the identity
	Generation int64     // of the declaration: see AgentChange
	// the epoch is of another incarnation of the database: what the process knows of rows, too
	Stale bool

	DedicatedTo []TenantName // the tenants that alone use the engine; empty: shared
}

// AgentNews is what is new for agents since a number and a moment. It says where to look, never
// what is there.
type AgentNews struct {
	Seq   int64        // the newest row's number: to be given as after the next time
	Now   time.Time    // by the store's clock: to be given as since the next time
	Rows  []EngineName // engines of agents with rows above after
	Syncs []EngineName // engines of agents with syncs that have not ended, every time
	// IDs of agents whose identity has ended since, and of some that ended up to two minutes
	// before: they may be told twice
	Ended   []string
	Changed []AgentChange // agents whose declaration has changed since, or up to two minutes before

	Life      string // incarnation of the database: see Lease
	Confirmed int64  // see MirrorState
}

// AgentChange says that the declaration behind an agent has changed: a session that was opened with
// a lower Generation has to begin anew.
type AgentChange struct {
	Agent      string // ID
	Generation int64
}

// AgentReport is how an agent stands, as it says. Every text is the cluster's: capped, and escaped
// where it is shown.
type AgentReport struct {
	Reachable        bool
	Message          string
	ArgoCD           string // version
	Version          string // of the agent
	PendingDeletions int    // asked for by rows and not done
	HeldDeletions    int    // of those: wait for the cluster's own admin, above the agent's own cap
	Orphans          int    // objects of ours on the cluster that no row names; they are left alone
	// Applications of the cluster's own people (AgentAutonomous), those beyond MaxOwn too
	Own int

	// Environments that the strays are of, by the strays' own labels, in their order and at most
	// MaxOrphanEnvironments; nil: an agent that is too old to tell. What they are good for is to be
	// placed where they stand, after a rebuild.
	Environments []EnvironmentID

	// Reach are the environments whose clusters the agent's engine cannot read, all of them; nil:
	// an agent that is too old to tell.
	Reach []Reach
}

// MaxOrphanEnvironments is how many an agent tells of. Once these are placed their objects are no
// strays any more, and others are told.
const MaxOrphanEnvironments = 1000

// MaxOwn is how many own Applications of one environment are kept. AgentReport.Own counts the
// others too.
const MaxOwn = 5000

// OwnApplication is an Application that the cluster's own people made (AgentAutonomous). It is
// shown, never written.
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
	Engine      EngineName      `json:"engine"`
	Tenant      TenantName      `json:"tenant,omitempty"`
	Environment EnvironmentName `json:"environment,omitempty"`
	ID          string          `json:"id,omitempty"` // empty: nobody has joined
	Mode        AgentMode       `json:"mode"`
	Connected   bool            `json:"connected"`
	Reachable   bool            `json:"reachable"` // its Argo CD, as it last said
	SeenAt      *time.Time      `json:"seenAt,omitempty"`
	JoinedAt    *time.Time      `json:"joinedAt,omitempty"`
	ExpiresAt   *time.Time      `json:"expiresAt,omitempty"`
	RevokedAt   *time.Time      `json:"revokedAt,omitempty"`
	// two processes use one identity: both are refused until it joins again
	Cloned  bool   `json:"cloned,omitempty"`
	Version string `json:"version,omitempty"`
	ArgoCD  string `json:"argocd,omitempty"`
	Message string `json:"message,omitempty"`
	Pending int    `json:"pending"` // rows not yet acknowledged
	// revisions of the config repo that these rows are of
	Lag int `json:"lag"`
	// rows that ask for a deletion, not yet done
	PendingDeletions int `json:"deletions"`
	HeldDeletions    int `json:"heldDeletions"`
	Orphans          int `json:"strays"`
	// Applications of the cluster's own people; at most MaxOwn of them are shown
	Own int `json:"own,omitempty"`
}

// OwnView is one Application of a cluster's own people, as its agent last said.
type OwnView struct {
	Tenant      TenantName      `json:"tenant"`
	Environment EnvironmentName `json:"environment"`
	Engine      EngineName      `json:"engine"`
	OwnApplication
	ObservedAt time.Time `json:"observedAt"` // when it last changed
}

// Errors of agents that a caller tells apart with errors.Is.
var (
	// ErrUsed says that a one-time token was used before, by other keys.
	ErrUsed = errors.New("the token was used already")
	// ErrReplayed says that a proof or a report was seen before, or is older than one that was.
	ErrReplayed = errors.New("seen before")
	// ErrCloned says that two processes use one identity in turn.
	ErrCloned = errors.New("two processes use this identity")
	// ErrAgentRevoked says that an identity was ended: by a person, by another that joined in its
	// place, or with its tenant.
	ErrAgentRevoked = errors.New("this identity was revoked; join again with a new token")
	// ErrAgentExpired says that an identity's keys were not rotated in time.
	ErrAgentExpired = errors.New("this identity has expired; join again with a new token")
	// ErrAgentBusy says that an agent has been given too many access tokens lately, or has opened
	// too many sessions.
	ErrAgentBusy = errors.New(
		"too many access tokens were asked for; use the last one until it runs out")
	// ErrSuperseded says that another process of the same identity has taken over.
	ErrSuperseded = errors.New("another process of this agent has taken over")
)
