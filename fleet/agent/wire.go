package agent

import (
	"encoding/json"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// Paths of the protocol.
const (
	PathJoin     = "/api/v1/agents/join"
	PathToken    = "/api/v1/agents/token"
	PathKeys     = "/api/v1/agents/keys"
	PathSnapshot = "/api/v1/cluster/self/applications"
	PathStream   = "/api/v1/cluster/self/applications/stream"
	PathStatus   = "/api/v1/cluster/self/status"
	// PathManifests returns the manifests of a version of Argo CD that the engine is to have.
	PathManifests = "/api/v1/cluster/self/manifests"
	// PathComparisons returns the next Applications to compare under the next Argo CD.
	PathComparisons = "/api/v1/cluster/self/comparisons"
)

// Protocol is the newest protocol version that this program supports, and Oldest the oldest. An
// agent sends its own in HeaderProtocol; the hub rejects a version below its Oldest and treats a
// newer one as its own newest, because later versions only add fields. Session reads and writes the
// headers, which are signed with the request.
const (
	Protocol = 5
	Oldest   = 1
	// ProtocolMoves is the first version whose agents carry out the steps of a move (ADR 0062).
	ProtocolMoves = 2
	// ProtocolInstall is the first version whose agents install the Argo CD beside them (ADR 0075).
	ProtocolInstall = 3
	// ProtocolShadow is the first version whose agents compare what the next Argo CD renders (ADR
	// 0082).
	ProtocolShadow = 4
	// ProtocolUpgrade is the first version whose agents follow a ring without installing an Argo CD
	// (ADR 0081): their Instance has no Version and no Digest.
	ProtocolUpgrade = 4
	// ProtocolInspect is the first version whose agents read an Application's resources for people
	// (ADR 0085).
	ProtocolInspect = 5
	// ProtocolActions is the first version whose agents carry out what people ask of single
	// Applications (ADR 0096). An earlier one would never answer.
	ProtocolActions = 5

	HeaderProtocol = "Argosy-Agent-Protocol"
	HeaderInstance = "Argosy-Agent-Instance" // the process: 128 random bits, generated at its start
	// of stream and snapshot: the highest epoch on the cluster's objects
	HeaderEpoch   = "Argosy-Agent-Epoch"
	HeaderVersion = "Argosy-Agent-Version"
)

// Limits for both sides. A larger report is split.
const (
	MaxReport   = 1 << 20   // bytes of a status report
	MaxItems    = 500       // of each list of a report
	MaxMessage  = 1 << 10   // bytes of one text field
	MaxSnapshot = 256 << 20 // bytes of a snapshot
	MaxPacked   = 8 << 20   // bytes of the response of PathManifests
	// bytes of one Comparison; an agent shortens a longer one
	MaxComparison = 64 << 10
	MaxTasks      = 50      // of a response of PathComparisons
	MaxEvent      = 8 << 20 // bytes of one message of the stream
	// bytes of one ActionStatus; an agent shortens a longer one
	MaxActionStatus = 256 << 10
	// between keep-alives on an idle stream; three missed ones end the stream
	Heartbeat = 15 * time.Second
)

// Join is the body of PathJoin. HeaderProof carries a proof (see Prove) by the new keys, so that a
// client cannot register keys that it does not hold.
type Join struct {
	Token      string        `json:"token"`
	Keys       registry.Keys `json:"keys"`
	ClusterUID string        `json:"clusterUID"`
	Version    string        `json:"version"`
}

// Joined is the response to Join.
type Joined struct {
	Agent     string           `json:"agent"` // ID
	Engine    fleet.EngineName `json:"engine"`
	ExpiresAt time.Time        `json:"expiresAt"`
	Time      time.Time        `json:"time"`
}

// Access is the response of PathToken, with the field names of RFC 6749. The token is opaque, and
// requires a proof by the agent's key.
type Access struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"` // DPoP
	ExpiresIn   int    `json:"expires_in"` // seconds
}

// Rotate is the body of PathKeys. Proof is a proof by the new signing key over the thumbprint of
// the old keys (see ProveRotation).
type Rotate struct {
	Keys  registry.Keys `json:"keys"`
	Proof string        `json:"proof"`
}

// Operation is the handling of a row by an agent.
type Operation string

