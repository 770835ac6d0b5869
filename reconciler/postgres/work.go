package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// rowColumns are the columns that scanRow reads, of desired d and status s.
const rowColumns = desiredColumns + `, ` + sqlMoving

// sqlMoving is whether the Application of desired d moves.
const sqlMoving = `d.kind = 'Application' AND EXISTS (SELECT FROM application_moves m
		WHERE m.tenant = d.tenant AND m.environment = d.environment AND m.deployment = d.deployment
			AND m.step <> 'Done' AND NOT (m.from_engine = d.engine AND (m.undo AND m.step IN ('Return', 'Enable') OR ` + sqlDeparted + `)))`

// sqlDeparted is whether the engine that Application m leaves has no part in its move any more: a
// row there removes an orphan.
const sqlDeparted = `m.step = 'Enable' AND NOT m.undo AND NOT m.departure ? 'evacuated'`

// desiredColumns are the rowColumns without whether an Application moves.
const desiredColumns = `d.engine, d.kind, d.name, d.tenant, d.environment, d.deployment, d.credential_tenant, d.credential_name, d.credential_sealed,
	d.body, d.hash, d.deletion, d.absent, d.revision, d.seq, CASE WHEN s.seq = d.seq THEN s.state ELSE 'Pending' END, d.uid,
	(SELECT incarnation())`

const fromRows = ` FROM desired d LEFT JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name `

func scanRow(rows pgx.CollectableRow) (mirror.Row, error) {
	var row mirror.Row
	var tenant, name, sealed *string
	err := rows.Scan(&row.Key.Engine, &row.Key.Kind, &row.Key.Name, &row.Tenant, &row.Environment,
		&row.Deployment, &tenant, &name, &sealed,
		&row.Manifest.Body, &row.Manifest.Hash, &row.Deletion, &row.Unwanted, &row.Revision,
		&row.Seq,
		&row.Apply, &row.UID, &row.Life, &row.Moving)
	row.Credential = credentialOf(row.Key.Kind, tenant, name, sealed)
	return row, err
}

// collect returns every row of a statement, and reads again after a lost connection.
func collect[T any](ctx context.Context, s *database, scan pgx.RowToFunc[T], sql string,
	args ...any) ([]T, error) {
	var all []T
	err := s.again(ctx, func() error {
		rows, err := s.work.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, scan)
		return err
	})
	return all, err
}

// Changed returns at most limit rows of the engine with a number above after, in that order. A row
// that is committed later has a higher number than every returned row.
func (s *Work) Changed(ctx context.Context, engine fleet.EngineName, after int64,
	limit int) ([]mirror.Row, error) {
	rows, err := collect(ctx, s.database, scanRow, `SELECT `+rowColumns+fromRows+
		`WHERE d.engine = $1 AND d.seq > $2 ORDER BY d.seq LIMIT $3`, string(engine), after, limit)
	if err != nil {
		return nil, fmt.Errorf("rows of engine %s: %w", engine, err)
	}
	return rows, nil
}

// RowHeads visits every row of the engine in one snapshot, by number and without its body, and
// never holds all of them in memory. An error of visit ends it and is returned.
func (s *Work) RowHeads(ctx context.Context, engine fleet.EngineName,
	visit func(mirror.RowHead) error) error {
	ctx = patient(ctx, scanPatience)
	rows, err := s.work.Query(ctx, `
		SELECT d.kind, d.name, d.hash, d.absent, d.credential_name IS NOT NULL, d.seq,
			CASE WHEN s.seq = d.seq THEN s.state ELSE 'Pending' END, (SELECT incarnation()),
			`+sqlMoving+fromRows+`
		WHERE d.engine = $1 ORDER BY d.seq`, string(engine))
	if err != nil {
		return fmt.Errorf("rows of engine %s: %w", engine, plain(err))
	}
	h := mirror.RowHead{Key: fleet.ObjectKey{Engine: engine}}
	into := []any{&h.Key.Kind, &h.Key.Name, &h.Hash, &h.Unwanted, &h.Credential, &h.Seq, &h.Apply,
		&h.Life, &h.Moving}
	var refused error
	_, err = pgx.ForEachRow(rows, into, func() error { refused = visit(h); return refused })
	if refused != nil || err == nil {
		return refused
	}
	return fmt.Errorf("rows of engine %s: %w", engine, plain(err))
}

