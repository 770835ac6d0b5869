package chaos

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

// history is the list of steps that a seed gives. A step depends on its own number and on the seed,
// not on the steps before it, so that any of them can be left out.
type history struct {
	seed  uint64
	keep  []int          // nil: all
	kinds map[int]string // in place of what the seed gives: the kind of each step, by its number
}

// hosted reports whether the config repo is on a Git host, where not everybody's commits count.
func (h history) hosted() bool { return h.seed%2 == 0 }

// convergeWithin is how long the fleet may take after the last fault to hold what the head asks
// for.
const convergeWithin = 10 * time.Minute

func (h history) indices() []int {
	switch {
	case h.keep != nil:
		return h.keep
	case h.kinds != nil:
		return slices.Sorted(maps.Keys(h.kinds))
	}
	all := make([]int, *steps)
	for i := range all {
		all[i] = i
	}
	return all
}

func (h history) numbers() string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(h.indices())), ","), "[]")
}

// String is the history as a case of TestHistoriesThatOnceFailed has it.
func (h history) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "history{seed: %d, kinds: map[int]string{\n", h.seed)
	for _, i := range h.indices() {
		fmt.Fprintf(&out, "\t%d: %q,\n", i, h.step(i).kind)
	}
	return out.String() + "}}"
}

// step is one thing that happens. do gets a random source of its own.
type step struct {
	kind   string
	weight int
	fault  bool
	do     func(w *setup, n int, random *rand.Rand)
}

var kinds = []step{
	{"commit: add", 6, false, (*setup).add},
	{"commit: edit", 8, false, (*setup).edit},
	{"commit: drop", 5, false, (*setup).drop},
	{"commit: a file that does not parse", 1, false, (*setup).spoil},
	{"commit: by an account without a review", 3, true, (*setup).intrude},
	{"approve what is held", 2, false, func(w *setup, _ int, _ *rand.Rand) { w.approve() }},
	{"emergency stop", 1, false, (*setup).stopAndResume},
	{"kill -9 of a replica", 2, true, (*setup).killReplica},
	{"SIGTERM of a replica", 1, true, (*setup).stopReplica},
	{"SIGSTOP of a replica for longer than its leases", 1, true, (*setup).freezeReplica},
	{"a replica cut off from the database", 1, true, (*setup).cutDatabase},
	{"connections to the database fall silent", 1, true, (*setup).strandDatabase},
	{"a slow database", 1, true, (*setup).slowDatabase},
	{"a replica cut off from an engine", 1, true, (*setup).cutEngine},
	{"a slow engine", 1, true, (*setup).slowEngine},
	{"answers of an engine are lost", 1, true, (*setup).loseAnswers},
	{"an engine throttles", 1, true, (*setup).throttle},
	{"one write is held on the wire", 2, true, (*setup).holdWrite},
	{"watches are cut", 1, true, (*setup).cutWatches},
	{"fail-over to a standby that lags behind", 1, true, (*setup).failOver},
	{"Git lies", 2, true, (*setup).lieAboutGit},
	{"deliveries of the Git host are lost", 2, true, (*setup).loseDeliveries},
	{"a hand edit", 1, true, (*setup).meddle},
}

func (h history) random(i int) *rand.Rand { return rand.New(rand.NewPCG(h.seed, uint64(i))) }

