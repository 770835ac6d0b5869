// Package rings decides which engine changes its Argo CD next (ADR 0071). It is pure: the leader's
// loop reads the facts and records the steps, the engine's worker installs the version.
package rings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Steady is how long a changed engine runs before its Applications are judged and the next one of
// the ring begins: Argo CD compares every Application again after a start. A shorter soak ends it.
const Steady = 2 * time.Minute

// Ring is a declared ring with what is known of it.
type Ring struct {
	fleet.Ring  // with its defaults
	Stored      mirror.Ring
	Unavailable string             // why its manifests are not stored; "" if they are
	Engines     []fleet.EngineName // that follow it and are managed, by name
	// engines behind agents, which have the version of the ring's Agent
	Behind map[fleet.EngineName]bool
	// those of them whose agent alone follows the ring (ADR 0081)
	AgentOnly map[fleet.EngineName]bool
	// those whose agent is connected, and reads its Argo CD
	Connected map[fleet.EngineName]bool
	Known     map[fleet.EngineName]mirror.InstanceFacts
}

// Next returns the steps of the rings, which are in the order of the Fleet, without those that
// change nothing. owners have to look at a halted ring.
func Next(now time.Time, all []Ring, owners []string) (steps []mirror.RingStep) {
	waits := "" // the first ring whose state is not Done
	for _, r := range all {
		d := decision{Ring: r, now: now, waits: waits, owners: owners}
		d.Engines = slices.DeleteFunc(slices.Clone(r.Engines), d.absent)
		step := d.step()
		step.EndShadows = d.unneeded(step)
		if step.State != mirror.RingDone && waits == "" && len(d.Engines) > 0 && !d.joins(step) {
			waits = r.Name
		}
		if d.changes(step) {
			steps = append(steps, step)
		}
	}
	return steps
}

type decision struct {
	Ring
	now    time.Time
	waits  string
	owners []string
}

func (d decision) changes(s mirror.RingStep) bool {
	was := d.Stored
	return len(s.Targets)+len(s.Good) > 0 || d.shadowsChange(s) ||
		s.State != was.State || s.Message != was.Message || s.Halted != was.Halted ||
		s.Version != was.Version || s.Digest != was.Digest ||
		s.Agent.Digest != was.AgentDigest || s.Agent.Version != was.AgentVersion
}

// absent reports whether the ring does not count an engine now. An agent that is not connected
// holds nothing and begins nothing: it gets the version when it is back. An agent that is
// silent in the middle of its change counts: the change may be the reason.
func (d decision) absent(e fleet.EngineName) bool {
	i, known := d.Known[e]
	switch {
	case !d.AgentOnly[e]:
		return false
	case known && i.State == mirror.InstanceReleasing:
		return true // its Argo CD is given back first
	}
	return !d.Connected[e] && (!d.at(e) || i.Passed())
}

func (d decision) soak() time.Duration   { return time.Duration(d.Soak) }
func (d decision) steady() time.Duration { return min(Steady, d.soak()) }

// at reports whether an engine has the declared version, or is about to.
func (d decision) at(e fleet.EngineName) bool {
	i, ok := d.Known[e]
	agent := d.agentOf(e)
	_, digest := d.argoCDOf(e)
	return ok && i.Digest == digest &&
		(agent.Digest == "" || agent.Digest == i.AgentDigest && agent.Version == i.AgentVersion)
}

// agentOf is the declared agent of an engine; zero if the engine has none, or if it stays as it is.
func (d decision) agentOf(e fleet.EngineName) fleet.RingAgent {
	if d.Agent == nil || !d.Behind[e] {
		return fleet.RingAgent{}
	}
	return *d.Agent
}

// argoCDOf is the version and the manifests' digest that an engine gets; "" if its agent alone
// follows the ring.
func (d decision) argoCDOf(e fleet.EngineName) (version, digest string) {
	if d.AgentOnly[e] {
		return "", ""
	}
	return d.Version, d.Manifests.Digest
}

