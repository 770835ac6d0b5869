package postgres

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const (
	// tracedRows bounds the objects of a commit that one trace reads.
	tracedRows = 5000
	tracedLog  = 100 // waits
	// An engine that has not reported for so long after a write has no news: see sqlWalk.
	traceSettled = time.Minute
)

// sqlTraceHead finds the commit by a range of ids, also one that has not been recorded: a commit
// that is held as a whole, that a delivery has named, or that is the head of the branch.
const sqlTraceHead = `
	WITH found AS (
		(SELECT revision FROM revisions WHERE revision >= $1 AND revision <= $2 LIMIT 2)
		UNION (SELECT DISTINCT revision FROM holds WHERE revision >= $1 AND revision <= $2 LIMIT 2)
		UNION (SELECT DISTINCT after_commit FROM pushes WHERE after_commit >= $1 AND after_commit <= $2 LIMIT 2)
		UNION SELECT head COLLATE "C" FROM source WHERE head COLLATE "C" >= $1 AND head COLLATE "C" <= $2)
	SELECT f.revision, coalesce(r.author, ''), coalesce(r.subject, ''), r.committed_at,
		(SELECT min(p.at) FROM pushes p WHERE p.after_commit = f.revision), r.fetched_at, r.checked_at, r.planned_at,
		coalesce(r.first_recorded_at, r.recorded_at), CASE WHEN r.recorded_at > r.first_recorded_at THEN r.recorded_at END, r.applied_at,
		coalesce((SELECT max(p.number) FROM pulls p WHERE p.body->>'mergeCommit' = f.revision AND p.body->>'mergeCommit' <> ''), 0),
		coalesce(r.created + r.changed + r.deleted, 0), s.error, s.since
	FROM found f LEFT JOIN revisions r ON r.revision = f.revision
	LEFT JOIN source s ON r.revision IS NULL AND s.head = f.revision AND s.error <> '' LIMIT 2`

// sqlTraceRows reads the rows that still have the commit's manifest, as a range of their index: see
// lastRow.
const sqlTraceRows = `
	SELECT d.kind = 'Application' AND NOT d.absent, d.tenant, d.deployment, d.environment, d.engine, d.changed_at, ` + sqlApply + `,
		CASE WHEN s.seq = d.seq THEN s.state_message ELSE '' END, CASE WHEN s.seq = d.seq AND s.state = 'Applied' THEN s.acked_at END,
		s.synced_at, s.healthy_at, s.observed_at, coalesce(s.sync, 'Unknown'), coalesce(s.health, 'Unknown'),
		CASE WHEN s.message <> '' THEN s.message ELSE coalesce(s.operation_error, '') END, coalesce(r.message, ''), ` + sqlIsSilent + `, now()
	FROM desired d LEFT JOIN LATERAL (SELECT * FROM status s WHERE s.engine = d.engine AND s.kind = d.kind AND s.name = d.name OFFSET 0) s ON true
	LEFT JOIN reach r ON r.engine = d.engine AND r.tenant = d.tenant AND r.environment = d.environment
	WHERE (d.revision, d.seq) >= ($1, 0::bigint) AND (d.revision, d.seq) <= ($1, ` + lastRow + `)
		AND ($2 = '' OR d.tenant = $2) AND ($3 = '' OR d.deployment = $3) AND ($4 = '' OR d.environment = $4)
	ORDER BY d.revision, d.seq LIMIT $5`

