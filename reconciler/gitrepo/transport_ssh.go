package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// sshChannel runs git-upload-pack on the server over one connection, which ends with the fetch.
type sshChannel struct {
	command string
	session *ssh.Session
	client  *ssh.Client
	stop    func() bool
	meter   *meter
	stdin   io.WriteCloser
	stderr  lastWords
}

func dialSSH(ctx context.Context, loc location, auth Auth, m *meter) (*sshChannel, error) {
	key := auth.secret()
	if key.signer == nil {
		return nil,
			&Error{
				Kind:   ErrRefused,
				Detail: "an ssh source needs an ssh key and known_hosts as its credential"}
	}
	check, algorithms, err := hostKeys(key.knownHosts, loc.address)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{Timeout: 30 * time.Second}).DialContext(ctx, "tcp", loc.address)
	if err != nil {
		return nil, unavailable("%v", err)
	}
	ch := &sshChannel{command: "git-upload-pack " + quoteForShell(loc.path), meter: m}
	// only closing wakes the handshake or a read
	ch.stop = context.AfterFunc(ctx, func() { conn.Close() })
	c, channels, requests, err := ssh.NewClientConn(&meteredConn{conn, m}, loc.address,
		&ssh.ClientConfig{
			User:              loc.user,
			Auth:              []ssh.AuthMethod{ssh.PublicKeys(key.signer)},
			HostKeyCallback:   check,
			HostKeyAlgorithms: algorithms,
			ClientVersion:     "SSH-2.0-argosy",
		})
	if err != nil {
		ch.stop()
		conn.Close()
		return nil, sshFailure(err)
	}
	ch.client = ssh.NewClient(c, channels, requests)
	return ch, nil
}

// meteredConn counts the bytes received, handshake included.
type meteredConn struct {
	net.Conn
	m *meter
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if over := c.m.add(n); over != nil {
		return 0, over
	}
	return n, err
}

func (s *sshChannel) stateless() bool { return false }

func (s *sshChannel) open(context.Context) (io.Reader, error) {
	var err error
	if s.session, err = s.client.NewSession(); err != nil {
		return nil, unavailable("the server opens no session: %v", err)
	}
	s.session.Stderr = &s.stderr
	if s.stdin, err = s.session.StdinPipe(); err != nil {
		return nil, unavailable("the server opens no session: %v", err)
	}
	stdout, err := s.session.StdoutPipe()
	if err != nil {
		return nil, unavailable("the server opens no session: %v", err)
	}
	// A server that rejects the variable answers in version 0.
	_ = s.session.Setenv("GIT_PROTOCOL", "version=2")
	if err := s.session.Start(s.command); err != nil {
		return nil, unavailable("the server does not run git-upload-pack: %v", err)
	}
	return &explained{stdout, &s.stderr, s.session.Wait}, nil
}

func (s *sshChannel) ask(_ context.Context, request []byte) (io.Reader, error) {
	if _, err := s.stdin.Write(request); err != nil {
		return nil, unavailable("the server closed the connection: %s", s.stderr.text())
	}
	return nil, nil // the response arrives on the same stream as the advertisement
}

func (s *sshChannel) Close() error {
	s.stop()
	if s.session != nil {
		s.session.Close()
	}
	return s.client.Close()
}

// hostKeys returns the check of the server's key, and the key types that known_hosts has for it:
// without them a server with several key types could present another one and fail the check.
func hostKeys(lines []byte, address string) (ssh.HostKeyCallback, []string, error) {
	file, err := os.CreateTemp("", "known_hosts")
	if err != nil {
		return nil, nil, storageError("known_hosts", err)
	}
	defer os.Remove(file.Name())
	_, err = file.Write(lines)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, nil, storageError("known_hosts", err)
	}
	check, err := knownhosts.New(file.Name())
	if err != nil {
		return nil, nil,
			&Error{Kind: ErrRefused, Detail: "known_hosts has a line that cannot be read"}
	}
	var unknown *knownhosts.KeyError
	errors.As(check(address, &net.TCPAddr{}, noKey{}), &unknown)
	if unknown == nil || len(unknown.Want) == 0 {
		return nil, nil,
			unavailable(
				"known_hosts has no line for %s; add it once you have verified the server's key",
				address)
	}
	var algorithms []string
	if bytes.Contains(lines, []byte("@cert-authority")) {
		return check, nil, nil // the server may present a certificate of any type
	}
	for _, known := range unknown.Want {
		if kind := known.Key.Type(); kind == ssh.KeyAlgoRSA {
			algorithms = append(algorithms, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		} else {
			algorithms = append(algorithms, kind)
		}
	}
	return check, algorithms, nil
}

// noKey is a key that no known_hosts contains, used to learn the known key types.
type noKey struct{}

func (noKey) Type() string                        { return "none" }
func (noKey) Marshal() []byte                     { return []byte("none") }
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("not a key") }

func sshFailure(err error) error {
	var key *knownhosts.KeyError
	var revoked *knownhosts.RevokedError
	switch {
	case errors.As(err, &key):
		return unavailable(
			"the server's key is not the one in known_hosts; someone may be in between: verify " +
				"the key, then replace its line in source.knownHostsFile")
	case errors.As(err, &revoked):
		return unavailable("the server's key is revoked in known_hosts")
	// the ssh package has no error value for it
	case strings.Contains(err.Error(), "unable to authenticate"):
		return unauthorized(
			"the server does not accept the ssh key; check that it may read this repository")
	}
	return unavailable("%v", err)
}

// quoteForShell quotes for the server's login shell.
func quoteForShell(path string) string {
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// lastWords keeps the beginning of a program's stderr.
type lastWords struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if room := 2000 - w.buf.Len(); room > 0 {
		w.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (w *lastWords) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.buf.Len() == 0 {
		return "it gave no reason"
	}
	return w.buf.String()
}

// explained adds the program's stderr to the error if its output ends before it began.
type explained struct {
	r      io.Reader
	stderr *lastWords
	wait   func() error // returns when the program has ended and stderr is complete
}

func (e *explained) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if n == 0 && err == io.EOF {
		_ = e.wait() // stderr is more specific than the exit status
		return 0, unavailable("the server closed the connection: %s", e.stderr.text())
	}
	return n, err
}
