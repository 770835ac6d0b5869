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

// Settings are what a Client is made of.
type Settings struct {
	Hub string // URL: https://host, maybe with a path
	// PEM; trusted beside the system's authorities: of a TLS-inspecting proxy, or of a hub with one
	// of its own
	CA      []byte
	Proxy   *url.URL // nil: that of the environment (HTTPS_PROXY, NO_PROXY)
	Version string   // of the agent
	Log     *slog.Logger
}

const (
	dialTimeout    = 10 * time.Second
	requestTimeout = time.Minute      // of one request with a short answer
	snapshotTime   = 10 * time.Minute // of a snapshot, which may be large and the line slow
	deadAfter      = 3 * agent.Beat   // without a byte, a stream is no more
)

// newTransport has connections of its own. A dead one is noticed by HTTP/2 pings, whatever lies
// between.
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
		DialContext:     (&net.Dialer{Timeout: dialTimeout, KeepAlive: agent.Beat}).DialContext,
		HTTP2:           &http.HTTP2Config{SendPingTimeout: agent.Beat, PingTimeout: agent.Beat},
	}, nil
}

// Client speaks to the hub. Its methods may be called at the same time.
type Client struct {
	base      *url.URL
	audience  string
	http      *http.Client
	transport *http.Transport
	clock     *Clock
	keeper    *Keeper
	version   string
	instance  string
	log       *slog.Logger

	access access
}

// NewClient prepares to speak to a hub with the identity that the keeper keeps. Nothing is sent.
func NewClient(s Settings, keeper *Keeper) (*Client, error) {
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
	if !agent.SoundVersion(s.Version) {
		return nil, errors.New("the agent's version is no word of printable ASCII")
	}
	var instance [16]byte
	if _, err := rand.Read(instance[:]); err != nil {
		return nil, fmt.Errorf("name of this process: %w", err)
	}
	if s.Log == nil {
		s.Log = slog.Default()
	}
	return &Client{
		base: base, audience: audience, transport: transport, clock: &Clock{}, keeper: keeper,
		version: s.Version, log: s.Log,
		instance: hex.EncodeToString(instance[:]), access: access{getting: make(chan struct{}, 1)},
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request,
			[]*http.Request) error {
			return http.ErrUseLastResponse
		}},
	}, nil
}

// Clock is the hub's time.
func (c *Client) Clock() *Clock { return c.clock }

// Close drops the idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// do sends a request and takes the hub's time from the answer.
func (c *Client) do(request *http.Request) (*http.Response, error) {
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", request.Method, request.URL.Path,
			c.reason(request.Context(), err))
	}
	c.clock.hearDate(answer.Header)
	return answer, nil
}

// reason is what a failed request comes to, without the URL that net/url puts before it.
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
