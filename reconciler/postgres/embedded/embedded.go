//go:build unix

// Package embedded runs a PostgreSQL server of the machine as a child process, for a laptop or a
// trial: `database: {embedded: DIR}`.
//
// Its rules:
//   - the server never runs as root: for root it runs as the user `postgres`, or `nobody`;
//   - it listens on a Unix socket only, in a folder that only its user may enter, and requires a
//     random password besides;
//   - everything is in DIR, which the next start opens again; two processes never open one DIR;
//   - it ends with the process that started it, and the next start ends the remains of a killed
//     one.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options of a server. The zero value is for use.
type Options struct {
	Set []string // further settings, as "shared_buffers=1GB"
}

// Server is a running PostgreSQL.
type Server struct {
	// URL is the database for Argosy. It holds the password.
	URL string

	dir    string
	lock   *os.File
	socket string // its folder, when that is not within dir
	child  *child
}

const (
	role     = "argosy"
	database = "argosy"

	// maxSocket is how many bytes the path of a socket's folder may have: the whole path has at
	// most 107, its name takes 14.
	maxSocket = 90

	startTimeout = 60 * time.Second // crash recovery after a power cut included
	stopTimeout  = 30 * time.Second
)

// Start creates a database cluster in dir, or opens the existing one, and returns when the server
// answers. It creates dir if it is missing.
func Start(ctx context.Context, dir string) (*Server, error) {
	return StartWith(ctx, dir, Options{})
}

// StartWith is Start with options.
func StartWith(ctx context.Context, dir string, o Options) (_ *Server, err error) {
	s := &Server{}
	defer func() {
		if err != nil {
			err = fmt.Errorf("embedded database in %s: %w", dir, errors.Join(err, s.Stop()))
		}
	}()
	who, err := serverUser()
	if err != nil {
		return nil, err
	}
	if s.dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err := s.claim(who); err != nil {
		return nil, err
	}
	bin, err := find(s.dir)
	if err != nil {
		return nil, err
	}
	password, err := s.initialise(ctx, bin, who)
	if err != nil {
		return nil, err
	}
	if err := s.openSocket(who); err != nil {
		return nil, err
	}
	if s.child, err = start(exec.CommandContext(context.WithoutCancel(ctx),
		filepath.Join(bin, "postgres"), s.arguments(o)...), who, s.logFile()); err != nil {
		return nil, err
	}
	return s, s.ready(ctx, password)
}

// claim makes dir and takes it for this process, and ends a server that a killed process left in
// it.
func (s *Server) claim(who *syscall.Credential) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	if err := passable(who, s.dir); err != nil {
		return err
	}
	// the server's user passes through to what is its own; the folder itself stays root's
	if who != nil {
		if err := os.Chmod(s.dir, 0o711); err != nil {
			return err
		}
	}
	lock, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return errors.New(
			"another process has it open; end that one, or give this one a folder of its own")
	}
	s.lock = lock
	return endOrphan(filepath.Join(s.dir, "data", "postmaster.pid"))
}

func (s *Server) openSocket(who *syscall.Credential) error {
	dir := filepath.Join(s.dir, "socket")
	if len(dir) > maxSocket {
		temporary, err := os.MkdirTemp("", "argosy-pg-")
		if err != nil {
			return err
		}
		dir, s.socket = temporary, temporary
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return give(who, dir)
}

func (s *Server) socketDir() string {
	if s.socket != "" {
		return s.socket
	}
	return filepath.Join(s.dir, "socket")
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "postgres.log") }

func (s *Server) arguments(o Options) []string {
	args := []string{"-D", filepath.Join(s.dir, "data")}
	settings := append([]string{"listen_addresses=", "unix_socket_directories=" + s.socketDir(),
		"unix_socket_permissions=0700",
		"max_connections=50", "timezone=UTC", "logging_collector=off"}, o.Set...)
	for _, set := range settings {
		args = append(args, "-c", set)
	}
	return args
}

// ready waits until the server answers, and makes the database.
func (s *Server) ready(ctx context.Context, password string) error {
	address := func(db string) string {
		u := url.URL{Scheme: "postgres", User: url.UserPassword(role, password), Path: "/" + db,
			RawQuery: url.Values{"host": {s.socketDir()}}.Encode()}
		return u.String()
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	conn, err := s.connect(ctx, address("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var there bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`,
		database).Scan(&there); err != nil {
		return err
	}
	if !there {
		if _, err := conn.Exec(ctx, `CREATE DATABASE `+database); err != nil {
			return err
		}
	}
	s.URL = address(database)
	return nil
}

func (s *Server) connect(ctx context.Context, address string) (*pgx.Conn, error) {
	for {
		conn, err := pgx.Connect(ctx, address)
		if err == nil {
			return conn, nil
		}
		timer := time.NewTimer(20 * time.Millisecond)
		select {
		case <-s.child.done:
			timer.Stop()
			return nil, fmt.Errorf("PostgreSQL ended (%w): %s; all of it is in %s", s.child.err,
				tail(s.logFile()), s.logFile())
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("PostgreSQL does not answer: %w; see %s", err, s.logFile())
		case <-timer.C:
		}
	}
}

// Done is closed when the server has ended, by Stop or by itself.
func (s *Server) Done() <-chan struct{} { return s.child.done }

// Stop ends the server, its connections included, and gives DIR free. It may be called more than
// once.
func (s *Server) Stop() error {
	var err error
	if s.child != nil {
		err = s.child.stop()
	}
	if s.socket != "" {
		err = errors.Join(err, os.RemoveAll(s.socket))
	}
	if s.lock != nil {
		s.lock.Close()
	}
	return err
}

// tail is the last line of a log.
func tail(file string) string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return lines[len(lines)-1]
}
