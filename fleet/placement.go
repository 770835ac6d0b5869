package fleet

import "fmt"

// Placement is the engine that serves an environment. It is sticky: only a move changes it.
type Placement struct {
	Environment EnvironmentID `json:"environment"`
	Engine      EngineName    `json:"engine"` // empty: not placed, see Reason
	Reason      string        `json:"reason"` // one sentence for people
	// the engine that the environment is leaving; empty: it does not move
	From EngineName `json:"from,omitempty"`
	// the constraint that no longer holds; the environment stays until it is moved
	Misplaced string `json:"misplaced,omitempty"`
	// of an environment without an engine that no free capacity would help; nil otherwise
	TooLarge *TooLarge `json:"tooLarge,omitempty"`
	// every engine that was considered, best first
	Alternatives []Alternative `json:"alternatives"`
	// of the config repo, at the time of the decision
	Revision Revision `json:"revision,omitempty"`
	// number of Applications that the environment adds to the engine
	Applications int `json:"applications"`
	// the evacuated engines that it was on: none of them serves it when it comes back
	Evacuated []EngineName `json:"evacuated,omitempty"`
	// decided by a person (argosy move) or a drain rather than by the rules of placement
	Forced bool `json:"forced,omitempty"`
}

// TooLarge is why an environment fits on no engine, not even on an empty one: every engine that may
// serve it is smaller.
type TooLarge struct {
	Applications    int `json:"applications"`    // of the environment
	Engines         int `json:"engines"`         // that may serve it
	LargestCapacity int `json:"largestCapacity"` // of these engines, in Applications
}

// Fix returns what the platform or the tenant can do.
func (l *TooLarge) Fix() string {
	return fmt.Sprintf("add an engine with a capacity of %d applications or more, raise one's "+
		"capacity, or divide the environment into several on the same cluster", l.Applications)
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
