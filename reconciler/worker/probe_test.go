package worker

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/fleet/mirror"
)

// probedEngine answers a requested refresh at once, unless it is stuck.
type probedEngine struct {
	engine.Engine
	mu       sync.Mutex
	stuck    bool
	stopped  bool
	open     bool
	away     error // of Health
	refused  bool
	refusals int
	asked    []time.Time
	deleted  bool // by somebody, before the next answer
}

func (e *probedEngine) RequestProbe(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return engine.ErrStopped
	}
	if e.refused {
		e.refusals++
		return engine.ErrRefused
	}
	e.asked, e.open = append(e.asked, time.Now()), true
	return nil
}

func (e *probedEngine) Health() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.away
}

func (e *probedEngine) Probed(context.Context) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.deleted {
		e.deleted = false
		return "", engine.ErrNoProbe
	}
	if e.open = e.open && e.stuck; e.open {
		return "Application " + engine.ProbeName, nil
	}
	return "", nil
}

// A controller that has failed to write its answer gets the request again before it counts as
// stuck.
func TestALostAnswerIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := workOn(t, enginetest.NewServer(), 0, 24*time.Hour)
		target := &probedEngine{Engine: s.target, stuck: true}
		s.connection.target, s.Poll = hiding{target}, 5*time.Second
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.prober.run(ctx) }()
		for target.requests() < 2 {
			time.Sleep(time.Second)
		}
		target.set(false, false)
		var state mirror.WorkState
		for range 15 {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			s.Worker.mu.Lock()
			state = s.Worker.work.State
			s.Worker.mu.Unlock()
			if state == mirror.ControllerStuck {
				t.Fatal("it counts as stuck")
			}
		}
		if state != mirror.Working {
			t.Errorf("it is %q", state)
		}
		if d := target.asked[1].Sub(target.asked[0]); d > 80*time.Second {
			t.Errorf("asked again after %s", d)
		}
		cancel()
		<-ended
	})
}

func (e *probedEngine) RemoveProbe(context.Context) error { return nil }

func (e *probedEngine) set(stuck, stopped bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stuck, e.stopped = stuck, stopped
}

func (e *probedEngine) requests() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.asked)
}

func TestASessionProbesItsEngineOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := workOn(t, enginetest.NewServer(), 0, 24*time.Hour)
		target := &probedEngine{Engine: s.target}
		s.connection.target, s.Poll = hiding{target}, 5*time.Second
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.prober.run(ctx) }()
		work := func() mirror.WorkState {
			synctest.Wait()
			s.Worker.mu.Lock()
			defer s.Worker.mu.Unlock()
			return s.Worker.work.State
		}
		time.Sleep(10 * time.Minute)
		if n := target.requests(); n < 9 || n > 11 || work() != mirror.Working {
			t.Errorf("%d requests in ten minutes, %s", n, work())
		}
		before := target.requests()
		target.set(true, false)
		time.Sleep(10 * time.Minute)
		// repeated, since Argo CD may have failed to write an answer
		if n := target.requests(); n < before+9 || n > before+11 ||
			work() != mirror.ControllerStuck {
			t.Errorf("%d requests without an answer, %s", n-before, work())
		}
		before = target.requests()
		target.mu.Lock()
		target.deleted = true
		target.mu.Unlock()
		time.Sleep(time.Minute)
		if n := target.requests(); n != before+2 || work() != mirror.ControllerStuck {
			t.Errorf("%d requests after somebody has deleted the probe, %s", n-before, work())
		}
		target.set(false, false)
		time.Sleep(time.Minute)
		if work() != mirror.Working {
			t.Errorf("it answers, and is %s", work())
		}
		target.set(false, true)
		before = target.requests()
		time.Sleep(time.Hour)
		if n := target.requests(); n != before || work() != "" {
			t.Errorf("%d requests during a stop, %q", n-before, work())
		}
		target.set(false, false)
		time.Sleep(time.Minute)
		if work() != mirror.Working {
			t.Errorf("after the stop, it is %q", work())
		}
		target.set(true, false)
		time.Sleep(70 * time.Second) // a refresh is open, for less than the limit
		target.mu.Lock()
		target.away = engine.ErrUnreachable
		target.mu.Unlock()
		time.Sleep(10 * time.Minute)
		if work() != mirror.Working {
			t.Errorf("an unreachable engine is blamed as %s", work())
		}
		target.mu.Lock()
		target.away, target.stuck, target.refused = nil, false, true
		target.mu.Unlock()
		time.Sleep(10 * time.Minute)
		target.mu.Lock()
		if n := target.refusals; n < 9 || n > 11 {
			t.Errorf("%d requests in ten minutes of refusals", n)
		}
		target.mu.Unlock()
		cancel()
		if err := <-ended; err == nil {
			t.Error("it ended without its context's error")
		}
	})
}
