package postgres_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func TestAnAgentReadsAndReportsTheInstanceOfItsEngine(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	far := k.open(k.join("far-1", "f"), "one")
	k.open(k.join(acmeEdge, "a"), "one")
	files := map[string][]byte{"a.yaml": []byte("one")}
	m := mirror.RingManifests{Version: "3.5.7", Digest: fleet.ManifestsDigest(files), Files: files}
	check(t, k.Plans.StoreManifests(ctx, k.reconciler, m))
	if i := must(k.Agents.AgentInstance(ctx, "far-1"))(t); i.Wanted != nil || i.Life == "" {
		t.Errorf("an engine that is not managed is to have %+v", i)
	}
	if _, _, err := k.Agents.AgentManifests(ctx, "far-1", m.Digest); !errors.Is(err,
		mirror.ErrNotFound) {
		t.Errorf("manifests that the engine is not to have: %v", err)
	}
	before := must(k.Agents.AgentNews(ctx, -1, time.Time{}))(t)
	check(t, k.Plans.TakeRingStep(ctx, k.reconciler, 0, mirror.RingStep{Name: "canary",
		State: mirror.RingMoving, Version: m.Version, Digest: m.Digest,
		Agent: fleet.RingAgent{Version: "0.5.0", Digest: "sha256:agent"},
		Targets: []mirror.InstanceTarget{{Engine: "far-1", Version: m.Version, Digest: m.Digest,
			Agent: fleet.RingAgent{Version: "0.5.0", Digest: "sha256:agent"}},
			{Engine: "eu-1", Version: m.Version, Digest: m.Digest}}}))
	i := must(k.Agents.AgentInstance(ctx, "far-1"))(t).Wanted
	if i == nil || i.Digest != m.Digest || i.State != mirror.InstanceInstalling ||
		i.AgentVersion != "0.5.0" || i.AgentDigest != "sha256:agent" {
		t.Fatalf("%+v", i)
	}
	news := must(k.Agents.AgentNews(ctx, before.Seq, before.Now))(t)
	if !slices.Equal(news.Instances, []fleet.EngineName{"far-1"}) || len(before.Instances) > 0 {
		t.Errorf("news of instances: %v, before %v", news.Instances, before.Instances)
	}
	version, packed, err := k.Agents.AgentManifests(ctx, "far-1", m.Digest)
	check(t, err)
	got, err := mirror.UnpackManifests(version, m.Digest, packed)
	check(t, err)
	if got.Version != "3.5.7" || string(got.Files["a.yaml"]) != "one" {
		t.Errorf("%+v", got)
	}
	followed := func() bool {
		t.Helper()
		return must(k.Plans.RingFacts(ctx))(t).Instances["far-1"].Followed
	}
	k.exec(`INSERT INTO engines (engine, reachable, since) VALUES ('far-1', true, now())
		ON CONFLICT (engine) DO UPDATE SET reachable = true`)
	if followed() {
		t.Error("an engine is followed whose agent's replica is silent")
	}
	if k.beat(); !followed() {
		t.Error("an engine is not followed whose agent is connected")
	}
	for _, r := range []struct {
		release string
		state   mirror.InstanceState
	}{{m.Digest, mirror.InstanceInstalling}, {i.Release(), mirror.InstanceRunning}} {
		check(t, k.Work.ReportInstance(ctx, far.Lease, r.release, mirror.InstanceRunning, ""))
		if now := must(k.Agents.AgentInstance(ctx, "far-1"))(t).Wanted; now.State != r.state {
			t.Errorf("after a report of %s: %+v", r.release, now)
		}
	}
	check(t, k.Plans.TakeRingStep(ctx, k.reconciler, 0, mirror.RingStep{Name: "canary",
		State: mirror.RingDone, Version: m.Version, Digest: m.Digest,
		Agent: fleet.RingAgent{Version: "0.5.0", Digest: "sha256:agent"},
		Good:  []fleet.EngineName{"far-1"}}))
	facts := must(k.Plans.RingFacts(ctx))(t)
	if i := facts.Instances["far-1"]; !i.Passed() || i.GoodAgentVersion != "0.5.0" {
		t.Errorf("%+v", i)
	}
	if r := facts.Rings["canary"]; r.AgentVersion != "0.5.0" || r.AgentDigest != "sha256:agent" {
		t.Errorf("%+v", r)
	}
	// without the queries' own conditions
	conn := connect(t, k.url)
	defer conn.Close(ctx)
	for engine, want := range map[string][2]int{"far-1": {1, 1}, "acme.edge": {}, "": {}} {
		tx := must(conn.Begin(ctx))(t)
		_, err := tx.Exec(ctx, `SELECT set_config('argosy.engine', $1, true)`, engine)
		check(t, err)
		_, err = tx.Exec(ctx, `SET LOCAL ROLE argosy_agent`)
		check(t, err)
		var n [2]int
		check(t, tx.QueryRow(ctx, `SELECT (SELECT count(*) FROM instances), (SELECT count(*) FROM ring_manifests)`).
			Scan(&n[0], &n[1]))
		if n != want {
			t.Errorf("%q sees %v instances and manifests, want %v", engine, n, want)
		}
		check(t, tx.Rollback(ctx))
	}
	check(t, k.Plans.KeepRings(ctx, k.reconciler, []string{"canary"}, []fleet.EngineName{"far-1"},
		nil))
	check(t, k.Work.ForgetInstance(ctx, far.Lease))
	if i := must(k.Agents.AgentInstance(ctx, "far-1"))(t).Wanted; i != nil {
		t.Errorf("it is given back: %+v", i)
	}
}

