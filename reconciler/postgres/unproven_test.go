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

func (e *evacuating) forget() error {
	return e.s.Decisions.ForgetEngine(e.Context(), mirror.EngineForgetting{Engine: "eu-1",
		ConfirmGone: "eu-1", By: "token:ann", Reason: "it burned"})
}

// evacuated has an evacuated eu-1, whose Applications are adopted by eu-2, with an orphan.
func evacuated(t testing.TB) *evacuating {
	t.Helper()
	e := newEvacuating(t)
	for _, row := range e.rows {
		check(t, e.s.Work.Observe(t.Context(), e.dead, []mirror.Observation{{Key: row.Key,
			UID: "uid-" + row.Key.Name}}))
	}
	check(t, e.request())
	check(t, e.move())
	exec(t, e.url, `UPDATE application_moves SET step = 'Done'`)
	exec(t, e.url, `INSERT INTO strays (engine, kind, name, tenant, environment, deployment, uid, revision, epoch, found_at)
		VALUES ('eu-1', 'Application', 'x', 'acme', 'left', 'x', 'uid-x', '', 1, now())`)
	return e
}

func (e *evacuating) unproven() []view.Unproven {
	e.Helper()
	all, _, err := e.s.Views.Unproven(e.Context(), view.Scope{}, view.Filter{Engine: "eu-1"},
		view.Page{Limit: 10})
	check(e, err)
	return all
}

func TestOnlyAnEvacuatedEngineThatServesNothingIsForgotten(t *testing.T) {
	t.Parallel()
	e := newEvacuating(t)
	e.expect("it is not evacuated", e.forget(), mirror.ErrNotEvacuated)
	check(t, e.request())
	e.expect("an environment is on it", e.forget(), mirror.ErrServes)
	check(t, e.move())
	e.expect("an Application is not adopted yet", e.forget(), mirror.ErrServes)
	exec(t, e.url, `UPDATE application_moves SET step = 'Done'`)
	e.reachable(true)
	e.expect("it answers", e.forget(), mirror.ErrEngineAnswers)
	e.reachable(false)
	exec(t, e.url, `UPDATE desired SET absent = false WHERE engine = 'eu-1' AND deployment = 'a'`)
	e.expect("an object is declared", e.forget(), mirror.ErrServes)
	exec(t, e.url, `UPDATE desired SET absent = true WHERE engine = 'eu-1'`)
	expect(t, e.url, `SELECT count(*) FROM unproven`, 0)
	check(t, e.forget())
	e.expect("once more", e.forget(), mirror.ErrForgotten)
	exec(t, e.url, `UPDATE evacuations SET state = 'Ending'`)
	e.expect("its evacuation ends", e.forget(), mirror.ErrNotEvacuated)
}

// The rows and orphans become unproven objects; for the plan, the rows are removed, so that the
// engine's declaration can be.
func TestAForgottenEngineHasNoRowsButUnprovenObjects(t *testing.T) {
	t.Parallel()
	e := evacuated(t)
	keys := []fleet.ObjectKey{e.rows[0].Key, e.rows[1].Key}
	life := must(e.s.Plans.Mirror(t.Context()))(t).Life
	if gone := must(e.s.Plans.Vanished(t.Context(), life, keys))(t); len(gone) > 0 {
		t.Fatalf("%v are removed before", gone)
	}
	check(t, e.forget())
	if gone := must(e.s.Plans.Vanished(t.Context(), life, keys))(t); len(gone) != 2 {
		t.Errorf("of the rows, %v are removed", gone)
	}
	expect(t, e.url, `SELECT count(*) FROM desired WHERE engine = 'eu-1'`, 0)
	expect(t, e.url, `SELECT count(*) FROM status WHERE engine = 'eu-1'`, 0)
	expect(t, e.url, `SELECT count(*) FROM strays`, 0)
	expect(t, e.url, `SELECT count(*) FROM audit WHERE action = 'forget' AND subject = 'engine eu-1'
		AND actor = 'token:ann' AND detail = 'it burned'`, 1)
	all := e.unproven()
	if len(all) != 3 {
		t.Fatalf("%+v", all)
	}
	for _, u := range all {
		if u.UID != "uid-"+u.Name || u.SeenAt == nil || u.ForgottenBy != "token:ann" ||
			u.Reason != "it burned" || u.Lost != mirror.LostEngine ||
			!strings.Contains(u.Risk, "may still sync the workload of acme/") {
			t.Errorf("%+v", u)
		}
	}
	tenant, _, err := e.s.Views.Unproven(t.Context(), view.Scope{Tenant: "acme"}, view.Filter{},
		view.Page{Limit: 10})
	check(t, err)
	if len(tenant) > 0 {
		t.Errorf("a tenant sees %v", tenant)
	}
	other, _, err := e.s.Views.Unproven(t.Context(), view.Scope{}, view.Filter{Tenant: "acme",
		Environment: "left"}, view.Page{Limit: 10})
	check(t, err)
	if len(other) != 1 || other[0].Name != "x" {
		t.Errorf("of acme/left: %+v", other)
	}
	away := must(e.s.Work.Away(t.Context(), "eu-1"))(t)
	if left := (fleet.SliceID{Tenant: "acme", Environment: "left"}); !away[prod.Whole()] ||
		!away[left] || len(away) != 2 {
		t.Errorf("if it returns, the Applications of %v are frozen", away)
	}
}

