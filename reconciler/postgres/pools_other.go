//go:build !linux

package postgres

import "syscall"

// userTimeout does nothing without TCP_USER_TIMEOUT; keepalives and deadlines remain.
func userTimeout(_, _ string, _ syscall.RawConn) error { return nil }
