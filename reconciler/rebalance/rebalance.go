// Package rebalance decides what Argosy proposes to relieve engines with a high measured load, and
// what an accepted proposal does next. It is pure: the leader's loop reads the facts and records
// the decisions.
package rebalance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
)

const (
	// StopAfter moves that wait or have failed stop a rebalance.
	StopAfter = 3
	// Every is between reviews of the measured load: each simulates the whole fleet. A measurement
	// is an average of five minutes.
	Every = 5 * time.Minute
	// Retry is how long an accepted rebalance without a move to request waits before it simulates
	// again.
	Retry = time.Minute
	named = 3 // moves in a message
)

// Verdict is what becomes of the open proposal.
type Verdict struct {
	Propose bool   // the moves of the present load, instead of the open proposal if there is one
	End     string // why the open proposal ends; "": it stays, or is replaced
}

// Review decides what to propose. open is the open proposal or nil, fresh is what the present load
// asks for, and still is Continue of the open proposal's moves without the awaited ones: see Await.
//
// The open proposal stays as long as one of its moves is right: a load near a bound changes no
// proposal. It is replaced by a different one if a move of it is not right any more, or if another
// engine has to be relieved.
func Review(open *mirror.Rebalance, fresh, still placement.Outcome, awaited int) Verdict {
	moves := fresh.Moves
	if open == nil {
		return Verdict{Propose: len(moves) > 0}
	}
	planned := Moves(open.Moves)
	another := slices.ContainsFunc(moves, func(m placement.Move) bool {
		return !slices.ContainsFunc(planned, func(o placement.Move) bool {
			return o.From == m.From
		})
	})
	switch {
	case len(moves) > 0 && (len(still.Left) > 0 || another) &&
		!slices.EqualFunc(moves, planned, alike):
		return Verdict{Propose: true}
	case len(still.Moves)+awaited == 0:
		return Verdict{End: "none of its moves is right any more: " + left(still.Left)}
	}
	return Verdict{}
}

// alike ignores the health of Applications, which changes the order of moves only.
func alike(a, b placement.Move) bool {
	return a.ID() == b.ID() && a.From == b.From && a.To == b.To
}

// New returns a rebalance with the moves of an outcome, and the engines that give or take.
func New(out placement.Outcome) mirror.Rebalance {
	var r mirror.Rebalance
	touched := map[fleet.EngineName]bool{}
	from := map[fleet.EngineName]bool{}
	for _, m := range out.Moves {
		r.Moves = append(r.Moves, mirror.RebalanceMove{Environment: m.Environment, Slice: m.Slice,
			From: m.From, To: m.To, Applications: m.Applications, Unready: m.Unready})
		touched[m.From], touched[m.To], from[m.From] = true, true, true
	}
	var relieved []string
	for _, e := range out.Engines {
		if !touched[e.Engine] {
			continue
		}
		shown := mirror.RebalanceEngine{Engine: e.Engine, Capacity: e.Capacity, Before: e.Before,
			After: e.After}
		if m := e.Measured; m != nil {
			shown.CPUBefore, shown.CPUAfter, shown.Estimated = m.Before, m.After, m.Estimated
		}
		if from[e.Engine] {
			relieved = append(relieved, fmt.Sprintf("engine %s from %.2f to %.2f CPU", e.Engine,
				shown.CPUBefore, shown.CPUAfter))
		}
		r.Engines = append(r.Engines, shown)
	}
	r.Message = "relieves " + strings.Join(relieved, ", ")
	return r
}

// Moves returns the moves that are not requested yet, as placement knows them.
func Moves(all []mirror.RebalanceMove) (moves []placement.Move) {
	for _, m := range all {
		if m.State == mirror.RebalanceMovePlanned {
			moves = append(moves, placement.Move{Environment: m.Environment, Slice: m.Slice,
				From: m.From, To: m.To, Applications: m.Applications, Unready: m.Unready})
		}
	}
	return moves
}

// Await splits moves into those that can be checked now, and the number of those that cannot: an
// engine of them has another move, or is not measured again since.
func Await(moves []placement.Move, moving map[fleet.EngineName]bool) (now []placement.Move,
	awaited int) {
	for _, m := range moves {
		if moving[m.From] || moving[m.To] {
			awaited++
			continue
		}
		now = append(now, m)
	}
	return now, awaited
}

