package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/fleet/mirror"
)

// meteredEngine serves metrics of a process that uses half a core.
type meteredEngine struct {
	engine.Engine
	mu    sync.Mutex
	reads int
	apps  int // bytes of Applications
	fails bool
}

func (e *meteredEngine) ReadMetrics(_ context.Context, from fleet.MetricsEndpoint) (io.ReadCloser,
	error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reads++
	if e.fails {
		return nil, errors.New("403 Forbidden: " + strings.Repeat("x", 10000))
	}
	cpu := time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Seconds() / 2
	return io.NopCloser(strings.NewReader(strings.Repeat("argocd_app_info 1\n", e.apps/18) +
		fmt.Sprintf("process_start_time_seconds 1\nprocess_cpu_seconds_total %f\n"+
			"workqueue_depth{name=\"app_reconciliation_queue\"} 3\n", cpu))), nil
}

func (e *meteredEngine) set(apps int, fails bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.apps, e.fails, e.reads = apps, fails, 0
}

func (e *meteredEngine) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reads
}

// hiding is a wrapper as agents have one.
type hiding struct{ engine.Engine }

func (h hiding) Unwrap() engine.Engine { return h.Engine }

func TestASessionMeasuresItsEngineOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := workOn(t, enginetest.NewServer(), 0, 24*time.Hour)
		target := &meteredEngine{Engine: s.target}
		s.connection.target, s.Poll = hiding{target}, 5*time.Second
		if err := newMeasurer(s.connection).run(t.Context()); err != nil || target.count() != 0 {
			t.Errorf("%d reads without spec.metrics, %v", target.count(), err)
		}
		s.Spec.Metrics = &fleet.EngineMetrics{ApplicationController: []fleet.MetricsEndpoint{
			{Service: &fleet.MetricsPort{Name: "argocd-metrics", Port: 8082}}}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- newMeasurer(s.connection).run(ctx) }()
		load := func() *mirror.Load {
			synctest.Wait()
			s.Worker.mu.Lock()
			defer s.Worker.mu.Unlock()
			return s.Worker.load
		}
		time.Sleep(10 * time.Minute)
		if l, n := load(), target.count(); n < 9 || n > 11 || !l.Fresh(time.Now()) ||
			l.Controller.Queue != 3 || l.Controller.CPU < 0.49 || l.Controller.CPU > 0.51 {
			t.Errorf("%d reads in ten minutes, %+v", n, l)
		}
		// what is read in a minute does not grow with the Applications
		target.set(5*measureBytes/2, false)
		time.Sleep(30 * time.Minute)
		if n := target.count(); n < 8 || n > 11 {
			t.Errorf("%d reads of 10 MiB in 30 minutes", n)
		}
		target.set(0, true)
		time.Sleep(mirror.LoadMaxAge + 5*time.Minute)
		if l := load(); l.Fresh(time.Now()) || len(l.Message) > messageBytes ||
			!strings.Contains(l.Message, "service argocd-metrics:8082: 403 Forbidden") {
			t.Errorf("without metrics: %+v", l)
		}
		cancel()
		if err := <-ended; err == nil {
			t.Error("it ended without its context's error")
		}
	})
}
