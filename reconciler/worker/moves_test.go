package worker

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/fleet/mirror"
)

// movingRows has one row and the move of its Application.
type movingRows struct {
	noRows
	row   *mirror.Row
	moves *mirror.ApplicationMove
	reads *int
	next  *mirror.ApplicationMove // after the step
}

func (r movingRows) LeasedRow(context.Context, mirror.Lease, fleet.ObjectKey) (mirror.Row, bool,
	error) {
	*r.reads++
	if r.row == nil {
		return mirror.Row{}, false, nil
	}
	return *r.row, true, nil
}

func (r movingRows) ApplicationMove(context.Context, mirror.Lease, fleet.ApplicationID) (
	mirror.ApplicationMove, bool, error) {
	if r.moves == nil {
		return mirror.ApplicationMove{}, false, nil
	}
	return *r.moves, true, nil
}

func (r movingRows) AdvanceMove(_ context.Context, _ mirror.Lease, m mirror.ApplicationMove,
	next mirror.MoveStep, _ mirror.Row) error {
	*r.next = m
	r.next.Step = next
	return nil
}

func (r movingRows) DelayMove(_ context.Context, _ mirror.Lease, _ mirror.ApplicationMove,
	why string) error {
	if r.moves.Message = why; r.reads != nil {
		*r.reads++
	}
	return nil
}

func (movingRows) EndMove(context.Context, mirror.Lease, mirror.ApplicationMove) error {
	return nil
}

func movingRow() mirror.Row {
	id := fleet.ApplicationID{Tenant: "acme", Deployment: "web", Environment: "prod"}
	return mirror.Row{Key: fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication,
		Name: fleet.ApplicationName(id)}, Tenant: "acme", Environment: "prod", Deployment: "web",
		Seq: 7, Moving: true}
}

// Until the plan of an undo, the rows of both engines move. Their workers wait for it.
func TestAWorkerWaitsForThePlanOfAnUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, step := range []mirror.MoveStep{mirror.MoveCheck, mirror.MoveReady,
			mirror.MoveFreeze, mirror.MoveAdopt} {
			s := workOn(t, enginetest.NewServer(), 0, time.Hour)
			row, reads := movingRow(), 0
			row.Unwanted = true
			s.Rows = movingRows{row: &row, reads: &reads, moves: &mirror.ApplicationMove{
				From: "eu-1", To: "eu-2", Step: step, Undo: true}}
			s.confirmed.Store(true)
			pause, err := s.handle(t.Context(), &task{row: row})
			if err != nil || pause < moveWait || s.queue.size() != 0 || reads != 0 {
				t.Errorf("%s: pause %v, %v; %d tasks, %d reads", step, pause, err, s.queue.size(),
					reads)
			}
		}
	})
}

func TestAWaitingStepIsRecordedOnceForEachReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := workOn(t, enginetest.NewServer(), 0, time.Hour)
		row, writes, calls := movingRow(), 0, []string{}
		s.target = movingEngine{results: map[string]error{"freeze": engine.ErrMove},
			calls: &calls}
		s.Rows = movingRows{row: &row, reads: &writes, moves: &mirror.ApplicationMove{
			From: "eu-1", To: "eu-2", Step: mirror.MoveFreeze,
			Departure: mirror.Departure{UID: "u1"}}}
		s.confirmed.Store(true)
		for range 3 {
			if pause, err := s.handle(t.Context(), &task{row: row}); err != nil || pause == 0 {
				t.Errorf("pause %v, %v", pause, err)
			}
		}
		if writes != 1 || len(calls) != 3 {
			t.Errorf("%d writes, %d attempts", writes, len(calls))
		}
	})
}

