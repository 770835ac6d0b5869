package hub

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// leaves is an Application whose next step is the agent's.
func leaves(step mirror.MoveStep) mirror.ApplicationMove {
	return mirror.ApplicationMove{
		Application: fleet.ApplicationID{Tenant: "acme", Environment: "edge", Deployment: "d"},
		From:        "plant", To: "eu-1", Step: step, Since: time.Now()}
}

func moveReport(m mirror.ApplicationMove, next mirror.MoveStep) agent.MoveReport {
	return agent.MoveReport{Tenant: m.Application.Tenant, Environment: m.Application.Environment,
		Deployment: m.Application.Deployment, Name: "a", Step: m.Step, Since: m.Since, Next: next}
}

// movingAgent is a hub with the agent of an engine that has the row of a moving Application.
func movingAgent(t *testing.T, m mirror.ApplicationMove) (*testHub, func(agent.MoveReport)) {
	o := newTestHub(t)
	d := o.newAgent("plant", "")
	o.store.put(application("plant", "acme", "a"))
	o.store.moves = []mirror.ApplicationMove{m}
	epoch, seq := d.open(), int64(0)
	return o, func(r agent.MoveReport) {
		t.Helper()
		seq++
		if w := d.report(agent.Report{Epoch: epoch, Seq: seq,
			Moves: []agent.MoveReport{r}}); w.Code != http.StatusNoContent {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
}

// A step of an agent counts only while it is the next one, and is this agent's.
func TestAnAgentEndsOnlyItsOwnPresentStep(t *testing.T) {
	m := leaves(mirror.MoveDelete)
	o, report := movingAgent(t, m)
	other := m
	other.Since = m.Since.Add(-time.Minute)
	report(moveReport(other, mirror.MoveEnable)) // an earlier Delete
	other = m
	other.Step = mirror.MoveFreeze
	report(moveReport(other, mirror.MoveAdopt)) // another step
	other = m
	other.Application.Tenant = "globex"
	report(moveReport(other, mirror.MoveEnable)) // does not move
	elsewhere := moveReport(m, mirror.MoveEnable)
	elsewhere.Name = "b"
	report(elsewhere) // no row of this engine
	if now := o.store.moves[0]; now.Step != mirror.MoveDelete || now.Message != "" {
		t.Fatalf("%+v", now)
	}
	report(moveReport(m, mirror.MoveDone)) // skips Enable, which is another engine's
	if now := o.store.moves[0]; now.Step != mirror.MoveDelete ||
		!strings.Contains(now.Message, "step Done, which cannot be next") {
		t.Fatalf("%+v", now)
	}
	delayed := moveReport(m, "")
	delayed.Message = "it is \x1b[31mheld"
	report(delayed)
	if now := o.store.moves[0]; now.Message != "it is  [31mheld" {
		t.Fatalf("%+v", now)
	}
	report(moveReport(m, mirror.MoveEnable))
	if now := o.store.moves[0]; now.Step != mirror.MoveEnable {
		t.Fatalf("%+v", now)
	}
	report(moveReport(m, mirror.MoveEnable))
	enable := o.store.moves[0]
	report(moveReport(enable, mirror.MoveDone)) // of eu-1
	if now := o.store.moves; len(now) != 1 || now[0].Step != mirror.MoveEnable {
		t.Fatalf("the agent has ended a step of another engine: %+v", now)
	}
}

func TestADepartureThatAnAgentReportsIsChecked(t *testing.T) {
	resource := mirror.MovedResource{Group: "apps", Kind: "Deployment", Namespace: "acme",
		Name: "web"}
	good := mirror.Departure{UID: "1-a", Revisions: []string{commit, "1.2.3-rc.1", "v4.0"},
		Resources:     []mirror.MovedResource{resource, {Kind: "ClusterRole", Name: "system:x"}},
		LastOperation: "a/b", Spec: json.RawMessage(`{"project":"default"}`),
		Annotations: map[string]string{"argosy.dev/before": "{}"}, Returns: "x"}
	m := leaves(mirror.MoveCheck)
	o, report := movingAgent(t, m)
	r := moveReport(m, mirror.MoveCompare)
	r.Departure = &good
	report(r)
	now := o.store.lastStep
	if now.Step != mirror.MoveCompare || string(now.Departure.Spec) != `{"note":"<a & b>"}` ||
		now.Departure.Annotations != nil || now.Departure.Returns != "" ||
		len(now.Departure.Resources) != 2 {
		t.Fatalf("%+v, spec %s", now, now.Departure.Spec)
	}
	for what, change := range map[string]func(*mirror.Departure){
		"an invalid UID": func(d *mirror.Departure) { d.UID = "a/adopt" },
		"0 revisions":    func(d *mirror.Departure) { d.Revisions = nil },
		"revision main":  func(d *mirror.Departure) { d.Revisions = []string{"main"} },
		"revision >=1":   func(d *mirror.Departure) { d.Revisions = []string{">=1"} },
		"2001 resources": func(d *mirror.Departure) {
			d.Resources = make([]mirror.MovedResource, agent.MaxDeparture+1)
		},
		"an invalid resource": func(d *mirror.Departure) {
			d.Resources = []mirror.MovedResource{{Kind: "*", Name: "x"}}
		},
		"step Ready, which": func(d *mirror.Departure) {},
	} {
		o, report := movingAgent(t, m)
		bad := good
		change(&bad)
		r := moveReport(m, mirror.MoveCompare)
		if r.Departure = &bad; what == "step Ready, which" {
			r.Next = mirror.MoveReady // without a comparison
		}
		report(r)
		if now := o.store.lastStep; now.Step != mirror.MoveCheck ||
			!strings.Contains(now.Message, what) {
			t.Errorf("%s: %+v", what, now)
		}
	}
	for revision, fits := range map[string]bool{commit: true, commit + commit[:24]: true,
		"sha256:" + commit + commit[:24]: true, "2.0": true, "1.0.0+meta": true, "HEAD": false,
		"1.*": false, "~1": false, "refs/heads/main": false, "v1 v2": false, "": false} {
		if revisionPattern.MatchString(revision) != fits {
			t.Errorf("%q fits: %v", revision, !fits)
		}
	}
}

// An agent gets the moves of its engine alone, and the departures of its own steps.
func TestAnAgentGetsTheMovesOfItsEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestHub(t)
		defer o.run()()
		d := o.newAgent("plant", "")
		m := leaves(mirror.MoveCheck)
		m.From, m.Departure.UID = "plant", "u"
		n := m
		n.Application.Deployment, n.Step, n.Message = "n", mirror.MoveCompare, "no route"
		row := application("plant", "acme", "a")
		row.Moving, row.Unwanted = true, true
		o.store.put(row)
		row = application("plant", "acme", "b")
		row.Moving = true
		o.store.put(row)
		o.store.do(func() { o.store.moves = []mirror.ApplicationMove{m, n} })
		s := d.stream(0)
		var got agent.Moves
		advance(5 * time.Second)
		if !s.last(agent.EventMoves, &got) || len(got.Moves) != 2 {
			t.Fatalf("%+v", got)
		}
		if got.Rows != 2 || got.Moves[0].Departure == nil || got.Moves[0].Departure.UID != "u" ||
			got.Moves[1].Departure != nil || got.Moves[1].Message != "no route" {
			t.Errorf("%+v", got)
		}
		if rows := s.rows(agent.EventRows); len(rows) != 2 ||
			rows[0].Operation != agent.OperationLeave ||
			rows[1].Operation != agent.OperationArrive {
			t.Errorf("%+v", rows)
		}
		o.store.do(func() { o.store.moves = nil })
		advance(5 * time.Second)
		if !s.last(agent.EventMoves, &got) || len(got.Moves) != 0 {
			t.Fatalf("%+v", got)
		}
		m.From = "eu-2"
		o.store.do(func() { o.store.moves, o.store.leaks = []mirror.ApplicationMove{m}, true })
		advance(5 * time.Second)
		if s.isOpen() || strings.Contains(s.output(), "eu-2") {
			t.Error("it has got the move of other engines")
		}
	})
}
