package argocd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"argosy.dev/argosy/fleet/engine"
)

// Content types of requests and responses. A write returns only the metadata: an Application's
// status can be megabytes.
const (
	applyPatch       = "application/apply-patch+yaml" // JSON is a subset of YAML
	mergePatch       = "application/merge-patch+json"
	plainJSON        = "application/json"
	metadataListOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	metadataOnly     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	maxResponse      = 256 << 20
	throttleWait     = time.Second // default without Retry-After
)

// client sends requests to one API server over its own transport, without client-go's rate limit.
type client struct {
	http    *http.Client
	base    *url.URL
	flow    *flow
	timeout time.Duration // of one request
	retries int           // of a throttled request
	most    int64         // bytes of a response; 0: maxResponse
}

// request is one call.
type request struct {
	method, path, contentType, accept string
	query                             url.Values
	body                              []byte
	precheck                          func() error // called immediately before the request is sent
}

// statusError is an error response of the API server.
type statusError struct {
	Code       int
	Reason     string
	Message    string
	Causes     []string
	RetryAfter time.Duration
	named      string // the plural of the kind in its details, e.g. "applications"
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Code, e.Reason, e.Message)
}

func codeOf(err error) int {
	var s *statusError
	if errors.As(err, &s) {
		return s.Code
	}
	return 0
}

// do sends one request, waits while the server throttles, and decodes the response into out unless
// that is nil.
func (c *client) do(ctx context.Context, r request, out any) error {
	for attempt := 0; ; attempt++ {
		err := c.once(ctx, r, out)
		var s *statusError
		if !errors.As(err, &s) || s.RetryAfter == 0 || attempt >= c.retries {
			return err
		}
	}
}

func (c *client) once(ctx context.Context, r request, out any) error {
	if err := c.flow.acquire(ctx); err != nil {
		return err
	}
	var throttled time.Duration
	defer func() { c.flow.release(throttled) }()
	if r.precheck != nil {
		if err := r.precheck(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	resp, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 300 {
		failed := refusal(resp)
		throttled = failed.RetryAfter
		return failed
	}
	body := io.LimitReader(resp.Body, cmp.Or(c.most, maxResponse))
	if out == nil {
		_, err := io.Copy(io.Discard, body)
		return unreachable(err)
	}
	if err := json.NewDecoder(body).Decode(out); err != nil {
		return fmt.Errorf("%w: its response was truncated or is not JSON: %w",
			engine.ErrUnreachable,
			err)
	}
	return nil
}

// send returns the response, whatever its status.
func (c *client) send(ctx context.Context, r request) (*http.Response, error) {
	engine.Called(ctx)
	u := *c.base
	u.Path += r.path
	u.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(r.body))
	if err != nil {
		return nil, fmt.Errorf("request to %s: %w", c.base.Host, err)
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	if r.accept == "" {
		r.accept = plainJSON
	}
	req.Header.Set("Accept", r.accept)
	resp, err := c.http.Do(req)
	return resp, unreachable(err)
}

func unreachable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", engine.ErrUnreachable, err)
}

// refusal decodes the server's Status. It does not repeat other bodies, such as a proxy's page.
func refusal(resp *http.Response) *statusError {
	e := &statusError{Code: resp.StatusCode, Reason: http.StatusText(resp.StatusCode)}
	var status struct {
		Kind    string
		Message string
		Reason  string
		Details struct {
			Name, Kind        string
			RetryAfterSeconds int
			Causes            []struct{ Reason, Message string }
		}
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&status); err == nil &&
		status.Kind == "Status" {
		e.Message = status.Message
		if status.Details.Name != "" {
			e.named = status.Details.Kind
		}
		if status.Reason != "" {
			e.Reason = status.Reason
		}
		for _, c := range status.Details.Causes {
			e.Causes = append(e.Causes, c.Reason)
		}
	} else {
		e.Message = "the response is not a Kubernetes Status; is there a proxy in between?"
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	if e.Code == http.StatusTooManyRequests {
		e.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), status.Details.RetryAfterSeconds)
	}
	return e
}

// retryAfter returns the pause before the next request, with jitter so that clients do not return
// together; at most a minute.
func retryAfter(header string, seconds int) time.Duration {
	wait := throttleWait
	if n, err := strconv.Atoi(header); err == nil && n > 0 {
		wait = time.Duration(n) * time.Second
	} else if seconds > 0 {
		wait = time.Duration(seconds) * time.Second
	}
	wait = min(wait, time.Minute)
	return wait + rand.N(wait/4+1)
}

// flow limits the concurrent requests to one engine. The limit grows by one after each window of
// successes. When the engine throttles, the limit halves, and all requests pause for as long as the
// engine asks. Each engine has its own.
type flow struct {
	mu          sync.Mutex
	limit       int // the current limit
	maxLimit    int
	used        int
	successes   int       // successes since the limit last changed
	pausedUntil time.Time // no request starts before
	changed     chan struct{}
}

const minInFlight = 1

func newFlow(start, most int) *flow {
	return &flow{limit: min(start, most), maxLimit: most, changed: make(chan struct{})}
}

// acquire waits for a slot. Call release once with the result.
func (f *flow) acquire(ctx context.Context) error {
	for {
		f.mu.Lock()
		pause := time.Until(f.pausedUntil)
		if pause <= 0 && f.used < f.limit {
			f.used++
			f.mu.Unlock()
			return nil
		}
		changed := f.changed
		f.mu.Unlock()
		if err := waitFor(ctx, changed, pause); err != nil {
			return err
		}
	}
}

// waitFor waits for the channel or, if pause is positive, for the pause.
func waitFor(ctx context.Context, changed <-chan struct{}, pause time.Duration) error {
	var timeout <-chan time.Time
	if pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		timeout, changed = t.C, nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-timeout:
	}
	return nil
}

// release frees the slot. throttled is the pause that the engine has requested; 0 without one.
func (f *flow) release(throttled time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used--
	if throttled > 0 {
		if until := time.Now().Add(throttled); until.After(f.pausedUntil) {
			f.pausedUntil = until
			f.limit = max(minInFlight, f.limit/2)
		}
		f.successes = 0
	} else if f.successes++; f.successes >= f.limit && f.limit < f.maxLimit {
		f.limit++
		f.successes = 0
	}
	close(f.changed)
	f.changed = make(chan struct{})
}
