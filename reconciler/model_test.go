package reconciler_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/gitrepo"
	"argosy.dev/argosy/reconciler/plan"
)

var (
	modelSeed  = flag.Uint64("model.seed", 0, "the one history to run; 0: those that are known to be hard, and a new one")
	modelSteps = flag.Int("model.steps", 14, "commits and faults of a history")
)

// Histories of commits and faults, each from a seed: whatever dies or fails on the way, at the end the engines hold what the head asks for,
// and on the way nothing was deleted beyond the guards, written by two owners, or written backwards.
func TestAnyHistoryOfCommitsAndFaultsEndsWhereTheHeadSays(t *testing.T) {
	seeds := []uint64{1, 2, 3, uint64(time.Now().UnixNano())}
	if *modelSeed != 0 {
		seeds = []uint64{*modelSeed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			t.Parallel()
			newModel(t, seed).run()
		})
	}
}

// model is a house under stress.
type model struct {
	*house
	random  *rand.Rand
	tree    map[string]string // at the head
	replica *replica
	n       int

	mu    sync.Mutex
	chaos *rand.Rand // of faults, which come from many goroutines
	odds  float64    // of a call of the store or of an engine to fail
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{random: rand.New(rand.NewPCG(seed, 1)), chaos: rand.New(rand.NewPCG(seed, 2)), tree: small(), odds: 0.05}
	m.house = newHouse(t, m.tree)
	m.begin()
	return m
}

func (m *model) begin() {
	m.n++
	m.replica = m.start(fmt.Sprintf("replica-%d", m.n), options{
		fail:   func(string) error { return m.fault() },
		engine: func(string, fleet.ObjectKey) error { return m.fault() },
	})
}

var errChaos = errors.New("a fault to order")

func (m *model) fault() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.chaos.Float64() < m.odds {
		return errChaos
	}
	return nil
}

func (m *model) calm() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.odds = 0
}

func (m *model) run() {
	steps := []func(){m.add, m.add, m.edit, m.edit, m.spoil, m.drop, m.drop, m.rename, m.fire, m.fire, m.crash, m.meddle, m.unplug, m.look}
	for range *modelSteps {
		steps[m.random.IntN(len(steps))]()
	}
	m.calm()
	for _, e := range m.engines {
		e.away.Store(false)
	}
	m.mend()
	for range 2 { // what settles may let the next pass go on: what an Application needed goes after it
		m.eventually("held deletions are approved, and everything settles", func() error {
			m.approveAll()
			return m.settled()
		})
		m.passes(m.replica, 5)
	}
	m.eventually("and stays so", m.settled)
	m.check()
}

// change commits files and keeps the tree.
func (m *model) change(what string, files map[string]string) {
	for path, text := range files {
		if text == "" {
			delete(m.tree, path)
		} else {
			m.tree[path] = text
		}
	}
	m.commit(what, files)
	m.replica.Wake()
}