// Assess returns the state of an accepted rebalance with its message, and how many moves it may
// request now.
func Assess(f mirror.RebalanceFacts, churn fleet.Churn) (state mirror.RebalanceState, why string,
	allowed int) {
	churn = churn.OrDefaults()
	of := map[mirror.RebalanceMoveState]int{}
	for _, m := range f.Open.Moves {
		of[m.State]++
	}
	planned, requested := of[mirror.RebalanceMovePlanned], of[mirror.RebalanceMoveRequested]
	progress := fmt.Sprintf("%d under way, %d left", requested, planned)
	troubles := some(f.Troubles)
	switch {
	case planned+requested == 0:
		return mirror.RebalanceDone, summary(of), 0
	case f.Counts >= StopAfter:
		return mirror.RebalanceStopped, troubles, 0
	case planned == 0 && troubles != "":
		return mirror.RebalanceWaiting, progress + "; " + troubles, 0
	case planned == 0:
		return mirror.RebalanceMoving, progress, 0
	case len(f.Draining) > 0:
		why = "drains go first: " + names(f.Draining)
	case f.UnderWay >= churn.AtOnce:
		why = fmt.Sprintf("%d environments move, and spec.placement.churn.atOnce is %d",
			f.UnderWay, churn.AtOnce)
	case f.BegunLastHour >= churn.PerHour:
		why = fmt.Sprintf("%d moves have begun within an hour, and spec.placement.churn.perHour "+
			"is %d", f.BegunLastHour, churn.PerHour)
	default:
		allowed = min(churn.AtOnce-f.UnderWay, churn.PerHour-f.BegunLastHour)
	}
	if troubles != "" {
		progress += "; " + troubles
	}
	if why != "" {
		progress += "; " + why
	}
	if requested == 0 && allowed == 0 {
		return mirror.RebalanceWaiting, progress, 0
	}
	return mirror.RebalanceMoving, progress, allowed
}

// Deferred is a move that is not requested while something is in its way.
type Deferred struct {
	Slice fleet.SliceID
	Why   string
	Since time.Time
}

// Defer splits moves into those that can be requested and those with an obstacle, which are
// deferred. A move that was deferred for longer than most is refused instead: a rebalance that
// waited for one environment without end would keep all others from being relieved.
func Defer(moves []placement.Move, obstacles map[fleet.SliceID]string, before []Deferred,
	now time.Time, most time.Duration) (ready []placement.Move, deferred []Deferred,
	refused []mirror.RebalanceMove) {
	for _, m := range moves {
		id := m.Environment.Slice(m.Slice)
		why := obstacles[id]
		if why == "" {
			ready = append(ready, m)
			continue
		}
		d := Deferred{Slice: id, Why: why, Since: now}
		if i := slices.IndexFunc(before, func(d Deferred) bool {
			return d.Slice == id
		}); i >= 0 {
			d.Since = before[i].Since
		}
		if now.Sub(d.Since) < most {
			deferred = append(deferred, d)
			continue
		}
		refused = append(refused, mirror.RebalanceMove{Environment: m.Environment,
			Slice: m.Slice, State: mirror.RebalanceMoveRefused,
			Message: "was refused, since it could not begin for " + fleet.Age(most) + ": " +
				why})
	}
	return ready, deferred, refused
}

// Wait returns the state and the message of an assessed rebalance that has no move to request now:
// some are deferred, or with awaits all others have to await measurements.
func Wait(r mirror.Rebalance, why string, awaits bool, deferred []Deferred) (
	mirror.RebalanceState, string) {
	if awaits {
		why += "; engines are measured again " + fleet.Age(mirror.MeasureAgain) +
			" after their moves"
	}
	if len(deferred) > 0 {
		texts := make([]string, len(deferred))
		for i, d := range deferred {
			texts[i] = d.Slice.String() + " cannot move now: " + d.Why
		}
		why += "; " + some(texts)
	}
	if slices.ContainsFunc(r.Moves, func(m mirror.RebalanceMove) bool {
		return m.State == mirror.RebalanceMoveRequested
	}) {
		return mirror.RebalanceMoving, why
	}
	return mirror.RebalanceWaiting, why
}

// Next returns the first moves that are still right, at most allowed, as requests of a rebalance,
// and those that are not, with the reason.
func Next(id string, still placement.Outcome, allowed int) (next []mirror.MoveRequest,
	skip []mirror.RebalanceMove) {
	for _, m := range still.Moves[:min(allowed, len(still.Moves))] {
		next = append(next, mirror.MoveRequest{Environment: m.Environment, Slice: m.Slice, To: m.To,
			By: "argosy", Rebalance: id,
			Note: "rebalance " + id + ": the load of engine " + string(m.From) + " is high"})
	}
	for _, l := range still.Left {
		skip = append(skip, mirror.RebalanceMove{Environment: l.Environment, Slice: l.Slice,
			State: mirror.RebalanceMoveSkipped, Message: l.Reason})
	}
	return next, skip
}

func summary(of map[mirror.RebalanceMoveState]int) string {
	parts := []string{fmt.Sprintf("%d moved", of[mirror.RebalanceMoveMoved])}
	for _, s := range []mirror.RebalanceMoveState{mirror.RebalanceMoveSkipped,
		mirror.RebalanceMoveRefused, mirror.RebalanceMoveUndone} {
		if of[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", of[s], strings.ToLower(string(s))))
		}
	}
	return strings.Join(parts, ", ")
}

func left(all []placement.Left) string {
	texts := make([]string, len(all))
	for i, l := range all {
		texts[i] = l.ID().String() + ": " + l.Reason
	}
	return some(texts)
}

// some joins the first texts, and counts the others.
func some(all []string) string {
	if n := len(all) - named; n > 0 {
		return strings.Join(all[:named], "; ") + fmt.Sprintf("; and %d more", n)
	}
	return strings.Join(all, "; ")
}

func names(engines []fleet.EngineName) string {
	texts := make([]string, len(engines))
	for i, e := range engines {
		texts[i] = "engine " + string(e)
	}
	return some(texts)
}