// A worker keeps trying to reach a forgotten engine, also without a declaration, unless another
// declared engine may be the same Argo CD.
func TestAForgottenEngineIsFollowedWhileObjectsAreUnproven(t *testing.T) {
	t.Parallel()
	e := evacuated(t)
	exec(t, e.url, `UPDATE engines SET spec = '{"argocd": {"installationID": "eu-1"}}', since = now() - interval '31 days' WHERE engine = 'eu-1'`)
	exec(t, e.url, `DELETE FROM declarations WHERE kind = 'Engine' AND name = 'eu-1'`)
	check(t, e.forget())
	follows := func(what string, want bool) {
		t.Helper()
		if _, ok := must(e.s.Plans.EngineSpecs(t.Context()))(t)["eu-1"]; ok != want {
			t.Errorf("%s: a worker follows it: %t", what, ok)
		}
	}
	must(e.s.Prune(t.Context(), postgres.Retention{}))(t)
	follows("with unproven objects", true)
	exec(t, e.url, `INSERT INTO declarations SELECT (jsonb_populate_record(d, '{"name": "eu-9", "path": "eu-9.yaml", "body": {"engine": {"argocd": {"installationID": "eu-1"}}}}')).*
		FROM declarations d WHERE d.kind = 'Tenant' LIMIT 1`)
	exec(t, e.url, `UPDATE declarations SET kind = 'Engine', tenant = '' WHERE name = 'eu-9'`)
	follows("another engine has its installationID", false)
	exec(t, e.url, `DELETE FROM declarations WHERE name = 'eu-9'`)
	follows("it has none any more", true)
	n, err := e.s.Decisions.ResolveUnproven(t.Context(), mirror.UnprovenResolution{
		Engine: "eu-1", By: "token:ann", Reason: "the disks are destroyed"})
	check(t, err)
	if n != 3 {
		t.Errorf("%d are resolved", n)
	}
	follows("with all resolved", false)
	must(e.s.Prune(t.Context(), postgres.Retention{}))(t)
	expect(t, e.url, `SELECT count(*) FROM engines WHERE engine = 'eu-1'`, 0)
}