// Row returns the current row; false if there is none.
func (s *Work) Row(ctx context.Context, key fleet.ObjectKey) (mirror.Row, bool, error) {
	rows, err := collect(ctx, s.database, scanRow, `SELECT `+rowColumns+fromRows+
		`WHERE d.engine = $1 AND d.kind = $2 AND d.name = $3`,
		string(key.Engine), string(key.Kind), key.Name)
	if err != nil || len(rows) == 0 {
		return mirror.Row{}, false, wrap(err, "row %s of engine %s", key.Name, key.Engine)
	}
	return rows[0], true, nil
}

// LeasedRow returns the current row for the holder of the engine's lease. It fences deletions,
// since an object carries no newer epoch until a newer lease has written it. mirror.ErrFenced when
// the lease has expired or passed on.
func (s *Work) LeasedRow(ctx context.Context, l mirror.Lease, key fleet.ObjectKey) (mirror.Row,
	bool,
	error) {
	if _, err := leasedEngine(l, []fleet.ObjectKey{key}, func(k fleet.ObjectKey) fleet.ObjectKey {
		return k
	}); err != nil {
		return mirror.Row{}, false, err
	}
	var row mirror.Row
	var held, there bool
	err := s.again(ctx, func() error {
		b := &pgx.Batch{}
		b.Queue(`SELECT EXISTS (SELECT FROM leases
			WHERE name = $1 AND holder = $2 AND epoch = $3 AND expires_at > clock_timestamp())`,
			l.Name, l.Holder, l.Epoch).QueryRow(func(r pgx.Row) error { return r.Scan(&held) })
		b.Queue(`SELECT `+rowColumns+fromRows+`WHERE d.engine = $1 AND d.kind = $2 AND d.name = $3`,
			string(key.Engine), string(key.Kind), key.Name).Query(func(r pgx.Rows) error {
			rows, err := pgx.CollectRows(r, scanRow)
			if there = len(rows) > 0; there {
				row = rows[0]
			}
			return err
		})
		return s.work.SendBatch(ctx, b).Close()
	})
	if err == nil && !held {
		err = mirror.ErrFenced
	}
	return row, there, wrap(err, "row %s of engine %s", key.Name, key.Engine)
}

// CredentialRows returns the engine's rows that need the secret of that tenant and name.
func (s *Work) CredentialRows(ctx context.Context, engine fleet.EngineName,
	tenant fleet.TenantName, secret string) ([]mirror.Row, error) {
	rows, err := collect(ctx, s.database, scanRow, `SELECT `+rowColumns+fromRows+`
		WHERE d.engine = $1 AND d.credential_tenant = $2 AND d.credential_name = $3 ORDER BY d.seq`, string(engine), string(tenant), secret)
	return rows, wrap(err, "rows of engine %s with credential %s/%s", engine, tenant, secret)
}

// Sealed returns a SOPS-encrypted file by its git blob id; mirror.ErrNotFound when nothing refers
// to it.
func (s *Plans) Sealed(ctx context.Context, blob string) ([]byte, error) {
	var sealed []byte
	err := s.again(ctx, func() error {
		return s.work.QueryRow(ctx, `SELECT bytes FROM sealed WHERE blob = $1 LIMIT 1`, blob).Scan(
			&sealed)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = mirror.ErrNotFound
	}
	return sealed, wrap(err, "sealed file %s", blob)
}

// wrap adds the subject to an error; nil stays nil.
func wrap(err error, subject string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(subject+": %w", append(args, err)...)
}

// credentialOf builds a credential from its columns; nil if the row needs none. The kind of the
// object determines the folder of the credential's declaration.
func credentialOf(kind fleet.ObjectKind, tenant, name, sealed *string) *fleet.CredentialSource {
	if tenant == nil || name == nil || sealed == nil {
		return nil
	}
	return &fleet.CredentialSource{Tenant: fleet.TenantName(*tenant),
		Folder: kind.CredentialFolder(), Name: *name, Sealed: *sealed}
}

// Acknowledge records the results of an engine's worker, in one round trip. An Ack for another
// version of a row changes nothing. An Ack that proves the object deleted deletes the row too, if
// the row is unwanted. An Ack without news writes nothing. mirror.ErrFenced when the lease has
// passed on.
func (s *Work) Acknowledge(ctx context.Context, lease mirror.Lease, acks []mirror.Ack) error {
	if len(acks) == 0 {
		return nil
	}
	engine, err := leasedEngine(lease, acks, func(a mirror.Ack) fleet.ObjectKey { return a.Key })
	if err != nil {
		return err
	}
	var done, gone []mirror.Ack
	for _, a := range newest(acks, func(a mirror.Ack) fleet.ObjectKey { return a.Key }) {
		if a.Removed {
			gone = append(gone, a)
		} else {
			done = append(done, a)
		}
	}
	var touched []string
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		if lease.Life != "" {
			b.Queue(`SELECT fence_life($1)`, lease.Life)
		}
		b.Queue(sqlOpenRevisions,
			objectColumns(column(acks, func(a mirror.Ack) fleet.ObjectKey { return a.Key }))...).
			QueryRow(func(row pgx.Row) error { return row.Scan(&touched) })
		if len(done) > 0 {
			b.Queue(sqlAcknowledge, append(ackColumns(done, lease),
				column(done, func(a mirror.Ack) string { return string(a.State) }),
				column(done, func(a mirror.Ack) string { return message(a.Message) }))...)
		}
		if len(gone) > 0 {
			b.Queue(sqlRemove, append(ackColumns(gone, lease), lease.Epoch)...)
		}
	})
	if err == nil {
		s.complete(ctx, touched)
	}
	return wrap(err, "acknowledge %d rows of engine %s", len(acks), engine)
}

