package reconciler

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
)

type stopList struct {
	mu    sync.Mutex
	stops []fleet.Stop
	err   error
}

func (s *stopList) Stops(context.Context, fleet.Scope) ([]fleet.Stop, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stops, s.err
}

func (s *stopList) say(err error, stops ...fleet.Stop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops, s.err = stops, err
}

func TestStopsCoverWhatTheySay(t *testing.T) {
	for name, c := range map[string]struct {
		stop fleet.Stop
		want map[string]bool // engine/tenant
	}{
		"fleet":   {fleet.Stop{Scope: fleet.StopFleet}, map[string]bool{"eu-1/acme": true, "us-1/globex": true}},
		"tenant":  {fleet.Stop{Scope: fleet.StopTenant, Name: "acme"}, map[string]bool{"eu-1/acme": true, "us-1/acme": true, "eu-1/globex": false}},
		"engine":  {fleet.Stop{Scope: fleet.StopEngine, Name: "eu-1"}, map[string]bool{"eu-1/acme": true, "us-1/acme": false}},
		"unknown": {fleet.Stop{Scope: "galaxy"}, map[string]bool{"eu-1/acme": true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewStopBoard()
			b.set([]fleet.Stop{c.stop})
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
		from.say(nil, fleet.Stop{Scope: fleet.StopFleet, At: time.Now()})
		start := time.Now()
		<-changed
		if took := time.Since(start); took > stopPoll {
			t.Errorf("seen after %s", took)
		}
		from.say(errors.New("the database is away"))
		wait(t.Context(), time.Minute)
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
		from.say(nil, fleet.Stop{Scope: fleet.StopFleet, At: time.Now()})
		start := time.Now()
		if err := b.refreshed(t.Context()); err != nil || !b.Stopped("eu-1")("acme") {
			t.Errorf("refreshed without the stop: %v", err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it waited %s for the next poll", took)
		}
		from.say(errors.New("the database is away"))
		short, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		if err := b.refreshed(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("refreshed from a store that cannot be read: %v", err)
		}
		cancel()
		<-done
	})
}

func TestOnlyAStopThatWasSeenInForceCanBeOver(t *testing.T) {
	b := NewStopBoard()
	engine, everything := fleet.Stop{Scope: fleet.StopEngine, Name: "eu-1"}, fleet.Stop{Scope: fleet.StopFleet}
	b.set(nil)
	if b.over(placeOf(engine)) {
		t.Error("a stop that the store never knew is over: it may be from before the database was lost")
	}
	b.set([]fleet.Stop{engine, everything})
	b.set([]fleet.Stop{everything})
	if !b.over(placeOf(engine)) || b.over(placeOf(everything)) {
		t.Error("the stop that was ended is not the one that is over")
	}
	b.set([]fleet.Stop{engine})
	if b.over(placeOf(engine)) {
		t.Error("a stop that is in force again is over")
	}
}

func TestStopsThatStayWakeNobody(t *testing.T) {
	b := NewStopBoard()
	at := time.Now()
	b.set([]fleet.Stop{{Scope: fleet.StopFleet, By: "a", At: at}})
	changed := b.Changed()
	b.set([]fleet.Stop{{Scope: fleet.StopFleet, By: "a", At: at.In(time.FixedZone("elsewhere", 3600)).Round(0)}})
	select {
	case <-changed:
		t.Error("the same stop, read again, counts as a change")
	default:
	}
}
