package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// rowColumns are the columns that scanRow reads, of desired d and status s.
const rowColumns = `d.engine, d.kind, d.name, d.tenant, d.environment, d.deployment, d.credential_tenant, d.credential_name, d.credential_sealed,
	d.body, d.hash, d.deletion, d.absent, d.revision, d.seq, CASE WHEN s.seq = d.seq THEN s.state ELSE 'Pending' END, d.uid,
	(SELECT incarnation())`

const fromRows = ` FROM desired d LEFT JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name `

func scanRow(rows pgx.CollectableRow) (mirror.Row, error) {
	var row mirror.Row
	var tenant, name, sealed *string
	err := rows.Scan(&row.Key.Engine, &row.Key.Kind, &row.Key.Name, &row.Tenant, &row.Environment,
		&row.Deployment, &tenant, &name, &sealed,
		&row.Manifest.Body, &row.Manifest.Hash, &row.Deletion, &row.Unwanted, &row.Revision, &row.Seq,
		&row.Apply, &row.UID, &row.Life)
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
	ctx = patient(ctx, tourPatience)
	rows, err := s.work.Query(ctx, `
		SELECT d.kind, d.name, d.hash, d.absent, d.credential_name IS NOT NULL, d.seq,
			CASE WHEN s.seq = d.seq THEN s.state ELSE 'Pending' END, (SELECT incarnation())`+fromRows+`
		WHERE d.engine = $1 ORDER BY d.seq`, string(engine))
	if err != nil {
		return fmt.Errorf("rows of engine %s: %w", engine, plain(err))
	}
	h := mirror.RowHead{Key: fleet.ObjectKey{Engine: engine}}
	into := []any{&h.Key.Kind, &h.Key.Name, &h.Hash, &h.Unwanted, &h.Credential, &h.Seq, &h.Apply,
		&h.Life}
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
func (s *Work) LeasedRow(ctx context.Context, l mirror.Lease, key fleet.ObjectKey) (mirror.Row, bool,
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
