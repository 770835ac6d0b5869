package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// for one message to leave; who takes longer is cut off and costs itself only
	messageTime = 10 * time.Second
	farewell    = time.Second // for what is still on its way when a stream is ended
	// bytes of a buffer that is kept for the next message of any stream
	keptBuffer = 64 << 10
)

// writer writes text/event-stream, each message with a deadline of its own. Between messages it
// holds no buffer.
type writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool

	mu   sync.Mutex
	last time.Time // no write goes beyond it, once the stream is cut
	over bool      // the handler has returned: the connection is no longer ours
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// message writes one event. A negative id is none.
func (o *writer) message(event string, id int64, value any) error {
	b := buffers.Get().(*bytes.Buffer)
	defer func() {
		if b.Cap() <= keptBuffer {
			b.Reset()
			buffers.Put(b)
		}
	}()
	if id >= 0 {
		b.WriteString("id: " + strconv.FormatInt(id, 10) + "\n")
	}
	b.WriteString("event: " + event + "\ndata: ")
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false) // a manifest's bytes are hashed
	if err := enc.Encode(value); err != nil {
		return err
	}
	b.WriteByte('\n')
	return o.write(b.Bytes())
}

func (o *writer) alive() error { return o.write([]byte(": alive\n\n")) }

// errGone says that the agent is no longer there, or takes nothing.
var errGone = errors.New("the agent is gone")

func (o *writer) write(b []byte) error {
	if err := o.deadline(time.Now().Add(messageTime)); err != nil {
		return errGone
	}
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", "text/event-stream")
		// proxies that hold an answer back would hold back every message
		o.w.Header().Set("X-Accel-Buffering", "no")
		o.w.WriteHeader(http.StatusOK)
	}
	if _, err := o.w.Write(b); err != nil {
		return errGone
	}
	if err := o.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return errGone
	}
	return o.rest()
}

// rest takes the deadline off between messages: over HTTP/2 it is a timer that ends the stream,
// whether or not anything is being written.
func (o *writer) rest() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over || !o.last.IsZero() {
		return nil // a stream that was cut keeps its last
	}
	if err := o.control.SetWriteDeadline(time.Time{}); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return errGone
	}
	return nil
}

// deadline sets that of the connection, no later than the end of a stream that was cut.
func (o *writer) deadline(t time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return errGone
	}
	if !o.last.IsZero() && o.last.Before(t) {
		t = o.last
	}
	if err := o.control.SetWriteDeadline(t); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// cut ends a write that hangs, too. It may be called at any time.
func (o *writer) cut() {
	now := time.Now()
	o.mu.Lock()
	if o.last.IsZero() {
		o.last = now.Add(farewell)
	}
	o.mu.Unlock()
	_ = o.deadline(now.Add(farewell)) // the connection is gone: so be it
}

func (o *writer) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
}
