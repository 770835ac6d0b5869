package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
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
	if snap.Placements, err = loadJSON[fleet.Placement](ctx, tx,
		`SELECT body - 'alternatives' FROM placements ORDER BY tenant, environment`); err != nil {
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
