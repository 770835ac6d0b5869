package reconciler_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/test/stack"
)

// day is a house, its dump of yesterday, and what was done to its engines since.
type day struct {
	*house
	server   *stack.Postgres
	dump     string
	requests *ledger
	a        *replica
	written  int
	deleted  int
}

// yesterday dumps the mirror with pg_dump after an Application has gone; then a day's work brings
// it back, newer.
func yesterday(t *testing.T) *day {
	t.Helper()
	d := &day{requests: &ledger{}, dump: filepath.Join(t.TempDir(), "yesterday.dump")}
	var err error
	if d.server, err = stack.StartPostgres(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.server.Stop() })
	d.house = newHouse(t, small())
	if d.url, err = d.server.NewDatabase(t.Context(), "argosy"); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Migrate(t.Context(), d.url); err != nil {
		t.Fatal(err)
	}
	d.reopen()
	d.a = d.start("a", options{engine: d.requests.record})
	d.eventually("the fleet is in sync", d.converged)
	d.commit("an Application goes", gone(deployment("globex", "shop", "v1", "Orphan", "prod")))
	d.eventually("it is gone", d.converged)
	if err := d.server.Dump(t.Context(), "argosy", d.dump); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		d.commit("a day's work",
			together(deployment("globex", "shop", fmt.Sprint("v", i+2), "Delete", "prod"),
				deployment("acme", "web", fmt.Sprint("v", i+2), "Delete", "prod", "staging")))
		d.eventually("it is applied", d.converged)
	}
	d.written, d.deleted = d.writes(), len(d.requests.deleted())
	return d
}

func (d *day) reopen() {
	d.t.Helper()
	var err error
	if d.store, err = postgres.Open(d.t.Context(), d.url, postgres.Options{}); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(d.store.Close)
}

// untouched reports whether no engine was written to since.
func (d *day) untouched() error {
	var err error
	if n := d.writes() - d.written; n != 0 {
		err = fmt.Errorf("%d writes", n)
	}
	if deleted := d.requests.deleted()[d.deleted:]; len(deleted) != 0 {
		err = errors.Join(err, fmt.Errorf("deleted: %v", deleted))
	}
	return errors.Join(err, d.bears("web", "v4"), d.bears("shop", "v4"))
}

// reconciles waits until a replica's workers have read their rows that often.
func (d *day) reconciles(r *replica, n int) {
	d.t.Helper()
	from := r.store.asked("changed")
	d.eventually("the workers turn", func() error {
		if got := r.store.asked("changed") - from; got < n {
			return fmt.Errorf("%d reads", got)
		}
		return nil
	})
}

func (d *day) goesOn(r *replica) {
	d.t.Helper()
	if err := d.untouched(); err != nil {
		d.t.Error("while Git is away:", err)
	}
	r.source.away.Store(false)
	d.eventually("the mirror has caught up", d.converged)
	if err := d.untouched(); err != nil {
		d.t.Error("engines that had everything:", err)
	}
	d.commit("the next one", deployment("acme", "web", "v5", "Delete", "prod", "staging"))
	d.eventually("it is applied", d.converged)
}

func TestYesterdaysDumpUndoesNothingWhileGitIsAway(t *testing.T) {
	t.Parallel()
	d := yesterday(t)
	d.a.stop()
	url, err := d.server.NewDatabase(t.Context(), "restored")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.server.Restore(t.Context(), "restored", d.dump); err != nil {
		t.Fatal(err)
	}
	d.url = url
	d.reopen()
	b := d.start("b", options{engine: d.requests.record, gitAway: true})
	d.reconciles(b, 20)
	d.goesOn(b)
}

// The dump is restored into the database that replicas work on: it has the same name, and every
// value of yesterday.
func TestADumpThatIsRestoredInPlaceUnderRunningReplicasUndoesNothing(t *testing.T) {
	t.Parallel()
	d := yesterday(t)
	before, err := d.store.Mirror(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.a.source.away.Store(true)
	if err := d.server.Restore(t.Context(), "argosy", d.dump); err != nil {
		t.Fatal(err)
	}
	var after mirror.State
	d.eventually("the mirror is yesterday's", func() error {
		after, err = d.store.Mirror(t.Context())
		if err == nil && after.Seq >= before.Seq {
			err = fmt.Errorf("number %d, before the restore %d", after.Seq, before.Seq)
		}
		return err
	})
	if after.Life == before.Life {
		t.Errorf("the incarnation is still %s", after.Life)
	}
	d.reconciles(d.a, 20)
	d.goesOn(d.a)
}
