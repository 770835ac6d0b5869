package edge

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
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
	answers   *http.Client    // of reads that people wait for
	relay     *http.Transport // theirs
	clock     *Clock
	identity  *IdentityStore
	version   string
	instance  string
	protocol  int // that it announces
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
	relay, err := s.newTransport()
	if err != nil {
		return nil, err
	}
	relay.MaxIdleConns = 1
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{
		answers: &http.Client{Transport: relay, CheckRedirect: stay}, relay: relay,
		base: base, audience: audience, transport: transport, clock: &Clock{},
		identity: identity, version: s.Version, protocol: agent.Protocol, log: s.Log,
		instance: hex.EncodeToString(instance[:]), access: access{fetching: make(chan struct{}, 1)},
		http: &http.Client{Transport: transport, CheckRedirect: stay},
	}, nil
}

// Announce makes the client announce an earlier version of the protocol, before its first request:
// for tests of the version skew.
func (c *Client) Announce(protocol int) { c.protocol = protocol }

// Clock returns the hub's clock.
func (c *Client) Clock() *Clock { return c.clock }

// Close closes idle connections.
func (c *Client) Close() {
	c.transport.CloseIdleConnections()
	c.answers.CloseIdleConnections()
}

// do sends a request and sets the clock from the response.
func (c *Client) do(request *http.Request) (*http.Response, error) {
	return c.doOver(c.http, request)
}

