package enginetest

import (
	"testing"

	"argosy.dev/argosy/fleet"
)

// A write that another lease has sent may land long after it was given up. Nothing of the object is
// wrong then, but its row, or the lack of one, has to be looked at.
func wakesForOthers(t *testing.T, b *Bench) {
	r := start(t, b)
	v1, v2 := application(t, b, at("v1")), application(t, b, at("v2"))
	other := start(t, b.Reopen(t))
	other.applied(v1)
	r.until("woken for an object that another has created", func() bool { return r.woken(v1.Key) == 1 })
	if out := r.apply(v1, secretFor(v1)); out.Changed {
		t.Errorf("what stands was written again: %+v", out)
	}
	other.applied(v2)
	r.until("woken for an object that another has changed", func() bool { return r.woken(v1.Key) == 2 })
	if live, ok := r.Engine.Live(v1.Key); !ok || live.Drifted {
		t.Errorf("another's write is no drift: %+v, %t", live, ok)
	}
}

// Waking for each of our own writes would read its row again.
func sleepsThroughOwn(t *testing.T, b *Bench) {
	r := start(t, b)
	for _, row := range []string{"v1", "v2", "v3"} {
		app := application(t, b, at(row))
		r.applied(app)
		r.settled(app)
	}
	app := application(t, b, nil)
	r.Outside.Merge(app.Key, `{"status":{"health":{"status":"Healthy"}}}`)
	r.until("the watch has shown what came after the writes", func() bool {
		seen, ok := r.last(app.Key)
		return ok && seen.Health == "Healthy"
	})
	if n := r.woken(app.Key); n != 0 {
		t.Errorf("woken %d times for what it wrote itself", n)
	}
}

// A decision about one object is none about another that has taken its name.
func deletesOneUID(t *testing.T, b *Bench) {
	r := start(t, b)
	app := application(t, b, nil)
	r.applied(app)
	r.settled(app)
	app.Absent, app.UID = true, "that-of-another-object"
	if n := r.writes(func() { r.deleted(app) }); n != 0 || !r.Outside.Exists(app.Key) {
		t.Errorf("%d writes for an object that is gone; its successor is there: %t", n, r.Outside.Exists(app.Key))
	}
	app.UID = r.Outside.Field(app.Key, "metadata.uid")
	r.gone(app)
}

// deleted is one Delete that has nothing left to do.
func (r *rig) deleted(row fleet.Row) {
	r.Helper()
	if done, err := r.Engine.Delete(r.ctx, row, r.lease); err != nil || !done {
		r.Errorf("%s: done %t, %v", row.Key.Name, done, err)
	}
}
