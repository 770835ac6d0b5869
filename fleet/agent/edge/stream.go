package edge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"argosy.dev/argosy/fleet/agent"
)

// Stream is an open stream of changes. It is read by one goroutine.
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
	body := listen(from, cut)
	s := &Stream{client: c, ctx: ctx, cut: cut, body: body, lines: bufio.NewReaderSize(body,
		64<<10)}
	if err := s.greet(); err != nil {
		s.Close()
		return nil, fmt.Errorf("stream: %w", err)
	}
	c.clock.hear(s.Hello.Time)
	return s, nil
}

// greet reads the hello, or the bye in its place.
func (s *Stream) greet() error {
	event, err := s.Next()
	if err != nil {
		return err
	}
	if event.Name != agent.EventHello {
		return errors.New("it does not begin with a hello; does a proxy answer in the hub's place?")
	}
	if err := json.Unmarshal(event.Data, &s.Hello); err != nil {
		return fmt.Errorf("its hello cannot be read: %s", plain(err.Error()))
	}
	if s.Hello.Epoch <= 0 || s.Hello.Epoch > agent.MaxEpoch || s.Hello.Engine == "" ||
		s.Hello.ReportSeq < 0 {
		return errors.New("its hello names no engine, or no epoch from 1 on")
	}
	return nil
}

// Close ends the stream.
func (s *Stream) Close() {
	s.cut(nil)
	s.body.Close()
}

// Next waits for the next message. A bye is an error: an Ended, or a Refusal that says when to come
// back. The end of the connection is an error too, always.
func (s *Stream) Next() (Event, error) {
	event, err := readEvent(s.lines)
	if err != nil {
		return Event{}, s.client.reason(s.ctx, err)
	}
	if event.Name != agent.EventBye {
		return event, nil
	}
	var bye agent.Bye
	if err := json.Unmarshal(event.Data, &bye); err != nil {
		return Event{}, errors.New("the hub has ended the stream and its reason cannot be read")
	}
	if err := ended(bye.Code); err != nil {
		return Event{}, err
	}
	return Event{}, &farewell{code: plain(bye.Code), refusal: &Refusal{Code: plain(bye.Code),
		Message: plain(bye.Message), After: min(max(bye.After, 0), longestPause)}}
}

// farewell is a bye after which the agent comes back.
type farewell struct {
	code    string
	refusal *Refusal
}

func (f *farewell) Error() string { return "the hub ends the stream: " + f.code }

func (f *farewell) Unwrap() error { return f.refusal }

// readEvent reads one message of text/event-stream: its event's name and data. Comments, ids and
// fields that are not known are passed over. What is larger than agent.MaxEvent is an error.
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

// readLine reads a line of at most that many bytes, without its end. A last line without one was
// cut.
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