func (m *model) deployments() []string {
	var paths []string
	for _, path := range slices.Sorted(maps.Keys(m.tree)) {
		if tenantOf, name := split(path); tenantOf != "" && name != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

// split is the tenant and name of a deployment's path.
func split(path string) (tenant, name string) {
	for _, t := range []string{"acme", "globex"} {
		prefix := "tenants/" + t + "/deployments/"
		if len(path) > len(prefix) && path[:len(prefix)] == prefix {
			return t, path[len(prefix) : len(path)-len(".yaml")]
		}
	}
	return "", ""
}

func (m *model) somewhere(tenant string) []string {
	if tenant == "globex" {
		return []string{"prod"}
	}
	return [][]string{{"prod"}, {"staging"}, {"prod", "staging"}}[m.random.IntN(3)]
}

func (m *model) some(tenant, name string) map[string]string {
	policy := []string{"Delete", "Orphan"}[m.random.IntN(2)]
	return deployment(tenant, name, fmt.Sprintf("v%d", m.random.IntN(1000)), policy, m.somewhere(tenant)...)
}

func (m *model) add() {
	tenant := []string{"acme", "globex"}[m.random.IntN(2)]
	files := map[string]string{}
	for range 1 + m.random.IntN(4) {
		maps.Copy(files, m.some(tenant, fmt.Sprintf("app-%d", m.random.IntN(40))))
	}
	m.change("add", files)
}

func (m *model) any() (path, tenant, name string, ok bool) {
	all := m.deployments()
	if len(all) == 0 {
		return "", "", "", false
	}
	path = all[m.random.IntN(len(all))]
	tenant, name = split(path)
	return path, tenant, name, true
}

func (m *model) edit() {
	if _, tenant, name, ok := m.any(); ok {
		m.change("edit", m.some(tenant, name))
	}
}

func (m *model) spoil() {
	if path, _, _, ok := m.any(); ok {
		m.change("spoil", map[string]string{path: fmt.Sprintf("kind: [%d", m.random.IntN(1000))})
	}
}

// drop removes a few deployments at once: sometimes more than the guards allow.
func (m *model) drop() {
	all := m.deployments()
	m.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	files := map[string]string{}
	for _, path := range all[:min(len(all), 1+m.random.IntN(5))] {
		files[path] = ""
	}
	if len(files) > 0 && len(files) < len(all) {
		m.change("drop", files)
	}
}

func (m *model) rename() {
	if path, tenant, _, ok := m.any(); ok {
		files := m.some(tenant, fmt.Sprintf("moved-%d", m.random.IntN(40)))
		if _, same := files[path]; !same {
			files[path] = ""
		}
		m.change("rename", files)
	}
}

// fire approves what waits.
func (m *model) fire() { m.approveAll() }

func (m *model) approveAll() {
	holds, _, err := m.store.Holds(context.Background(), fleet.Scope{}, fleet.Filter{}, fleet.Page{Limit: 100})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, hold := range holds {
		if _, err := m.store.Approve(context.Background(), fleet.Approval{Revision: hold.Revision, By: "token:test"}); err != nil {
			m.t.Fatal(err)
		}
	}
	if len(holds) > 0 {
		m.replica.Wake()
	}
}

// crash kills the replica wherever it is, and starts another.
func (m *model) crash() {
	m.kill(m.replica)
	m.begin()
}

// meddle edits an Application by hand, or removes it.
func (m *model) meddle() {
	for _, e := range m.engines {
		for _, live := range e.inventory() {
			if live.Key.Kind != fleet.ObjectApplication || m.random.IntN(3) > 0 {
				continue
			}
			if m.random.IntN(2) == 0 {
				e.server.Remove(live.Key)
			} else if e.server.Exists(live.Key) {
				e.writing.Lock()
				if e.server.Exists(live.Key) {
					e.server.Merge(live.Key, `{"spec":{"source":{"targetRevision":"meddled"}}}`)
				}
				e.writing.Unlock()
			}
			return
		}
	}
}

// unplug makes an engine unreachable, or reachable again.
func (m *model) unplug() {
	e := m.engines[[]fleet.EngineName{"eu-1", "eu-2"}[m.random.IntN(2)]]
	e.away.Store(!e.away.Load())
}

// look lets the control plane work for a while.
func (m *model) look() {
	from := m.replica.source.fetches.Load()
	deadline := time.Now().Add(time.Second)
	m.eventually("a pass, or a second", func() error {
		if m.replica.source.fetches.Load() > from+2 || time.Now().After(deadline) {
			return nil
		}
		return errors.New("not yet")
	})
}

// mend replaces what does not decode.
func (m *model) mend() {
	files := map[string]string{}
	for _, path := range m.deployments() {
		if tenant, name := split(path); m.tree[path][:5] == "kind:" {
			maps.Copy(files, m.some(tenant, name))
		}
	}
	maps.Copy(files, m.some("acme", "last"))
	m.change("mend", files)
}

func (m *model) check() {
	m.t.Helper()
	for _, e := range m.engines {
		if err := e.backwards(); err != nil {
			m.t.Error(err)
		}
	}
	owners := map[string]fleet.EngineName{}
	for key, row := range m.rows() {
		if key.Kind == fleet.ObjectApplication {
			if other, twice := owners[key.Name]; twice && other != key.Engine {
				m.t.Errorf("%s/%s stands on %s and %s", row.Tenant, row.Deployment, other, key.Engine)
			}
			owners[key.Name] = key.Engine
		}
	}
	m.checkDeletions()
	m.checkFromNothing()
}

// checkDeletions: an Application was deleted only if a plan let it go, by the guards or by an approval.
func (m *model) checkDeletions() {
	m.t.Helper()
	lately, err := m.store.Lately(context.Background(), time.Hour)
	if err != nil {
		m.t.Fatal(err)
	}
	// Those that an approval released do not count against the guards and are not in this list.
	if len(lately.Deleted) > 2*3 {
		m.t.Errorf("%d Applications of two tenants were deleted without an approval; the guards allow 3 for each and 3 for the fleet", len(lately.Deleted))
	}
	if n := len(lately.Deleted); n > 3 {
		m.t.Errorf("%d deletions within the window; the fleet's guard allows 3", n)
	}
}

// checkFromNothing plans the head into an empty World that knows the placements only: its rows are the ones that stand.
func (m *model) checkFromNothing() {
	m.t.Helper()
	ctx := context.Background()
	now, err := m.store.Load(ctx)
	if err != nil {
		m.t.Fatal(err)
	}
	w, err := plan.RestoreWorld(fleet.Snapshot{Placements: now.Placements, SyncHolds: now.SyncHolds})
	if err != nil {
		m.t.Fatal(err)
	}
	fresh, err := gitrepo.Open(ctx, m.t.TempDir()+"/fresh.git", gitrepo.Source{URL: m.repo.URL, Branch: "refs/heads/main"}, gitrepo.AllowPlainHTTP())
	if err != nil {
		m.t.Fatal(err)
	}
	defer fresh.Close()
	source := &mirror{Mirror: fresh}
	head, err := source.Fetch(ctx)
	if err != nil {
		m.t.Fatal(err)
	}
	var files []catalog.Input
	err = source.Changed(ctx, "", head.Revision, nil, func(f reconciler.File) error {
		if in, ours := (decoder{}).Decode(f); ours {
			files = append(files, in)
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	p, err := w.Compute(plan.Request{Revision: head.Revision, Files: files, Now: time.Now()}, argocd.Renderer{})
	if err != nil {
		m.t.Fatal(err)
	}
	stands := m.rows()
	for _, c := range p.Rows {
		row, ok := stands[c.Row.Key]
		if !ok || row.Manifest.Hash != c.Row.Manifest.Hash {
			m.t.Errorf("%s %s: a plan from nothing has it otherwise (stands: %v)", c.Row.Key.Kind, c.Row.Key.Name, ok)
		}
		delete(stands, c.Row.Key)
	}
	for key := range stands {
		m.t.Errorf("%s %s stands, and a plan from nothing does not have it", key.Kind, key.Name)
	}
}
