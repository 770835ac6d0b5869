package recovery

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

type live map[fleet.EngineName][]engine.Live

// Find implements EngineReader.
func (l live) Find(_ context.Context, name fleet.EngineName, _ fleet.EngineSpec) ([]engine.Live,
	[]mirror.Stop, error) {
	return l[name], nil, nil
}

// An environment was being moved to an instance of a pool, and nothing shows which engine has it
// before the instances are known and read.
func TestAnUnreadPoolDecidesWhereALostMoveEnds(t *testing.T) {
	acme := fleet.EnvironmentID{Tenant: "acme", Name: "prod"}
	leaving := func(o *engine.Live) { o.Leaving = true }
	objects := live{"eu-1": append([]engine.Live{clusterOf()}, apps("", leaving)...),
		"burst-1": append([]engine.Live{clusterOf()}, apps("", nil)...)}
	r := New(Config{Engines: objects, Wake: func() {}, Log: slog.New(slog.DiscardHandler)})
	r.Require(true)
	specs := map[fleet.EngineName]fleet.EngineSpec{"eu-1": {}}
	step := func() mirror.Snapshot {
		t.Helper()
		if _, err := r.Continue(t.Context(), specs, time.Time{}); err != nil {
			t.Fatal(err)
		}
		s := mirror.Snapshot{}
		r.Complete(&s)
		return s
	}

	r.AwaitPools([]string{"burst"})
	if s := step(); len(s.Placements) > 0 || len(r.Unread()) > 0 {
		t.Fatalf("placed before the pool is read: %+v", s.Placements)
	}
	if all := r.Undecided(); len(all) != 1 || all[0] != acme {
		t.Errorf("undecided: %v", all)
	}
	r.Finish()
	if !r.Required() {
		t.Error("the recovery ends although a pool is not read")
	}

	r.AwaitPools(nil)
	r.Found("burst-1")
	specs["burst-1"] = fleet.EngineSpec{}
	if s := step(); len(s.Placements) != 1 || s.Placements[0].Engine != "burst-1" {
		t.Errorf("placements: %+v", s.Placements)
	}
	if r.Required() || len(r.Undecided())+len(r.UnreadPools()) > 0 {
		t.Error("the recovery goes on")
	}
	r.Found("burst-1") // again, until a plan has recorded it
	if len(r.Unread()) > 0 {
		t.Error("it is read again")
	}
}

// Without an instance, the engine that an environment was leaving keeps it.
func TestAPoolWithoutInstancesDecidesALostMoveToo(t *testing.T) {
	leaving := func(o *engine.Live) { o.Leaving = true }
	r := New(Config{Engines: live{"eu-1": append([]engine.Live{clusterOf()}, apps("", leaving)...)},
		Wake: func() {}, Log: slog.New(slog.DiscardHandler)})
	r.Require(true)
	specs := map[fleet.EngineName]fleet.EngineSpec{"eu-1": {}}
	r.AwaitPools([]string{"burst"})
	if _, err := r.Continue(t.Context(), specs, time.Time{}); err != nil {
		t.Fatal(err)
	}
	r.AwaitPools(nil)
	reload, err := r.Continue(t.Context(), specs, time.Time{})
	s := mirror.Snapshot{}
	r.Complete(&s)
	if err != nil || !reload || len(s.Placements) != 1 || s.Placements[0].Engine != "eu-1" {
		t.Errorf("%v, reload %v: %+v", err, reload, s.Placements)
	}
}
