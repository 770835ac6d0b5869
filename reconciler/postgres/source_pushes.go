package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// SourcePushes are pushes to the repositories of Applications, the index of what Applications
// deploy from where, and the refreshes that follow (ADR 0098).
type SourcePushes struct{ *database }

const (
	// waiting pushes of one tenant's deliveries, of the platform's, and of one repository
	maxTenantPushes, maxPushes, maxOfRepository = 100, 5000, 100
	// A push that could not be handled for so long is given up: Argo CD has polled since.
	pushExpiry = time.Hour
	// openRefreshes are listed for one engine at a time.
	openRefreshes = 200
	refreshPrefix = "push-"
)

// AcceptSourcePush stores a push until it is handled, and notifies the replicas. It stores no
// second one that is equal: the repositories are read after the first is handled.
// mirror.ErrTooManyPushes if too many of its sender or repository wait.
func (s *SourcePushes) AcceptSourcePush(ctx context.Context, p mirror.SourcePush) error {
	limit := maxPushes
	if p.Tenant != "" {
		limit = maxTenantPushes
	}
	var paths any
	if p.Paths != nil {
		paths = texts(p.Paths)
	}
	waits, stored := false, 0
	err := s.again(ctx, func() error {
		return s.work.QueryRow(ctx, `
			WITH equal AS (
				SELECT FROM source_pushes w WHERE w.tenant = $5 AND w.repositories = $1 AND w.ref = $2 AND w.is_default = $3
					AND (w.paths IS NULL OR w.paths = $4::text[])),
			stored AS (
				INSERT INTO source_pushes (repositories, ref, is_default, paths, tenant)
				SELECT $1, $2, $3, $4::text[], $5 WHERE NOT EXISTS (SELECT FROM equal)
					AND (SELECT count(*) FROM source_pushes w WHERE w.tenant = $5) < $6
					AND (SELECT count(*) FROM source_pushes w WHERE w.tenant = $5 AND w.repositories = $1) < $7 RETURNING id)
			SELECT EXISTS (SELECT FROM equal), (SELECT count(pg_notify($8, $9)) FROM stored)`,
			texts(p.Repositories), text(p.Ref), p.Default, paths, string(p.Tenant), limit,
			maxOfRepository, channel, mirror.NoticeSourcePush).Scan(&waits, &stored)
	})
	if err == nil && !waits && stored == 0 {
		err = mirror.ErrTooManyPushes
	}
	return wrap(err, "push to %s", strings.Join(p.Repositories, ", "))
}

func texts(all []string) []string { return column(all, text) }

// SourcePushes returns waiting pushes: the oldest of each tenant and repository before any second
// one, so that the pushes of one do not delay another's.
func (s *SourcePushes) SourcePushes(ctx context.Context, limit int) ([]mirror.SourcePush, error) {
	scan := func(row pgx.CollectableRow) (p mirror.SourcePush, err error) {
		err = row.Scan(&p.ID, &p.Repositories, &p.Ref, &p.Default, &p.Paths, &p.Tenant)
		return p, err
	}
	all, err := collect(ctx, s.database, scan, `
		SELECT id, repositories, ref, is_default, paths, tenant FROM source_pushes
		ORDER BY row_number() OVER (PARTITION BY tenant, repositories[1] ORDER BY id), id LIMIT $1`,
		limit)
	return all, wrap(err, "pushes to repositories of Applications")
}

// UnwatchedObjects returns Applications that changed since the index of sources was written, oldest
// change first, and the number up to which it was.
func (s *SourcePushes) UnwatchedObjects(ctx context.Context, limit int) (from int64,
	all []mirror.WatchedObject, err error) {
	scan := func(row pgx.CollectableRow) (o mirror.WatchedObject, err error) {
		o.Key.Kind = fleet.ObjectApplication
		err = row.Scan(&o.Key.Engine, &o.Key.Name, &o.Tenant, &o.Seq, &o.Gone, &o.Body)
		return o, err
	}
	err = s.transact(ctx, func(tx pgx.Tx) error {
		// a database that was restored counts again from where it was
		err := tx.QueryRow(ctx, `SELECT least(i.seq, m.seq) FROM source_index i, mirror m`).Scan(
			&from)
		if err != nil {
			return err
		}
		all, err = read(ctx, tx, scan, `
			SELECT engine, name, tenant, seq, absent, CASE WHEN absent THEN NULL ELSE body END FROM desired
			WHERE kind = 'Application' AND seq > $1 ORDER BY seq LIMIT $2`, from, limit)
		return err
	})
	return from, all, wrap(err, "Applications whose sources changed")
}

