package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// StopReader reads the emergency stops, and the ends of former stops.
type StopReader interface {
	StopRecords(ctx context.Context) (mirror.StopRecords, error)
}

// StopRestorer is a StopReader that takes back stops that it has lost.
type StopRestorer interface {
	RestoreStop(ctx context.Context, stop mirror.Stop) error
}

// StopBoard is this replica's view of the emergency stops. Every write reads it without a query; it
// is refreshed every second and when it is woken. A stop that the store or an engine has shown
// stays in force until the store has a record of its end: a store that went back in time gets the
// stop back. If the store cannot be read for longer than stopsUnknown, everything is stopped.
type StopBoard struct {
	wake pacing.Signal

	mu       sync.RWMutex
	recorded []mirror.Stop                      // as the store has them
	lost     map[stopPlace]mirror.Stop          // the store has neither them nor their ends
	noted    map[fleet.EngineName][]mirror.Stop // unreadable notes on engines
	ends     map[stopPlace]mirror.StopEnd       // the latest of each place
	stops    []mirror.Stop                      // in force: recorded and lost
	held     bool                               // see Hold
	loaded   bool
	readAt   time.Time // begin of the last successful read
	changed  chan struct{}
	begun    int // reads of the store
	done     int // the last successful one of them
	read     chan struct{}
}

// stopPlace is the scope and name of a stop.
type stopPlace struct {
	scope mirror.StopScope
	name  string
}

func placeOf(s mirror.Stop) stopPlace { return stopPlace{s.Scope, s.Name} }

// NewStopBoard returns a board that forbids every write until its first read.
func NewStopBoard() *StopBoard {
	return &StopBoard{wake: pacing.NewSignal(), lost: map[stopPlace]mirror.Stop{},
		noted: map[fleet.EngineName][]mirror.Stop{},
		ends:  map[stopPlace]mirror.StopEnd{}, changed: make(chan struct{}),
		read: make(chan struct {
		})}
}

const (
	stopPoll     = time.Second
	stopTime     = 2 * time.Second // for one read of the store
	stopsUnknown = 4 * time.Second // without a read: then everything is stopped
)

// Run refreshes the board until ctx ends.
func (b *StopBoard) Run(ctx context.Context, from StopReader, log *slog.Logger) {
	tick := time.NewTicker(stopPoll)
	defer tick.Stop()
	failing, refused := false, false
	for {
		err := b.refresh(ctx, from)
		switch {
		case err == nil && failing:
			log.Info("emergency stops are read again")
			failing = false
		case err != nil && ctx.Err() == nil && !failing:
			log.Warn(
				"failed to read the emergency stops; if that lasts, nothing is written until "+
					"they are read", "after", stopsUnknown, "error", err)
			failing = true
		}
		if restorer, ok := from.(StopRestorer); ok && err == nil {
			err = b.restore(ctx, restorer, log)
			if err != nil && !refused && ctx.Err() == nil {
				log.Warn(
					"failed to restore an emergency stop that the database has lost; it is in "+
						"force here all the same", "error", err)
			}
			refused = err != nil
		}
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		case <-tick.C:
		}
	}
}

func (b *StopBoard) refresh(ctx context.Context, from StopReader) error {
	n, began := b.begin(), time.Now()
	within, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	records, err := from.StopRecords(within)
	if err == nil {
		b.set(records, began)
		b.finish(n)
	}
	return err
}

// restore gives lost stops back to the store.
func (b *StopBoard) restore(ctx context.Context, to StopRestorer, log *slog.Logger) error {
	for _, stop := range b.missing() {
		within, cancel := context.WithTimeout(ctx, stopTime)
		err := to.RestoreStop(within, stop)
		cancel()
		if err != nil {
			return err
		}
		log.Warn(
			"the database had lost an emergency stop, which is restored; `argosy resume` ends it",
			"scope", stop.Scope, "name", stop.Name, "by", stop.By, "at", stop.At)
		b.Wake()
	}
	return nil
}

func (b *StopBoard) missing() []mirror.Stop {
	b.mu.RLock()
	defer b.mu.RUnlock()
	missing := make([]mirror.Stop, 0, len(b.lost))
	for _, stop := range b.lost {
		missing = append(missing, stop)
	}
	return missing
}

// Hold forbids every write of this process from now on, beside all stops, or ends that. It is the
// word of the admin of an agent's cluster: no store records it.
func (b *StopBoard) Hold(held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if held == b.held {
		return
	}
	b.held = held
	b.recomputeLocked(true)
}

// Wake makes the board read the stops.
func (b *StopBoard) Wake() { b.wake.Set() }

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

// refreshed waits for a read that begins after now: a new worker knows every stop that was in force
// when it began, including stops that a rebuild has just found on an engine.
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

// set takes the result of a read that began at that time.
func (b *StopBoard) set(records mirror.StopRecords, began time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	unknown := !b.knownLocked()
	for _, end := range records.Ends {
		b.endLocked(end)
	}
	known := map[stopPlace]bool{}
	for _, stop := range records.Stops {
		known[placeOf(stop)] = true
		delete(b.lost, placeOf(stop))
	}
	for _, stop := range b.recorded {
		switch {
		case known[placeOf(stop)]:
		case records.Unended:
			b.endLocked(mirror.StopEnd{Scope: stop.Scope, Name: stop.Name, At: stop.At})
		default:
			b.lost[placeOf(stop)] = stop
		}
	}
	b.recorded, b.readAt = records.Stops, began
	b.recomputeLocked(!b.loaded || unknown)
	b.loaded = true
}

