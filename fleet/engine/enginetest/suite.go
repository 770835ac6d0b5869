// Package enginetest is the contract of engine.Engine as tests, and an engine in memory, with
// faults to order, that keeps it.
//
// Run is the one suite: every implementation passes it, the fake included, so that a test against
// the fake is a test against the contract.
package enginetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

// Bench is one engine under test with a way to act behind its back.
type Bench struct {
	Name    fleet.EngineName
	Spec    fleet.EngineSpec
	Engine  engine.Engine // its Preflight and Watch have not been called yet
	Render  engine.Renderer
	Outside Outside
	Stop    func(stopped bool) // what the engine hears when it asks for an emergency stop
	// another control plane on the same engine, as after a restart
	Reopen func(t *testing.T) *Bench
}

// Outside is another writer on the engine, and a witness of what is written.
type Outside interface {
	// Exists reports whether there is an object under the key, whoever made it.
	Exists(key fleet.ObjectKey) bool
	// Field is the text of a field such as "spec.project" or
	// "metadata.annotations|argosy.dev/epoch" (the part after | is one name), or "".
	Field(key fleet.ObjectKey, path string) string
	// Merge sends a JSON merge patch as another manager named "meddler".
	Merge(key fleet.ObjectKey, patch string)
	// Remove deletes the object, finalizers first.
	Remove(key fleet.ObjectKey)
	// Strange creates an object under the key that carries none of our labels.
	Strange(key fleet.ObjectKey)
	// Writes counts the writes that the engine under test has sent.
	Writes() int
}

// patience is how long a condition may take to come true, on a busy machine.
const patience = 20 * time.Second

// rig is a running bench.
type rig struct {
	*testing.T
	*Bench
	ctx   context.Context
	lease fleet.Lease

	mu    sync.Mutex
	seen  map[fleet.ObjectKey][]fleet.Observation
	wakes map[fleet.ObjectKey]int
	met   map[fleet.ObjectKey]engine.Contact
}

// start preflights, watches, and waits until everything is read.
func start(t *testing.T, b *Bench) *rig {
	t.Helper()
	r := watching(t, b)
	r.until("the engine is read completely", b.Engine.Synced)
	return r
}

// watching is a rig that has not waited for the first read.
func watching(t *testing.T, b *Bench) *rig {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &rig{T: t, Bench: b, ctx: ctx, lease: fleet.Lease{Name: "engine/" + string(b.Name),
		Holder: "test", Epoch: 7, Expires: time.Now().Add(time.Hour)},
		seen: map[fleet.ObjectKey][]fleet.Observation{}, wakes: map[fleet.ObjectKey]int{},
		met: map[fleet.ObjectKey]engine.Contact{}}
	report, err := b.Engine.Preflight(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.Blocks {
			t.Fatalf("preflight: %s; %s", f.Message, f.Fix)
		}
	}
	done := make(chan error, 1)
	go func() {
		done <- b.Engine.Watch(ctx, engine.Sink{Observe: r.observe, Wake: r.wake, Contact: r.meet})
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Watch ends with %v, not with its context's error", err)
			}
		case <-time.After(patience):
			t.Error("Watch does not end with its context")
		}
	})
	return r
}

func (r *rig) observe(seen []fleet.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range seen {
		r.seen[o.Key] = append(r.seen[o.Key], o)
	}
}

func (r *rig) wake(keys []fleet.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		r.wakes[k]++
	}
}

func (r *rig) meet(contacts []engine.Contact) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range contacts {
		r.met[c.Key] = c
	}
}

func (r *rig) contact(key fleet.ObjectKey) (engine.Contact, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.met[key]
	return c, ok
}

func (r *rig) woken(key fleet.ObjectKey) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wakes[key]
}

// last is the latest observation of an Application.
func (r *rig) last(key fleet.ObjectKey) (fleet.Observation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.seen[key]
	if len(all) == 0 {
		return fleet.Observation{}, false
	}
	return all[len(all)-1], true
}

func (r *rig) until(what string, ok func() bool) {
	r.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			r.Fatalf("after %s still not: %s (health: %v)", patience, what, r.Engine.Health())
		}
		<-tick.C
	}
}

func (r *rig) apply(row fleet.Row, secret fleet.Secret) engine.Outcome {
	r.Helper()
	out, err := r.Engine.Apply(r.ctx, row, secret, r.lease)
	if err != nil {
		r.Fatal(err)
	}
	return out
}

// applied brings the row there and fails unless that was a write that took.
func (r *rig) applied(row fleet.Row) {
	r.Helper()
	if out := r.apply(row, secretFor(row)); !out.Changed || out.State != fleet.ApplyApplied {
		r.Fatalf("%s %s: %+v, want a write", row.Key.Kind, row.Key.Name, out)
	}
}

// gone calls Delete until it reports absence.
func (r *rig) gone(row fleet.Row) {
	r.Helper()
	r.until("deleted: "+row.Key.Name, func() bool {
		done, err := r.Engine.Delete(r.ctx, row, r.lease)
		if err != nil {
			r.Fatal(err)
		}
		return done
	})
	if r.Outside.Exists(row.Key) {
		r.Fatalf("%s is reported gone and is there", row.Key.Name)
	}
}

// writes is how many writes f sends.
func (r *rig) writes(f func()) int {
	before := r.Outside.Writes()
	f()
	return r.Outside.Writes() - before
}

// settled waits until the watch has shown what the last write made.
func (r *rig) settled(row fleet.Row) {
	r.Helper()
	r.until("known as applied: "+row.Key.Name, func() bool {
		live, ok := r.Engine.Live(row.Key)
		return ok && live.Ours && !live.Drifted && live.Hash == row.Manifest.Hash
	})
}

func (r *rig) drifted(row fleet.Row) {
	r.Helper()
	r.until("known as drifted: "+row.Key.Name, func() bool {
		live, ok := r.Engine.Live(row.Key)
		return ok && live.Drifted
	})
}

// Run holds an implementation to the contract. open gives a fresh, empty engine for each case.
func Run(t *testing.T, open func(t *testing.T) *Bench) {
	names := make([]string, 0, len(cases))
	for name := range cases {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) { cases[name](t, open(t)) })
	}
}
