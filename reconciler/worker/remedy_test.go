package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/fleet/mirror"
)

// remedyRows is a store with a requested remedy.
type remedyRows struct {
	reports
	mu     sync.Mutex
	remedy mirror.Remedy
	asked  int
	log    []string
}

func (r *remedyRows) OpenRemedy(context.Context, mirror.Lease) (mirror.Remedy, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	open := r.remedy.State == mirror.RemedyRequested || r.remedy.State == mirror.RemedyRestarting
	return r.remedy, open, nil
}

func (r *remedyRows) asks() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

func (r *remedyRows) ReportRemedy(_ context.Context, _ mirror.Lease, id string,
	state mirror.RemedyState, why string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remedy.State = state
	r.log = append(r.log, fmt.Sprintf("%s %s %s", id, state, why))
	return nil
}

// restartedEngine is stuck until its Pods are replaced, which takes steps.
type restartedEngine struct {
	probedEngine
	steps   int
	refused error
	broken  error // of the next step
	begun   int
}

func (e *restartedEngine) CheckRestart(context.Context, fleet.Component) error { return e.refused }

func (e *restartedEngine) Restart(_ context.Context, c fleet.Component, _ time.Time) (string,
	error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.begun++; e.broken != nil {
		defer func() { e.broken = nil }()
		return "", e.broken
	}
	if e.steps--; e.steps > 0 {
		return "Pod 0 is terminating", nil
	}
	e.stuck = false
	return "", nil
}

func TestASessionCarriesOutARemedy(t *testing.T) {
	for name, c := range map[string]struct {
		target *restartedEngine
		change func(*mirror.Remedy)
		stuck  bool
		begun  int
		want   []string
	}{
		"a restart": {&restartedEngine{steps: 2}, nil, true, 2, []string{"1 Restarting ",
			"1 Restarting Pod 0 is terminating", "1 Restarted "}},
		"an error is tried again": {&restartedEngine{steps: 1, broken: errors.New("away")}, nil,
			true, 2, []string{"1 Restarting ", "1 Restarting away", "1 Restarted "}},
		"another replica has begun": {&restartedEngine{steps: 1}, func(r *mirror.Remedy) {
			r.State = mirror.RemedyRestarting
		}, true, 1, []string{"1 Restarted "}},
		"a right is missing": {&restartedEngine{refused: fmt.Errorf("%w: no right",
			engine.ErrRefused)}, nil, true, 0, []string{
			"1 Failed " + engine.ErrRefused.Error() + ": no right"}},
		"a remedy against another fault": {&restartedEngine{}, func(r *mirror.Remedy) {
			r.Fault = mirror.RepoServerSilent
		}, true, 0, nil},
		"the engine works for this session": {&restartedEngine{}, nil, false, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := workOn(t, enginetest.NewServer(), 0, 24*time.Hour)
				rows := &remedyRows{remedy: mirror.Remedy{ID: "1", State: mirror.RemedyRequested,
					Restarts: fleet.ApplicationController, Fault: mirror.ControllerStuck}}
				if c.change != nil {
					c.change(&rows.remedy)
				}
				c.target.Engine, c.target.stuck = s.target, c.stuck
				s.connection.target, s.Rows, s.Poll = hiding{c.target}, rows, 5*time.Second
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- s.prober.run(ctx) }()
				time.Sleep(30 * time.Second) // before there is evidence
				synctest.Wait()
				if rows.asks() != 0 {
					t.Error("a session without evidence of its own asks for a remedy")
				}
				time.Sleep(10 * time.Minute)
				cancel()
				<-ended
				if !slices.Equal(rows.log, c.want) || c.target.begun != c.begun {
					t.Errorf("%d steps: %q", c.target.begun, rows.log)
				}
				if !c.stuck && rows.asked != 0 {
					t.Errorf("a working engine asks the store %d times", rows.asked)
				}
			})
		})
	}
}

func TestAStopDelaysARemedy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := workOn(t, enginetest.NewServer(), 0, 24*time.Hour)
		rows := &remedyRows{remedy: mirror.Remedy{ID: "1", State: mirror.RemedyRestarting,
			Restarts: fleet.ApplicationController, Fault: mirror.ControllerStuck}}
		target := &restartedEngine{steps: 1, broken: engine.ErrStopped}
		target.Engine, target.stuck = s.target, true
		s.connection.target, s.Rows, s.Poll = hiding{target}, rows, 5*time.Second
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_ = s.prober.run(ctx)
		want := []string{"1 Restarting " + engine.ErrStopped.Error(), "1 Restarted "}
		if !slices.Equal(rows.log, want) {
			t.Errorf("%q", rows.log)
		}
	})
}
