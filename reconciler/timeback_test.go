package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/test/stack"
)

// forget runs statements in the mirror as if it had been restored from before they took effect:
// triggers record nothing.
func (h *house) forget(statements ...string) {
	h.t.Helper()
	all := append([]string{"SET search_path = argosy", "SET session_replication_role = replica"},
		statements...)
	if err := stack.ExecSQL(context.Background(), h.url, strings.Join(all, ";\n")); err != nil {
		h.t.Fatalf("%s: %v", all, err)
	}
}

func (h *house) writes() (n int) {
	for _, e := range h.engines {
		n += e.writes()
	}
	return n
}

// stopped reports whether the store has exactly this many stops in force.
func (h *house) stopped(want int) error {
	stops, err := h.store.Views.Stops(context.Background(), view.Scope{})
	if err == nil && len(stops) != want {
		err = fmt.Errorf("%d stops are in force, not %d", len(stops), want)
	}
	return err
}

func TestAStopThatTheDatabaseLosesStaysInForceAndComesBack(t *testing.T) {
	t.Parallel()
	for name, restarted := range map[string]bool{"while a replica runs": false,
		"before a new process starts": true} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, small())
			a := h.start("a", options{})
			h.eventually("the fleet is in sync", h.converged)
			h.setStop(mirror.Stop{Scope: mirror.StopFleet})
			for name := range h.engines {
				h.eventually("the engine remembers the stop", func() error {
					return h.marked(name, 1)
				})
			}
			head := h.commit("during the stop", deployment("acme", "web", "v2", "Delete", "prod",
				"staging"))
			h.eventually("it is recorded", func() error {
				if s, _ := h.store.Views.Source(t.Context()); s.Applied != head {
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
			if _, err := h.store.Decisions.ClearStop(t.Context(), mirror.StopFleet, "", "",
				"token:test"); err != nil {
				t.Fatal(err)
			}
			h.eventually("it goes on when resumed", h.converged)
			for name := range h.engines {
				h.eventually("the engine forgets the stop", func() error {
					return h.marked(name, 0)
				})
			}
		})
	}
}

// failover is a house whose database has a standby, behind one address.
type failover struct {
	*house
	primary *stack.Postgres
	standby *stack.Standby
	front   *stack.Outlet
}

func newFailover(t *testing.T, files map[string]string) *failover {
	t.Helper()
	f := &failover{}
	var err error
	if f.primary, err = stack.StartPostgresWith(t.Context(), stack.PostgresOptions{
		Replicated: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.primary.Stop() })
	url, err := f.primary.NewDatabase(t.Context(), "argosy")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if f.standby, err = f.primary.StartStandby(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.standby.Stop() })
	if f.front, err = (*stack.Firewall)(nil).Outlet("127.0.0.1:0", nil,
		f.primary.Address()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.front.Close)
	f.house = newHouse(t, files)
	f.url = f.primary.Through(f.front, "argosy")
	if f.store, err = postgres.Open(context.Background(), f.url, postgres.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.store.Close)
	return f
}

// promote fails over to the standby. slowly: every lease has run out by then.
func (f *failover) promote(slowly bool) {
	f.t.Helper()
	f.front.Block(true)
	f.primary.Kill()
	if err := f.standby.Promote(context.Background()); err != nil {
		f.t.Fatal(err)
	}
	if slowly {
		err := stack.ExecSQL(context.Background(), f.standby.DatabaseURL("argosy"),
			// an agent's is for good
			"UPDATE argosy.leases SET expires_at = '-infinity' WHERE NOT starts_with(holder, "+
				"'agent/')")
		if err != nil {
			f.t.Fatal(err)
		}
	}
	f.front.Switch(f.standby.Address())
	f.front.Block(false)
}

// ledger is what engines were asked to do.
type ledger struct {
	mu      sync.Mutex
	deletes []fleet.ObjectKey
}

func (l *ledger) record(call string, key fleet.ObjectKey) error {
	if call == "delete" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.deletes = append(l.deletes, key)
	}
	return nil
}

func (l *ledger) deleted() []fleet.ObjectKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deletes
}

// bears reports whether every Application of a deployment bears the revision.
func (h *house) bears(deployment fleet.DeploymentName, revision string) error {
	n := 0
	for _, e := range h.engines {
		for _, live := range e.inventory() {
			if live.Key.Kind != fleet.ObjectApplication || live.Deployment != deployment {
				continue
			}
			n++
			if at := e.server.Field(live.Key, "spec.source.targetRevision"); at != revision {
				return fmt.Errorf("%s is at %s, not %s", live.Key.Name, at, revision)
			}
		}
	}
	if n == 0 {
		return fmt.Errorf("deployment %s is on no engine", deployment)
	}
	return nil
}