// release names what the ring brings.
func (d decision) release() string {
	if len(d.Engines) > 0 && d.Agent != nil && !slices.ContainsFunc(d.Engines,
		func(e fleet.EngineName) bool { return !d.AgentOnly[e] }) {
		return "agent " + d.Agent.Version
	}
	return d.Version
}

// releaseOf names what an instance is to have.
func releaseOf(i mirror.InstanceFacts) string {
	return cmp.Or(i.Version, "agent "+i.AgentVersion)
}

func (d decision) step() mirror.RingStep {
	s := mirror.RingStep{Name: d.Name, Version: d.Version, Digest: d.Manifests.Digest}
	if d.Agent != nil {
		s.Agent = *d.Agent
	}
	declared := s.Digest + s.Agent.Digest
	if d.Stored.Halted == declared {
		s.Halted = declared
	}
	if s.Halted == "" {
		if why := d.failure(); why != "" {
			s.Halted, s.State, s.Message = declared, mirror.RingHalted, why+d.whoLooks()
			s.Targets = d.returns()
			return s
		}
	}
	behind := slices.DeleteFunc(slices.Clone(d.Engines), d.at)
	busy := d.busy()
	switch {
	case s.Halted != "":
		s.State, s.Message = mirror.RingHalted, d.Stored.Message
		s.Targets = d.returns()
	case len(behind) == 0 && len(busy) == 0:
		d.judgeSoak(&s)
	case d.Unavailable != "":
		s.State, s.Message = mirror.RingUnavailable, d.Unavailable
	case d.Stored.PausedAt != nil:
		s.State = mirror.RingPaused
		s.Message = strings.TrimSpace("by " + d.Stored.PausedBy + " " + d.Stored.PauseReason)
	case d.waits != "" && len(behind) > 0:
		s.State, s.Message = mirror.RingWaiting, "ring "+d.waits+" is not Done"
	default:
		s.Shadows = d.shadowed(behind)
		if !d.judgeShadows(&s) {
			break
		}
		s.State = mirror.RingMoving
		for _, e := range behind[:max(0, min(len(behind), d.AtOnce-len(busy)))] {
			s.Shadows = slices.DeleteFunc(s.Shadows, func(o fleet.EngineName) bool {
				return o == e
			})
			version, digest := d.argoCDOf(e)
			s.Targets = append(s.Targets, mirror.InstanceTarget{Engine: e, Version: version,
				Digest: digest, Agent: d.agentOf(e)})
			busy = append(busy, e)
		}
		s.Message = fmt.Sprintf("%d of %d engines run %s; now %s", len(d.Engines)-len(behind)-
			len(d.busy()), len(d.Engines), d.release(), names(busy))
	}
	return s
}

// joins reports whether the ring does nothing but bring its version to engines without Applications
// and to agents that were not connected, while another engine of it has passed the gates of that
// version. Later rings do not wait for that: a pool that grows keeps no upgrade back.
func (d decision) joins(s mirror.RingStep) bool {
	if s.State != mirror.RingMoving && s.State != mirror.RingSoaking {
		return false
	}
	proven := false
	for _, e := range d.Engines {
		switch i, ok := d.Known[e]; {
		case ok && d.at(e) && i.Passed():
			proven = true
		case d.AgentOnly[e]:
		case !ok || !d.at(e) || !i.Fresh:
			return false
		}
	}
	return proven
}

// busy are the engines that change to any version, and those that have changed a moment ago.
func (d decision) busy() (all []fleet.EngineName) {
	for _, e := range d.Engines {
		i, ok := d.Known[e]
		if ok && (i.State != mirror.InstanceRunning || d.at(e) && !i.Passed() &&
			d.now.Sub(i.Since) < d.steady()) {
			all = append(all, e)
		}
	}
	return all
}

