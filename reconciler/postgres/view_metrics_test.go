package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// asLeader is the request of the replica of hold.
var asLeader = view.StatsQuery{Holder: "replica-1"}

func TestFleetStatsAreForTheLeader(t *testing.T) {
	t.Parallel()
	s, _ := populated(t)
	f := must(s.Views.FleetStats(t.Context(), view.StatsQuery{Holder: "replica-2"}))(t)
	if f.Leads || f.At.IsZero() || len(f.Engines) > 0 || len(f.Holds) > 0 {
		t.Errorf("to another replica: %+v", f)
	}
	if f := must(s.Views.FleetStats(t.Context(), asLeader))(t); !f.Leads || len(f.Engines) != 2 {
		t.Errorf("to the leader: %+v", f)
	}
}

func TestFleetStatsCountTheCurrentState(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	now := time.Now()
	check(t, s.Plans.SetSource(t.Context(), view.Source{Head: revision(9), FetchedAt: &now,
		Error: "gone"}))
	must(
		s.Decisions.SetStop(
			t.Context(), mirror.Stop{Scope: mirror.StopTenant, Name: "acme", By: "Ann",
				At: now}, false))(t)
	exec(t, url,
		`INSERT INTO quarantines (kind, tenant, name, body) VALUES ('Tenant', '', 'broken', '{}')`)
	exec(t, url,
		`INSERT INTO looks (key, wanted, priority, body, at) VALUES ('pull/1', true, 1, '{}', now() - interval '1 hour'), ('pull/2', false, 1, '{}', now())`)
	exec(t, url,
		`INSERT INTO river_job (args, kind, queue, max_attempts, state) VALUES ('{}', 'look', 'looks', 10, 'retryable'), ('{}', 'look', 'other', 10, 'retryable')`)
	exec(t, url,
		`INSERT INTO placements (tenant, environment, engine, applications, body)
		SELECT 'acme', 'large-' || n, CASE WHEN n > 1 THEN 'eu-1' ELSE '' END, 9, '{"tooLarge": {"applications": 9}}' FROM generate_series(1, 3) n`)
	f := must(s.Views.FleetStats(t.Context(), asLeader))(t)
	count := func(b view.Backlog) int {
		if b.Oldest.IsZero() != (b.Count == 0) {
			t.Errorf("%+v", b)
		}
		return b.Count
	}
	for what, got := range map[string][2]any{
		"failing":     {f.Source.Failing, true},
		"behind":      {f.Source.Behind, true},
		"fetched":     {f.Source.FetchedAt.Unix(), now.Unix()},
		"holds":       {count(f.Holds[mirror.HoldDeletions]), 2},
		"errors":      {f.Problems[fleet.SeverityError], 2},
		"warnings":    {f.Problems[fleet.SeverityWarning], 2},
		"quarantines": {f.Quarantines, 1},
		"stops":       {count(f.Stops[mirror.StopTenant]), 1},
		"looks":       {count(f.Rechecks), 1},
		"jobs":        {f.Jobs["retryable"], 1},
		"unapplied":   {count(f.Unapplied), 1},
		"too large":   {f.TooLarge.Unplaced, 1},
		"outgrown":    {f.TooLarge.Placed, 2},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %v, want %v", what, got[0], got[1])
		}
	}
	if age := f.At.Sub(f.Rechecks.Oldest).Round(time.Minute); age != time.Hour {
		t.Errorf("the oldest review job waits for %s", age)
	}
}