const sqlAcknowledge = `
	WITH changed AS (
		INSERT INTO status AS s (engine, kind, name, tenant, seq, state, state_message, acked_at)
		SELECT d.engine, d.kind, d.name, d.tenant, d.seq, a.state, a.message, now()
		FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $7::text[], $8::text[])
			AS a (engine, kind, name, seq, hash, state, message)
		JOIN desired d ON d.engine = a.engine AND d.kind = a.kind AND d.name = a.name AND d.seq = a.seq
		WHERE ` + sqlSameContent + `
		ON CONFLICT (engine, kind, name) DO UPDATE SET
			tenant = excluded.tenant, seq = excluded.seq, state = excluded.state, state_message = excluded.state_message, acked_at = excluded.acked_at
		WHERE (s.seq, s.state, s.state_message) IS DISTINCT FROM (excluded.seq, excluded.state, excluded.state_message)
		RETURNING engine, kind, name, tenant, state)` + sqlEvents + `'apply ' || min(state)` + sqlEventsEnd

const sqlRemove = `
	WITH changed AS (
		DELETE FROM desired d USING unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[]) AS a (engine, kind, name, seq, hash)
		WHERE d.engine = a.engine AND d.kind = a.kind AND d.name = a.name AND d.absent AND d.seq = a.seq AND ` + sqlSameContent + `
		RETURNING d.engine, d.kind, d.name, d.tenant, d.seq, d.deletion, d.uid),
	swept AS (DELETE FROM status s USING changed c WHERE s.engine = c.engine AND s.kind = c.kind AND s.name = c.name
		RETURNING s.engine, s.kind, s.name, s.uid),
	proven AS (DELETE FROM unproven u USING changed c
		WHERE u.lost = 'Engine' AND u.engine = c.engine AND u.kind = c.kind AND u.name = c.name
			AND c.uid IN ('', u.uid)),
	unlisted AS (DELETE FROM strays s USING changed c
		WHERE s.engine = c.engine AND s.kind = c.kind AND s.name = c.name AND s.uid = c.uid),
	buried AS (
		INSERT INTO tombstones (engine, kind, name, tenant, uid, epoch, seq, deletion, at)
		SELECT c.engine, c.kind, c.name, c.tenant, coalesce(s.uid, ''), $7, c.seq, c.deletion, now()
		FROM changed c LEFT JOIN swept s ON s.engine = c.engine AND s.kind = c.kind AND s.name = c.name
		WHERE c.uid = ''
		ON CONFLICT (engine, kind, name) DO UPDATE SET tenant = excluded.tenant, uid = excluded.uid,
			epoch = excluded.epoch, seq = excluded.seq, deletion = excluded.deletion, at = excluded.at)` + sqlEvents + `'removed'` + sqlEventsEnd

// One event for each tenant with Applications among the changes. It names the Application if there
// is only one.
const sqlEvents = `
	SELECT new_event('application', c.tenant,
		CASE WHEN count(*) = 1 THEN coalesce((SELECT d.tenant || '/' || d.deployment || '@' || d.environment FROM desired d
			WHERE d.engine = min(c.engine) AND d.kind = 'Application' AND d.name = min(c.name)), '') ELSE '' END,
		CASE WHEN count(*) = 1 THEN `