// A forgotten engine that returns removes its objects by rows, and each proof takes one off the
// list. Only then does the evacuation end, even if no environment is elsewhere any more.
func TestAForgottenEngineThatReturnsProvesItsObjectsGone(t *testing.T) {
	t.Parallel()
	e := evacuated(t)
	check(t, e.forget())
	exec(t, e.url, `UPDATE placements SET body = body - 'evacuated'`)
	e.reachable(true)
	if err := e.end(); !errors.Is(err, mirror.ErrEvacuatedAway) ||
		!strings.Contains(err.Error(), "not proven") {
		t.Errorf("the evacuation ends: %v", err)
	}
	before := must(e.s.Plans.Mirror(t.Context()))(t)
	last := one[int64](t, e.url, `SELECT seq FROM mirror`)
	if n := must(e.s.Work.Recall(t.Context(), e.dead))(t); n != 3 {
		t.Fatalf("%d objects are rows again", n)
	}
	if n := must(e.s.Work.Recall(t.Context(), e.dead))(t); n != 0 {
		t.Errorf("%d objects are rows twice", n)
	}
	after := must(e.s.Plans.Mirror(t.Context()))(t)
	if after.Plan != before.Plan || after.Applied != before.Applied {
		t.Errorf("the mirror is at %+v, not %+v", after, before)
	}
	rows := must(e.s.Work.Changed(t.Context(), "eu-1", last, 10))(t)
	if len(rows) != 3 {
		t.Fatalf("%d rows follow", len(rows))
	}
	for i, row := range rows {
		if !row.Unwanted || row.Deletion != fleet.DeletionOrphan ||
			row.UID != "uid-"+row.Key.Name || row.Seq != last+int64(i)+1 {
			t.Errorf("%+v", row)
		}
		check(t, e.s.Work.Acknowledge(t.Context(), e.dead, []mirror.Ack{{Key: row.Key,
			Seq: row.Seq, Hash: row.Manifest.Hash, State: mirror.ApplyDeleting, Removed: true}}))
		if left := len(e.unproven()); left != len(rows)-i-1 {
			t.Errorf("%d are unproven after %d proofs", left, i+1)
		}
	}
	e.expect("it is proven empty", e.end(), nil)
	fenced := e.dead
	fenced.Epoch--
	_, err := e.s.Work.Recall(t.Context(), fenced)
	e.expect("a worker without the lease", err, mirror.ErrFenced)
}

// An engine that returns and dies again is forgotten again.
func TestAnEngineIsForgottenAgain(t *testing.T) {
	t.Parallel()
	e := evacuated(t)
	check(t, e.forget())
	must(e.s.Work.Recall(t.Context(), e.dead))(t)
	check(t, e.forget())
	if all := e.unproven(); len(all) != 3 {
		t.Errorf("%+v", all)
	}
}

func TestAPersonResolvesUnprovenObjects(t *testing.T) {
	t.Parallel()
	e := evacuated(t)
	check(t, e.forget())
	resolve := func(r mirror.UnprovenResolution) (int, error) {
		r.By, r.Reason = "token:ann", "looked"
		return e.s.Decisions.ResolveUnproven(t.Context(), r)
	}
	for _, r := range []mirror.UnprovenResolution{{}, {IDs: []int64{1}, Engine: "eu-1"},
		{IDs: []int64{99}}, {Engine: "eu-7"}, {Tenant: "acme", Environment: "none"}} {
		if n, err := resolve(r); err == nil || n > 0 {
			t.Errorf("%+v resolves %d", r, n)
		}
	}
	var web int64
	for _, u := range e.unproven() {
		if u.Environment == "prod" {
			web = u.ID
		}
	}
	for _, r := range []mirror.UnprovenResolution{{IDs: []int64{web}},
		{Tenant: "acme", Environment: "left"}, {Engine: "eu-1"}} {
		if n, err := resolve(r); err != nil || n != 1 {
			t.Errorf("%+v resolves %d, %v", r, n, err)
		}
	}
	expect(t, e.url, `SELECT count(*) FROM audit WHERE action = 'resolveunproven' AND actor = 'token:ann' AND detail = 'looked'`, 3)
}

func (e *evacuating) forgetCluster() (int, error) {
	return e.s.Decisions.ForgetCluster(e.Context(), mirror.ClusterForgetting{Tenant: "acme",
		Environment: "prod", ConfirmGone: "acme/prod", By: "token:ann", Reason: "scrapped"})
}

