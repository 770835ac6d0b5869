package edge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

// Stream is an open stream of changes, for one goroutine.
type Stream struct {
	Hello agent.Hello

	client *Client
	ctx    context.Context // of the request
	cut    context.CancelCauseFunc
	body   io.Closer
	lines  *bufio.Reader
}

// Event is one message of the stream.
type Event struct {
	Name string
	Data []byte // JSON; valid until the next call
}

// Stream opens the stream after a cursor and reads its hello. The caller closes it.
func (c *Client) Stream(ctx context.Context, epoch, cursor int64) (*Stream, error) {
	ctx, cut := context.WithCancelCause(ctx)
	from, err := c.get(ctx, agent.PathStream, "text/event-stream", epoch, cursor)
	if err != nil {
		cut(nil)
		return nil, err
	}
	body := newIdleReader(from, cut)
	s := &Stream{client: c, ctx: ctx, cut: cut, body: body, lines: bufio.NewReaderSize(body,
		64<<10)}
	if err := s.readHello(); err != nil {
		s.Close()
		return nil, fmt.Errorf("stream: %w", err)
	}
	c.clock.set(s.Hello.Time)
	return s, nil
}

// readHello reads the hello, or the GoAway in its place.
func (s *Stream) readHello() error {
	event, err := s.Next()
	if err != nil {
		return err
	}
	if event.Name != agent.EventHello {
		return errors.New(
			"its first message is not a hello; does a proxy respond in the hub's place?")
	}
	if err := json.Unmarshal(event.Data, &s.Hello); err != nil {
		return fmt.Errorf("failed to decode its hello: %s", plain(err.Error()))
	}
	if s.Hello.Epoch <= 0 || s.Hello.Epoch > agent.MaxEpoch || s.Hello.Engine == "" ||
		s.Hello.ReportSeq < 0 {
		return errors.New("its hello has no engine, or no positive epoch")
	}
	return nil
}

// Close ends the stream and its request.
func (s *Stream) Close() {
	s.cut(nil)
	s.body.Close()
}

// Next waits for the next message. It returns a GoAway as an error: a TerminalError, or a Refusal
// with the retry time. The end of the connection is always an error.
func (s *Stream) Next() (Event, error) {
	event, err := readEvent(s.lines)
	if err != nil {
		return Event{}, s.client.reason(s.ctx, err)
	}
	if event.Name != agent.EventGoAway {
		return event, nil
	}
	var goAway agent.GoAway
	if err := json.Unmarshal(event.Data, &goAway); err != nil {
		return Event{}, errors.New("the hub ended the stream without a readable reason")
	}
	if err := terminal(goAway.Code); err != nil {
		return Event{}, err
	}
	return Event{}, &goAwayError{
		code: plain(goAway.Code), refusal: &Refusal{Code: plain(goAway.Code),
			Message: plain(goAway.Message), After: min(max(goAway.After, 0), maxPause)}}
}

// goAwayError is a GoAway after which the agent reconnects.
type goAwayError struct {
	code    string
	refusal *Refusal
}

func (f *goAwayError) Error() string { return "the hub ended the stream: " + f.code }

func (f *goAwayError) Unwrap() error { return f.refusal }

// readEvent reads one message of text/event-stream: its event name and data. It ignores comments,
// ids and unknown fields, and fails above agent.MaxEvent bytes.
func readEvent(from *bufio.Reader) (Event, error) {
	var event Event
	for size := 0; ; {
		line, err := readLine(from, agent.MaxEvent-size)
		if err != nil {
			return Event{}, err
		}
		size += len(line)
		if len(line) == 0 {
			if event.Name != "" || event.Data != nil {
				return event, nil
			}
			size = 0
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			event.Name = string(value)
		case "data":
			if event.Data != nil {
				event.Data = append(event.Data, '\n')
			}
			event.Data = append(event.Data, value...)
		}
	}
}

// readLine reads a line of at most most bytes, without its end. A last line without an end was
// truncated.
func readLine(from *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := from.ReadSlice('\n')
		if len(line)+len(part) > most+2 {
			return nil, fmt.Errorf("a message of the stream is larger than %d bytes",
				agent.MaxEvent)
		}
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		default:
			return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
		}
	}
}

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