func TestFleetStatsCountPendingRowsByEngine(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	reconciler, worker := hold(t, s, "reconciler"), hold(t, s, "engine/eu-1")
	check(t, s.Work.ReportEngine(t.Context(), worker, mirror.EngineReport{
		Engine: "eu-1", Reachable: true}))
	must(s.Plans.Record(t.Context(), reconciler, step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{tenantDeclaration("acme"), engineDeclaration("eu-1"),
			engineDeclaration("us-1"), edge("acme", "edge", ""), edge("acme", "far", "")}
		for i := range 4 {
			r.Rows = append(r.Rows, application("eu-1", "acme", fmt.Sprint("e", i), "prod", "v1"),
				application("acme.edge", "acme", fmt.Sprint("a", i), "edge", "v1"))
		}
		r.Rows = append(r.Rows, application("us-1", "acme", "u", "staging", "v1"))
	})))(t)
	rows := must(s.Work.Changed(t.Context(), "eu-1", 0, 10))(t)
	acks := applied(rows)
	acks[1].State, acks[1].Message = mirror.ApplyFailed, "refused"
	check(t, s.Work.Acknowledge(t.Context(), worker, acks[:3]))
	f := must(s.Views.FleetStats(t.Context(), asLeader))(t)
	eu, us := f.Engines[0], f.Engines[1]
	if !eu.Reachable || !eu.Attended || us.Reachable || us.Attended {
		t.Errorf("eu-1 %+v, us-1 %+v", eu, us)
	}
	if d := cmp.Diff(eu.Rows, map[mirror.ApplyState]int{mirror.ApplyFailed: 1,
		mirror.ApplyPending: 1}); d != "" || eu.Waiting.Count != 1 || eu.Waiting.Oldest.IsZero() {
		t.Errorf("eu-1: %+v\n%s", eu, d)
	}
	if us.Rows[mirror.ApplyPending] != 1 {
		t.Errorf("us-1: %+v", us)
	}
	if a := f.Agents; a.Never != 2 || a.Connected+a.Stale != 0 ||
		a.Rows[mirror.ApplyPending] != 4 ||
		len(a.Waiting) != 1 || a.Waiting[0].Count != 4 {
		t.Errorf("agents: %+v", a)
	}
}

// No query of FleetStats grows with unchanged rows: 20,000 Applications that are in sync are not
// read, and each revision's pending rows are found by its index.
func TestFleetStatsReadOnlyPendingRows(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	var seen asked
	s := openWith(t, url, postgres.Options{Tracer: &seen})
	reconciler := hold(t, s, "reconciler")
	must(s.Plans.Record(t.Context(), reconciler, step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{tenantDeclaration("acme"), engineDeclaration("eu-1")}
		for i := range 20_000 {
			row := application("eu-1", "acme", fmt.Sprint("d", i), "prod", "v1")
			row.Manifest = manifest(fmt.Sprint("{}", i))
			r.Rows = append(r.Rows, row)
		}
	})))(t)
	exec(t, url,
		`INSERT INTO status (engine, kind, name, tenant, seq, state, sync, health, acked_at, observed_at)
		SELECT engine, kind, name, tenant, seq, 'Applied', 'Synced', 'Healthy', now(), now() FROM desired`)
	exec(t, url, `SELECT settle(NULL)`)
	must(s.Plans.Record(t.Context(), reconciler, step(1, 2, func(r *mirror.Record) {
		for i := range 3 {
			r.Rows = append(r.Rows, application("eu-1", "acme", fmt.Sprint("d", i), "prod", "v2"))
		}
	})))(t)
	exec(t, url, `ANALYZE`)
	ask := asLeader
	ask.Open, ask.Since = true, time.Now().Add(time.Hour)
	f := must(s.Views.FleetStats(t.Context(), ask))(t)
	if n := f.Engines[0].Waiting.Count; n != 3 || len(f.Rollouts) != 1 {
		t.Errorf("%d rows wait, %d revisions are under way", n, len(f.Rollouts))
	}
	for what, table := range map[string]string{"pending": "w.changed_at", "travel": "l.healthy"} {
		how := explain(t, url, view.Scope{}, seen.of(t, table))
		for _, big := range []string{"Seq Scan on desired", "Seq Scan on status", "Hash Join",
			"Rows Removed by Filter: 1", "rows=20000"} {
			if strings.Contains(how, big) {
				t.Errorf("%s: %s\n%s", what, big, how)
			}
		}
		if !strings.Contains(how, "desired_revision") || !strings.Contains(how, "status_pkey") {
			t.Errorf("%s:\n%s", what, how)
		}
	}
}

