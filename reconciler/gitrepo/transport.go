package gitrepo

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// remote connects one mirror to its source. It holds no credential.
type remote struct {
	location location
	client   *http.Client // for http and https; of this mirror alone
	// where the server last spoke version 2, so that it need not advertise again
	direct atomic.Pointer[url.URL]
}

func newRemote(loc location, roots *x509.CertPool) *remote {
	r := &remote{location: loc}
	if loc.url == nil {
		return r
	}
	r.client = &http.Client{
		CheckRedirect: sameRepository,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment,
			DialContext: (&net.Dialer{Timeout: 30 * time.Second,
				KeepAlive: 30 * time.Second}).DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
			TLSHandshakeTimeout:    30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConnsPerHost:    2,
			IdleConnTimeout:        90 * time.Second,
			// the bytes budget counts compressed bytes as read, so they must not expand afterwards
			DisableCompression: true,
			ForceAttemptHTTP2:  true,
		},
	}
	return r
}

func (r *remote) close() {
	if r.client != nil {
		r.client.CloseIdleConnections()
	}
}

// find starts a conversation and returns the commit of ref; the zero hash means that it does not
// exist. It first tries the server's version of the last time, and forgets it if it no longer
// works.
func (r *remote) find(ctx context.Context, auth Auth, m *meter, ref string) (*conversation,
	plumbing.Hash, error) {
	for direct := r.direct.Load(); ; direct = nil {
		talk, err := r.dial(ctx, auth, m, direct)
		if err != nil {
			return nil, plumbing.ZeroHash, err
		}
		tips, err := talk.tips(ctx, []string{ref}, direct != nil)
		r.remember(talk, err)
		if err == nil {
			return talk, tips[ref], nil
		}
		talk.Close()
		if direct == nil || !errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
			return nil, plumbing.ZeroHash, err
		}
	}
}

func (r *remote) remember(talk *conversation, err error) {
	if h, ok := talk.channel.(*httpChannel); ok && talk.v2 && err == nil {
		r.direct.Store(h.base)
		return
	}
	r.direct.Store(nil)
}

func (r *remote) dial(ctx context.Context, auth Auth, m *meter, direct *url.URL) (*conversation,
	error) {
	switch r.location.scheme {
	case "ssh":
		ch, err := dialSSH(ctx, r.location, auth, m)
		if err != nil {
			return nil, err
		}
		return &conversation{channel: ch}, nil
	case "file":
		return &conversation{channel: &localChannel{path: r.location.path, meter: m}}, nil
	}
	if err := r.mayCarry(auth); err != nil {
		return nil, err
	}
	base := r.location.url
	if direct != nil {
		base = direct
	}
	return &conversation{channel: &httpChannel{client: r.client, base: base, auth: auth, meter: m}},
		nil
}

// mayCarry rejects a credential that this source cannot use or that would be sent unencrypted.
func (r *remote) mayCarry(auth Auth) error {
	if auth.reveal == nil {
		return nil
	}
	if auth.secret().signer != nil {
		return &Error{Kind: ErrRefused, Detail: "an ssh key cannot be used for an " +
			r.location.scheme + " source; give a token or a user and password"}
	}
	if r.location.scheme == "http" && !isLoopback(r.location.url.Hostname()) {
		return &Error{
			Kind: ErrRefused, Detail: "the credential would travel unencrypted; use https"}
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// sameRepository follows a redirect only on the first request and only to another spelling of the
// same repository: the same scheme, host and port, and a path that differs by a trailing .git. Any
// other target may be another repository, or steal the credential (CVE-2026-41506).
func sameRepository(next *http.Request, via []*http.Request) error {
	first := via[0]
	if first.Method == http.MethodGet && len(via) == 1 && next.URL.Scheme == first.URL.Scheme &&
		next.URL.Host == first.URL.Host &&
		spelling(next.URL) == spelling(first.URL) {
		return nil
	}
	return &Error{Kind: ErrUnavailable, Detail: "redirected to " +
		redactURL(strings.TrimSuffix(next.URL.String(), refsPath)) +
		"; if the repository has moved there, make that the source URL"}
}

func spelling(u *url.URL) string {
	path := strings.TrimSuffix(u.EscapedPath(), "/info/refs")
	return strings.TrimSuffix(strings.TrimRight(path, "/"), ".git")
}

const refsPath = "/info/refs?service=git-upload-pack"

// httpChannel speaks Git's smart HTTP protocol (gitprotocol-http).
type httpChannel struct {
	client *http.Client
	base   *url.URL // without a trailing slash
	auth   Auth
	meter  *meter
	bodies []io.Closer
}

func (h *httpChannel) stateless() bool { return true }

func (h *httpChannel) open(ctx context.Context) (io.Reader, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.base.String()+refsPath, nil)
	if err != nil {
		return nil, unavailable("the source URL cannot be requested")
	}
	body, final, err := h.do(request, "application/x-git-upload-pack-advertisement")
	if err != nil {
		return nil, err
	}
	// following requests use the redirect that sameRepository accepted
	moved := *final
	moved.RawQuery, moved.Path, moved.RawPath = "", strings.TrimSuffix(final.Path, "/info/refs"), ""
	h.base = &moved
	return body, nil
}

func (h *httpChannel) ask(ctx context.Context, request []byte) (io.Reader, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base.String()+"/git-upload-pack",
		bytes.NewReader(request))
	if err != nil {
		return nil, unavailable("the source URL cannot be requested")
	}
	r.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	r.Header.Set("Accept", "application/x-git-upload-pack-result")
	body, _, err := h.do(r, "application/x-git-upload-pack-result")
	return body, err
}

