package agent

import (
	"encoding/json"
	"time"

	"argosy.dev/argosy/fleet"
)

// Paths of the protocol.
const (
	PathJoin     = "/api/v1/agents/join"
	PathToken    = "/api/v1/agents/token"
	PathKeys     = "/api/v1/agents/keys"
	PathSnapshot = "/api/v1/cluster/self/applications"
	PathStream   = "/api/v1/cluster/self/applications/stream"
	PathStatus   = "/api/v1/cluster/self/status"
)

// Protocol is the newest version of this protocol that the program speaks, and Oldest the oldest.
// An agent sends its own in HeaderProtocol; the hub refuses one that is below its Oldest, and takes
// a newer one for its own newest: fields are only ever added. The headers are written and read by
// Session, and proven with the request.
const (
	Protocol = 1
	Oldest   = 1

	HeaderProtocol = "Argosy-Agent-Protocol"
	HeaderInstance = "Argosy-Agent-Instance" // the process: 128 random bits, made at its start
	// of stream and snapshot: the highest epoch that the cluster's objects show
	HeaderEpoch   = "Argosy-Agent-Epoch"
	HeaderVersion = "Argosy-Agent-Version"
)

// Limits that both sides keep. A report that is larger is sent in parts.
const (
	MaxReport   = 1 << 20   // bytes of a status report
	MaxItems    = 500       // of each list of a report
	MaxMessage  = 1 << 10   // bytes of one text
	MaxSnapshot = 256 << 20 // bytes of a snapshot
	MaxEvent    = 8 << 20   // bytes of one message of the stream
	// between signs of life on an idle stream; three missed ones are its end
	Beat = 15 * time.Second
)

// Join is the body of PathJoin. HeaderProof is a proof (see Prove) with the new keys, so that
// nobody registers keys that are not theirs.
type Join struct {
	Token      string          `json:"token"`
	Keys       fleet.AgentKeys `json:"keys"`
	ClusterUID string          `json:"clusterUID"`
	Version    string          `json:"version"`
}

// Joined answers Join.
type Joined struct {
	Agent     string           `json:"agent"` // ID
	Engine    fleet.EngineName `json:"engine"`
	ExpiresAt time.Time        `json:"expiresAt"`
	Time      time.Time        `json:"time"`
}

// Access answers PathToken, in the words of RFC 6749. The token is opaque, and of use only with a
// proof by the agent's key.
type Access struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"` // DPoP
	ExpiresIn   int    `json:"expires_in"` // seconds
}

// Rotate is the body of PathKeys. Proof is a proof by the new signing key over the thumb of the old
// keys (see ProveRotation).
type Rotate struct {
	Keys  fleet.AgentKeys `json:"keys"`
	Proof string          `json:"proof"`
}

// Operation is what a row asks for.
type Operation string

// Operations. Any other is left alone, and reported.
const (
	OperationApply  Operation = "apply"
	OperationRemove Operation = "remove"
	// OperationRemoveUID removes the object of the row's UID alone, whatever has its name by then.
	// An agent of an earlier version does not know it and leaves the object alone.
	OperationRemoveUID Operation = "removeUID"
)

// Row is one desired object.
type Row struct {
	Kind        fleet.ObjectKind      `json:"kind"`
	Name        string                `json:"name"`
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	Deployment  fleet.DeploymentName  `json:"deployment,omitempty"`
	Operation   Operation             `json:"operation"`
	Deletion    fleet.DeletionPolicy  `json:"deletion,omitempty"`
	Revision    fleet.Revision        `json:"revision"`
	Seq         int64                 `json:"seq"`
	Apply       fleet.ApplyState      `json:"apply,omitempty"` // as the hub has it
	// SHA-256 of Manifest's bytes, hexadecimal
	Hash       string          `json:"hash"`
	Manifest   json.RawMessage `json:"manifest"`
	Credential *Credential     `json:"credential,omitempty"`
	UID        string          `json:"uid,omitempty"` // of OperationRemoveUID
}

// Credential is a secret that the row needs: sealed to the agent's key, or why it could not be had.
type Credential struct {
	Tenant  fleet.TenantName `json:"tenant"`
	Name    string           `json:"name"`
	Sealed  []byte           `json:"sealed,omitempty"`  // see Seal
	Problem string           `json:"problem,omitempty"` // without any part of the secret
}

