package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

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
	ctx, cancel := context.WithTimeoutCause(request.Context(), requestTimeout,
		fmt.Errorf("no answer within %s", requestTimeout))
	defer cancel()
	answer, err := c.do(request.WithContext(ctx))
	if err != nil {
		return err
	}
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %w", request.Method, request.URL.Path, refusalOf(answer))
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxResponse+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", request.Method, request.URL.Path, c.reason(ctx, err))
	case len(body) > maxResponse:
		return fmt.Errorf("%s %s: the response is larger than %d bytes", request.Method,
			request.URL.Path, maxResponse)
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
		agent.Session{Protocol: agent.Protocol, Instance: c.instance, Version: c.version}.Set(
			request.Header)
		return c.exchange(request, out)
	})
}

// get opens a snapshot or a stream. The caller closes the body.
func (c *Client) get(ctx context.Context, path, accept string, epoch,
	cursor int64) (body io.ReadCloser, err error) {
	session := agent.Session{Protocol: agent.Protocol, Instance: c.instance, Epoch: epoch,
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
