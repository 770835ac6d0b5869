package reconciler

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
)

// StopReader lists the emergency stops in force.
type StopReader interface {
	Stops(ctx context.Context, scope fleet.Scope) ([]fleet.Stop, error)
}

// StopBoard is this replica's view of the emergency stops. It is asked before each write and costs no query; it is refreshed every second
// and when something says "look". While the store cannot be read the last view stands, and the leases, which need the store too, run out.
type StopBoard struct {
	wake chan struct{}

	mu      sync.RWMutex
	stops   []fleet.Stop
	loaded  bool
	ended   map[stopPlace]bool // were seen in force and then no longer
	changed chan struct{}
	begun   int // reads of the store
	done    int // the latest of them that succeeded
	read    chan struct{}
}

// stopPlace is what a stop covers.
type stopPlace struct {
	scope fleet.StopScope
	name  string
}

func placeOf(s fleet.Stop) stopPlace { return stopPlace{s.Scope, s.Name} }

// NewStopBoard forbids everything until it was read once.
func NewStopBoard() *StopBoard {
	return &StopBoard{wake: make(chan struct{}, 1), ended: map[stopPlace]bool{}, changed: make(chan struct{}), read: make(chan struct{})}
}

const stopPoll = time.Second

// Run refreshes the board until ctx ends.
func (b *StopBoard) Run(ctx context.Context, from StopReader, log *slog.Logger) {
	tick := time.NewTicker(stopPoll)
	defer tick.Stop()
	for {
		n := b.begin()
		stops, err := from.Stops(ctx, fleet.Scope{})
		if err == nil {
			b.set(stops)
			b.finish(n)
		} else if ctx.Err() == nil {
			log.Warn("emergency stops are not read; the last view stands", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		case <-tick.C:
		}
	}
}

// Wake says that the stops may have changed.
func (b *StopBoard) Wake() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *StopBoard) begin() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun++
	return b.begun
}

func (b *StopBoard) finish(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done = n
	close(b.read)
	b.read = make(chan struct{})
}

// refreshed waits until the store was read after now: a worker that begins knows every stop that was in force when it began, those that a
// rebuild has just found on an engine too.
func (b *StopBoard) refreshed(ctx context.Context) error {
	b.mu.RLock()
	want := b.begun + 1
	b.mu.RUnlock()
	b.Wake()
	for {
		b.mu.RLock()
		done, read := b.done, b.read
		b.mu.RUnlock()
		if done >= want {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-read:
		}
	}
}

func (b *StopBoard) set(stops []fleet.Stop) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loaded && slices.EqualFunc(stops, b.stops, sameStop) {
		return
	}
	for _, s := range b.stops {
		b.ended[placeOf(s)] = true
	}
	for _, s := range stops {
		delete(b.ended, placeOf(s))
	}
	b.stops, b.loaded = stops, true
	close(b.changed)
	b.changed = make(chan struct{})
}

func sameStop(a, b fleet.Stop) bool {
	return placeOf(a) == placeOf(b) && a.By == b.By && a.Reason == b.Reason && a.At.Equal(b.At)
}

// Changed is closed when the stops differ from now.
func (b *StopBoard) Changed() <-chan struct{} {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.changed
}

// Stopped answers, for one engine, whether writes for a tenant are forbidden.
func (b *StopBoard) Stopped(engine fleet.EngineName) func(fleet.TenantName) bool {
	return func(tenant fleet.TenantName) bool {
		b.mu.RLock()
		defer b.mu.RUnlock()
		return !b.loaded || slices.ContainsFunc(b.stops, func(s fleet.Stop) bool { return covers(s, engine, tenant) })
	}
}

// On lists the stops that an engine is to remember.
func (b *StopBoard) On(engine fleet.EngineName) []fleet.Stop {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var on []fleet.Stop
	for _, s := range b.stops {
		if s.Scope != fleet.StopEngine || s.Name == string(engine) {
			on = append(on, s)
		}
	}
	return on
}

// over reports whether a stop surely has ended: it was seen in force and then no longer. That the store does not know it proves nothing,
// for the store may be a new one, and what an engine remembers all that is left of the stop.
func (b *StopBoard) over(at stopPlace) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ended[at]
}

func covers(s fleet.Stop, engine fleet.EngineName, tenant fleet.TenantName) bool {
	switch s.Scope {
	case fleet.StopFleet:
		return true
	case fleet.StopEngine:
		return s.Name == string(engine)
	case fleet.StopTenant:
		return s.Name == string(tenant)
	default:
		return true // a scope that this version does not know stops everything rather than nothing
	}
}
