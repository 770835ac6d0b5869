package edge

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

// Settings configures a Client.
type Settings struct {
	Hub string // https://host, optionally with a path
	// PEM; trusted in addition to the system's authorities: of a TLS-inspecting proxy, or of a hub
	// with a private CA
	CA      []byte
	Proxy   *url.URL // nil: from the environment (HTTPS_PROXY, NO_PROXY)
	Version string   // of the agent
	Log     *slog.Logger
}

const (
	dialTimeout     = 10 * time.Second
	requestTimeout  = time.Minute         // of one request with a short response
	snapshotTimeout = 10 * time.Minute    // of a snapshot, which may be large on a slow network
	idleTimeout     = 3 * agent.Heartbeat // a stream without data for that long is dead
)

// newTransport returns a transport with its own connections. HTTP/2 pings detect dead ones.
func (s Settings) newTransport() (*http.Transport, error) {
	pool, err := roots(s.CA)
	if err != nil {
		return nil, err
	}
	proxy := http.ProxyFromEnvironment
	if s.Proxy != nil {
		proxy = http.ProxyURL(s.Proxy)
	}
	return &http.Transport{
		Proxy: proxy, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: requestTimeout, MaxIdleConns: 4,
		IdleConnTimeout: 90 * time.Second,
		DialContext: (&net.Dialer{Timeout: dialTimeout, KeepAlive: agent.Heartbeat}).
			DialContext,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: agent.Heartbeat, PingTimeout: agent.Heartbeat},
	}, nil
}

// Client sends requests to the hub. Its methods are safe for concurrent use.
type Client struct {
	base      *url.URL
	audience  string
	http      *http.Client
	transport *http.Transport
	clock     *Clock
	identity  *IdentityStore
	version   string
	instance  string
	log       *slog.Logger

	access access
}

// NewClient returns a client for a hub, with the identity of an IdentityStore. It sends nothing.
func NewClient(s Settings, identity *IdentityStore) (*Client, error) {
	base, err := ParseHub(s.Hub)
	if err != nil {
		return nil, err
	}
	audience, err := agent.Audience(s.Hub)
	if err != nil {
		return nil, err
	}
	transport, err := s.newTransport()
	if err != nil {
		return nil, err
	}
	if !agent.ValidVersion(s.Version) {
		return nil, errors.New("the agent's version is not printable ASCII")
	}
	var instance [16]byte
	if _, err := rand.Read(instance[:]); err != nil {
		return nil, fmt.Errorf("ID of this process: %w", err)
	}
	if s.Log == nil {
		s.Log = slog.Default()
	}
	return &Client{
		base: base, audience: audience, transport: transport, clock: &Clock{}, identity: identity,
		version: s.Version, log: s.Log,
		instance: hex.EncodeToString(instance[:]), access: access{fetching: make(chan struct{}, 1)},
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request,
			[]*http.Request) error {
			return http.ErrUseLastResponse
		}},
	}, nil
}

// Clock returns the hub's clock.
func (c *Client) Clock() *Clock { return c.clock }

// Close closes idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// do sends a request and sets the clock from the response.
func (c *Client) do(request *http.Request) (*http.Response, error) {
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", request.Method, request.URL.Path,
			c.reason(request.Context(), err))
	}
	c.clock.setFromDate(answer.Header)
	return answer, nil
}

// reason returns the cause of a failed request, without the URL that net/url prepends.
func (c *Client) reason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	return explain(c.base.Host, err)
}
