package argocd

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

// faulty proxies an engine's requests to the real API server and injects the faults of a test.
type faulty struct {
	*stack.Proxy
	config *rest.Config // for the engine
}

// between starts a proxy to the shared API server.
func between(t testing.TB) *faulty {
	t.Helper()
	p, err := stack.StartProxy(apiServer(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return &faulty{Proxy: p, config: p.REST()}
}

func answer(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1",
		"status": "Failure", "code": code, "reason": reason, "message": message})
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "1" }

func isList(r *http.Request, plural string) bool {
	return r.Method == http.MethodGet && !isWatch(r) && strings.HasSuffix(r.URL.Path, "/"+plural)
}

// faultFixture is an engine behind a proxy.
type faultRig struct {
	*testing.T
	e       *Engine
	spec    fleet.EngineSpec
	f       *faulty
	out     *outside
	lease   mirror.Lease
	stopped atomic.Bool
	mu      sync.Mutex
	seen    []mirror.Observation
	woken   map[fleet.ObjectKey]int
}

func newFaultRig(t *testing.T, options Options, edits ...func(*fleet.EngineSpec)) *faultRig {
	t.Helper()
	f := between(t)
	b := &faultRig{T: t, f: f, lease: mirror.Lease{Epoch: 5}, woken: map[fleet.ObjectKey]int{}}
	spec := engineSpec()
	spec.ArgoCD.Namespace = space(t, apiServer(t))
	for _, edit := range edits {
		edit(&spec)
	}
	b.spec = spec
	b.out = fixtureOn(t, apiServer(t).REST(), spec.ArgoCD.Namespace).External.(*outside)
	options.Stopped = func(fleet.TenantName) bool { return b.stopped.Load() }
	options.Window, options.Retry = 10*time.Millisecond, 10*time.Millisecond
	var err error
	if b.e, err = Connect(testEngine, spec, f.config, options); err != nil {
		t.Fatal(err)
	}
	if _, err := b.e.Preflight(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// watch follows the engine until the test ends.
func (b *faultRig) watch() {
	ctx := b.Context()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = b.e.Watch(ctx, engine.Sink{Observe: func(all []mirror.Observation) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.seen = append(b.seen, all...)
		}, Wake: func(keys []fleet.ObjectKey) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, k := range keys {
				b.woken[k]++
			}
		}})
	}()
	b.Cleanup(func() { <-ended })
}

func (b *faultRig) synced() {
	b.Helper()
	b.watch()
	b.until("read completely", b.e.Synced)
}

func (b *faultRig) until(what string, ok func() bool) {
	b.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			b.Fatalf("still not: %s; health %v", what, b.e.Health())
		}
		<-tick.C
	}
}

// reportedDeleted reports whether any object was reported as deleted or woken.
func (b *faultRig) reportedDeletion() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.seen {
		if o.Deleted {
			return true
		}
	}
	return false
}

func (b *faultRig) row(o fleet.Object) mirror.Row {
	b.Helper()
	return rowFor(b.T, b.spec, o, 1)
}

func (b *faultRig) app(revision string) mirror.Row {
	o := applicationObject(checkoutID, exampleServer)
	o.Application.Sources[0].TargetRevision = revision
	o.Application.DeletionPolicy = fleet.DeletionOrphan
	return b.row(o)
}

func (b *faultRig) apply(row mirror.Row) (engine.Outcome, error) {
	return b.e.Apply(b.Context(), row, fleet.Secret{}, b.lease)
}

func (b *faultRig) applied(row mirror.Row) {
	b.Helper()
	if out, err := b.apply(row); err != nil || !out.Changed {
		b.Fatalf("%+v, %v", out, err)
	}
}
