// Package registry holds what the control plane keeps of agents: identities, registration tokens,
// sessions and reports.
package registry

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Keys are the public keys that identify an agent. The private keys never leave its cluster.
type Keys struct {
	Sign []byte `json:"sign"` // Ed25519, 32 bytes: proves each request
	Seal []byte `json:"seal"` // X25519, 32 bytes: repository credentials are sealed to it
}

// Thumb names the pair: SHA-256 over both, base64url without padding.
func (k Keys) Thumb() string {
	sum := sha256.Sum256(append(append([]byte("argosy agent keys\x00"), k.Sign...), k.Seal...))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Agent is one identity. It serves one engine. The process that holds the keys is the agent.
type Agent struct {
	ID     string
	Engine fleet.EngineName
	// Tenant and Environment are set for an environment's own agent, and empty for the agent of an
	// Engine of the platform.
	Tenant      fleet.TenantName
	Environment fleet.EnvironmentName
	Keys        Keys
	ClusterUID  string // of the kube-system namespace where it joined
	JoinedAt    time.Time
	ExpiresAt   time.Time // rotation of the keys renews it; after it the agent must join again
}

// Join is the data that an agent sends when it joins.
type Join struct {
	Keys       Keys
	ClusterUID string
	Version    string // of the agent
}

// Lifetime is the validity of an identity after a join or a rotation of its keys.
const Lifetime = 30 * 24 * time.Hour

// Token is a one-time registration token without its secret. The store holds a hash of the secret.
type Token struct {
	ID string `json:"id"`
	// Engine is AgentEngine of Tenant and Environment for the token of an environment's own agent.
	Engine      fleet.EngineName      `json:"engine"`
	Tenant      fleet.TenantName      `json:"tenant,omitempty"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	CreatedBy   string                `json:"createdBy"`
	CreatedAt   time.Time             `json:"createdAt"`
	ExpiresAt   time.Time             `json:"expiresAt"`
	UsedAt      *time.Time            `json:"usedAt,omitempty"`
	RevokedAt   *time.Time            `json:"revokedAt,omitempty"`
	// Legacy also permits GET /api/v1/cluster/<token>/applications, if the server enables that
	// path.
	Legacy bool `json:"legacy,omitempty"`
}

// Session is the connection of one process of an agent.
type Session struct {
	Agent    string // ID
	Instance string // random ID of the process, made at its start
	Replica  string // of the hub that serves it
	Floor    int64  // the highest epoch on its cluster's objects: the lease's epoch is above it
	Version  string
	Protocol int // of the agent
	// Opening is the number from Opening, so that a close ends no newer session. OpenSession
	// ignores it.
	Opening int64

	// Confirmed is the incarnation of the database whose rows are confirmed to follow from the
	// config repo, "" for none. In it, a higher epoch replaces an epoch of another incarnation.
	Confirmed string

	// Proof is the ID of the proof that opens the session, 1 to 64 bytes. A proof opens one session
	// on all replicas together. A close ignores it.
	Proof string
}

// Opening is the state that a session starts with.
type Opening struct {
	Agent Agent
	// Lease is "engine/<engine>". "agent/<id>/<instance>" holds it, without renewal, until another
	// process takes over.
	Lease     mirror.Lease
	ReportSeq int64 // number of the last accepted report: the next number is higher
	// ArgoCD is the instance that the agent writes to. InstallationID is empty for an environment's
	// own Argo CD, which keeps its own.
	ArgoCD     fleet.ArgoCDInstance
	Mode       fleet.AgentMode // of an Engine always AgentManaged
	Opening    int64           // higher with each session of the identity
	Generation int64           // of the declaration: see Change
	// Stale means that the epoch, and the rows that the process holds, are of another incarnation
	// of the database.
	Stale bool

	DedicatedTo []fleet.TenantName // the tenants that alone use the engine; empty: shared

	// the namespaces besides Argo CD's own with Applications of tenants
	ApplicationNamespaces []fleet.ApplicationNamespace
	// endpoints of its metrics; nil: none are read
	Metrics *fleet.EngineMetrics
}

// News lists the agents and engines with changes since a row number and a time. It does not carry
// the changes.
type News struct {
	Seq     int64              // the newest row's number: pass it as after to the next call
	Now     time.Time          // by the store's clock: pass it as since to the next call
	Rows    []fleet.EngineName // engines of agents with rows above after
	Syncs   []fleet.EngineName // engines of agents with running syncs, in each call
	Actions []fleet.EngineName // engines of agents with open actions, in each call
	Moves   []fleet.EngineName // engines of agents with moving Applications, in each call
	// Instances are the engines of agents whose Argo CD or shadow changed after since or up to two
	// minutes before it.
	Instances []fleet.EngineName
	// Inspections are the engines whose Applications are being read, in each call.
	Inspections []fleet.EngineName
	// IDs of agents whose identity ended after since or up to two minutes before it: an ID may be
	// reported twice.
	Ended   []string
	Changed []Change // agents whose declaration changed after since or up to two minutes before it

	Life      string // incarnation of the database: see Lease
	Confirmed int64  // see mirror.State
}

// Moves are the Applications that move to or from an engine, at one moment.
type Moves struct {
	All  []mirror.ApplicationMove
	Rows int64  // number of the engine's newest row
	Life string // incarnation of the database: see Lease
}

// Instance is the Argo CD that an engine is to have, at one moment.
type Instance struct {
	Wanted *mirror.Instance // nil: the engine is not managed
	// Shadow has the Version, the Digest, the State and the Message of the engine's shadow; nil:
	// it has none
	Shadow *mirror.Shadow
	Life   string // incarnation of the database: see Lease
}

// Change reports a change of the declaration behind an agent: a session that was opened with a
// lower Generation must be opened again.
type Change struct {
	Agent      string // ID
	Generation int64
}

// Report is the state that an agent reports. The texts come from the cluster: the hub caps them,
// and a page that shows them escapes them.
type Report struct {
	Reachable        bool
	Message          string
	Unfit            string       // why it refuses writes; "": it does not
	ArgoCD           string       // version
	Work             mirror.Work  // zero: unknown, or an earlier version of the agent
	Load             *mirror.Load // nil: nothing is measured
	Version          string       // of the agent
	PendingDeletions int          // deletions that rows require and that are not done
	// of those, held above the agent's deletion limit until the cluster's admin approves
	HeldDeletions int
	// objects of this installation on the cluster without a row; they are left unchanged
	Orphans int
	// Own counts the cluster's own Applications (AgentAutonomous), also those beyond MaxOwn.
	Own int

	// Environments are the environments in the labels of the orphans, sorted, at most
	// MaxOrphanEnvironments; nil means that the agent's version does not report them. After a
	// rebuild, the placement keeps these environments on the engine that has their objects.
	Environments []fleet.EnvironmentID

	// Reach are all environments whose clusters the agent's engine cannot read; nil means that the
	// agent's version does not report them.
	Reach []mirror.Reach
}

// Errors of agents that a caller distinguishes with errors.Is.
var (
	// ErrUsed means that other keys have used the one-time token.
	ErrUsed = errors.New("the token is already used")
	// ErrReplayed means that a proof or a report was received before, or is older than a received
	// one.
	ErrReplayed = errors.New("received before")
	// ErrCloned means that two processes use one identity alternately.
	ErrCloned = errors.New("two processes use this identity")
	// ErrRevoked means that a user revoked the identity, that another joined in its place, or that
	// its tenant was deleted.
	ErrRevoked = errors.New("this identity was revoked; join again with a new token")
	// ErrExpired means that the identity's keys were not rotated in time.
	ErrExpired = errors.New("this identity has expired; join again with a new token")
	// ErrBusy means that the agent was recently granted too many access tokens, or opened too many
	// sessions.
	ErrBusy = errors.New(
		"too many access token requests; use the last token until it expires")
	// ErrSuperseded means that another process of the same identity has taken over.
	ErrSuperseded = errors.New("another process of this agent has taken over")
)