// Operations. An agent ignores any other one and reports it.
const (
	OperationApply  Operation = "apply"
	OperationRemove Operation = "remove"
	// OperationRemoveUID removes only the object with the row's UID, even if another object has its
	// name. An earlier agent does not know this operation and leaves the object alone.
	OperationRemoveUID Operation = "removeUID"
	// OperationApplyFurther applies an object that needs a namespace besides Argo CD's own: an
	// Application there, or an AppProject that permits it. An earlier agent does not know this
	// operation and leaves the object alone.
	OperationApplyFurther Operation = "applyFurther"
	// OperationArrive and OperationLeave leave an Application to the steps of a move (see Moves):
	// it moves to this engine, or from it. An earlier agent does not know these operations and
	// leaves the object alone, so that the Application never gets a second owner.
	OperationArrive Operation = "arrive"
	OperationLeave  Operation = "leave"
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
	Apply       mirror.ApplyState     `json:"apply,omitempty"` // as the hub knows it
	// SHA-256 of Manifest's bytes, hexadecimal
	Hash       string          `json:"hash"`
	Manifest   json.RawMessage `json:"manifest"`
	Credential *Credential     `json:"credential,omitempty"`
	UID        string          `json:"uid,omitempty"` // of OperationRemoveUID
}

// Credential is a secret that the row needs, sealed with the agent's key, or the reason why it is
// unavailable.
type Credential struct {
	Tenant  fleet.TenantName `json:"tenant"`
	Name    string           `json:"name"`
	Sealed  []byte           `json:"sealed,omitempty"`  // see Seal
	Problem string           `json:"problem,omitempty"` // never contains a part of the secret
}

// Snapshot holds every row of the agent's engine at one moment. It is valid only as a whole: Digest
// and Complete come last.
type Snapshot struct {
	Epoch    int64  `json:"epoch"`
	Cursor   int64  `json:"cursor"` // the stream resumes after it
	Rows     []Row  `json:"rows"`
	Digest   string `json:"digest"` // see Digest
	Complete bool   `json:"complete"`
}

// Event names of the stream's messages. An agent ignores an unknown one.
const (
	EventHello       = "hello" // Hello; the first message, once
	EventRows        = "rows"  // Rows; the event's id is the cursor
	EventCredentials = "again" // Rows whose credentials have changed; without a cursor
	EventSyncs       = "syncs" // []Sync: all open syncs
	EventStops       = "stops" // []mirror.Stop: all stops that apply to the engine
	// []mirror.StopEnd: the recent ends of stops that applied to the engine; precedes the first
	// EventStops
	EventStopEnds = "ends"
	// []Action: all open actions. They hold for this stream: an agent that is not connected begins
	// none, because it does not know how long ago they were requested.
	EventActions = "actions"
	EventMoves   = "moves" // Moves: all Applications that move to or from the engine
	// Instance, or null: the Argo CD that the engine is to have; null if it is not managed
	EventInstance = "instance"
	// Shadow, or null: the comparison under the next Argo CD; null if there is none
	EventShadow = "shadow"
	EventGoAway = "bye" // GoAway; the last message
)

// Hello opens a stream.
type Hello struct {
	Protocol int              `json:"protocol"`
	Hub      string           `json:"hub"` // version of the hub
	Time     time.Time        `json:"time"`
	Engine   fleet.EngineName `json:"engine"`
	// the declared instance; an agent works only for the instance that it was installed for
	ArgoCD fleet.ArgoCDInstance `json:"argocd"`
	Mode   fleet.AgentMode      `json:"mode"`
	Epoch  int64                `json:"epoch"`
	Holder string               `json:"holder"`
	// the last accepted report: the next report has a higher number
	ReportSeq int64     `json:"reportSeq"`
	ExpiresAt time.Time `json:"expiresAt"` // of the identity
	// Cursor is the start of the stream. A cursor below the requested one means that the mirror was
	// rebuilt: every row is sent, and the sequence numbers that the agent holds are void.
	Cursor int64 `json:"cursor"`
	// DedicatedTo lists the tenants that may use the engine; empty: the engine is shared. An
	// earlier hub omits it (nil).
	DedicatedTo []fleet.TenantName `json:"dedicatedTo,omitzero"`
	// ApplicationNamespaces are the declared namespaces with Applications besides Argo CD's own. An
	// agent works in those that its own settings allow too.
	ApplicationNamespaces []fleet.ApplicationNamespace `json:"applicationNamespaces,omitempty"`
	// Metrics are the endpoints of the Argo CD's metrics. An agent reads those in its namespace,
	// through its API server.
	Metrics *fleet.EngineMetrics `json:"metrics,omitempty"`
}

// Rows are changes, ordered by sequence number.
type Rows struct {
	Rows   []Row `json:"rows"`
	Cursor int64 `json:"cursor"`
	// more of the rows that existed when the stream opened follow
	More bool `json:"more,omitempty"`
}

