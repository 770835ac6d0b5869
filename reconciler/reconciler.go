// Package reconciler is the loop that brings the store to the head of the config repo's branch:
// fetch, plan, record, publish. One replica of a fleet runs it; a lease elects that replica.
//
//   - Events carry no data, they trigger: a webhook, a timer or a NOTIFY wakes the loop, and it
//     reads the truth again.
//   - An error, a partial read or an older state never deletes anything.
//   - Nothing here imports an adapter: the interfaces below are what the loop needs, and cmd wires
//     them.
//   - No call to an engine or to Git happens inside a database transaction.
package reconciler

import (
	"context"
	"log/slog"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/lease"
	"argosy.dev/argosy/reconciler/recovery"
)

// Head is a commit of the config repo's branch.
type Head struct {
	Revision fleet.Revision
	Author   string // name and address from the commit; never used to decide
	Subject  string
	At       time.Time
}

// File is one path of the config repo that differs from the base.
type File struct {
	Path      string
	Blob      string
	Bytes     []byte
	Irregular string // if it is no plain file: "symlink", "submodule"
	Size      int64  // of a file that is too large to be read; then Bytes is empty
	Removed   bool

	// Listings are those of the repositories that a set lists.
	Listings fleet.Listings

	// Of fleet/, tenants/ or a tenant's folder, with a slash at the end of Path; Blob is the
	// folder's own id.
	Unreadable string // why nothing of it can be read: what was applied of it stays
	// the folder is readable again and all its files are visited: a file that is not visited was
	// removed
	Whole bool
}

// Source is the config repo.
type Source interface {
	// Fetch brings the branch's head into the local copy.
	Fetch(ctx context.Context) (Head, error)
	// Relation returns the relation of head to applied.
	Relation(ctx context.Context, applied, head fleet.Revision) (mirror.Relation, error)
	// Changed calls visit for every file below fleet/ and tenants/ that differs; an empty base
	// means all of them (the cold start). unreadable maps folders that could not be read to their
	// ids then, or to "": a folder with another id now is read as a whole.
	Changed(ctx context.Context, base, head fleet.Revision, unreadable map[string]string,
		visit func(File) error) error
	// Bytes reads one blob again, to find the line of a problem.
	Bytes(ctx context.Context, blob string) ([]byte, error)
}

// Decoder turns bytes into declarations. Pure.
type Decoder interface {
	// Decode reports false for a file that is no declaration's.
	Decode(f File) (catalog.Input, bool)
	// Locate finds the line and column of a field; 0, 0 when it is not there.
	Locate(bytes []byte, field string) (line, column int)
}

