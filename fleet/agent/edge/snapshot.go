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

// errSilent ends a connection on which nothing comes any more, though nobody has closed it.
var errSilent = fmt.Errorf("the hub was silent for %s: the connection is dead", deadAfter)

// listener reads an answer and ends its request when nothing comes for deadAfter.
type listener struct {
	from  io.ReadCloser
	timer *time.Timer
}

func listen(from io.ReadCloser, cut context.CancelCauseFunc) *listener {
	return &listener{from: from, timer: time.AfterFunc(deadAfter, func() { cut(errSilent) })}
}

func (l *listener) Read(p []byte) (int, error) {
	n, err := l.from.Read(p)
	if n > 0 {
		l.timer.Reset(deadAfter)
	}
	return n, err
}

func (l *listener) Close() error {
	l.timer.Stop()
	return l.from.Close()
}

// Snapshot reads every row of the agent's engine. What is cut, too large, incomplete or not what
// its digest says is an error, and nothing of it is given. Epoch is the highest that the cluster's
// objects show.
func (c *Client) Snapshot(ctx context.Context, epoch int64) (*agent.Snapshot, error) {
	ctx, done := context.WithTimeoutCause(ctx, snapshotTime,
		fmt.Errorf("the snapshot took longer than %s", snapshotTime))
	defer done()
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	from, err := c.get(ctx, agent.PathSnapshot, "application/json", epoch, 0)
	if err != nil {
		return nil, err
	}
	body := listen(from, cut)
	defer body.Close()
	s, err := decodeSnapshot(body, agent.MaxSnapshot)
	if err != nil {
		return nil, fmt.Errorf("the snapshot counts for nothing: %w", c.reason(ctx, err))
	}
	return s, nil
}

// decodeSnapshot reads a snapshot of at most that many bytes, to its end.
func decodeSnapshot(from io.Reader, most int64) (*agent.Snapshot, error) {
	limited := &io.LimitedReader{R: from, N: most + 1}
	decoder := json.NewDecoder(limited)
	var s agent.Snapshot
	err := decoder.Decode(&s)
	if err == nil {
		if _, end := decoder.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("it does not end where it should")
		}
	}
	switch {
	case limited.N <= 0:
		return nil, fmt.Errorf("it is larger than %d bytes", most)
	case err != nil:
		return nil, err
	case !s.Complete:
		return nil, errors.New("it does not say that it is complete")
	case s.Digest != agent.Digest(&s):
		return nil, errors.New("its digest is not that of its rows")
	case s.Cursor < 0 || s.Epoch <= 0 || s.Epoch > agent.MaxEpoch:
		return nil, errors.New("its epoch or cursor is no number from 1 on")
	}
	return &s, nil
}