const sqlEventsEnd = ` ELSE count(*) || ' applications of engine ' || min(c.engine) END)
	FROM changed c WHERE c.kind = 'Application' GROUP BY c.tenant`

func ackColumns(acks []mirror.Ack, lease mirror.Lease) []any {
	return append(objectColumns(column(acks, func(a mirror.Ack) fleet.ObjectKey { return a.Key })),
		column(acks, func(a mirror.Ack) int64 { return a.Seq }),
		column(acks, func(a mirror.Ack) string { return a.Hash }), lease.Name)
}

// After the database went back in time it gives a sequence number twice: an Ack is for the row with
// the same content hash. An Ack without a hash is for a row that the agent got in this incarnation.
const sqlSameContent = `(a.hash = d.hash OR a.hash = '' AND (SELECT same_life($6)))`

// leasedEngine is the engine of the lease, if every item belongs to it.
func leasedEngine[T any](lease mirror.Lease, items []T,
	key func(T) fleet.ObjectKey) (fleet.EngineName, error) {
	name, ok := strings.CutPrefix(lease.Name, "engine/")
	if !ok || name == "" {
		return "", fmt.Errorf("lease %q is not that of an engine", lease.Name)
	}
	for _, item := range items {
		if k := key(item); string(k.Engine) != name {
			return "", fmt.Errorf("lease %s gives no right to %s of engine %s", lease.Name, k.Name,
				k.Engine)
		}
	}
	return fleet.EngineName(name), nil
}

// newest keeps the last item of each object, ordered by the first occurrence of each object.
func newest[T any](items []T, key func(T) fleet.ObjectKey) []T {
	place := make(map[fleet.ObjectKey]int, len(items))
	kept := make([]T, 0, len(items))
	for _, item := range items {
		if i, ok := place[key(item)]; ok {
			kept[i] = item
			continue
		}
		place[key(item)] = len(kept)
		kept = append(kept, item)
	}
	return kept
}

// Observe records the latest state of an engine's Applications, in one round trip. A report without
// news writes nothing: another comparison by Argo CD (ReconciledAt, ResourceVersion) is no news.
// Reports on objects without a row are dropped. mirror.ErrFenced when the lease has passed on.
func (s *Work) Observe(ctx context.Context, lease mirror.Lease, seen []mirror.Observation) error {
	if len(seen) == 0 {
		return nil
	}
	engine, err := leasedEngine(lease, seen, func(o mirror.Observation) fleet.ObjectKey {
		return o.Key
	})
	if err != nil {
		return err
	}
	seen = newest(seen, func(o mirror.Observation) fleet.ObjectKey { return o.Key })
	args := observationColumns(seen)
	err = s.atomically(ctx, func(b *pgx.Batch) {
		b.Queue(sqlKeepPlans)
		fenceEngine(b, lease)
		b.Queue(sqlBeginStatus, args[:3]...)
		b.Queue(sqlObserve, args...)
		queueRunning(b, seen)
		queueHealthy(b, seen)
	})
	return wrap(err, "observe %d applications of engine %s", len(seen), engine)
}

// sqlKeepPlans keeps the plans of this transaction's statements for the session's next ones: to
// plan a batch takes longer than to write it. A plan from while the mirror was small would read a
// whole index for each row, so it applies once the database has statistics of a large one.
const sqlKeepPlans = `SELECT set_config('plan_cache_mode', CASE WHEN (SELECT reltuples FROM pg_class WHERE oid = 'argosy.status'::regclass) > 1000
	THEN 'force_generic_plan' ELSE current_setting('plan_cache_mode') END, true)`