// A long rollout is scanned in parts, and each part starts where the last one ended.
func TestRolloutScanContinuesWhereItStopped(t *testing.T) {
	t.Parallel()
	const n = 25_000
	url := newDatabase(t)
	s := open(t, url)
	reconciler := hold(t, s, "reconciler")
	must(s.Plans.Record(t.Context(), reconciler, step(0, 1, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{tenantDeclaration("acme"), engineDeclaration("eu-1")}
		for i := range n {
			row := application("eu-1", "acme", fmt.Sprint("d", i), "prod", "v1")
			row.Manifest = manifest(fmt.Sprint("{}", i))
			r.Rows = append(r.Rows, row)
		}
		r.Created = n
	})))(t)
	exec(t, url,
		`INSERT INTO status (engine, kind, name, tenant, seq, state, sync, health, acked_at, observed_at)
		SELECT engine, kind, name, tenant, seq, 'Applied', 'Synced', CASE seq WHEN 7 THEN 'Degraded' ELSE 'Healthy' END, now(), now() FROM desired`)
	exec(t, url, `SELECT settle(NULL)`)
	ask := view.StatsQuery{Holder: "replica-1"}
	var now view.RolloutLatency
	scans := 0
	for ; !now.Synced.Done && scans < 10; scans++ {
		f := must(s.Views.FleetStats(t.Context(), ask))(t)
		if len(f.Rollouts) != 1 {
			t.Fatalf("under way: %+v", f.Rollouts)
		}
		now, ask.Latencies, ask.After = f.Rollouts[0], f.Rollouts, f.Rollouts[0].Number
	}
	if scans < 2 || !now.Synced.Done || !now.Synced.Any || now.Healthy.Done ||
		now.Healthy.Next != 7 || now.AppliedAt.IsZero() {
		t.Errorf("after %d scans: %+v", scans, now)
	}
}

func TestRolloutLatencyOfARevision(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, reconciler, worker, rows := recorded(t, url, application("eu-1", "acme", "a", "prod", "v1"),
		application("eu-1", "acme", "b", "prod", "v1"))
	ask := asLeader
	look := func() view.RolloutLatency {
		t.Helper()
		f := must(s.Views.FleetStats(t.Context(), ask))(t)
		if len(f.Rollouts) != 1 {
			t.Fatalf("under way: %+v", f.Rollouts)
		}
		ask.Latencies, ask.After = f.Rollouts, f.Rollouts[0].Number
		return f.Rollouts[0]
	}
	observe := func(sync mirror.SyncState, health mirror.HealthState, rows ...mirror.Row) {
		t.Helper()
		var seen []mirror.Observation
		for _, row := range rows {
			seen = append(seen, mirror.Observation{Key: row.Key, Sync: sync, Health: health})
		}
		check(t, s.Work.Observe(t.Context(), worker, seen))
	}
	if v := look(); v.Number != 1 || v.Changes != 2 || v.RecordedAt.IsZero() ||
		!v.AppliedAt.IsZero() || v.Synced.Done {
		t.Errorf("recorded: %+v", v)
	}
	observe(mirror.SyncSynced, mirror.HealthHealthy, rows...)
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(rows)))
	if v := look(); v.AppliedAt.IsZero() || v.Synced.Done || v.Healthy.Done {
		t.Errorf("applied, with an earlier observation: %+v", v)
	}
	observe(mirror.SyncSynced, mirror.HealthProgressing, rows...)
	if v := look(); !v.Synced.Done || !v.Synced.Any || v.Synced.At.Before(v.AppliedAt) ||
		v.Healthy.Done {
		t.Errorf("synced: %+v", v)
	}
	observe(mirror.SyncSynced, mirror.HealthHealthy, rows[0])
	if v := look(); v.Healthy.Done || v.Healthy.Next != rows[1].Seq {
		t.Errorf("one is healthy: %+v", v)
	}
	observe(mirror.SyncSynced, mirror.HealthDegraded, rows[0])
	observe(mirror.SyncSynced, mirror.HealthHealthy, rows[1])
	if v := look(); !v.Healthy.Done || v.Healthy.At.Before(v.Synced.At) {
		t.Errorf("each has been healthy: %+v", v)
	}
	// A revision with only a project has no Application to wait for; one recorded before the
	// request's time has not started.
	must(s.Plans.Record(t.Context(), reconciler, step(1, 2, func(r *mirror.Record) {
		row := rows[0]
		row.Key.Kind, row.Key.Name, row.Deployment, row.Environment = fleet.ObjectProject,
			"tenant-acme", "", ""
		r.Rows, r.Changed = []mirror.Row{row}, 1
	})))(t)
	ask.Latencies = nil
	if v := look(); v.Number != 2 || v.Changes != 1 || !v.Synced.Done || v.Synced.Any {
		t.Errorf("of nothing: %+v", v)
	}
	late := view.StatsQuery{Holder: "replica-1", Since: time.Now().Add(time.Hour)}
	if f := must(s.Views.FleetStats(t.Context(), late))(t); len(f.Rollouts) != 0 {
		t.Errorf("begun: %+v", f.Rollouts)
	}
}

