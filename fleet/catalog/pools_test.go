package catalog

import (
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
)

func pool(name string, edits ...edit) Input {
	in := declare(fleet.Declaration{Key: fleet.PoolKey(name), Pool: &fleet.EnginePoolSpec{
		Template: fleet.PoolTemplate{Region: "eu",
			Capacity: fleet.Capacity{Applications: 100, Environments: 10}},
		Clusters: []fleet.PoolCluster{{Name: "home", InCluster: true}}, Min: 1, Max: 3}}, edits...)
	in.Path = "fleet/pools/" + name + ".yaml"
	in.Declaration.Path = in.Path
	return in
}

func instanceIn(t *testing.T, pool Input, n int, state fleet.PoolMemberState) Input {
	t.Helper()
	d, err := pool.Declaration.Instance(fleet.PoolMember{Pool: pool.Key.Name, Number: n,
		Cluster: "home", State: state, Since: time.Unix(0, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	return Input{Key: d.Key, Path: d.Path, Blob: d.Blob, Declaration: &d}
}

func ringedFleet() Input {
	return theFleet(func(d *fleet.Declaration) {
		d.Fleet.Rings = []fleet.Ring{{Name: "stable", Version: "3.5.7"}}
	})
}

func pooled(t *testing.T) (*Catalog, Input) {
	t.Helper()
	c, eu := New(), pool("eu")
	good(t, c, ringedFleet(), eu)
	good(t, c, instanceIn(t, eu, 1, fleet.MemberServing))
	if e := c.Engine("eu-1"); e == nil || e.Engine.State != fleet.EngineActive ||
		e.Engine.ArgoCD.Namespace != "argocd-eu-1" || !e.Engine.ArgoCD.Managed {
		t.Fatalf("instance %+v", e)
	}
	return c, eu
}

func TestAChangeOfAPoolChangesItsInstances(t *testing.T) {
	t.Parallel()
	c, _ := pooled(t)
	s := c.Prepare([]Input{pool("eu", func(d *fleet.Declaration) {
		d.Pool.Template.Capacity.Applications = 200
	})})
	if got := codes(s.Problems()); got != "" {
		t.Fatal(got)
	}
	commit(t, c, s)
	e := c.Engine("eu-1")
	if e.Engine.Capacity.Applications != 200 || e.Engine.Pool.State != fleet.MemberServing {
		t.Errorf("instance %+v", e.Engine)
	}
	// a bad file changes nothing
	s = c.Prepare([]Input{pool("eu", func(d *fleet.Declaration) { d.Pool.Ring = "canary" })})
	if got := codes(s.Problems()); got != "EnginePool eu spec.ring "+codeUnknownRing {
		t.Errorf("problems %v", s.Problems())
	}
	commit(t, c, s)
	if c.Engine("eu-1").Engine.Ring != "stable" {
		t.Error("the instance follows a bad file")
	}
	// a cluster with instances stays
	s = c.Prepare([]Input{pool("eu", func(d *fleet.Declaration) {
		d.Pool.Clusters[0].Name = "far"
	})})
	if got := codes(s.Problems()); got != "Engine eu-1 spec.clusters "+codePoolInUse {
		t.Errorf("problems %v", s.Problems())
	}
}

func TestARemovedPoolStaysUntilItsInstancesAreGone(t *testing.T) {
	t.Parallel()
	c, eu := pooled(t)
	s := c.Prepare([]Input{{Key: eu.Key, Path: eu.Path, Removed: true}})
	if got := codes(s.Problems()); got != "EnginePool eu "+codePoolInUse {
		t.Fatalf("problems %q", got)
	}
	commit(t, c, s)
	if q, ok := c.Quarantine(eu.Key); !ok || !q.Removed || c.Declaration(eu.Key) == nil {
		t.Fatal("the pool is not in effect any more")
	}
	good(t, c, instanceIn(t, eu, 1, fleet.MemberDraining)) // it goes on
	if c.Engine("eu-1").Engine.State != fleet.EngineDraining {
		t.Error("the instance does not drain")
	}
	good(t, c, Input{Key: engineKey("eu-1"), Path: eu.Path, Removed: true})
	if c.Engine("eu-1") != nil || c.Declaration(eu.Key) != nil {
		t.Error("the pool or its instance stays")
	}
	if _, ok := c.Quarantine(eu.Key); ok {
		t.Error("the problem stays")
	}
}

func TestAnEngineTakesNoNameOfAnInstance(t *testing.T) {
	t.Parallel()
	c, eu := pooled(t)
	for _, name := range []string{"eu-1", "eu-50"} {
		s := c.Prepare([]Input{engine(name)})
		if got := codes(s.Problems()); !strings.Contains(got, "Engine "+name+" metadata.name "+
			codeDuplicate) {
			t.Errorf("problems %v", s.Problems())
		}
		commit(t, c, s)
	}
	if e := c.Engine("eu-1"); e == nil || e.Engine.Pool == nil {
		t.Fatalf("the instance is replaced by a file: %+v", e)
	}
	good(t, c, Input{Key: engineKey("eu-1"), Path: pathOf(engineKey("eu-1")), Removed: true})
	if e := c.Engine("eu-1"); e == nil || e.Engine.Pool == nil || e.Path != eu.Path {
		t.Fatalf("the removal of a file removes the instance: %+v", e)
	}
	good(t, c, engine("eu-51"), engine("eu-x"), engine("eu-01", func(d *fleet.Declaration) {
		d.Engine.ArgoCD.Namespace = "other"
	}))

	// the other way round
	s := c.Prepare([]Input{engine("us-2"), pool("us")})
	if got := codes(s.Problems()); !strings.Contains(got, "EnginePool us metadata.name "+
		codeDuplicate) {
		t.Errorf("problems %v", s.Problems())
	}
	commit(t, c, s)
	good(t, c, Input{Key: engineKey("us-2"), Path: pathOf(engineKey("us-2")), Removed: true})
	if c.Declaration(fleet.PoolKey("us")) == nil {
		t.Error("the pool waits although its name is free")
	}
}

func TestAPoolTakesNoNamespaceOfAnEngine(t *testing.T) {
	t.Parallel()
	c := New()
	s := c.Prepare([]Input{ringedFleet(), pool("eu"), engine("old", func(d *fleet.Declaration) {
		d.Engine.ArgoCD.Namespace = "argocd-eu-2"
	})})
	if got := codes(s.Problems()); !strings.Contains(got, "EnginePool eu spec.clusters[0] "+
		codeInstance) {
		t.Errorf("problems %v", s.Problems())
	}
}

func TestAPoolServesItsRegionBeforeItsFirstInstance(t *testing.T) {
	t.Parallel()
	c := New()
	s := c.Prepare([]Input{ringedFleet(), pool("eu"), tenant("acme"), environment("acme/prod")})
	if got := codes(s.Problems()); got != "" {
		t.Errorf("problems %v", s.Problems())
	}
}
