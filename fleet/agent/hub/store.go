package hub

import (
	"context"
	"time"

	"argosy.dev/argosy/fleet"
)

// Store is what the hub keeps and reads, for every agent. All of it may be called at the same time
// and by several replicas; every write may be repeated with one effect. A lease is
// AgentOpening.Lease: what is written under one that has passed on is fleet.ErrFenced.
type Store interface {
	// JoinAgent swaps a one-time token and keys for an identity, which ends the engine's earlier
	// one. Exactly one pair of keys ever succeeds with a token; the same pair again is given the
	// same identity, for the answer may have been lost. fleet.ErrUsed: by other keys, which is told
	// and audited. fleet.ErrNotFound: unknown, malformed, expired or revoked, or what it was made
	// for is gone or no longer reached by an agent.
	JoinAgent(ctx context.Context, token string, join fleet.AgentJoin) (fleet.Agent, error)

	// Agent is an identity that is live. fleet.ErrNotFound: there never was one. With
	// fleet.ErrAgentRevoked, fleet.ErrAgentExpired and fleet.ErrCloned the Agent is filled in, so
	// that a proof can be judged before anything is told.
	Agent(ctx context.Context, id string) (fleet.Agent, error)

	// SaveAccess keeps the SHA-256 of an access token that was given for an assertion, for ttl.
	// fleet.ErrReplayed: another token was given for that assertion (its ID, at most 128 bytes). An
	// assertion is remembered ten minutes longer than its token. fleet.ErrAgentBusy: the agent has
	// been given too many.
	SaveAccess(ctx context.Context, agent, assertion string, hash [32]byte, ttl time.Duration) error

	// AccessAgent is the live identity that an access token was given to; fleet.ErrNotFound when
	// the token is unknown or over, or the identity has ended in whatever way.
	AccessAgent(ctx context.Context, hash [32]byte) (fleet.Agent, error)

	// RotateAgent replaces the keys that have the old thumb, prolongs the identity to
	// fleet.AgentLife from now and drops its access tokens. The same swap again changes nothing.
	// fleet.ErrReplayed: the keys are others by now. Otherwise as Agent.
	RotateAgent(ctx context.Context, id, oldThumb string, keys fleet.AgentKeys) (fleet.Agent, error)

	// OpenAgent begins a session: it takes the engine's lease for the process, and with a higher
	// epoch if another had it or the floor demands it, and keeps that the agent is connected to the
	// replica. An epoch that was given in another incarnation of the database is replaced by a
	// higher one if the session is Confirmed, so that the process reads its rows anew; else it
	// stays, and the opening is Stale. fleet.ErrCloned: processes have come back in turn, and the
	// identity is refused from now on. fleet.ErrNotFound: nothing is declared for the agent at
	// present, as during a rebuild; it is to try again later. fleet.ErrReplayed: a session was
	// opened with that Proof before, on whichever replica. fleet.ErrAgentBusy: the agent has opened
	// too many of late. Otherwise as Agent.
	OpenAgent(ctx context.Context, s fleet.AgentSession) (fleet.AgentOpening, error)

	// CloseAgent keeps that the session has ended. A newer one (Opening), or one on another
	// replica, is left alone.
	CloseAgent(ctx context.Context, s fleet.AgentSession) error

	// BeatReplica says that the replica lives, and with it the sessions that it serves: to be
	// called every ten seconds. An agent is seen as connected while its replica's last beat is
	// younger than thirty seconds. A process that starts anew is another replica.
	BeatReplica(ctx context.Context, replica string) error

	// AgentRows visits every row of the engine as it stood at one moment, by number, and returns
	// the cursor from which AgentChanged goes on. A database connection is held meanwhile: visit
	// collects, and waits for nobody. Once the declaration is gone, or no longer says agent, only
	// rows that ask for a removal are left of it. Row-level security holds beside the query.
	AgentRows(ctx context.Context, engine fleet.EngineName, visit func(fleet.Row) error) (
		cursor int64, err error)

	// AgentChanged are the engine's rows above after, by number, at most limit; otherwise as
	// AgentRows.
	AgentChanged(ctx context.Context, engine fleet.EngineName, after int64, limit int) ([]fleet.Row,
		error)

	// AgentCredentialRows are the engine's rows that need the tenant's secret; otherwise as
	// AgentRows.
	AgentCredentialRows(ctx context.Context, engine fleet.EngineName, tenant fleet.TenantName,
		secret string) ([]fleet.Row, error)

	// AgentSyncs are the engine's syncs that have not ended, oldest first; otherwise as AgentRows.
	AgentSyncs(ctx context.Context, engine fleet.EngineName) ([]fleet.SyncRequest, error)

	// AgentNews is one statement, whatever the number of agents. after is the Seq, and since the
	// Now, of the last one. A negative after begins with now, and the zero time two minutes ago.
	AgentNews(ctx context.Context, after int64, since time.Time) (fleet.AgentNews, error)

	// WantConfirmed asks that the rows be confirmed by the config repo, and returns the number that
	// AgentNews.Confirmed reaches then. Notify tells the loop, wherever it runs, that somebody
	// asks.
	WantConfirmed(ctx context.Context) (int64, error)
	Notify(ctx context.Context, by string) error

	// BeginLife makes the database another incarnation, if it still is the one of that name: it was
	// seen to go back in time by the numbers of its rows alone.
	BeginLife(ctx context.Context, was string) error

	// CredentialEngines are the agents' engines that have rows which need the tenant's secret.
	CredentialEngines(ctx context.Context, tenant fleet.TenantName, secret string) (
		[]fleet.EngineName, error)

	// TakeReport checks, before a report is applied, that the lease holds and that the report is
	// newer than the last one: fleet.ErrReplayed when it is not. fleet.ErrNotFound: the lease was
	// taken away and nobody has it; the agent may have it again with a session that it opens anew.
	// last is the number of the last one that was taken, also with fleet.ErrReplayed. ReportTaken
	// keeps, after all of its parts were applied, that it was. A report whose replica died in
	// between is sent again and applied again: each part (Acknowledge, Observe, UpdateSync,
	// ReportAgent, RecordOwn) has one effect however often it comes, while one that was counted
	// before it was applied would be lost.
	TakeReport(ctx context.Context, lease fleet.Lease, seq int64) (last int64, err error)
	ReportTaken(ctx context.Context, lease fleet.Lease, seq int64) error

	// Acknowledge takes what was done with rows; see the rules of the mirror. Every key's engine is
	// the lease's.
	Acknowledge(ctx context.Context, lease fleet.Lease, acks []fleet.Ack) error
	// Observe takes how Applications stand. Every key's engine is the lease's; what no row wants is
	// dropped.
	Observe(ctx context.Context, lease fleet.Lease, seen []fleet.Observation) error
	// UpdateSync takes how a sync of the lease's engine stands; one that has ended, or is not the
	// engine's, stays as it is.
	UpdateSync(ctx context.Context, lease fleet.Lease, id string, state fleet.OperationState,
		text string) error
	// OrphanKeys are the listed strays of an engine. ReportOrphans takes those that its agent found,
	// and those of the list that are gone.
	OrphanKeys(ctx context.Context, engine fleet.EngineName) ([]fleet.ObjectKey, error)
	ReportOrphans(ctx context.Context, lease fleet.Lease, found []fleet.Orphan,
		gone []fleet.ObjectKey) error
	// ReportAgent takes how the agent and its Argo CD stand. Nothing new writes nothing.
	ReportAgent(ctx context.Context, lease fleet.Lease, report fleet.AgentReport) error
	// RecordOwn takes the cluster's own Applications that are new, changed or Gone, at most
	// fleet.MaxOwn of an environment: the others are left out. whole: every one was sent under this
	// lease's epoch by now, so that those that were not are gone. It is nothing for an agent that
	// is not autonomous.
	RecordOwn(ctx context.Context, lease fleet.Lease, own []fleet.OwnApplication, whole bool) error

	// LegacyToken is the token that may read the older route of applications, until it expires or
	// is revoked, used or not; fleet.ErrNotFound for any other.
	LegacyToken(ctx context.Context, token string) (fleet.AgentToken, error)
}
