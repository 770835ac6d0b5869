package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var embedded embed.FS

// ErrSchema says that the database's schema is older than this version needs.
var ErrSchema = errors.New("the database's schema is too old; run `argosy migrate`")

// Migrate brings the database that url names to the schema of this version, or leaves a newer one as it is. Several replicas may call it
// at once: one migrates, the others wait. Migrations only ever add, so that the version before works on; an index whose making was
// interrupted is made anew. It never waits longer than some seconds for a lock that the running control plane holds: it fails, and may
// be run again. It returns the version of the schema.
func Migrate(ctx context.Context, url string) (int64, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return 0, errors.New("database: the URL cannot be read; write postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	prepareConn(config, "argosy migrate")
	config.RuntimeParams["statement_timeout"] = "0"
	db := stdlib.OpenDB(*config)
	defer db.Close()
	if err := makeSchema(ctx, db); err != nil {
		return 0, fmt.Errorf("migrate: %w", err)
	}
	provider, err := newProvider(db)
	if err != nil {
		return 0, fmt.Errorf("migrate: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return 0, fmt.Errorf("migrate: %w", withHint(err))
	}
	if err := repairIndexes(ctx, db); err != nil {
		return 0, fmt.Errorf("migrate: %w", err)
	}
	return provider.GetDBVersion(ctx)
}

func makeSchema(ctx context.Context, db *sql.DB) error {
	var there bool
	if err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, schema).Scan(&there); err != nil || there {
		return err
	}
	_, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+schema)
	var e *pgconn.PgError
	if errors.As(err, &e) && (e.Code == "23505" || e.Code == "42P06") { // another replica was faster
		return nil
	}
	return err
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(0x4172676f7379), lock.WithLockTimeout(1, 60))
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
}

// repairIndexes makes anew what a CREATE INDEX CONCURRENTLY left unfinished when it was killed: such an index costs writes and serves no
// read.
func repairIndexes(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, `
		SELECT quote_ident(c.relname) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND NOT i.indisvalid`, schema)
	if err != nil {
		return err
	}
	defer rows.Close()
	var broken []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		broken = append(broken, name)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, name := range broken {
		repair := `REINDEX INDEX CONCURRENTLY ` + name
		if leftover.MatchString(name) {
			repair = `DROP INDEX CONCURRENTLY ` + name
		}
		if _, err := db.ExecContext(ctx, repair); err != nil {
			return fmt.Errorf("make index %s anew: %w", name, err)
		}
	}
	return nil
}

// leftover matches what an interrupted REINDEX CONCURRENTLY leaves beside the index that it was to replace.
var leftover = regexp.MustCompile(`_cc(new|old)\d*"?$`)

// schemaVersion is the newest migration of this binary.
func schemaVersion() (int64, error) {
	names, err := fs.Glob(embedded, "migrations/*.sql")
	if err != nil {
		return 0, err
	}
	var newest int64
	for _, name := range names {
		n, err := goose.NumericComponent(name)
		if err != nil {
			return 0, err
		}
		newest = max(newest, n)
	}
	return newest, nil
}

func (s *Store) checkVersion(ctx context.Context) error {
	needed, err := schemaVersion()
	if err != nil {
		return err
	}
	var found int64
	err = s.work.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`).Scan(&found)
	var e *pgconn.PgError
	switch {
	case errors.As(err, &e) && e.Code == "42P01":
		return fmt.Errorf("database: %w", ErrSchema)
	case err != nil:
		return fmt.Errorf("database: %w", err)
	case found < needed:
		return fmt.Errorf("database: schema %d, needed %d: %w", found, needed, ErrSchema)
	}
	return nil
}

// withHint adds what the database advises.
func withHint(err error) error {
	var e *pgconn.PgError
	if errors.As(err, &e) && e.Hint != "" {
		return fmt.Errorf("%w (%s)", err, e.Hint)
	}
	return err
}