// Sync asks for one sync of one Application.
type Sync struct {
	ID string `json:"id"`
	// of a cluster's own Application in autonomous mode
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Revision  string `json:"revision,omitempty"`
	Prune     bool   `json:"prune,omitempty"`
}

// Action is mirror.Action without what follows from the row of its Application.
type Action struct {
	ID      string                `json:"id"`
	Kind    mirror.ActionKind     `json:"kind"`
	Name    string                `json:"name"`
	Options mirror.ActionOptions  `json:"options,omitzero"`
	State   mirror.OperationState `json:"state"` // as the hub knows it
	Message string                `json:"message,omitempty"`
	Late    bool                  `json:"late,omitempty"`
	Outcome mirror.OperationState `json:"outcome,omitempty"`
	// by the clock of the hub's store; a restart writes it
	RequestedAt time.Time `json:"requestedAt"`
}

// ActionStatus is mirror.ActionUpdate.
type ActionStatus struct {
	ID      string                  `json:"id"`
	State   mirror.OperationState   `json:"state"`
	Message string                  `json:"message,omitempty"`
	Results []mirror.ResourceResult `json:"results,omitempty"`
	Outcome mirror.OperationState   `json:"outcome,omitempty"`
}

// Moves are all Applications that move to or from the engine, at one moment. Rows is the number of
// the engine's newest row at that moment: an agent that has not received it yet waits for it.
type Moves struct {
	Rows  int64  `json:"rows"`
	Moves []Move `json:"moves"`
}

// Move is mirror.ApplicationMove. Departure is set if the next step is the agent's; it follows
// later if the message would be too large.
type Move struct {
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment"`
	Deployment  fleet.DeploymentName  `json:"deployment"`
	From        fleet.EngineName      `json:"from"`
	To          fleet.EngineName      `json:"to"`
	Step        mirror.MoveStep       `json:"step"`
	Since       time.Time             `json:"since"`
	Undo        bool                  `json:"undo,omitempty"`
	Unadopted   int                   `json:"unadopted,omitempty"`
	Message     string                `json:"message,omitempty"` // of the other engine's step
	Departure   *mirror.Departure     `json:"departure,omitempty"`
}

// Application is the Application that moves.
func (m Move) Application() fleet.ApplicationID {
	return fleet.ApplicationID{Tenant: m.Tenant, Environment: m.Environment,
		Deployment: m.Deployment}
}

// MaxDeparture bounds the resources of an Application that leaves an agent's engine.
const MaxDeparture = 2000

// MoveReport is the end of a step of a move (Next), or why it waits (Message). It counts only while
// the step, with this Since, is the next one and is the agent's.
type MoveReport struct {
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment"`
	Deployment  fleet.DeploymentName  `json:"deployment"`
	Name        string                `json:"name,omitempty"` // of the object
	Step        mirror.MoveStep       `json:"step"`
	Since       time.Time             `json:"since"`
	Next        mirror.MoveStep       `json:"next,omitempty"`
	Message     string                `json:"message,omitempty"`
	// of MoveAdopt: see mirror.Departure
	Returns string `json:"returns,omitempty"`
	Calls   int    `json:"calls,omitempty"`
	// of MoveCheck, without the spec: the hub takes that from its own row
	Departure *mirror.Departure `json:"departure,omitempty"`
}

// Instance is the Argo CD that a managed engine is to have, or the version of an agent alone. The
// agent asks for the manifests of a digest that it does not have.
type Instance struct {
	Version string               `json:"version"` // "" of an agent alone
	Digest  string               `json:"digest"`  // of the manifests; "" of an agent alone
	State   mirror.InstanceState `json:"state"`   // as the hub knows it
	Message string               `json:"message,omitempty"`
	// Since is the time of the state by the hub's store: it distinguishes an attempt from the one
	// before a person has resumed the ring. An earlier hub omits it.
	Since time.Time `json:"since,omitzero"`
	// of the agent itself: see mirror.Instance
	AgentVersion string `json:"agentVersion,omitempty"`
	AgentDigest  string `json:"agentDigest,omitempty"`
}

// Release is mirror.Instance.Release.
func (i Instance) Release() string { return i.Digest + i.AgentDigest }

// ManifestsRequest is the body of PathManifests.
type ManifestsRequest struct {
	Digest string `json:"digest"`
}

// Manifests is the response of PathManifests. The agent checks the files against the digest.
type Manifests struct {
	Version string `json:"version"`
	Packed  []byte `json:"packed"` // see mirror.RingManifests
}

