package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

type stopList struct {
	mu       sync.Mutex
	stops    []mirror.Stop
	ends     []mirror.StopEnd
	err      error
	hang     bool
	restored []mirror.Stop
}

func (s *stopList) StopRecords(ctx context.Context) (mirror.StopRecords, error) {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return mirror.StopRecords{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return mirror.StopRecords{Stops: s.stops, Ends: s.ends}, s.err
}

func (s *stopList) RestoreStop(_ context.Context, stop mirror.Stop) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restored = append(s.restored, stop)
	s.stops = append(s.stops, stop)
	return nil
}

func (s *stopList) hangs(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hang = on
}

func (s *stopList) set(err error, stops ...mirror.Stop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops, s.err = stops, err
}

// The admin of an agent's cluster holds it: that is no stop, and no stop's end ends it.
func TestAHoldForbidsEveryWriteBesideTheStops(t *testing.T) {
	b, from := NewStopBoard(), &stopList{}
	stopped := b.Stopped("eu-1")
	refresh := func() {
		t.Helper()
		if err := b.refresh(t.Context(), from); err != nil {
			t.Fatal(err)
		}
	}
	refresh()
	if stopped("acme") {
		t.Error("stopped without a stop")
	}
	changed := b.Changed()
	b.Hold(true)
	select {
	case <-changed:
	default:
		t.Error("no worker learns of the hold")
	}
	from.set(nil, mirror.Stop{Scope: mirror.StopTenant, Name: "globex", At: time.Now()})
	refresh()
	from.set(nil)
	from.ends = []mirror.StopEnd{{Scope: mirror.StopTenant, Name: "globex", At: time.Now()}}
	refresh()
	if !stopped("acme") || !stopped("globex") || len(b.missing()) > 0 {
		t.Error("the end of a stop ends the hold")
	}
	changed = b.Changed()
	b.Hold(false)
	select {
	case <-changed:
	default:
		t.Error("no worker learns of the end of the hold")
	}
	if stopped("acme") || stopped("globex") {
		t.Error("stopped after the end of the hold")
	}
}

func TestStopsCoverTheirScope(t *testing.T) {
	for name, c := range map[string]struct {
		stop mirror.Stop
		want map[string]bool // engine/tenant
	}{
		"fleet": {mirror.Stop{Scope: mirror.StopFleet}, map[string]bool{
			"eu-1/acme": true, "us-1/globex": true}},
		"tenant": {mirror.Stop{Scope: mirror.StopTenant, Name: "acme"}, map[string]bool{
			"eu-1/acme": true, "us-1/acme": true, "eu-1/globex": false}},
		"engine": {mirror.Stop{Scope: mirror.StopEngine, Name: "eu-1"}, map[string]bool{
			"eu-1/acme": true, "us-1/acme": false}},
		"unknown": {mirror.Stop{Scope: "galaxy"}, map[string]bool{"eu-1/acme": true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewStopBoard()
			b.set(records(c.stop), time.Now())
			for where, want := range c.want {
				engine, tenant := fleet.EngineName(where[:4]), fleet.TenantName(where[5:])
				if got := b.Stopped(engine)(tenant); got != want {
					t.Errorf("%s: stopped is %v", where, got)
				}
			}
		})
	}
}

func TestNothingIsWrittenBeforeTheStopsWereRead(t *testing.T) {
	if !NewStopBoard().Stopped("eu-1")("acme") {
		t.Fatal("writes are allowed although the stops are unknown")
	}
}

func TestAStopIsSeenWithinASecondAndOutlivesAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &stopList{}
		b := NewStopBoard()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.Run(ctx, from, slog.New(slog.DiscardHandler)) }()
		synctest.Wait()
		if b.Stopped("eu-1")("acme") {
			t.Error("stopped without a stop")
		}
		changed := b.Changed()
		from.set(nil, mirror.Stop{Scope: mirror.StopFleet, At: time.Now()})
		start := time.Now()
		<-changed
		if took := time.Since(start); took > stopPoll {
			t.Errorf("seen after %s", took)
		}
		from.set(errors.New("the database is away"))
		pacing.Sleep(t.Context(), time.Minute)
		if !b.Stopped("eu-1")("acme") {
			t.Error("an error ended the stop")
		}
		cancel()
		<-done
	})
}

func TestABoardIsRefreshedFromAReadThatBeganAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &stopList{}
		b := NewStopBoard()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.Run(ctx, from, slog.New(slog.DiscardHandler)) }()
		synctest.Wait()
		from.set(nil, mirror.Stop{Scope: mirror.StopFleet, At: time.Now()})
		start := time.Now()
		if err := b.refreshed(t.Context()); err != nil || !b.Stopped("eu-1")("acme") {
			t.Errorf("refreshed without the stop: %v", err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it waited %s for the next poll", took)
		}
		from.set(errors.New("the database is away"))
		short, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		if err := b.refreshed(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("refreshed from a store that cannot be read: %v", err)
		}
		cancel()
		<-done
	})
}

func records(stops ...mirror.Stop) mirror.StopRecords { return mirror.StopRecords{Stops: stops} }

func ended(stop mirror.Stop, at time.Time) mirror.StopEnd {
	return mirror.StopEnd{Scope: stop.Scope, Name: stop.Name, At: at}
}

