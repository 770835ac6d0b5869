package view

import (
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// MaxFigure is how far Figures count: 10,000 stands for "as many or more", so that no figure costs
// as much as there is.
const MaxFigure = 10_000

// Figures are how the fleet stands at one moment, for those who operate it. They name engines of
// the platform, and nothing of a tenant.
type FleetStats struct {
	At time.Time // by the store's clock
	// the asker holds the lease "reconciler"; while it does not, nothing below is filled
	Leads bool

	Source    SourceStats
	Unapplied Backlog // revisions of which some object is not as its row wants it
	Engines   []EngineStats
	Agents    AgentStats
	// live objects without a row; of agents' engines as they last said
	Orphans     map[fleet.EngineName]int
	Holds       map[mirror.HoldReason]Backlog
	Problems    map[fleet.Severity]int
	Quarantines int
	Looks       Backlog        // at pull requests and the branch, that wait to begin
	Jobs        map[string]int // of looks, by River's state
	Stops       map[mirror.StopScope]Backlog
	Rollouts    []RolloutLatency // those that were asked about, and those that have begun
}

// Backlog is how many there are, and since when the oldest of them is.
type Backlog struct {
	Count  int
	Oldest time.Time // zero when there are none
}

// SourceStats are how the config repo stands.
type SourceStats struct {
	FetchedAt  time.Time // zero: never
	RecordedAt time.Time // when the revision that is applied was recorded last; zero: none is
	Failing    bool      // the last attempt to read it failed
	Behind     bool      // the head that was seen last is not the revision that is applied
}

// EngineStats are how an Engine of the platform stands.
type EngineStats struct {
	Engine    fleet.EngineName
	Reachable bool
	// somebody holds the engine's lease: a replica's worker, or its agent
	Attended bool
	// that are not as they are wanted, of revisions that are not applied
	Rows    map[mirror.ApplyState]int
	Waiting Backlog // those of state Pending

	Unreachable map[mirror.UnreachableReason]int // environments whose clusters it cannot read
	// Applications that it leaves alone until they answer
	Parked int
}

// AgentStats are how agents stand, all together: there may be ten thousand.
type AgentStats struct {
	Connected int
	Stale     int                       // joined, and not connected
	Never     int                       // declared, and nobody has joined
	Rows      map[mirror.ApplyState]int // of environments' own clusters: as EngineStats.Rows
	Waiting   []Backlog                 // one for each such cluster that has rows of state Pending
}

// RolloutLatency is how far a revision has come on its way from the commit to healthy Applications.
type RolloutLatency struct {
	Number      int64 // in the order in which revisions were recorded first
	Revision    fleet.Revision
	CommittedAt time.Time
	RecordedAt  time.Time
	AppliedAt   time.Time // zero: not yet
	Changes     int       // objects that it created, changed or deleted
	Synced      Phase
	Healthy     Phase
}

// Phase is how far the Applications of a revision have come towards one state. Each counts once
// it was seen there, whatever becomes of it.
type Phase struct {
	Next int64     // of rows: those with a lower number have been there
	Any  bool      // there is an Application among the rows that were looked at
	At   time.Time // when the latest of them came there
	Done bool
}

// StatsQuery says who asks and what it knows already.
type StatsQuery struct {
	Holder  string           // of leases
	After   int64            // revisions with a higher number have begun
	Since   time.Time        // and were recorded since then
	Open    bool             // those that are not applied count as begun too, whatever their number
	Travels []RolloutLatency // that are under way
}
