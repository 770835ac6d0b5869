package api

import (
	"context"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Reader is the mirror as the API reads it.
//
// Every list is bounded by its scope first: with a tenant in scope it contains that tenant's items
// only, whatever the filter, and a filter for another tenant gives an empty list. The store ignores
// Filter fields that a kind does not have; the API rejects them before. page.Limit is 1..1000;
// page.After is "" or a `next` of the same list, else the error wraps mirror.ErrCursor. The
// returned string is the cursor of the following page, "" after the last. Lists have a stable order
// by name, or newest first for operations, revisions and holds. To read one item, list with its
// whole identity in the filter; an empty list means "not found".
type Reader struct {
	Inventory
	History
	State
	PullReader
	Simulator
	Finder
	AuditReader
}

// Finder searches, compares and counts Applications.
type Finder interface {
	// Search finds objects of the scope by a part of their name, the beginning of a commit, an
	// image, the number or title of a pull request, or the ID of an operation: at most limit, the
	// best first. The text has at most view.MaxSearchText bytes.
	Search(ctx context.Context, scope view.Scope, text string, limit int) (view.SearchResult,
		error)
	// Matrix matches Filter.{Tenant, Deployment, Environment, Labels, Text (of the deployment)}.
	// page counts deployments.
	Matrix(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		view.Matrix, error)
	// StateCounts count the Applications that match Filter.{Deployment, Revision, Labels, Text,
	// Image}; with a tenant in scope, or in the filter, those of that tenant.
	StateCounts(ctx context.Context, scope view.Scope, filter view.Filter) ([]view.StateCount,
		error)
	// Changes match Filter.{Revision, Tenant}: what a revision has written and no later one has
	// written again.
	Changes(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Change, string, error)
}

// Inventory lists the objects of the fleet.
type Inventory interface {
	Tenants(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Tenant, string, error)
	// Environments match Filter.{Tenant, Environment, Engine}.
	Environments(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Environment, string, error)
	// Deployments match Filter.{Tenant, Deployment, Environment (one of its environments), Labels,
	// Text}.
	Deployments(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Deployment, string, error)
	// Sets match Filter.{Tenant, Name}.
	Sets(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Set, string, error)
	// Applications match Filter.{Tenant, Environment, Deployment, Engine, Revision, Sync, Health,
	// Apply, Name (of the object), Labels, Text, Image}.
	Applications(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Application, string, error)
	// Engines match Filter.Engine. The API calls it with the platform in scope only.
	Engines(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Engine, string, error)
	// Owners are the names of owners and their pinned accounts. The API calls it with the platform
	// in scope only.
	Owners(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Owner, string, error)
	// Orphans match Filter.{Engine, Tenant}. The API calls it with the platform in scope only.
	Orphans(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Orphan, string, error)
	// Unproven match Filter.{Engine, Tenant, Environment}, the latest first. The API calls it with
	// the platform in scope only.
	Unproven(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Unproven, string, error)
	// Rings match Filter.Name, in the order of the Fleet.
	Rings(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.Ring, string, error)
	// Bulletins match Filter.Name, in the order of the Fleet.
	Bulletins(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Bulletin, string, error)
	// Pools match Filter.Name, by name.
	Pools(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.Pool, string, error)
	// Differences match Filter.{Tenant, Environment, Deployment, Engine, Name (the ring)}, by
	// tenant and Application.
	Differences(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.Difference, string, error)
	// Credentials match Filter.{Tenant, Name}, by tenant and name.
	Credentials(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Credential, string, error)
	// Policies match Filter.Name. A tenant sees those that evaluate its declarations, without
	// their expressions.
	Policies(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Policy, string, error)
	// Freezes match Filter.Tenant: the fleet's, which every tenant sees, then those of tenants.
	// They have no time at which they are active.
	Freezes(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Freeze, string, error)
}

// History lists past events, and held changes.
type History interface {
	// Operations match Filter.{Tenant, Engine, Revision, Name (the operation's ID), OperationKind,
	// OperationState}.
	Operations(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.Operation, string, error)
	// Remedies match Filter.Engine. The API calls it with the platform in scope only.
	Remedies(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.Remedy, string, error)
	// Moves match Filter.{Tenant, Environment}: the last move of each environment.
	Moves(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Move, string, error)
	// Rebalances match Filter.Name (the rebalance's ID), newest first. The API calls it with the
	// platform in scope only.
	Rebalances(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.Rebalance, string, error)
	// Rollouts match Filter.{Tenant, Deployment}, newest first.
	Rollouts(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.Rollout, string, error)
	// CommitStatuses match Filter.{Tenant, Deployment, Environment}, the last changed first.
	CommitStatuses(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.CommitStatus, string, error)
	// Notifications match Filter.{Tenant, Name (the channel)}, newest first.
	Notifications(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.Notification, string, error)
	// Actions match Filter.{Tenant, Deployment, Environment, Name (the operation's ID)}, newest
	// first.
	Actions(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.Action, string, error)
	// HealthyRevisions returns the revisions with which an Application was Healthy, the latest
	// first.
	HealthyRevisions(ctx context.Context, scope view.Scope, id fleet.ApplicationID) (
		[]mirror.HealthyRevision, error)
	// Revisions match Filter.Revision. The API calls it with the platform in scope only.
	Revisions(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Revision, string, error)
	// Trace returns the way of the commit with that id, or its first digits, narrowed to
	// Filter.{Tenant, Deployment, Environment}. With a tenant in scope it has that tenant's
	// objects and waits only. mirror.ErrNotFound if the scope has no part in the commit, or if
	// several commits begin so.
	Trace(ctx context.Context, scope view.Scope, revision fleet.Revision, filter view.Filter) (
		view.Trace, error)
	// Problems match Filter.{Tenant, Name (of the declaration)}, by path. With a tenant in scope:
	// Key.Tenant is that tenant.
	Problems(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]fleet.Problem, string, error)
	// Holds match Filter.{Tenant, Revision}: the changes that are not yet released. With a tenant
	// in scope: Hold.Tenant is that tenant.
	Holds(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.Hold, string, error)
	// Events are those after the sequence number, oldest first, at most limit. last is the newest
	// number read, in scope or not: the next call continues from there. A negative after reads no
	// event and returns the newest number.
	Events(ctx context.Context, scope view.Scope, after int64, limit int) (events []view.Event,
		last int64, err error)
}

