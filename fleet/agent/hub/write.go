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
	// to send one message; a slower client is disconnected
	messageTimeout = 10 * time.Second
	flushTimeout   = time.Second // to flush what is in flight when a stream ends
	// bytes; a larger buffer is not reused
	keptBuffer = 64 << 10
)

// writer writes text/event-stream with a deadline per message. It holds no buffer between messages.
type writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool

	mu            sync.Mutex
	finalDeadline time.Time // no write extends beyond it once the stream is cut
	closed        bool      // the handler has returned and no longer owns the connection
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// message writes one event. A negative id is omitted.
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
	enc.SetEscapeHTML(false) // the manifest's bytes are hashed
	if err := enc.Encode(value); err != nil {
		return err
	}
	b.WriteByte('\n')
	return o.write(b.Bytes())
}

func (o *writer) keepAlive() error { return o.write([]byte(": alive\n\n")) }

// errDisconnected reports an agent that has disconnected or accepts no data.
var errDisconnected = errors.New("the agent has disconnected")

func (o *writer) write(b []byte) error {
	if err := o.setDeadline(time.Now().Add(messageTimeout)); err != nil {
		return errDisconnected
	}
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", "text/event-stream")
		// a buffering proxy would hold back every message
		o.w.Header().Set("X-Accel-Buffering", "no")
		o.w.WriteHeader(http.StatusOK)
	}
	if _, err := o.w.Write(b); err != nil {
		return errDisconnected
	}
	if err := o.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return errDisconnected
	}
	return o.clearDeadline()
}

// clearDeadline removes the deadline between messages: over HTTP/2 an expired deadline ends the
// stream even while nothing is being written.
func (o *writer) clearDeadline() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || !o.finalDeadline.IsZero() {
		return nil // a cut stream keeps its deadline
	}
	if err := o.control.SetWriteDeadline(time.Time{}); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return errDisconnected
	}
	return nil
}

// setDeadline sets the write deadline, no later than the end of a cut stream.
func (o *writer) setDeadline(t time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return errDisconnected
	}
	if !o.finalDeadline.IsZero() && o.finalDeadline.Before(t) {
		t = o.finalDeadline
	}
	if err := o.control.SetWriteDeadline(t); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// cut also unblocks a hanging write. It may be called at any time.
func (o *writer) cut() {
	now := time.Now()
	o.mu.Lock()
	if o.finalDeadline.IsZero() {
		o.finalDeadline = now.Add(flushTimeout)
	}
	o.mu.Unlock()
	_ = o.setDeadline(now.Add(flushTimeout)) // an error means that the connection is closed already
}

func (o *writer) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}