// InstanceReport is how far the agent has come with a release. It counts only while the engine is
// to have that release.
type InstanceReport struct {
	Release string               `json:"release"`
	State   mirror.InstanceState `json:"state"`
	Message string               `json:"message,omitempty"`
	// Released: the instance of state Releasing was given back
	Released bool `json:"released,omitempty"`
}

// Shadow is the comparison of the engine's Applications under the next version of its Argo CD (ADR
// 0082). The agent renders beside its own Argo CD.
type Shadow struct {
	Version string             `json:"version"`
	Digest  string             `json:"digest"` // of the version's manifests
	State   mirror.ShadowState `json:"state"`  // as the hub knows it
	Message string             `json:"message,omitempty"`
}

// ComparisonsRequest is the body of PathComparisons: the Applications by name after After whose
// last comparison with the digest had other inputs. Basis identifies the settings of the agent's
// Argo CD.
type ComparisonsRequest struct {
	Digest string `json:"digest"`
	Basis  string `json:"basis"`
	After  string `json:"after,omitempty"`
}

// ComparisonTasks is the response of PathComparisons.
type ComparisonTasks struct {
	Tasks []ComparisonTask `json:"tasks"`
}

// ComparisonTask is mirror.ShadowTask without what follows from the row.
type ComparisonTask struct {
	Name   string `json:"name"`
	Inputs string `json:"inputs"` // the agent returns it
}

// Comparison is mirror.ShadowResult without what follows from the row. It counts only while the
// digest is that of the engine's shadow, and for an Application of the engine.
type Comparison struct {
	Digest        string                      `json:"digest"`
	Name          string                      `json:"name"`
	Inputs        string                      `json:"inputs"`
	Revision      string                      `json:"revision,omitempty"`
	Unrendered    string                      `json:"unrendered,omitempty"`
	Error         string                      `json:"error,omitempty"`
	Hash          string                      `json:"hash,omitempty"`
	Resources     []mirror.ResourceDifference `json:"resources,omitempty"`
	MoreResources int                         `json:"moreResources,omitempty"`
}

// ShadowReport is how far the agent has come with a shadow. It counts only while the engine has
// that shadow.
type ShadowReport struct {
	Digest  string             `json:"digest"`
	State   mirror.ShadowState `json:"state"`
	Message string             `json:"message,omitempty"`
}

// GoAway ends a stream with a reason.
type GoAway struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// the wait before the next attempt, in nanoseconds
	After time.Duration `json:"after,omitempty"`
}

// Codes of GoAway and of refusals (the `code` of the problem document).
const (
	CodeRevoked = "revoked" // the identity was revoked: join again
	// the identity expired, because its keys were not rotated in time: join again
	CodeExpired    = "expired"
	CodeCloned     = "cloned"     // two processes alternate with one identity: join again, once
	CodeSuperseded = "superseded" // another process of the agent has taken over: exit
	CodeShutdown   = "shutdown"   // the replica shuts down: reconnect
	CodeRenew      = "renew"      // the stream reached its maximum age or is obsolete: reconnect
	CodeProof      = "proof"      // the proof is invalid; the Date header has the hub's time
	CodeReplay     = "replay"     // the proof or the report was received before
	CodeBusy       = "busy"       // too many requests at once: see Retry-After
	CodeProtocol   = "protocol"   // the agent or the hub is too old
	// join: the one-time token is unknown or expired, or its target was deleted
	CodeToken = "token"
	CodeUsed  = "used" // join: the one-time token was used before, with other keys
	// snapshot: the config repo has not confirmed the rows yet; see Retry-After
	CodeUnconfirmed = "unconfirmed"
	// nothing is declared for the agent now, as during a rebuild: see Retry-After
	CodeUndeclared = "undeclared"
	CodeInvalid    = "invalid" // the request is malformed
	CodeEnded      = "ended"   // inspections: no reader waits for the answer
)

// Problem is the body of a refusal (RFC 9457, application/problem+json). A response of PathToken
// also has Error and Description (RFC 6749).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code,omitempty"`
	Detail string `json:"detail,omitempty"`
	Next   string `json:"next,omitempty"`
	// CodeReplay of a report: the last accepted report
	ReportSeq   int64  `json:"reportSeq,omitempty"`
	Error       string `json:"error,omitempty"`
	Description string `json:"error_description,omitempty"`
}