func (b *StopBoard) endLocked(end mirror.StopEnd) {
	at := stopPlace{end.Scope, end.Name}
	if before, ok := b.ends[at]; !ok || end.At.After(before.At) {
		b.ends[at] = end
	}
}

// recomputeLocked computes the stops in force, and signals a change.
func (b *StopBoard) recomputeLocked(changed bool) {
	stops := slices.Clone(b.recorded)
	for at, stop := range b.lost {
		if b.overLocked(stop) {
			delete(b.lost, at)
			continue
		}
		stops = append(stops, stop)
	}
	slices.SortFunc(stops, func(a, c mirror.Stop) int {
		return cmp.Or(cmp.Compare(a.Scope, c.Scope), cmp.Compare(a.Name, c.Name))
	})
	if changed = changed || !slices.EqualFunc(stops, b.stops, sameStop); !changed {
		return
	}
	b.stops = stops
	close(b.changed)
	b.changed = make(chan struct{})
}

// overLocked reports whether a stop has ended. The end of a stop without a time is unknown.
func (b *StopBoard) overLocked(stop mirror.Stop) bool {
	end, ok := b.ends[placeOf(stop)]
	return ok && !stop.At.IsZero() && !end.At.Before(stop.At)
}

func (b *StopBoard) over(stop mirror.Stop) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.overLocked(stop)
}

// remembered takes the stops on an engine. A stop whose end the store does not have is in force: on
// this engine at once, and in its whole scope as soon as the store has it back.
func (b *StopBoard) remembered(on fleet.EngineName, stops []mirror.Stop) {
	b.mu.Lock()
	defer b.mu.Unlock()
	noted := len(b.noted[on]) > 0
	delete(b.noted, on)
	for _, stop := range stops {
		switch {
		case stop.At.IsZero() || !slices.Contains(knownScopes, stop.Scope):
			b.noted[on] = append(b.noted[on], stop)
		case !concerns(stop, on) || b.overLocked(stop) || slices.ContainsFunc(b.stops,
			func(s mirror.Stop) bool { return placeOf(s) == placeOf(stop) }):
		default:
			b.lost[placeOf(stop)] = stop
		}
	}
	b.recomputeLocked(noted != (len(b.noted[on]) > 0))
	if len(b.lost) > 0 {
		b.Wake()
	}
}

// knownScopes are the scopes of this version.
var knownScopes = []mirror.StopScope{mirror.StopFleet, mirror.StopTenant, mirror.StopEngine}

func sameStop(a, b mirror.Stop) bool {
	return placeOf(a) == placeOf(b) && a.By == b.By && a.Reason == b.Reason && a.At.Equal(b.At)
}

// Changed returns a channel that is closed by the next change of the stops.
func (b *StopBoard) Changed() <-chan struct{} {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.changed
}

// Stopped returns whether writes to one engine are forbidden, as a function of the tenant.
func (b *StopBoard) Stopped(engine fleet.EngineName) func(fleet.TenantName) bool {
	return func(tenant fleet.TenantName) bool {
		b.mu.RLock()
		defer b.mu.RUnlock()
		return b.held || !b.knownLocked() || len(b.noted[engine]) > 0 ||
			slices.ContainsFunc(b.stops, func(s mirror.Stop) bool {
				return covers(s, engine, tenant)
			})
	}
}

// knownLocked reports whether the stops were read recently.
func (b *StopBoard) knownLocked() bool { return b.loaded && time.Since(b.readAt) <= stopsUnknown }

// Health is nil while the stops are known; else an error with the consequence.
func (b *StopBoard) Health() error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	switch {
	case !b.loaded:
		return fmt.Errorf(
			"the emergency stops were not read yet: nothing is written until they are")
	case !b.knownLocked():
		return fmt.Errorf(
			"the emergency stops were not read for %s: nothing is written until they are",
			time.Since(b.readAt).Round(time.Second))
	}
	return nil
}

// Age is how long ago the stops were read; 0 before they were.
func (b *StopBoard) Age() time.Duration {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.loaded {
		return 0
	}
	return time.Since(b.readAt)
}

// On lists the stops that belong on an engine.
func (b *StopBoard) On(engine fleet.EngineName) []mirror.Stop {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var on []mirror.Stop
	for _, s := range b.stops {
		if concerns(s, engine) {
			on = append(on, s)
		}
	}
	return on
}

// Ends are the latest ends of stops that an engine may remember, sorted.
func (b *StopBoard) Ends(engine fleet.EngineName) []mirror.StopEnd {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var ends []mirror.StopEnd
	for _, end := range b.ends {
		if concerns(mirror.Stop{Scope: end.Scope, Name: end.Name}, engine) {
			ends = append(ends, end)
		}
	}
	slices.SortFunc(ends, func(a, c mirror.StopEnd) int {
		return cmp.Or(cmp.Compare(a.Scope, c.Scope), cmp.Compare(a.Name, c.Name))
	})
	return ends
}

// concerns reports whether a stop belongs on an engine.
func concerns(s mirror.Stop, engine fleet.EngineName) bool {
	return s.Scope != mirror.StopEngine || s.Name == string(engine)
}

func covers(s mirror.Stop, engine fleet.EngineName, tenant fleet.TenantName) bool {
	switch s.Scope {
	case mirror.StopFleet:
		return true
	case mirror.StopEngine:
		return s.Name == string(engine)
	case mirror.StopTenant:
		return s.Name == string(tenant)
	default:
		return true // an unknown scope stops everything rather than nothing
	}
}
