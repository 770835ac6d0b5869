package gitrepo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// remote is how one mirror reaches its source. It holds no credential.
type remote struct {
	location location
	client   *http.Client // for http and https; of this mirror alone
	v2       atomic.Bool  // the server spoke version 2 the last time
}

func newRemote(loc location, roots *x509.CertPool) *remote {
	r := &remote{location: loc}
	if loc.url == nil {
		return r
	}
	r.client = &http.Client{
		CheckRedirect: sameRepository,
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
			TLSHandshakeTimeout:    30 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConnsPerHost:    2,
			IdleConnTimeout:        90 * time.Second,
			DisableCompression:     true, // the bytes budget counts what is read, so nothing may grow after it was counted
			ForceAttemptHTTP2:      true,
		},
	}
	return r
}

func (r *remote) close() {
	if r.client != nil {
		r.client.CloseIdleConnections()
	}
}

// dial starts a conversation for one fetch.
func (r *remote) dial(ctx context.Context, auth Auth, m *meter) (*conversation, error) {
	switch r.location.scheme {
	case "ssh":
		ch, err := dialSSH(ctx, r.location, auth, m)
		return &conversation{channel: ch}, err
	case "file":
		return &conversation{channel: &localChannel{path: r.location.path, meter: m}}, nil
	}
	if err := r.mayCarry(auth); err != nil {
		return nil, err
	}
	return &conversation{channel: &httpChannel{client: r.client, base: r.location.url, auth: auth, meter: m}}, nil
}

// mayCarry refuses a credential that this source cannot use or that would travel in the clear.
func (r *remote) mayCarry(auth Auth) error {
	if auth.reveal == nil {
		return nil
	}
	if auth.secret().signer != nil {
		return &Error{Kind: ErrRefused, Detail: "an ssh key cannot be used for an " + r.location.scheme + " source; give a token or a user and password"}
	}
	if r.location.scheme == "http" && !isLoopback(r.location.url.Hostname()) {
		return &Error{Kind: ErrRefused, Detail: "the credential would travel unencrypted; use https"}
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// sameRepository follows a redirect only on the first request and only to another spelling of the same repository: the same scheme, host and
// port, and a path that differs by a trailing .git. Anything else may be another repository, or a thief of the credential (CVE-2026-41506).
func sameRepository(next *http.Request, via []*http.Request) error {
	first := via[0]
	if first.Method == http.MethodGet && len(via) == 1 && next.URL.Scheme == first.URL.Scheme && next.URL.Host == first.URL.Host &&
		spelling(next.URL) == spelling(first.URL) {
		return nil
	}
	return &Error{Kind: ErrUnavailable, Detail: "redirected to " + redactURL(strings.TrimSuffix(next.URL.String(), refsPath)) +
		"; if the repository has moved there, make that the source URL"}
}

func spelling(u *url.URL) string {
	path := strings.TrimSuffix(u.EscapedPath(), "/info/refs")
	return strings.TrimSuffix(strings.TrimRight(path, "/"), ".git")
}
