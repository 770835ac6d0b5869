// Package drain decides what an engine with `state: Draining`, or with misplaced environments that
// Argosy moves, does next. It is pure: the leader's loop reads the facts and requests the moves.
package drain

import (
	"fmt"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
)

const (
	// StopAfter moves that wait or have failed stop a drain.
	StopAfter = 3
	named     = 3 // environments in a message
)

// Assess returns the state of a drain, and how many moves it may request now.
func Assess(f mirror.DrainFacts, churn fleet.Churn) (d mirror.Drain, allowed int) {
	churn = churn.OrDefaults()
	troubles, stops := inTrouble(f)
	waiting := 0
	for _, m := range f.Open {
		if m.Trouble != "" {
			waiting++
		}
	}
	allowed = min(churn.AtOnce-len(f.Open), churn.PerHour-f.BegunLastHour)
	switch {
	case f.Environments+len(f.Open)+f.Objects == 0:
		return state(mirror.DrainEmpty, "its declaration can be removed")
	case f.PausedBy != "":
		why := "by " + f.PausedBy
		if f.PauseReason != "" {
			why += ": " + f.PauseReason
		}
		return state(mirror.DrainPaused, why)
	case f.Environments+len(f.Open) == 0:
		return state(mirror.DrainWaiting, "its environments have left; "+
			count(f.Objects, "object", "is", "are")+" not removed yet")
	case stops >= StopAfter:
		return state(mirror.DrainStopped, troubles)
	case waiting >= churn.AtOnce:
		return state(mirror.DrainWaiting, troubles)
	case len(f.Open) == 0 && churn.PerHour <= f.BegunLastHour:
		return state(mirror.DrainWaiting, fmt.Sprintf("%d moves have begun within an hour, which is "+
			"spec.placement.churn.perHour; %s left", churn.PerHour, environments(f.Environments)))
	case f.Environments == 0 && waiting == len(f.Open):
		return state(mirror.DrainWaiting, troubles)
	case f.Environments == 0:
		allowed = 0
	}
	d, _ = state(mirror.DrainMoving, fmt.Sprintf("%d under way, %s left%s", len(f.Open),
		environments(f.Environments), prefixed("; ", troubles)))
	return d, max(allowed, 0)
}

func state(s mirror.DrainState, message string) (mirror.Drain, int) {
	return mirror.Drain{State: s, Message: message}, 0
}

// inTrouble names the moves that wait or have failed, and counts those that stop the drain.
func inTrouble(f mirror.DrainFacts) (text string, stops int) {
	var all []string
	for _, list := range [][]mirror.DrainMove{f.Open, f.Failed} {
		for _, m := range list {
			if m.Trouble == "" {
				continue
			}
			if m.Counts {
				stops++
			}
			all = append(all, m.ID().String()+" "+m.Trouble)
		}
	}
	return some(all), stops
}

// some joins the first texts, and counts the others.
func some(all []string) string {
	if n := len(all) - named; n > 0 {
		return strings.Join(all[:named], "; ") + fmt.Sprintf("; and %d more", n)
	}
	return strings.Join(all, "; ")
}

// Next returns the first moves of a simulated drain that are neither requested nor have failed,
// at most allowed.
func Next(out placement.Outcome, f mirror.DrainFacts, allowed int) []mirror.MoveRequest {
	skip := map[fleet.SliceID]bool{}
	for _, list := range [][]mirror.DrainMove{f.Open, f.Failed} {
		for _, m := range list {
			skip[m.ID()] = true
		}
	}
	note := "drain of engine "
	switch {
	case out.Misplaced:
		note = "misplaced on engine "
	case out.Pool != "":
		note = "spread of pool " + out.Pool + " from engine "
	}
	var next []mirror.MoveRequest
	for _, m := range out.Moves {
		if len(next) == allowed {
			break
		}
		request := mirror.MoveRequest{Environment: m.Environment, Slice: m.Slice, Split: m.Split,
			To: m.To, By: "argosy", Note: note + string(m.From), Drain: true}
		if m.Split { // the first half moves once there is one
			first, _ := m.Slice.Halves()
			skip[m.Environment.Slice(first)] = true
		}
		if !skip[request.ID()] && !skip[request.Moving()] {
			next = append(next, request)
		}
	}
	return next
}

// Stuck returns the state of a drain without a move to request: the reasons why the environments
// stay, unless a move is under way.
func Stuck(out placement.Outcome, f mirror.DrainFacts, assessed mirror.Drain) mirror.Drain {
	for _, m := range f.Open {
		if m.Trouble == "" {
			return assessed
		}
	}
	text, _ := inTrouble(f)
	var left []string
	for _, l := range out.Left {
		if l.Engine == out.Engine {
			left = append(left, l.ID().String()+": "+l.Reason)
		}
	}
	why := some(left)
	if text != "" && why != "" {
		text += "; "
	}
	d, _ := state(mirror.DrainWaiting, text+why)
	return d
}

// Retry is how long a drain without a move to request waits before it simulates again: the
// simulation costs the whole fleet.
const Retry = time.Minute

func environments(n int) string {
	if n == 1 {
		return "1 environment is"
	}
	return fmt.Sprintf("%d environments are", n)
}

func count(n int, noun, is, are string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s %s", noun, is)
	}
	return fmt.Sprintf("%d %ss %s", n, noun, are)
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
