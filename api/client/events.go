package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/view"
)

const (
	// the server sends a message every 5 s: a stream without one for longer is dead
	silence  = 20 * time.Second
	maxLine  = 256 << 10
	firstTry = 500 * time.Millisecond
	lastTry  = 15 * time.Second
)

// Events calls handle for every event from now on, in order, until ctx ends or handle fails. It
// resumes a broken stream at its position and calls down, if set, with the cause. A refusal (the
// token, the URL) ends it.
func (c *connection) Events(ctx context.Context, handle func(view.Event) error,
	down func(error)) error {
	last := int64(-1)
	wait := firstTry
	for {
		before := last
		err := c.follow(ctx, &last, handle)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var refusal *wire.Refusal
		var failed *handleError
		switch {
		case errors.As(err, &failed):
			return failed.err
		case errors.As(err, &refusal) && refusal.Status < 500 &&
			refusal.Status != http.StatusTooManyRequests:
			return refusal
		}
		if down != nil {
			down(err)
		}
		if last != before {
			wait = firstTry
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, lastTry)
	}
}

// handleError distinguishes the caller's own failure from the stream's.
type handleError struct{ err error }

func (e *handleError) Error() string { return e.err.Error() }

var errStreamEnded = errors.New("the event stream ended")

func (c *connection) follow(ctx context.Context, last *int64, handle func(view.Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := c.request(ctx, http.MethodGet, path("events"), nil, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	if *last >= 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(*last, 10))
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(ctx, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return c.refused(answer)
	}
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		watchdog.Reset(silence)
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue // the data contains ids and names too
		}
		var e view.Event
		if json.Unmarshal([]byte(data), &e) != nil {
			continue // of a newer server: an event is only a trigger
		}
		*last = e.Seq
		if err := handle(e); err != nil {
			return &handleError{err}
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errStreamEnded
}
