//go:build !linux

package postgres

import "syscall"

// userTimeout is left to the system where TCP_USER_TIMEOUT is not known; keepalives and deadlines
// remain.
func userTimeout(_, _ string, _ syscall.RawConn) error { return nil }
