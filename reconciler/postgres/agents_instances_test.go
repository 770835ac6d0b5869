package postgres_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
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
