package reconciler_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/reach"
)

// wedge is the application-controller of every engine.
type wedge struct {
	mu       sync.Mutex
	stuck    bool
	hopeless bool // a restart does not help
	restarts map[time.Time]bool
}

// wedged is an engine with a probe, and with Pods.
type wedged struct {
	engine.Engine
	*wedge
}

func (w wedged) Unwrap() engine.Engine { return w.Engine }

func (w wedged) RequestProbe(context.Context) error { return nil }

func (w wedged) RemoveProbe(context.Context) error { return nil }

func (w wedged) Probed(context.Context) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stuck {
		return "Application " + engine.ProbeName, nil
	}
	return "", nil
}

func (w wedged) CheckRestart(context.Context, fleet.Component) error { return nil }

func (w wedged) Restart(_ context.Context, _ fleet.Component, requested time.Time) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.restarts[requested] {
		w.restarts[requested] = true
		return "Pod 0 is terminating", nil
	}
	w.stuck = w.hopeless
	return "", nil
}

func (w *wedge) set(stuck, hopeless bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stuck, w.hopeless = stuck, hopeless
}

func (w *wedge) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.restarts)
}

func TestAStuckEngineIsRestartedOnceInAnOutage(t *testing.T) {
	t.Parallel()
	files := together(platform(), tenant("acme", "prod"))
	delete(files, "fleet/engines/eu-2.yaml")
	h := newHouse(t, files)
	w := &wedge{restarts: map[time.Time]bool{}}
	h.start("a", options{wrap: func(e engine.Engine) engine.Engine { return wedged{e, w} },
		work: reach.WorkLimits{Every: 50 * time.Millisecond, Stuck: 300 * time.Millisecond,
			Late: 200 * time.Millisecond, LateRow: 3}})
	shows := func(what string, ok func(view.Engine) bool) {
		t.Helper()
		h.eventually(what, func() error {
			all, _, err := h.store.Views.Engines(t.Context(), view.Scope{},
				view.Filter{Engine: "eu-1"}, view.Page{Limit: 1})
			if err != nil || len(all) != 1 || !ok(all[0]) {
				return fmt.Errorf("%+v, %w", all, err)
			}
			return nil
		})
	}
	works := func(e view.Engine) bool { return e.Work != nil && e.Work.State == mirror.Working }
	next := func(text string) {
		t.Helper()
		shows("next is "+text, func(e view.Engine) bool {
			return strings.Contains(e.NextRemedy, text)
		})
	}
	remedies := func() []mirror.Remedy {
		t.Helper()
		all, _, err := h.store.Views.Remedies(t.Context(), view.Scope{}, view.Filter{},
			view.Page{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	shows("the engine works", works)
	w.set(true, false)
	next("spec.remedies.restartController is Forbidden")
	h.commit("the platform allows a restart", map[string]string{
		"fleet/fleet.yaml": document("Fleet", "fleet", "guards: "+guards+
			"\n  gitHosts: [git.example.com]\n  remedies: {restartController: {mode: Allowed}}")})
	next("restart of the application-controller at ")
	if w.count() != 0 {
		t.Fatal("it is restarted before its time")
	}
	const longer = `UPDATE engines SET work_since = work_since - interval '1 hour'`
	h.exec(longer)
	h.eventually("the restart helped", func() error {
		if all := remedies(); len(all) != 1 || all[0].State != mirror.RemedyHelped {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
	shows("nothing is next", func(e view.Engine) bool {
		return works(e) && e.Remedy == nil && e.NextRemedy == ""
	})

	w.set(true, true)
	next("restart of the application-controller at ")
	h.exec(longer)
	next("was restarted")
	h.exec(`UPDATE remedies SET since = since - interval '6 minutes' WHERE state = 'Restarted'`)
	next("did not help; `argosy evacuate engine eu-1 --fence`")
	shows("it did not help", func(e view.Engine) bool {
		return e.Remedy != nil && e.Remedy.State == mirror.RemedyDidNotHelp
	})
	// no budget is used
	h.exec(`UPDATE remedies SET requested_at = requested_at - interval '2 hours'`)
	h.exec(longer)
	h.commit("another commit", map[string]string{"README.md": "x"})
	h.eventually("the loop goes on", h.converged)
	if n := w.count(); n != 2 || len(remedies()) != 2 {
		t.Errorf("%d restarts", n)
	}
	w.set(false, false)
	shows("the outage is over", func(e view.Engine) bool {
		return works(e) && e.Remedy == nil && e.NextRemedy == ""
	})
}
