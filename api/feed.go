package api

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/view"
)

const (
	// poll interval: a notification may be lost, a poll may not
	feedInterval = 2 * time.Second
	feedSettle   = 100 * time.Millisecond // notifications within it count once
	feedBatch    = 1000
)

// feed polls new events once for all open streams and wakes the affected ones. Without an open
// stream it does not poll. It forwards no event: each stream reads its own events within its own
// scope.
type feed struct {
	reader History
	log    *slog.Logger
	wake   pacing.Signal
	done   chan struct{} // closed when run has ended

	mu      sync.Mutex
	streams map[*listener]struct{}
	perWho  map[string]int
}

// listener is one open stream.
type listener struct {
	tenant fleet.TenantName
	who    string
	wake   pacing.Signal // of capacity 1: repeated wakes count once
}

func newFeed(reader History, log *slog.Logger) *feed {
	return &feed{reader: reader, log: log, wake: pacing.NewSignal(), done: make(chan struct{}),
		streams: map[*listener]struct{}{}, perWho: map[string]int{}}
}

func (f *feed) notify() { f.wake.Set() }

const (
	maxStreams       = 1024 // of this replica
	maxStreamsPerWho = 32   // of one token
)

// join opens a stream, or returns false if there are too many.
func (f *feed) join(tenant fleet.TenantName, who string) (*listener, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.streams) >= maxStreams || f.perWho[who] >= maxStreamsPerWho {
		return nil, false
	}
	l := &listener{tenant: tenant, who: who, wake: pacing.NewSignal()}
	f.streams[l] = struct{}{}
	f.perWho[who]++
	return l, true
}

func (f *feed) leave(l *listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.streams, l)
	if f.perWho[l.who]--; f.perWho[l.who] == 0 {
		delete(f.perWho, l.who)
	}
}

func (f *feed) open() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.streams) > 0
}

// run polls until ctx ends.
func (f *feed) run(ctx context.Context) {
	defer close(f.done)
	last := int64(-1) // nothing read yet
	tick := time.NewTicker(feedInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.wake:
			if !pacing.Sleep(ctx, feedSettle) {
				return
			}
		}
		if f.open() {
			last = f.poll(ctx, last)
		} else {
			last = -1
		}
	}
}

// poll reads the events after last, wakes the affected streams and returns the new last. The first
// poll has no earlier state and wakes all.
func (f *feed) poll(ctx context.Context, last int64) int64 {
	if last < 0 {
		_, newest, err := f.reader.Events(ctx, view.Scope{}, -1, 0)
		if err != nil {
			f.log.WarnContext(ctx, "event streams are paused: the mirror cannot be read", "error",
				err)
			return last
		}
		f.announce(nil)
		return newest
	}
	for {
		events, newest, err := f.reader.Events(ctx, view.Scope{}, last, feedBatch)
		if err != nil {
			f.log.WarnContext(ctx, "event streams are paused: the mirror cannot be read", "error",
				err)
			return last
		}
		if len(events) > 0 {
			f.announce(events)
		}
		last = newest
		if len(events) < feedBatch {
			return last
		}
	}
}

// announce wakes the streams that the events affect; nil affects all.
func (f *feed) announce(events []view.Event) {
	everyone := events == nil
	concerned := map[fleet.TenantName]bool{}
	for _, e := range events {
		concerned[e.Tenant] = true
		everyone = everyone || e.Tenant == ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.streams {
		if everyone || l.tenant == "" || concerned[l.tenant] {
			l.wake.Set()
		}
	}
}
