package fleetstats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Metrics of the last read. Times are Unix seconds, so that they age without a read.
var (
	descUp = desc("argosy_database_up",
		"1 while this replica's last read of the database succeeded, else 0.")
	descLeader = desc("argosy_leader",
		"1 on the replica that holds the lease by which it plans and shows the fleet's metrics, else 0.")
	descSeen = desc("argosy_survey_timestamp_seconds",
		"When the leader last saw what the fleet's metrics show.")

	descFetched = desc("argosy_source_fetched_timestamp_seconds",
		"When the branch of the config repo was last fetched. Written at most every ten seconds.")
	descApplied = desc("argosy_source_revision_timestamp_seconds",
		"When the revision that is applied was recorded.")
	descFailing = desc("argosy_source_failing",
		"1 while the config repo cannot be read or its head cannot be planned, else 0.")
	descBehind = desc("argosy_source_behind",
		"1 while the head of the branch is not the revision that is applied, else 0.")
	descListings = desc("argosy_listings_failing",
		"Repositories that sets list and that cannot be read.")
	descListingAge = desc("argosy_listings_failing_oldest_timestamp_seconds",
		"Since when the repository cannot be read that has failed longest; absent when none does.")
	descOpen = desc("argosy_revisions_unapplied",
		"Revisions of which some object is not on its engine as it is wanted; at most 100 are "+
			"counted.")
	descOpenAge = desc("argosy_revisions_unapplied_oldest_timestamp_seconds",
		"When the oldest revision was recorded of which some object is not as it is wanted; "+
			"absent when there is none.")
	descUnderWay = desc("argosy_revisions_under_way",
		"Revisions of the last six hours that have not come to the stage, by stage.", "stage")

	descReachable = desc("argosy_engine_reachable",
		"1 while the engine is reached, else 0. Engines of the platform only.", "engine")
	descAttended = desc("argosy_engine_attended",
		"1 while a replica, or the engine's agent, holds the lease that gives the right to "+
			"write to it, else 0.", "engine")
	descLastSeen = desc("argosy_engine_last_seen_timestamp_seconds",
		"When the engine was last seen, while it is silent and the states of its Applications are "+
			"Unknown; absent while it is followed.", "engine")
	descFault = desc("argosy_engine_fault",
		"1 for what does not work on a reachable engine, else 0: ControllerStuck, QueueLong, "+
			"RepoServerSilent, ClustersUnread. Absent while it is unknown.", "engine", "fault")
	descRemedy = desc("argosy_engine_remedy_failed",
		"1 while an engine does not work although Argosy has restarted a component of it, or could "+
			"not, else 0.", "engine")
	descFence = desc("argosy_engine_fence_broken",
		"1 while a fence of the engine does not hold or cannot be proven, so that its evacuation "+
			"waits, else 0.", "engine")
	descLag = desc("argosy_engine_comparison_lag_seconds",
		"Time from a requested comparison of an Application until its end, as the engine's "+
			"application-controller measures it: the mean wait and the 95th percentile of the "+
			"duration, smoothed over five minutes. Absent while it is not measured.", "engine")
	descQueue = desc("argosy_engine_comparison_queue",
		"Applications that wait for their comparison, smoothed; absent while it is not measured.",
		"engine")
	descCPU = desc("argosy_engine_cpu_cores",
		"CPU of an engine's component, smoothed; absent while it is not measured.", "engine",
		"component")
	descMemory = desc("argosy_engine_memory_bytes",
		"Resident memory of an engine's component, smoothed; absent while it is not measured.",
		"engine", "component")
	descRows = desc("argosy_engine_rows",
		"Objects of an engine that are not as they are wanted, by how far they have come. Some "+
			"20,000 are read in all.", "engine", "state")
	descUnread = desc("argosy_engine_unreachable_environments",
		"Environments whose clusters the engine cannot read, by reason.", "engine", "reason")
	descParked = desc("argosy_engine_parked_applications",
		"Applications that the engine leaves alone until their cluster answers.", "engine")
	descOrphans = desc("argosy_strays",
		"Live objects of an engine that bear our labels and that no declaration asks for. Of "+
			"clusters behind agents, those that have any.", "engine")
	descUnproven = desc("argosy_unproven_objects",
		"Objects whose deletion is not proven since a person has forgotten their engine or "+
			"cluster, by which of both.", "lost")
	descHaltedRing = desc("argosy_ring_halted",
		"1 while a ring changes the Argo CD of no further engine before a person has decided, "+
			"since a gate has failed or its manifests are not what it declares; else absent.", "ring")
	descDiffers = desc("argosy_ring_differs_timestamp_seconds",
		"Since when a ring waits until the differences of its version are approved; else absent.",
		"ring")
	descStuckPool = desc("argosy_pool_stuck",
		"1 while a pool cannot do what its load needs: environments wait, and it may have no "+
			"further instance or cannot make it, or a cluster of it cannot be read; else absent.",
		"pool")
	descTooLarge = desc("argosy_environments_too_large",
		"Environments with more Applications than an engine has capacity: Unplaced, than every "+
			"engine that may serve them, or Placed, than their engine.", "state")
	descOldest = desc("argosy_engine_oldest_waiting_timestamp_seconds",
		"Since when the object waits that has waited longest to be handled; absent when none does.",
		"engine")

	descAgents = desc("argosy_agents",
		"Agents: connected, stale (joined, and not connected now), never (declared, and "+
			"not joined yet).", "state")
	descAgentRows = desc("argosy_agents_rows",
		"Objects of environments' own clusters that are not as they are wanted, by how far they "+
			"have come, of all agents.", "state")
	descAgentsWait = desc("argosy_agents_waiting",
		"Environments' own clusters with objects that wait to be handled, by how long the "+
			"oldest has: under a minute, 10 minutes, an hour, or longer.", "oldest")

	descHolds   = desc("argosy_holds", "What waits for an approval, by reason.", "reason")
	descHoldAge = desc("argosy_holds_oldest_timestamp_seconds",
		"Since when that waits which has waited longest for an approval, by reason; absent when "+
			"nothing does.", "reason")
	descProblems  = desc("argosy_problems", "Problems of declarations, by severity.", "severity")
	descQuarantin = desc("argosy_quarantines",
		"Declarations in quarantine: their last good version stays.")
	descReviews = desc("argosy_looks_waiting",
		"Review jobs that wait to begin.")
	descReviewAge = desc("argosy_looks_oldest_waiting_timestamp_seconds",
		"Since when the oldest review job waits; absent when none does.")
	descJobs = desc("argosy_jobs",
		"Review jobs, by state. Retryable: it failed and is tried again; discarded: it failed "+
			"for good.", "state")
	descRebalance = desc("argosy_rebalance",
		"1 for the state of the open rebalance, which relieves engines with a high load.", "state")
	descStops   = desc("argosy_stops", "Emergency stops in force, by scope.", "scope")
	descStopAge = desc("argosy_stops_oldest_timestamp_seconds",
		"Since when the oldest emergency stop is in force, by scope; absent when there is none.",
		"scope")
)

