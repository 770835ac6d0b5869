package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// RowsByKey returns the current rows of these objects in one query and skips objects without one.
func (s *Work) RowsByKey(ctx context.Context, engine fleet.EngineName,
	keys []fleet.ObjectKey) ([]mirror.Row, error) {
	rows, err := collect(ctx, s.database, scanRow, `SELECT `+rowColumns+`
		FROM unnest($1::text[], $2::text[], $3::text[]) AS k (engine, kind, name)
		JOIN desired d ON d.engine = k.engine AND d.kind = k.kind AND d.name = k.name
		LEFT JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name`, objectColumns(keys)...)
	return rows, wrap(err, "%d rows of engine %s", len(keys), engine)
}

// OrphanKeys returns the listed orphans of an engine.
func (s *Work) OrphanKeys(ctx context.Context, engine fleet.EngineName) ([]fleet.ObjectKey, error) {
	keys, err := collect(ctx, s.database, func(row pgx.CollectableRow) (fleet.ObjectKey, error) {
		key := fleet.ObjectKey{Engine: engine}
		err := row.Scan(&key.Kind, &key.Name)
		return key, err
	}, `SELECT kind, name FROM strays WHERE engine = $1`, string(engine))
	return keys, wrap(err, "orphans of engine %s", engine)
}

// ReportOrphans records objects that a worker found without a row, and listed ones that are deleted
// or have a row by now. An object that a request from before its own deletion created is deleted:
// the deletion was decided earlier. mirror.ErrFenced when the lease has passed on.
func (s *Work) ReportOrphans(ctx context.Context, lease mirror.Lease, found []mirror.Orphan,
	gone []fleet.ObjectKey) error {
	engine, err := leasedEngine(lease, found, func(f mirror.Orphan) fleet.ObjectKey {
		return f.Key
	})
	if err != nil {
		return err
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		if len(gone) > 0 {
			b.Queue(
				`DELETE FROM strays s USING unnest($1::text[], $2::text[], $3::text[]) AS k (engine, kind, name)
				WHERE s.engine = k.engine AND s.kind = k.kind AND s.name = k.name AND s.removed_at IS NULL`, objectColumns(gone)...)
		}
		if len(found) == 0 {
			return
		}
		keys := objectColumns(column(found, func(f mirror.Orphan) fleet.ObjectKey { return f.Key }))
		b.Queue(sqlFindOrphans, append(keys[:3:3],
			column(found, func(f mirror.Orphan) string { return text(string(f.Tenant)) }),
			column(found, func(f mirror.Orphan) string { return text(string(f.Environment)) }),
			column(found, func(f mirror.Orphan) string { return text(string(f.Deployment)) }),
			column(found, func(f mirror.Orphan) string { return text(f.UID) }),
			column(found, func(f mirror.Orphan) string { return text(string(f.Revision)) }),
			column(found, func(f mirror.Orphan) int64 { return f.Epoch }))...)
		b.Queue(sqlRemoveLate, append(keys[:3:3],
			column(found, func(f mirror.Orphan) string { return text(f.UID) }),
			column(found, func(f mirror.Orphan) bool { return f.Pure }),
			mirror.TombstoneTime)...)
	})
	return wrap(err, "orphans of engine %s", engine)
}

const sqlFindOrphans = `
	WITH changed AS (
		INSERT INTO strays AS s (engine, kind, name, tenant, environment, deployment, uid, revision, epoch, found_at)
		SELECT f.*, now() FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[])
			AS f (engine, kind, name, tenant, environment, deployment, uid, revision, epoch)
		WHERE NOT EXISTS (SELECT FROM desired d WHERE d.engine = f.engine AND d.kind = f.kind AND d.name = f.name)
		ON CONFLICT (engine, kind, name) DO UPDATE SET tenant = excluded.tenant, environment = excluded.environment, deployment = excluded.deployment,
			uid = excluded.uid, revision = excluded.revision, epoch = excluded.epoch,
			found_at = CASE WHEN s.uid = excluded.uid THEN s.found_at ELSE now() END,
			deletion = '', removed_by = '', removed_at = NULL
		WHERE (s.tenant, s.environment, s.deployment, s.uid, s.revision, s.epoch) <>
			(excluded.tenant, excluded.environment, excluded.deployment, excluded.uid, excluded.revision, excluded.epoch) OR s.removed_at IS NOT NULL
		RETURNING engine, kind, name)
	SELECT new_event('engine', '', min(engine), CASE WHEN count(*) = 1 THEN 'stray ' || min(kind) || ' ' || min(name) ELSE count(*) || ' strays' END
		|| ' found: no declaration asks for what runs there; see argosy get orphans')
	FROM changed HAVING count(*) > 0`

