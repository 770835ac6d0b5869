package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/reconciler/plan/report"
)

const (
	evacuationBatch = 20          // environments of one plan
	evacuationRetry = time.Minute // before the environments that stay are tried again
	staysNamed      = 3           // in the message of an evacuation
)

// evacuations is what the leader knows of the evacuated engines.
type evacuations struct {
	all   []mirror.Evacuation
	tried map[fleet.EngineName]trial
}

// trial is a plan that left environments on their evacuated engine.
type trial struct {
	at       time.Time
	revision fleet.Revision
	stays    []string
}

// engines are the evacuated engines, to which nothing is moved. One whose evacuation ends is none.
func (e *evacuations) engines() (names []fleet.EngineName) {
	for _, of := range e.all {
		if of.State != mirror.EvacuationEnding {
			names = append(names, of.Engine)
		}
	}
	return names
}

// readEvacuations precedes every plan of a reconcile. A lost record, which only the placements
// show, is written again.
func (l *Loop) readEvacuations(ctx context.Context) error {
	all, err := l.Store.Evacuations(ctx)
	if err != nil {
		return err
	}
	for i, e := range all {
		if e.Lost {
			if err := l.Store.RestoreEvacuation(ctx, e.Engine); err != nil {
				return err
			}
			all[i].Lost = false
		}
	}
	before := l.evacuated.engines()
	if l.evacuated.all = all; !slices.Equal(before, l.evacuated.engines()) {
		l.publish() // previews place nothing there
	}
	return nil
}

// takeEvacuations gives the environments of evacuated engines other engines, and ends evacuations.
func (l *Loop) takeEvacuations(ctx context.Context, lease mirror.Lease) error {
	if l.stored.state == nil || l.stored.state.Revision() == "" || l.recovery.Pending() {
		return nil
	}
	var failed []error
	for _, e := range l.evacuated.all {
		var err error
		if e.State == mirror.EvacuationEnding {
			err = l.readmit(ctx, lease, e.Engine)
		} else {
			err = l.evacuate(ctx, lease, e)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// readmit ends an evacuation: no environment remembers it any more. The record stays until the
// engines have applied that: after a loss of the mirror, their Secrets would restore it.
func (l *Loop) readmit(ctx context.Context, lease mirror.Lease, engine fleet.EngineName) error {
	r := l.requestAtApplied()
	r.Readmit = []fleet.EngineName{engine}
	if _, err := l.planAlone(ctx, lease, r); err != nil {
		return err
	}
	ended, err := l.Store.ReadmitEngine(ctx, engine)
	if err == nil && ended {
		l.Log.Info("the evacuation has ended", "engine", engine)
	}
	return err
}

// evacuate plans the environments that are still on an evacuated engine, some at a time.
func (l *Loop) evacuate(ctx context.Context, lease mirror.Lease, e mirror.Evacuation) error {
	left := l.stored.state.SlicesOn(e.Engine)
	switch {
	case len(left) > 0 && e.By == mirror.EvacuationRestored:
		return l.reportEvacuation(ctx, e, []string{"the mirror was lost, and no person has " +
			"confirmed since that the engine is gone"}, len(left), false)
	case len(left) > 0 && e.Unfenced != "":
		return l.reportEvacuation(ctx, e, []string{e.Unfenced}, len(left), false)
	case len(left) > 0 && e.Answers && !e.Fenced:
		return l.reportEvacuation(ctx, e, []string{"the engine answers again"}, len(left), false)
	}
	last := l.evacuated.tried[e.Engine]
	fresh := last.revision == l.stored.state.Revision() && time.Since(last.at) < evacuationRetry &&
		len(last.stays) == len(left)
	if !fresh {
		last = trial{at: time.Now(), revision: l.stored.state.Revision()}
		for part := range slices.Chunk(left, evacuationBatch) {
			stays, err := l.evacuateSome(ctx, lease, part)
			if err != nil {
				return err
			}
			last.stays = append(last.stays, stays...)
		}
		l.evacuated.tried[e.Engine] = last
		e.Away += len(left) - len(last.stays)
	}
	return l.reportEvacuation(ctx, e, last.stays, len(last.stays),
		!fresh && len(left) > len(last.stays))
}

// evacuateSome plans some environments, and returns why some of them stay. If the plan fails, each
// is planned alone: one keeps no other.
func (l *Loop) evacuateSome(ctx context.Context, lease mirror.Lease,
	part []fleet.SliceID) (stays []string, err error) {
	r := l.requestAtApplied()
	r.Moves = map[fleet.SliceID]mirror.MoveRequest{}
	for _, id := range part {
		r.Moves[id] = mirror.MoveRequest{Environment: id.In(), Slice: id.Slice, By: "argosy",
			Evacuates: true}
	}
	if err := l.readCarried(ctx, r); err != nil {
		return nil, err
	}
	p, err := l.planAlone(ctx, lease, r)
	switch {
	case errors.Is(err, errUnplanned) && len(part) == 1:
		return []string{part[0].String() + ": " + err.Error()}, nil
	case errors.Is(err, errUnplanned):
		for _, id := range part {
			more, err := l.evacuateSome(ctx, lease, []fleet.SliceID{id})
			if err != nil {
				return nil, err
			}
			stays = append(stays, more...)
		}
		return stays, nil
	case err != nil:
		return nil, err
	}
	for _, id := range part {
		if why := p.Refused[id]; why != "" {
			stays = append(stays, id.String()+": "+why)
		}
	}
	return stays, nil
}

func (l *Loop) requestAtApplied() *plan.Request {
	r := &plan.Request{Revision: l.stored.state.Revision(), Relation: mirror.RelationSame}
	l.lacking(r)
	return r
}

// planAlone plans and records a request at the applied revision.
func (l *Loop) planAlone(ctx context.Context, lease mirror.Lease, r *plan.Request) (*plan.Plan,
	error) {
	if err := l.planner.readHistory(ctx, l.stored.state, r); err != nil {
		return nil, err
	}
	p, err := l.planner.computeGuarded(ctx, l.stored.state, r)
	if err != nil {
		return nil, err
	}
	return p, l.recordPlan(ctx, lease, Head{Revision: r.Revision}, r, p)
}

// reportEvacuation records the progress, if it has changed.
func (l *Loop) reportEvacuation(ctx context.Context, e mirror.Evacuation, why []string, stay int,
	moved bool) error {
	now := e
	switch now.Message = ""; {
	case stay > 0:
		now.State = mirror.EvacuationWaiting
		now.Message = report.Count(stay, "environment") + " " +
			report.Plural(stay, "stays", "stay") + ": " +
			strings.Join(why[:min(len(why), staysNamed)], "; ")
		if more := len(why) - staysNamed; more > 0 {
			now.Message += fmt.Sprintf("; and %d more", more)
		}
	case e.Open > 0 || moved:
		now.State = mirror.EvacuationMoving
	default:
		now.State = mirror.EvacuationMoved
	}
	if now.State == e.State && now.Message == e.Message && !moved {
		return nil
	}
	if now.State != e.State {
		l.Log.Warn("evacuation", "engine", e.Engine, "state", now.State, "away", now.Away,
			"message", now.Message)
	}
	err := l.Store.SetEvacuation(ctx, now)
	if errors.Is(err, mirror.ErrNotEvacuated) { // a person has ended it
		return nil
	}
	return err
}