func (c *Client) doOver(over *http.Client, request *http.Request) (*http.Response, error) {
	answer, err := over.Do(request)
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

// ParseHub parses the hub's URL: https, a host, and optionally the path below which the hub is
// served. It rejects everything else.
func ParseHub(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return nil, errors.New("the hub's URL is not of the form https://host")
	case u.Scheme == "http":
		return nil, errors.New("the hub's URL begins with http://; an agent requires https://")
	case u.Scheme != "https":
		return nil, errors.New("the hub's URL does not begin with https://")
	case u.User != nil:
		return nil,
			errors.New(
				"the hub's URL contains a user name; remove it: an agent authenticates with its key")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(raw, "#"):
		return nil, errors.New("the hub's URL contains a query or a fragment; remove it")
	case u.RawPath != "" || strings.Contains(u.Path, "//") || strings.Contains(u.Path, ".."):
		return nil, errors.New("the path of the hub's URL is not normalized")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// ParseProxy parses the URL of a proxy. The URL may contain a user name and password, so errors
// never quote it.
func ParseProxy(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("the proxy's URL is not of the form http://host:port")
	}
	return u, nil
}

// roots returns the system's certificate authorities plus those of a PEM bundle; nil (the system's)
// without a bundle.
func roots(bundle []byte) (*x509.CertPool, error) {
	if len(bundle) == 0 {
		return nil, nil
	}
	if err := fleet.CheckCA(bundle); err != nil {
		return nil, fmt.Errorf("the CA file %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pool.AppendCertsFromPEM(bundle)
	return pool, nil
}

// access is the cached access token.
type access struct {
	fetching chan struct{} // held while one request fetches a token for all

	mu    sync.Mutex
	token string
	until time.Time // by the monotonic clock
}

const (
	assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	// an access token is not used in its last seconds
	tokenMargin = 30 * time.Second
	maxResponse = 1 << 20 // bytes of a response other than a snapshot
)

// Join exchanges a token for an identity. It requires no identity.
func (c *Client) Join(ctx context.Context, keys agent.PrivateKeys, join agent.Join) (agent.Joined,
	error) {
	var joined agent.Joined
	body, err := json.Marshal(join)
	if err != nil {
		return joined, fmt.Errorf("join: %w", err)
	}
	send := func() error {
		request, err := c.newRequest(ctx, http.MethodPost, agent.PathJoin, keys, "", body, body)
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		return c.exchange(request, &joined)
	}
	err = c.retryOnSkew(send)
	if err == nil {
		c.clock.set(joined.Time)
	}
	return joined, err
}

// retryOnSkew sends a signed request, and sends it once more if the response's Date has moved the
// clock.
func (c *Client) retryOnSkew(send func() error) error {
	skew, _ := c.clock.Skew()
	err := send()
	if !refused(err, agent.CodeProof) {
		return err
	}
	if now, known := c.clock.Skew(); known && (now-skew > slack || skew-now > slack) {
		return send()
	}
	return err
}

// newRequest returns a request with its proof.
func (c *Client) newRequest(ctx context.Context, method, path string, keys agent.PrivateKeys,
	token string, statement, body []byte) (*http.Request, error) {
	proof, err := agent.Prove(keys, method, path, token, statement, c.clock.Now())
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base.String()+path,
		bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	request.Header.Set(agent.HeaderProof, proof)
	request.Header.Set("User-Agent", "argosy-agent/"+c.version)
	if token != "" {
		request.Header.Set("Authorization", "DPoP "+token)
	}
	return request, nil
}

// exchange sends a request and decodes the response into out, within requestTimeout.
func (c *Client) exchange(request *http.Request, out any) error {
	return c.exchangeOver(c.http, request, out)
}

func (c *Client) exchangeOver(over *http.Client, request *http.Request, out any) error {
	ctx, cancel := context.WithTimeoutCause(request.Context(), requestTimeout,
		fmt.Errorf("no answer within %s", requestTimeout))
	defer cancel()
	answer, err := c.doOver(over, request.WithContext(ctx))
	if err != nil {
		return err
	}
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %w", request.Method, request.URL.Path, refusalOf(answer))
	}
	defer answer.Body.Close()
	most := int64(maxResponse)
	if strings.HasSuffix(request.URL.Path, agent.PathManifests) {
		most = agent.MaxPacked
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", request.Method, request.URL.Path, c.reason(ctx, err))
	case int64(len(body)) > most:
		return fmt.Errorf("%s %s: the response is larger than %d bytes", request.Method,
			request.URL.Path, most)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("%s %s: the response is not a hub's; is the URL right? (%s)",
			request.Method, request.URL.Path, plain(err.Error()))
	}
	return nil
}

// token returns an access token that is valid for a while. Concurrent callers share one request.
func (c *Client) token(ctx context.Context) (string, error) {
	select {
	case c.access.fetching <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-c.access.fetching }()
	c.access.mu.Lock()
	token, until := c.access.token, c.access.until
	c.access.mu.Unlock()
	if token != "" && time.Now().Before(until) {
		return token, nil
	}
	return c.requestToken(ctx)
}

// Authenticate proves the identity to the hub. It opens no session.
func (c *Client) Authenticate(ctx context.Context) error {
	_, err := c.token(ctx)
	return err
}

// dropToken discards the access token.
func (c *Client) dropToken() {
	c.access.mu.Lock()
	defer c.access.mu.Unlock()
	c.access.token = ""
}

// requestToken requests an access token with the current keys. If the hub does not know these, it
// uses the next ones: the process may have exited after it sent the new keys and before it received
// the response.
func (c *Client) requestToken(ctx context.Context) (string, error) {
	id := c.identity.Last()
	token, err := c.exchangeAssertion(ctx, id.Agent, id.Keys)
	if !refused(err, agent.CodeProof) {
		return token, err
	}
	if fresh, ferr := c.identity.Load(ctx); ferr == nil && fresh.Agent != id.Agent {
		return "", &TerminalError{Code: agent.CodeSuperseded,
			Message: "the cluster has joined again meanwhile; this process exits, so that the " +
				"next one uses the new identity"}
	}
	if id.Next.IsZero() {
		return "", fmt.Errorf("%w; the hub does not know this agent's key: %s", err, joinAgain)
	}
	token, nerr := c.exchangeAssertion(ctx, id.Agent, id.Next)
	if nerr != nil {
		return "", nerr
	}
	now := c.clock.Now()
	_, err = c.identity.promoteNext(ctx, id.Next.Public().Thumb(), now,
		now.Add(id.ExpiresAt.Sub(id.IssuedAt)))
	return token, err
}

// exchangeAssertion exchanges an assertion by these keys for an access token (RFC 7523).
func (c *Client) exchangeAssertion(ctx context.Context, id string, keys agent.PrivateKeys) (string,
	error) {
	var got agent.Access
	err := c.retryOnSkew(func() error {
		assertion, err := agent.Assertion(keys, id, c.audience, c.clock.Now())
		if err != nil {
			return err
		}
		form := url.Values{"grant_type": {"client_credentials"}, "client_assertion_type": {
			assertionType}, "client_assertion": {assertion}}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost,
			c.base.String()+agent.PathToken, strings.NewReader(form.Encode()))
		if err != nil {
			return fmt.Errorf("POST %s: %w", agent.PathToken, err)
		}
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("User-Agent", "argosy-agent/"+c.version)
		return c.exchange(request, &got)
	})
	if err != nil {
		return "", err
	}
	if got.AccessToken == "" || !strings.EqualFold(got.TokenType, "DPoP") || got.ExpiresIn <= 0 {
		return "",
			errors.New("POST " + agent.PathToken +
				": the response has no access token that is bound to a key")
	}
	life := time.Duration(got.ExpiresIn) * time.Second
	c.access.mu.Lock()
	defer c.access.mu.Unlock()
	c.access.token, c.access.until = got.AccessToken, time.Now().Add(life-min(tokenMargin, life/2))
	return got.AccessToken, nil
}

// authorized calls send with an access token. If the hub rejects the token, it calls send once more
// with a new token and the hub's time.
func (c *Client) authorized(ctx context.Context,
	send func(token string, keys agent.PrivateKeys) error) error {
	for again := false; ; again = true {
		token, err := c.token(ctx)
		if err != nil {
			return err
		}
		err = send(token, c.identity.Last().Keys)
		var r *Refusal
		if again || !errors.As(err, &r) || r.Status != http.StatusUnauthorized {
			return err
		}
		c.dropToken()
	}
}

// post sends a signed JSON body and decodes the response.
func (c *Client) post(ctx context.Context, path string, in, out any) error {
	body, ok := in.([]byte)
	if !ok {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("POST %s: %w", path, err)
		}
	}
	return c.authorized(ctx, func(token string, keys agent.PrivateKeys) error {
		request, err := c.newRequest(ctx, http.MethodPost, path, keys, token, body, body)
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		// names the process: the lease belongs to one process
		agent.Session{Protocol: c.protocol, Instance: c.instance, Version: c.version}.Set(
			request.Header)
		return c.exchange(request, out)
	})
}