// UPDATE … FROM rather than an upsert: it does not touch the index. The engine comes with each row,
// so that the planner uses the key's index for each row and never reads a whole engine. synced_at
// and healthy_at are kept from the first time after the row's acknowledgement: see Views.Trace.
const sqlObserve = `
	WITH changed AS (
		UPDATE status s SET uid = o.uid, sync = o.sync, health = o.health, synced_revision = o.synced_revision,
			operation_phase = o.operation_phase, operation_id = o.operation_id, operation_error = o.operation_error, message = o.message,
			operation_revision = o.operation_revision, resources = o.resources, reconciled_at = o.reconciled_at, resource_version = o.resource_version, gone = o.gone, compared = o.compared, observed_at = now(),
			synced_at = CASE WHEN o.sync = 'Synced' AND s.sync <> 'Synced' AND (s.synced_at >= s.acked_at) IS NOT TRUE THEN now() ELSE s.synced_at END,
			healthy_at = CASE WHEN (o.sync, o.health) = ('Synced', 'Healthy') AND (s.sync, s.health) <> ('Synced', 'Healthy')
				AND (s.healthy_at >= s.acked_at) IS NOT TRUE THEN now() ELSE s.healthy_at END
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::int[],
				$13::timestamptz[], $14::text[], $15::bool[], $16::text[], $17::text[])
			AS o (engine, kind, name, uid, sync, health, synced_revision, operation_phase, operation_id, operation_error, message, resources,
				reconciled_at, resource_version, gone, compared, operation_revision)
		WHERE s.engine = o.engine AND s.kind = o.kind AND s.name = o.name AND
			(s.observed_at IS NULL OR
			(s.uid, s.sync, s.health, s.synced_revision, s.operation_phase, s.operation_id, s.operation_error, s.message, s.resources, s.gone, s.compared, s.operation_revision) <>
			(o.uid, o.sync, o.health, o.synced_revision, o.operation_phase, o.operation_id, o.operation_error, o.message, o.resources, o.gone, o.compared, o.operation_revision))
		RETURNING s.engine, s.kind, s.name, s.tenant, s.sync, s.health)` + sqlEvents + `min(sync) || ', ' || min(health)` + sqlEventsEnd

// sqlBeginStatus inserts a first status row for objects that are observed before their
// acknowledgement.
const sqlBeginStatus = `
	INSERT INTO status (engine, kind, name, tenant)
	SELECT d.engine, d.kind, d.name, d.tenant
	FROM (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) AS o (engine, kind, name)
		WHERE NOT EXISTS (SELECT FROM status s WHERE s.engine = o.engine AND s.kind = o.kind AND s.name = o.name)) o
	JOIN desired d ON d.engine = o.engine AND d.kind = o.kind AND d.name = o.name
	ON CONFLICT DO NOTHING`

func observationColumns(seen []mirror.Observation) []any {
	of := func(value func(mirror.Observation) string) []string {
		return column(seen, func(o mirror.Observation) string { return message(value(o)) })
	}
	return append(objectColumns(column(seen, func(o mirror.Observation) fleet.ObjectKey {
		return o.Key
	})),
		of(func(o mirror.Observation) string { return o.UID }),
		of(syncWord), of(healthWord),
		of(func(o mirror.Observation) string { return o.SyncedRevision }),
		of(func(o mirror.Observation) string { return o.OperationPhase }),
		of(func(o mirror.Observation) string { return o.OperationID }),
		of(func(o mirror.Observation) string { return o.OperationError }),
		of(func(o mirror.Observation) string { return o.Message }),
		column(seen, func(o mirror.Observation) int32 { return int32(o.Resources) }),
		column(seen, func(o mirror.Observation) *time.Time { return moment(o.ReconciledAt) }),
		of(func(o mirror.Observation) string { return o.ResourceVersion }),
		column(seen, func(o mirror.Observation) bool { return o.Deleted }),
		of(func(o mirror.Observation) string { return o.Compared }),
		of(func(o mirror.Observation) string { return o.OperationRevision }))
}

// A deleted object is neither in sync nor healthy, whatever its last report.
func syncWord(o mirror.Observation) string {
	if o.Deleted || o.Sync == "" {
		return string(mirror.SyncUnknown)
	}
	return string(o.Sync)
}

func healthWord(o mirror.Observation) string {
	switch {
	case o.Deleted:
		return string(mirror.HealthMissing)
	case o.Health == "":
		return string(mirror.HealthUnknown)
	}
	return string(o.Health)
}