// The agent of an environment follows a ring without an Argo CD.
func TestAnAgentAloneFollowsARing(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	edge := k.open(k.join(acmeEdge, "a"), "one")
	k.exec(`INSERT INTO engines (engine, reachable, since) VALUES ('acme.edge', true, now())
		ON CONFLICT (engine) DO UPDATE SET reachable = true`)
	connected := func() bool {
		t.Helper()
		return must(k.Plans.RingFacts(ctx))(t).Connected["acme.edge"]
	}
	if connected() {
		t.Error("an agent is connected whose replica is silent")
	}
	if k.beat(); !connected() {
		t.Error("an agent is not connected")
	}
	agent := fleet.RingAgent{Version: "0.5.0", Digest: "sha256:agent"}
	step := mirror.RingStep{Name: "edges", State: mirror.RingMoving, Version: "3.5.7",
		Digest: "sha256:manifests", Agent: agent,
		Targets: []mirror.InstanceTarget{{Engine: "acme.edge", Agent: agent}}}
	check(t, k.Plans.TakeRingStep(ctx, k.reconciler, 0, step))
	i := must(k.Agents.AgentInstance(ctx, "acme.edge"))(t).Wanted
	if i == nil || !i.AgentOnly() || i.AgentDigest != agent.Digest || i.Since.IsZero() {
		t.Fatalf("%+v", i)
	}
	check(t, k.Work.ReportInstance(ctx, edge.Lease, i.Release(), mirror.InstanceRunning, "stays"))
	step.Targets, step.Good = nil, []fleet.EngineName{"acme.edge"}
	check(t, k.Plans.TakeRingStep(ctx, k.reconciler, 0, step))
	if i := must(k.Plans.RingFacts(ctx))(t).Instances["acme.edge"]; !i.Passed() ||
		i.GoodAgentDigest != agent.Digest || !i.Followed {
		t.Errorf("%+v", i)
	}
	views, _, err := k.Views.Agents(ctx, view.Scope{Tenant: "acme"},
		view.Filter{Environment: "edge"}, view.Page{Limit: 10})
	check(t, err)
	if len(views) != 1 || views[0].Upgrade == nil || *views[0].Upgrade != (view.AgentUpgrade{
		Ring: "edges", Version: "0.5.0", State: mirror.InstanceRunning, Message: "stays"}) {
		t.Errorf("%+v", views)
	}
	// without the queries' own conditions
	conn := connect(t, k.url)
	defer conn.Close(ctx)
	for tenant, want := range map[string]int{"acme": 1, "umbrella": 0, "": 0} {
		tx := must(conn.Begin(ctx))(t)
		_, err := tx.Exec(ctx, `SELECT set_config('argosy.tenant', $1, true)`, tenant)
		check(t, err)
		_, err = tx.Exec(ctx, `SET LOCAL ROLE argosy_reader`)
		check(t, err)
		var n int
		check(t, tx.QueryRow(ctx, `SELECT count(*) FROM instances`).Scan(&n))
		if n != want {
			t.Errorf("tenant %q sees %d instances, want %d", tenant, n, want)
		}
		check(t, tx.Rollback(ctx))
	}
	events, _, err := k.Views.Events(ctx, view.Scope{}, 0, 100)
	check(t, err)
	text := ""
	for _, e := range events {
		text += e.Text + "; "
	}
	for _, part := range []string{"agent 0.5.0 is being installed by ring edges",
		"agent 0.5.0: Running: stays"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in %q", part, text)
		}
	}
	check(t, k.Plans.KeepRings(ctx, k.reconciler, []string{"edges"}, nil,
		[]fleet.EngineName{"acme.edge"}))
	if i := must(k.Agents.AgentInstance(ctx, "acme.edge"))(t).Wanted; i != nil {
		t.Errorf("it follows no ring any more: %+v", i)
	}
}