// DecisionReader reads what a decision checks first.
type DecisionReader interface {
	Tenants(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Tenant, string, error)
	Engines(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Engine, string, error)
	Applications(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Application, string, error)
	Holds(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.Hold, string, error)
	Rebalances(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.Rebalance, string, error)
	Rollouts(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.Rollout, string, error)
	Rings(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.Ring, string, error)
	Pools(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]mirror.Pool, string, error)
	Stops(ctx context.Context, scope view.Scope) ([]mirror.Stop, error)
	// Explain is that of State.
	Explain(ctx context.Context, scope view.Scope, environment fleet.EnvironmentID) (
		view.Explained, error)
}

// State is the present state of the whole fleet.
type State interface {
	Source(ctx context.Context) (view.Source, error)
	// Explain is the stored placement; mirror.ErrNotFound if there is no such environment in scope.
	Explain(ctx context.Context, scope view.Scope, environment fleet.EnvironmentID) (
		view.Explained, error)
	// Stops are all in force. With a tenant in scope: those of the fleet and of that tenant.
	Stops(ctx context.Context, scope view.Scope) ([]mirror.Stop, error)
}

// Decider records a person's decisions. Each call is one transaction that also writes an Operation
// (and its event) and an audit entry; repeating it has no further effect.
type Decider interface {
	// TestChannel requests a test message to a channel, and returns the ID of its notification.
	TestChannel(ctx context.Context, tenant fleet.TenantName, channel, by string) (string, error)
	// Approve releases the holds of the approval's revision at the store's present time, and
	// returns it with that time.
	Approve(ctx context.Context, approval mirror.Approval) (mirror.Approval, error)
	// SetStop forbids writes within the stop's scope. If a stop is in force there already, it is
	// replaced if replace is set and kept otherwise. It returns the stop in force.
	SetStop(ctx context.Context, stop mirror.Stop, replace bool) (mirror.Stop, error)
	// ClearStop ends the stop of (scope, name) if its By begins with setBy ("" always does), and
	// reports whether it ended one.
	ClearStop(ctx context.Context, scope mirror.StopScope, name, setBy, by string) (bool, error)
	// ReleaseOwner makes the present account of an owner's name count; mirror.ErrNotFound if the
	// account or team of that number does not have the name.
	ReleaseOwner(ctx context.Context, release mirror.OwnerRelease) (view.Owner, error)
	// Abandon decides that an Application whose deletion is blocked is removed without its cluster.
	// mirror.ErrNotFound when none of that UID is being deleted, mirror.ErrNotBlocked before
	// mirror.DeletionBlockedAfter.
	Abandon(ctx context.Context, decision mirror.Orphaning) error
	// RequestAction records what a person asks of an Application in scope; a repeated Request
	// returns the first action. mirror.ErrNotFound, mirror.ErrMoving, mirror.ErrTooManyActions.
	RequestAction(ctx context.Context, scope view.Scope, action mirror.Action) (mirror.Action,
		error)
	// RequestMove requests the move of an environment, or undoes the one under way, and returns the
	// id of its operation. mirror.ErrMoving if a move is requested, or under way and not undone by
	// this one.
	RequestMove(ctx context.Context, request mirror.MoveRequest) (string, error)
	// PauseRing keeps a ring from beginning to change an engine, ResumeRing ends that and lets a
	// halted ring begin again, ReturnRing halts it; mirror.ErrNoRing if there is no such ring, or
	// if its state is Done.
	PauseRing(ctx context.Context, d mirror.RingDecision) error
	ResumeRing(ctx context.Context, d mirror.RingDecision) error
	ReturnRing(ctx context.Context, d mirror.RingDecision) error
	// PausePool keeps a pool from making or draining another instance, ResumePool ends that;
	// mirror.ErrNoPool if there is no such pool.
	PausePool(ctx context.Context, d mirror.PoolDecision) error
	ResumePool(ctx context.Context, d mirror.PoolDecision) error
	// ApproveDifferences approves exactly the named differences of a ring, or none:
	// mirror.ErrNoDifference if one is not there any more.
	ApproveDifferences(ctx context.Context, d mirror.DifferenceApproval) error
	// PauseDrain keeps a drain from requesting moves; mirror.ErrNotDraining if there is none.
	PauseDrain(ctx context.Context, pause mirror.DrainPause) error
	// ResumeDrain ends a pause, and lets a drain go on that failed moves have stopped;
	// mirror.ErrNotDraining if there is none.
	ResumeDrain(ctx context.Context, pause mirror.DrainPause) error
	// AcceptRebalance, RejectRebalance, PauseRebalance and ResumeRebalance decide about a
	// rebalance. mirror.ErrRebalanceState if that has no meaning in its state.
	AcceptRebalance(ctx context.Context, d mirror.RebalanceDecision) error
	RejectRebalance(ctx context.Context, d mirror.RebalanceDecision) error
	PauseRebalance(ctx context.Context, d mirror.RebalanceDecision) error
	ResumeRebalance(ctx context.Context, d mirror.RebalanceDecision) error
	// DecideRollout decides about the rollout of a deployment. mirror.ErrRolloutState if that has
	// no meaning in its state.
	DecideRollout(ctx context.Context, d mirror.RolloutDecision) error
	// RequestEvacuation decides that a dead engine is evacuated. mirror.ErrEvacuated,
	// mirror.ErrEngineAnswers.
	RequestEvacuation(ctx context.Context, request mirror.EvacuationRequest) error
	// RequestFence decides that an engine that answers is fenced and evacuated then, or checks
	// that, and returns the id of the operation. mirror.ErrEngineSilent, mirror.ErrFenceForbidden,
	// mirror.ErrFencing, mirror.ErrEvacuated.
	RequestFence(ctx context.Context, request mirror.EvacuationRequest) (string, error)
	// EndEvacuation undoes an evacuation, or readmits its engine, and lifts its fence.
	// mirror.ErrNotEvacuated, mirror.ErrEvacuatedAway.
	EndEvacuation(ctx context.Context, request mirror.EvacuationRequest) error
	// ForgetEngine decides that an evacuated engine never returns. mirror.ErrNotEvacuated,
	// mirror.ErrEngineAnswers, mirror.ErrServes, mirror.ErrForgotten.
	ForgetEngine(ctx context.Context, forgetting mirror.EngineForgetting) error
	// ForgetCluster decides that the cluster of a removed environment never returns, and returns
	// the number of unproven objects. mirror.ErrDeclared, mirror.ErrClusterAnswers,
	// mirror.ErrServes, mirror.ErrNotFound if no deletion waits for it.
	ForgetCluster(ctx context.Context, forgetting mirror.ClusterForgetting) (int, error)
	// ResolveUnproven takes unproven objects off the list, and returns their number;
	// mirror.ErrNotFound if there are none.
	ResolveUnproven(ctx context.Context, resolution mirror.UnprovenResolution) (int, error)
	// RemoveOrphan decides that exactly one orphan is removed; mirror.ErrNotFound if none of that
	// UID is listed, or its removal is already decided.
	RemoveOrphan(ctx context.Context, removal mirror.OrphanRemoval) (view.Orphan, error)
}

