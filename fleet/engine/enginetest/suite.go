// Package enginetest is the conformance suite of engine.Engine, and an engine in memory with fault
// injection.
//
// Every implementation passes Run, including the fake, so that a test against the fake is a test
// against the contract.
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
	"argosy.dev/argosy/fleet/mirror"
)

// Fixture is an engine under test, with access that bypasses it.
type Fixture struct {
	Name     fleet.EngineName
	Spec     fleet.EngineSpec
	Engine   engine.Engine // before its first Preflight and Watch
	Render   engine.Renderer
	External ExternalWriter
	Stop     func(stopped bool) // sets the emergency stop that the engine reads
	// connects another control plane to the same engine, as after a restart
	Reopen func(t *testing.T) *Fixture
}

// ExternalWriter is another writer on the engine, which also counts the writes.
type ExternalWriter interface {
	// Exists reports whether the object exists, ours or not.
	Exists(key fleet.ObjectKey) bool
	// Field returns the text of a field such as "spec.project" or
	// "metadata.annotations|argosy.dev/epoch" (the part after | is a single key), or "".
	Field(key fleet.ObjectKey, path string) string
	// Merge sends a JSON merge patch as another manager named "meddler".
	Merge(key fleet.ObjectKey, patch string)
	// Remove deletes the object and its finalizers.
	Remove(key fleet.ObjectKey)
	// CreateForeign creates an object without our labels.
	CreateForeign(key fleet.ObjectKey)
	// Writes counts the writes of the engine under test.
	Writes() int
}

// patience bounds the wait for a condition on a busy machine.
const patience = 20 * time.Second

// harness is a running fixture.
type harness struct {
	*testing.T
	*Fixture
	ctx   context.Context
	lease mirror.Lease

	mu       sync.Mutex
	seen     map[fleet.ObjectKey][]mirror.Observation
	wakes    map[fleet.ObjectKey]int
	contacts map[fleet.ObjectKey]engine.Contact
}

// start runs the preflight and the watch, and waits for the first complete read.
func start(t *testing.T, b *Fixture) *harness {
	t.Helper()
	r := newHarness(t, b)
	r.until("the engine is read completely", b.Engine.Synced)
	return r
}

// newHarness returns a harness before the first complete read.
func newHarness(t *testing.T, b *Fixture) *harness {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &harness{T: t, Fixture: b, ctx: ctx, lease: mirror.Lease{Name: "engine/" + string(b.Name),
		Holder: "test", Epoch: 7, Expires: time.Now().Add(time.Hour)},
		seen: map[fleet.ObjectKey][]mirror.Observation{}, wakes: map[fleet.ObjectKey]int{},
		contacts: map[fleet.ObjectKey]engine.Contact{}}
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
		done <- b.Engine.Watch(
			ctx, engine.Sink{Observe: r.observe, Wake: r.wake, Contact: r.recordContacts})
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

func (r *harness) observe(seen []mirror.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range seen {
		r.seen[o.Key] = append(r.seen[o.Key], o)
	}
}

func (r *harness) wake(keys []fleet.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		r.wakes[k]++
	}
}

func (r *harness) recordContacts(contacts []engine.Contact) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range contacts {
		r.contacts[c.Key] = c
	}
}

func (r *harness) contact(key fleet.ObjectKey) (engine.Contact, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.contacts[key]
	return c, ok
}

func (r *harness) woken(key fleet.ObjectKey) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wakes[key]
}

// last returns the latest observation of an Application.
func (r *harness) last(key fleet.ObjectKey) (mirror.Observation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.seen[key]
	if len(all) == 0 {
		return mirror.Observation{}, false
	}
	return all[len(all)-1], true
}

func (r *harness) until(what string, ok func() bool) {
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

func (r *harness) apply(row mirror.Row, secret fleet.Secret) engine.Outcome {
	r.Helper()
	out, err := r.Engine.Apply(r.ctx, row, secret, r.lease)
	if err != nil {
		r.Fatal(err)
	}
	return out
}

// mustApply applies the row and expects a successful write.
func (r *harness) mustApply(row mirror.Row) {
	r.Helper()
	if out := r.apply(row, secretFor(row)); !out.Changed || out.State != mirror.ApplyApplied {
		r.Fatalf("%s %s: %+v, want a write", row.Key.Kind, row.Key.Name, out)
	}
}

// deleteFully calls Delete until it reports absence.
func (r *harness) deleteFully(row mirror.Row) {
	r.Helper()
	r.until("deleted: "+row.Key.Name, func() bool {
		done, err := r.Engine.Delete(r.ctx, row, r.lease)
		if err != nil {
			r.Fatal(err)
		}
		return done
	})
	if r.External.Exists(row.Key) {
		r.Fatalf("%s is reported gone and is there", row.Key.Name)
	}
}

// writes counts the writes of f.
func (r *harness) writes(f func()) int {
	before := r.External.Writes()
	f()
	return r.External.Writes() - before
}

// waitApplied waits until the watch has shown the last write.
func (r *harness) waitApplied(row mirror.Row) {
	r.Helper()
	r.until("known as applied: "+row.Key.Name, func() bool {
		live, ok := r.Engine.Live(row.Key)
		return ok && live.Ours && !live.Drifted && live.Hash == row.Manifest.Hash
	})
}

func (r *harness) waitDrifted(row mirror.Row) {
	r.Helper()
	r.until("known as drifted: "+row.Key.Name, func() bool {
		live, ok := r.Engine.Live(row.Key)
		return ok && live.Drifted
	})
}

// Run runs the conformance suite. open returns a new, empty engine for each case.
func Run(t *testing.T, open func(t *testing.T) *Fixture) {
	names := make([]string, 0, len(cases))
	for name := range cases {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) { cases[name](t, open(t)) })
	}
}
