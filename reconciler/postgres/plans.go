package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Load reads the mirror in one snapshot, for a start. 100,000 objects take about as long as
// decoding their declarations.
func (s *Plans) Load(ctx context.Context) (mirror.Snapshot, error) {
	var snap mirror.Snapshot
	ctx = patient(ctx, longPatience)
	err := s.again(ctx, func() error {
		snap = mirror.Snapshot{}
		return pgx.BeginTxFunc(ctx, s.work, pgx.TxOptions{IsoLevel: pgx.RepeatableRead,
			AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			return load(ctx, tx, &snap)
		})
	})
	return snap, wrap(err, "load the mirror")
}

func load(ctx context.Context, tx pgx.Tx, snap *mirror.Snapshot) (err error) {
	if err := tx.QueryRow(ctx, `SELECT m.applied, m.seq, p.body FROM mirror m, memory p`).Scan(
		&snap.Applied, &snap.Seq, &snap.Memory); err != nil {
		return err
	}
	if snap.Declarations, err = loadJSON[fleet.Declaration](ctx, tx,
		`SELECT body FROM declarations ORDER BY kind, tenant, name`); err != nil {
		return err
	}
	if snap.Quarantines, err = loadJSON[fleet.Quarantine](ctx, tx,
		`SELECT body FROM quarantines ORDER BY kind, tenant, name`); err != nil {
		return err
	}
	if snap.Placements, err = loadJSON[fleet.Placement](ctx, tx, `
		SELECT body - 'alternatives' FROM placements ORDER BY tenant, environment, slice`); err != nil {
		return err
	}
	if snap.Objects, err = loadObjects(ctx, tx); err != nil {
		return err
	}
	if snap.Holds, err = read(ctx, tx, scanHold, `SELECT `+holdColumns+
		` FROM holds ORDER BY n`); err != nil {
		return err
	}
	if snap.Approvals, err = read(ctx, tx, scanApproval, sqlApprovals); err != nil {
		return err
	}
	if snap.SyncHolds, err = read(ctx, tx, scanSyncHold, `
		SELECT sync_run, tenant, deployment, environment, target_revision FROM sync_holds ORDER BY tenant, deployment, environment`); err != nil {
		return err
	}
	if snap.Rollouts, err = read(ctx, tx, pgx.RowTo[mirror.Rollout], `
		SELECT body FROM rollouts WHERE ended_at IS NULL ORDER BY tenant, deployment`); err != nil {
		return err
	}
	snap.Deletions, err = read(ctx, tx, scanDeletion, `
		SELECT `+deletionColumns+` FROM deletions WHERE at > now() - interval '168 hours' ORDER BY n`)
	return err
}

