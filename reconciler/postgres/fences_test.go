package postgres_test

import (
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// fence requests one of eu-1.
func (e *evacuating) fence(dry bool) error {
	_, err := e.s.Decisions.RequestFence(e.Context(), mirror.EvacuationRequest{Engine: "eu-1",
		Fence: true, DryRun: dry, By: "token:ann", Reason: "it is stuck"})
	return err
}

func (e *evacuating) allowFence() {
	e.Helper()
	exec(e, e.url, `UPDATE engines SET spec = '{"remedies": {"fence": "Allowed"}}' WHERE engine = 'eu-1'`)
	e.reachable(true)
}

// report records a step of the fence.
func (e *evacuating) report(was mirror.FenceState, r mirror.FenceReport) {
	e.Helper()
	f, ok, err := e.s.Work.OpenFence(e.Context(), e.dead)
	if err != nil || !ok {
		e.Fatalf("no fence: %v", err)
	}
	r.ID = f.ID
	check(e, e.s.Work.ReportFence(e.Context(), e.dead, was, r))
}

func (e *evacuating) view() view.Engine {
	e.Helper()
	exec(e, e.url, `INSERT INTO declarations (kind, tenant, name, path, blob, body) VALUES ('Engine', '', 'eu-1', 'fleet/engines/eu-1.yaml', '', '{"engine": {}}')
		ON CONFLICT DO NOTHING`)
	all, _, err := e.s.Views.Engines(e.Context(), view.Scope{}, view.Filter{Engine: "eu-1"},
		view.Page{Limit: 1})
	if err != nil || len(all) != 1 {
		e.Fatalf("%v, %v", all, err)
	}
	return all[0]
}

func TestAFenceIsRequestedOfAnEngineThatAnswersIfThePlatformAllowsIt(t *testing.T) {
	t.Parallel()
	e := newEvacuating(t)
	e.reachable(true)
	e.expect("nothing is declared", e.fence(false), mirror.ErrFenceForbidden)
	e.allowFence()
	e.reachable(false)
	e.expect("it does not answer", e.fence(false), mirror.ErrEngineSilent)
	e.reachable(true)
	e.expect("a dry run", e.fence(true), nil)
	e.expect("another one", e.fence(true), nil)
	e.expect("the end of a dry run", e.end(), mirror.ErrNotEvacuated)
	e.expect("a fence", e.fence(false), nil)
	e.expect("another one", e.fence(false), mirror.ErrFencing)
	e.expect("a dry run beside it", e.fence(true), mirror.ErrFencing)
	if n := one[int](t, e.url, `SELECT count(*) FROM operations WHERE kind = 'Fence' AND ended_at IS NULL`); n != 1 {
		t.Errorf("%d operations are open", n)
	}
	exec(t, e.url, `UPDATE fences SET state = 'Broken', workloads = '[{"kind": "StatefulSet", "name": "c", "replicas": 2}]'`)
	e.expect("a broken one again", e.fence(false), nil)
	if f := e.view().Fence; f == nil || f.State != mirror.FenceScaling || len(f.Workloads) != 1 {
		t.Errorf("it forgets the replicas: %+v", f)
	}
	e.expect("its end", e.end(), nil)
	if f := e.view().Fence; f == nil || f.State != mirror.FenceLifting {
		t.Errorf("%+v", f)
	}
	e.report(mirror.FenceLifting, mirror.FenceReport{State: mirror.FenceLifting, End: true})
	if f := e.view().Fence; f != nil {
		t.Errorf("%+v", f)
	}
	exec(t, e.url, `INSERT INTO evacuations (engine, operation, state, by) VALUES ('eu-1', 'x', 'Ending', 'y')`)
	e.expect("its evacuation ends", e.fence(false), mirror.ErrEvacuated)
}

// The proof records the evacuation. A report about a state that a person has changed is void.
func TestTheProofOfAFenceRecordsTheEvacuation(t *testing.T) {
	t.Parallel()
	e := newEvacuating(t)
	e.allowFence()
	check(t, e.fence(false))
	if err := e.move(); err == nil {
		t.Error("it leaves before it is fenced")
	}
	e.report(mirror.FenceScaling, mirror.FenceReport{State: mirror.FenceEmptying})
	if v := e.view(); v.Evacuation != nil {
		t.Errorf("evacuated without a proof: %+v", v.Evacuation)
	}
	e.report(mirror.FenceScaling, mirror.FenceReport{State: mirror.FenceFenced, Proven: true})
	if v := e.view(); v.Fence.State != mirror.FenceEmptying {
		t.Errorf("an earlier state is reported: %+v", v.Fence)
	}
	for range 2 { // the second one only proves it again
		e.report(e.view().Fence.State, mirror.FenceReport{State: mirror.FenceFenced, Proven: true})
	}
	v := e.view()
	if v.Evacuation == nil || v.Evacuation.By != "token:ann" || v.Fence.ProvenAt == nil {
		t.Fatalf("%+v, %+v", v.Evacuation, v.Fence)
	}
	if got := one[string](t, e.url, `SELECT string_agg(kind || ' ' || state, ', ' ORDER BY kind) FROM operations WHERE kind IN ('Fence', 'Evacuate')`); got !=
		"Evacuate Running, Fence Succeeded" {
		t.Error(got)
	}
	check(t, e.move())
	check(t, e.s.Work.FreezeMove(t.Context(), e.dead, mirror.ApplicationMove{
		Application: e.rows[0].Application(), From: "eu-1"}))
	exec(t, e.url, `UPDATE fences SET state = 'Broken', message = 'keda'`)
	for i, want := range []string{"", "the fence of engine eu-1 is Broken: keda"} {
		m, moving, err := e.s.Work.ApplicationMove(t.Context(), e.dead, e.rows[i].Application())
		if err != nil || !moving || m.Unfenced != want || m.Departure.Frozen == (want != "") {
			t.Errorf("%+v, %t, %v", m, moving, err)
		}
	}
}

// Each fact alone keeps environments on the engine, and steps waiting.
func TestNoEnvironmentLeavesAFencedEngineWithoutAProof(t *testing.T) {
	t.Parallel()
	const confirmed = `UPDATE fences SET state = 'Broken', confirmed_by = 'token:ann'`
	for name, c := range map[string]struct{ sql, why string }{
		"it is proven":     {`SELECT 1`, ""},
		"the proof is old": {`UPDATE fences SET proven_at = now() - interval '16 seconds', message = 'no route'`, "and not since: no route"},
		"it is broken": {`UPDATE fences SET state = 'Broken', message = 'keda'`,
			"is Broken: keda"},
		"it is requested again":     {`UPDATE fences SET state = 'Scaling'`, "is Scaling"},
		"it is being lifted":        {`UPDATE fences SET state = 'Lifting'`, "is Lifting"},
		"a person has confirmed it": {confirmed + `; UPDATE engines SET reachable = false`, ""},
		"confirmed, and it answers": {confirmed, "is Broken"},
		"a dry run":                 {`UPDATE fences SET state = 'Checking'`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEvacuating(t)
			e.allowFence()
			check(t, e.fence(false))
			e.report(mirror.FenceScaling, mirror.FenceReport{State: mirror.FenceFenced,
				Proven: true, Took: time.Second})
			for _, sql := range strings.Split(c.sql, "; ") {
				exec(t, e.url, sql)
			}
			all := must(e.s.Plans.Evacuations(t.Context()))(t)
			if len(all) != 1 || all[0].Fenced == (name == "a dry run") ||
				!strings.Contains(all[0].Unfenced, c.why) ||
				(c.why == "") != (all[0].Unfenced == "") {
				t.Errorf("%+v", all)
			}
			if err := e.move(); (c.why == "") != (err == nil) || err != nil &&
				!strings.Contains(err.Error(), c.why) {
				t.Errorf("it leaves: %v", err)
			}
		})
	}
}