// Store is the mirror in the database.
type Store interface {
	// Load reads the state at a start.
	Load(ctx context.Context) (mirror.Snapshot, error)
	// Record stores one revision in one transaction, once.
	Record(ctx context.Context, lease mirror.Lease, record mirror.Record) (seq int64, err error)
	// Recent returns the Applications that were deleted within the window, and the store's time.
	Recent(ctx context.Context, window time.Duration) (mirror.Recent, error)
	// RecentCreations counts, by tenant, the Applications that were created within the window.
	RecentCreations(ctx context.Context, window time.Duration) (map[fleet.TenantName]int, error)
	// Approvals are the latest approvals of each revision.
	Approvals(ctx context.Context) ([]mirror.Approval, error)
	// Vanished are the given rows that the store no longer has: their objects are deleted. Another
	// incarnation of the database than life knows of none.
	Vanished(ctx context.Context, life string, keys []fleet.ObjectKey) ([]fleet.ObjectKey, error)
	// SetSource records the status of the config repo.
	SetSource(ctx context.Context, source view.Source) error
	// Listings is the status of the repositories that sets list.
	Listings(ctx context.Context) ([]mirror.ListingStatus, error)
	// SetListings records the status of some of them.
	SetListings(ctx context.Context, status []mirror.ListingStatus) error
	// MoveRequests are the requested moves of environments that no plan has taken up yet.
	MoveRequests(ctx context.Context) ([]mirror.MoveRequest, error)
	// UnfitAgents lists why agents cannot carry out the steps of a move.
	UnfitAgents(ctx context.Context, m mirror.MoveRequest) ([]string, error)
	// MoveObstacles lists the reasons against a move that the mirror knows.
	MoveObstacles(ctx context.Context, m mirror.MoveRequest) ([]mirror.MoveObstacle, error)
	// EndDryRun records that a move could begin, with a summary.
	EndDryRun(ctx context.Context, operation, summary string) error
	// PendingRollbacks are the requested rollbacks that no plan has taken up yet, oldest first.
	// RefuseRollback ends one, and records the reason.
	PendingRollbacks(ctx context.Context) ([]mirror.Action, error)
	RefuseRollback(ctx context.Context, operation, why string) error

	// RefuseMove ends a requested move, and records the reason.
	RefuseMove(ctx context.Context, operation, why string) error
	// EndDrains forgets the drains of all engines but those that drain; mirror.ErrFenced when the
	// lease has passed on.
	EndDrains(ctx context.Context, lease mirror.Lease, draining []fleet.EngineName) error
	// Drain returns the progress of an engine's drain, and begins it.
	Drain(ctx context.Context, engine fleet.EngineName, patience time.Duration) (mirror.DrainFacts,
		error)
	// RequestDrain requests moves within the budget, and returns how many.
	RequestDrain(ctx context.Context, engine fleet.EngineName, churn fleet.Churn,
		moves []mirror.MoveRequest) (int, error)
	// SetDrain records the state of an engine's drain.
	SetDrain(ctx context.Context, engine fleet.EngineName, d mirror.Drain) error
	// Rebalance returns what is known of rebalances, and records the moves that have ended.
	Rebalance(ctx context.Context, patience time.Duration) (mirror.RebalanceFacts, error)
	// ProposeRebalance records a proposal, in place of the open one with the id instead;
	// mirror.ErrRebalanceState if a person has decided about that one.
	ProposeRebalance(ctx context.Context, lease mirror.Lease, r mirror.Rebalance,
		instead string) error
	// TakeRebalance accepts a proposal without a person.
	TakeRebalance(ctx context.Context, lease mirror.Lease, id, by string) error
	// SetRebalance records the state of a rebalance that nothing has changed since it was read.
	SetRebalance(ctx context.Context, lease mirror.Lease, was mirror.Rebalance,
		state mirror.RebalanceState, why string) error
	// RequestRebalance requests moves of an accepted rebalance within the budget, and returns how
	// many. It records that others are not needed.
	RequestRebalance(ctx context.Context, lease mirror.Lease, id string, churn fleet.Churn,
		moves []mirror.MoveRequest, skip []mirror.RebalanceMove) (int, error)
	// RolloutFacts returns what is known of the Applications of rollouts.
	RolloutFacts(ctx context.Context, of []mirror.Rollout) (mirror.RolloutFacts, error)
	// RowManifests returns the manifests of rows, by their hashes.
	RowManifests(ctx context.Context, keys []fleet.ObjectKey) (map[string]fleet.Manifest, error)

	// RolloutManifests returns the manifests that members of a rollout may return to.
	RolloutManifests(ctx context.Context, r mirror.Rollout) (
		map[fleet.EnvironmentName]fleet.Manifest, error)
	// Evacuations are the evacuated engines.
	Evacuations(ctx context.Context) ([]mirror.Evacuation, error)
	// RestoreEvacuation records an evacuation again that only placements show.
	RestoreEvacuation(ctx context.Context, engine fleet.EngineName) error
	// SetEvacuation records the progress; mirror.ErrNotEvacuated if a person has ended it.
	SetEvacuation(ctx context.Context, e mirror.Evacuation) error
	// ReadmitEngine removes the record of an evacuation that a person has ended, once the Clusters
	// that were changed since are applied, and reports whether it has.
	ReadmitEngine(ctx context.Context, engine fleet.EngineName) (bool, error)
	// RemedyFacts are the engines that do not work, or have not since their last remedy.
	RemedyFacts(ctx context.Context) ([]mirror.RemedyFacts, error)
	// TakeRemedyStep records a step of an engine; mirror.ErrFenced when the lease has passed on.
	TakeRemedyStep(ctx context.Context, lease mirror.Lease, step mirror.RemedyStep) error
	// Mirror is the present version of the mirror.
	Mirror(ctx context.Context) (mirror.State, error)
	// Confirm records that the mirror at this version follows from the head of the config repo;
	// false if the mirror has another version.
	Confirm(ctx context.Context, lease mirror.Lease, at mirror.State) (bool, error)
	// Notify wakes all replicas, because rows have changed. by is part of the notice: see
	// Loop.Notified.
	Notify(ctx context.Context, by string) error
}

// Config is what a loop needs.
type Config struct {
	Source   Source
	Decoder  Decoder
	Renderer engine.Renderer
	Store    Store
	Leases   lease.Store
	Stops    recovery.StopRestorer
	Engines  recovery.EngineReader // for a start without a mirror
	Agents   recovery.AgentReports // for a start without a mirror; nil: agents report nothing
	Judge    catalog.Judge         // applies the config repo's policies; nil: without policies
	Holder   string                // of the lease: this replica
	URL      string                // of the config repo, without credentials; for people
	Branch   string
	Poll     time.Duration
	Standby  time.Duration // between fetches while another replica leads; default 5 min
	Lister   Lister        // reads the repositories that sets list; nil: none is read
	// ListingPoll is between reads of a listed repository; default 3 min
	ListingPoll time.Duration
	// Unready orders the environments of a drain; nil: no engine is emptied
	Unready UnreadyReader
	// RolloutPoll is how often the Applications of rollouts are checked; default 1s
	RolloutPoll time.Duration
	// DrainPatience is after how long a move that waits is in trouble; default 5 min
	DrainPatience time.Duration
	Loads         LoadReader // measured; nil: nothing is rebalanced
	// Prometheus measures the metrics of waves; nil: they are not measured, and no wave passes one
	Prometheus Prometheus
	// Notifier sends messages about the fleet; zero: none is sent
	Notifier Notifier
	Rings    RingStore // nil: no Argo CD is installed or upgraded
	// Pools makes and removes engines of pools; nil: none is made or removed
	Pools     PoolStore
	Instances InstanceReader // reads the clusters of pools; required with Pools
	// CheckManifests returns why files cannot be the manifests of a ring. Pure.
	CheckManifests func(r fleet.Ring, files map[string][]byte) error
	// RingProblem returns what is wrong with the files of a ring in a pull request. nil: nothing is
	// checked there.
	RingProblem RingProblem
	// Download returns the files of a URL or an OCI artifact. nil: none is downloaded.
	Download func(ctx context.Context, m fleet.RingManifests) (map[string][]byte, error)
	// MeasureAgain is how long after a move its engines count as not measured; default
	// mirror.MeasureAgain
	MeasureAgain time.Duration
	Metrics      *Metrics
	Log          *slog.Logger

	// Of pull requests; each may be nil.
	Pulls Pulls // the pull requests of Preview and Parse
	// Reviews know who reviewed a merged change; nil: anyone who may push has reviewed it.
	Reviews Reviews
}