// read returns all rows of a statement.
func read[T any](ctx context.Context, tx pgx.Tx, scan pgx.RowToFunc[T], sql string,
	args ...any) ([]T, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// loadObjects skips the rows of removed orphans, which no declaration has made. It scans into one
// set of variables: a hundred thousand rows are common, and their names repeat.
func loadObjects(ctx context.Context, tx pgx.Tx) ([]mirror.Indexed, error) {
	rows, err := tx.Query(ctx, `
		SELECT engine, kind, name, hash, tenant, environment, deployment, deletion, absent, held, seq,
			credential_tenant, credential_name, credential_sealed FROM desired WHERE uid = '' ORDER BY engine, kind, name`)
	if err != nil {
		return nil, err
	}
	var all []mirror.Indexed
	var o mirror.Indexed
	var tenant, name, sealed *string
	known := words{}
	_, err = pgx.ForEachRow(rows, []any{&o.Key.Engine, &o.Key.Kind, &o.Key.Name, &o.Hash, &o.Tenant,
		&o.Environment, &o.Deployment, &o.Deletion, &o.Unwanted, &o.Held, &o.Seq,
		&tenant, &name, &sealed},
		func() error {
			o.Key.Engine = fleet.EngineName(known.one(string(o.Key.Engine)))
			o.Key.Kind = fleet.ObjectKind(known.one(string(o.Key.Kind)))
			o.Tenant = fleet.TenantName(known.one(string(o.Tenant)))
			o.Environment = fleet.EnvironmentName(known.one(string(o.Environment)))
			o.Deployment = fleet.DeploymentName(known.one(string(o.Deployment)))
			o.Deletion = fleet.DeletionPolicy(known.one(string(o.Deletion)))
			o.Credential = credentialOf(o.Key.Kind, tenant, name, sealed)
			all = append(all, o)
			return nil
		})
	return all, err
}

// words interns strings.
type words map[string]string

func (w words) one(s string) string {
	if kept, ok := w[s]; ok {
		return kept
	}
	w[s] = s
	return s
}

const decodeBatch = 512

// loadJSON decodes the one column of a statement, on all processors while it is still being read.
func loadJSON[T any](ctx context.Context, tx pgx.Tx, sql string) ([]T, error) {
	rows, err := tx.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var parts [][]T
	var failed decodeError
	var running sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	flush := func(bodies [][]byte) {
		part := make([]T, len(bodies))
		parts = append(parts, part)
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			for i, body := range bodies {
				if err := json.Unmarshal(body, &part[i]); err != nil {
					failed.set(err)
				}
			}
		})
	}
	bodies := make([][]byte, 0, decodeBatch)
	for rows.Next() {
		var body []byte
		if err := rows.Scan(&body); err != nil {
			return nil, err
		}
		if bodies = append(bodies, body); len(bodies) == decodeBatch {
			flush(bodies)
			bodies = make([][]byte, 0, decodeBatch)
		}
	}
	flush(bodies)
	running.Wait()
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return joined(parts), failed.get()
}

func joined[T any](parts [][]T) []T {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	all := make([]T, 0, n)
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// decodeError keeps the first error of several goroutines.
type decodeError struct {
	mu  sync.Mutex
	err error
}

func (d *decodeError) set(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = fmt.Errorf("a stored declaration cannot be decoded; run `argosy rebuild`: %w", err)
	}
}

func (d *decodeError) get() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Mirror returns the current state of the mirror.
func (s *database) Mirror(ctx context.Context) (mirror.State, error) {
	var m mirror.State
	err := s.again(ctx, func() error {
		return s.work.QueryRow(ctx,
			`SELECT incarnation(), applied, plan, seq, wanted, confirmed FROM mirror`).
			Scan(&m.Life, &m.Applied, &m.Plan, &m.Seq, &m.Wanted, &m.Confirmed)
	})
	return m, wrap(err, "state of the mirror")
}

// WantConfirmed requests a confirmation of the mirror, and returns the number that State.Confirmed
// then reaches.
func (s *database) WantConfirmed(ctx context.Context) (int64, error) {
	m, err := s.Mirror(ctx)
	if err != nil || m.Wanted > m.Confirmed {
		return m.Wanted, err
	}
	var wanted int64
	err = s.again(ctx, func() error {
		return s.work.QueryRow(ctx,
			`UPDATE mirror SET wanted = greatest(wanted, confirmed + 1) RETURNING wanted`).Scan(
			&wanted)
	})
	return wanted, wrap(err, "ask for a confirmation of the mirror")
}

// BeginLife makes the database another incarnation, if its incarnation is still was. The numbers of
// its rows have shown that it went back in time, as after a restore of its disk.
func (s *Agents) BeginLife(ctx context.Context, was string) error {
	err := s.again(ctx, func() error {
		_, err := s.work.Exec(ctx,
			`UPDATE mirror SET life = gen_random_uuid() WHERE incarnation() = $1`, was)
		return err
	})
	return wrap(err, "begin another incarnation of the mirror")
}

// Confirm records that the mirror, in the state at, follows from the head of the config repo. It
// returns false if the mirror has changed since. mirror.ErrFenced when the lease has passed on.
func (s *Plans) Confirm(ctx context.Context, lease mirror.Lease, at mirror.State) (bool,
	error) {
	confirmed := false
	err := s.atomically(ctx, func(b *pgx.Batch) {
		f := fence(lease)
		b.Queue(f.sql, f.args...)
		b.Queue(`
			WITH moved AS (
				UPDATE mirror SET confirmed = greatest(confirmed, $4), confirmed_in = $3
				WHERE applied = $1 AND plan = $2 AND incarnation() = $3 RETURNING 1)
			SELECT EXISTS (SELECT FROM moved)`, string(at.Applied), at.Plan, at.Life, at.Wanted).
			QueryRow(func(row pgx.Row) error { return row.Scan(&confirmed) })
	})
	return confirmed, wrap(err, "confirm the mirror")
}

