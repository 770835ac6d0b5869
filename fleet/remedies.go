package fleet

import (
	"cmp"
	"time"
)

// RemedyMode is whether Argosy takes a remedy by itself.
type RemedyMode string

// Modes of a remedy.
const (
	RemedyForbidden RemedyMode = "Forbidden"
	RemedyAllowed   RemedyMode = "Allowed"
)

// RemedyRule is whether, and when, Argosy restarts a component of an engine that does not work.
type RemedyRule struct {
	Mode  RemedyMode `json:"mode,omitempty"`  // default Forbidden
	After Duration   `json:"after,omitempty"` // since the fault began; 2m..24h; default 10m
}

// FleetRemedies are the restarts that Argosy may make (ADR 0063), and whether a person may request
// a fence, unless an Engine declares otherwise.
type FleetRemedies struct {
	RestartController RemedyRule `json:"restartController,omitzero"`
	RestartRepoServer RemedyRule `json:"restartRepoServer,omitzero"`
	PerHour           int        `json:"perHour,omitempty"` // of one engine; 1..60; default 2
	// engines with a restart under way; 1..100; default 1
	AtOnce int `json:"atOnce,omitempty"`
	// whether a person may have an engine fenced (ADR 0068); default Forbidden
	Fence RemedyMode `json:"fence,omitempty"`
}

// Remedies are the restarts that Argosy may make on one engine. An omitted field is the Fleet's.
type Remedies struct {
	RestartController RemedyRule `json:"restartController,omitzero"`
	RestartRepoServer RemedyRule `json:"restartRepoServer,omitzero"`
	PerHour           int        `json:"perHour,omitempty"`
	Fence             RemedyMode `json:"fence,omitempty"`
}

// Of returns the remedies in effect for an engine that declares these, with the defaults of omitted
// fields.
func (r FleetRemedies) Of(engine *Remedies) Remedies {
	var own Remedies
	if engine != nil {
		own = *engine
	}
	return Remedies{
		RestartController: r.RestartController.over(own.RestartController),
		RestartRepoServer: r.RestartRepoServer.over(own.RestartRepoServer),
		PerHour:           cmp.Or(own.PerHour, r.PerHour, 2),
		Fence:             cmp.Or(own.Fence, r.Fence, RemedyForbidden)}
}

// Engines returns how many engines may have a restart under way.
func (r FleetRemedies) Engines() int { return cmp.Or(r.AtOnce, 1) }

func (r RemedyRule) over(own RemedyRule) RemedyRule {
	return RemedyRule{Mode: cmp.Or(own.Mode, r.Mode, RemedyForbidden),
		After: cmp.Or(own.After, r.After, Duration(10*time.Minute))}
}

// Of returns the rule of a component.
func (r Remedies) Of(c Component) RemedyRule {
	if c == RepoServer {
		return r.RestartRepoServer
	}
	return r.RestartController
}

// Restarts returns the components that Argosy may restart.
func (r *Remedies) Restarts() (all []Component) {
	for _, c := range []Component{ApplicationController, RepoServer} {
		if r != nil && r.Of(c).Mode == RemedyAllowed {
			all = append(all, c)
		}
	}
	return all
}

// Fences reports whether a person may have the engine fenced.
func (r *Remedies) Fences() bool { return r != nil && r.Fence == RemedyAllowed }
