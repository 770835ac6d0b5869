package view

import (
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// MaxFigure is the limit up to which FleetStats count: 10,000 means "as many or more", so that no
// statistic costs more for a larger fleet.
const MaxFigure = 10_000

// FleetStats are the statistics of the fleet at one moment, for its operators. They name engines of
// the platform and nothing of a tenant.
type FleetStats struct {
	At time.Time // by the store's clock
	// the caller holds the lease "reconciler"; otherwise nothing below is filled
	Leads bool

	Source    SourceStats
	Listings  Backlog // repositories that sets list and that cannot be read
	Unapplied Backlog // revisions with an object that does not match its row
	Engines   []EngineStats
	Agents    AgentStats
	// live objects without a row; for agents' engines as last reported
	Orphans  map[fleet.EngineName]int
	Unproven map[mirror.Lost]Backlog // objects whose deletion is not proven
	// by name, the rings that change no further engine before a person has decided: a gate has
	// failed, or their manifests are not what they declare
	HaltedRings map[string]Backlog
	// by name, the rings that wait until differences of their version are approved
	DifferingRings map[string]Backlog
	// by name, the pools that cannot do what their load needs: environments wait for an instance
	// that the pool may not have or that cannot be made, or a cluster cannot be read
	StuckPools  map[string]Backlog
	Holds       map[mirror.HoldReason]Backlog
	Problems    map[fleet.Severity]int
	Quarantines int
	Rechecks    Backlog        // pending review jobs, for pull requests and the branch
	Jobs        map[string]int // review jobs, by River's state
	Stops       map[mirror.StopScope]Backlog
	// environments for which free capacity is no help: Placed ones have outgrown their engine
	TooLarge  struct{ Unplaced, Placed int }
	Rebalance mirror.RebalanceState // of the open one; "": there is none
	Rollouts  []RolloutLatency      // requested ones, and those that have started
}

// Backlog is a number of items and the time of the oldest.
type Backlog struct {
	Count  int
	Oldest time.Time // zero if Count is 0
}

// SourceStats are the statistics of the config repo.
type SourceStats struct {
	FetchedAt  time.Time // zero: never
	RecordedAt time.Time // when the applied revision was last recorded; zero: none is
	Failing    bool      // the last fetch failed
	Behind     bool      // the latest known head is not the applied revision
}

// EngineStats are the statistics of an Engine of the platform.
type EngineStats struct {
	Engine    fleet.EngineName
	Reachable bool
	// the engine's lease is held, by a replica's worker or its agent
	Attended   bool
	LastSeenAt time.Time        // while it is silent; else zero
	Work       mirror.WorkState // "": unknown
	Load       *mirror.Load     // nil: not measured of late
	// its last remedy has failed, and it has not worked since
	RemedyFailed bool
	// its fence does not hold, or cannot be proven: nothing more leaves it
	FenceBroken bool
	// out of sync, of revisions that are not applied
	Rows    map[mirror.ApplyState]int
	Waiting Backlog // rows of state Pending

	Unreachable map[mirror.UnreachableReason]int // environments whose clusters it cannot read
	// Applications that it skips until their clusters answer
	Parked int
}

// AgentStats are the statistics of all agents together: there may be ten thousand.
type AgentStats struct {
	Connected int
	Stale     int                       // joined, and not connected
	Never     int                       // declared and never joined
	Rows      map[mirror.ApplyState]int // of environments' own clusters: as EngineStats.Rows
	Waiting   []Backlog                 // one for each such cluster that has rows of state Pending
}

// RolloutLatency is the progress of a revision from the commit to healthy Applications.
type RolloutLatency struct {
	Number      int64 // in the order of the first record of each revision
	Revision    fleet.Revision
	CommittedAt time.Time
	RecordedAt  time.Time
	AppliedAt   time.Time // zero: not yet
	Changes     int       // objects that it created, changed or deleted
	Synced      Phase
	Healthy     Phase
}

// Phase is the progress of a revision's Applications towards one state. Each counts once it was
// observed in that state, even if it leaves the state later.
type Phase struct {
	Next int64     // of rows: those with a lower number have reached the state
	Any  bool      // the examined rows contain an Application
	At   time.Time // when the latest of them reached the state
	Done bool
}

// StatsQuery identifies the caller and the revisions that it already follows.
type StatsQuery struct {
	Holder string    // of leases
	After  int64     // revisions with a higher number have started
	Since  time.Time // and were recorded since
	// revisions that are not applied count as started too, whatever their number
	Open      bool
	Latencies []RolloutLatency // in progress
}