// A person confirms that a fenced engine is gone that has fallen silent.
func TestAPersonConfirmsASilentFencedEngine(t *testing.T) {
	t.Parallel()
	e := newEvacuating(t)
	e.allowFence()
	check(t, e.fence(false))
	e.expect("it answers", e.request(), mirror.ErrEngineAnswers)
	e.report(mirror.FenceScaling, mirror.FenceReport{State: mirror.FenceFenced, Proven: true})
	e.reachable(false)
	e.expect("it is silent", e.request(), nil)
	e.expect("once more", e.request(), mirror.ErrEvacuated)
	if f := e.view().Fence; f.ConfirmedBy != "token:ann" {
		t.Errorf("%+v", f)
	}
}

// A controller that is stuck is no silent API server: the reason names what helps.
func TestAMoveOffAStuckEngineNamesTheFence(t *testing.T) {
	t.Parallel()
	e := newEvacuating(t)
	e.reachable(true)
	exec(t, e.url, `UPDATE engines SET work = 'ControllerStuck', work_since = now() WHERE engine = 'eu-1'`)
	exec(t, e.url, `INSERT INTO placements (tenant, environment, engine, applications, body) VALUES ('acme', 'prod', 'eu-1', 1, '{}') ON CONFLICT DO NOTHING`)
	all := must(e.s.Plans.MoveObstacles(t.Context(), mirror.MoveRequest{Environment: prod,
		To: "eu-2"}))(t)
	found := false
	for _, o := range all {
		found = found || strings.Contains(o.Text, "argosy evacuate engine eu-1 --fence")
	}
	if !found {
		t.Errorf("%+v", all)
	}
}
