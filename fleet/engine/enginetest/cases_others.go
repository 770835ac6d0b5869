package enginetest

import (
	"errors"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// A write of another lease may arrive long after the lease was lost. The object is consistent then,
// but its row, or the lack of one, must be checked.
func wakesForOthers(t *testing.T, b *Fixture) {
	r := start(t, b)
	v1, v2 := application(t, b, at("v1")), application(t, b, at("v2"))
	other := start(t, b.Reopen(t))
	other.mustApply(v1)
	r.until("woken for an object that another has created", func() bool {
		return r.woken(v1.Key) == 1
	})
	if out := r.apply(v1, secretFor(v1)); out.Changed {
		t.Errorf("an unchanged object was written again: %+v", out)
	}
	other.mustApply(v2)
	r.until("woken for an object that another has changed", func() bool {
		return r.woken(v1.Key) == 2
	})
	if live, ok := r.Engine.Live(v1.Key); !ok || live.Drifted {
		t.Errorf("another's write is no drift: %+v, %t", live, ok)
	}
}

// Waking for each of our own writes would read its row again.
func ignoresOwnWrites(t *testing.T, b *Fixture) {
	r := start(t, b)
	for _, row := range []string{"v1", "v2", "v3"} {
		app := application(t, b, at(row))
		r.mustApply(app)
		r.waitApplied(app)
	}
	app := application(t, b, nil)
	r.External.Merge(app.Key, `{"status":{"health":{"status":"Healthy"}}}`)
	r.until("the watch has shown what came after the writes", func() bool {
		seen, ok := r.last(app.Key)
		return ok && seen.Health == "Healthy"
	})
	if n := r.woken(app.Key); n != 0 {
		t.Errorf("woken %d times for what it wrote itself", n)
	}
}

// A decision about one object does not apply to another one that has its name now.
func deletesOneUID(t *testing.T, b *Fixture) {
	r := start(t, b)
	app := application(t, b, nil)
	r.mustApply(app)
	r.waitApplied(app)
	app.Unwanted, app.UID = true, "that-of-another-object"
	if n := r.writes(func() { r.mustBeDeleted(app) }); n != 0 || !r.External.Exists(app.Key) {
		t.Errorf("%d writes for an object that is gone; its successor is there: %t", n,
			r.External.Exists(app.Key))
	}
	app.UID = r.External.Field(app.Key, "metadata.uid")
	r.deleteFully(app)
}

// mustBeDeleted calls Delete once, and expects that nothing is left to do.
func (r *harness) mustBeDeleted(row mirror.Row) {
	r.Helper()
	if done, err := r.Engine.Delete(r.ctx, row, r.lease); err != nil || !done {
		r.Errorf("%s: done %t, %v", row.Key.Name, done, err)
	}
}

// A parked object is still ours: it has not drifted, later applies persist, and it can be deleted.
func parks(t *testing.T, b *Fixture) {
	r := start(t, b)
	v1, v2 := application(t, b, at("v1")), application(t, b, at("v2"))
	for _, row := range everything(t, b) {
		if row.Key.Kind != fleet.ObjectApplication {
			r.mustApply(row)
		}
	}
	r.mustApply(v1)
	r.waitApplied(v1)
	since := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	q := engine.ParkRequest{Key: v1.Key, UID: r.External.Field(v1.Key, "metadata.uid"),
		Tenant: v1.Tenant, Since: since}
	park := func(q engine.ParkRequest, lease mirror.Lease) error {
		return r.Engine.Park(r.ctx, q, lease)
	}
	other := q
	other.UID = "that-of-another-object"
	if n := r.writes(func() {
		if err := park(other, r.lease); err != nil {
			t.Errorf("another UID: %v", err)
		}
	}); n != 0 {
		t.Errorf("%d writes for an object that is gone", n)
	}
	older := r.lease
	older.Epoch--
	if err := park(q, older); !errors.Is(err, engine.ErrFenced) {
		t.Errorf("under an earlier lease: %v", err)
	}
	b.Stop(true)
	if err := park(q, r.lease); !errors.Is(err, engine.ErrStopped) {
		t.Errorf("during a stop: %v", err)
	}
	b.Stop(false)
	for range 2 {
		if err := park(q, r.lease); err != nil {
			t.Fatal(err)
		}
	}
	parked := func(want bool) {
		t.Helper()
		r.until("parked as expected", func() bool {
			c, ok := r.contact(v1.Key)
			return ok && c.Parked.Equal(since) == want && c.Parked.IsZero() != want
		})
		if live, ok := r.Engine.Live(v1.Key); !ok || live.Parked != want || live.Drifted {
			t.Errorf("known as %+v", live)
		}
	}
	parked(true)
	r.mustApply(v2)
	parked(true)
	if got := r.External.Field(v1.Key, "spec.source.targetRevision"); got != "v2" {
		t.Errorf("applied while parked: %s", got)
	}
	ask := engine.SyncRequest{Key: v1.Key, Tenant: v1.Tenant, ID: "sync-1", Revision: "v2"}
	if out, err := r.Engine.Sync(r.ctx, ask, r.lease); err != nil ||
		out.State != mirror.ApplyPending {
		t.Errorf("a sync while parked: %+v, %v", out, err)
	}
	q.Since = time.Time{}
	if err := park(q, r.lease); err != nil {
		t.Fatal(err)
	}
	parked(false)
	q.Since = since
	if err := park(q, r.lease); err != nil {
		t.Fatal(err)
	}
	v2.Unwanted, v2.Deletion = true, fleet.DeletionDelete
	if done, err := r.Engine.Delete(r.ctx, v2, r.lease); done || err != nil {
		t.Fatalf("done %t, %v", done, err)
	}
	r.until("it is being deleted, and parked", func() bool {
		live, ok := r.Engine.Live(v1.Key)
		return ok && live.Deleting && live.Parked
	})
	v2.Deletion = fleet.DeletionOrphan // like an admin who does not want to wait
	r.deleteFully(v2)
	r.until("nothing is left to be parked", func() bool {
		c, ok := r.contact(v1.Key)
		return ok &&
			c.Gone
	})
}
