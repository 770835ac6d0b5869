package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// ReportReach records environments whose clusters the engine cannot read, and those that it can
// read again; whole: there are no others. A report without news writes nothing, and an environment
// that stays unreachable keeps its earliest time. mirror.ErrFenced when the lease has passed on.
func (s *Work) ReportReach(ctx context.Context, lease mirror.Lease, reports []mirror.Reach,
	whole bool) error {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return err
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		queueReach(b, engine, reports, whole)
	})
	return wrap(err, "reach of %d environments of engine %s", len(reports), engine)
}

func queueReach(b *pgx.Batch, engine fleet.EngineName, reports []mirror.Reach, whole bool) {
	var lost, back []mirror.Reach
	for _, r := range reports {
		if r.Unreachable != nil {
			lost = append(lost, r)
		} else {
			back = append(back, r)
		}
	}
	of := func(all []mirror.Reach, value func(mirror.Reach) string) []string {
		return column(all, func(r mirror.Reach) string { return message(value(r)) })
	}
	tenant := func(r mirror.Reach) string { return string(r.Environment.Tenant) }
	name := func(r mirror.Reach) string { return string(r.Environment.Name) }
	if whole || len(back) > 0 {
		kept := back
		if whole {
			kept = lost
		}
		b.Queue(sqlReachable, string(engine), of(kept, tenant), of(kept, name), whole)
	}
	if len(lost) > 0 {
		b.Queue(sqlUnreachable, string(engine), of(lost, tenant), of(lost, name),
			of(lost, func(r mirror.Reach) string { return string(r.Unreachable.Reason) }),
			of(lost, func(r mirror.Reach) string { return r.Unreachable.Message }),
			column(lost, func(r mirror.Reach) time.Time { return r.Unreachable.Since }),
			column(lost, func(r mirror.Reach) int32 { return count(r.Unreachable.Parked) }))
	}
}

// sqlReachable deletes the named environments, or with $4 all others.
const sqlReachable = `
	WITH gone AS (
		DELETE FROM reach r WHERE r.engine = $1
			AND ((r.tenant, r.environment) IN (SELECT * FROM unnest($2::text[], $3::text[]))) <> $4
		RETURNING r.tenant, r.environment, r.engine)
	SELECT new_event('environment', tenant, tenant || '/' || environment, 'engine ' || engine || ' reads its cluster again') FROM gone`

// Only an environment with a declaration or rows of that tenant is stored: an agent may name
// others.
const sqlUnreachable = `
	WITH before AS MATERIALIZED (
		SELECT r.tenant, r.environment, r.reason FROM reach r WHERE r.engine = $1),
	changed AS (
		INSERT INTO reach AS r (engine, tenant, environment, tenant_uid, reason, message, since, parked)
		SELECT $1, n.tenant, n.environment, live_tenant(n.tenant), n.reason, n.message, n.since, n.parked
		FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::int[])
			AS n (tenant, environment, reason, message, since, parked)
		WHERE EXISTS (SELECT FROM desired d WHERE d.engine = $1 AND d.kind = 'Cluster'
			AND d.tenant = n.tenant AND d.environment = n.environment)
		ON CONFLICT (engine, tenant, environment) DO UPDATE SET tenant_uid = excluded.tenant_uid, reason = excluded.reason,
			message = excluded.message, since = least(r.since, excluded.since), parked = excluded.parked
		WHERE (r.reason, r.parked) <> (excluded.reason, excluded.parked) OR r.since > excluded.since
			OR r.tenant_uid IS DISTINCT FROM excluded.tenant_uid
		RETURNING r.tenant, r.environment, r.reason)
	SELECT new_event('environment', c.tenant, c.tenant || '/' || c.environment, 'unreachable: ' || c.reason || ': engine ' || $1 || ' cannot read its cluster')
	FROM changed c WHERE NOT EXISTS (
		SELECT FROM before b WHERE b.tenant = c.tenant AND b.environment = c.environment AND b.reason = c.reason)`

// unreachable scans the columns of reach; nil if there is no row.
type unreachable struct {
	reason, message *string
	since           *time.Time
	parked          *int
}

func (u unreachable) view() *mirror.Unreachable {
	if u.reason == nil {
		return nil
	}
	return &mirror.Unreachable{
		Reason: mirror.UnreachableReason(*u.reason), Message: *u.message, Since: *u.since,
		Parked: *u.parked,
	}
}