// get opens a snapshot or a stream. The caller closes the body.
func (c *Client) get(ctx context.Context, path, accept string, epoch,
	cursor int64) (body io.ReadCloser, err error) {
	session := agent.Session{Protocol: c.protocol, Instance: c.instance, Epoch: epoch,
		Version: c.version, Cursor: cursor}
	err = c.authorized(ctx, func(token string, keys agent.PrivateKeys) error {
		request, err := c.newRequest(ctx, http.MethodGet, path, keys, token, session.Bytes(), nil)
		if err != nil {
			return err
		}
		session.Set(request.Header)
		request.Header.Set("Accept", accept)
		body, err = c.open(request, accept)
		return err
	})
	return body, err
}

// open sends a request whose response is streamed.
func (c *Client) open(request *http.Request, accept string) (io.ReadCloser, error) {
	answer, err := c.do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %w", request.URL.Path, refusalOf(answer))
	}
	if kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";"); kind != accept {
		answer.Body.Close()
		return nil,
			fmt.Errorf(
				"GET %s: the response is %s instead of %s; does a proxy respond in the hub's place?",
				request.URL.Path, plain(kind), accept)
	}
	return answer.Body, nil
}

// Clock is the hub's last known time, advanced by this machine's monotonic clock. Before the first
// response it is this machine's clock. A jump of the local wall clock has no effect.
type Clock struct {
	mu        sync.Mutex
	hubTime   time.Time // the hub's time
	localTime time.Time // the local time of its arrival, monotonic
}

