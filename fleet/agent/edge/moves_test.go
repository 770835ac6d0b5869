package edge

import (
	"errors"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

var movingApp = fleet.ApplicationID{Tenant: "acme", Environment: "prod", Deployment: "one"}

// arriving puts the row of an Application that moves to the engine.
func (h *hubDouble) arriving() agent.Row {
	row := object("one")
	row.Operation = agent.OperationArrive
	return h.put(row)
}

func stepOf(step mirror.MoveStep, since time.Time) agent.Move {
	m := agent.Move{Tenant: movingApp.Tenant, Environment: movingApp.Environment,
		Deployment: movingApp.Deployment, From: "eu-1", To: testEngine, Step: step, Since: since,
		Departure: &mirror.Departure{UID: "u"}}
	if step == mirror.MoveCheck || step == mirror.MoveFreeze || step == mirror.MoveDelete {
		m.From, m.To = m.To, m.From
	}
	return m
}

func (s *site) moves(rows int64, all ...agent.Move) {
	s.hub.send(message(agent.EventMoves, agent.Moves{Rows: rows, Moves: all}))
	wait(0)
}

func (s *site) isMoving(name string) bool {
	s.Helper()
	row, ok, err := s.f.LeasedRow(s.Context(), s.lease, fleet.ObjectKey{Engine: testEngine,
		Kind: fleet.ObjectApplication, Name: name})
	if err != nil || !ok {
		s.Fatalf("row %s: %v %v", name, ok, err)
	}
	return row.Moving
}

// To apply an Application that moves would give it a second owner: a row that was sent as moving is
// left alone until moves that the hub has read after it do not have it any more, and no newer row
// can be missing.
func TestAMovingRowIsAppliedOnlyOnceItsMoveHasSurelyEnded(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		h.put(object("zero"))
		row := h.arriving()
		s.follow()
		if !s.isMoving("one") {
			t.Fatal("before the first list of moves")
		}
		if _, _, err := s.f.ApplicationMove(t.Context(), s.lease, movingApp); !errors.Is(err,
			ErrNotRead) {
			t.Errorf("before the first list of moves: %v", err)
		}
		s.moves(row.Seq - 1)
		if !s.isMoving("one") {
			t.Error("the list is older than the row")
		}
		s.moves(row.Seq + 1)
		if !s.isMoving("one") {
			t.Error("a newer row, which may not want it, has not come yet")
		}
		s.moves(row.Seq, stepOf(mirror.MoveCompare, time.Now()))
		if m, moves, err := s.f.ApplicationMove(t.Context(), s.lease, movingApp); err != nil ||
			!moves || m.At() != testEngine || m.Departure.UID != "u" || !s.isMoving("one") {
			t.Errorf("%+v, %v, %v", m, moves, err)
		}
		s.moves(row.Seq)
		if s.isMoving("one") {
			t.Error("the move has ended")
		}
		// a snapshot has other numbers
		h.set(func() { h.cursor = 0; h.rows = map[string]agent.Row{} })
		h.arriving()
		h.send("")
		wait(time.Minute)
		s.acquire()
		if !s.isMoving("one") {
			t.Error("moves of another mirror count")
		}
	})
}