// An object with a newer epoch was written on purpose, one with the UID of the deleted object was
// restored with the engine's state, and one with another field manager is no longer the request's
// alone: they are listed for a person's decision.
const sqlRemoveLate = `
	WITH late AS MATERIALIZED (
		SELECT s.engine, s.kind, s.name, s.uid, t.deletion
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[]) AS f (engine, kind, name, uid, pure)
		JOIN strays s ON s.engine = f.engine AND s.kind = f.kind AND s.name = f.name AND s.uid = f.uid AND s.removed_at IS NULL
		JOIN tombstones t ON t.engine = s.engine AND t.kind = s.kind AND t.name = s.name AND t.tenant = s.tenant
		WHERE f.pure AND s.epoch BETWEEN 1 AND t.epoch AND t.uid <> s.uid AND t.at > now() - $6::interval),
	removed AS MATERIALIZED (
		SELECT l.*, remove_stray(l.engine, l.kind, l.name, l.uid, l.deletion, 'argosy') AS seq FROM late l)
	SELECT new_event('engine', '', engine, kind || ' ' || name || ' is removed again: a request from before its deletion arrived late')
	FROM removed WHERE seq > 0`

// ReportInventory records that every object without a row on the lease's engine is reported in this
// incarnation of the database. mirror.ErrFenced when the lease has passed on.
func (s *Work) ReportInventory(ctx context.Context, lease mirror.Lease) error {
	engine := strings.TrimPrefix(lease.Name, "engine/")
	err := s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		if lease.Life != "" {
			b.Queue(`SELECT fence_life($1)`, lease.Life)
		}
		b.Queue(`UPDATE engines SET inventoried = incarnation() WHERE engine = $1 AND inventoried <> incarnation()`,
			engine)
	})
	return wrap(err, "inventory of engine %s", engine)
}

// Elsewhere returns the engines other than the object's that have an object of its name without a
// row, or may have one. Argosy reads no engine behind an agent: only what its agent reports counts.
// The Applications of an evacuated engine belong to other engines.
func (s *Work) Elsewhere(ctx context.Context, key fleet.ObjectKey) (e mirror.Elsewhere, err error) {
	err = s.again(ctx, func() error {
		return s.work.QueryRow(ctx, `
			SELECT coalesce((SELECT min(engine) FROM strays WHERE kind = $2 AND name = $3 AND engine <> $1
					AND engine NOT IN (SELECT engine FROM evacuations)), ''),
				coalesce((SELECT min(e.engine) FROM engines e JOIN declarations d ON d.kind = 'Engine' AND d.name = e.engine
					WHERE e.engine <> $1 AND e.inventoried <> incarnation() AND e.spec #> '{connection,agent}' IS NULL
						AND e.engine NOT IN (SELECT engine FROM evacuations)), '')`,
			string(key.Engine), string(key.Kind), key.Name).Scan(&e.Found, &e.Unread)
	})
	return e, wrap(err, "%s on other engines", key.Name)
}

