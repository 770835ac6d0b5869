package postgres_test

import (
	"errors"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func TestAPoolIsStoredAndItsInstanceRemoved(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, loop, worker, _ := recorded(t, url)
	ctx := t.Context()
	high := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	set := func(p mirror.Pool) {
		t.Helper()
		p.Name = "eu"
		check(t, s.Plans.SetPool(ctx, loop, p))
	}
	facts := func(draining ...fleet.EngineName) mirror.PoolFacts {
		t.Helper()
		return must(s.Plans.PoolFacts(ctx, draining))(t)
	}
	set(mirror.Pool{State: mirror.PoolUnknown})
	if f := facts(); f.Known["eu"] || f.Now.IsZero() {
		t.Errorf("a pool whose clusters cannot be read is known: %+v", f)
	}
	set(mirror.Pool{State: mirror.PoolWaiting, Message: "cooldown", Load: 95, Waiting: 2,
		HighSince: &high})
	f := facts()
	p := f.Pools["eu"]
	if !f.Known["eu"] || p.State != mirror.PoolWaiting || p.Load != 95 || p.Waiting != 2 ||
		p.HighSince == nil || !p.HighSince.Equal(high) || p.LowSince != nil {
		t.Errorf("%+v", f)
	}
	exec(t, url, `UPDATE mirror SET life = gen_random_uuid()`)
	if f := facts(); f.Known["eu"] {
		t.Error("a restored database knows the instances")
	}
	stuck := func() bool {
		t.Helper()
		_, is := must(s.Views.FleetStats(ctx,
			view.StatsQuery{Holder: loop.Holder}))(t).StuckPools["eu"]
		return is
	}
	set(mirror.Pool{State: mirror.PoolFull, Load: 95})
	if stuck() {
		t.Error("a pool is stuck although nothing waits")
	}
	for _, p := range []mirror.Pool{{State: mirror.PoolFull, Waiting: 1},
		{State: mirror.PoolBlocked}, {State: mirror.PoolUnknown}} {
		set(p)
		if !stuck() {
			t.Errorf("not stuck: %+v", p)
		}
	}
	sizing := map[int]mirror.SizeMemory{2: {HighSince: &high, Refused: "large", RefusedAt: &high}}
	set(mirror.Pool{State: mirror.PoolResizing, Sizing: sizing})
	if got := facts().Pools["eu"].Sizing; len(got) != 1 || got[2].Refused != "large" ||
		!got[2].HighSince.Equal(high) || got[2].LowSince != nil {
		t.Errorf("sizing %+v", got)
	}
	set(mirror.Pool{State: mirror.PoolSteady})
	if got := facts().Pools["eu"].Sizing; len(got) > 0 {
		t.Errorf("sizing %+v", got)
	}

	check(t, s.Decisions.PausePool(ctx, mirror.PoolDecision{Pool: "eu", By: "ann",
		Reason: "lunch"}))
	set(mirror.Pool{State: mirror.PoolPaused}) // a step keeps the pause
	if p := facts().Pools["eu"]; p.PausedAt == nil || p.PausedBy != "ann" ||
		p.PauseReason != "lunch" {
		t.Errorf("%+v", p)
	}
	check(t, s.Decisions.ResumePool(ctx, mirror.PoolDecision{Pool: "eu", By: "ann"}))
	if p := facts().Pools["eu"]; p.PausedAt != nil || p.PausedBy != "" {
		t.Errorf("%+v", p)
	}
	if err := s.Decisions.PausePool(ctx, mirror.PoolDecision{Pool: "us"}); !errors.Is(err,
		mirror.ErrNoPool) {
		t.Errorf("no pool: %v", err)
	}

	// the instance
	check(t, s.Plans.TakeRingStep(ctx, loop, 0, mirror.RingStep{Name: "stable",
		State: mirror.RingMoving, Version: "3.5.7", Digest: "d",
		Targets: []mirror.InstanceTarget{{Engine: "eu-1", Version: "3.5.7", Digest: "d"}}}))
	check(t, s.Work.ReportSize(ctx, worker, "2 shards"))
	measured := mirror.Load{At: high, Controller: &mirror.ControllerLoad{
		ProcessLoad: mirror.ProcessLoad{CPU: 1.5}}}
	exec(t, url, `INSERT INTO engines (engine, load) VALUES ('eu-1', $1)`, &measured)
	if f := facts(); f.Instances["eu-1"].Size != "2 shards" || f.Measured["eu-1"] == nil ||
		f.Measured["eu-1"].Controller.CPU != 1.5 {
		t.Errorf("%+v", f)
	}
	check(t, s.Plans.RemoveInstance(ctx, loop, "eu-1"))
	check(t, s.Plans.TakeRingStep(ctx, loop, 0, mirror.RingStep{Name: "stable",
		State: mirror.RingMoving, Version: "3.5.7", Digest: "d",
		Targets: []mirror.InstanceTarget{{Engine: "eu-1", Version: "3.5.7", Digest: "d"}}}))
	check(t, s.Work.ReportInstance(ctx, worker, "d", mirror.InstanceRunning, ""))
	check(t, s.Plans.KeepRings(ctx, loop, []string{"stable"}, []fleet.EngineName{"eu-1"}, nil))
	if i, ok, err := s.Work.WantedInstance(ctx, worker); !ok || err != nil ||
		i.State != mirror.InstanceRemoving {
		t.Errorf("a removal is forgotten: %+v, %v", i, err)
	}
	check(t, s.Work.ForgetInstance(ctx, worker))
	if f := facts("eu-1", "eu-9"); len(f.Instances) > 0 || !f.Empty["eu-9"] {
		t.Errorf("%+v", f)
	}
	check(t, s.Plans.KeepPools(ctx, loop, nil))
	if f := facts(); len(f.Pools) > 0 {
		t.Errorf("%+v", f.Pools)
	}
	late := loop
	late.Epoch--
	if err := s.Plans.SetPool(ctx, late, mirror.Pool{Name: "eu"}); !errors.Is(err,
		mirror.ErrFenced) {
		t.Errorf("a former leader: %v", err)
	}
	all, _, err := s.Views.Pools(ctx, view.Scope{}, view.Filter{}, view.Page{})
	if err != nil || len(all) > 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// An engine with a placement or an object is not empty.
func TestAnInstanceWithObjectsIsNotEmpty(t *testing.T) {
	t.Parallel()
	s, _, _, _ := recorded(t, newDatabase(t), application("eu-1", "acme", "a", "prod", "v1"))
	f := must(s.Plans.PoolFacts(t.Context(), []fleet.EngineName{"eu-1"}))(t)
	if f.Empty["eu-1"] {
		t.Error("it is")
	}
}