func TestAStopIsOverByTheRecordOfItsEndAlone(t *testing.T) {
	at := time.Now()
	everything, engine := mirror.Stop{Scope: mirror.StopFleet, At: at}, mirror.Stop{
		Scope: mirror.StopEngine, Name: "eu-1", At: at}
	b := NewStopBoard()
	b.set(records(everything, engine), time.Now())
	b.set(records(), time.Now())
	if !b.Stopped("us-1")("acme") || b.over(everything) || len(b.On("eu-1")) != 2 {
		t.Error("a store that no longer has the stop has ended it")
	}
	b.set(mirror.StopRecords{Ends: []mirror.StopEnd{ended(everything, at.Add(-time.Hour))}},
		time.Now())
	if !b.Stopped("us-1")("acme") || b.over(everything) {
		t.Error("the end of an earlier stop has ended it")
	}
	b.set(mirror.StopRecords{Ends: []mirror.StopEnd{ended(everything, at.Add(time.Second))}},
		time.Now())
	if b.Stopped("us-1")("acme") || !b.over(everything) {
		t.Error("its end has not ended it")
	}
	if !b.Stopped("eu-1")("acme") || b.over(engine) {
		t.Error("the end of another place's stop has ended it")
	}
	b.set(mirror.StopRecords{}, time.Now())
	if b.Stopped("us-1")("acme") {
		t.Error("a store that has lost the end too has brought the stop back")
	}
}

func TestAHubWithoutEndsEndsAStopByNotListingIt(t *testing.T) {
	b := NewStopBoard()
	stop := mirror.Stop{Scope: mirror.StopFleet, At: time.Now()}
	b.set(mirror.StopRecords{Stops: []mirror.Stop{stop}, Unended: true}, time.Now())
	b.set(mirror.StopRecords{Unended: true}, time.Now())
	if b.Stopped("eu-1")("acme") || !b.over(stop) {
		t.Error("the stop cannot be ended")
	}
}

func TestAStopThatAnEngineRemembersIsInForceAndRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &stopList{}
		b := NewStopBoard()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.Run(ctx, from, slog.New(slog.DiscardHandler)) }()
		synctest.Wait()
		stop := mirror.Stop{Scope: mirror.StopTenant, Name: "acme", By: "token:ops", At: time.Now()}
		b.remembered("eu-1", []mirror.Stop{
			stop, {Scope: mirror.StopEngine, Name: "us-1", At: time.Now()}})
		if !b.Stopped("eu-1")("acme") || b.Stopped("us-1")("globex") {
			t.Error("what the engine remembers does not stop what it covers, or more than that")
		}
		synctest.Wait()
		if len(from.restored) != 1 || !sameStop(from.restored[0], stop) {
			t.Errorf("restored: %+v", from.restored)
		}
		from.mu.Lock()
		from.stops, from.ends = nil, []mirror.StopEnd{ended(stop, stop.At.Add(1))}
		from.mu.Unlock()
		pacing.Sleep(t.Context(), 2*stopPoll)
		b.remembered("eu-1", []mirror.Stop{stop}) // not cleared yet
		if b.Stopped("eu-1")("acme") {
			t.Error("a marker that outlived the end of its stop brings it back")
		}
		note := mirror.Stop{Scope: mirror.StopEngine, Name: "eu-1"}
		b.remembered("eu-1", []mirror.Stop{note})
		if !b.Stopped("eu-1")("acme") || b.Stopped("us-1")("acme") {
			t.Error("a note that cannot be read stops its engine, and that alone")
		}
		b.remembered("eu-1", nil)
		if b.Stopped("eu-1")("acme") {
			t.Error("the note was removed")
		}
		cancel()
		<-done
	})
}

func TestStopsThatCannotBeReadForFourSecondsAreAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, fail := range map[string]func(*stopList, bool){
			"the store fails": func(s *stopList, on bool) {
				if on {
					s.set(errors.New("the database is away"))
				} else {
					s.set(nil)
				}
			},
			"the store hangs": (*stopList).hangs,
		} {
			from := &stopList{}
			b := NewStopBoard()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); b.Run(ctx, from, slog.New(slog.DiscardHandler)) }()
			synctest.Wait()
			stopped := b.Stopped("eu-1")
			fail(from, true)
			pacing.Sleep(t.Context(), 2*time.Second)
			if stopped("acme") || b.Health() != nil {
				t.Errorf("%s: stopped after two seconds", name)
			}
			pacing.Sleep(t.Context(), 3*time.Second)
			if !stopped("acme") || b.Health() == nil {
				t.Errorf("%s: not stopped after five seconds", name)
			}
			changed := b.Changed()
			fail(from, false)
			start := time.Now()
			<-changed // those that wait for the stop's end are woken
			if took := time.Since(start); stopped("acme") || b.Health() != nil || took > stopTime+
				stopPoll {
				t.Errorf("%s: still stopped %s after it ended", name, took)
			}
			cancel()
			<-done
		}
	})
}

func TestUnchangedStopsWakeNoWorker(t *testing.T) {
	b := NewStopBoard()
	at := time.Now()
	b.set(records(mirror.Stop{Scope: mirror.StopFleet, By: "a", At: at}), at)
	changed := b.Changed()
	b.set(
		records(mirror.Stop{Scope: mirror.StopFleet, By: "a",
			At: at.In(time.FixedZone("elsewhere", 3600)).Round(0)}), at)
	select {
	case <-changed:
		t.Error("the same stop, read again, counts as a change")
	default:
	}
}
