package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

// errSilent ends a connection that delivers nothing although the peer has not closed it.
var errSilent = fmt.Errorf("the hub was silent for %s: the connection is dead", idleTimeout)

// idleReader reads a response and cancels its request after idleTimeout without data.
type idleReader struct {
	from  io.ReadCloser
	timer *time.Timer
}

func newIdleReader(from io.ReadCloser, cut context.CancelCauseFunc) *idleReader {
	return &idleReader{from: from, timer: time.AfterFunc(idleTimeout, func() { cut(errSilent) })}
}

func (l *idleReader) Read(p []byte) (int, error) {
	n, err := l.from.Read(p)
	if n > 0 {
		l.timer.Reset(idleTimeout)
	}
	return n, err
}

func (l *idleReader) Close() error {
	l.timer.Stop()
	return l.from.Close()
}

// Snapshot reads every row of the agent's engine. A truncated, oversized or incomplete snapshot, or
// one with a wrong digest, is an error and returns no rows. epoch is the highest one on the
// cluster's objects.
func (c *Client) Snapshot(ctx context.Context, epoch int64) (*agent.Snapshot, error) {
	ctx, done := context.WithTimeoutCause(ctx, snapshotTimeout,
		fmt.Errorf("the snapshot took longer than %s", snapshotTimeout))
	defer done()
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	from, err := c.get(ctx, agent.PathSnapshot, "application/json", epoch, 0)
	if err != nil {
		return nil, err
	}
	body := newIdleReader(from, cut)
	defer body.Close()
	s, err := decodeSnapshot(body, agent.MaxSnapshot)
	if err != nil {
		return nil, fmt.Errorf("invalid snapshot: %w", c.reason(ctx, err))
	}
	return s, nil
}

// decodeSnapshot reads a snapshot of at most most bytes, up to its end.
func decodeSnapshot(from io.Reader, most int64) (*agent.Snapshot, error) {
	limited := &io.LimitedReader{R: from, N: most + 1}
	decoder := json.NewDecoder(limited)
	var s agent.Snapshot
	err := decoder.Decode(&s)
	if err == nil {
		if _, end := decoder.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("data follows its end")
		}
	}
	switch {
	case limited.N <= 0:
		return nil, fmt.Errorf("it is larger than %d bytes", most)
	case err != nil:
		return nil, err
	case !s.Complete:
		return nil, errors.New("it is incomplete")
	case s.Digest != agent.Digest(&s):
		return nil, errors.New("its digest does not match its rows")
	case s.Cursor < 0 || s.Epoch <= 0 || s.Epoch > agent.MaxEpoch:
		return nil, errors.New("its epoch is not positive, or its cursor is negative")
	}
	return &s, nil
}