// Report is the body of PathStatus. Seq grows by one with each report of an identity, across its
// processes. HeaderInstance names the process, and Epoch is the epoch of its session.
type Report struct {
	Epoch    int64        `json:"epoch"`
	Seq      int64        `json:"seq"`
	Acks     []Ack        `json:"acks,omitempty"`
	Observed []Observed   `json:"observed,omitempty"`
	Syncs    []SyncStatus `json:"syncs,omitempty"`
	Moves    []MoveReport `json:"moves,omitempty"`
	// how far the agent is with actions
	Actions []ActionStatus `json:"actions,omitempty"`
	// of the Argo CD that the agent installs; at most one, as a list like the others
	Instances []InstanceReport `json:"instances,omitempty"`
	// of Applications under the next Argo CD
	Comparisons []Comparison `json:"comparisons,omitempty"`
	// at most one, as a list like the others; it follows the comparisons
	Shadows []ShadowReport `json:"shadows,omitempty"`
	Status  *AgentStatus   `json:"standing,omitempty"`
	// own Applications of a cluster in autonomous mode
	Own []mirror.OwnApplication `json:"own,omitempty"`
	// this report completes the list of own Applications of this session: unlisted ones were
	// deleted
	OwnWhole bool `json:"ownWhole,omitempty"`
}

// Ack is mirror.Ack without the engine, which follows from the credential.
type Ack struct {
	Kind    fleet.ObjectKind  `json:"kind"`
	Name    string            `json:"name"`
	Seq     int64             `json:"seq"`
	State   mirror.ApplyState `json:"state"`
	Message string            `json:"message,omitempty"`
	Removed bool              `json:"removed,omitempty"`
	// hash of the handled row; an earlier agent omits it
	Hash string `json:"hash,omitempty"`
}

// Observed is mirror.Observation without the engine.
type Observed struct {
	Name           string             `json:"name"`
	UID            string             `json:"uid,omitempty"`
	Sync           mirror.SyncState   `json:"sync"`
	Health         mirror.HealthState `json:"health"`
	SyncedRevision string             `json:"syncedRevision,omitempty"`
	OperationPhase string             `json:"operationPhase,omitempty"`
	OperationID    string             `json:"operationID,omitempty"`
	OperationError string             `json:"operationError,omitempty"`
	// commit of the operation; an earlier agent omits it
	OperationRevision string    `json:"operationRevision,omitempty"`
	Message           string    `json:"message,omitempty"`
	Resources         int       `json:"resources,omitempty"`
	ReconciledAt      time.Time `json:"reconciledAt,omitzero"`
	ResourceVersion   string    `json:"resourceVersion,omitempty"`
	Compared          string    `json:"compared,omitempty"` // an earlier agent omits it
	// of the workload, at most mirror.MaxRunningImages; an earlier agent omits them
	Images []string `json:"images,omitzero"`
	Gone   bool     `json:"gone,omitempty"`
}

// SyncStatus is the state of a sync.
type SyncStatus struct {
	ID      string                `json:"id"`
	State   mirror.OperationState `json:"state"`
	Message string                `json:"message,omitempty"`
}

// AgentStatus is registry.Report on the wire.
type AgentStatus struct {
	Reachable bool   `json:"reachable"`
	Message   string `json:"message,omitempty"`
	// why a reachable engine refuses writes; an earlier version omits it
	Unfit string `json:"unfit,omitempty"`
	// whether a reachable engine works; an earlier version omits it
	Work *mirror.Work `json:"work,omitempty"`
	// measured; omitted: nothing is, or by an earlier version
	Load             *mirror.Load `json:"load,omitempty"`
	ArgoCD           string       `json:"argocd,omitempty"`
	Version          string       `json:"version,omitempty"`
	PendingDeletions int          `json:"pendingDeletions,omitempty"`
	HeldDeletions    int          `json:"heldDeletions,omitempty"`
	Orphans          int          `json:"strays,omitempty"`
	Own              int          `json:"own,omitempty"` // number of the cluster's own Applications
	// Environments are the environments of the orphans, as in registry.Report. An empty list is
	// sent too: an earlier agent omits the field.
	Environments []fleet.EnvironmentID `json:"environments,omitzero"`
	// Unreachable lists the environments whose clusters the engine cannot read, at most
	// mirror.MaxReach. An empty list is sent too, as with Environments.
	Unreachable []Unreachable `json:"unreachable,omitzero"`
	// Listed are the orphans, at most mirror.MaxListedOrphans. An empty list is sent too.
	Listed []Orphan `json:"listed,omitzero"`
}

// Orphan is mirror.Orphan without the engine, which follows from the credential.
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

// Unreachable is an environment whose cluster the engine cannot read.
type Unreachable struct {
	Environment fleet.EnvironmentID `json:"environment"`
	mirror.Unreachable
}
