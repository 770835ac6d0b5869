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

// access is the access token in hand.
type access struct {
	getting chan struct{} // held by who asks for one: many requests need one token

	mu    sync.Mutex
	token string
	until time.Time // by the monotonic clock
}

const (
	assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	// before its end, from which on an access token is not used any more
	tokenMargin = 30 * time.Second
	maxAnswer   = 1 << 20 // bytes of an answer that is no snapshot
)

// Join swaps a token for an identity. It needs no identity yet.
func (c *Client) Join(ctx context.Context, keys agent.PrivateKeys, join agent.Join) (agent.Joined,
	error) {
	var joined agent.Joined
	body, err := json.Marshal(join)
	if err != nil {
		return joined, fmt.Errorf("join: %w", err)
	}
	send := func() error {
		request, err := c.proven(ctx, http.MethodPost, agent.PathJoin, keys, "", body, body)
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		return c.exchange(request, &joined)
	}
	err = c.inTime(send)
	if err == nil {
		c.clock.hear(joined.Time)
	}
	return joined, err
}

// inTime sends what carries a proof, and once more if the hub's clock turns out to be another: the
// refusal's Date has set ours.
func (c *Client) inTime(send func() error) error {
	skew, _ := c.clock.Skew()
	err := send()
	if !refused(err, agent.CodeProof) {
		return err
	}
	if now, heard := c.clock.Skew(); heard && (now-skew > slack || skew-now > slack) {
		return send()
	}
	return err
}

// proven is a request with its proof.
func (c *Client) proven(ctx context.Context, method, path string, keys agent.PrivateKeys,
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

// exchange sends a request within a minute and reads its answer into out.
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
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", request.Method, request.URL.Path, c.reason(ctx, err))
	case len(body) > maxAnswer:
		return fmt.Errorf("%s %s: the answer is larger than %d bytes", request.Method,
			request.URL.Path, maxAnswer)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("%s %s: the answer is not the hub's; is the URL right? (%s)",
			request.Method, request.URL.Path, plain(err.Error()))
	}
	return nil
}

// token is an access token that holds for a while yet. One request asks for it, however many need
// it.
func (c *Client) token(ctx context.Context) (string, error) {
	select {
	case c.access.getting <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-c.access.getting }()
	c.access.mu.Lock()
	token, until := c.access.token, c.access.until
	c.access.mu.Unlock()
	if token != "" && time.Now().Before(until) {
		return token, nil
	}
	return c.signIn(ctx)
}

// forget drops the access token.
func (c *Client) forget() {
	c.access.mu.Lock()
	defer c.access.mu.Unlock()
	c.access.token = ""
}

// signIn asks for an access token with the current keys, and with the next ones if those are what
// the hub knows: the process may have ended between sending them and hearing that they were taken.
func (c *Client) signIn(ctx context.Context) (string, error) {
	id := c.keeper.Last()
	token, err := c.assert(ctx, id.Agent, id.Keys)
	if !refused(err, agent.CodeProof) {
		return token, err
	}
	if fresh, ferr := c.keeper.Load(ctx); ferr == nil && fresh.Agent != id.Agent {
		return "", &Ended{Code: agent.CodeSuperseded,
			Message: "the cluster has joined anew meanwhile; this process ends, so that the " +
				"next one begins with the new identity"}
	}
	if id.Next.IsZero() {
		return "", fmt.Errorf("%w; the hub does not know this agent by its key: %s", err, joinAnew)
	}
	token, nerr := c.assert(ctx, id.Agent, id.Next)
	if nerr != nil {
		return "", nerr
	}
	now := c.clock.Now()
	_, err = c.keeper.promote(ctx, id.Next.Public().Thumb(), now,
		now.Add(id.ExpiresAt.Sub(id.IssuedAt)))
	return token, err
}

// assert swaps an assertion by these keys for an access token (RFC 7523).
func (c *Client) assert(ctx context.Context, id string, keys agent.PrivateKeys) (string, error) {
	var got agent.Access
	err := c.inTime(func() error {
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
				": the answer holds no access token that is bound to a key")
	}
	life := time.Duration(got.ExpiresIn) * time.Second
	c.access.mu.Lock()
	defer c.access.mu.Unlock()
	c.access.token, c.access.until = got.AccessToken, time.Now().Add(life-min(tokenMargin, life/2))
	return got.AccessToken, nil
}

// authorized sends what make returns for an access token, and once more with a new token, and in
// the hub's time, if it was refused.
func (c *Client) authorized(ctx context.Context,
	send func(token string, keys agent.PrivateKeys) error) error {
	for again := false; ; again = true {
		token, err := c.token(ctx)
		if err != nil {
			return err
		}
		err = send(token, c.keeper.Last().Keys)
		var r *Refusal
		if again || !errors.As(err, &r) || r.Status != http.StatusUnauthorized {
			return err
		}
		c.forget()
	}
}

// post sends a body of JSON, proven, and reads the answer.
func (c *Client) post(ctx context.Context, path string, in, out any) error {
	body, ok := in.([]byte)
	if !ok {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("POST %s: %w", path, err)
		}
	}
	return c.authorized(ctx, func(token string, keys agent.PrivateKeys) error {
		request, err := c.proven(ctx, http.MethodPost, path, keys, token, body, body)
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		// which process reports: the lease is one's
		agent.Session{Protocol: agent.Protocol, Instance: c.instance, Version: c.version}.Set(
			request.Header)
		return c.exchange(request, out)
	})
}

// get opens a snapshot or a stream. What it returns is the caller's to close.
func (c *Client) get(ctx context.Context, path, accept string, epoch,
	cursor int64) (body io.ReadCloser, err error) {
	session := agent.Session{Protocol: agent.Protocol, Instance: c.instance, Epoch: epoch,
		Version: c.version, Cursor: cursor}
	err = c.authorized(ctx, func(token string, keys agent.PrivateKeys) error {
		request, err := c.proven(ctx, http.MethodGet, path, keys, token, session.Bytes(), nil)
		if err != nil {
			return err
		}
		session.Set(request.Header)
		request.Header.Set("Accept", accept)
		body, err = c.opened(request, accept)
		return err
	})
	return body, err
}

// opened sends a request whose answer is read as it comes.
func (c *Client) opened(request *http.Request, accept string) (io.ReadCloser, error) {
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
				"GET %s: the answer is %s and not %s; does a proxy answer in the hub's place?",
				request.URL.Path, plain(kind), accept)
	}
	return answer.Body, nil
}
