package report

import (
	"fmt"
	"strings"

	"argosy.dev/argosy/fleet"
)

// Ring is a ring of which an engine gets another Argo CD or another agent after the plan.
type Ring struct {
	Name    string `json:"name"`
	Version string `json:"version"` // of Argo CD
	Digest  string `json:"digest"`  // of its manifests
	// of the agents; "" if they stay as they are
	AgentVersion string `json:"agentVersion,omitempty"`
	// the ring before it that changes too, for which it waits; "" without one
	After   string         `json:"after,omitempty"`
	AtOnce  int            `json:"atOnce"`
	Soak    fleet.Duration `json:"soak"`
	Engines []RingEngine   `json:"engines"` // that change, in their order
	// of its gates
	SkipShadow  bool `json:"skipShadow,omitempty"`
	Differences int  `json:"differences,omitempty"`
}

// RingEngine is one engine of a Ring.
type RingEngine struct {
	Name fleet.EngineName `json:"name"`
	// what its ring has declared before; "": its Argo CD was not managed
	From       string `json:"from,omitempty"`
	FromDigest string `json:"fromDigest,omitempty"`
	// it is behind an agent: it gets the agent of the ring
	Behind bool `json:"behind,omitempty"`
	// its agent alone follows the ring, and gets nothing else
	AgentOnly bool `json:"agentOnly,omitempty"`
}

// Summary counts the engines that change, and names the pace.
func (r Ring) Summary() string {
	s := "after the merge " + r.gets()
	switch {
	case len(r.Engines) == 1:
	case r.AtOnce <= 1:
		s += ", one at a time"
	default:
		s += fmt.Sprintf(", %d at once", r.AtOnce)
	}
	s += "; the soak takes " + r.Soak.Short()
	if r.After != "" {
		s += "; it begins when ring " + r.After + " is Done"
	}
	return s
}

// gets counts the engines that get an Argo CD, and the agents that get another version alone.
func (r Ring) gets() string {
	alone := 0
	for _, e := range r.Engines {
		if e.AgentOnly {
			alone++
		}
	}
	var parts []string
	if n := len(r.Engines) - alone; n > 0 {
		parts = append(parts, fmt.Sprintf("%s %s Argo CD %s", Count(n, "engine"),
			Plural(n, "gets", "get"), r.Version))
	}
	if alone > 0 {
		parts = append(parts, fmt.Sprintf("%s %s version %s", Count(alone, "agent"),
			Plural(alone, "gets", "get"), r.AgentVersion))
	}
	return strings.Join(parts, " and ")
}

// Lines returns the engines in their order.
func (r Ring) Lines() (lines []string) {
	for i, e := range r.Engines {
		var s string
		switch {
		case e.AgentOnly:
			s = "gets agent " + r.AgentVersion + ", if its cluster allows it"
		case e.From == "":
			s = "gets " + r.Version + ", also over an Argo CD that runs there"
		case e.FromDigest == r.Digest:
			s = "keeps " + r.Version
		case e.From == r.Version:
			s = "gets other manifests of " + r.Version
		default:
			s = "goes from " + e.From + " to " + r.Version
		}
		if e.Behind && !e.AgentOnly && r.AgentVersion != "" {
			s += ", with agent " + r.AgentVersion
		}
		lines = append(lines, OneLine(fmt.Sprintf("%d. %s %s", i+1, e.Name, s)))
	}
	return lines
}

// compared reports whether the Applications of the engine are rendered by both versions.
func (r Ring) compared(e RingEngine) bool {
	return e.From != "" && e.From != r.Version
}

// Approval names what has to be approved before the engines change; "" if nothing has to.
func (r Ring) Approval() string {
	n := 0
	for _, e := range r.Engines {
		if r.compared(e) {
			n++
		}
	}
	switch {
	case n == 0:
		return ""
	case r.SkipShadow:
		return "They change without a comparison of what " + r.Version + " renders"
	}
	limit := "each of its Applications that differs"
	if r.Differences > 0 {
		limit += fmt.Sprintf(", once there are more than %d", r.Differences)
	}
	return fmt.Sprintf("Before that, %s renders the Applications of %s beside the present version. "+
		"The owners of a tenant approve %s", r.Version, Count(n, "engine"), limit)
}