// slack is the tolerated difference between a Date header and the clock: Date has whole seconds and
// some latency.
const slack = 3 * time.Second

// Now returns the hub's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time {
	if c.hubTime.IsZero() {
		return time.Now()
	}
	return c.hubTime.Add(time.Since(c.localTime))
}

// Skew returns by how much this machine's clock is ahead of the hub's, and whether the hub's time
// is known.
func (c *Clock) Skew() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Round(0).Sub(c.now().Round(0)), !c.hubTime.IsZero()
}

// set sets the hub's time.
func (c *Clock) set(t time.Time) {
	if t.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if off := t.Sub(c.now()); c.hubTime.IsZero() || off > slack || off < -slack {
		c.hubTime, c.localTime = t, time.Now()
	}
}

// setFromDate sets the hub's time from the Date header of a response.
func (c *Clock) setFromDate(h http.Header) {
	if t, err := http.ParseTime(h.Get("Date")); err == nil {
		c.set(t)
	}
}

// Refusal is an error response of the hub, or of a proxy in its place.
type Refusal struct {
	Status int
	// a code of package agent; empty if the response is not a problem document of the hub
	Code      string
	Message   string // printable, shortened
	ReportSeq int64  // CodeReplay: the last accepted report
	After     time.Duration
}

// Error returns the status and the message.
func (r *Refusal) Error() string {
	text := fmt.Sprintf("the hub answers %d", r.Status)
	if r.Code != "" {
		text += " " + r.Code
	}
	if r.Message != "" {
		text += ": " + r.Message
	}
	return text
}

// TerminalError stops the agent without a retry: a person has to act first.
type TerminalError struct{ Code, Message string }

// Error returns the reason and the next step.
func (e *TerminalError) Error() string { return e.Message }

const joinAgain = "make a token with `argosy agent token create` and run `argosy agent join` with it on this cluster; nothing on the cluster is touched meanwhile"

var terminalReasons = map[string]string{
	agent.CodeRevoked: "this agent's identity was revoked: " + joinAgain,
	agent.CodeExpired: "this agent's identity has expired, because the hub was not reached " +
		"in time to renew it: " + joinAgain,
	agent.CodeCloned: "two processes alternate with this agent's identity, so that neither is " +
		"served: stop the wrong one, find out how it got the Secret, then " + joinAgain,
	agent.CodeSuperseded: "another process of this agent has taken over, and this one exits; if " +
		"there should be no other, find out where its Secret was copied, and revoke it with " +
		"`argosy agent revoke`",
}

// terminal returns the TerminalError of a code, or nil.
func terminal(code string) error {
	if text, ok := terminalReasons[code]; ok {
		return &TerminalError{Code: code, Message: text}
	}
	return nil
}

const maxProblem = 64 << 10 // bytes read of a refusal

// refusalOf reads an unexpected response and closes it.
func refusalOf(answer *http.Response) error {
	defer answer.Body.Close()
	r := &Refusal{Status: answer.StatusCode, After: retryAfter(answer.Header)}
	if answer.StatusCode >= 300 && answer.StatusCode < 400 {
		r.Message = "it redirects to " + plain(answer.Header.Get("Location")) +
			", which is not followed; if that is the hub, use its URL"
		return r
	}
	var problem agent.Problem
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxProblem))
	if err == nil && json.Unmarshal(body, &problem) == nil {
		r.Code, r.Message, r.ReportSeq = plain(problem.Code), plain(problem.Detail),
			problem.ReportSeq
		if r.Message == "" {
			r.Message = plain(problem.Title)
		}
		if problem.Next != "" {
			r.Message += "; " + plain(problem.Next)
		}
	}
	if err := terminal(r.Code); err != nil {
		return err
	}
	return r
}

func refused(err error, code string) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Code == code
}

// retryAfter parses the header in seconds. It ignores dates, which depend on a clock.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxPause)
}