// Tokens manages the bearer tokens of the API.
type Tokens interface {
	// VerifyToken returns the token of the plaintext, in constant time. Unknown, expired, revoked,
	// malformed, or of a tenant that was removed since: mirror.ErrNotFound without distinction.
	VerifyToken(ctx context.Context, plaintext string) (view.Token, error)
	// CreateToken creates a token from Name, Tenant, Role, Owner, CreatedBy and ExpiresAt, and
	// returns it with its plaintext, which is not stored. mirror.ErrNotFound if there is no such
	// tenant.
	CreateToken(ctx context.Context, token view.Token) (made view.Token, plaintext string,
		err error)
	// RevokeToken ends a token at once; mirror.ErrNotFound if there is none of that ID.
	RevokeToken(ctx context.Context, id, by string) error
	// ListTokens are all, newest first.
	ListTokens(ctx context.Context, page view.Page) ([]view.Token, string, error)
}

// Sessions manages the sessions of people, and answers which roles the files in effect grant.
type Sessions interface {
	// VerifySession returns the session of the plaintext, in constant time, with the roles that the
	// files in effect grant the person now. Unknown, expired, idle for too long, revoked or
	// malformed: mirror.ErrNotFound without distinction.
	VerifySession(ctx context.Context, plaintext string) (view.Session, error)
	// CreateSession creates a session from Person, Kind, IdleUntil, ExpiresAt and RefreshAt, and
	// returns it with its plaintext, which is not stored. once names the sign-in, which creates at
	// most one session: mirror.ErrReplayed. refresh is a token of the issuer; the store keeps it so
	// that only the plaintext opens it.
	CreateSession(ctx context.Context, session view.Session, once string, refresh []byte) (
		made view.Session, plaintext string, err error)
	// UseOnce records the use of a name that may be used once in a day; mirror.ErrReplayed if it
	// was used.
	UseOnce(ctx context.Context, name string) error
	// RevokeSession ends a session at once; mirror.ErrNotFound if there is none of that ID, or if
	// it is not of the person (nil: of anybody).
	RevokeSession(ctx context.Context, id string, of *access.Person, by string) error
	// ListSessions are those of the person (nil: of everybody), newest first.
	ListSessions(ctx context.Context, of *access.Person, page view.Page) ([]view.Session, string,
		error)
	// ClaimRefresh returns the issuer's token of a session whose groups are due to be asked for; ok
	// is false if they are not, or are being asked for.
	ClaimRefresh(ctx context.Context, plaintext string) (refresh []byte, ok bool, err error)
	// Refreshed stores what the issuer reports of the session's person now.
	Refreshed(ctx context.Context, plaintext string, person access.Person, refresh []byte,
		next time.Time) error
	// Facts are the files in effect that may name the person.
	Facts(ctx context.Context, person access.Person) (access.Facts, error)
}