// judgeSoak ends the soak of a ring whose engines all run the version. An agent that is silent now
// is judged when it is back, if another engine is judged.
func (d decision) judgeSoak(s *mirror.RingStep) {
	var last time.Time
	silent, judged := fleet.EngineName(""), false
	for _, e := range d.Engines {
		i := d.Known[e]
		if i.Passed() {
			judged = true
			continue
		}
		if !i.Followed && d.AgentOnly[e] {
			silent = e
			continue
		}
		s.Good = append(s.Good, e)
		if i.Since.After(last) {
			last = i.Since
		}
		if !i.Followed {
			d.holdSoak(s, e)
			return
		}
	}
	if silent != "" && len(s.Good) == 0 && !judged {
		d.holdSoak(s, silent)
		return
	}
	if end := last.Add(d.soak()); len(s.Good) > 0 && d.now.Before(end) {
		s.State, s.Good = mirror.RingSoaking, nil
		s.Message = "until " + end.UTC().Format("2006-01-02 15:04:05 UTC")
		return
	}
	s.State = mirror.RingDone
}

func (d decision) holdSoak(s *mirror.RingStep, e fleet.EngineName) {
	s.State, s.Good = mirror.RingSoaking, nil
	s.Message = "engine " + string(e) + " is not reachable"
}

// failure returns the first failed gate; "" if none has failed.
func (d decision) failure() string {
	for _, e := range d.Engines {
		i, ok := d.Known[e]
		if !ok || !d.at(e) || i.Passed() {
			continue
		}
		if why := d.gate(i); why != "" {
			return "engine " + string(e) + " " + why
		}
	}
	return ""
}

func (d decision) gate(i mirror.InstanceFacts) string {
	took := d.now.Sub(i.Since)
	switch {
	case i.State == mirror.InstanceRefused:
		return "cannot have " + releaseOf(i) + ": " + i.Message
	case i.State == mirror.InstanceInstalling && took >= time.Duration(d.Gates.Within):
		return fmt.Sprintf("does not run %s after %s: %s", releaseOf(i),
			time.Duration(d.Gates.Within), cmp.Or(i.Message, "it is not reachable"))
	case i.State != mirror.InstanceRunning || !i.Followed || took < d.steady():
		return ""
	case i.Work.Faulty():
		return "is " + string(i.Work.State) + " under " + releaseOf(i)
	case i.Fresh:
		return "" // it gets its first Applications during the soak
	case i.Degraded > i.DegradedBefore+d.Gates.Degraded:
		return fmt.Sprintf("has %d Degraded Applications under %s, and had %d", i.Degraded,
			releaseOf(i), i.DegradedBefore)
	case i.Unknown > i.UnknownBefore+d.Gates.Unknown:
		return fmt.Sprintf("has %d Applications in an unknown state under %s, and had %d",
			i.Unknown, releaseOf(i), i.UnknownBefore)
	}
	return ""
}

// returns sends the engines of a halted ring back to their last good version. An engine without
// one, or that may not go back, stays. An agent alone always goes back.
func (d decision) returns() (all []mirror.InstanceTarget) {
	for _, e := range d.Engines {
		i, ok := d.Known[e]
		if !ok || !d.at(e) || i.Passed() ||
			!d.AgentOnly[e] && (i.GoodDigest == "" || !fleet.MayReturn(i.Version, i.GoodVersion)) {
			continue
		}
		t := mirror.InstanceTarget{Engine: e, Version: i.GoodVersion, Digest: i.GoodDigest,
			Agent: fleet.RingAgent{Version: i.GoodAgentVersion, Digest: i.GoodAgentDigest}}
		if d.AgentOnly[e] {
			t.Version, t.Digest = "", ""
		}
		if i.AgentDigest != "" && t.Agent.Digest == "" {
			t.Agent.Digest = fleet.PreviousAgent
		}
		all = append(all, t)
	}
	return all
}

func (d decision) whoLooks() string {
	who := "the administrators of the config repo"
	if len(d.owners) > 0 {
		who = strings.Join(d.owners, ", ")
	}
	return "; " + who + " decide: correct the cause and `argosy rings resume " + d.Name +
		"`, or declare another version"
}

func names(engines []fleet.EngineName) string {
	if len(engines) == 0 {
		return "none changes"
	}
	var all []string
	for _, e := range engines {
		all = append(all, string(e))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
