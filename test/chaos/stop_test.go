package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/stack"
)

var (
	herdSize = flag.Int("chaos.agents", 10_000, "agents that reconnect at once in BenchmarkStop")
	reading  = flag.Int("chaos.readers", 64, "API clients that list without pause in BenchmarkStop")
)

// BenchmarkStop measures an emergency stop of the whole fleet while commits keep the workers
// writing: how long a client waits for the answer, and when the last request that writes an
// Application, AppProject or Secret is carried out, both from the moment the client asks. One
// replica has all of the load. "undisturbed" is the floor of the same run; "readers and agents"
// adds API clients that keep every connection of the readers' pool busy, and agents that all
// reconnect at once.
func BenchmarkStop(b *testing.B) {
	w := newSetup(b, false)
	defer w.close()
	w.replicas[1].process.Stop()
	h := newHerd(b, w, *herdSize)
	edits, stopEdits := context.WithCancel(w.ctx)
	var editing sync.WaitGroup
	defer editing.Wait()
	defer stopEdits()
	editing.Go(func() { w.editWithoutPause(edits, b) })
	b.Run("undisturbed", func(b *testing.B) {
		w.measureStops(b, func() error { return nil }, func() {})
	})
	b.Run("readers and agents", func(b *testing.B) {
		defer w.use(b)()
		defer h.stop()
		readers := w.readWithoutPause(b)
		defer readers.stop()
		full, samples := 0, 0
		w.measureStops(b, func() error { return h.stampede(b, w) }, func() {
			m, err := observe.Scrape(w.ctx, w.replicas[0].ops+"/metrics")
			if err != nil {
				return // the next sample counts
			}
			samples++
			const of = `argosy_database_connections_%s{pool="readers"}`
			if m[fmt.Sprintf(of, "in_use")] == m[fmt.Sprintf(of, "max")] {
				full++
			}
		})
		b.ReportMetric(100*float64(full)/float64(max(samples, 1)), "readers-full-%")
		b.ReportMetric(float64(len(h.members)), "agents")
		b.ReportMetric(must(h.metric(w, sentAway))(b)/float64(b.N), "sent-away/op")
	})
	if broken, _ := w.model.result(); len(broken) > 0 {
		b.Errorf("the model's rules were broken: %q", broken)
	}
}

// use makes b the one that fails for the world until the returned function is called.
func (w *setup) use(b *testing.B) (restore func()) {
	before := w.t
	w.t = b
	return func() { w.t = before }
}

// quiet is how long no write must follow a stop before the last one counts as the last.
const quiet = stopReach + 3*time.Second

// measureStops stops the fleet, watches the writes, and resumes it. disturb is called before each
// stop, sample from the stop until it is resumed.
func (w *setup) measureStops(b *testing.B, disturb func() error, sample func()) {
	defer w.use(b)()
	var answered, last []time.Duration
	for b.Loop() {
		w.awaitWrites("the workers write")
		if err := disturb(); err != nil {
			b.Fatal(err)
		}
		w.awaitWrites("the workers write under the load")
		resumed := make(chan struct{})
		var sampling sync.WaitGroup
		sampling.Go(func() {
			for {
				select {
				case <-resumed:
					return
				case <-time.After(50 * time.Millisecond):
					sample()
				}
			}
		})
		began := time.Now()
		c := w.connect(b, w.replicas[0]) // a person's command line has no connection yet
		_, err := c.Stop(w.ctx, wire.StopRequest{Scope: mirror.StopFleet, Reason: "bench"})
		answered = append(answered, time.Since(began))
		if err != nil {
			w.keepLogs()
			b.Fatalf("the stop was not taken after %s: %v", time.Since(began), err)
		}
		w.model.stop(time.Now())
		select {
		case <-time.After(quiet):
		case <-w.ctx.Done():
		}
		close(resumed)
		sampling.Wait()
		last = append(last, max(0, w.model.lastWrite().Sub(began)))
		w.model.stop(time.Time{})
		w.waitFor("the fleet resumes", 5*time.Minute, func() error {
			_, err := c.Resume(w.ctx, wire.ResumeRequest{Scope: mirror.StopFleet})
			return err
		})
		b.Logf("answered after %s, last write after %s", answered[len(answered)-1],
			last[len(last)-1])
	}
	b.ReportMetric(0, "ns/op")
	for name, took := range map[string][]time.Duration{"answer": answered, "last-write": last} {
		slices.Sort(took)
		b.ReportMetric(took[len(took)/2].Seconds(), name+"-p50-s")
		b.ReportMetric(took[len(took)-1].Seconds(), name+"-max-s")
	}
}

// awaitWrites waits until the engines have carried out some writes since now.
func (w *setup) awaitWrites(what string) {
	_, before := w.model.result()
	w.waitFor(what, 2*time.Minute, func() error {
		if _, now := w.model.result(); now < before+20 {
			return fmt.Errorf("%d writes since", now-before)
		}
		return nil
	})
}

// lastWrite is when the latest write was carried out.
func (m *model) lastWrite() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// connect is a client that has no connection yet.
func (w *setup) connect(b *testing.B, r *replica) *client.Client {
	return must(client.New(r.address, bootstrap, "bench"))(b)
}

// editWithoutPause commits new versions of 300 Applications again and again, until ctx ends.
func (w *setup) editWithoutPause(ctx context.Context, b *testing.B) {
	for version := 1; ctx.Err() == nil; version++ {
		files := map[string]string{}
		for _, tenant := range tenants {
			for n := range 100 {
				name := fmt.Sprintf("web-%02d", n)
				path, text := deployment(tenant, name, version, "Delete", environments[tenant])
				files[path] = text
			}
		}
		change := stack.Change{Message: fmt.Sprintf("version %d", version), Write: files}
		if _, err := w.repo.Apply(ctx, change); err != nil && ctx.Err() == nil {
			b.Errorf("commit of version %d: %v", version, err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// readers are API clients that list without pause.
type readers struct {
	end context.CancelFunc
	all sync.WaitGroup
}

// readsOfToken is how many clients share a token.
const readsOfToken = 4

// readWithoutPause lists Applications with filters that none matches, so that the database reads
// every row. Four clients share a token: a token has no more reads under way at a time.
func (w *setup) readWithoutPause(b *testing.B) *readers {
	ctx, end := context.WithCancel(w.ctx)
	r := &readers{end: end}
	admin := w.connect(b, w.replicas[0])
	for n := range (*reading + readsOfToken - 1) / readsOfToken {
		name := fmt.Sprintf("reader-%d-%d", n, time.Now().UnixNano())
		request := wire.TokenRequest{Name: name, Role: view.RoleRead, TTL: "1h"}
		token := must(admin.CreateToken(ctx, request))(b)
		for range readsOfToken {
			c := must(client.New(w.replicas[0].address, token.Plaintext, "bench"))(b)
			r.all.Go(func() { readUntil(ctx, b, c) })
		}
	}
	return r
}

func readUntil(ctx context.Context, b *testing.B, c *client.Client) {
	filters := []view.Filter{
		{Health: mirror.HealthSuspended}, {Sync: mirror.SyncOutOfSync}, {Name: "none"},
	}
	for ctx.Err() == nil {
		for _, f := range filters {
			_, err := c.Applications(ctx, f, 1000)
			var refused *wire.Refusal
			if err != nil && ctx.Err() == nil &&
				(!errors.As(err, &refused) || refused.Status < 429) {
				b.Errorf("a list: %v", err)
				return
			}
		}
	}
}

func (r *readers) stop() {
	r.end()
	r.all.Wait()
}