// leaveBehind applies commits that the standby lacks: they restore an Application that the standby
// has as deleted, and change another one.
func (f *failover) leaveBehind() {
	f.t.Helper()
	f.commit("an Application goes", gone(deployment("globex", "shop", "v1", "Orphan", "prod")))
	f.eventually("it is gone", f.converged)
	if err := f.standby.CaughtUp(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	f.standby.Pause()
	f.commit("it is back, and another is newer",
		together(deployment("globex", "shop", "v2", "Delete", "prod"),
			deployment("acme", "web", "v2", "Delete", "prod", "staging")))
	f.eventually("the tail is applied", f.converged)
}

// A standby that lacks the last commits is promoted. Their objects stay: none is put back to an
// earlier revision, none is deleted, and the lost stop stays in force. The mirror catches up by
// itself, without a restart and without another commit.
func TestAFailoverThatLosesItsTailUndoesNothingAndConverges(t *testing.T) {
	t.Parallel()
	for name, slowly := range map[string]bool{"fast, with its leases": false,
		"slow, without": true} {
		t.Run(name, func(t *testing.T) {
			f := newFailover(t, small())
			requests := &ledger{}
			a := f.start("a", options{engine: requests.record})
			f.eventually("the fleet is in sync", f.converged)
			f.leaveBehind()
			f.setStop(mirror.Stop{Scope: mirror.StopTenant, Name: "globex"})
			for name := range f.engines {
				f.eventually("the engine remembers the stop", func() error {
					return f.marked(name, 1)
				})
			}
			deletes, written := len(requests.deleted()), f.writes()
			a.source.away.Store(true)
			f.promote(slowly)
			f.eventually("the replica reads the new primary", func() error { return f.stopped(1) })
			from := a.store.asked("changed")
			f.eventually("its workers have turned", func() error {
				if n := a.store.asked("changed") - from; n < 20 {
					return fmt.Errorf("%d reads", n)
				}
				return nil
			})
			if err := errors.Join(f.bears("web", "v2"), f.bears("shop", "v2")); err != nil {
				t.Error("while Git is away:", err)
			}
			a.source.away.Store(false)
			if _, err := f.store.Decisions.ClearStop(t.Context(), mirror.StopTenant, "globex", "",
				"token:test"); err != nil {
				t.Fatal(err)
			}
			f.eventually("the mirror has caught up", f.converged)
			if err := errors.Join(f.bears("web", "v2"), f.bears("shop", "v2")); err != nil {
				t.Error(err)
			}
			if n := len(requests.deleted()) - deletes; n != 0 {
				t.Errorf("%d deletions", n)
			}
			if n := f.writes() - written; n != 0 {
				t.Errorf("%d writes to engines that had everything", n)
			}
			f.commit("the next one", deployment("acme", "web", "v3", "Delete", "prod", "staging"))
			f.eventually("it is applied", f.converged)
		})
	}
}

// A backup of yesterday, restored while Git cannot be reached, changes nothing on any engine; and
// once Git answers, all is as it was.
func TestARestoredBackupUndoesNothingWhileGitIsAway(t *testing.T) {
	t.Parallel()
	// the standby is the backup: all that was committed until it was paused
	f := newFailover(t, small())
	a := f.start("a", options{})
	f.eventually("the fleet is in sync", f.converged)
	f.leaveBehind()
	a.stop()
	f.promote(true)
	requests, written := &ledger{}, f.writes()
	b := f.start("b", options{engine: requests.record, gitAway: true})
	f.eventually("the engines are verified", func() error {
		if n := b.store.asked("changed"); n < 20 {
			return fmt.Errorf("%d reads", n)
		}
		return nil
	})
	if n := f.writes() - written; n != 0 || len(requests.deleted()) != 0 {
		t.Errorf("%d writes and %d deletions while Git is away", n, len(requests.deleted()))
	}
	b.source.away.Store(false)
	f.eventually("the mirror has caught up", f.converged)
	if n := f.writes() - written; n != 0 || len(requests.deleted()) != 0 {
		t.Errorf("%d writes and %d deletions on engines that had everything", n,
			len(requests.deleted()))
	}
	f.commit("the next one", deployment("acme", "web", "v3", "Delete", "prod", "staging"))
	f.eventually("it is applied", f.converged)
}
