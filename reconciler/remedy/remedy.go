// Package remedy decides what Argosy does about an engine that does not work. It is pure: the
// leader's loop reads the facts and records the steps, the engine's worker carries them out.
package remedy

import (
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Deadlines of the states of a remedy. An engine that works within them was helped.
const (
	BeginWithin   = 5 * time.Minute
	ReplaceWithin = 10 * time.Minute
	// an application-controller reads its clusters again before it answers the probe
	AnswerWithin = 5 * time.Minute
	// Argo CD compares each Application every three minutes, and shows an error of the repo-server
	// for a while after the last one
	CompareWithin = 10 * time.Minute
)

// Policy is what the platform declares of an engine.
type Policy struct {
	fleet.Remedies
	Agent  bool // the engine is behind an agent
	AtOnce int  // remedies of all engines that may be under way
	Open   int  // that are
}

// restarted returns the component whose restart may end a fault. An overloaded
// application-controller would begin again with an empty cache, and no restart makes a cluster
// reachable.
func restarted(fault mirror.WorkState) (c fleet.Component, ok bool) {
	switch fault {
	case mirror.ControllerStuck:
		return fleet.ApplicationController, true
	case mirror.RepoServerSilent:
		return fleet.RepoServer, true
	}
	return "", false
}

// Next returns the step of an engine; false if it changes nothing.
func Next(f mirror.RemedyFacts, p Policy) (mirror.RemedyStep, bool) {
	s := mirror.RemedyStep{Engine: f.Engine}
	works := f.Followed && f.Work.State == mirror.Working
	switch {
	case f.Last != nil && !f.Last.State.Ended():
		judge(&s, f, works)
	case works:
		s.Over = f.Last != nil
	case f.Followed && f.Work.Faulty():
		choose(&s, f, p)
	case f.Last != nil: // the state is unknown: an unreachable engine is no engine that works
		s.Next = f.Next
	}
	return s, s.End != "" || s.Over || s.Request != nil || s.Next != f.Next
}

// judge decides how an open remedy ends.
func judge(s *mirror.RemedyStep, f mirror.RemedyFacts, works bool) {
	last := f.Last
	took, name := f.Now.Sub(last.Since), last.Restarts.Label()
	answer := AnswerWithin
	if last.Restarts == fleet.RepoServer {
		answer = CompareWithin
	}
	s.ID = last.ID
	switch {
	case works && last.State == mirror.RemedyRequested:
		s.End, s.Over, s.Message = mirror.RemedyUnneeded, true, "the engine works again"
	case works:
		s.End, s.Over = mirror.RemedyHelped, true
		s.Message = "the engine works again, " + f.Now.Sub(last.RequestedAt).Round(time.Second).
			String() + " after the request"
	case last.State == mirror.RemedyRequested && took >= BeginWithin:
		s.End, s.Message = mirror.RemedyFailed, because("the engine's worker has not begun",
			last.Message)
	case last.State == mirror.RemedyRestarting && took >= ReplaceWithin:
		s.End, s.Message = mirror.RemedyFailed, because("its Pods were not replaced within "+
			minutes(ReplaceWithin), last.Message)
	case last.State == mirror.RemedyRestarted && took >= answer:
		s.End = mirror.RemedyDidNotHelp
		s.Message = fmt.Sprintf("%s after the restart, the engine is %s", minutes(answer), now(f))
	case last.State == mirror.RemedyRequested:
		s.Next = because("restart of the "+name+" requested", last.Message)
	case last.State == mirror.RemedyRestarting:
		s.Next = because("the "+name+" is being restarted", last.Message)
	default:
		s.Next = "the " + name + " was restarted; Argosy waits until the engine works"
	}
	if s.End != "" && !s.Over {
		s.Next = further(f.Engine, last.Restarts, s.End)
	}
}

// choose requests a remedy, or explains why not.
func choose(s *mirror.RemedyStep, f mirror.RemedyFacts, p Policy) {
	c, ok := restarted(f.Work.State)
	if !ok {
		s.Next = "no restart helps against " + string(f.Work.State)
		return
	}
	rule, what := p.Of(c), "restart of the "+c.Label()
	field := "spec.remedies.restartController"
	if c == fleet.RepoServer {
		field = "spec.remedies.restartRepoServer"
	}
	due := f.Work.Since.Add(time.Duration(rule.After))
	switch {
	case f.Last != nil: // one in an outage: the second would meet the same cause
		s.Next = further(f.Engine, f.Last.Restarts, f.Last.State)
	case f.Fenced:
		s.Next = what + ": no fenced engine is restarted"
	case p.Agent:
		s.Next = what + ": the engine is behind an agent, which restarts nothing"
	case rule.Mode != fleet.RemedyAllowed:
		s.Next = what + ": " + field + " is Forbidden"
	case f.Now.Before(due):
		s.Next = what + " at " + due.UTC().Format("15:04:05 UTC") + ", unless it works before"
	case f.LastHour >= p.PerHour:
		s.Next = fmt.Sprintf("%s waits: spec.remedies.perHour allows %d in an hour", what,
			p.PerHour)
	case p.Open >= p.AtOnce:
		s.Next = fmt.Sprintf("%s waits for other engines: spec.remedies.atOnce of the Fleet is %d",
			what, p.AtOnce)
	default:
		s.Request = &mirror.Remedy{Engine: f.Engine, Restarts: c, Fault: f.Work.State,
			FaultSince: f.Work.Since}
		s.PerHour, s.AtOnce, s.Next = p.PerHour, p.AtOnce, what+" requested"
	}
}

// further proposes what people do after a remedy that has not helped. Argosy empties no engine by
// itself.
func further(engine fleet.EngineName, c fleet.Component, state mirror.RemedyState) string {
	why := "the restart of the " + c.Label() + " did not help"
	if state == mirror.RemedyFailed {
		why = "the restart of the " + c.Label() + " failed"
	}
	does := "drain " + string(engine)
	if c == fleet.ApplicationController { // a drain would wait for it
		does = "evacuate engine " + string(engine) + " --fence"
	}
	return why + "; `argosy " + does + "` gives its environments other engines"
}

// now describes the state of an engine whose remedy has not helped.
func now(f mirror.RemedyFacts) string {
	switch {
	case !f.Followed:
		return "not reachable"
	case f.Work.State == "":
		return "in an unknown state"
	}
	return string(f.Work.State)
}

func because(text, why string) string {
	if why == "" {
		return text
	}
	return text + ": " + why
}

func minutes(d time.Duration) string { return fmt.Sprintf("%d minutes", int(d.Minutes())) }