// RemoveOrphan decides that one orphan is deleted, and returns it as it is listed then.
// mirror.ErrNotFound when no orphan with that UID is listed, or its removal is decided already.
func (s *Decisions) RemoveOrphan(ctx context.Context, r mirror.OrphanRemoval) (view.Orphan, error) {
	subject := fmt.Sprintf("orphan %s %s on engine %s", r.Kind, r.Name, r.Engine)
	if r.Deletion != fleet.DeletionDelete && r.Deletion != fleet.DeletionOrphan {
		return view.Orphan{}, fmt.Errorf("%s: deletion is Delete or Orphan, not %q", subject,
			r.Deletion)
	}
	var orphan view.Orphan
	err := s.transact(ctx, func(tx pgx.Tx) error {
		var seq int64
		if err := tx.QueryRow(ctx, `SELECT remove_stray($1, $2, $3, $4, $5, $6)`,
			text(string(r.Engine)), text(string(r.Kind)),
			text(r.Name), text(r.UID), string(r.Deletion), text(r.By)).Scan(&seq); err != nil {
			return err
		}
		if seq == 0 {
			return mirror.ErrNotFound
		}
		all, err := read(ctx, tx, scanOrphan,
			sqlOrphans+` WHERE engine = $1 AND kind = $2 AND name = $3`,
			text(string(r.Engine)), text(string(r.Kind)), text(r.Name))
		if err != nil {
			return err
		}
		orphan = all[0]
		// the guards count it like any other deletion
		if r.Kind == fleet.ObjectApplication {
			if _, err := tx.Exec(ctx,
				`INSERT INTO deletions (at, revision, engine, name, tenant, environment, deployment, approved)
				VALUES (now(), '', $1, $2, $3, $4, $5, true)`, string(orphan.Engine), orphan.Name, string(orphan.Tenant),
				string(orphan.Environment), string(orphan.Deployment)); err != nil {
				return err
			}
		}
		return recordDecision(
			ctx, tx, decision{kind: mirror.OperationRemoveOrphan, action: "remove-orphan",
				subject: subject + ", UID " + r.UID,
				tenant:  orphan.Tenant, engine: r.Engine, by: r.By, note: r.Note,
				event: view.Event{Kind: "engine", Name: string(r.Engine),
					Text: subject + " is removed"}})
	})
	if err == nil {
		s.decided(ctx, "")
	}
	return orphan, wrap(err, "remove %s", subject)
}

const sqlOrphans = `SELECT engine, kind, name, tenant, environment, deployment, uid, revision, epoch, found_at, deletion, removed_by, removed_at FROM strays`

func scanOrphan(row pgx.CollectableRow) (view.Orphan, error) {
	var v view.Orphan
	var removed *time.Time
	err := row.Scan(&v.Engine, &v.Kind, &v.Name, &v.Tenant, &v.Environment, &v.Deployment, &v.UID,
		&v.Revision, &v.Epoch, &v.FoundAt,
		&v.Deletion, &v.RemovedBy, &removed)
	v.RemovedAt = removed
	return v, err
}

// Orphans match Filter.Engine and Filter.Tenant, by engine, kind and name. They belong to the
// platform: a tenant's scope has none.
func (s *Views) Orphans(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Orphan, string, error) {
	if scope.Tenant != "" {
		return nil, "", nil
	}
	f := filter{}
	f.equal("engine", string(by.Engine))
	f.equal("tenant", string(by.Tenant))
	return list(ctx, s.database, scope, listing[view.Orphan]{
		name: "strays", keys: []string{"engine", "kind", "name"}, scan: scanOrphan, sql: sqlOrphans,
		key: func(v view.Orphan) []string {
			return []string{string(v.Engine), string(v.Kind), v.Name}
		},
	}, f, page, nil)
}

// ReportWentBack records evidence that the engine's state went back in time. Evidence of several
// resources within a minute is one event. mirror.ErrFenced when the lease has passed on.
func (s *Work) ReportWentBack(ctx context.Context, lease mirror.Lease, how string) error {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return err
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT fence_engine($1, $2, $3)`, lease.Name, lease.Holder, lease.Epoch)
		b.Queue(`
			WITH changed AS (
				UPDATE engines SET went_back_at = now(), went_back = $2
				WHERE engine = $1 AND coalesce(went_back_at < now() - interval '1 minute', true) RETURNING engine)
			SELECT new_event('engine', '', engine, 'went back in time, as after a restore from a backup; it is verified against the rows')
			FROM changed`, string(engine), message(how))
	})
	return wrap(err, "engine %s went back in time", engine)
}
