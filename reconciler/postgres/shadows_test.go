package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// shadowed is an engine on 2.14.21 with two Applications of acme, whose shadow has 3.5.7.
type shadowed struct {
	*testing.T
	*postgres.Store
	loop, worker mirror.Lease
	rows         []mirror.Row
}

func newShadow(t *testing.T) *shadowed {
	t.Helper()
	s := &shadowed{T: t}
	s.Store, s.loop, s.worker, s.rows = recorded(t, newDatabase(t),
		application("eu-1", "acme", "a", "prod", "v1"),
		application("eu-1", "acme", "b", "prod", "v1"))
	s.take(mirror.RingStep{State: mirror.RingDone, Version: "2.14.21", Digest: "old",
		Targets: []mirror.InstanceTarget{{Engine: "eu-1", Version: "2.14.21", Digest: "old"}}})
	check(t, s.Work.ReportInstance(t.Context(), s.worker, "old", mirror.InstanceRunning, ""))
	return s
}

func (s *shadowed) take(step mirror.RingStep) {
	s.Helper()
	step.Name = "canary"
	check(s.T, s.Plans.TakeRingStep(s.Context(), s.loop, 0, step))
}

func (s *shadowed) begin(digest string) {
	s.Helper()
	s.take(mirror.RingStep{State: mirror.RingRendering, Version: "3.5.7", Digest: digest,
		Shadows: []fleet.EngineName{"eu-1"}})
}

// fact is the shadow as the rings see it.
func (s *shadowed) fact() mirror.Shadow {
	s.Helper()
	w := must(s.Plans.RingFacts(s.Context()))(s.T).Instances["eu-1"].Shadow
	if w == nil {
		return mirror.Shadow{}
	}
	return *w
}

func (s *shadowed) tasks(digest, basis, after string) []mirror.ShadowTask {
	s.Helper()
	return must(s.Work.ShadowTasks(s.Context(), s.worker, digest, basis, after, 10))(s.T)
}

func (s *shadowed) record(digest string, results ...mirror.ShadowResult) {
	s.Helper()
	check(s.T, s.Work.RecordShadow(s.Context(), s.worker, digest, results))
	check(s.T, s.Work.ReportShadow(s.Context(), s.worker, digest, mirror.ShadowCompared, ""))
}

func (s *shadowed) differences(scope view.Scope) []mirror.Difference {
	s.Helper()
	all, _, err := s.Views.Differences(s.Context(), scope, view.Filter{Name: "canary"},
		view.Page{Limit: 10})
	check(s.T, err)
	return all
}

func (s *shadowed) approve(application, hash string) error {
	return s.Decisions.ApproveDifferences(s.Context(), mirror.DifferenceApproval{Ring: "canary",
		By: "ann", Reason: "expected", Differences: []mirror.DifferenceChoice{{Tenant: "acme",
			Application: application, Hash: hash}}})
}

var oneHash, otherHash = strings.Repeat("a", 64), strings.Repeat("b", 64)

func TestAShadowFromItsFirstStepToItsRemoval(t *testing.T) {
	t.Parallel()
	s := newShadow(t)
	ctx := t.Context()
	if _, ok, err := s.Work.WantedShadow(ctx, s.worker); ok || err != nil {
		t.Fatalf("%v, %v", ok, err)
	}
	s.begin("new")
	w, ok, err := s.Work.WantedShadow(ctx, s.worker)
	if err != nil || !ok || w.State != mirror.ShadowRendering || w.Digest != "new" ||
		w.Version != "3.5.7" || w.ComparedAt != nil {
		t.Fatalf("%+v, %v, %v", w, ok, err)
	}
	tasks := s.tasks("new", "1", "")
	if len(tasks) != 2 || tasks[0].Tenant != "acme" || tasks[0].Environment != "prod" ||
		len(s.tasks("new", "1", tasks[0].Name)) != 1 {
		t.Fatalf("%+v", tasks)
	}
	difference := mirror.ShadowResult{ShadowTask: tasks[0], Revision: "4f1c", Hash: oneHash,
		Resources: []mirror.ResourceDifference{{Kind: "ConfigMap", Name: "c", Change: "Changed",
			Fields: []mirror.FieldDifference{{Path: "data.a", Before: "1", After: "2\x00"}}}}}
	s.record("new", difference, mirror.ShadowResult{ShadowTask: tasks[1]})
	w = s.fact()
	if w.State != mirror.ShadowCompared || w.ComparedAt == nil || w.Applications != 2 ||
		w.Differences != 1 || w.Pending != 1 || len(w.Tenants) != 1 || w.Tenants[0] != "acme" {
		t.Fatalf("%+v", w)
	}
	rendered := func(digests ...string) []mirror.Rendered {
		t.Helper()
		return must(s.Views.Rendered(ctx, digests))(t)
	}
	want := mirror.Rendered{Ring: "canary", Digest: "new", Applications: 2, Differences: 1,
		Pending: 1}
	if got := rendered("new", "other"); len(got) != 1 || got[0] != want {
		t.Errorf("rendered: %+v", got)
	}
	if got := rendered("other"); len(got) > 0 {
		t.Errorf("rendered with another version: %+v", got)
	}
	check(t, s.approve(tasks[0].Name, oneHash))
	want.Pending = 0
	if got := rendered("new"); len(got) != 1 || got[0] != want {
		t.Errorf("rendered after the approval: %+v", got)
	}
	if left := s.tasks("new", "1", ""); len(left) > 0 {
		t.Errorf("compared Applications are compared again: %+v", left)
	}
	if again := s.tasks("new", "2", ""); len(again) != 2 {
		t.Errorf("other settings lead to %+v", again)
	}
	check(t, s.Work.Observe(ctx, s.worker, []mirror.Observation{{Key: s.rows[1].Key,
		SyncedRevision: "77"}}))
	if again := s.tasks("new", "1", ""); len(again) != 1 || again[0].Name != s.rows[1].Key.Name {
		t.Errorf("another revision leads to %+v", again)
	}
	late := s.worker
	late.Epoch--
	if err := s.Work.RecordShadow(ctx, late, "new", nil); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("a former worker records it: %v", err)
	}
	s.take(mirror.RingStep{State: mirror.RingMoving, Version: "3.5.7", Digest: "new",
		EndShadows: []fleet.EngineName{"eu-1"}})
	if w, ok, err := s.Work.WantedShadow(ctx, s.worker); !ok || err != nil ||
		w.State != mirror.ShadowEnding {
		t.Fatalf("%+v, %v, %v", w, ok, err)
	}
	check(t, s.Work.ReportShadow(ctx, s.worker, "new", mirror.ShadowFailed, "late"))
	check(t, s.Work.ReportShadow(ctx, s.worker, "new", mirror.ShadowEnded, ""))
	if _, ok, err := s.Work.WantedShadow(ctx, s.worker); ok || err != nil {
		t.Fatalf("%v, %v", ok, err)
	}
	if d := s.differences(view.Scope{}); len(d) != 1 {
		t.Errorf("the differences are not kept: %+v", d)
	}
}

