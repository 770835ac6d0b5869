//go:build !unix

// Package embedded runs a PostgreSQL server as a child process, on Unix only.
package embedded

import (
	"context"
	"errors"
)

// Options of a server.
type Options struct {
	Set []string
}

// Server is a running PostgreSQL.
type Server struct{ URL string }

// Start refuses: this system has no Unix sockets and users to keep a database apart with.
func Start(ctx context.Context, dir string) (*Server, error) {
	return StartWith(ctx, dir, Options{})
}

// StartWith refuses like Start.
func StartWith(context.Context, string, Options) (*Server, error) {
	return nil, errors.New("an embedded database runs on Unix only: give database.url")
}

// Done is never closed.
func (*Server) Done() <-chan struct{} { return nil }

// Stop has nothing to end.
func (*Server) Stop() error { return nil }
