package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var embedded embed.FS

// ErrSchema means that the database's schema is older than this version requires.
var ErrSchema = errors.New("the database's schema is too old; run `argosy migrate`")

// Migrate brings the database of url to the schema of this version, or leaves a newer one
// unchanged: our own tables, then River's. Several replicas may call it at once: one migrates, the
// others wait. Migrations only add, so that the previous version keeps working. An index whose
// creation was interrupted is created again. It waits only some seconds for a lock that the running
// control plane holds: then it fails, and may be run again. It returns the version of the schema.
func Migrate(ctx context.Context, url string) (version int64, err error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return 0,
			errors.New(
				"database: the URL cannot be read; write " +
					"postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	prepareConn(config.ConnConfig, "argosy migrate")
	config.ConnConfig.RuntimeParams["statement_timeout"] = "0"
	config.MaxConns = migrateConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return 0, fmt.Errorf("migrate: %w", err)
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	if err := makeSchema(ctx, db); err != nil {
		return 0, fmt.Errorf("migrate: %w", err)
	}
	err = alone(ctx, db, func() error {
		if version, err = migrateOwn(ctx, db); err != nil {
			return withHint(err)
		}
		if err := migrateRiver(ctx, pool); err != nil {
			return err
		}
		return repairIndexes(ctx, db)
	})
	return version, wrap(err, "migrate")
}

// migrateConns is one connection for the lock, and two for the work under it.
const migrateConns = 3

// alone calls f while no other replica migrates.
func alone(ctx context.Context, db *sql.DB, f func() error) error {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(0x4172676f7379),
		lock.WithLockTimeout(1, 60))
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := locker.SessionLock(ctx, conn); err != nil {
		return err
	}
	return errors.Join(f(), locker.SessionUnlock(context.WithoutCancel(ctx), conn))
}

func migrateOwn(ctx context.Context, db *sql.DB) (int64, error) {
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		return 0, err
	}
	// Changes that are developed side by side add their migrations in any order. Each is additive.
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithAllowOutofOrder(true))
	if err != nil {
		return 0, err
	}
	if _, err := provider.Up(ctx); err != nil {
		return 0, err
	}
	return provider.GetDBVersion(ctx)
}

func makeSchema(ctx context.Context, db *sql.DB) error {
	var there bool
	if err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`,
		schema).Scan(&there); err != nil || there {
		return err
	}
	_, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS `+schema)
	var e *pgconn.PgError
	// another replica was faster
	if errors.As(err, &e) && (e.Code == "23505" || e.Code == "42P06") {
		return nil
	}
	return err
}

// repairIndexes creates indexes again that an interrupted CREATE INDEX CONCURRENTLY left invalid:
// such an index costs writes and serves no read.
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
			return fmt.Errorf("create index %s again: %w", name, err)
		}
	}
	return nil
}

// leftover matches indexes that an interrupted REINDEX CONCURRENTLY leaves next to the one it was
// to replace.
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
	neededRiver, err := riverVersion()
	if err != nil {
		return err
	}
	var found, foundRiver int64
	err = s.work.QueryRow(ctx, `
		SELECT (SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied),
			(SELECT coalesce(max(version), 0) FROM river_migration WHERE line = 'main')`).Scan(&found, &foundRiver)
	var e *pgconn.PgError
	switch {
	// no such table, or River's without its column line
	case errors.As(err, &e) && (e.Code == "42P01" || e.Code == "42703"):
		return fmt.Errorf("database: %w", ErrSchema)
	case err != nil:
		return fmt.Errorf("database: %w", err)
	case found < needed || foundRiver < neededRiver:
		return fmt.Errorf("database: schema %d, needed %d; of River %d, needed %d: %w", found,
			needed, foundRiver, neededRiver, ErrSchema)
	}
	return nil
}

// withHint adds the database's hint.
func withHint(err error) error {
	var e *pgconn.PgError
	if errors.As(err, &e) && e.Hint != "" {
		return fmt.Errorf("%w (%s)", err, e.Hint)
	}
	return err
}