// Snapshot is every row of the agent's engine at one moment. It counts only whole: Digest and
// Complete come last.
type Snapshot struct {
	Epoch    int64  `json:"epoch"`
	Cursor   int64  `json:"cursor"` // the stream goes on after it
	Rows     []Row  `json:"rows"`
	Digest   string `json:"digest"` // see Digest
	Complete bool   `json:"complete"`
}

// Kinds of the stream's messages: the event's name. One that is not known is passed over.
const (
	EventHello = "hello" // Hello; the first, once
	EventRows  = "rows"  // Rows; its id is the cursor
	EventAgain = "again" // Rows whose credentials have changed; no cursor
	EventSyncs = "syncs" // []Sync: all that are open, the list as a whole
	EventStops = "stops" // []fleet.Stop: all that concern the engine, the list as a whole
	// []fleet.StopEnd: how stops that concern the engine have ended, the list as a whole; before
	// the first stops
	EventEnds = "ends"
	EventBye  = "bye" // Bye; the last
)

// Hello opens a stream.
type Hello struct {
	Protocol int              `json:"protocol"`
	Hub      string           `json:"hub"` // version
	Time     time.Time        `json:"time"`
	Engine   fleet.EngineName `json:"engine"`
	// where the agent is expected to work; it works nowhere else than it was installed for
	ArgoCD fleet.ArgoCDInstance `json:"argocd"`
	Mode   fleet.AgentMode      `json:"mode"`
	Epoch  int64                `json:"epoch"`
	Holder string               `json:"holder"`
	// the last report that was taken: the next one is numbered above it
	ReportSeq int64     `json:"reportSeq"`
	ExpiresAt time.Time `json:"expiresAt"` // of the identity
	// Cursor is where the stream begins. One that is lower than was asked for tells that the mirror
	// is another than the one that the agent knows, as after it was rebuilt: every row comes, and
	// numbers that the agent holds count for nothing.
	Cursor int64 `json:"cursor"`
	// DedicatedTo are the tenants that alone use the engine; empty: all share it. A hub of an
	// earlier version does not tell (nil).
	DedicatedTo []fleet.TenantName `json:"dedicatedTo,omitzero"`
}

// Rows are changes in their order.
type Rows struct {
	Rows   []Row `json:"rows"`
	Cursor int64 `json:"cursor"`
	// of what stood when the stream was opened; false once it is all there
	More bool `json:"more,omitempty"`
}

// Sync asks for one sync of one Application.
type Sync struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace,omitempty"` // of an autonomous cluster's own Application
	Name      string `json:"name"`
	Revision  string `json:"revision,omitempty"`
	Prune     bool   `json:"prune,omitempty"`
}

// Bye says why the stream ends.
type Bye struct {
	Code    string        `json:"code"`
	Message string        `json:"message"`
	After   time.Duration `json:"after,omitempty"` // to wait before the next try, in nanoseconds
}

// Codes of Bye and of refusals (the `code` of the problem document).
const (
	CodeRevoked    = "revoked"    // the identity is no more: join again
	CodeExpired    = "expired"    // likewise: its keys were not rotated in time
	CodeCloned     = "cloned"     // two processes use it in turn: join again, once
	CodeSuperseded = "superseded" // another process of the agent has taken over: end
	CodeShutdown   = "shutdown"   // the replica ends: connect again
	CodeRenew      = "renew"      // the stream has stood long enough: connect again
	CodeProof      = "proof"      // the proof does not hold; Date tells the hub's time
	CodeReplay     = "replay"     // it was seen before
	CodeBusy       = "busy"       // too many agents connect at once: see Retry-After
	CodeProtocol   = "protocol"   // one side is too old
	// of a join: the one-time token is unknown, over, or of something that is gone
	CodeToken = "token"
	CodeUsed  = "used" // of a join: the one-time token was used before, by other keys
	// of a snapshot: the config repo has not confirmed the rows yet; see Retry-After
	CodeUnconfirmed = "unconfirmed"
	// nothing is declared for the agent at present, as during a rebuild: see Retry-After
	CodeUndeclared = "undeclared"
	CodeInvalid    = "invalid" // the request makes no sense
)

