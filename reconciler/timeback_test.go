package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
)

// forget runs statements in the mirror as if it had been restored from before they took effect: triggers record nothing.
func (h *house) forget(statements ...string) {
	h.t.Helper()
	conn, err := pgx.Connect(context.Background(), h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range append([]string{"SET search_path = argosy", "SET session_replication_role = replica"}, statements...) {
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			h.t.Fatalf("%s: %v", sql, err)
		}
	}
}

func (h *house) writes() (n int) {
	for _, e := range h.engines {
		n += e.writes()
	}
	return n
}

// stopped says whether the store has exactly this many stops in force.
func (h *house) stopped(want int) error {
	stops, err := h.store.Stops(context.Background(), fleet.Scope{})
	if err == nil && len(stops) != want {
		err = fmt.Errorf("%d stops are in force, not %d", len(stops), want)
	}
	return err
}

func TestAStopThatTheDatabaseLosesStaysInForceAndComesBack(t *testing.T) {
	for name, restarted := range map[string]bool{"while a replica runs": false, "before a new process starts": true} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, small())
			a := h.start("a", options{})
			h.eventually("the fleet stands", h.settled)
			h.setStop(fleet.Stop{Scope: fleet.StopFleet})
			for name := range h.engines {
				h.eventually("the engine remembers the stop", func() error { return h.marked(name, 1) })
			}
			head := h.commit("during the stop", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
			h.eventually("it is recorded", func() error {
				if s, _ := h.store.Source(t.Context()); s.Applied != head {
					return errors.New("not recorded")
				}
				return nil
			})
			written := h.writes()
			if restarted {
				a.stop()
			}
			h.forget("DELETE FROM stops")
			if restarted {
				a = h.start("b", options{})
			}
			h.eventually("the stop is restored", func() error { return h.stopped(1) })
			h.passes(a, 10)
			for name := range h.engines {
				if err := h.marked(name, 1); err != nil {
					t.Error(err)
				}
			}
			if n := h.writes() - written; n != 0 {
				t.Errorf("%d writes in spite of the stop", n)
			}
			if _, err := h.store.ClearStop(t.Context(), fleet.StopFleet, "", "", "token:test"); err != nil {
				t.Fatal(err)
			}
			h.eventually("it goes on when resumed", h.settled)
			for name := range h.engines {
				h.eventually("the engine forgets the stop", func() error { return h.marked(name, 0) })
			}
		})
	}
}