// ReportEngine records the state of an engine. A report without news writes nothing.
// mirror.ErrFenced when the lease has passed on.
func (s *Work) ReportEngine(ctx context.Context, lease mirror.Lease,
	report mirror.EngineReport) error {
	engine, err := leasedEngine(lease, []mirror.EngineReport{report},
		func(r mirror.EngineReport) fleet.ObjectKey {
			return fleet.ObjectKey{Engine: r.Engine, Name: "the report"}
		})
	if err != nil {
		return err
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		b.Queue(`
			WITH changed AS (
				INSERT INTO engines AS e (engine, reachable, message, argocd, unfit, since, work, work_message, work_since) VALUES ($1, $2, $3, $4, $5, now(), $6, $7, $8)
				ON CONFLICT (engine) DO UPDATE SET reachable = excluded.reachable, message = excluded.message, unfit = excluded.unfit,
					argocd = CASE WHEN excluded.argocd = '' THEN e.argocd ELSE excluded.argocd END,
					since = CASE WHEN e.reachable = excluded.reachable THEN e.since ELSE now() END, work = CASE WHEN excluded.work_since IS NULL THEN e.work ELSE excluded.work END,
					work_message = CASE WHEN excluded.work_since IS NULL THEN e.work_message ELSE excluded.work_message END, work_since = coalesce(excluded.work_since, e.work_since)
				WHERE (e.reachable, e.message, e.unfit) <> (excluded.reachable, excluded.message, excluded.unfit) OR excluded.work_since IS NOT NULL AND excluded.work <> e.work OR excluded.argocd NOT IN ('', e.argocd)
				RETURNING *)
			SELECT new_event('engine', '', engine, CASE WHEN NOT reachable THEN 'not reachable' WHEN work IN ('', 'Working') THEN 'reachable' ELSE 'does not work: ' || work END) FROM changed`,
			append([]any{string(engine), report.Reachable, message(report.Message),
				message(report.ArgoCD), message(report.Unfit)}, workArgs(report.Work)...)...)
		queueLoad(b, engine, report.Load)
	})
	return wrap(err, "report of engine %s", engine)
}

// queueLoad stores a measured load, which is no event. Without one, the last one stays and ages. So
// do the figures of the last one if the report has none, as the first one of a new worker.
func queueLoad(b *pgx.Batch, engine fleet.EngineName, load *mirror.Load) {
	if load == nil {
		return
	}
	l := load.Sane()
	l.At, l.Message = l.At.UTC().Truncate(time.Millisecond), message(l.Message)
	measured := l.Controller != nil || l.RepoServer != nil
	b.Queue(`
		UPDATE engines SET load = next FROM (SELECT engine AS of, CASE WHEN $3 OR load IS NULL THEN $2 ELSE load || jsonb_build_object('message', $4::text) END AS next FROM engines) n
		WHERE engine = $1 AND of = engine AND load IS DISTINCT FROM next`,
		string(engine), &l, measured, l.Message)
}

// workArgs are the columns of an engine's work.
func workArgs(w mirror.Work) []any {
	var since *time.Time
	if !w.Since.IsZero() {
		since = &w.Since
	}
	return []any{text(string(w.State)), message(w.Message), since}
}

// SetCursor stores the number up to which a worker has read its rows. It never decreases.
// mirror.ErrFenced when the lease has passed on.
func (s *Work) SetCursor(ctx context.Context, lease mirror.Lease, cursor int64) error {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return err
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		b.Queue(`
			INSERT INTO engines AS e (engine, cursor) VALUES ($1, $2)
			ON CONFLICT (engine) DO UPDATE SET cursor = excluded.cursor WHERE e.cursor < excluded.cursor`, string(engine), cursor)
	})
	return wrap(err, "cursor of engine %s", engine)
}

