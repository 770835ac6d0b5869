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
