package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// clusters are those of pools: which instances they have, or why they cannot be read.
type clusters struct {
	mu     sync.Mutex
	has    map[fleet.EngineName]bool
	size   string // of each instance
	failed error
	silent chan struct{} // until it is closed, no read ends; nil: each ends at once
}

// Installed implements reconciler.InstanceReader.
func (c *clusters) Installed(_ context.Context, name fleet.EngineName, _ fleet.EngineSpec) (
	size string, is bool, err error) {
	if c.silent != nil {
		<-c.silent
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size, c.has[name], c.failed
}

func (c *clusters) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
}

// pooled is a house with a pool for the region burst, and an environment there. The environment of
// another tenant waits for an engine of region eu, which is there with beside.
type pooled struct {
	*house
	clusters *clusters
	file     string // of the pool
}

func newPooled(t *testing.T, beside ...string) *pooled {
	t.Helper()
	return newPooledWith(t, []string{"prod"}, beside...)
}

// newPooledWith is a pool with these environments of acme.
func newPooledWith(t *testing.T, environments []string, beside ...string) *pooled {
	t.Helper()
	files := together(platform(), tenant("globex", "spare"), tenant("acme", environments...),
		deployment("acme", "shop", "v1", "Delete", environments...))
	files["fleet/fleet.yaml"] = document("Fleet", "fleet", "guards: "+guards+
		"\n  gitHosts: [git.example.com]\n  placement: {churn: {atOnce: 2, perHour: 100}}\n  rings: [{name: stable, version: 3.5.7, manifests: "+
		"{directory: argocd, digest: \"sha256:"+strings.Repeat("1", 64)+"\"}}]")
	files["fleet/pools/burst.yaml"] = document("EnginePool", "burst", "template: {region: burst, "+
		"capacity: {applications: 10, environments: 10}}\n  clusters: [{name: home, "+
		"kubeconfigRef: {name: home}}]\n  min: 1\n  max: 3\n  cooldown: 1s\n  grow: {after: 1s}\n"+
		"  shrink: {after: 1s}")
	maps.DeleteFunc(files, func(path, _ string) bool {
		return strings.Contains(path, "engines/") && !slices.ContainsFunc(beside,
			func(name string) bool { return strings.Contains(path, name) })
	})
	for path, text := range files {
		if strings.Contains(path, "globex") || strings.Contains(path, "engines/") {
			continue
		}
		files[path] = strings.NewReplacer("regions: [eu]", "regions: [burst]", "region: eu",
			"region: burst").Replace(text)
	}
	p := &pooled{house: newHouse(t, files), clusters: &clusters{has: map[fleet.EngineName]bool{}},
		file: files["fleet/pools/burst.yaml"]}
	p.engines = map[fleet.EngineName]*site{"burst-1": newSite("burst-1"),
		"burst-2": newSite("burst-2")}
	for _, name := range beside {
		p.engines[fleet.EngineName(name)] = newSite(fleet.EngineName(name))
	}
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
			for _, s := range p.engines {
				s.server.Reconcile(managed...)
			}
		}
	})
	t.Cleanup(func() { close(done); all.Wait() })
	return p
}

func (p *pooled) pool() mirror.Pool {
	p.t.Helper()
	all, _, err := p.store.Views.Pools(context.Background(), view.Scope{}, view.Filter{},
		view.Page{})
	if err != nil {
		p.t.Fatal(err)
	}
	if len(all) == 0 {
		return mirror.Pool{}
	}
	return all[0]
}

// members waits until the instances of the pool have these states.
func (p *pooled) members(want ...fleet.PoolMemberState) {
	p.t.Helper()
	p.eventually(fmt.Sprint(want), func() error {
		pool := p.pool()
		if len(pool.Instances) != len(want) {
			return fmt.Errorf("%+v", pool)
		}
		for i, m := range pool.Instances {
			if m.State != want[i] {
				return fmt.Errorf("%+v", pool)
			}
		}
		return nil
	})
}

