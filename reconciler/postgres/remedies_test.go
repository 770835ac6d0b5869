package postgres_test

import (
	"errors"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func TestARemedyFromItsRequestToItsEnd(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, loop, worker, _ := recorded(t, url)
	ctx, since := t.Context(), time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	must(s.Plans.Record(ctx, loop, step(1, 2, func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{engineDeclaration("eu-1")}
	})))(t)
	if all := must(s.Plans.RemedyFacts(ctx))(t); len(all) != 0 {
		t.Fatalf("%+v", all)
	}
	report := func(state mirror.WorkState, at time.Time) {
		t.Helper()
		check(t, s.Work.ReportEngine(ctx, worker, mirror.EngineReport{Engine: "eu-1",
			Reachable: true, Work: mirror.Work{State: state, Since: at, Message: "why"}}))
	}
	facts := func() mirror.RemedyFacts {
		t.Helper()
		all := must(s.Plans.RemedyFacts(ctx))(t)
		if len(all) != 1 || all[0].Engine != "eu-1" {
			t.Fatalf("%+v", all)
		}
		return all[0]
	}
	report(mirror.ControllerStuck, since)
	if f := facts(); !f.Followed || f.Work.State != mirror.ControllerStuck ||
		!f.Work.Since.Equal(since) || f.Last != nil || f.LastHour != 0 || f.Now.IsZero() {
		t.Fatalf("%+v", f)
	}
	if _, ok, err := s.Work.OpenRemedy(ctx, worker); ok || err != nil {
		t.Fatalf("%v, %v", ok, err)
	}
	request := func(engine fleet.EngineName, perHour, atOnce int) {
		t.Helper()
		check(t, s.Plans.TakeRemedyStep(ctx, loop, mirror.RemedyStep{Engine: engine, Next: "soon",
			PerHour: perHour, AtOnce: atOnce, Request: &mirror.Remedy{Engine: engine,
				Restarts: fleet.ApplicationController, Fault: mirror.ControllerStuck,
				FaultSince: since}}))
	}
	request("eu-1", 2, 1)
	request("eu-1", 2, 9) // one at a time
	request("us-1", 2, 1) // one engine at once
	list := func() []mirror.Remedy {
		t.Helper()
		all, _, err := s.Views.Remedies(ctx, view.Scope{}, view.Filter{}, view.Page{Limit: 10})
		check(t, err)
		return all
	}
	if all := list(); len(all) != 1 || all[0].State != mirror.RemedyRequested {
		t.Fatalf("%+v", all)
	}
	r, ok, err := s.Work.OpenRemedy(ctx, worker)
	if err != nil || !ok || r.Restarts != fleet.ApplicationController ||
		r.Fault != mirror.ControllerStuck || !r.FaultSince.Equal(since) || r.EndedAt != nil {
		t.Fatalf("%+v, %v, %v", r, ok, err)
	}
	late := worker
	late.Epoch--
	if _, _, err := s.Work.OpenRemedy(ctx, late); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("a former worker carries it out: %v", err)
	}
	if err := s.Work.ReportRemedy(ctx, late, r.ID, mirror.RemedyRestarted,
		""); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("a former worker reports it: %v", err)
	}
	check(t, s.Work.ReportRemedy(ctx, worker, r.ID, mirror.RemedyRestarting, ""))
	check(t, s.Work.ReportRemedy(ctx, worker, r.ID, mirror.RemedyRestarting, "Pod 0 stays"))
	if f := facts(); f.Last == nil || f.Last.State != mirror.RemedyRestarting ||
		f.Last.Message != "Pod 0 stays" || f.LastHour != 1 || f.Next != "soon" {
		t.Fatalf("%+v", f)
	}
	check(t, s.Work.ReportRemedy(ctx, worker, r.ID, mirror.RemedyRestarted, ""))
	if _, ok, err := s.Work.OpenRemedy(ctx, worker); ok || err != nil {
		t.Errorf("it is carried out twice: %v, %v", ok, err)
	}
	check(t, s.Plans.TakeRemedyStep(ctx, loop, mirror.RemedyStep{Engine: "eu-1", ID: r.ID,
		End: mirror.RemedyDidNotHelp, Message: "still stuck", Next: "drain it"}))
	engine := func() view.Engine {
		t.Helper()
		all, _, err := s.Views.Engines(ctx, view.Scope{}, view.Filter{Engine: "eu-1"},
			view.Page{Limit: 1})
		check(t, err)
		if len(all) != 1 {
			t.Fatalf("%+v", all)
		}
		return all[0]
	}
	stats := func() bool {
		t.Helper()
		f := must(s.Views.FleetStats(ctx, view.StatsQuery{Holder: loop.Holder}))(t)
		if len(f.Engines) != 1 {
			t.Fatalf("%+v", f.Engines)
		}
		return f.Engines[0].RemedyFailed
	}
	if e := engine(); e.Remedy == nil || e.Remedy.State != mirror.RemedyDidNotHelp ||
		e.Remedy.Message != "still stuck" || e.NextRemedy != "drain it" || !stats() {
		t.Errorf("%+v", e)
	}
	operation := one[string](t, url, `SELECT kind || state || message FROM operations WHERE kind = 'Restart'`)
	if operation != "RestartFailedstill stuck" {
		t.Error(operation)
	}
	if f := facts(); f.Last == nil || f.Last.State != mirror.RemedyDidNotHelp ||
		f.Next != "drain it" {
		t.Fatalf("%+v", f)
	}
	request("us-1", 2, 1)
	if all := list(); len(all) != 2 || all[0].Engine != "us-1" {
		t.Fatalf("%+v", all)
	}
	request("eu-1", 1, 9)
	if len(list()) != 2 {
		t.Error("the budget of an hour is exceeded")
	}
	report(mirror.Working, time.Now())
	check(t, s.Plans.TakeRemedyStep(ctx, loop, mirror.RemedyStep{Engine: "eu-1", Over: true}))
	for _, f := range must(s.Plans.RemedyFacts(ctx))(t) {
		if f.Engine == "eu-1" {
			t.Errorf("its outage is over: %+v", f)
		}
	}
	if e := engine(); e.Remedy != nil || e.NextRemedy != "" || stats() {
		t.Errorf("its outage is over: %+v", e)
	}
	former := loop
	former.Epoch--
	if err := s.Plans.TakeRemedyStep(ctx, former, mirror.RemedyStep{Engine: "eu-1",
		Next: "x"}); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("a former leader records a step: %v", err)
	}
}
