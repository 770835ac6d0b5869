package fleet

import "fmt"

// Placement is the engine that serves a slice of an environment, by default all of it. It is
// sticky: only a move changes it.
type Placement struct {
	Environment EnvironmentID `json:"environment"`
	Slice       Slice         `json:"slice,omitempty"` // "": the environment is not split
	Engine      EngineName    `json:"engine"`          // empty: not placed, see Reason
	Reason      string        `json:"reason"`          // one sentence for people
	// the engine that the environment is leaving; empty: it does not move
	From EngineName `json:"from,omitempty"`
	// the constraint that no longer holds; the environment stays until it is moved
	Misplaced string `json:"misplaced,omitempty"`
	// what happens because of Misplaced, for a reader of the platform: see FleetPlacement
	MisplacedPolicy MisplacedPolicy `json:"misplacedPolicy,omitempty"`
	// of an environment with more Applications than its engine has capacity, or, without an
	// engine, than every engine that may serve it; nil otherwise
	TooLarge *TooLarge `json:"tooLarge,omitempty"`
	// every engine that was considered, best first
	Alternatives []Alternative `json:"alternatives"`
	// of the config repo, at the time of the decision
	Revision Revision `json:"revision,omitempty"`
	// number of Applications that the slice adds to the engine
	Applications int `json:"applications"`
	// the evacuated engines that it was on: none of them serves it when it comes back
	Evacuated []EngineName `json:"evacuated,omitempty"`
	// decided by a person (argosy move) or a drain rather than by the rules of placement
	Forced bool `json:"forced,omitempty"`
}

// ID identifies the slice that is placed.
func (p Placement) ID() SliceID { return p.Environment.Slice(p.Slice) }

// Outgrown explains a placed environment with more Applications than its engine has capacity; ""
// for any other one. It stays on its engine: only a move changes that.
func (p Placement) Outgrown() string {
	if p.Engine == "" || p.TooLarge == nil {
		return ""
	}
	return fmt.Sprintf("it has outgrown engine %s: it has %d Applications, and the engine a "+
		"capacity of %d", p.Engine, p.TooLarge.Applications, p.TooLarge.LargestCapacity)
}

// SizeFix returns what people can do about TooLarge; "" without it.
func (p Placement) SizeFix() string {
	switch {
	case p.TooLarge == nil:
		return ""
	case p.Engine != "":
		return fmt.Sprintf("raise the capacity of engine %s, split the environment (argosy split "+
			"environment %s --to ENGINE), or move it to an engine with a capacity of %d applications "+
			"or more", p.Engine, p.Environment, p.TooLarge.Applications)
	}
	return fmt.Sprintf("add an engine with a capacity of %d applications or more, raise one's "+
		"capacity, set spec.placement.slices to Allowed in fleet/fleet.yaml, so that several engines "+
		"serve it, or declare several environments on the same cluster", p.TooLarge.Applications)
}

// TooLarge is why free capacity does not help an environment: its engine, or, without an engine,
// every engine that may serve it, is smaller.
type TooLarge struct {
	Applications    int `json:"applications"`    // of the environment
	Engines         int `json:"engines"`         // that may serve it; 1: its engine
	LargestCapacity int `json:"largestCapacity"` // of these engines, in Applications
}

// Alternative is one candidate engine of a placement.
type Alternative struct {
	Engine   EngineName `json:"engine"`
	Eligible bool       `json:"eligible"`
	Reason   string     `json:"reason"` // "3 of 1500 applications", or why it is not eligible
	Score    float64    `json:"score"`  // higher is better; 0 when not eligible
}

// EngineLoad is the current load of an engine, for comparison with its capacity.
type EngineLoad struct {
	Applications int `json:"applications"`
	Environments int `json:"environments"`
}