// unreachables returns those of the environments whose clusters cannot be read. An environment that
// moves between engines has the state of its new engine, if any; a split one that of the engine
// that has not read the cluster for the longest time.
func unreachables(ctx context.Context, tx pgx.Tx, names []pair) (map[pair]*mirror.Unreachable,
	error) {
	tenants, environments := make([]string, len(names)), make([]string, len(names))
	for i, n := range names {
		tenants[i], environments[i] = n[0], n[1]
	}
	rows, err := tx.Query(ctx, `
		SELECT DISTINCT ON (r.tenant, r.environment) r.tenant, r.environment, r.reason, r.message, r.since, r.parked
		FROM unnest($1::text[], $2::text[]) AS n (tenant, environment)
		JOIN reach r ON r.tenant = n.tenant AND r.environment = n.environment
		JOIN placements p ON p.tenant = r.tenant AND p.environment = r.environment AND p.engine = r.engine
		ORDER BY r.tenant, r.environment, r.since, r.engine`, tenants, environments)
	if err != nil {
		return nil, err
	}
	all := map[pair]*mirror.Unreachable{}
	var of pair
	var u unreachable
	_, err = pgx.ForEachRow(rows, []any{&of[0], &of[1], &u.reason, &u.message, &u.since, &u.parked},
		func() error {
			all[of] = u.view()
			return nil
		})
	return all, err
}

// Abandon decides that an Application whose deletion waits for an unreachable cluster is deleted
// without it: its workload keeps running. mirror.ErrNotFound if no Application with that UID is
// being deleted, mirror.ErrNotBlocked until its cluster has been unreachable for
// mirror.DeletionBlockedAfter. Repeating the decision changes nothing.
func (s *Decisions) Abandon(ctx context.Context, o mirror.Orphaning) error {
	subject := "Application " + o.Application.String()
	err := s.transact(ctx, func(tx pgx.Tx) error {
		// The mirror's lock comes first, as in Record: a declaration that restores it comes before
		// or after.
		if _, err := tx.Exec(ctx, `SELECT FROM mirror FOR UPDATE`); err != nil {
			return err
		}
		var engine, name, deletion string
		var since *time.Time
		var now time.Time
		err := tx.QueryRow(ctx, `
			SELECT d.engine, d.name, d.deletion, r.since, now()
			FROM desired d JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name AND s.uid = $4
			LEFT JOIN reach r ON r.engine = d.engine AND r.tenant = d.tenant AND r.environment = d.environment
			WHERE d.kind = 'Application' AND d.tenant = $1 AND d.deployment = $2 AND d.environment = $3 AND d.absent AND d.uid = ''`,
			text(string(o.Application.Tenant)), text(string(o.Application.Deployment)),
			text(string(o.Application.Environment)), text(o.UID)).
			Scan(&engine, &name, &deletion, &since, &now)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return mirror.ErrNotFound
		case err != nil:
			return err
		case deletion != string(fleet.DeletionDelete):
			return nil
		case since == nil:
			return fmt.Errorf("%w: engine %s reads its cluster", mirror.ErrNotBlocked, engine)
		case now.Sub(*since) < mirror.DeletionBlockedAfter:
			return fmt.Errorf("%w before its cluster has been unreachable for %s, at %s",
				mirror.ErrNotBlocked,
				mirror.DeletionBlockedAfter, since.Add(mirror.DeletionBlockedAfter).UTC().Format(
					time.RFC3339))
		}
		if _, err := tx.Exec(ctx, `
			WITH next AS (UPDATE mirror SET seq = seq + 1 RETURNING seq)
			UPDATE desired d SET deletion = 'Orphan', seq = next.seq, changed_at = now() FROM next
			WHERE d.engine = $1 AND d.kind = 'Application' AND d.name = $2`, engine, name); err != nil {
			return err
		}
		return recordDecision(ctx, tx, decision{
			kind: mirror.OperationAbandon, subject: subject + ", UID " + o.UID,
			tenant: o.Application.Tenant, engine: fleet.EngineName(engine),
			by: o.By, note: o.Note, event: view.Event{Kind: "application",
				Tenant: o.Application.Tenant, Name: name,
				Text: "is removed without its cluster; its workload is left as it is"},
		})
	})
	if err == nil {
		s.decided(ctx, "")
	}
	return wrap(err, "orphan %s", subject)
}