var descs = []*prometheus.Desc{descUp, descLeader, descSeen, descFetched, descApplied,
	descFailing, descBehind, descListings, descListingAge, descOpen, descOpenAge, descUnderWay,
	descReachable, descAttended, descLastSeen, descFault, descRemedy, descFence,
	descLag, descQueue, descCPU, descMemory,
	descRows, descUnread, descParked, descOrphans, descUnproven, descHaltedRing,
	descDiffers, descStuckPool, descTooLarge,
	descOldest,
	descAgents, descAgentRows, descAgentsWait, descHolds, descHoldAge, descProblems, descQuarantin,
	descReviews, descReviewAge, descJobs, descRebalance, descStops, descStopAge}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Words that labels take, so that a series is there before the first of its kind: an alert compares
// with what was.
var (
	holdReasons = []mirror.HoldReason{mirror.HoldDeletions, mirror.HoldEmpty, mirror.HoldOlder,
		mirror.HoldRewritten, mirror.HoldUnreviewed, mirror.HoldFrozen}
	severities = []fleet.Severity{fleet.SeverityError, fleet.SeverityWarning, fleet.SeverityNote}
	stopScopes = []mirror.StopScope{mirror.StopFleet, mirror.StopTenant, mirror.StopEngine}
	rowStates  = []mirror.ApplyState{mirror.ApplyPending, mirror.ApplyFailed, mirror.ApplyConflict,
		mirror.ApplyDeleting, mirror.ApplyHeld}
	// of clusters that cannot be read
	unreadReasons = []mirror.UnreachableReason{mirror.UnreachableTimeout, mirror.UnreachableRefused,
		mirror.UnreachableDenied, mirror.UnreachableError}

	jobStates = []string{"available", "running", "retryable", "scheduled", "discarded"}
	ages      = []string{"1m", "10m", "1h", "longer"}
)

// Describe is prometheus.Collector's.
func (s *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descs {
		to <- d
	}
}

// Collect is prometheus.Collector's. It reads nothing.
func (s *Collector) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	f, at, up := s.seen, s.at, s.up
	s.mu.Unlock()
	show := exporter{to}
	fresh := time.Since(at) < staleAfter
	show.flag(descUp, up)
	show.flag(descLeader, f.Leads && fresh)
	if f.Leads && fresh {
		show.time(descSeen, f.At)
		show.source(f)
		show.engines(f)
		show.agents(f)
		show.people(f)
		show.queue(f)
	}
}

// exporter sends metrics.
type exporter struct{ to chan<- prometheus.Metric }

func (s exporter) value(d *prometheus.Desc, v float64, labels ...string) {
	s.to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s exporter) count(d *prometheus.Desc, n int, labels ...string) {
	s.value(d, float64(n), labels...)
}

func (s exporter) flag(d *prometheus.Desc, on bool, labels ...string) {
	v := 0.0
	if on {
		v = 1
	}
	s.value(d, v, labels...)
}

// time shows a time, or nothing when there is none.
func (s exporter) time(d *prometheus.Desc, t time.Time, labels ...string) {
	if !t.IsZero() {
		s.value(d, float64(t.UnixMilli())/1000, labels...)
	}
}

