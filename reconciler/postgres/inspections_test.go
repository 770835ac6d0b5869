package postgres_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/postgres"
)

// inspectKit is an agentKit whose agent of acme.edge is connected.
func inspectKit(t *testing.T) (*agentKit, postgres.Inspections) {
	t.Helper()
	k := newAgentKit(t)
	k.open(k.join(acmeEdge, "edge"), "one")
	k.open(k.join("globex.edge", "globex"), "one")
	k.beat()
	return k, k.Inspections()
}

// inspection is a read of an Application "a" or "b" of acme.edge.
func inspection(n int, deployment string) registry.Inspection {
	row := application("acme.edge", "acme", deployment, "edge", "v1")
	return registry.Inspection{ID: fmt.Sprintf("%032x", n), Engine: acmeEdge, Replica: "hub-2",
		Application: mirror.InspectedApplication{Engine: acmeEdge, Name: row.Key.Name,
			ID: fleet.ApplicationID{Tenant: "acme", Environment: "edge",
				Deployment: fleet.DeploymentName(deployment)}},
		Request: json.RawMessage(`{"kind": "tree"}`), Left: 20 * time.Second}
}

func partOf(in registry.Inspection, n int, text string) registry.InspectionPart {
	return registry.InspectionPart{ID: in.ID, Run: strings.Repeat("a", 32), Part: n,
		Data: []byte(text)}
}

func TestAReadGoesFromOneReplicaToTheOtherAndBack(t *testing.T) {
	t.Parallel()
	k, reader := inspectKit(t)
	agents := open(t, k.url).Inspections() // of the replica that holds the agent's stream
	in := inspection(1, "a")
	check(t, reader.OpenInspection(t.Context(), in))
	if news := must(k.Agents.AgentNews(t.Context(), -1, time.Time{}))(t); len(news.Inspections) !=
		1 || news.Inspections[0] != acmeEdge {
		t.Errorf("news: %v", news.Inspections)
	}
	sent := must(agents.AgentInspections(t.Context(), acmeEdge))(t)
	if len(sent) != 1 || sent[0].ID != in.ID || sent[0].Left <= 0 || sent[0].Left > in.Left ||
		string(sent[0].Request) != string(in.Request) {
		t.Fatalf("%+v", sent)
	}
	if parts := must(reader.TakeInspection(t.Context(), in.ID))(t); len(parts) != 0 {
		t.Errorf("%+v", parts)
	}
	last := partOf(in, 2, "two")
	last.Last = true
	for _, p := range []registry.InspectionPart{partOf(in, 1, "one"), partOf(in, 1, "one"), last} {
		if replica := must(agents.AnswerInspection(t.Context(), acmeEdge, p))(t); replica !=
			"hub-2" {
			t.Errorf("the reader is at %q", replica)
		}
	}
	if sent := must(agents.AgentInspections(t.Context(), acmeEdge))(t); len(sent) != 0 {
		t.Errorf("an answered read is still sent: %+v", sent)
	}
	parts := must(reader.TakeInspection(t.Context(), in.ID))(t)
	if len(parts) != 2 || string(parts[0].Data) != "one" || parts[0].Last ||
		string(parts[1].Data) != "two" || !parts[1].Last || parts[1].Failure != nil {
		t.Errorf("%+v", parts)
	}
	if n := one[int](t, k.url, `SELECT count(*) FROM inspection_parts`); n != 0 {
		t.Errorf("%d parts are kept after they were taken", n)
	}
	check(t, reader.CloseInspection(t.Context(), in.ID))
	check(t, reader.CloseInspection(t.Context(), in.ID))
	if _, err := reader.TakeInspection(t.Context(), in.ID); !errors.Is(err,
		registry.ErrInspectionEnded) {
		t.Errorf("after its end: %v", err)
	}
	news := must(k.Agents.AgentNews(t.Context(), -1, time.Time{}))(t)
	if len(news.Inspections) != 0 {
		t.Errorf("news: %v", news.Inspections)
	}
}

