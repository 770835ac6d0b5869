package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/test/stack"
)

// logBuffer is a log for concurrent readers.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *logBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *logBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// over is the settings of a replica over a database.
func over(t *testing.T, database string) (s settings.Settings, ops string) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ops = free.Addr().String()
	_ = free.Close()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"),
		[]byte("bootstrap-token-of-this-test-and-no-other"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "argosy.yaml")
	text := fmt.Sprintf(
		"source: {url: \"http://127.0.0.1:1/config\", allowHTTP: true}\ndatabase: {url: "+
			"%q}\ndataDir: data\n"+
			"listen: {address: \"127.0.0.1:0\", ops: %q}\nbootstrapTokenFile: token\n", database,
		ops)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = settings.Load(file); err != nil {
		t.Fatal(err)
	}
	return s, ops
}

// newDatabase is an empty database of a PostgreSQL of the test's own, and its URL.
func newDatabase(t *testing.T) (p *stack.Postgres, address string) {
	t.Helper()
	p, err := stack.StartPostgres(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop() })
	if address, err = p.NewDatabase(t.Context(), "argosy"); err != nil {
		t.Fatal(err)
	}
	return p, address
}

func TestAStartWaitsForTheDatabase(t *testing.T) {
	p, address := newDatabase(t)
	p.Process.Stop()
	s, ops := over(t, address)
	log := &logBuffer{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		v, err := New(ctx, s, slog.New(slog.NewTextHandler(log, nil)), "test")
		if err == nil {
			err = v.Run(ctx)
		}
		ended <- err
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	until := func(what string, holds func() string) {
		t.Helper()
		deadline := time.Now().Add(5 * time.Minute)
		for why := holds(); why != ""; why = holds() {
			select {
			case err := <-ended:
				ended <- err
				t.Fatalf("%s: the replica has ended: %v", what, err)
			case <-time.After(20 * time.Millisecond):
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %s\n%s", what, why, log)
			}
		}
	}
	answers := func(path string, status int, text string) func() string {
		return func() string {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
				"http://"+ops+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				return err.Error()
			}
			defer answer.Body.Close()
			var body bytes.Buffer
			_, _ = body.ReadFrom(answer.Body)
			if answer.StatusCode != status || !strings.Contains(body.String(), text) {
				return fmt.Sprintf("%d %s", answer.StatusCode, &body)
			}
			return ""
		}
	}
	host := mustParse(t, address).Host
	until("it reports that it waits, and the reason",
		answers("/readyz", http.StatusServiceUnavailable,
			"waiting for the database: connection refused"))
	until("the process works", answers("/healthz", http.StatusOK, "ok"))
	until("the log names the host and the next step", func() string {
		if text := log.String(); !strings.Contains(text, "host="+host) ||
			!strings.Contains(text, "database.url") {
			return text
		}
		return ""
	})
	if why := answers("/readyz", http.StatusServiceUnavailable, host)(); why == "" {
		t.Error("a probe, which asks for no token, shows the database's address")
	}
	if err := p.Again(); err != nil {
		t.Fatal(err)
	}
	until("it serves once the database is there", answers("/readyz", http.StatusOK, "ready"))
}

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestAStartEndsForWhatNoWaitingHelps(t *testing.T) {
	_, address := newDatabase(t)
	wrong := func(change func(*url.URL)) string {
		u := mustParse(t, address)
		change(u)
		return u.String()
	}
	for name, c := range map[string]struct{ url, answer string }{
		"a wrong password": {
			wrong(func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), "wrong") }),
			"password"},
		"an unknown database": {wrong(func(u *url.URL) { u.Path = "/nowhere" }), "nowhere"},
		"no TLS":              {wrong(func(u *url.URL) { u.RawQuery = "sslmode=require" }), "TLS"},
		"TLS of another": {
			wrong(func(u *url.URL) { u.Host, u.RawQuery = tlsServer(t), "sslmode=verify-full" }),
			"certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := over(t, c.url)
			log := &logBuffer{}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			v, err := New(ctx, s, slog.New(slog.NewTextHandler(log, nil)), "test")
			if err == nil {
				v.Close()
			}
			if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), c.answer) ||
				strings.Contains(log.String(), "waiting") {
				t.Errorf("%v\n%s", err, log)
			}
		})
	}
}

// tlsServer accepts PostgreSQL's TLS with an untrusted certificate, and returns its address.
func tlsServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	config := &tls.Config{Certificates: []tls.Certificate{untrusted(t)},
		MinVersion: tls.VersionTLS12}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := conn.Read(make([]byte, 8)); err != nil { // the request for TLS
					return
				}
				if _, err := conn.Write([]byte("S")); err == nil {
					_ = tls.Server(conn, config).HandshakeContext(context.Background())
				}
			}()
		}
	}()
	return l.Addr().String()
}

func untrusted(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{
		net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