// SetSource stores the result of the latest fetch of the config repo: URL (without credentials),
// branch, head, time, and error. The store sets Since to when Error began, or ended. A fetch
// without news is written at most every ten seconds.
func (s *Plans) SetSource(ctx context.Context, v view.Source) error {
	err := s.again(ctx, func() error {
		_, err := s.work.Exec(ctx, `
			UPDATE source SET url = $1, branch = $2, head = CASE WHEN $3 = '' THEN head ELSE $3 END, fetched_at = coalesce($4, fetched_at), error = $5,
				since = CASE WHEN (error = '') = ($5 = '') THEN since WHEN $5 = '' THEN NULL ELSE now() END
			WHERE (url, branch, error) <> ($1, $2, $5) OR $3 NOT IN ('', head)
				OR $4::timestamptz IS NOT NULL AND (fetched_at IS NULL OR fetched_at + interval '10 s' <= $4)`,
			text(v.URL), text(v.Branch), string(v.Head), v.FetchedAt, message(v.Error))
		return err
	})
	return wrap(err, "state of the config repo")
}

// Source returns the state of the config repo.
func (s *Views) Source(ctx context.Context) (view.Source, error) {
	var v view.Source
	err := s.again(ctx, func() error {
		return s.work.QueryRow(ctx,
			`SELECT s.url, s.branch, s.head, m.applied, s.fetched_at, s.error, s.since FROM source s, mirror m`).
			Scan(&v.URL, &v.Branch, &v.Head, &v.Applied, &v.FetchedAt, &v.Error, &v.Since)
	})
	return v, wrap(err, "state of the config repo")
}

// Recent is the Applications that were deleted within the window that ends now, by the database's
// clock.
func (s *Plans) Recent(ctx context.Context, window time.Duration) (mirror.Recent, error) {
	var l mirror.Recent
	err := s.within(ctx, view.Scope{}, func(tx pgx.Tx) (err error) {
		if err := tx.QueryRow(ctx, `SELECT now()`).Scan(&l.Now); err != nil {
			return err
		}
		l.Deleted, err = read(ctx, tx, scanDeletion, `SELECT `+deletionColumns+
			` FROM deletions WHERE at > now() - $1::interval ORDER BY n`, window)
		if err != nil {
			return err
		}
		l.ArgoCD = map[fleet.EngineName]string{}
		rows, err := tx.Query(ctx, `SELECT engine, argocd FROM engines WHERE argocd <> ''`)
		if err != nil {
			return err
		}
		var engine fleet.EngineName
		var version string
		_, err = pgx.ForEachRow(rows, []any{&engine, &version}, func() error {
			l.ArgoCD[engine] = version
			return nil
		})
		return err
	})
	return l, wrap(err, "recent deletions")
}