// Watch replaces what these Applications watch, and counts the index on. It does nothing and
// returns false if another replica has counted on since from was read.
func (s *SourcePushes) Watch(ctx context.Context, from, to int64, of []mirror.WatchedObject,
	watches []mirror.SourceWatch) (bool, error) {
	counted := false
	keys := func(key func(int) fleet.ObjectKey, n int) []any {
		all := make([]fleet.ObjectKey, n)
		for i := range all {
			all[i] = key(i)
		}
		columns := objectColumns(all)
		return []any{columns[0], columns[2]} // engine and name
	}
	err := s.transact(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			UPDATE source_index i SET seq = $2 FROM mirror m WHERE least(i.seq, m.seq) = $1`, from, to)
		if err != nil {
			return err
		}
		if counted = tag.RowsAffected() > 0; !counted {
			return nil
		}
		if _, err := tx.Exec(ctx, `
			DELETE FROM source_watches w USING unnest($1::text[], $2::text[]) AS k (engine, name)
			WHERE w.engine = k.engine AND w.name = k.name`,
			keys(func(i int) fleet.ObjectKey { return of[i].Key }, len(of))...); err != nil {
			return err
		}
		for part := range slices.Chunk(watches, chunkRows) {
			args := append(keys(func(i int) fleet.ObjectKey { return part[i].Key }, len(part)),
				column(part, func(w mirror.SourceWatch) string { return string(w.Tenant) }),
				column(part, func(w mirror.SourceWatch) string { return text(w.Repository) }),
				column(part, func(w mirror.SourceWatch) string { return text(w.Ref) }),
				column(part, func(w mirror.SourceWatch) string { return text(w.Path) }))
			if _, err := tx.Exec(ctx, `
				INSERT INTO source_watches (engine, name, tenant, repository, ref, path)
				SELECT w.* FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
					AS w (engine, name, tenant, repository, ref, path)
				JOIN desired d ON d.engine = w.engine AND d.kind = 'Application' AND d.name = w.name
				FOR KEY SHARE OF d
				ON CONFLICT DO NOTHING`, args...); err != nil {
				return err
			}
		}
		return nil
	})
	return counted, wrap(err, "index of sources")
}

// sqlRefreshes requests refreshes of the Applications that a push concerns. Of those that wait
// already the oldest stays, which may have begun, and the newest, which reads what this push
// brought.
const sqlRefreshes = `
	WITH concerned AS (
		SELECT DISTINCT w.engine, w.name FROM source_watches w
		WHERE w.repository = ANY($1) AND w.ref = ANY($2) AND ($3::text[] IS NULL OR w.path = ANY($3)) AND ($4 = '' OR w.tenant = $4)),
	requested AS (
		INSERT INTO source_refreshes (engine, name, tenant, environment, deployment)
		SELECT d.engine, d.name, d.tenant, d.environment, d.deployment
		FROM concerned c JOIN desired d ON d.engine = c.engine AND d.kind = 'Application' AND d.name = c.name
		WHERE NOT d.absent AND ($4 = '' OR d.tenant = $4)
		RETURNING id, engine, name),
	replaced AS (
		DELETE FROM source_refreshes r USING requested q
		WHERE r.engine = q.engine AND r.name = q.name AND r.begun_at IS NULL
			AND r.id > (SELECT min(o.id) FROM source_refreshes o WHERE o.engine = q.engine AND o.name = q.name))
	SELECT engine, count(*) FROM requested GROUP BY engine`

// RequestRefreshes ends a waiting push by requesting the refreshes of the Applications that watch
// one of its refs and places, any place if places is nil. It returns how many, and notifies their
// engines. A push that another replica has ended requests none.
func (s *SourcePushes) RequestRefreshes(ctx context.Context, p mirror.SourcePush, refs,
	places []string) (requested int, err error) {
	var engines []fleet.EngineName
	err = s.transact(ctx, func(tx pgx.Tx) error {
		requested, engines = 0, nil
		tag, err := tx.Exec(ctx, `DELETE FROM source_pushes WHERE id = $1`, p.ID)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		var at any
		if places != nil {
			at = texts(places)
		}
		rows, err := tx.Query(ctx, sqlRefreshes, texts(p.Repositories), texts(refs), at,
			string(p.Tenant))
		if err != nil {
			return err
		}
		var engine fleet.EngineName
		var n int
		_, err = pgx.ForEachRow(rows, []any{&engine, &n}, func() error {
			engines, requested = append(engines, engine), requested+n
			return nil
		})
		return err
	})
	if err != nil {
		return 0, wrap(err, "push to %s", strings.Join(p.Repositories, ", "))
	}
	if len(engines) > 0 {
		s.decided(ctx, mirror.NoticeActions(engines))
	}
	return requested, nil
}

// ExpireSourcePushes deletes pushes that could not be handled, and refreshes that no worker ends:
// their engine has none that reaches it.
func (s *SourcePushes) ExpireSourcePushes(ctx context.Context) error {
	err := s.transact(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM source_pushes WHERE at < now() - `+
			interval(pushExpiry)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM source_refreshes WHERE coalesce(begun_at, requested_at) < now() - `+
			interval(2*mirror.ActionExpiry))
		return err
	})
	return wrap(err, "late pushes")
}

// SealedOf returns the blob of a tenant's encrypted file in folder "environments" or "credentials",
// "" if it has none; mirror.ErrNotFound if the tenant is not declared.
func (s *SourcePushes) SealedOf(ctx context.Context, tenant fleet.TenantName, folder,
	name string) (blob string, err error) {
	var declared bool
	err = s.again(ctx, func() error {
		return s.work.QueryRow(ctx, `
			SELECT live_tenant($1) IS NOT NULL, coalesce((SELECT blob FROM declarations
				WHERE kind = 'SealedSecret' AND tenant = $1 AND name = $2), '')`, text(string(tenant)),
			text(folder+"/"+name)).Scan(&declared, &blob)
	})
	if err == nil && !declared {
		err = mirror.ErrNotFound
	}
	return blob, wrap(err, "secret %s of tenant %s", name, tenant)
}

// sqlLife is part of the IDs of refreshes: the last one is written on the Application, and a
// restored database counts again.
const sqlLife = `(SELECT left(md5(incarnation()), 8))`

// openRefreshesOf selects an engine's refreshes as actions, with the columns of actionColumns: the
// oldest of each tenant before any second one, since those of a tenant may wait for its cluster.
var openRefreshesOf = fmt.Sprintf(`SELECT '%[1]s' || `+sqlLife+` || '-' || r.id, '', 'refresh', r.engine, r.name, r.tenant, r.environment, r.deployment, '{}'::jsonb,
		'argosy', '', CASE WHEN r.begun_at IS NULL THEN 'Pending' ELSE 'Running' END, '', '[]'::jsonb, '', r.requested_at,
		coalesce(r.begun_at, r.requested_at) < now() - %[2]s
	FROM (SELECT q.*, row_number() OVER (PARTITION BY q.tenant ORDER BY q.id) AS place FROM source_refreshes q WHERE q.engine = $1) r
	ORDER BY r.place, r.id LIMIT %[3]d`, refreshPrefix,
	interval(mirror.ActionExpiry), openRefreshes)

// refreshID is the ID of a refresh that a push requested.
type refreshID struct {
	life   string // see sqlLife
	number int64
}

// refreshOf parses the ID of an action; false for a person's.
func refreshOf(action string) (refreshID, bool) {
	id, ok := strings.CutPrefix(action, refreshPrefix)
	if !ok {
		return refreshID{}, false
	}
	life, number, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(number, 10, 64)
	return refreshID{life, n}, err == nil
}

// updateRefresh records how far a refresh is. It has no operation: of those that a push requests
// there may be thousands.
func (s *Work) updateRefresh(ctx context.Context, lease mirror.Lease, engine fleet.EngineName,
	id refreshID, state mirror.OperationState) error {
	sql := `UPDATE source_refreshes SET begun_at = now() WHERE id = $1 AND engine = $2 AND begun_at IS NULL AND $3 = ` +
		sqlLife
	switch state {
	case mirror.OperationPending:
		return nil // it waits already
	case mirror.OperationSucceeded, mirror.OperationFailed:
		sql = `DELETE FROM source_refreshes WHERE id = $1 AND engine = $2 AND $3 = ` + sqlLife
	}
	err := s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		b.Queue(sql, id.number, string(engine), text(id.life))
	})
	return wrap(err, "refresh %d", id.number)
}