func (h history) step(i int) step {
	if kind, ok := h.kinds[i]; ok {
		return kinds[slices.IndexFunc(kinds, func(k step) bool { return k.kind == kind })]
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	n := h.random(i).IntN(total)
	for _, k := range kinds {
		if n -= k.weight; n < 0 {
			return k
		}
	}
	panic("unreachable")
}

// run does the steps, lifts every fault, and waits until the fleet holds what the head asks for.
func (h history) run(t *testing.T) report {
	t.Helper()
	w := newSetup(t, h.hosted())
	defer w.close()
	r := report{faults: map[string]int{}}
	w.waitFor("the fleet begins", convergeWithin, func() error {
		_, err := w.replicas[0].client.Source(w.ctx)
		return err
	})
	for _, i := range h.indices() {
		s := h.step(i)
		t.Logf("%2d %s", i, s.kind)
		random := h.random(i)
		random.Uint64() // the kind's
		s.do(w, i, random)
		if s.fault {
			r.faults[s.kind]++
		} else if strings.HasPrefix(s.kind, "commit") {
			r.commits++
		}
		if v, _ := w.model.result(); len(v) > 0 {
			break
		}
	}
	r.converge = w.converge()
	r.violations, r.writes = w.model.result()
	if len(r.violations) > 0 {
		w.keepLogs()
	}
	return r
}

// converge lifts the faults, approves held changes and returns how long the fleet took.
func (w *setup) converge() time.Duration {
	w.lie.Store(nil)
	w.database.Latency(0)
	for _, r := range w.replicas {
		r.database.Block(false)
		r.database.Latency(0)
		for _, f := range r.faults {
			f.mu.Lock()
			f.delay, f.away, f.refuse, f.lose = 0, false, 0, 0
			f.mu.Unlock()
		}
		r.process.Resume()
		w.start(r)
	}
	w.expel()
	started := time.Now()
	if err := w.until(convergeWithin, func() error {
		w.approve()
		return w.converged()
	}); err != nil {
		w.model.violated("the fleet does not converge: %v", err)
		w.keepStore()
		return time.Since(started)
	}
	took := time.Since(started)
	if err := w.until(30*time.Second, func() error { return w.converged() }); err != nil {
		w.model.violated("the fleet converged and left that state again: %v", err)
	}
	// The objects that an Application needed are deleted one reconcile after it.
	if err := w.until(2*time.Minute, w.judge); err != nil {
		w.model.violated("%v", err)
	}
	return took
}

func (w *setup) until(limit time.Duration, holds func() error) error {
	deadline := time.Now().Add(limit)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-tick.C
	}
}

func (w *setup) waitFor(what string, limit time.Duration, holds func() error) {
	w.t.Helper()
	if err := w.until(limit, holds); err != nil {
		w.keepLogs()
		w.t.Fatalf("%s: %v", what, err)
	}
}

// keepLogs shows the end of the replicas' logs.
func (w *setup) keepLogs() {
	for _, r := range w.replicas {
		w.t.Logf("the log of replica %s ends:\n%s", r.name, tail(r.process.LogFile(), 4<<10))
	}
}

// keepStore shows the leader and the store's applied and held revisions.
func (w *setup) keepStore() {
	conn, err := pgx.Connect(w.ctx, *w.direct.Load())
	if err != nil {
		w.t.Log(err)
		return
	}
	defer conn.Close(context.WithoutCancel(w.ctx))
	for _, table := range []string{"mirror", "leases", "holds", "revisions"} {
		var text string
		err := conn.QueryRow(w.ctx, `SELECT coalesce(json_agg(t)::text, '') FROM `+table+` t`).Scan(
			&text)
		w.t.Logf("%s: %.2000s %v", table, text, err)
	}
}

// tail is the end of a file.
func tail(file string, most int64) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, int64(len(b))-most):])
}

// pick takes one of the replicas.
func (w *setup) pick(random *rand.Rand) *replica { return w.replicas[random.IntN(len(w.replicas))] }