// Each fact alone keeps a cluster from being forgotten.
func TestOnlyAClusterThatIsSilentAndNotDeclaredIsForgotten(t *testing.T) {
	t.Parallel()
	e := newEvacuating(t)
	expectForgotten := func(what string, want error) {
		t.Helper()
		_, err := e.forgetCluster()
		e.expect(what, err, want)
	}
	const declare = `INSERT INTO declarations SELECT (jsonb_populate_record(d, '{"kind": "ManagedEnvironment", "tenant": "acme", "name": "prod", "path": "x.yaml"}')).*
		FROM declarations d WHERE d.kind = 'Tenant' LIMIT 1 ON CONFLICT DO NOTHING`
	exec(t, e.url, declare)
	expectForgotten("it is declared", mirror.ErrDeclared)
	exec(t, e.url, `DELETE FROM declarations WHERE kind = 'ManagedEnvironment'`)
	expectForgotten("its Applications are declared", mirror.ErrServes)
	exec(t, e.url, `UPDATE desired SET absent = true, deletion = 'Delete'`)
	expectForgotten("its engine reads it", mirror.ErrClusterAnswers)
	exec(t, e.url, `INSERT INTO reach (engine, tenant, environment, reason, message, since, parked)
		VALUES ('eu-1', 'acme', 'prod', 'Timeout', 'i/o timeout', now() - interval '3 hours', 2)`)
	exec(t, e.url, `UPDATE desired SET deletion = 'Orphan'`)
	expectForgotten("no deletion waits for it", mirror.ErrNotFound)
	exec(t, e.url, `UPDATE desired SET deletion = 'Delete'`)
	last := one[int64](t, e.url, `SELECT seq FROM mirror`)
	if n, err := e.forgetCluster(); err != nil || n != 2 {
		t.Fatalf("%d, %v", n, err)
	}
	rows := must(e.s.Work.Changed(t.Context(), "eu-1", last, 10))(t)
	if len(rows) != 2 {
		t.Fatalf("%d rows follow", len(rows))
	}
	for i, row := range rows {
		if row.Deletion != fleet.DeletionOrphan || !row.Unwanted || row.Seq != last+int64(i)+1 {
			t.Errorf("%+v", row)
		}
	}
	check(t, e.s.Work.Acknowledge(t.Context(), e.dead, []mirror.Ack{{Key: rows[0].Key,
		Seq: rows[0].Seq, Hash: rows[0].Manifest.Hash, State: mirror.ApplyDeleting,
		Removed: true}}))
	all := e.unproven()
	if len(all) != 2 {
		t.Fatalf("once an Application is removed, unproven are %+v", all)
	}
	for _, u := range all {
		if u.Lost != mirror.LostCluster || u.SeenAt == nil || u.Reason != "scrapped" ||
			!strings.Contains(u.Risk, "may still run on the cluster") {
			t.Errorf("%+v", u)
		}
	}
	if n := must(e.s.Work.Recall(t.Context(), e.dead))(t); n != 0 {
		t.Errorf("%d workloads are rows again", n)
	}
	expectForgotten("once more", mirror.ErrNotFound)
}

// The rows of a cluster with its own Argo CD wait for its agent, whose identity has to have ended.
func TestTheClusterOfAnAgentThatNeverReturnsIsForgotten(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	own := fleet.AgentEngine(fleet.EnvironmentID{Tenant: "acme", Name: "edge"})
	a := k.join(own, "one")
	exec(t, k.url, `DELETE FROM declarations WHERE kind = 'ManagedEnvironment' AND name = 'edge'`)
	exec(t, k.url, `UPDATE desired SET absent = true, deletion = 'Delete' WHERE engine = $1`,
		string(own))
	forget := func() (int, error) {
		return k.Decisions.ForgetCluster(t.Context(), mirror.ClusterForgetting{Tenant: "acme",
			Environment: "edge", ConfirmGone: "acme/edge", By: "token:ann", Reason: "scrapped"})
	}
	if _, err := forget(); !errors.Is(err, mirror.ErrClusterAnswers) {
		t.Errorf("its agent may return: %v", err)
	}
	exec(t, k.url, `UPDATE agents SET ended_at = now(), ended = 'revoked' WHERE id = $1`, a.ID)
	if n, err := forget(); err != nil || n != 2 {
		t.Fatalf("%d, %v", n, err)
	}
	expect(t, k.url, `SELECT count(*) FROM desired WHERE engine = 'acme.edge'`, 0)
	expect(t, k.url, `SELECT count(*) FROM unproven WHERE lost = 'Cluster' AND engine = 'acme.edge'`, 2)
}
