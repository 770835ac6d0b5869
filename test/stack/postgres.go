package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// Postgres is a running PostgreSQL server of its own, with one superuser.
type Postgres struct {
	// URL is the maintenance database by TCP on loopback, password included.
	URL string
	// SocketURL is the same by Unix socket.
	SocketURL string
	*Process

	options        PostgresOptions
	command        Command
	folder, socket folder

	mu        sync.Mutex
	templates map[string]bool // filled
}

// PostgresOptions is for those who measure. The zero value is for tests.
type PostgresOptions struct {
	Dir     string   // of the cluster's files; a temporary folder when empty
	Durable bool     // fsync, full_page_writes and synchronous_commit as shipped
	Set     []string // further settings, as "shared_buffers=1GB"

	Replicated bool // standbys can stream from it: see StartStandby
}

// StartPostgres makes or re-opens a database cluster in dir, a temporary folder when empty, and
// starts a server that is quick and not crash-safe. PostgreSQL never runs as root: a root caller's
// server runs as the user `postgres` or `nobody`, which may traverse the folders above dir if they
// are the caller's and below the temporary folder.
func StartPostgres(ctx context.Context, dir string) (*Postgres, error) {
	return StartPostgresWith(ctx, PostgresOptions{Dir: dir})
}

// StartPostgresWith is StartPostgres with options.
func StartPostgresWith(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	p := &Postgres{options: o, templates: map[string]bool{}}
	if err := p.start(ctx, initCluster); err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: %w", err), p.Stop())
	}
	return p, nil
}

// fill makes the files of a database cluster below home, unless they are there,
// and returns the superuser's password.
type fill func(ctx context.Context, bin, home string, cred *syscall.Credential) (string, error)

func (p *Postgres) start(ctx context.Context, files fill) error {
	o := p.options
	bin, err := postgresBin()
	if err != nil {
		return err
	}
	cred, err := postgresUser()
	if err != nil {
		return err
	}
	if p.folder, err = openFolder(o.Dir, "pg"); err != nil {
		return err
	}
	if err := passable(cred, filepath.Join(bin, "postgres")); err != nil {
		return err
	}
	// A socket's path has at most 107 bytes, so it never goes below dir.
	if p.socket, err = scratch("pgs"); err != nil {
		return err
	}
	home := filepath.Join(p.folder.path, "pg")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	if err := give(cred, home, p.socket.path); err != nil {
		return err
	}
	if err := passable(cred, home); err != nil {
		return err
	}
	password, err := files(ctx, bin, home, cred)
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	p.command = Command{
		Name: "postgres", Path: filepath.Join(bin, "postgres"), User: cred,
		Args: o.arguments(filepath.Join(home, "data"), p.socket.path, port),
		Dir:  home, Log: filepath.Join(p.folder.path, "postgres.log"), Env: postgresEnv(),
		// A fast shutdown; SIGTERM would wait for every client to leave.
		StopSignal: syscall.SIGINT, DeathSignal: syscall.SIGINT,
	}
	if p.Process, err = StartProcess(p.command); err != nil {
		return err
	}
	p.URL = (&url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/postgres",
		RawQuery: "sslmode=disable",
	}).String()
	p.SocketURL = fmt.Sprintf("postgres://%s@/postgres?host=%s&port=%d", superuser,
		url.QueryEscape(p.socket.path), port)
	return p.Await(ctx, func(ctx context.Context) error { return p.exec(ctx, "SELECT 1") })
}

const superuser = "argosy"

func (o PostgresOptions) arguments(data, socket string, port int) []string {
	set := []string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(port), "unix_socket_directories=" +
			socket,
		"max_connections=200", "shared_buffers=128MB", "timezone=UTC", "logging_collector=off",
	}
	if !o.Durable {
		set = append(set, "fsync=off", "full_page_writes=off", "synchronous_commit=off")
	}
	switch {
	case o.Replicated:
		set = append(set, "wal_level=replica", "max_wal_senders=8", "wal_keep_size=256MB",
			"wal_retrieve_retry_interval=100ms")
	case !o.Durable:
		set = append(set, "wal_level=minimal", "max_wal_senders=0")
	}
	args := []string{"-D", data}
	for _, s := range append(set, o.Set...) {
		args = append(args, "-c", s)
	}
	return args
}

// Again starts the server again after its process was stopped, over the same files and at the same
// address. It does not wait until the server answers.
func (p *Postgres) Again() (err error) {
	p.Process, err = StartProcess(p.command)
	return err
}

// Stop ends the server and removes the folders that StartPostgres made.
func (p *Postgres) Stop() error {
	p.Process.Stop()
	return errors.Join(p.socket.remove(), p.folder.remove())
}

// NewDatabase makes an empty database and returns its URL.
func (p *Postgres) NewDatabase(ctx context.Context, name string) (string, error) {
	return p.NewDatabaseFrom(ctx, "template0", name)
}

// NewDatabaseFrom makes a database as a copy of a template that Template made:
// some 30 ms, whatever the number of migrations.
func (p *Postgres) NewDatabaseFrom(ctx context.Context, template, name string) (string, error) {
	err := p.exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE "+
		pgx.Identifier{template}.Sanitize())
	if err != nil {
		return "", fmt.Errorf("database %s: %w", name, err)
	}
	return p.DatabaseURL(name), nil
}

// Template makes a database once and fills it, for NewDatabaseFrom to copy.
// fill must have closed its connections when it returns. Further calls with the
// same name wait for the first and do nothing; after a failure, the next tries
// again.
func (p *Postgres) Template(ctx context.Context, name string,
	fill func(ctx context.Context, url string) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.templates[name] {
		return nil
	}
	url, err := p.NewDatabase(ctx, name)
	if err != nil {
		return err
	}
	if err := fill(ctx, url); err != nil {
		return errors.Join(fmt.Errorf("template database %s: %w", name, err),
			p.DropDatabase(ctx, name))
	}
	p.templates[name] = true
	return nil
}

// DropDatabase removes a database and ends its connections.
func (p *Postgres) DropDatabase(ctx context.Context, name string) error {
	return p.exec(ctx, "DROP DATABASE "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
}

// DatabaseURL is the URL of a database of this server, by TCP.
func (p *Postgres) DatabaseURL(name string) string {
	u, err := url.Parse(p.URL)
	if err != nil {
		panic(err) // we wrote it
	}
	u.Path = "/" + name
	return u.String()
}

func (p *Postgres) exec(ctx context.Context, sql string) error { return ExecSQL(ctx, p.URL, sql) }

// ExecSQL runs one statement on a connection of its own, as a person with psql does.
func ExecSQL(ctx context.Context, url, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql, args...)
	return err
}
