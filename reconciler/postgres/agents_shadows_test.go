package postgres_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func TestAnAgentComparesTheApplicationsOfItsEngine(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	far := k.open(k.join("far-1", "f"), "one")
	k.open(k.join(acmeEdge, "a"), "one")
	files := map[string][]byte{"a.yaml": []byte("one")}
	m := mirror.RingManifests{Version: "3.5.7", Digest: fleet.ManifestsDigest(files), Files: files}
	check(t, k.Plans.StoreManifests(ctx, k.reconciler, m))
	before := must(k.Agents.AgentNews(ctx, -1, time.Time{}))(t)
	take := func(step mirror.RingStep) {
		t.Helper()
		step.Name, step.Version, step.Digest = "canary", m.Version, m.Digest
		check(t, k.Plans.TakeRingStep(ctx, k.reconciler, 0, step))
	}
	take(mirror.RingStep{State: mirror.RingRendering,
		Shadows: []fleet.EngineName{"far-1", "eu-1"}})
	k.exec(`INSERT INTO shadows (engine, ring, state, version, digest) VALUES ('us-1', 'canary', 'Rendering', '3.6', 'other')`)
	sent := func(engine fleet.EngineName) *mirror.Shadow {
		t.Helper()
		return must(k.Agents.AgentInstance(ctx, engine))(t).Shadow
	}
	if w := sent("far-1"); w == nil || w.Digest != m.Digest || w.Version != "3.5.7" ||
		w.State != mirror.ShadowRendering {
		t.Fatalf("%+v", w)
	}
	if w := sent(acmeEdge); w != nil {
		t.Errorf("another engine has %+v", w)
	}
	news := must(k.Agents.AgentNews(ctx, before.Seq, before.Now))(t)
	if !slices.Equal(news.Instances, []fleet.EngineName{"far-1"}) {
		t.Errorf("news of %v", news.Instances)
	}
	if version, _, err := k.Agents.AgentManifests(ctx, "far-1", m.Digest); err != nil ||
		version != "3.5.7" {
		t.Errorf("the shadow's manifests: %s, %v", version, err)
	}
	if _, _, err := k.Agents.AgentManifests(ctx, acmeEdge, m.Digest); !errors.Is(err,
		mirror.ErrNotFound) {
		t.Errorf("manifests of another engine's shadow: %v", err)
	}
	tasks := func(basis, after string) []mirror.ShadowTask {
		t.Helper()
		return must(k.Agents.AgentShadowTasks(ctx, "far-1", m.Digest, basis, after, 10))(t)
	}
	all := tasks("1", "")
	if len(all) != 2 || all[0].Tenant != "acme" || all[1].Tenant != "globex" ||
		len(tasks("1", all[0].Name)) != 1 {
		t.Fatalf("%+v", all)
	}
	for engine, digest := range map[fleet.EngineName]string{"far-1": "sha256:other",
		acmeEdge: m.Digest} {
		if _, err := k.Agents.AgentShadowTasks(ctx, engine, digest, "1", "", 10); !errors.Is(err,
			mirror.ErrNotFound) {
			t.Errorf("tasks of %s with %s: %v", engine, digest, err)
		}
	}
	fact := func() mirror.Shadow {
		t.Helper()
		w, ok, err := k.Work.WantedShadow(ctx, far.Lease)
		check(t, err)
		if !ok {
			return mirror.Shadow{}
		}
		return w
	}
	record := func(results ...mirror.ShadowResult) {
		t.Helper()
		check(t, k.Work.RecordShadow(ctx, far.Lease, m.Digest, results))
	}
	report := func(state mirror.ShadowState) mirror.Shadow {
		t.Helper()
		check(t, k.Work.ReportShadow(ctx, far.Lease, m.Digest, state, ""))
		return fact()
	}
	// The tenant and the environment are those of the row, and Applications of other engines have
	// no row of this one.
	foreign := mirror.ShadowTask{Name: "eu-1.acme.c", Tenant: "acme", Inputs: "x"}
	k.exec(`UPDATE desired SET name = 'eu-1.acme.c' WHERE engine = 'eu-1' AND kind = 'Application'`)
	lying := all[0]
	lying.Tenant, lying.Environment, lying.Deployment = "globex", "other", "other"
	record(mirror.ShadowResult{ShadowTask: lying, Hash: oneHash, Error: "no"},
		mirror.ShadowResult{ShadowTask: foreign, Hash: oneHash, Error: "no"},
		mirror.ShadowResult{ShadowTask: mirror.ShadowTask{Name: "none"}, Hash: oneHash})
	found, _, err := k.Views.Differences(ctx, view.Scope{}, view.Filter{}, view.Page{Limit: 10})
	check(t, err)
	if len(found) != 1 || found[0].Tenant != "acme" || found[0].Environment != "prod" ||
		found[0].Engine != "far-1" || found[0].Application != all[0].Name {
		t.Fatalf("recorded %+v", found)
	}
	if w := report(mirror.ShadowCompared); w.State != mirror.ShadowRendering ||
		w.ComparedAt != nil || w.Message != "1 Applications are not compared yet" {
		t.Errorf("compared without an Application: %+v", w)
	}
	record(mirror.ShadowResult{ShadowTask: all[0], Hash: oneHash}, mirror.ShadowResult{
		ShadowTask: all[1]})
	if w := report(mirror.ShadowCompared); w.State != mirror.ShadowCompared ||
		w.ComparedAt == nil || w.Applications != 2 || w.Pending != 1 {
		t.Errorf("%+v", w)
	}
	if left := tasks("1", ""); len(left) != 0 {
		t.Errorf("compared Applications are compared again: %+v", left)
	}
	if left := tasks("2", ""); len(left) != 2 {
		t.Errorf("other settings lead to %+v", left)
	}
	// without the queries' own conditions
	conn := connect(t, k.url)
	defer conn.Close(ctx)
	for engine, want := range map[string][3]int{"far-1": {1, 2, 1}, "acme.edge": {}, "": {}} {
		tx := must(conn.Begin(ctx))(t)
		_, err := tx.Exec(ctx, `SELECT set_config('argosy.engine', $1, true)`, engine)
		check(t, err)
		_, err = tx.Exec(ctx, `SET LOCAL ROLE argosy_agent`)
		check(t, err)
		var n [3]int
		check(t, tx.QueryRow(ctx, `SELECT (SELECT count(*) FROM shadows), (SELECT count(*) FROM shadow_differences),
			(SELECT count(*) FROM ring_manifests)`).Scan(&n[0], &n[1], &n[2]))
		if n != want {
			t.Errorf("%q sees %v shadows, comparisons and manifests, want %v", engine, n, want)
		}
		check(t, tx.Rollback(ctx))
	}
	take(mirror.RingStep{State: mirror.RingDone, EndShadows: []fleet.EngineName{"far-1"}})
	if w := sent("far-1"); w == nil || w.State != mirror.ShadowEnding {
		t.Errorf("%+v", w)
	}
	report(mirror.ShadowEnded)
	if w := sent("far-1"); w != nil {
		t.Errorf("an ended shadow is sent: %+v", w)
	}
	if _, err := k.Agents.AgentShadowTasks(ctx, "far-1", m.Digest, "1", "", 10); !errors.Is(err,
		mirror.ErrNotFound) {
		t.Errorf("tasks of an ended shadow: %v", err)
	}
	if _, _, err := k.Agents.AgentManifests(ctx, "far-1", m.Digest); !errors.Is(err,
		mirror.ErrNotFound) {
		t.Errorf("manifests of an ended shadow: %v", err)
	}
}