// RecentCreations counts the Applications that were created within the window. Its cost grows with
// their number, so it is for plans that delete something.
func (s *Plans) RecentCreations(ctx context.Context,
	window time.Duration) (map[fleet.TenantName]int,
	error) {
	created := map[fleet.TenantName]int{}
	err := s.within(ctx, view.Scope{}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			SELECT tenant, count(*) FROM desired
			WHERE kind = 'Application' AND created_at > now() - $1::interval AND NOT absent GROUP BY tenant`, window)
		if err != nil {
			return err
		}
		clear(created)
		var tenant fleet.TenantName
		var n int
		_, err = pgx.ForEachRow(rows, []any{&tenant, &n}, func() error {
			created[tenant] = n
			return nil
		})
		return err
	})
	return created, wrap(err, "recent creations")
}

// Vanished returns the keys whose rows were deleted because their objects were proven deleted, or
// because a person has forgotten their engine; none if the database is not of the incarnation life,
// in which the caller found their rows unwanted. A missing row alone proves nothing: the database
// may have lost it. A proof from before a fail-over holds: the fail-over lost or kept it together
// with the state that lists the object as unwanted.
func (s *Plans) Vanished(ctx context.Context, life string,
	keys []fleet.ObjectKey) ([]fleet.ObjectKey, error) {
	gone, err := collect(ctx, s.database, pgx.RowToStructByPos[fleet.ObjectKey], `
		SELECT k.engine, k.kind, k.name FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS k (engine, kind, name, n)
		JOIN removals r ON r.engine = k.engine AND r.kind = k.kind AND r.name = k.name
		WHERE (SELECT incarnation()) = $4
			AND NOT EXISTS (SELECT FROM desired d WHERE d.engine = k.engine AND d.kind = k.kind AND d.name = k.name) ORDER BY k.n`,
		append(objectColumns(keys), life)...)
	return gone, wrap(err, "deleted rows")
}

// sqlOpenRevisions reads the revisions of some rows that are not fully applied yet.
const sqlOpenRevisions = `
	SELECT coalesce(array_agg(DISTINCT d.revision), '{}')
	FROM unnest($1::text[], $2::text[], $3::text[]) AS k (engine, kind, name)
	JOIN desired d ON d.engine = k.engine AND d.kind = k.kind AND d.name = k.name
	WHERE EXISTS (SELECT FROM revisions WHERE applied_at IS NULL)
		AND EXISTS (SELECT FROM revisions r WHERE r.revision = d.revision AND r.applied_at IS NULL)`

// maximum delay of an acknowledgement for the completion of its revisions
const completeTimeout = 2 * time.Second

// complete completes those of the open revisions whose every row is applied. It runs after the
// commit of the transaction that changed their rows: see settle in migrations/00011_settle.sql. Its
// failure does not fail that transaction: CompleteRevisions completes them later.
func (s *database) complete(ctx context.Context, revisions []string) {
	if len(revisions) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	if _, err := s.work.Exec(ctx, `SELECT settle($1)`, revisions); err != nil &&
		!hasCode(err, codeLockTimeout) {
		s.log.Warn("failed to end applied revisions; they are looked at again within ten seconds",
			"revisions", len(revisions), "error", err)
	}
}

// CompleteRevisions completes every open revision whose rows are all applied. Acknowledge and
// Record complete the revisions that they change; CompleteRevisions, called every few seconds,
// completes those that a lost connection or a lock kept open.
func (s *Plans) CompleteRevisions(ctx context.Context) error {
	err := s.again(ctx, func() error {
		_, err := s.work.Exec(ctx, `SELECT settle(NULL)`)
		return err
	})
	return wrap(err, "settle revisions")
}

const holdColumns = `revision, reason, tenant, items, nullif(paths, '[]'), message, since`

func scanHold(row pgx.CollectableRow) (mirror.Hold, error) {
	var h mirror.Hold
	err := row.Scan(&h.Revision, &h.Reason, &h.Tenant, &h.Items, &h.Paths, &h.Message, &h.Since)
	return h, err
}

func scanApproval(row pgx.CollectableRow) (mirror.Approval, error) {
	var a mirror.Approval
	err := row.Scan(&a.Revision, &a.Tenant, &a.By, &a.At, &a.Note)
	return a, err
}

func scanSyncHold(row pgx.CollectableRow) (mirror.SyncHold, error) {
	var h mirror.SyncHold
	err := row.Scan(&h.SyncRun, &h.Application.Tenant, &h.Application.Deployment,
		&h.Application.Environment, &h.TargetRevision)
	return h, err
}

const deletionColumns = `engine, name, tenant, environment, deployment, revision, approved, at`

func scanDeletion(row pgx.CollectableRow) (mirror.Deletion, error) {
	d := mirror.Deletion{Key: fleet.ObjectKey{Kind: fleet.ObjectApplication}}
	err := row.Scan(&d.Key.Engine, &d.Key.Name, &d.Tenant, &d.Environment, &d.Deployment,
		&d.Revision, &d.Approved, &d.At)
	return d, err
}