// Problem is how a request is refused (RFC 9457, application/problem+json). An answer of PathToken
// holds Error and Description too (RFC 6749).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code,omitempty"`
	Detail string `json:"detail,omitempty"`
	Next   string `json:"next,omitempty"`
	// of CodeReplay of a report: the last one that was taken
	ReportSeq   int64  `json:"reportSeq,omitempty"`
	Error       string `json:"error,omitempty"`
	Description string `json:"error_description,omitempty"`
}

// Report is the body of PathStatus. Seq grows by one with each report of an identity, whatever
// process sends it. The request names that process in HeaderInstance: Epoch is that of its session.
type Report struct {
	Epoch    int64                  `json:"epoch"`
	Seq      int64                  `json:"seq"`
	Acks     []Ack                  `json:"acks,omitempty"`
	Observed []Observed             `json:"observed,omitempty"`
	Syncs    []SyncEnd              `json:"syncs,omitempty"`
	Standing *Standing              `json:"standing,omitempty"`
	Own      []fleet.OwnApplication `json:"own,omitempty"` // of an autonomous cluster
	// with this report every own Application was sent since the session began: others are gone
	OwnWhole bool `json:"ownWhole,omitempty"`
}

// Ack is fleet.Ack without the engine, which the credential tells.
type Ack struct {
	Kind    fleet.ObjectKind `json:"kind"`
	Name    string           `json:"name"`
	Seq     int64            `json:"seq"`
	State   fleet.ApplyState `json:"state"`
	Message string           `json:"message,omitempty"`
	Removed bool             `json:"removed,omitempty"`
	// of the row as it was handled; an agent of an earlier version sends none
	Hash string `json:"hash,omitempty"`
}

// Observed is fleet.Observation without the engine.
type Observed struct {
	Name            string            `json:"name"`
	UID             string            `json:"uid,omitempty"`
	Sync            fleet.SyncState   `json:"sync"`
	Health          fleet.HealthState `json:"health"`
	SyncedRevision  string            `json:"syncedRevision,omitempty"`
	OperationPhase  string            `json:"operationPhase,omitempty"`
	OperationID     string            `json:"operationID,omitempty"`
	OperationError  string            `json:"operationError,omitempty"`
	Message         string            `json:"message,omitempty"`
	Resources       int               `json:"resources,omitempty"`
	ReconciledAt    time.Time         `json:"reconciledAt,omitzero"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Gone            bool              `json:"gone,omitempty"`
}

// SyncEnd is how a sync stands.
type SyncEnd struct {
	ID      string               `json:"id"`
	State   fleet.OperationState `json:"state"`
	Message string               `json:"message,omitempty"`
}

// Standing is fleet.AgentReport on the wire.
type Standing struct {
	Reachable        bool   `json:"reachable"`
	Message          string `json:"message,omitempty"`
	ArgoCD           string `json:"argocd,omitempty"`
	Version          string `json:"version,omitempty"`
	PendingDeletions int    `json:"pendingDeletions,omitempty"`
	HeldDeletions    int    `json:"heldDeletions,omitempty"`
	Orphans          int    `json:"strays,omitempty"`
	Own              int    `json:"own,omitempty"` // the cluster's own Applications, all of them
	// Environments that the strays are of, as fleet.AgentReport. It is there when it is empty too:
	// an agent of an earlier version has none.
	Environments []fleet.EnvironmentID `json:"environments,omitzero"`
	// Unreachable are the environments whose clusters the engine cannot read, all of them up to
	// fleet.MaxReach. It is there when it is empty too, as Environments is.
	Unreachable []Unreachable `json:"unreachable,omitzero"`
	// Listed are the strays, all of them up to fleet.MaxListedOrphans. It is there when it is empty
	// too.
	Listed []Orphan `json:"listed,omitzero"`
}

// Orphan is fleet.Orphan without the engine, which the credential tells.
type Orphan struct {
	Kind        fleet.ObjectKind      `json:"kind"`
	Name        string                `json:"name"`
	Tenant      fleet.TenantName      `json:"tenant,omitempty"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	Deployment  fleet.DeploymentName  `json:"deployment,omitempty"`
	UID         string                `json:"uid"`
	Revision    fleet.Revision        `json:"revision,omitempty"`
	Epoch       int64                 `json:"epoch,omitempty"`
	Pure        bool                  `json:"pure,omitempty"`
}

// Unreachable is one environment whose cluster the engine cannot read.
type Unreachable struct {
	Environment fleet.EnvironmentID `json:"environment"`
	fleet.Unreachable
}
