package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// wire is the floor of one change: from a row's commit to its bytes at the other end of a TLS
// connection, by the plainest means.
type wire struct {
	writer, listener *pgx.Conn
	body             string
	arrived          chan time.Time
	out, in          net.Conn
	errs             chan error
}

func newWire(ctx context.Context, g *ground, m *fixture) (_ *wire, err error) {
	row, err := m.application(environment(0), 0, first)
	if err != nil {
		return nil, err
	}
	w := &wire{body: string(row.Manifest.Body), arrived: make(chan time.Time, 1),
		errs: make(chan error, 2)}
	for _, conn := range []**pgx.Conn{&w.writer, &w.listener} {
		if *conn, err = pgx.Connect(ctx, m.url); err != nil {
			return nil, err
		}
	}
	for _, sql := range []string{`CREATE TABLE wanted (name text PRIMARY KEY, body text NOT NULL)`,
		`INSERT INTO wanted VALUES ('a', '')`} {
		if _, err := w.writer.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	if _, err := w.listener.Exec(ctx, `LISTEN floor`); err != nil {
		return nil, err
	}
	if err := w.connect(g); err != nil {
		return nil, err
	}
	go func() { w.errs <- w.pass(ctx) }()
	go func() { w.errs <- w.read() }()
	return w, nil
}

// connect opens the TLS connection.
func (w *wire) connect(g *ground) error {
	pair, err := tls.LoadX509KeyPair(g.cert, g.key)
	if err != nil {
		return err
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair},
		MinVersion: tls.VersionTLS13})
	if err != nil {
		return err
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			w.out = conn
			err = conn.(*tls.Conn).Handshake()
		}
		accepted <- err
	}()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(g.ca)
	w.in, err = tls.Dial("tcp", l.Addr().String(), &tls.Config{
		RootCAs: roots, MinVersion: tls.VersionTLS13})
	return errors.Join(err, <-accepted)
}

// pass writes the row for each notification.
func (w *wire) pass(ctx context.Context) error {
	for {
		if _, err := w.listener.WaitForNotification(ctx); err != nil {
			return err
		}
		var body string
		if err := w.listener.QueryRow(ctx, `SELECT body FROM wanted WHERE name = 'a'`).Scan(
			&body); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w.out, body); err != nil {
			return err
		}
	}
}

func (w *wire) read() error {
	lines := bufio.NewReader(w.in)
	for {
		if _, err := lines.ReadString('\n'); err != nil {
			return err
		}
		w.arrived <- time.Now()
	}
}

// one changes the row.
func (w *wire) one(ctx context.Context, n int) (time.Duration, error) {
	body := strings.ReplaceAll(w.body, first, fmt.Sprintf("v2.0.%d", n))
	if _, err := w.writer.Exec(ctx, `UPDATE wanted SET body = $1 WHERE name = 'a'`,
		body); err != nil {
		return 0, err
	}
	committed := time.Now()
	if _, err := w.writer.Exec(ctx, `NOTIFY floor`); err != nil {
		return 0, err
	}
	return arrival(ctx, committed, w.arrived)
}

// close ends the connections, and with them who reads from them.
func (w *wire) close(ctx context.Context) error {
	return errors.Join(w.writer.Close(ctx), w.out.Close(), w.in.Close())
}