func TestAnApprovalCountsForExactlyItsDifference(t *testing.T) {
	t.Parallel()
	s := newShadow(t)
	s.begin("new")
	tasks := s.tasks("new", "1", "")
	with := func(hash string) mirror.ShadowResult {
		return mirror.ShadowResult{ShadowTask: tasks[0], Hash: hash, Error: "cannot render"}
	}
	s.record("new", with(oneHash), mirror.ShadowResult{ShadowTask: tasks[1],
		Unrendered: "no chart"})
	if left := s.tasks("new", "1", ""); len(left) != 2 || s.fact().Unrendered != 1 {
		t.Errorf("failed renderings are tried again: %+v, %+v", left, s.fact())
	}
	if err := s.approve(tasks[0].Name, otherHash); !errors.Is(err, mirror.ErrNoDifference) {
		t.Errorf("another difference is approved: %v", err)
	}
	if err := s.approve(tasks[1].Name, oneHash); !errors.Is(err, mirror.ErrNoDifference) {
		t.Errorf("another Application is approved: %v", err)
	}
	check(t, s.approve(tasks[0].Name, oneHash))
	if w := s.fact(); w.Differences != 1 || w.Pending != 0 || len(w.Tenants) != 0 {
		t.Errorf("%+v", w)
	}
	d := s.differences(view.Scope{Tenant: "acme"})
	if len(d) != 1 || d[0].ApprovedBy != "ann" || d[0].Reason != "expected" ||
		d[0].ApprovedAt == nil || d[0].Error != "cannot render" {
		t.Errorf("%+v", d)
	}
	if d := s.differences(view.Scope{Tenant: "globex"}); len(d) > 0 {
		t.Errorf("another tenant sees %+v", d)
	}
	s.record("new", with(otherHash))
	if w := s.fact(); w.Pending != 1 {
		t.Errorf("the approval counts for another difference: %+v", w)
	}
	s.begin("newer") // the same difference under another version stays approved
	if w := s.fact(); w.Differences != 0 || w.State != mirror.ShadowRendering {
		t.Errorf("%+v", w)
	}
	s.record("new", with(oneHash)) // late
	if w := s.fact(); w.Differences != 0 || w.State != mirror.ShadowRendering {
		t.Errorf("a late comparison counts: %+v", w)
	}
	s.record("newer", with(oneHash))
	if w := s.fact(); w.Differences != 1 || w.Pending != 0 {
		t.Errorf("%+v", w)
	}
}

// A worker that reports a complete comparison too early, or results of other Applications, changes
// nothing: the ring waits.
func TestAShadowIsComparedOnceEveryApplicationIs(t *testing.T) {
	t.Parallel()
	s := newShadow(t)
	s.begin("new")
	tasks := s.tasks("new", "1", "")
	lying := tasks[0]
	lying.Tenant, lying.Environment, lying.Deployment = "globex", "other", "other"
	s.record("new", mirror.ShadowResult{ShadowTask: lying, Hash: oneHash, Error: "no"},
		mirror.ShadowResult{ShadowTask: mirror.ShadowTask{Name: "none", Tenant: "acme"},
			Hash: oneHash, Error: "no"})
	if d := s.differences(view.Scope{}); len(d) != 1 || d[0].Tenant != "acme" ||
		d[0].Environment != "prod" || d[0].Application != tasks[0].Name {
		t.Errorf("recorded %+v", d)
	}
	if w := s.fact(); w.State != mirror.ShadowRendering || w.ComparedAt != nil ||
		w.Message != "1 Applications are not compared yet" {
		t.Errorf("%+v", w)
	}
	s.record("new", mirror.ShadowResult{ShadowTask: tasks[1]})
	if w := s.fact(); w.State != mirror.ShadowCompared || w.ComparedAt == nil ||
		w.Applications != 2 || w.Message != "" {
		t.Errorf("%+v", w)
	}
}
