package stack

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Standby is a PostgreSQL server that streams what its primary commits, without
// the primary waiting for it. Paused, it falls behind; promoted, it is a primary
// that never saw what it had not received: a fail-over that lost its tail.
type Standby struct {
	*Postgres
	primary *Postgres
	wal     *Outlet // between the two
}

// StartStandby copies a server that was started with PostgresOptions.Replicated
// and follows it. dir is as StartPostgres's.
func (p *Postgres) StartStandby(ctx context.Context, dir string) (*Standby, error) {
	if !p.options.Replicated {
		return nil,
			errors.New("standby: its primary was not started with PostgresOptions.Replicated")
	}
	primary, err := url.Parse(p.URL)
	if err != nil {
		return nil, err
	}
	wal, err := (*Firewall)(nil).Outlet("127.0.0.1:0", nil, primary.Host)
	if err != nil {
		return nil, fmt.Errorf("standby: %w", err)
	}
	o := p.options
	o.Dir = dir
	s := &Standby{Postgres: &Postgres{options: o, templates: map[string]bool{}}, primary: p,
		wal: wal}
	err = s.start(ctx, func(ctx context.Context, bin, home string, cred *syscall.Credential) (
		string, error) {
		return s.copyPrimary(ctx, bin, home, cred)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("standby: %w", err), s.Stop())
	}
	return s, nil
}

// copyPrimary fills the folder with a base backup that streams from the primary.
func (s *Standby) copyPrimary(ctx context.Context, bin, home string,
	cred *syscall.Credential) (string, error) {
	from, err := url.Parse(s.primary.URL)
	if err != nil {
		return "", err
	}
	from.Host = s.wal.Address
	password, _ := from.User.Password()
	passwordFile := filepath.Join(home, "password")
	if err := os.WriteFile(passwordFile, []byte(password), 0o600); err != nil {
		return "", err
	}
	if err := give(cred, passwordFile); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "pg_basebackup"), "--dbname="+from.String(),
		"--pgdata="+filepath.Join(home, "data"), "--wal-method=stream", "--checkpoint=fast",
		"--write-recovery-conf", "--no-sync")
	cmd.Dir, cmd.Env = home, postgresEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	return password, nil
}

// Pause lets nothing more reach the standby: what the primary commits from now
// on is its tail. (Pausing the replay alone would not do: a promotion replays
// all that was received.)
func (s *Standby) Pause() { s.wal.Block(true) }

// Resume lets the standby catch up.
func (s *Standby) Resume() { s.wal.Block(false) }

// CaughtUp waits until the standby has all that the primary has committed.
func (s *Standby) CaughtUp(ctx context.Context) error {
	at, err := scalar[string](ctx, s.primary.URL, "SELECT pg_current_wal_insert_lsn()::text")
	if err != nil {
		return err
	}
	return s.until(ctx, "SELECT coalesce(pg_last_wal_replay_lsn() >= '"+at+"', false)")
}

// Promote makes the standby a primary, whether or not its own still runs, and
// waits until it takes writes.
func (s *Standby) Promote(ctx context.Context) error {
	s.wal.Block(true)
	if err := s.exec(ctx, "SELECT pg_promote(false)"); err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	return s.until(ctx, "SELECT NOT pg_is_in_recovery()")
}

// Stop ends the server and removes its folders.
func (s *Standby) Stop() error {
	s.wal.Close()
	return s.Postgres.Stop()
}

// until polls a question of the standby until it is answered with yes.
func (s *Standby) until(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		yes, err := scalar[bool](ctx, s.URL, sql)
		if err == nil && yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return s.failure(fmt.Errorf("%s: %w (%w)", sql, err, ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func scalar[T any](ctx context.Context, url, sql string) (value T, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return value, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, sql).Scan(&value)
	return value, err
}

// Address is the server's HOST:PORT, for an Outlet in front of it.
func (p *Postgres) Address() string {
	u, err := url.Parse(p.URL)
	if err != nil {
		panic(err) // we wrote it
	}
	return u.Host
}

// Through is DatabaseURL by way of an Outlet: with Outlet.Switch a fail-over
// behind one address.
func (p *Postgres) Through(o *Outlet, name string) string {
	u, err := url.Parse(p.DatabaseURL(name))
	if err != nil {
		panic(err) // we wrote it
	}
	u.Host = o.Address
	return u.String()
}