// Cursor is the latest number of SetCursor, or 0. The rows up to it were read, not necessarily
// acknowledged.
func (s *Work) Cursor(ctx context.Context, engine fleet.EngineName) (int64, error) {
	var cursor int64
	err := s.again(ctx, func() error {
		return s.work.QueryRow(ctx, `SELECT cursor FROM engines WHERE engine = $1`,
			string(engine)).Scan(&cursor)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return cursor, wrap(err, "cursor of engine %s", engine)
}

// EngineSpecs returns the declared engines, undeclared ones that still have rows to delete, and
// forgotten ones with unproven objects: one that returns is frozen. Another declared engine with
// the same installationID may be the same Argo CD, which has one worker only. Their remedies are
// those in effect.
func (s *Plans) EngineSpecs(ctx context.Context) (map[fleet.EngineName]fleet.EngineSpec, error) {
	type named struct {
		name fleet.EngineName
		spec fleet.EngineSpec
	}
	var defaults fleet.FleetRemedies
	all, err := collect(ctx, s.database, func(row pgx.CollectableRow) (named, error) {
		var n named
		var fleetWide *fleet.FleetRemedies
		err := row.Scan(&n.name, &n.spec, &fleetWide)
		if fleetWide != nil {
			defaults = *fleetWide
		}
		return n, err
	}, `
		SELECT e.engine, e.spec, (SELECT d.body #> '{fleet,remedies}' FROM declarations d WHERE d.kind = 'Fleet' AND d.tenant = '' LIMIT 1)
		FROM engines e
		WHERE e.spec IS NOT NULL AND (
			EXISTS (SELECT FROM declarations d WHERE d.kind = 'Engine' AND d.tenant = '' AND d.name = e.engine) OR
			EXISTS (SELECT FROM desired d WHERE d.engine = e.engine) OR
			EXISTS (SELECT FROM unproven u WHERE u.lost = 'Engine' AND u.engine = e.engine) AND NOT EXISTS (
				SELECT FROM declarations d WHERE d.kind = 'Engine' AND d.tenant = ''
					AND d.body #>> '{engine,argocd,installationID}' = e.spec #>> '{argocd,installationID}'))`)
	specs := make(map[fleet.EngineName]fleet.EngineSpec, len(all))
	for _, n := range all {
		remedies := defaults.Of(n.spec.Remedies)
		n.spec.Remedies = &remedies
		specs[n.name] = n.spec
	}
	return specs, wrap(err, "engines")
}

// PendingSyncs returns the engine's requested syncs that have not ended, oldest first.
func (s *Work) PendingSyncs(ctx context.Context, engine fleet.EngineName) ([]mirror.SyncRequest,
	error) {
	all, err := collect(ctx, s.database, scanSync, sqlOpenSyncs+` ORDER BY operation`,
		string(engine))
	return all, wrap(err, "syncs of engine %s", engine)
}

const sqlOpenSyncs = `
	SELECT id, engine, namespace, name, tenant, environment, deployment, sync_run, revision, prune, state, message
	FROM syncs WHERE engine = $1 AND state IN ('Pending', 'Running')`

func scanSync(row pgx.CollectableRow) (mirror.SyncRequest, error) {
	q := mirror.SyncRequest{Key: fleet.ObjectKey{Kind: fleet.ObjectApplication}}
	err := row.Scan(&q.ID, &q.Key.Engine, &q.Namespace, &q.Key.Name, &q.Tenant, &q.Environment,
		&q.Deployment, &q.SyncRun, &q.Revision, &q.Prune, &q.State, &q.Message)
	return q, err
}

// UpdateSync records the state of a sync of the lease's engine, and of its operation. An ended sync
// stays unchanged. mirror.ErrFenced when the lease has passed on.
func (s *Work) UpdateSync(ctx context.Context, lease mirror.Lease, id string,
	state mirror.OperationState, text string) error {
	engine, err := leasedEngine[struct{}](lease, nil, nil)
	if err != nil {
		return err
	}
	if !state.OfEngine() {
		return fmt.Errorf("sync %s: %q is no state of a sync", id, state)
	}
	err = s.atomically(ctx, func(b *pgx.Batch) {
		fenceEngine(b, lease)
		b.Queue(`
			WITH changed AS (
				UPDATE syncs SET state = $3, message = $4
				WHERE id = $1 AND engine = $2 AND state IN ('Pending', 'Running') AND (state, message) <> ($3, $4)
				RETURNING operation, tenant, CASE deployment WHEN '' THEN environment || ': ' || namespace || '/' || name ELSE deployment || '@' || environment END AS what),
			told AS (
				UPDATE operations o SET state = $3, message = CASE WHEN $4 = '' THEN o.message ELSE $4 END,
					done = CASE WHEN $3 = 'Succeeded' THEN o.total ELSE o.done END,
					ended_at = CASE WHEN $3 IN ('Succeeded', 'Failed') THEN now() END
				FROM changed c WHERE o.id = c.operation),
			acted AS (
				UPDATE actions a SET state = $3, message = $4, begun_at = coalesce(a.begun_at, now()),
					ended_at = CASE WHEN $3 IN ('Succeeded', 'Failed') THEN now() END
				FROM changed c WHERE a.id = c.operation AND a.ended_at IS NULL)
			SELECT new_event('operation', tenant, operation, 'sync of ' || tenant || '/' || what || ': ' || $3) FROM changed`,
			id, string(engine), string(state), message(text))
	})
	return wrap(err, "sync %s", id)
}
