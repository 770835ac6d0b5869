package postgres_test

import (
	"errors"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func TestARingFromItsFirstStepToAHalt(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, loop, worker, _ := recorded(t, url)
	ctx := t.Context()
	files := map[string][]byte{"a.yaml": []byte("one"), "b/c.yaml": {0xff, 0}}
	digest := fleet.ManifestsDigest(files)
	check(t, s.Plans.StoreManifests(ctx, loop, mirror.RingManifests{Version: "3.5.7",
		Digest: digest, Files: files}))
	m := must(s.Work.Manifests(ctx, digest))(t)
	if m.Version != "3.5.7" || string(m.Files["b/c.yaml"]) != "\xff\x00" {
		t.Fatalf("%+v", m)
	}
	if _, ok, err := s.Work.WantedInstance(ctx, worker); ok || err != nil {
		t.Fatalf("%v, %v", ok, err)
	}
	take := func(step mirror.RingStep) {
		t.Helper()
		step.Name, step.Version, step.Digest = "canary", "3.5.7", digest
		check(t, s.Plans.TakeRingStep(ctx, loop, 0, step))
	}
	take(mirror.RingStep{State: mirror.RingMoving, Message: "now eu-1",
		Targets: []mirror.InstanceTarget{{Engine: "eu-1", Version: "3.5.7", Digest: digest}}})
	i, ok, err := s.Work.WantedInstance(ctx, worker)
	if err != nil || !ok || i.State != mirror.InstanceInstalling || i.Digest != digest ||
		i.Ring != "canary" || i.GoodDigest != "" {
		t.Fatalf("%+v, %v, %v", i, ok, err)
	}
	take(mirror.RingStep{State: mirror.RingMoving, Good: []fleet.EngineName{"eu-1"}})
	facts := func() mirror.InstanceFacts {
		t.Helper()
		f := must(s.Plans.RingFacts(ctx))(t)
		if !f.Manifests[digest] || f.Now.IsZero() || f.Rings["canary"].Version != "3.5.7" {
			t.Fatalf("%+v", f)
		}
		return f.Instances["eu-1"]
	}
	if f := facts(); !f.Fresh {
		t.Errorf("Argo CD has reported no Application, and the instance is not fresh: %+v", f)
	}
	if f := facts(); f.GoodDigest != "" {
		t.Errorf("an instance that does not run has passed the gates: %+v", f)
	}
	late := worker
	late.Epoch--
	if err := s.Work.ReportInstance(ctx, late, digest, mirror.InstanceRunning,
		""); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("a former worker reports it: %v", err)
	}
	check(t, s.Work.ReportInstance(ctx, worker, "sha256:other", mirror.InstanceRunning, ""))
	if f := facts(); f.State != mirror.InstanceInstalling {
		t.Errorf("a report of another version counts: %+v", f)
	}
	check(t, s.Work.ReportInstance(ctx, worker, digest, mirror.InstanceRunning, ""))
	take(mirror.RingStep{State: mirror.RingDone, Good: []fleet.EngineName{"eu-1"}})
	if f := facts(); f.State != mirror.InstanceRunning || f.GoodDigest != digest ||
		f.GoodVersion != "3.5.7" {
		t.Errorf("%+v", f)
	}
	if err := s.Decisions.ReturnRing(ctx, mirror.RingDecision{Ring: "canary",
		By: "ann"}); !errors.Is(err, mirror.ErrNoRing) {
		t.Errorf("a settled ring is returned: %v", err)
	}
	take(mirror.RingStep{State: mirror.RingSoaking})
	check(t, s.Decisions.ReturnRing(ctx, mirror.RingDecision{Ring: "canary", By: "ann",
		Reason: "slow"}))
	check(t, s.Decisions.PauseRing(ctx, mirror.RingDecision{Ring: "canary", By: "ben"}))
	listed := func(scope view.Scope) []mirror.Ring {
		t.Helper()
		all, _, err := s.Views.Rings(ctx, scope, view.Filter{}, view.Page{})
		check(t, err)
		return all
	}
	rings := func() mirror.Ring {
		t.Helper()
		all := listed(view.Scope{})
		if len(all) != 1 || len(all[0].Engines) != 1 {
			t.Fatalf("%+v", all)
		}
		return all[0]
	}
	if r := rings(); r.Halted != digest || r.Message != "returned by ann: slow" ||
		r.PausedBy != "ben" || r.PausedAt == nil {
		t.Errorf("%+v", r)
	}
	halted := func() map[string]view.Backlog {
		t.Helper()
		return must(s.Views.FleetStats(ctx, view.StatsQuery{Holder: loop.Holder}))(t).HaltedRings
	}
	if got := halted(); len(got) != 0 {
		t.Errorf("halted: %v", got)
	}
	take(mirror.RingStep{State: mirror.RingDiffers})
	differs := must(s.Views.FleetStats(ctx,
		view.StatsQuery{Holder: loop.Holder}))(t).DifferingRings
	if b := differs["canary"]; b.Count != 1 || time.Since(b.Oldest).Abs() > time.Minute {
		t.Errorf("rings that differ: %v", differs)
	}
	take(mirror.RingStep{State: mirror.RingHalted, Halted: digest})
	if got := halted(); got["canary"].Count != 1 {
		t.Errorf("halted: %v", got)
	}
	check(t, s.Decisions.ResumeRing(ctx, mirror.RingDecision{Ring: "canary", By: "ann"}))
	if r := rings(); r.Halted != "" || r.PausedAt != nil {
		t.Errorf("%+v", r)
	}
	if all := listed(view.Scope{Tenant: "acme"}); len(all) != 0 {
		t.Errorf("a tenant reads %+v", all)
	}
	if err := s.Decisions.PauseRing(ctx, mirror.RingDecision{Ring: "none",
		By: "ann"}); !errors.Is(err, mirror.ErrNoRing) {
		t.Errorf("%v", err)
	}
	exec(t, url, `INSERT INTO status (engine, kind, name, tenant, health, observed_at)
		VALUES ('eu-1', 'Application', 'seen', 'acme', 'Degraded', now())`)
	take(mirror.RingStep{State: mirror.RingMoving, Targets: []mirror.InstanceTarget{
		{Engine: "eu-1", Version: "3.5.7", Digest: digest}}})
	if f := facts(); f.Fresh || f.DegradedBefore != 1 {
		t.Errorf("an engine with an Application is fresh: %+v", f)
	}
	check(t, s.Plans.KeepRings(ctx, loop, []string{"canary"}, []fleet.EngineName{"eu-1"}, nil))
	if i, _, err := s.Work.WantedInstance(ctx, worker); i.State != mirror.InstanceReleasing ||
		err != nil {
		t.Errorf("%+v, %v", i, err)
	}
	check(t, s.Work.ForgetInstance(ctx, worker))
	if _, ok, err := s.Work.WantedInstance(ctx, worker); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	check(t, s.Plans.KeepRings(ctx, loop, nil, nil, nil))
	if all := listed(view.Scope{}); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}