func (h *httpChannel) do(r *http.Request, contentType string) (io.Reader, *url.URL, error) {
	// some Git hosts answer clients whose user agent does not start with git with a web page
	r.Header.Set("User-Agent", "git/2 argosy")
	r.Header.Set("Git-Protocol", "version=2")
	h.auth.apply(r)
	response, err := h.client.Do(r) //nolint:bodyclose // the caller reads it; Close closes it
	if err != nil {
		return nil, nil, httpFailure(err)
	}
	h.bodies = append(h.bodies, response.Body)
	if err := judge(response, contentType); err != nil {
		return nil, nil, err
	}
	return h.meter.reader(response.Body), response.Request.URL, nil
}

// judge distinguishes Git's answer from any other response of a server, proxy or login page
// (argo-cd#14318, argo-cd#18212).
func judge(r *http.Response, contentType string) error {
	switch r.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return unauthorized(
			"answered %d; check that the credential is valid and may read this repository",
			r.StatusCode)
	case http.StatusNotFound:
		return unavailable(
			"answered 404; check the URL, and that the credential may read this repository")
	default:
		return unavailable("answered %d %s", r.StatusCode, http.StatusText(r.StatusCode))
	}
	got, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if strings.TrimSpace(strings.ToLower(got)) != contentType {
		return unavailable(
			"answered 200 with %q instead of Git's protocol; a proxy or login page may be "+
				"before it", printable(got))
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return unavailable("answered in encoding %q, which was not asked for", printable(encoding))
	}
	return nil
}

// httpFailure unwraps an error that repeats the URL.
func httpFailure(err error) error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return unavailable("%v", err)
}

// Close discards the unread response, which closes its connection.
func (h *httpChannel) Close() error {
	for _, body := range h.bodies {
		body.Close()
	}
	h.bodies = nil
	return nil
}

// localChannel runs git upload-pack on a local repository, as Git itself does for a path.
type localChannel struct {
	path   string
	meter  *meter
	stdin  io.WriteCloser
	stderr lastWords
	cancel context.CancelFunc
	wait   func() error
}

func (l *localChannel) stateless() bool { return false }

func (l *localChannel) open(ctx context.Context) (io.Reader, error) {
	ctx, l.cancel = context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, "git", "upload-pack", l.path)
	// It inherits only the environment that locates programs and the operator's own settings
	// (safe.directory).
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "LC_ALL=C",
		"GIT_PROTOCOL=version=2"}
	cmd.Stderr = &l.stderr
	cmd.WaitDelay = time.Second
	var err error
	if l.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, unavailable("%v", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, unavailable("%v", err)
	}
	if err := cmd.Start(); err != nil {
		return nil,
			unavailable("git upload-pack does not start: %v; a local source needs git on PATH", err)
	}
	l.wait = sync.OnceValue(cmd.Wait)
	return l.meter.reader(&explained{stdout, &l.stderr, l.wait}), nil
}

func (l *localChannel) ask(_ context.Context, request []byte) (io.Reader, error) {
	if _, err := l.stdin.Write(request); err != nil {
		return nil, unavailable("git upload-pack ended: %s", l.stderr.text())
	}
	return nil, nil // the response arrives on the same stream as the advertisement
}

func (l *localChannel) Close() error {
	if l.wait != nil {
		l.stdin.Close()
		l.cancel()
		_ = l.wait() // killed or exited: the exit status does not matter
	}
	return nil
}