const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = time.Minute
	maxPause   = 10 * time.Minute // the maximum pause that a hub may request
)

// pause returns the wait after a number of consecutive failures. It doubles up to a minute, with
// jitter over its upper half, so that agents that failed together do not return together. A pause
// that the hub has requested is kept, plus up to a quarter.
func pause(failures int, err error) time.Duration {
	var r *Refusal
	if errors.As(err, &r) {
		if r.After > 0 {
			return r.After + mathrand.N(r.After/4+1)
		}
		if r.Code == agent.CodeProtocol {
			return maxBackoff + mathrand.N(maxBackoff)
		}
	}
	d := maxBackoff
	if failures < 8 {
		d = min(minBackoff<<max(failures-1, 0), maxBackoff)
	}
	return d/2 + mathrand.N(d/2+1)
}

// explain rewrites a connection error for the person who can fix it. It returns errors that are not
// about TLS, names or the network unchanged.
func explain(host string, err error) error {
	var refused *tls.CertificateVerificationError
	if errors.As(err, &refused) && len(refused.UnverifiedCertificates) > 0 {
		return fmt.Errorf("%s; %s", certificateProblem(host, refused.UnverifiedCertificates[0],
			refused.Err), nothingSent)
	}
	var record tls.RecordHeaderError
	if errors.As(err, &record) {
		return fmt.Errorf(
			"%s does not speak TLS on this port; is it the port of plain http, or a proxy that "+
				"has to be named with --proxy?", host)
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return fmt.Errorf(
			"failed to resolve %s: %s; ask the operators of the cluster's DNS, or set a "+
				"proxy with --proxy", plain(dns.Name), dnsReason(dns))
	}
	return err
}

const nothingSent = "nothing was sent"

// certificateProblem describes a certificate and why it is not trusted.
func certificateProblem(host string, cert *x509.Certificate, err error) string {
	var name x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return fmt.Sprintf(
			"the certificate of %s is for %s: the URL is wrong, or another server "+
				"responds in its place", host, names(cert))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return expiry(host, cert)
	case errors.As(err, &unknown):
		return fmt.Sprintf(
			"the certificate of %s is issued by %q, which is not trusted here; is there a "+
				"TLS-inspecting proxy? give its CA with --ca-file", host, issuer(cert))
	}
	return fmt.Sprintf("the certificate of %s (issued by %q) is invalid: %s", host, issuer(cert),
		plain(err.Error()))
}

func expiry(host string, cert *x509.Certificate) string {
	now := time.Now()
	if now.Before(cert.NotBefore) {
		return fmt.Sprintf(
			"the certificate of %s is valid from %s on, but the local time is %s: is the clock "+
				"of this "+
				"machine wrong?", host, stamp(cert.NotBefore), stamp(now))
	}
	return fmt.Sprintf(
		"the certificate of %s expired on %s (the local time is %s): the hub's operators must "+
			"renew it", host, stamp(cert.NotAfter), stamp(now))
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// names lists some of a certificate's names, printable.
func names(cert *x509.Certificate) string {
	all := append([]string{}, cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "no host"
	}
	more := ""
	if len(all) > 4 {
		more, all = fmt.Sprintf(" and %d more", len(all)-4), all[:4]
	}
	return plain(strings.Join(all, ", ")) + more
}

// issuer returns the name of a certificate's issuer.
func issuer(cert *x509.Certificate) string {
	if name := cert.Issuer.CommonName; name != "" {
		return plain(name)
	}
	return plain(cert.Issuer.String())
}

func dnsReason(err *net.DNSError) string {
	switch {
	case err.IsTimeout:
		return "the resolver does not answer"
	case err.IsNotFound:
		return "the name does not exist"
	}
	return plain(err.Err)
}

// plain turns untrusted text into a short line of printable ASCII for logs.
func plain(s string) string {
	const most = 200
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= most {
			b.WriteString("...")
			break
		}
		if r < ' ' || r > '~' {
			r = '?'
		}
		b.WriteRune(r)
	}
	return b.String()
}