// Each attempt requests a comparison, whose result hastens the next attempt.
func TestAComparisonThatFailsIsRequestedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := workOn(t, enginetest.NewServer(), 0, time.Hour)
		row, writes, calls := movingRow(), 0, []string{}
		results := map[string]error{"compare": engine.ErrMove}
		s.target = movingEngine{results: results, calls: &calls}
		var next mirror.ApplicationMove
		s.Rows = movingRows{row: &row, reads: &writes, next: &next, moves: &mirror.ApplicationMove{
			From: "eu-2", To: "eu-1", Step: mirror.MoveCompare,
			Departure: mirror.Departure{UID: "u1"}}}
		s.setPresent(fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectProject,
			Name: fleet.ProjectName("acme")}, true)
		s.setPresent(fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectCluster,
			Name: fleet.ClusterName(fleet.EnvironmentID{Tenant: "acme", Name: "prod"})}, true)
		s.confirmed.Store(true)
		try := &task{row: row}
		for range 10 * 60 * 2 { // ten minutes
			if pause, err := s.handle(t.Context(), try); err != nil || pause == 0 {
				t.Fatalf("pause %v, %v", pause, err)
			}
			time.Sleep(500 * time.Millisecond)
		}
		if len(calls) < 30 || len(calls) > 70 {
			t.Errorf("%d attempts in ten minutes", len(calls))
		}
		results["compare"] = nil
		for range 2 * 15 {
			if next.Step == "" {
				if _, err := s.handle(t.Context(), try); err != nil {
					t.Fatal(err)
				}
				time.Sleep(500 * time.Millisecond)
			}
		}
		if next.Step != mirror.MoveReady || !try.compareAt.IsZero() {
			t.Errorf("%+v, %+v", next, try)
		}
	})
}

// The task is older than the end of the move, which may have ended with an undo or a rebuild.
func TestARowFromBeforeTheEndOfItsMoveIsNotApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newer := movingRow()
		newer.Seq, newer.Moving, newer.Unwanted = 8, false, true
		for name, now := range map[string]*mirror.Row{"a newer row": &newer, "no row": nil} {
			server := enginetest.NewServer()
			s := workOn(t, server, 0, time.Hour)
			before, reads := server.Writes(), 0
			s.Rows = movingRows{row: now, reads: &reads}
			s.confirmed.Store(true)
			pause, err := s.handle(t.Context(), &task{row: movingRow()})
			if err != nil || pause != 0 || server.Writes() != before {
				t.Errorf("%s: pause %v, %v; %d writes", name, pause, err, server.Writes()-before)
			}
			if queued := s.queue.size(); queued != map[bool]int{true: 1}[now != nil] {
				t.Errorf("%s: %d tasks", name, queued)
			}
		}
	})
}

// movingEngine has fixed results for the steps of a move.
type movingEngine struct {
	slowEngine
	results map[string]error
	calls   *[]string
}

func (e movingEngine) did(call string) error {
	*e.calls = append(*e.calls, call)
	return e.results[call]
}

func (e movingEngine) Freeze(context.Context, mirror.Row, mirror.Departure, mirror.Lease) error {
	return e.did("freeze")
}

func (e movingEngine) Compare(context.Context, mirror.Row, mirror.Departure, mirror.Lease) error {
	return e.did("compare")
}

func (e movingEngine) Adopt(context.Context, mirror.Row, mirror.Departure, mirror.Lease) error {
	return e.did("adopt")
}

func (e movingEngine) Return(context.Context, mirror.Row, mirror.Departure, mirror.Lease) error {
	return e.did("return")
}

func (e movingEngine) CheckDeparture(context.Context, mirror.Row) (mirror.Departure, error) {
	return mirror.Departure{UID: "u2"}, e.did("check")
}

func (e movingEngine) Apply(context.Context, mirror.Row, fleet.Secret, mirror.Lease) (
	engine.Outcome, error) {
	return engine.Outcome{State: mirror.ApplyApplied}, e.did("apply")
}