// installs plays the ring and the worker: the Argo CD of an instance runs.
func (p *pooled) installs(name string) {
	p.t.Helper()
	p.exec(`INSERT INTO argosy.instances (engine, ring, state, version, digest) VALUES ($1, 'stable', 'Running', '3.5.7', 'd')`,
		name)
}

func TestAnInstanceOfAPoolIsAnEngineUntilThePoolEnds(t *testing.T) {
	t.Parallel()
	p := newPooled(t)
	p.start("a", options{instances: p.clusters})
	p.members(fleet.MemberMaking)
	waits := func() error {
		env, _ := p.placement("acme/prod")
		if env != "" {
			return fmt.Errorf("it is on %s", env)
		}
		return nil
	}
	if err := waits(); err != nil {
		t.Errorf("an instance without an Argo CD takes an environment: %v", err)
	}
	p.installs("burst-1")
	p.members(fleet.MemberServing)
	p.eventually("the environment is on the instance", p.converged)
	if on, _ := p.placement("acme/prod"); on != "burst-1" {
		t.Errorf("it is on %q", on)
	}

	// without its file, the pool drains; its only environment has no other engine
	p.commit("no pool", map[string]string{"fleet/pools/burst.yaml": ""})
	p.members(fleet.MemberDraining)
	p.eventually("the pool ends", func() error {
		if s := p.pool(); s.State != mirror.PoolUnneeded {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	p.commit("no environment", gone(together(deployment("acme", "shop", "v1", "Delete", "prod"),
		map[string]string{"tenants/acme/environments/prod.yaml": "-"})))
	p.members(fleet.MemberRemoving)
	p.eventually("the worker is to remove its Argo CD", func() error {
		f, err := p.store.Plans.RingFacts(context.Background())
		if err != nil || f.Instances["burst-1"].State != mirror.InstanceRemoving {
			return fmt.Errorf("%+v, %w", f.Instances, err)
		}
		return nil
	})
	p.exec(`DELETE FROM argosy.instances`)
	p.eventually("the pool and its instance are gone", func() error {
		engines, _, err := p.store.Views.Engines(context.Background(), view.Scope{}, view.Filter{},
			view.Page{Limit: 10})
		if s := p.pool(); s.Name != "" || len(engines) > 0 {
			return fmt.Errorf("%+v, %+v", s, engines)
		}
		return err
	})
}

// Environments move from an instance whose load is above the target to the one that is made for it,
// at most as many at once as the Fleet permits, until the load is spread.
func TestTheLoadOfAPoolMovesToItsNewInstance(t *testing.T) {
	t.Parallel()
	var environments []string
	for i := range 9 {
		environments = append(environments, fmt.Sprintf("e%d", i))
	}
	p := newPooledWith(t, environments)
	d := &drained{house: p.house}
	p.start("a", options{instances: p.clusters, fail: func(call string) error {
		if call == "recorded" {
			d.outrun()
		}
		return nil
	}})
	p.members(fleet.MemberMaking)
	p.installs("burst-1")
	p.members(fleet.MemberServing, fleet.MemberMaking)
	on := func(engine fleet.EngineName) int { return d.engine(engine).Load.Environments }
	if n := on("burst-1"); n != 9 {
		t.Fatalf("instance 1 serves %d environments", n)
	}
	p.installs("burst-2")
	p.eventually("the load is spread", func() error {
		d.begun(2)
		if a, b := on("burst-1"), on("burst-2"); a != 5 || b != 4 {
			return fmt.Errorf("%d and %d environments, %+v", a, b, d.engine("burst-1").Drain)
		}
		return p.converged()
	})
	p.eventually("nothing moves any more", func() error {
		if e := d.engine("burst-1"); e.Drain != nil || e.State != fleet.EngineActive {
			return fmt.Errorf("%+v", e.Drain)
		}
		return nil
	})
	moves := d.moves()
	if len(moves) != 4 {
		t.Errorf("%d environments have moved", len(moves))
	}
	for _, m := range moves {
		if m.From != "burst-1" || m.To != "burst-2" {
			t.Errorf("a move from %s to %s", m.From, m.To)
		}
	}
	p.eventually("the pool shows its load, which its next check counts", func() error {
		if s := p.pool(); len(s.Instances) != 2 || s.Load != 45 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// outrun delays the answer to a recorded plan until the moves that it began are over in the
// database, and drains were checked since.
func (d *drained) outrun() {
	moving := func() bool {
		moves, _, err := d.store.Views.Moves(context.Background(), view.Scope{}, view.Filter{},
			view.Page{Limit: 1000})
		return err == nil && slices.ContainsFunc(moves, func(m view.Move) bool {
			return m.EndedAt == nil
		})
	}
	began := moving()
	for deadline := time.Now().Add(3 * time.Second); moving() && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	if began {
		time.Sleep(300 * time.Millisecond)
	}
}

// A cluster of a pool that does not answer keeps no commit from taking effect.
func TestACommitDoesNotWaitForTheClustersOfAPool(t *testing.T) {
	t.Parallel()
	p := newPooled(t, "eu-1")
	p.clusters.silent = make(chan struct{})
	p.start("a", options{instances: p.clusters})
	answers := sync.OnceFunc(func() { close(p.clusters.silent) })
	t.Cleanup(answers) // before the replica ends, which waits for the read
	for i := range 3 {
		revision := fmt.Sprintf("v%d", i)
		p.commit("a deployment", deployment("globex", "web", revision, "Delete", "spare"))
		p.eventually("it takes effect", func() error {
			if a := p.application("globex/web@spare"); a.Apply != mirror.ApplyApplied ||
				a.TargetRevision != revision {
				return fmt.Errorf("%+v", a)
			}
			return nil
		})
	}
	if s := p.pool(); s.Name != "" {
		t.Errorf("the pool takes a step without its clusters: %+v", s)
	}
	answers()
	p.members(fleet.MemberMaking)
}

// After a loss of the database, the environments that an instance of a pool may have are not placed
// until every cluster of the pool is read. The others are, and their commits take effect. Then the
// instance is found, and its environment on it.
func TestTheInstancesOfAPoolAreFoundAfterALossOfTheDatabase(t *testing.T) {
	t.Parallel()
	p := newPooled(t, "eu-1")
	before := p.start("a", options{instances: p.clusters})
	p.members(fleet.MemberMaking)
	p.installs("burst-1")
	p.members(fleet.MemberServing)
	p.commit("a deployment", deployment("globex", "web", "v1", "Delete", "spare"))
	p.eventually("the environments are on their engines", p.converged)
	uid := p.engines["burst-1"].inventory()
	before.stop()

	p.newDatabase()
	p.clusters.has["burst-1"] = true
	p.clusters.fail(errors.New("connection refused"))
	p.start("b", options{instances: p.clusters})
	p.eventually("the reason is shown", func() error {
		if s := p.pool(); s.State != mirror.PoolUnknown ||
			!strings.Contains(s.Message, "connection refused") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	p.commit("more of another tenant", together(
		deployment("globex", "web", "v2", "Delete", "spare", "new"), tenant("globex", "new")))
	for _, id := range []string{"globex/web@spare", "globex/web@new"} {
		p.eventually("another engine gets what is new", func() error {
			if a := p.application(id); a.Apply != mirror.ApplyApplied || a.Engine != "eu-1" ||
				a.TargetRevision != "v2" {
				return fmt.Errorf("%+v", a)
			}
			return nil
		})
	}
	if on, why := p.placement("acme/prod"); on != "" || !strings.Contains(why, "pool burst") {
		t.Errorf("an environment that the pool may have is on %q: %s", on, why)
	}
	p.commit("no pool", map[string]string{"fleet/pools/burst.yaml": ""})
	p.eventually("the pool stays declared", func() error {
		problems, _, err := p.store.Views.Problems(context.Background(), view.Scope{},
			view.Filter{}, view.Page{Limit: 10})
		if err != nil || !slices.ContainsFunc(problems, func(p fleet.Problem) bool {
			return p.Code == "pool-in-use"
		}) {
			return fmt.Errorf("%+v, %w", problems, err)
		}
		return nil
	})
	p.commit("it stays", map[string]string{"fleet/pools/burst.yaml": p.file})

	p.clusters.fail(nil)
	p.eventually("the instance is found", func() error {
		if s := p.pool(); len(s.Instances) != 1 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	p.installs("burst-1")
	p.members(fleet.MemberServing)
	p.eventually("the environment is on the instance", p.converged)
	if on, _ := p.placement("acme/prod"); on != "burst-1" {
		t.Errorf("it is on %q", on)
	}
	if now := p.engines["burst-1"].inventory(); len(now) != len(uid) {
		t.Errorf("it had %d objects, and has %d", len(uid), len(now))
	}
}

// An instance has the size that its load needs. A pool that gets sizes gives them to the instances
// that it has, and after a loss of the database each keeps the one that it has there.
func TestAnInstanceHasTheSizeOfItsLoad(t *testing.T) {
	t.Parallel()
	p := newPooled(t)
	before := p.start("a", options{instances: p.clusters})
	p.members(fleet.MemberMaking)
	p.installs("burst-1")
	p.members(fleet.MemberServing)
	const sizes = "capacity: {applications: 10, environments: 10}, sizes: [{name: small, " +
		"capacity: {applications: 1, environments: 4}}, {name: large, shards: 2}]"
	p.commit("sizes", map[string]string{"fleet/pools/burst.yaml": strings.Replace(p.file,
		"capacity: {applications: 10, environments: 10}", sizes, 1)})
	sized := func(name string, shards int) {
		t.Helper()
		p.eventually("the instance is "+name, func() error {
			all, err := p.store.Plans.EngineSpecs(context.Background())
			spec := all["burst-1"]
			if pool := p.pool(); err != nil || len(pool.Instances) != 1 ||
				pool.Instances[0].Size != name || spec.ArgoCD.Size.ShardCount() != shards {
				return fmt.Errorf("%+v, %+v, %w", pool, spec.ArgoCD.Size, err)
			}
			return nil
		})
	}
	sized("large", 2) // one Application is the whole capacity of the small one
	p.eventually("the pool waits for the Pods of the size", func() error {
		if s := p.pool(); s.State != mirror.PoolResizing {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	p.exec(`UPDATE argosy.instances SET size = '2 shards'`)
	p.eventually("the pool is steady", func() error {
		if s := p.pool(); s.State != mirror.PoolSteady {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	before.stop()

	p.newDatabase()
	p.clusters.has["burst-1"], p.clusters.size = true, "2 shards"
	p.start("b", options{instances: p.clusters})
	sized("large", 2)
	p.installs("burst-1")
	p.exec(`UPDATE argosy.instances SET size = '2 shards'`)
	p.members(fleet.MemberServing)
	p.commit("no deployment", gone(deployment("acme", "shop", "v1", "Delete", "prod")))
	sized("small", 1)
}

// placement returns the engine of an environment, or "" and the reason.
func (p *pooled) placement(id string) (fleet.EngineName, string) {
	p.t.Helper()
	all, _, err := p.store.Views.Environments(context.Background(), view.Scope{}, view.Filter{},
		view.Page{Limit: 10})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range all {
		if fmt.Sprintf("%s/%s", e.Tenant, e.Name) == id {
			return e.Placement.Engine, e.Placement.Reason
		}
	}
	return "", ""
}
