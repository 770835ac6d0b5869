package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Awaited reports whether an error means that the database is not available yet: it is down,
// starting, stopping, or a standby that may be promoted. why is the class of the reason, without an
// address. Waiting does not help against a refused password, a missing database or a failed TLS
// handshake.
func Awaited(err error) (why string, ok bool) {
	var said *pgconn.PgError
	if errors.As(err, &said) {
		return awaitedCode(said.Code)
	}
	var dns *net.DNSError
	var network *net.OpError
	errors.As(err, &network)
	switch {
	case errors.Is(err, ErrReadOnly):
		return "it is read-only", true
	case errors.As(err, &dns):
		return "its name is not found", true
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT) && network != nil:
		return "connection refused", true
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to it", true
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF):
		return "connection lost", true
	case errors.Is(err, context.DeadlineExceeded), network != nil && network.Timeout():
		return "no answer", true
	}
	return "", false
}

func awaitedCode(code string) (string, bool) {
	switch code {
	case "57P01", "57P02", "57P03":
		return "it starts or stops", true
	case "53300":
		return "it has no connection left", true
	case codeReadOnly:
		return "it is read-only", true
	}
	if len(code) == 5 && code[:2] == "08" {
		return "connection lost", true
	}
	return "", false
}

// Host is the host:port of a database URL; "" if the URL cannot be parsed.
func Host(url string) string {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return ""
	}
	network, address := pgconn.NetworkAddress(config.ConnConfig.Host, config.ConnConfig.Port)
	if network == "unix" {
		return "unix:" + address
	}
	return address
}
