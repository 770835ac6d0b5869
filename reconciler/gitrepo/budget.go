package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"
)

// Budget limits what one fetch, walk or read may cost. A zero field means its default.
type Budget struct {
	// received from the server in one fetch, advertisement included; 512 MiB
	Bytes int64
	// in one pack; 2,000,000. Each takes about 150 bytes of memory while the pack comes in
	Objects int
	// of one object when inflated, held in memory; 64 MiB. Larger objects are in temporary files
	// while their deltas are resolved
	ObjectBytes int64
	// wall clock of one fetch, plus one second for each 64 KiB received; 5 minutes
	Time time.Duration
	Idle time.Duration // without a byte from the server; 1 minute
	// entries of fleet/, and of each tenant's folder, in one walk or diff; 250,000
	Files     int
	FileBytes int64 // of one blob that Blob returns; 1 MiB
	PullFiles int   // that one pull request may change below fleet/ and tenants/; 2,000
	// received in one FetchRef, and kept of refs before the oldest are dropped; 64 MiB
	PullBytes int64
}

// deltaMemory is how many objects of the largest size resolving deltas may keep in memory. Ordinary
// packs need a few small ones.
const deltaMemory = 4

func (b Budget) withDefaults() (Budget, error) {
	if b.Bytes < 0 || b.Objects < 0 || b.ObjectBytes < 0 || b.Time < 0 || b.Idle < 0 ||
		b.Files < 0 || b.PullFiles < 0 || b.FileBytes < 0 || b.PullBytes < 0 {
		return b, &Error{Kind: ErrRefused, Subject: "budget",
			Detail: "limits cannot be negative; use 0 for the default"}
	}
	d := Budget{Bytes: 512 << 20, Objects: 2_000_000, ObjectBytes: 64 << 20, Time: 5 * time.Minute,
		Idle:  time.Minute,
		Files: 250_000, FileBytes: 1 << 20, PullFiles: 2000, PullBytes: 64 << 20}
	setDefault(&b.Bytes, d.Bytes)
	setDefault(&b.Objects, d.Objects)
	setDefault(&b.ObjectBytes, d.ObjectBytes)
	setDefault(&b.Time, d.Time)
	setDefault(&b.Idle, d.Idle)
	setDefault(&b.Files, d.Files)
	setDefault(&b.FileBytes, d.FileBytes)
	setDefault(&b.PullFiles, d.PullFiles)
	setDefault(&b.PullBytes, d.PullBytes)
	b.Objects = min(b.Objects, math.MaxInt32) // positions in a pack are kept as int32
	return b, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

var (
	errWall   = errors.New("the time budget is spent")
	errSilent = errors.New("the server stopped sending")
)

// meter counts the bytes that one fetch receives and cancels the fetch's context when time runs
// out. Cancelling closes the connection: nothing else wakes a read from a server that sends
// nothing.
type meter struct {
	limit int64
	idle  time.Duration

	mu    sync.Mutex
	spent int64
	timer *time.Timer
}

// minRate is the bytes per second with which a fetch may continue beyond its time, so that a fetch
// that makes progress is not cut off.
const minRate = 64 << 10

// start returns a context that ends when the time is over, or when no byte has arrived for the idle
// time.
func (b Budget) start(ctx context.Context) (context.Context, *meter, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	m := &meter{limit: b.Bytes, idle: b.Idle}
	m.timer = time.AfterFunc(b.Idle, func() { cancel(errSilent) })
	began := time.Now()
	var wall *time.Timer
	m.mu.Lock()
	wall = time.AfterFunc(b.Time, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		earned := time.Duration(m.spent / minRate * int64(time.Second))
		if left := b.Time + earned - time.Since(began); left > 0 {
			wall.Reset(left)
			return
		}
		cancel(errWall)
	})
	m.mu.Unlock()
	return ctx, m, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.timer.Stop()
		wall.Stop()
		cancel(context.Canceled)
	}
}

func (m *meter) add(n int) error {
	if n <= 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timer.Reset(m.idle)
	if m.spent += int64(n); m.spent > m.limit {
		return overBudget("", "bytes", m.limit,
			"the source sends more than one fetch may receive; raise source.maxBytes if that is "+
				"expected")
	}
	return nil
}

// endIdleCheck ends the check for idleness: the server has sent everything.
func (m *meter) endIdleCheck() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timer.Stop()
	m.idle = math.MaxInt64
}

// reader counts the bytes that are read from r.
func (m *meter) reader(r io.Reader) io.Reader { return &meteredReader{r, m} }

type meteredReader struct {
	r io.Reader
	m *meter
}

func (r *meteredReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if over := r.m.add(n); over != nil {
		return 0, over
	}
	return n, err
}

// ended translates the end of a fetch's context: the caller's own cancellation stays as it is, a
// spent budget becomes ErrTimedOut.
func ended(ctx context.Context, b Budget) error {
	if ctx.Err() == nil {
		return nil
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errWall):
		return &Error{
			Kind: ErrTimedOut,
			Detail: fmt.Sprintf(
				"the fetch took longer than %s and a second for each 64 KiB that arrived; the "+
					"server is slow, or source.fetchTimeout too short", b.Time)}
	case errors.Is(cause, errSilent):
		return &Error{
			Kind:   ErrTimedOut,
			Detail: fmt.Sprintf("nothing was received for %s; the connection was closed", b.Idle)}
	default:
		return cause
	}
}