func TestAPartIsStoredForItsOwnEngineAndInOrder(t *testing.T) {
	t.Parallel()
	k, s := inspectKit(t)
	in := inspection(1, "a")
	check(t, s.OpenInspection(t.Context(), in))
	answer := func(engine fleet.EngineName, p registry.InspectionPart) error {
		_, err := s.AnswerInspection(t.Context(), engine, p)
		return err
	}
	restarted := partOf(in, 1, "x")
	restarted.Run = strings.Repeat("b", 32)
	for name, c := range map[string]struct {
		engine fleet.EngineName
		part   registry.InspectionPart
		want   error
	}{
		"another agent": {"globex.edge", partOf(in, 1, "x"), registry.ErrInspectionEnded},
		"another read": {acmeEdge, partOf(inspection(2, "a"), 1, "x"),
			registry.ErrInspectionEnded},
		"the second part": {acmeEdge, partOf(in, 2, "x"), registry.ErrInspectionOrder},
	} {
		if err := answer(c.engine, c.part); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := 1; n <= registry.MaxInspectionParts; n++ {
		check(t, answer(acmeEdge, partOf(in, n, "x")))
	}
	if err := answer(acmeEdge, partOf(in, registry.MaxInspectionParts+1, "x")); !errors.Is(err,
		registry.ErrInspectionFull) {
		t.Errorf("before the reader has taken them: %v", err)
	}
	if err := answer(acmeEdge, restarted); !errors.Is(err, registry.ErrInspectionEnded) {
		t.Errorf("of another process: %v", err)
	}
	must(s.TakeInspection(t.Context(), in.ID))(t)
	failed := partOf(in, registry.MaxInspectionParts+1, "")
	failed.Last, failed.Failure = true, json.RawMessage(`{"code": "refused"}`)
	check(t, answer(acmeEdge, failed))
	if err := answer(acmeEdge, partOf(in, registry.MaxInspectionParts+2, "x")); !errors.Is(err,
		registry.ErrInspectionEnded) {
		t.Errorf("after the last part: %v", err)
	}
	if parts := must(s.TakeInspection(t.Context(), in.ID))(t); len(parts) != 1 ||
		string(parts[0].Failure) != `{"code": "refused"}` {
		t.Errorf("%+v", parts)
	}
	k.exec(`UPDATE inspections SET alive_until = now() - interval '1 second'`)
	if err := answer(acmeEdge, partOf(in, 1, "x")); !errors.Is(err, registry.ErrInspectionEnded) {
		t.Errorf("after the reader's replica died: %v", err)
	}
	if sent := must(s.AgentInspections(t.Context(), acmeEdge))(t); len(sent) != 0 {
		t.Errorf("its agent is still sent %+v", sent)
	}
	check(t, s.SweepInspections(t.Context()))
	if n := one[int](t, k.url, `SELECT (SELECT count(*) FROM inspections) + (SELECT count(*) FROM inspection_parts)`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

func TestAReadThatCannotBeAnsweredIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	k, s := inspectKit(t)
	foreign := inspection(1, "a")
	foreign.Application.ID.Tenant = "globex" // its name is not one of globex's
	unknown := inspection(2, "a")
	unknown.Application.Name = "no-such"
	alone := inspection(3, "a")
	alone.Engine = "acme.own"
	for name, c := range map[string]struct {
		in   registry.Inspection
		want error
	}{
		"of another tenant": {foreign, mirror.ErrNoTree}, "unknown": {unknown, mirror.ErrNoTree},
		"no agent has joined": {alone, mirror.ErrInspectUnreachable},
	} {
		if err := s.OpenInspection(t.Context(), c.in); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	k.exec(`UPDATE replicas SET beat_at = now() - interval '5 minutes'`)
	err := s.OpenInspection(t.Context(), inspection(4, "a"))
	if !errors.Is(err, mirror.ErrInspectUnreachable) || !strings.Contains(err.Error(),
		"its agent is not connected, last seen 5m ago") {
		t.Errorf("not connected: %v", err)
	}
	if n := one[int](t, k.url, `SELECT count(*) FROM inspections`); n != 0 {
		t.Errorf("%d reads are open", n)
	}
}

// Two replicas open reads at the same time: the limit of the agent holds.
func TestAStormOfReadsKeepsTheLimitOfTheAgent(t *testing.T) {
	t.Parallel()
	k, first := inspectKit(t)
	replicas := []postgres.Inspections{first, open(t, k.url).Inspections()}
	var opened, busy atomic.Int64
	var all sync.WaitGroup
	for n := range 60 {
		all.Go(func() {
			err := replicas[n%2].OpenInspection(t.Context(), inspection(n, "a"))
			switch {
			case err == nil:
				opened.Add(1)
			case errors.Is(err, mirror.ErrInspectBusy):
				busy.Add(1)
			default:
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	if opened.Load() != registry.MaxInspectionsOfEngine ||
		busy.Load() != 60-registry.MaxInspectionsOfEngine {
		t.Errorf("%d are open, %d refused", opened.Load(), busy.Load())
	}
	k.exec(`UPDATE inspections SET alive_until = now() - interval '1 second'`)
	check(t, first.OpenInspection(t.Context(), inspection(100, "b")))
}

// The database keeps the wall between agents, whatever a statement selects.
func TestAnAgentSeesTheReadsOfItsOwnEngineAlone(t *testing.T) {
	t.Parallel()
	k, s := inspectKit(t)
	check(t, s.OpenInspection(t.Context(), inspection(1, "a")))
	must(s.AnswerInspection(t.Context(), acmeEdge, partOf(inspection(1, "a"), 1, "secret")))(t)
	if sent := must(s.AgentInspections(t.Context(), "globex.edge"))(t); len(sent) != 0 {
		t.Errorf("another agent is sent %+v", sent)
	}
	conn := connect(t, k.url)
	defer conn.Close(t.Context())
	for engine, want := range map[string]int{"acme.edge": 1, "globex.edge": 0, "": 0} {
		tx, err := conn.Begin(t.Context())
		check(t, err)
		_, err = tx.Exec(t.Context(), `SELECT set_config('argosy.engine', $1, true)`, engine)
		check(t, err)
		_, err = tx.Exec(t.Context(), `SET LOCAL ROLE argosy_agent`)
		check(t, err)
		var seen int
		check(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM inspections`).Scan(&seen))
		if seen != want {
			t.Errorf("%q: %d reads", engine, seen)
		}
		if _, err := tx.Exec(t.Context(), `SELECT FROM inspection_parts`); err == nil {
			t.Errorf("%q reads answers", engine)
		}
		check(t, tx.Rollback(t.Context()))
	}
}