func TestTheNextStepFollowsFromTheResult(t *testing.T) {
	healing := json.RawMessage(`{"syncPolicy":{"automated":{"selfHeal":true}}}`)
	for name, c := range map[string]struct {
		move    mirror.ApplicationMove
		age     time.Duration // of the step
		results map[string]error
		calls   []string
		next    mirror.MoveStep // "": the step waits
		returns bool
	}{
		"its engine has lost it": {
			move:    mirror.ApplicationMove{Step: mirror.MoveFreeze},
			results: map[string]error{"freeze": engine.ErrMoveGone},
			calls:   []string{"freeze"}, next: mirror.MoveAdopt},
		"synced since": {
			move:    mirror.ApplicationMove{Step: mirror.MoveFreeze},
			results: map[string]error{"freeze": engine.ErrMoveStale},
			calls:   []string{"freeze", "apply"}, next: mirror.MoveCheck},
		"the new engine cannot adopt it": {
			move:    mirror.ApplicationMove{Step: mirror.MoveAdopt},
			results: map[string]error{"adopt": engine.ErrMoveDiffers},
			calls:   []string{"adopt"}, next: mirror.MoveFreeze, returns: true},
		"the new engine still compares it": {
			move:    mirror.ApplicationMove{Step: mirror.MoveAdopt},
			results: map[string]error{"adopt": engine.ErrMove},
			calls:   []string{"adopt"}},
		"it returns": {
			move: mirror.ApplicationMove{Step: mirror.MoveFreeze,
				Departure: mirror.Departure{Returns: "it differs"}},
			calls: []string{"return", "apply"}, next: mirror.MoveCheck, returns: true},
		"it returns and heals itself": {
			move: mirror.ApplicationMove{Step: mirror.MoveFreeze,
				Departure: mirror.Departure{Returns: "it differs", Spec: healing}},
			calls: []string{"apply"}, next: mirror.MoveCheck, returns: true},
		"it has returned just now": {
			move: mirror.ApplicationMove{Step: mirror.MoveCheck,
				Departure: mirror.Departure{Returns: "it differs"}}},
		"it returned a while ago": {
			move: mirror.ApplicationMove{Step: mirror.MoveCheck,
				Departure: mirror.Departure{Returns: "it differs"}}, age: returnWait,
			calls: []string{"check"}, next: mirror.MoveCompare},
		"new, while others are not adopted": {
			move: mirror.ApplicationMove{Step: mirror.MoveFreeze, Unadopted: 1}},
		"new, and all others are adopted": {
			move: mirror.ApplicationMove{Step: mirror.MoveFreeze}, next: mirror.MoveDelete},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := workOn(t, enginetest.NewServer(), 0, time.Hour)
				var calls []string
				s.target = movingEngine{s.target.(slowEngine), c.results, &calls}
				m, next, row := c.move, mirror.ApplicationMove{}, movingRow()
				m.From, m.To, m.Since = "eu-1", "eu-2", time.Now().Add(-c.age)
				if m.Step == mirror.MoveAdopt {
					m.From, m.To = m.To, m.From
				}
				if !strings.HasPrefix(name, "new") {
					m.Departure.UID = "u1"
				}
				s.Rows = movingRows{row: &row, moves: &m, next: &next}
				s.confirmed.Store(true)
				if _, err := s.handle(t.Context(), &task{row: row}); err != nil {
					t.Fatal(err)
				}
				if next.Step != c.next || !slices.Equal(calls, c.calls) ||
					(next.Departure.Returns != "") != c.returns {
					t.Errorf("next %+v after %q, want %s after %q", next, calls, c.next, c.calls)
				}
			})
		})
	}
}

// syncReports has the state and message of the last update of a sync.
type syncReports struct {
	noRows
	last *string
}

func (r syncReports) UpdateSync(_ context.Context, _ mirror.Lease, _ string,
	state mirror.OperationState, message string) error {
	*r.last = string(state) + ": " + message
	return nil
}