// sqlTraceWaits reads the holds that wait, the ended ones from the audit log, which keeps them, and
// the rollouts. An ended hold lasted until the commit was recorded next.
const sqlTraceWaits = `
	SELECT 'hold', h.tenant, h.message, h.since, NULL::timestamptz FROM holds h WHERE h.revision = $1 AND ($2 = '' OR h.tenant = $2)
	UNION ALL
	SELECT 'hold', a.tenant, a.detail, a.at, (SELECT min(e.at) FROM audit e WHERE e.revision = $1 AND e.action = 'record' AND e.n > a.n)
	FROM audit a WHERE a.revision = $1 AND a.action = 'hold' AND ($2 = '' OR a.tenant = $2 AND a.tenant_uid = live_tenant(a.tenant))
		AND NOT EXISTS (SELECT FROM holds h WHERE h.revision = a.revision AND h.tenant = a.tenant)
	UNION ALL
	SELECT 'rollout', r.tenant, 'rollout of ' || r.deployment || ': ' || r.state || coalesce(': ' || nullif(r.body->>'message', ''), ''), r.begun_at, r.ended_at
	FROM rollouts r WHERE r.body->>'revision' = $1 AND ($2 = '' OR r.tenant = $2 AND r.tenant_uid = live_tenant(r.tenant))
		AND ($3 = '' OR r.deployment = $3)
	ORDER BY 4 LIMIT $4`

// Trace returns the way of a commit, whose id may be its first digits. by.{Tenant, Deployment,
// Environment} restrict it. A tenant's scope has the steps of the whole commit, and its own objects
// and waits. mirror.ErrNotFound if the scope has no part in the commit, or if several commits begin
// so.
func (s *Views) Trace(ctx context.Context, scope view.Scope, revision fleet.Revision,
	by view.Filter) (view.Trace, error) {
	t, err := s.trace(ctx, scope, revision, by)
	return t, wrap(err, "commit %s", revision.Short())
}

