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
	mu      sync.RWMutex
	stops   []fleet.Stop
	loaded  bool
	changed chan struct{}
}

// NewStopBoard forbids everything until it was read once.
func NewStopBoard() *StopBoard { return &StopBoard{changed: make(chan struct{})} }

const stopPoll = time.Second

// Run refreshes the board until ctx ends.
func (b *StopBoard) Run(ctx context.Context, from StopReader, log *slog.Logger) {
	for {
		stops, err := from.Stops(ctx, fleet.Scope{})
		if err == nil {
			b.set(stops)
		} else if ctx.Err() == nil {
			log.Warn("emergency stops are not read; the last view stands", "error", err)
		}
		if !wait(ctx, stopPoll) {
			return
		}
	}
}

func (b *StopBoard) set(stops []fleet.Stop) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loaded && slices.Equal(stops, b.stops) {
		return
	}
	b.stops, b.loaded = stops, true
	close(b.changed)
	b.changed = make(chan struct{})
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