func (r movingRows) Row(context.Context, fleet.ObjectKey) (mirror.Row, bool, error) {
	if r.row == nil {
		return mirror.Row{}, false, nil
	}
	return *r.row, true, nil
}

func TestASyncOfAMovingApplicationStatesTheMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrives, leaves, removed := movingRow(), movingRow(), movingRow()
		leaves.Unwanted, removed.Unwanted, removed.Moving = true, true, false
		for want, row := range map[string]*mirror.Row{
			"Pending: waits until the move of the Application has ended": &arrives,
			"Failed: the Application is moving to another engine; request the sync again when " +
				"the move has ended": &leaves,
			"Failed: the Application was removed before the sync began": &removed,
			"Failed: the Application was removed, or has moved to another engine, before the " +
				"sync began": nil,
		} {
			s, last := workOn(t, enginetest.NewServer(), 0, time.Hour), ""
			s.Rows, s.Reports = movingRows{row: row}, syncReports{last: &last}
			if err := s.syncs.startSync(t.Context(), mirror.SyncRequest{ID: "acme/run",
				Key: movingRow().Key, Tenant: "acme"}); err != nil || last != want {
				t.Errorf("%q, %v; want %q", last, err, want)
			}
		}
	})
}

// moveRows records the steps of a move, and loses some of the records.
type moveRows struct {
	movingRows
	lost *int // of the next records
}

func (r moveRows) AdvanceMove(_ context.Context, _ mirror.Lease, m mirror.ApplicationMove,
	next mirror.MoveStep, _ mirror.Row) error {
	if *r.lost--; *r.lost >= 0 {
		return errors.New("the database does not answer")
	}
	*r.moves = m
	r.moves.Step, r.moves.Since = next, time.Now()
	return nil
}

func (r moveRows) EndMove(_ context.Context, _ mirror.Lease, m mirror.ApplicationMove) error {
	*r.moves = m
	r.moves.Step = mirror.MoveDone
	return nil
}

// journey is a move between two engines. Both sessions are of one name, so that they have one row.
type journey struct {
	*testing.T
	servers  map[bool]*enginetest.Server // of the new engine: true
	sessions map[bool]*session
	row      mirror.Row
	at       mirror.ApplicationMove
	lost     int  // records that the database does not get
	gone     bool // the workload
}

var journeyResources = []mirror.MovedResource{{Kind: "Service", Namespace: "web", Name: "web"}}

// newJourney starts a move of a served Application.
func newJourney(t *testing.T) *journey {
	j := &journey{T: t, row: renderedRow(t), servers: map[bool]*enginetest.Server{},
		sessions: map[bool]*session{}}
	j.row.Moving = true
	j.at = mirror.ApplicationMove{Application: j.row.Application(), From: "eu-1", To: "eu-1",
		Step: mirror.MoveCheck, Since: time.Now()}
	for _, to := range []bool{false, true} {
		j.servers[to] = enginetest.NewServer()
		s := workOn(t, j.servers[to], 0, 10*time.Hour)
		s.Rows = moveRows{movingRows{row: &j.row, moves: &j.at}, &j.lost}
		s.confirmed.Store(true)
		for kind, name := range map[fleet.ObjectKind]string{
			fleet.ObjectProject: fleet.ProjectName("acme"),
			fleet.ObjectCluster: fleet.ClusterName(j.row.Application().In())} {
			s.present[fleet.ObjectKey{Engine: "eu-1", Kind: kind, Name: name}] = true
		}
		j.sessions[to] = s
	}
	j.serve()
	return j
}

// serve applies the Application on the old engine.
func (j *journey) serve() {
	j.Helper()
	s := j.sessions[false]
	if _, err := s.target.Apply(j.Context(), j.row, fleet.Secret{}, s.lease.Lease()); err != nil {
		j.Fatal(err)
	}
}

