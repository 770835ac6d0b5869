package argocd

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

const (
	atOnce = 32 // concurrent writes, as by a worker
	manyIn = 1000
)

// slowly delivers a response slowly: the API server, which buffers little per watch, ends a watch
// when writes come faster.
type slowly struct {
	http.ResponseWriter
	ctx   context.Context
	while *atomic.Bool
}

func (s slowly) Write(b []byte) (int, error) {
	if s.while.Load() {
		pacing.Sleep(s.ctx, 20*time.Millisecond)
	}
	return s.ResponseWriter.Write(b)
}

func (s slowly) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// each calls f for every number, with bounded concurrency, until each call succeeds.
func (b *faultRig) each(n int, f func(i int) error) {
	b.Helper()
	work, limit := make(chan int), time.Now().Add(3*time.Minute)
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for i := range work {
				for {
					err := f(i)
					if err == nil {
						break
					}
					if b.Context().Err() != nil || time.Now().After(limit) {
						b.Errorf("object %d: %v", i, err)
						break
					}
					pacing.Sleep(b.Context(), 20*time.Millisecond)
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	all.Wait()
}

// reported returns the last observation of each Application.
func (b *faultRig) reported() map[fleet.ObjectKey]mirror.Observation {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := map[fleet.ObjectKey]mirror.Observation{}
	for _, o := range b.seen {
		last[o.Key] = o
	}
	return last
}

// listed returns the observations of a newly connected engine.
func (b *faultRig) listed() map[fleet.ObjectKey]mirror.Observation {
	b.Helper()
	spec := engineSpec()
	spec.ArgoCD.Namespace = b.e.namespace
	e, err := Connect(testEngine, spec, apiServer(b.T).REST(), Options{
		Window: 10 * time.Millisecond, Stopped: func(fleet.TenantName) bool { return true },
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var mu sync.Mutex
	all, ended := map[fleet.ObjectKey]mirror.Observation{}, make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Watch(ctx, engine.Sink{Wake: func([]fleet.ObjectKey) {},
			Observe: func(seen []mirror.Observation) {
				mu.Lock()
				defer mu.Unlock()
				for _, o := range seen {
					all[o.Key] = o
				}
			}})
	}()
	defer func() { cancel(); <-ended }()
	b.until("a fresh list is reported", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return e.Synced() && len(all) == len(e.Inventory())
	})
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(all)
}

// agree waits until the observations match those of a fresh list, and the cache has no other state
// of our objects.
func (b *faultRig) agree(when string) {
	b.Helper()
	fresh := b.listed()
	if len(fresh) != manyIn {
		b.Fatalf("%s: a fresh list has %d Applications, want %d", when, len(fresh), manyIn)
	}
	var why string
	b.until("the reports equal a fresh list, "+when, func() bool {
		why = ""
		last := b.reported()
		for key, want := range fresh {
			got, ok := last[key]
			live, there := b.e.Live(key)
			if !ok || differs(got, want) || differs(want, got) || !there ||
				live.ResourceVersion != want.ResourceVersion {
				why = fmt.Sprintf("%s: reported %+v, listed %+v", key.Name, got, want)
				return false
			}
		}
		return len(last) == len(fresh) && b.e.Health() == nil
	})
	if why != "" {
		b.Error(why)
	}
}

// A thousand Applications are written 32 at a time and change while the watch is read slowly, and
// then while all connections are cut repeatedly. The watch resumes each time, and in the end the
// observations match a fresh list.
func TestNothingIsLostWhileWatchesAreCutUnderParallelWrites(t *testing.T) {
	b := newFaultRig(t, Options{InFlight: atOnce})
	b.synced()
	rows := make([]mirror.Row, manyIn)
	for i := range rows {
		id := checkoutID
		id.Deployment = fleet.DeploymentName(fmt.Sprintf("d-%04d", i))
		rows[i] = b.row(applicationObject(id, exampleServer))
		rows[i].Tenant, rows[i].Environment, rows[i].Deployment = id.Tenant, id.Environment,
			id.Deployment
	}
	var slow atomic.Bool
	b.f.Order(func(w http.ResponseWriter, r *http.Request) bool {
		if !isWatch(r) || !strings.HasSuffix(r.URL.Path, "/applications") {
			return false
		}
		b.f.Forward(slowly{w, r.Context(), &slow}, r)
		return true
	})
	b.f.Cut() // the open watch passes the fault from now on
	apply := func(i int) error {
		_, err := b.apply(rows[i])
		return err
	}
	status := func(n int) func(i int) error {
		padding := strings.Repeat("x", 8<<10)
		return func(i int) error {
			patch := fmt.Sprintf(
				`{"metadata":{"annotations":{"padding":%q}},"status":{"health":{"status":%q},"sync":{"status":"Synced","revision":"%040d"}}}`,
				padding, []string{"Progressing", "Degraded", "Healthy"}[(n+i)%3], n*manyIn+i)
			_, err := b.out.of(rows[i].Key).Patch(b.Context(), rows[i].Key.Name,
				types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "argocd"})
			return err
		}
	}
	watches := func() int { return b.f.Count("watch=1", "applications") }
	counted := func(what string, f func()) {
		opened, lists := watches(), b.f.Count("limit=150", "/applications")
		began := time.Now()
		f()
		t.Logf("%s: %s, %d watches opened, %d pages listed", what,
			time.Since(began).Round(time.Millisecond), watches()-opened,
			b.f.Count("limit=150", "/applications")-lists)
	}

	slow.Store(true)
	counted("slow", func() {
		b.each(manyIn, apply)
		b.each(manyIn, status(1))
	})
	slow.Store(false)
	b.agree("after a slow watch")

	cutting, stop := context.WithCancel(b.Context())
	var cuts atomic.Int64
	var cutter sync.WaitGroup
	cutter.Go(func() {
		for opened := watches(); cutting.Err() == nil; pacing.Sleep(cutting, 50*time.Millisecond) {
			// it follows again during the writes
			if now := watches(); now > opened || cuts.Load() == 0 {
				opened = now
				b.f.Cut()
				cuts.Add(1)
			}
		}
	})
	counted("cut", func() {
		for n := 2; cuts.Load() < 6 && !t.Failed(); n++ {
			b.each(manyIn, status(n))
		}
	})
	stop()
	cutter.Wait()
	b.agree("after cuts")
}