func (s exporter) source(f view.FleetStats) {
	s.time(descFetched, f.Source.FetchedAt)
	s.time(descApplied, f.Source.RecordedAt)
	s.flag(descFailing, f.Source.Failing)
	s.flag(descBehind, f.Source.Behind)
	s.count(descListings, f.Listings.Count)
	s.time(descListingAge, f.Listings.Oldest)
	s.count(descOpen, f.Unapplied.Count)
	s.time(descOpenAge, f.Unapplied.Oldest)
	way := map[string]int{}
	for _, t := range f.Rollouts {
		if f.At.Sub(t.RecordedAt) > rolloutTime {
			continue
		}
		for stage, there := range map[string]bool{"applied": !t.AppliedAt.IsZero(),
			"synced": t.Synced.Done, "healthy": t.Healthy.Done} {
			if !there {
				way[stage]++
			}
		}
	}
	for _, stage := range stages[1:] {
		s.count(descUnderWay, way[stage], stage)
	}
}

func (s exporter) engines(f view.FleetStats) {
	for _, e := range f.Engines {
		name := string(e.Engine)
		s.flag(descReachable, e.Reachable, name)
		s.flag(descAttended, e.Attended, name)
		s.time(descLastSeen, e.LastSeenAt, name)
		for _, fault := range mirror.WorkFaults {
			if e.Work != "" {
				s.flag(descFault, e.Work == fault, name, string(fault))
			}
		}
		s.flag(descRemedy, e.RemedyFailed, name)
		s.flag(descFence, e.FenceBroken, name)
		s.load(e.Load, name)
		s.time(descOldest, e.Waiting.Oldest, name)
		for _, state := range rowStates {
			s.count(descRows, e.Rows[state], name, string(state))
		}
		for _, reason := range unreadReasons {
			s.count(descUnread, e.Unreachable[reason], name, string(reason))
		}
		s.count(descParked, e.Parked, name)
	}
	for name, n := range f.Orphans {
		s.count(descOrphans, n, string(name))
	}
	for _, lost := range []mirror.Lost{mirror.LostEngine, mirror.LostCluster} {
		s.count(descUnproven, f.Unproven[lost].Count, string(lost))
	}
	for ring := range f.HaltedRings {
		s.flag(descHaltedRing, true, ring)
	}
	for ring, b := range f.DifferingRings {
		s.time(descDiffers, b.Oldest, ring)
	}
	for pool := range f.StuckPools {
		s.flag(descStuckPool, true, pool)
	}
	s.count(descTooLarge, f.TooLarge.Unplaced, "Unplaced")
	s.count(descTooLarge, f.TooLarge.Placed, "Placed")
}

// load shows a measured load.
func (s exporter) load(l *mirror.Load, engine string) {
	if l == nil {
		return
	}
	of := func(c fleet.Component, p mirror.ProcessLoad) {
		s.value(descCPU, p.CPU, engine, string(c))
		s.value(descMemory, p.Memory, engine, string(c))
	}
	if c := l.Controller; c != nil {
		s.value(descLag, c.Lag(), engine)
		s.value(descQueue, c.Queue, engine)
		of(fleet.ApplicationController, c.ProcessLoad)
	}
	if r := l.RepoServer; r != nil {
		of(fleet.RepoServer, r.ProcessLoad)
	}
}

func (s exporter) agents(f view.FleetStats) {
	s.count(descAgents, f.Agents.Connected, "connected")
	s.count(descAgents, f.Agents.Stale, "stale")
	s.count(descAgents, f.Agents.Never, "never")
	for _, state := range rowStates {
		s.count(descAgentRows, f.Agents.Rows[state], string(state))
	}
	waiting := map[string]int{}
	for _, b := range f.Agents.Waiting {
		waiting[ageOf(f.At.Sub(b.Oldest))]++
	}
	for _, age := range ages {
		s.count(descAgentsWait, waiting[age], age)
	}
}

func ageOf(d time.Duration) string {
	for i, most := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour} {
		if d < most {
			return ages[i]
		}
	}
	return ages[len(ages)-1]
}

func (s exporter) people(f view.FleetStats) {
	for _, reason := range holdReasons {
		s.count(descHolds, f.Holds[reason].Count, string(reason))
		s.time(descHoldAge, f.Holds[reason].Oldest, string(reason))
	}
	for _, severity := range severities {
		s.count(descProblems, f.Problems[severity], string(severity))
	}
	s.count(descQuarantin, f.Quarantines)
	for _, state := range mirror.RebalanceOpen {
		n := 0
		if state == f.Rebalance {
			n = 1
		}
		s.count(descRebalance, n, string(state))
	}
	for _, scope := range stopScopes {
		s.count(descStops, f.Stops[scope].Count, string(scope))
		s.time(descStopAge, f.Stops[scope].Oldest, string(scope))
	}
}

func (s exporter) queue(f view.FleetStats) {
	s.count(descReviews, f.Rechecks.Count)
	s.time(descReviewAge, f.Rechecks.Oldest)
	for _, state := range jobStates {
		s.count(descJobs, f.Jobs[state], state)
	}
}
