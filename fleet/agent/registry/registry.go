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

// Keys are the public keys that an agent is known by. The private ones never leave its
// cluster.
type Keys struct {
	Sign []byte `json:"sign"` // Ed25519, 32 bytes: proves each request
	Seal []byte `json:"seal"` // X25519, 32 bytes: repository credentials are sealed to it
}

// Thumb names the pair: SHA-256 over both, base64url without padding.
func (k Keys) Thumb() string {
	sum := sha256.Sum256(append(append([]byte("argosy agent keys\x00"), k.Sign...), k.Seal...))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Agent is one identity: it serves one engine, and is whoever holds the keys.
type Agent struct {
	ID     string
	Engine fleet.EngineName
	// of an environment's own agent; empty: of an Engine, the platform's
	Tenant      fleet.TenantName
	Environment fleet.EnvironmentName // likewise
	Keys        Keys
	ClusterUID  string // of the kube-system namespace where it joined
	JoinedAt    time.Time
	ExpiresAt   time.Time // unless the keys are rotated before; then it has to join again
}

// Join is what an agent says of itself when it joins.
type Join struct {
	Keys       Keys
	ClusterUID string
	Version    string // of the agent
}

// Lifetime is how long an identity lasts unless its keys are rotated before.
const Lifetime = 30 * 24 * time.Hour

// Token is a one-time registration token as people may see it. The store holds a hash of it.
type Token struct {
	ID string `json:"id"`
	// of an environment's own agent: AgentEngine of the two below
	Engine      fleet.EngineName      `json:"engine"`
	Tenant      fleet.TenantName      `json:"tenant,omitempty"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	CreatedBy   string                `json:"createdBy"`
	CreatedAt   time.Time             `json:"createdAt"`
	ExpiresAt   time.Time             `json:"expiresAt"`
	UsedAt      *time.Time            `json:"usedAt,omitempty"`
	RevokedAt   *time.Time            `json:"revokedAt,omitempty"`
	// may also read GET /api/v1/cluster/<token>/applications, where that is switched on
	Legacy bool `json:"legacy,omitempty"`
}

// Session is one process of an agent, connected.
type Session struct {
	Agent    string // ID
	Instance string // the process: random, made at its start
	Replica  string // of the hub that serves it
	Floor    int64  // the highest epoch that its cluster's objects show: the lease's is above it
	Version  string
	// of Opening, to close what was opened and nothing newer; not looked at when it is opened
	Opening int64

	// Confirmed is the incarnation of the database whose rows are known to follow from the config
	// repo, "" for none: in it, an epoch of another incarnation is replaced by a higher one.
	Confirmed string

	// Proof is the ID of the proof with which the session is opened, 1 to 64 bytes: it opens one,
	// on whichever replica. Not looked at when it is closed.
	Proof string
}

// Opening is what a session begins with.
type Opening struct {
	Agent Agent
	// "engine/<engine>", held by "agent/<id>/<instance>" until another process takes over; it needs
	// no renewal
	Lease     mirror.Lease
	ReportSeq int64 // the last report that was taken: the next is numbered above it
	// where the agent is to work; InstallationID is empty for an environment's own Argo CD, which
	// keeps whatever it has
	ArgoCD     fleet.ArgoCDInstance
	Mode       fleet.AgentMode // of an Engine always AgentManaged
	Opening    int64           // grows with each session that is opened for the identity
	Generation int64           // of the declaration: see Change
	// the epoch is of another incarnation of the database: what the process knows of rows, too
	Stale bool

	DedicatedTo []fleet.TenantName // the tenants that alone use the engine; empty: shared
}

// News is what is new for agents since a number and a moment. It says where to look, never
// what is there.
type News struct {
	Seq   int64              // the newest row's number: to be given as after the next time
	Now   time.Time          // by the store's clock: to be given as since the next time
	Rows  []fleet.EngineName // engines of agents with rows above after
	Syncs []fleet.EngineName // engines of agents with syncs that have not ended, every time
	// IDs of agents whose identity has ended since, and of some that ended up to two minutes
	// before: they may be told twice
	Ended   []string
	Changed []Change // agents whose declaration has changed since, or up to two minutes before

	Life      string // incarnation of the database: see Lease
	Confirmed int64  // see mirror.State
}

// Change says that the declaration behind an agent has changed: a session that was opened with
// a lower Generation has to begin anew.
type Change struct {
	Agent      string // ID
	Generation int64
}

// Report is how an agent stands, as it says. Every text is the cluster's: capped, and escaped
// where it is shown.
type Report struct {
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
	Environments []fleet.EnvironmentID

	// Reach are the environments whose clusters the agent's engine cannot read, all of them; nil:
	// an agent that is too old to tell.
	Reach []mirror.Reach
}

// Errors of agents that a caller tells apart with errors.Is.
var (
	// ErrUsed says that a one-time token was used before, by other keys.
	ErrUsed = errors.New("the token was used already")
	// ErrReplayed says that a proof or a report was seen before, or is older than one that was.
	ErrReplayed = errors.New("seen before")
	// ErrCloned says that two processes use one identity in turn.
	ErrCloned = errors.New("two processes use this identity")
	// ErrRevoked says that an identity was ended: by a person, by another that joined in its
	// place, or with its tenant.
	ErrRevoked = errors.New("this identity was revoked; join again with a new token")
	// ErrExpired says that an identity's keys were not rotated in time.
	ErrExpired = errors.New("this identity has expired; join again with a new token")
	// ErrBusy says that an agent has been given too many access tokens lately, or has opened
	// too many sessions.
	ErrBusy = errors.New(
		"too many access tokens were asked for; use the last one until it runs out")
	// ErrSuperseded says that another process of the same identity has taken over.
	ErrSuperseded = errors.New("another process of this agent has taken over")
)