func TestAStepIsReportedAndTheNextOneWaitsForTheHub(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		row := h.arriving()
		s.follow()
		since := time.Now()
		s.moves(row.Seq, stepOf(mirror.MoveCompare, since))
		m, _, err := s.f.ApplicationMove(t.Context(), s.lease, movingApp)
		if err != nil {
			t.Fatal(err)
		}
		reported := func() (all []agent.MoveReport) {
			wait(time.Second)
			for _, r := range h.taken() {
				all = append(all, r.Moves...)
			}
			return all
		}
		for range 2 { // the hub has a repeated reason
			if err := s.f.DelayMove(t.Context(), s.lease, m, "no route"); err != nil {
				t.Fatal(err)
			}
			if all := reported(); len(all) != 1 || all[0].Message != "no route" ||
				all[0].Next != "" || !all[0].Since.Equal(since) {
				t.Fatalf("%+v", all)
			}
		}
		m.Calls = 4
		live := s.rows()["one"]
		if err := s.f.AdvanceMove(t.Context(), s.lease, m, mirror.MoveReady, live); err != nil {
			t.Fatal(err)
		}
		if all := reported(); len(all) != 2 || all[1].Next != mirror.MoveReady ||
			all[1].Name != "one" || all[1].Calls != 4 || all[1].Departure != nil {
			t.Fatalf("%+v", all)
		}
		if _, _, err := s.f.ApplicationMove(t.Context(), s.lease, movingApp); !errors.Is(err,
			errStepEnded) {
			t.Errorf("the step is carried out again: %v", err)
		}
		// the hub has lost it: the step is carried out and reported once more
		wait(stepAgain)
		if _, _, err := s.f.ApplicationMove(t.Context(), s.lease, movingApp); err != nil {
			t.Fatal(err)
		}
		if err := s.f.AdvanceMove(t.Context(), s.lease, m, mirror.MoveReady, live); err != nil {
			t.Fatal(err)
		}
		if all := reported(); len(all) != 3 {
			t.Fatalf("%+v", all)
		}
		s.moves(row.Seq, stepOf(mirror.MoveAdopt, since.Add(time.Hour)))
		if m, _, err := s.f.ApplicationMove(t.Context(), s.lease, movingApp); err != nil ||
			m.Step != mirror.MoveAdopt {
			t.Errorf("%+v, %v", m, err)
		}
		// of the hub it knows nothing now: the move may have been undone
		h.order(unavailable(agent.PathStream))
		h.send("")
		wait(0)
		if _, _, err := s.f.ApplicationMove(t.Context(), s.lease, movingApp); !errors.Is(err,
			errAway) {
			t.Errorf("a step begins during an outage: %v", err)
		}
	})
}

func TestADeparturesSpecAndAnnotationsStayOnTheCluster(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		row := object("one")
		row.Operation = agent.OperationLeave
		row = h.put(row)
		s.follow()
		since := time.Now()
		s.moves(row.Seq, stepOf(mirror.MoveCheck, since))
		m, _, err := s.f.ApplicationMove(t.Context(), s.lease, movingApp)
		if err != nil {
			t.Fatal(err)
		}
		m.Departure = mirror.Departure{UID: "u", Spec: []byte(`{"a":1}`), Revisions: []string{"x"},
			Annotations: map[string]string{"a": "b"},
			Resources:   make([]mirror.MovedResource, agent.MaxDeparture+1)}
		live := s.rows()["one"]
		if err := s.f.AdvanceMove(t.Context(), s.lease, m, mirror.MoveCompare,
			live); !errors.Is(err, engine.ErrMove) {
			t.Errorf("too many resources: %v", err)
		}
		m.Departure.Resources = []mirror.MovedResource{{Kind: "Service", Name: "a"}}
		if err := s.f.AdvanceMove(t.Context(), s.lease, m, mirror.MoveCompare, live); err != nil {
			t.Fatal(err)
		}
		wait(time.Second)
		all := h.taken()
		d := all[len(all)-1].Moves[0].Departure
		if d == nil || d.UID != "u" || len(d.Resources) != 1 || d.Spec != nil &&
			string(d.Spec) != "null" || d.Annotations != nil {
			t.Fatalf("%+v", d)
		}
		// the deletion is one for the cluster's limit only in its step
		if keys, err := s.f.Deletions(); err != nil || len(keys) != 0 {
			t.Errorf("before Delete, %v count as deletions: %v", keys, err)
		}
		s.moves(row.Seq, stepOf(mirror.MoveDelete, since.Add(time.Minute)))
		if keys, err := s.f.Deletions(); err != nil || len(keys) != 1 {
			t.Errorf("at Delete, %v count as deletions: %v", keys, err)
		}
		m, _, err = s.f.ApplicationMove(t.Context(), s.lease, movingApp)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.f.AdvanceMove(t.Context(), s.lease, m, mirror.MoveEnable, live); err != nil {
			t.Fatal(err)
		}
		if len(s.rows()) != 1 {
			t.Error("the row is forgotten before the hub has recorded the deletion")
		}
		enable := stepOf(mirror.MoveEnable, since.Add(time.Hour))
		enable.From, enable.To = testEngine, "eu-1"
		s.moves(row.Seq, enable)
		if len(s.rows()) != 0 {
			t.Error("the row stays after the hub has recorded the deletion")
		}
	})
}

// The worker of an agent finds the steps of its Argo CD behind the limit on deletions.
func TestTheStepsOfAMoveNeedNoApprovalButTheDeletionDoes(t *testing.T) {
	inBubble(t, 1, func(r *limiterRig) {
		if _, ok := engine.MoverOf(r.limiter); !ok {
			r.Error("no steps")
		}
		if _, ok := engine.MoverOf(struct{ engine.Engine }{r.limiter}); ok {
			r.Error("an engine that hides another one has its steps")
		}
	})
}
