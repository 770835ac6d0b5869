package reconciler_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"argosy.dev/argosy/fleet"
)

// asking counts the syncs that are asked of engines, by Application.
type asking struct {
	mu sync.Mutex
	of map[fleet.ObjectKey]int
}

func (a *asking) record(call string, key fleet.ObjectKey) error {
	if call == "sync" {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.of == nil {
			a.of = map[fleet.ObjectKey]int{}
		}
		a.of[key]++
	}
	return nil
}

func (a *asking) times(key fleet.ObjectKey) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[key]
}

func syncRun(name, revision string, environments string) map[string]string {
	return map[string]string{"tenants/acme/syncs/" + name + ".yaml": document("SyncRun", name,
		"deployment: web\n  environments: ["+environments+"]\n  revision: "+revision+
			"\n  hold: true")}
}

// A database that is lost forgets which SyncRuns were done, and their files are new to the one
// after it. The Applications on an engine have had their syncs: none is requested again, whether
// the engine is read at once or later, and their holds stay.
func TestASyncIsNotDoneAgainAfterTheDatabaseIsLost(t *testing.T) {
	t.Parallel()
	for name, hidden := range map[string]bool{"the engines are read": false,
		"an engine is read later": true} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, small())
			before := &asking{}
			a := h.start("a", options{engine: before.record})
			h.eventually("the fleet is in sync", h.converged)
			h.commit("roll back", syncRun("rollback", "v0", "prod, staging"))
			var keys []fleet.ObjectKey
			for _, environment := range []string{"prod", "staging"} {
				keys = append(keys, keyOf(h.engineOf("acme", fleet.EnvironmentName(environment)),
					"acme", "web", environment))
			}
			h.eventually("both are asked for", func() error { return asked(before, keys, 1) })
			h.eventually("and held", h.converged)
			for _, key := range keys {
				h.engines[key.Engine].server.Merge(key,
					`{"operation":null,"status":{"operationState":{"phase":"Succeeded"}}}`)
			}
			a.stop()

			at := h.engines[keys[0].Engine]
			h.newDatabase()
			at.hidden.Store(hidden)
			after := &asking{}
			b := h.start("b", options{engine: after.record})
			h.passes(b, 3)
			at.hidden.Store(false)
			h.eventually("the fleet is in sync again", h.converged)
			h.reconciles(b, 5)
			if err := asked(after, keys, 0); err != nil {
				t.Error(err)
			}
			for _, key := range keys {
				if got := h.engines[key.Engine].server.Field(key,
					"spec.syncPolicy.automated"); got != "" {
					t.Errorf("%s is automated: %s", key.Name, got)
				}
			}
			h.commit("another one", syncRun("again", "v00", "prod, staging"))
			h.eventually("what is new is asked for", func() error { return asked(after, keys, 1) })
		})
	}
}

func asked(a *asking, keys []fleet.ObjectKey, want int) error {
	for _, key := range keys {
		if n := a.times(key); n < want || want == 0 && n > 0 {
			return fmt.Errorf("%s was asked for %d syncs, not %d", key.Name, n, want)
		}
	}
	return nil
}

// reconciles waits until every worker has looked for syncs n times more.
func (h *house) reconciles(r *replica, n int) {
	h.t.Helper()
	for name := range h.engines {
		from := r.store.asked("syncs " + string(name))
		h.eventually("the worker goes on", func() error {
			if r.store.asked("syncs "+string(name)) < from+n {
				return errors.New("no turn")
			}
			return nil
		})
	}
}
