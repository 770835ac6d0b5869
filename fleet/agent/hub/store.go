package hub

import (
	"context"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// Store is what the hub keeps and reads, for every agent. Replicas call it concurrently, and every
// write is idempotent. Leases come from AgentOpening.Lease: a write under a lost lease fails with
// mirror.ErrFenced.
type Store struct {
	Identities
	Sessions
	Rows
	Changes
	Reports
	Inspections
}

// complete reports whether every part is set.
func (s Store) complete() bool {
	return s.Identities != nil && s.Sessions != nil && s.Rows != nil && s.Changes != nil &&
		s.Reports != nil && s.Inspections != nil
}

// Identities stores the agents' identities, access tokens and one-time tokens.
type Identities interface {
	// JoinAgent exchanges a one-time token and keys for an identity, and ends the engine's earlier
	// one. A token succeeds with exactly one pair of keys; a repeated call with the same pair
	// returns the same identity, because the response may have been lost. Errors: registry.ErrUsed
	// after a join with other keys, which is reported and audited; mirror.ErrNotFound for a token
	// that is unknown, malformed, expired or revoked, or whose target was deleted or no longer uses
	// an agent.
	JoinAgent(ctx context.Context, token string, join registry.Join) (registry.Agent, error)

	// Agent returns a live identity; mirror.ErrNotFound if it never existed. With
	// registry.ErrRevoked, registry.ErrExpired and registry.ErrCloned it also returns the Agent,
	// so that the caller can verify a proof before it reveals the state.
	Agent(ctx context.Context, id string) (registry.Agent, error)

	// SaveAccess stores the SHA-256 of an access token that was granted for an assertion, for ttl.
	// It remembers the assertion ten minutes longer than the token. Errors: registry.ErrReplayed if
	// the assertion (by ID, at most 128 bytes) was used for another token; registry.ErrBusy if
	// the agent has too many tokens.
	SaveAccess(ctx context.Context, agent, assertion string, hash [32]byte, ttl time.Duration) error

	// AccessAgent returns the live identity of an access token; mirror.ErrNotFound if the token is
	// unknown or expired, or the identity has ended for any reason.
	AccessAgent(ctx context.Context, hash [32]byte) (registry.Agent, error)

	// RotateAgent replaces the keys with the old thumbprint, extends the identity to
	// registry.Lifetime from now and drops its access tokens. It is idempotent.
	// registry.ErrReplayed means that the agent has other keys now. Other errors are those of
	// Agent.
	RotateAgent(ctx context.Context, id, oldThumb string, keys registry.Keys) (
		registry.Agent, error)

	// LegacyToken returns a token for the older route of applications until it expires or is
	// revoked, used or not; mirror.ErrNotFound for any other token.
	LegacyToken(ctx context.Context, token string) (registry.Token, error)
}

// Sessions stores the sessions of agents and the heartbeat of the replica.
type Sessions interface {
	// OpenAgent opens a session. It takes the engine's lease for the process and records that the
	// agent is connected to the replica. It raises the epoch if another process held the lease or
	// the floor requires it. An epoch of another incarnation of the database is raised if the
	// session is Confirmed, so that the process reads its rows again; otherwise it stays, and the
	// opening is Stale. Errors: registry.ErrCloned if processes have alternated, which rejects the
	// identity from now on; mirror.ErrNotFound if nothing is declared for the agent now, as during
	// a rebuild (the agent retries later); registry.ErrReplayed if any replica has opened a session
	// with that Proof; registry.ErrBusy if the agent has opened too many sessions recently. Other
	// errors are those of Agent.
	OpenAgent(ctx context.Context, s registry.Session) (registry.Opening, error)

	// CloseAgent records the end of the session. It leaves a newer one (Opening) or one on another
	// replica alone.
	CloseAgent(ctx context.Context, s registry.Session) error

	// BeatReplica records the heartbeat of the replica and so of its sessions. Call it every ten
	// seconds: an agent counts as connected while its replica's last heartbeat is younger than
	// thirty seconds. A restarted process is another replica.
	BeatReplica(ctx context.Context, replica string) error
}

// Rows returns the desired rows and the open syncs of an agent's engine.
type Rows interface {
	// AgentRows visits every row of the engine in one snapshot, by sequence number, and returns the
	// cursor for AgentChanged. It holds a database connection, so visit must not block. Once the
	// declaration is deleted, or no longer names an agent, it returns only rows that request a
	// removal. Row-level security applies in addition to the query.
	AgentRows(ctx context.Context, engine fleet.EngineName, visit func(mirror.Row) error) (
		cursor int64, err error)

	// AgentChanged returns the engine's rows above after, by sequence number, at most limit;
	// otherwise like AgentRows.
	AgentChanged(ctx context.Context, engine fleet.EngineName, after int64, limit int) (
		[]mirror.Row,
		error)

	// AgentCredentialRows returns the engine's rows that need the tenant's secret; otherwise like
	// AgentRows.
	AgentCredentialRows(ctx context.Context, engine fleet.EngineName, tenant fleet.TenantName,
		secret string) ([]mirror.Row, error)

	// AgentSyncs returns the engine's open syncs, oldest first; otherwise like AgentRows.
	AgentSyncs(ctx context.Context, engine fleet.EngineName) ([]mirror.SyncRequest, error)

	// AgentActions returns what people ask of the engine's Applications and has not ended, oldest
	// first; otherwise like AgentRows.
	AgentActions(ctx context.Context, engine fleet.EngineName) ([]mirror.Action, error)

	// AgentMoves returns the Applications that move to or from the engine, and the number of its
	// newest row in the same snapshot; otherwise like AgentRows.
	AgentMoves(ctx context.Context, engine fleet.EngineName) (registry.Moves, error)

	// AgentInstance returns the Argo CD that the engine is to have, with its shadow. AgentManifests
	// returns the version and the packed files of its manifests or its shadow's;
	// mirror.ErrNotFound for another digest. AgentShadowTasks returns the next Applications that
	// the shadow compares; mirror.ErrNotFound for another digest: see worker.Shadows. Otherwise
	// they are like AgentRows.
	AgentInstance(ctx context.Context, engine fleet.EngineName) (registry.Instance, error)
	AgentManifests(ctx context.Context, engine fleet.EngineName, digest string) (version string,
		packed []byte, err error)
	AgentShadowTasks(ctx context.Context, engine fleet.EngineName, digest, basis, after string,
		limit int) ([]mirror.ShadowTask, error)
}

// Changes returns the changes for all open streams, for the feed.
type Changes interface {
	// AgentNews runs one statement for any number of agents. after is the Seq and since the Now of
	// the previous call. A negative after starts from now, and a zero since two minutes ago.
	AgentNews(ctx context.Context, after int64, since time.Time) (registry.News, error)

	// WantConfirmed requests a confirmation of the rows by the config repo. It returns the number
	// that AgentNews.Confirmed reaches then. Notify wakes the loop on any replica.
	WantConfirmed(ctx context.Context) (int64, error)
	Notify(ctx context.Context, by string) error

	// BeginLife replaces the incarnation of the database if it is still the given one. The caller
	// has seen its sequence numbers go back in time.
	BeginLife(ctx context.Context, was string) error

	// CredentialEngines lists the agents' engines with rows that need the tenant's secret.
	CredentialEngines(ctx context.Context, tenant fleet.TenantName, secret string) (
		[]fleet.EngineName, error)
}

// Reports stores the reports of agents.
type Reports interface {
	// TakeReport checks, before a report is applied, that the lease is valid and that the report is
	// newer than the last one; otherwise it returns registry.ErrReplayed. mirror.ErrNotFound means
	// that the lease was removed and has no holder: the agent gets it again with a new session.
	// last is the number of the last accepted report, also with registry.ErrReplayed. ReportTaken
	// records the number after all parts were applied. If the replica dies in between, the agent
	// sends the report again, which is harmless: each part (Acknowledge, Observe, UpdateSync,
	// UpdateAction, ReportAgent, RecordOwn) is idempotent. A number recorded before the parts would
	// lose them.
	TakeReport(ctx context.Context, lease mirror.Lease, seq int64) (last int64, err error)
	ReportTaken(ctx context.Context, lease mirror.Lease, seq int64) error

	// Acknowledge records the result of handled rows; see the rules of the mirror. Every key has
	// the lease's engine.
	Acknowledge(ctx context.Context, lease mirror.Lease, acks []mirror.Ack) error

	// Observe records the state of Applications. Every key has the lease's engine; an Application
	// without a wanted row is ignored.
	Observe(ctx context.Context, lease mirror.Lease, seen []mirror.Observation) error

	// UpdateSync records the state of a sync of the lease's engine. It ignores an ended sync and
	// one of another engine.
	UpdateSync(ctx context.Context, lease mirror.Lease, id string, state mirror.OperationState,
		text string) error

	// UpdateAction records how far an action of the lease's engine is. It ignores an ended action
	// and one of another engine.
	UpdateAction(ctx context.Context, lease mirror.Lease, u mirror.ActionUpdate) error

	// LeasedRow returns a row of the lease's engine. The others record a step of a move, under the
	// lease of the engine that carries it out: see worker.Moves.
	LeasedRow(ctx context.Context, lease mirror.Lease, key fleet.ObjectKey) (
		row mirror.Row, found bool, err error)
	ApplicationMove(ctx context.Context, lease mirror.Lease, id fleet.ApplicationID) (
		m mirror.ApplicationMove, moves bool, err error)
	AdvanceMove(ctx context.Context, lease mirror.Lease, m mirror.ApplicationMove,
		next mirror.MoveStep, row mirror.Row) error
	DelayMove(ctx context.Context, lease mirror.Lease, m mirror.ApplicationMove, why string) error
	EndMove(ctx context.Context, lease mirror.Lease, m mirror.ApplicationMove) error

	// ReportInstance records how far the Argo CD of the lease's engine has come, and ForgetInstance
	// that it was given back: see worker.Instances.
	ReportInstance(ctx context.Context, lease mirror.Lease, release string,
		state mirror.InstanceState, why string) error
	ForgetInstance(ctx context.Context, lease mirror.Lease) error

	// RecordShadow records comparisons of Applications of the lease's engine, and ignores others.
	// ReportShadow records how far the engine's shadow has come; it is not Compared while an
	// Application has no comparison: see worker.Shadows.
	RecordShadow(ctx context.Context, lease mirror.Lease, digest string,
		results []mirror.ShadowResult) error
	ReportShadow(ctx context.Context, lease mirror.Lease, digest string, state mirror.ShadowState,
		why string) error

	// OrphanKeys lists the recorded orphans of an engine. ReportOrphans adds those that its agent
	// found and removes the deleted ones.
	OrphanKeys(ctx context.Context, engine fleet.EngineName) ([]fleet.ObjectKey, error)
	ReportOrphans(ctx context.Context, lease mirror.Lease, found []mirror.Orphan,
		resolved []fleet.ObjectKey) error

	// ReportAgent records the state of the agent and its Argo CD. An unchanged state writes
	// nothing.
	ReportAgent(ctx context.Context, lease mirror.Lease, report registry.Report) error

	// RecordOwn records the cluster's own Applications that are new, changed or deleted, at most
	// mirror.MaxOwn per environment. With whole set, all of them were sent under this lease's
	// epoch, and unlisted ones were deleted. It does nothing for an agent that is not autonomous.
	RecordOwn(ctx context.Context, lease mirror.Lease, own []mirror.OwnApplication,
		whole bool) error
}

// Inspections relays reads of Applications between replicas (ADR 0085). It keeps an answer until
// its reader takes it, and no longer than the read. Its connections are not those of the others.
type Inspections interface {
	// OpenInspection stores a read of an Application that the engine has.
	// mirror.ErrInspectUnreachable if its agent is not connected, mirror.ErrInspectBusy if too many
	// reads are open, mirror.ErrNoTree if the engine is not to have the Application.
	OpenInspection(ctx context.Context, in registry.Inspection) error

	// TakeInspection returns and deletes the parts of an answer, in order. It records that the
	// reader waits: call it at least every five seconds. registry.ErrInspectionEnded if the
	// database has lost the read.
	TakeInspection(ctx context.Context, id string) ([]registry.InspectionPart, error)

	// CloseInspection ends a read and drops the rest of its answer. SweepInspections does it for
	// every read whose reader has gone.
	CloseInspection(ctx context.Context, id string) error
	SweepInspections(ctx context.Context) error

	// AgentInspections returns the open reads that the engine's agent has not answered, oldest
	// first; otherwise like AgentRows.
	AgentInspections(ctx context.Context, engine fleet.EngineName) ([]registry.Inspection, error)

	// AnswerInspection stores the next part of an answer by the agent of an engine, and returns the
	// replica of its reader. A part that was stored before changes nothing. Errors:
	// registry.ErrInspectionEnded, also for a read of another engine;
	// registry.ErrInspectionFull; registry.ErrInspectionOrder.
	AnswerInspection(ctx context.Context, engine fleet.EngineName, p registry.InspectionPart) (
		replica string, err error)
}