func (s *Views) trace(ctx context.Context, scope view.Scope, revision fleet.Revision,
	by view.Filter) (view.Trace, error) {
	if scope.Tenant != "" {
		if by.Tenant != "" && by.Tenant != scope.Tenant {
			return view.Trace{}, mirror.ErrNotFound
		}
		by.Tenant = scope.Tenant
	}
	t, planned, err := s.traceHead(ctx, revision)
	if err != nil {
		return view.Trace{}, err
	}
	own, ofHead := false, t.Waits
	err = s.within(ctx, scope, func(tx pgx.Tx) error {
		t.TraceCounts, t.Applications = view.TraceCounts{}, nil // of an attempt that broke
		if err := traceRows(ctx, tx, &t, by); err != nil {
			return err
		}
		waits, err := read(ctx, tx, scanTraceWait, sqlTraceWaits, string(t.Revision),
			string(by.Tenant), string(by.Deployment), tracedLog)
		if err != nil {
			return err
		}
		if scope.Tenant == "" {
			waits = slices.Concat(ofHead, waits)
		}
		t.Waits = append([]view.TraceWait{}, waits...)
		if own = t.Objects+len(waits) > 0; scope.Tenant != "" && !own {
			return tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM audit a WHERE a.revision = $1 AND a.action = 'record'
				AND a.tenant = $2 AND a.tenant_uid = live_tenant(a.tenant))`, string(t.Revision), string(by.Tenant)).Scan(&own)
		}
		return nil
	})
	if err != nil {
		return view.Trace{}, err
	}
	if scope.Tenant != "" {
		if !own {
			return view.Trace{}, mirror.ErrNotFound
		}
		t.Subject, t.AppliedAt = "", nil // other tenants have a part in them
	}
	if by.Tenant == "" && by.Deployment == "" && by.Environment == "" && !t.Partial {
		t.Replaced = max(0, planned-t.Objects)
	}
	t.Shorten()
	return t, nil
}

// traceHead reads the steps of the whole commit, and how many objects it planned.
func (s *Views) traceHead(ctx context.Context, revision fleet.Revision) (view.Trace, int, error) {
	type head struct {
		view.Trace
		planned int
	}
	low := string(revision)
	high := low + strings.Repeat("g", max(0, 40-len(low))) // after every digit
	found, err := collect(ctx, s.database, func(row pgx.CollectableRow) (h head, err error) {
		var failure *string
		var since *time.Time
		err = row.Scan(&h.Revision, &h.Author, &h.Subject, &h.CommittedAt, &h.DeliveredAt,
			&h.FetchedAt, &h.CheckedAt, &h.PlannedAt, &h.RecordedAt, &h.RecordedAgainAt,
			&h.AppliedAt, &h.Pull, &h.planned, &failure, &since)
		if failure != nil && since != nil {
			h.Waits = []view.TraceWait{{Kind: "source", Text: *failure, Since: *since}}
		}
		return h, err
	}, sqlTraceHead, low, high)
	if err != nil {
		return view.Trace{}, 0, err
	}
	if len(found) != 1 {
		return view.Trace{}, 0, mirror.ErrNotFound
	}
	return found[0].Trace, found[0].planned, nil
}

// tracedRow is one row of a commit with its status.
type tracedRow struct {
	view.TraceApplication
	application                              bool
	apply                                    mirror.ApplyState
	applyMessage, message, unreachable       string
	sync                                     mirror.SyncState
	health                                   mirror.HealthState
	firstSynced, firstHealthy, observed, now *time.Time
	silent                                   bool
}

func traceRows(ctx context.Context, tx pgx.Tx, t *view.Trace, by view.Filter) error {
	t.Applications = []view.TraceApplication{}
	rows, err := tx.Query(ctx, sqlTraceRows, string(t.Revision), string(by.Tenant),
		string(by.Deployment), string(by.Environment), tracedRows+1)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var r tracedRow
		if err := rows.Scan(&r.application, &r.Tenant, &r.Deployment, &r.Environment, &r.Engine,
			&r.QueuedAt, &r.apply, &r.applyMessage, &r.WrittenAt, &r.firstSynced, &r.firstHealthy,
			&r.observed, &r.sync, &r.health, &r.message, &r.unreachable, &r.silent,
			&r.now); err != nil {
			return err
		}
		if t.Objects == tracedRows {
			t.Partial = true
			break
		}
		t.Objects++
		if r.WrittenAt != nil {
			t.Written++
		}
		if r.application {
			r.follow()
			t.Add(r.TraceApplication)
		}
	}
	return rows.Err()
}

// follow sets the steps after the write, and what the Application waits for.
func (r *tracedRow) follow() {
	synced := r.sync == mirror.SyncSynced
	healthy := synced && r.health == mirror.HealthHealthy
	r.SyncedAt, r.HealthyAt = r.since(r.firstSynced, synced), r.since(r.firstHealthy, healthy)
	if r.HealthyAt != nil && r.SyncedAt == nil {
		r.SyncedAt = r.HealthyAt
	}
	if r.HealthyAt == nil {
		r.WaitsFor = r.waits(synced)
	}
}

// since returns when a state was reached after the write: first is when it was entered, is whether
// it is so now. A state that was not entered again after the write has stayed, once the engine has
// reported since, or has had the time to do so.
func (r *tracedRow) since(first *time.Time, is bool) *time.Time {
	switch {
	case r.WrittenAt == nil:
		return nil
	case first != nil && !first.Before(*r.WrittenAt):
		return first
	case !is:
		return nil
	case r.observed != nil && !r.observed.Before(*r.WrittenAt):
		if first == nil { // its time was not kept
			return r.observed
		}
		return r.WrittenAt
	case r.now.Sub(*r.WrittenAt) > traceSettled:
		return r.WrittenAt
	}
	return nil
}

func (r *tracedRow) waits(synced bool) string {
	because := func(state, message string) string {
		return state + cmp.Or(strings.TrimSuffix(": "+message, ": "), "")
	}
	switch {
	case r.silent && r.unreachable != "":
		return because("its cluster is unreachable", r.unreachable)
	case r.silent:
		return "engine " + string(r.Engine) + " is silent"
	case r.WrittenAt == nil && r.apply == mirror.ApplyPending:
		return "the worker or agent of engine " + string(r.Engine)
	case r.WrittenAt == nil:
		return because(string(r.apply), r.applyMessage)
	case r.SyncedAt == nil && synced || r.SyncedAt != nil && r.health == mirror.HealthHealthy:
		return "a report of the engine after the write"
	case r.SyncedAt == nil:
		return because(string(r.sync), r.message)
	}
	return because(string(r.health), r.message)
}

func scanTraceWait(row pgx.CollectableRow) (w view.TraceWait, err error) {
	err = row.Scan(&w.Kind, &w.Tenant, &w.Text, &w.Since, &w.Until)
	return w, err
}
