package gitrepo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
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
		tip, err := talk.tip(ctx, ref, direct != nil)
		r.remember(talk, err)
		if err == nil {
			return talk, tip, nil
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
