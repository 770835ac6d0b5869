package catalog

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"argosy.dev/argosy/fleet"
)

// grown is a catalog of about n declarations: tenants of 200, each with four environments.
func grown(tb testing.TB, n int) *Catalog {
	in := []Input{theFleet(), engine("eu-1")}
	for t := 0; len(in) < n; t++ {
		in = append(in, crew(fmt.Sprintf("t%d", t), min(194, max(1, n-len(in)-5)))...)
	}
	c := New()
	s := c.Prepare(in)
	if p := s.Problems(); len(p) > 0 {
		tb.Fatal(p[0])
	}
	s.Commit()
	return c
}

// crew is a tenant with four environments and many deployments, every tenth by selector.
func crew(name string, deployments int) []Input {
	in := []Input{tenant(name, func(d *fleet.Declaration) {
		d.Tenant.Quota = fleet.Quota{Environments: 1e6, Deployments: 1e6, Applications: 1e6}
	})}
	for e := range 4 {
		in = append(in, environment(fmt.Sprintf("%s/e%d", name, e)))
	}
	for d := range deployments {
		id := fmt.Sprintf("%s/d%d", name, d)
		if d%10 == 9 {
			in = append(in, deploymentWith(id, selector("tier", "prod")))
		} else {
			in = append(in, deployment(id, "e0", "e1"))
		}
	}
	return in
}

// one is a small commit: a deployment changes, one comes, one is bad.
func one(revision int) []Input {
	changed := deployment("t0/d0", "e0", "e1")
	changed.Declaration.Deployment.Source.TargetRevision = fmt.Sprintf("v%d", revision)
	return []Input{changed, deployment("t0/new", "e2"), deployment("t0/bad", "nowhere")}
}

func TestOneFileCostsTheSameInAFleetOfAnySize(t *testing.T) {
	cost := func(c *Catalog) (stage, commit float64) {
		n := 0
		stage = testing.AllocsPerRun(50, func() { n++; c.Prepare(one(n)) })
		commit = testing.AllocsPerRun(50, func() { n++; c.Prepare(one(n)).Commit() })
		return stage, commit
	}
	stage, commit := cost(grown(t, 100))
	for _, size := range []int{1000, 100_000} {
		c := grown(t, size)
		if s, k := cost(c); s > stage+20 || k > commit+20 { // as below
			t.Errorf(
				"%d declarations: %v allocations to stage, %v with commit; a fleet of 100 needs "+
					"%v and %v", size, s, k, stage, commit)
		}
		if in, held := c.Count(); in < size || held != 1 {
			t.Errorf("%d declarations in effect, %d quarantined", in, held)
		}
	}
	if n := stage; n > 500 {
		t.Errorf("three files need %v allocations", n)
	}
}

func TestOneFileCostsTheSameInATenantOfAnySize(t *testing.T) {
	cost := func(deployments int) float64 {
		c := New()
		c.Prepare(append([]Input{theFleet(), engine("eu-1")}, crew("t0", deployments)...)).Commit()
		n := 0
		return testing.AllocsPerRun(50, func() { n++; c.Prepare(one(n)) })
	}
	// a collection in between, or the race detector, costs a few; each deployment would cost one at
	// least
	if small, large := cost(100), cost(20_000); large > small+20 {
		t.Errorf("%v allocations in a tenant of 20,000, %v in one of 100", large, small)
	}
}

func TestALabelReachesOnlyTheSelectorsThatItMayConcern(t *testing.T) {
	cost := func(deployments int) float64 {
		in := []Input{theFleet(), engine("eu-1")}
		in = append(in, crew("t0", 10)...)
		for d := range deployments {
			in = append(in, deploymentWith(fmt.Sprintf("t0/in%d", d), func(d *fleet.Declaration) {
				d.Deployment.Destination.EnvironmentSelector = &fleet.LabelSelector{
					MatchExpressions: []fleet.LabelRequirement{{Key: "tier",
						Operator: fleet.SelectorIn, Values: []string{"test", "canary"}}}}
			}))
		}
		c := New()
		c.Prepare(in).Commit()
		n := 0
		return testing.AllocsPerRun(50, func() {
			n++
			c.Prepare([]Input{environment("t0/e3", func(d *fleet.Declaration) {
				d.Labels["zone"] = fmt.Sprintf("z%d", n)
			})})
		})
	}
	if small, large := cost(10), cost(10_000); large > small+20 { // as above
		t.Errorf("%v allocations with 10,000 selectors of other labels, %v with 10", large, small)
	}
}

func TestConcurrentChangesets(t *testing.T) {
	c := grown(t, 1000)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for n := range 50 {
				s := c.Prepare(one(g*1000 + n))
				if len(s.Changes()) == 0 {
					t.Error("a stage changes nothing")
				}
				s.Targets(fleet.DeploymentID{Tenant: "t0", Name: "d0"})
				c.Effective()
				if s.Stale() {
					continue
				}
			}
		})
	}
	for n := range 50 {
		c.Prepare(one(10_000 + n)).Commit()
	}
	wg.Wait()
	consistent(t, c)
}

func TestAStaleStageIsNotCommitted(t *testing.T) {
	c := grown(t, 100)
	a, b := c.Prepare(one(1)), c.Prepare(one(2))
	a.Commit()
	if !b.Stale() {
		t.Error("a stage does not know that its base was committed to")
	}
	defer func() {
		if recover() == nil {
			t.Error("a stale stage was committed")
		}
		if got := c.Deployment(fleet.DeploymentID{Tenant: "t0", Name: "d0"}).
			Deployment.Source.TargetRevision; got != "v1" {
			t.Errorf("it changed the catalog to %s", got)
		}
		consistent(t, c)
	}()
	b.Commit()
}

func BenchmarkOneCommit(b *testing.B) {
	for _, size := range []int{100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			c := grown(b, size)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				c.Prepare(one(n)).Commit()
			}
		})
	}
}

func BenchmarkColdStart(b *testing.B) {
	var in []Input
	for _, d := range grown(b, 25_000).Effective() {
		in = append(in, Input{Key: d.Key, Path: d.Path, Blob: d.Blob, Declaration: d})
	}
	b.ReportAllocs()
	for b.Loop() {
		c := New()
		c.Prepare(in).Commit()
	}
}

func BenchmarkRestore(b *testing.B) {
	var effective []fleet.Declaration
	for _, d := range grown(b, 25_000).Effective() {
		effective = append(effective, *d)
	}
	var before, after runtime.MemStats
	b.ReportAllocs()
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		c := Restore(effective, nil)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/25_000, "B/declaration")
		runtime.KeepAlive(c)
	}
}
