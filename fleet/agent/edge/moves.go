package edge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// This file implements worker.Moves.

// moves are the Applications that move to or from the engine, as the hub has last sent them. Rows
// and moves are sent one after the other, so that a row may be older than the moves, or newer: see
// moving.
type moves struct {
	read bool
	rows int64 // the engine's newest row when the hub read the moves
	all  map[fleet.ApplicationID]agent.Move
	// steps that ended here, until the hub sends the next one
	ended map[fleet.ApplicationID]endedStep
}

// endedStep is a step whose end is reported to the hub.
type endedStep struct {
	since time.Time // of the step
	at    time.Time // of the report
	row   mirror.Row
}

// stepAgain is how long an agent waits for the hub's answer before it carries out a step once more.
// Each step can be repeated.
const stepAgain = time.Minute

var (
	errStepEnded = errors.New("the hub has not sent the next step of the move yet")
	errAway      = errors.New("the agent is not connected, and begins no step of a move")
)

func (m moves) step(id fleet.ApplicationID) (mirror.ApplicationMove, bool) {
	w, ok := m.all[id]
	a := mirror.ApplicationMove{Application: id, From: w.From, To: w.To, Step: w.Step,
		Since: w.Since, Undo: w.Undo, Unadopted: w.Unadopted, Message: w.Message}
	if w.Departure != nil {
		a.Departure = *w.Departure
	}
	return a, ok
}

// setMoves replaces the moves. A row whose object was deleted by a step is forgotten once the hub
// has recorded that.
func (f *Follower) setMoves(sent agent.Moves) {
	f.mu.Lock()
	m := moves{read: true, rows: sent.Rows, all: map[fleet.ApplicationID]agent.Move{},
		ended: map[fleet.ApplicationID]endedStep{}}
	for _, w := range sent.Moves {
		m.all[w.Application()] = w
	}
	for id, e := range f.moves.ended {
		w, still := m.all[id]
		switch {
		case still && w.Since.Equal(e.since):
			m.ended[id] = e
		case e.row.Unwanted && f.mirror != nil && (!still || w.Step == mirror.MoveEnable):
			f.mirror.drop(e.row.Key, e.row.Seq)
		}
	}
	stepped := m.since(f.moves)
	f.moves = m
	f.mu.Unlock()
	f.Outbox.keepMoves(sent.Moves)
	f.reportStatus()
	call(f.Wake)
	if f.Stepped == nil {
		return
	}
	for _, s := range stepped {
		f.Stepped(s)
	}
}

// since returns the Applications that have another step than before, or have moved.
func (m moves) since(before moves) (all []mirror.Stepped) {
	by := map[fleet.EnvironmentID]*mirror.Stepped{}
	add := func(w agent.Move) {
		id := w.Application()
		environment := fleet.EnvironmentID{Tenant: id.Tenant, Name: id.Environment}
		s := by[environment]
		if s == nil {
			s = &mirror.Stepped{Engines: []fleet.EngineName{w.From, w.To},
				Environment: environment}
			by[environment] = s
		}
		s.Deployments = append(s.Deployments, id.Deployment)
	}
	for id, w := range m.all {
		if was, ok := before.all[id]; !ok || was.Step != w.Step || was.Undo != w.Undo ||
			!was.Since.Equal(w.Since) || (was.Departure == nil) != (w.Departure == nil) {
			add(w)
		}
	}
	for id, w := range before.all {
		if _, still := m.all[id]; !still {
			add(w)
		}
	}
	for _, s := range by {
		all = append(all, *s)
	}
	return all
}

// movingLocked reports whether the steps of a move, or nothing at all, may change the row's object.
// A row that was sent as moving moves until moves that were read after it do not have it any more,
// and no newer row is missing.
func (f *Follower) movingLocked(have mirrorRow) bool {
	if !have.moving {
		return false
	}
	if !f.moves.read || f.cursor < f.moves.rows || have.row.Seq > f.moves.rows {
		return true
	}
	_, moves := f.moves.all[have.row.Application()]
	return moves
}

// markLocked sets Moving of rows.
func (f *Follower) markLocked(rows ...mirror.Row) []mirror.Row {
	for i := range rows {
		rows[i].Moving = f.movingLocked(f.mirror.rows[rows[i].Key])
	}
	return rows
}

// ApplicationMove returns the move of an Application. An agent begins no step while it is not
// connected: the move may have been undone meanwhile.
func (f *Follower) ApplicationMove(_ context.Context, lease mirror.Lease,
	id fleet.ApplicationID) (mirror.ApplicationMove, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.validLocked(lease) {
		return mirror.ApplicationMove{}, false, mirror.ErrFenced
	}
	m, moving := f.moves.step(id)
	ended, waits := f.moves.ended[id]
	switch {
	case !f.moves.read || f.cursor < f.moves.rows:
		return m, false, ErrNotRead
	case !moving || m.At() != f.mirror.engine:
		return m, moving, nil
	case !f.Outbox.isOpen():
		return m, true, errAway
	case waits && ended.since.Equal(m.Since) && time.Since(ended.at) < stepAgain,
		f.moves.all[id].Departure == nil:
		return m, true, errStepEnded
	}
	return m, true, nil
}

// AdvanceMove reports the end of a step. The next one begins when the hub has recorded it.
func (f *Follower) AdvanceMove(_ context.Context, lease mirror.Lease, m mirror.ApplicationMove,
	next mirror.MoveStep, row mirror.Row) error {
	report := moveReport(m)
	report.Name, report.Next, report.Calls = row.Key.Name, next, m.Calls
	if m.Step == mirror.MoveAdopt {
		report.Returns = m.Departure.Returns
	}
	if m.Step == mirror.MoveCheck {
		if n := len(m.Departure.Resources); n > agent.MaxDeparture {
			return fmt.Errorf("%w: it has %d resources, and an agent can move at most %d",
				engine.ErrMove, n, agent.MaxDeparture)
		}
		d := m.Departure
		d.Spec, d.Annotations = nil, nil // the hub has them
		report.Departure = &d
	}
	return f.endStep(lease, m, report, row)
}

// EndMove reports the end of the last step.
func (f *Follower) EndMove(_ context.Context, lease mirror.Lease,
	m mirror.ApplicationMove) error {
	report := moveReport(m)
	report.Next, report.Calls = mirror.MoveDone, m.Calls
	return f.endStep(lease, m, report, mirror.Row{})
}

func (f *Follower) endStep(lease mirror.Lease, m mirror.ApplicationMove, report agent.MoveReport,
	row mirror.Row) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.validLocked(lease) {
		return mirror.ErrFenced
	}
	e := endedStep{since: m.Since, at: time.Now()}
	if m.Step == mirror.MoveDelete {
		e.row = row
	}
	f.moves.ended[m.Application] = e
	f.Outbox.ReportMove(report)
	return nil
}

// DelayMove reports why a step waits.
func (f *Follower) DelayMove(_ context.Context, lease mirror.Lease, m mirror.ApplicationMove,
	why string) error {
	if err := f.checkLease(lease); err != nil {
		return err
	}
	report := moveReport(m)
	report.Message = why
	f.Outbox.ReportMove(report)
	return nil
}

func moveReport(m mirror.ApplicationMove) agent.MoveReport {
	return agent.MoveReport{Tenant: m.Application.Tenant, Environment: m.Application.Environment,
		Deployment: m.Application.Deployment, Step: m.Step, Since: m.Since}
}
