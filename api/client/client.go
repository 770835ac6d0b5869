// Package client calls the control plane's JSON API. The command line uses this package and nothing
// else.
//
// Rules of this package:
//   - the token is sent in the Authorization header of requests to the configured server, and
//     nowhere else: redirects are not followed;
//   - the server's URL is https, or http on loopback;
//   - an error names the server or the object, and the next step.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"argosy.dev/argosy/api/wire"
)

const (
	maxAnswer = 64 << 20 // bytes of one answer
	timeout   = 60 * time.Second
)

// Client calls one control plane with one token.
type Client struct {
	*connection
	lists
	decisions
}

// connection sends the requests of a Client.
type connection struct {
	server *url.URL
	token  string
	agent  string
	tenant string // of requests that change something, of a person with several; "": none is chosen
	http   *http.Client
}

// lists has the calls that read, decisions the calls that change something.
type (
	lists     struct{ conn *connection }
	decisions struct{ conn *connection }
)

// New returns a client for the server, such as https://argosy.example.com. agent names the program,
// e.g. argosy/v1.
func New(server, token, agent string) (*Client, error) {
	u, err := CheckServer(server)
	if err != nil {
		return nil, err
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the token contains an invalid character; copy it again")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = timeout
	c := &connection{server: u, token: token, agent: agent, http: &http.Client{
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			// the API never redirects: a redirect comes from another server, which must not see the
			// token
			return http.ErrUseLastResponse
		},
	}}
	return &Client{connection: c, lists: lists{c}, decisions: decisions{c}}, nil
}

// CheckServer returns the server's URL if a token may be sent there: https, or http on loopback,
// and only scheme, host and path.
func CheckServer(server string) (*url.URL, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return nil, errors.New("the server is not a URL such as https://argosy.example.com")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil,
			fmt.Errorf("server %s: give a scheme, a host and optionally a path only",
				u.Host)
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return nil,
			fmt.Errorf(
				"server %s: http would send the token in the clear; use https (http is for "+
					"loopback only)", u.Host)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Server returns the control plane's URL.
func (c *connection) Server() string { return c.server.String() }

func (c *connection) request(ctx context.Context, method, path string, query url.Values,
	body any) (*http.Request, error) {
	u := c.server.JoinPath(wire.Base, path)
	u.RawQuery = query.Encode()
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("User-Agent", c.agent)
	if c.tenant != "" && method != http.MethodGet {
		req.Header.Set(wire.TenantHeader, c.tenant)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}

// do sends a request and decodes the answer into out (nil: there is none).
func (c *connection) do(ctx context.Context, method, path string, query url.Values, body,
	out any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := c.request(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(ctx, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return c.refused(answer)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("%s: the answer to %s is not one of this API: %w", c.server, path, err)
	}
	return nil
}

// refused returns the server's problem, or an error if the answer is not our server's.
func (c *connection) refused(answer *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	var p wire.Refusal
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "application/problem+json") &&
		json.Unmarshal(text, &p) == nil && p.Detail != "" {
		p.Status = answer.StatusCode
		return &p
	}
	return &wire.Refusal{Status: answer.StatusCode, Subject: c.server.String(),
		Detail: "answered " + answer.Status + " without a reason",
		Next:   "is this the URL of an Argosy control plane?"}
}

// unreachable names the unreachable server and the cause, without each layer's prefix.
func (c *connection) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	cause := err
	var op *net.OpError
	var wrapped *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		cause = fmt.Errorf("no answer within %s", timeout)
	case errors.As(err, &op):
		cause = op.Err
	case errors.As(err, &wrapped):
		cause = wrapped.Err
	}
	reason := strings.TrimPrefix(cause.Error(), "connect: ")
	return &Unreachable{Server: c.server.String(), Reason: reason, cause: err}
}

// Unreachable means that the request did not reach the control plane.
type Unreachable struct {
	Server string
	Reason string
	cause  error
}

func (e *Unreachable) Error() string {
	return fmt.Sprintf(
		"cannot reach %s: %s; is `argosy serve` running? set --server or run `argosy login`",
		e.Server, e.Reason)
}

// Unwrap returns the network's error.
func (e *Unreachable) Unwrap() error { return e.cause }