// pause lets the fleet work with what just happened.
func (w *setup) pause(random *rand.Rand, most time.Duration) {
	timer := time.NewTimer(time.Duration(random.Int64N(int64(most))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	}
}

// Commits.

func (w *setup) commit(what string, change stack.Change) {
	change.Message = what
	w.push(change)
}

func (w *setup) put(tenant, name string, version int, random *rand.Rand) (path, text string) {
	all := environments[tenant]
	in := all[:1+random.IntN(len(all))]
	policy := []string{"Delete", "Orphan"}[random.IntN(2)]
	w.model.set(tenant, name, version, in...)
	return deployment(tenant, name, version, policy, in)
}

func (w *setup) add(n int, random *rand.Rand) {
	write := map[string]string{}
	for range 1 + random.IntN(5) {
		tenant := tenants[random.IntN(len(tenants))]
		path, text := w.put(tenant, fmt.Sprintf("app-%d", random.IntN(30)), n+1, random)
		write[path] = text
	}
	w.commit("add", stack.Change{Write: write})
	w.pause(random, 2*time.Second)
}

func (w *setup) edit(n int, random *rand.Rand) {
	all := w.model.deployments()
	if len(all) == 0 {
		w.add(n, random)
		return
	}
	tenant, name, _ := strings.Cut(all[random.IntN(len(all))], "/")
	path, text := w.put(tenant, name, n+1, random)
	w.commit("edit", stack.Change{Write: map[string]string{path: text}})
	w.pause(random, time.Second)
}

// drop removes a few deployments at once: sometimes more than the guards let through.
func (w *setup) drop(_ int, random *rand.Rand) {
	all := w.model.deployments()
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var remove []string
	for _, at := range all[:min(len(all)/2, 1+random.IntN(5))] {
		tenant, name, _ := strings.Cut(at, "/")
		w.model.set(tenant, name, 0)
		remove = append(remove, "tenants/"+tenant+"/deployments/"+name+".yaml")
	}
	if len(remove) > 0 {
		w.commit("drop", stack.Change{Remove: remove})
	}
	w.pause(random, 2*time.Second)
}

// spoil commits a file that does not parse, of a deployment that does not exist.
func (w *setup) spoil(n int, _ *rand.Rand) {
	w.commit("spoil", stack.Change{
		Write: map[string]string{"tenants/acme/deployments/spoiled.yaml": fmt.Sprintf("kind: [%d",
			n)}})
}

// Decisions.

func (w *setup) approve() {
	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
	defer cancel()
	for _, r := range w.replicas {
		holds, err := r.client.Holds(ctx, view.Filter{}, 100)
		if err != nil {
			continue // the other replica may answer
		}
		for _, h := range holds {
			if !slices.ContainsFunc(holds, func(o mirror.Hold) bool {
				return o.Revision == h.Revision && w.strangeHold(o)
			}) {
				_, _ = r.client.Approve(ctx, wire.ApproveRequest{Revision: h.Revision,
					Note: "chaos"})
			}
		}
		return
	}
}

// stopAndResume stops the fleet, commits, and ends the stop. Between, nothing may be written.
func (w *setup) stopAndResume(n int, random *rand.Rand) {
	stopped := false
	for _, r := range w.replicas {
		ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
		_, err := r.client.Stop(ctx, wire.StopRequest{Scope: mirror.StopFleet, Reason: "chaos"})
		cancel()
		if err == nil {
			stopped = true
			break
		}
	}
	if !stopped {
		return // no replica answers now
	}
	w.model.stop(time.Now())
	w.edit(n, random)
	if random.IntN(2) == 0 {
		w.killReplica(n, random)
	}
	w.pause(random, stopReach+3*time.Second)
	w.model.stop(time.Time{})
	w.waitFor("the fleet resumes", 5*time.Minute, func() error {
		var err error
		for _, r := range w.replicas {
			ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
			_, err = r.client.Resume(ctx, wire.ResumeRequest{Scope: mirror.StopFleet})
			cancel()
			if err == nil {
				return nil
			}
			w.start(r)
		}
		return err
	})
}

// Faults.

func (w *setup) killReplica(_ int, random *rand.Rand) {
	r := w.pick(random)
	r.process.Kill()
	w.pause(random, 3*time.Second)
	w.start(r)
}

func (w *setup) stopReplica(_ int, random *rand.Rand) {
	r := w.pick(random)
	r.process.Resume()
	r.process.Stop()
	w.pause(random, time.Second)
	w.start(r)
}

func (w *setup) freezeReplica(_ int, random *rand.Rand) {
	r := w.pick(random)
	r.process.Pause()
	w.pause(random, 20*time.Second)
	r.process.Resume()
}

func (w *setup) cutDatabase(_ int, random *rand.Rand) {
	r := w.pick(random)
	r.database.Block(true)
	w.pause(random, 12*time.Second)
	r.database.Block(false)
}

func (w *setup) strandDatabase(_ int, random *rand.Rand) {
	w.pick(random).database.Strand()
	w.pause(random, 3*time.Second)
}

func (w *setup) slowDatabase(_ int, random *rand.Rand) {
	w.database.Latency(time.Duration(1+random.IntN(100)) * time.Millisecond)
	w.pause(random, 5*time.Second)
	w.database.Latency(0)
}

func (w *setup) ofEngine(random *rand.Rand, change, undo func(*faults), most time.Duration) {
	f := w.pick(random).faults[engineNames[random.IntN(len(engineNames))]]
	f.mu.Lock()
	change(f)
	f.mu.Unlock()
	if undo == nil {
		return
	}
	w.pause(random, most)
	f.mu.Lock()
	undo(f)
	f.mu.Unlock()
}

func (w *setup) cutEngine(_ int, random *rand.Rand) {
	w.ofEngine(random, func(f *faults) { f.away = true }, func(f *faults) { f.away = false },
		10*time.Second)
}

func (w *setup) slowEngine(_ int, random *rand.Rand) {
	d := time.Duration(random.Int64N(int64(3 * time.Second)))
	w.ofEngine(random, func(f *faults) { f.delay = d }, func(f *faults) { f.delay = 0 },
		10*time.Second)
}

func (w *setup) loseAnswers(_ int, random *rand.Rand) {
	n := 1 + random.IntN(5)
	w.ofEngine(random, func(f *faults) { f.lose = n }, nil, 0)
}

func (w *setup) throttle(_ int, random *rand.Rand) {
	n := 1 + random.IntN(10)
	w.ofEngine(random, func(f *faults) { f.refuse = n }, nil, 0)
}

// holdWrite keeps one write on the wire until its sender may be gone, then delivers it.
func (w *setup) holdWrite(n int, random *rand.Rand) {
	r, engine := w.pick(random), engineNames[random.IntN(len(engineNames))]
	held := r.proxies[engine].Hold(func(q *http.Request) bool {
		kind, _ := kindOf(q.URL.Path)
		return q.Method != http.MethodGet && kind == "applications"
	})
	w.edit(n, random)
	arrived := time.NewTimer(3 * time.Second)
	defer arrived.Stop()
	select {
	case <-held.Arrived:
	case <-arrived.C:
		held.Release() // as soon as it comes
		return
	}
	if random.IntN(2) == 0 {
		r.process.Kill()
		w.pause(random, 10*time.Second)
		w.start(r)
	} else {
		w.pause(random, 5*time.Second)
	}
	held.Release()
}

func (w *setup) cutWatches(_ int, random *rand.Rand) {
	for _, p := range w.pick(random).proxies {
		p.Cut()
	}
}

// failOver lets the standby fall behind, commits, and moves every connection to it.
func (w *setup) failOver(n int, random *rand.Rand) {
	if w.standby == nil {
		return // there was one standby, and it is the primary now
	}
	w.standby.Pause()
	w.edit(n, random)
	w.pause(random, 4*time.Second)
	if err := w.standby.Promote(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	w.promoted, w.standby = w.standby, nil
	w.directly(w.promoted.DatabaseURL(databaseName))
	w.database.Switch(w.promoted.Address())
	w.primary.Kill()
	w.pause(random, 3*time.Second)
}

func (w *setup) lieAboutGit(n int, random *rand.Rand) {
	lies := []func(http.ResponseWriter, *http.Request) bool{
		func(rw http.ResponseWriter, _ *http.Request) bool {
			rw.WriteHeader(http.StatusBadGateway)
			return true
		},
		func(rw http.ResponseWriter, _ *http.Request) bool {
			_, _ = rw.Write([]byte("<html>sign in</html>"))
			return true
		},
		func(rw http.ResponseWriter, _ *http.Request) bool { panic(http.ErrAbortHandler) },
		func(rw http.ResponseWriter, q *http.Request) bool {
			select {
			case <-q.Context().Done():
			case <-w.ctx.Done():
			}
			return true
		},
	}
	lie := lies[random.IntN(len(lies))]
	w.lie.Store(&lie)
	w.edit(n, random)
	w.pause(random, 5*time.Second)
	w.lie.Store(nil)
}

// meddle edits an Application by hand.
func (w *setup) meddle(_ int, random *rand.Rand) {
	live, err := w.live()
	if err != nil || len(live) == 0 {
		return
	}
	var names []string
	spaces := map[string]string{}
	for _, objects := range live {
		for _, o := range objects {
			names = append(names, o.GetName())
			spaces[o.GetName()] = o.GetNamespace()
		}
	}
	slices.SortFunc(names, cmp.Compare[string])
	name := names[random.IntN(len(names))]
	_, _ = cluster.Dynamic().Resource(applications).Namespace(spaces[name]).Patch(w.ctx, name,
		types.MergePatchType,
		[]byte(`{"spec":{"source":{"targetRevision":"meddled"}}}`), metav1.PatchOptions{})
}