// until carries out the steps until one is next, while both engines compare.
func (j *journey) until(step mirror.MoveStep) {
	j.Helper()
	var before mirror.ApplicationMove
	for range 50 {
		if j.at.Step == step {
			return
		}
		before = j.at
		var resources []mirror.MovedResource
		if !j.gone {
			resources = journeyResources
		}
		for _, s := range j.servers {
			s.Reconcile(resources...)
		}
		if j.at.Step == mirror.MoveReady {
			j.at.Step = mirror.MoveFreeze
			continue
		}
		to := map[mirror.MoveStep]bool{mirror.MoveCompare: true, mirror.MoveAdopt: true,
			mirror.MoveEnable: true}[j.at.Step]
		if _, err := j.sessions[to].handle(j.Context(), &task{row: j.row}); err != nil {
			j.Fatalf("%s: %v", before.Step, err)
		}
		time.Sleep(time.Minute)
	}
	_, err := j.sessions[j.at.Step == mirror.MoveCompare || j.at.Step == mirror.MoveEnable].
		carryOut(j.Context(), &before, j.row)
	j.Fatalf("it is at %s, not %s: %v", j.at.Step, step, err)
}

// field returns a field of the Application on an engine.
func (j *journey) field(to bool, path string) string {
	return j.servers[to].Field(j.row.Key, path)
}

// The database does not get the record that the old engine serves the Application again.
func TestAReturnIsRepeatedAfterTheApplicationIsServedAgain(t *testing.T) {
	for name, undo := range map[string]bool{"by the same move": false, "by an undo": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJourney(t)
				j.until(mirror.MoveAdopt)
				j.at.Step, j.at.Departure.Returns, j.lost = mirror.MoveFreeze, "it differs", 1
				for range 50 {
					if j.lost < 1 {
						break
					}
					j.servers[false].Reconcile(journeyResources...)
					if _, err := j.sessions[false].handle(t.Context(),
						&task{row: j.row}); err != nil {
						t.Fatal(err)
					}
				}
				if j.lost != 0 || j.field(false, "metadata.annotations|argosy.dev/move") != "" {
					t.Fatalf("%d records to lose: it is not served again", j.lost)
				}
				want := mirror.MoveCheck
				if undo {
					j.at.Step, j.at.From, j.at.Undo = mirror.MoveReturn, "eu-2", true
					want = mirror.MoveEnable
				}
				j.until(want)
			})
		})
	}
}

// A person, or an older backup, removes or replaces the Application on the old engine during its
// move.
func TestAMoveEndsAlthoughTheOldEngineHasAnotherObject(t *testing.T) {
	for name, c := range map[string]struct {
		at   mirror.MoveStep
		then func(j *journey)
	}{
		"the old engine loses it with its resources": {mirror.MoveFreeze, func(j *journey) {
			j.servers[false].Remove(j.row.Key)
			j.gone = true
			j.until(mirror.MoveAdopt)
			j.until(mirror.MoveFreeze)
			j.until(mirror.MoveCheck)
			j.gone = false
			j.until(mirror.MoveCompare)
		}},
		"another object of its name": {mirror.MoveFreeze, func(j *journey) {
			j.servers[false].Remove(j.row.Key)
			j.serve()
			j.until(mirror.MoveCheck)
			j.until(mirror.MoveCompare)
		}},
		"the old engine loses it while it serves it again": {mirror.MoveAdopt, func(j *journey) {
			j.at.Step, j.at.Departure.Returns = mirror.MoveFreeze, "it differs"
			j.until(mirror.MoveCheck)
			j.servers[false].Remove(j.row.Key)
			j.until(mirror.MoveReady)
			if j.at.Departure.UID != "" {
				j.Errorf("departure %+v", j.at.Departure)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJourney(t)
				j.until(c.at)
				c.then(j)
				j.until(mirror.MoveDone)
				if j.servers[false].Exists(j.row.Key) ||
					j.field(true, "metadata.annotations|argosy.dev/move") != "" {
					t.Error("the move has left traces")
				}
			})
		})
	}
}