// An Application without a new report counts as unchanged a minute after its change.
func TestRolloutDoesNotWaitForReportsWithoutNews(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, _, worker, rows := recorded(t, url, application("eu-1", "acme", "a", "prod", "v1"))
	check(t, s.Work.Observe(t.Context(), worker, []mirror.Observation{
		{Key: rows[0].Key, Sync: mirror.SyncSynced, Health: mirror.HealthHealthy}}))
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(rows)))
	exec(t, url,
		`UPDATE status SET acked_at = acked_at - interval '2 minutes', observed_at = observed_at - interval '3 minutes'`)
	f := must(s.Views.FleetStats(t.Context(), asLeader))(t)
	if v := f.Rollouts[0]; !v.Synced.Done || !v.Healthy.Done ||
		f.At.Sub(v.Synced.At) < time.Minute {
		t.Errorf("%+v", v)
	}
}

// Agents are counted as in their list: by the beat of the replica that serves them.
func TestFleetStatsCountAgentsAsTheirListDoes(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	k.open(k.join(acmeEdge, "a"), "one")
	k.join("globex.edge", "b")
	k.open(k.join("far-1", "c"), "one")
	// as last reported
	exec(t, k.url,
		`INSERT INTO engines (engine, reachable) VALUES ('far-1', true) ON CONFLICT (engine) DO UPDATE SET reachable = true`)
	stats := func() [3]int {
		t.Helper()
		f := must(k.Views.FleetStats(t.Context(), asLeader))(t)
		if far := f.Engines[1]; far.Engine != "far-1" || far.Reachable != (f.Agents.Connected > 0) {
			t.Errorf("an engine behind an agent: %+v", far)
		}
		return [3]int{f.Agents.Connected, f.Agents.Stale, f.Agents.Never}
	}
	if got := stats(); got != [3]int{0, 3, 1} {
		t.Errorf("before the hub's first beat: %v", got)
	}
	check(t, k.Agents.BeatReplica(t.Context(), "hub-1"))
	if got := stats(); got != [3]int{2, 1, 1} {
		t.Errorf("connected, stale, never: %v", got)
	}
	all, _, err := k.Views.Agents(t.Context(), view.Scope{}, view.Filter{}, view.Page{Limit: 10})
	check(t, err)
	var listed [3]int
	for _, a := range all {
		switch {
		case a.Connected:
			listed[0]++
		case a.ID != "":
			listed[1]++
		default:
			listed[2]++
		}
	}
	if listed != stats() {
		t.Errorf("%v are listed", listed)
	}
}