// Agents manages the agents of clusters that dial out, and their one-time registration tokens.
// Anything outside of a tenant's scope is mirror.ErrNotFound.
type Agents interface {
	// Agents match Filter.{Tenant, Environment, Engine}: one for each environment and engine that
	// declares an agent, joined or not.
	Agents(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Agent, string, error)
	// OwnApplications match Filter.{Tenant, Environment, Name}.
	OwnApplications(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Own, string, error)
	// ListAgentTokens match Filter.{Tenant, Engine}, newest first.
	ListAgentTokens(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]registry.Token, string, error)
	// CreateAgentToken creates a token for Engine, or for Tenant and Environment, that is valid
	// until ExpiresAt. plaintext is one that a person supplies; "" generates one. It is returned
	// and not stored. mirror.ErrNotFound: no agent is declared there; registry.ErrUsed: it was
	// supplied before.
	CreateAgentToken(ctx context.Context, token registry.Token, plaintext string) (
		registry.Token, string, error)
	// RevokeAgentToken ends a token at once.
	RevokeAgentToken(ctx context.Context, scope view.Scope, id, by string) error
	// RevokeAgent ends the identity that serves the engine; mirror.ErrNotFound if there is none in
	// scope.
	RevokeAgent(ctx context.Context, scope view.Scope, engine fleet.EngineName, by string) error
	// AskSync records a requested sync of an own Application, by Tenant, Environment, Namespace and
	// Key.Name, at Revision and with Prune. If the same request is pending, it returns that one.
	// mirror.ErrNotFound: there is no such Application in scope; mirror.ErrTooManySyncs: its
	// cluster has a hundred pending syncs.
	AskSync(ctx context.Context, scope view.Scope, ask mirror.SyncRequest, by string) (
		mirror.SyncRequest, error)
}
