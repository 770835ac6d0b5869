package fleet

// Placement is the decision which engine serves an environment. It is sticky: what is placed stays
// until the move procedure moves it.
type Placement struct {
	Environment EnvironmentID `json:"environment"`
	Engine      EngineName    `json:"engine"` // empty: not placed; Reason says why
	Reason      string        `json:"reason"` // one sentence for people
	// why a constraint no longer holds; it stays, and waits for a move
	Misplaced string `json:"misplaced,omitempty"`
	// every engine that was looked at, best first
	Alternatives []Alternative `json:"alternatives"`
	// of the config repo, when it was decided
	Revision Revision `json:"revision,omitempty"`
	// Applications that it brings to the engine
	Applications int `json:"applications"`
	// decided by a person (argosy move) rather than by the rules
	Forced bool `json:"forced,omitempty"`
}

// Alternative is one engine in the light of a placement.
type Alternative struct {
	Engine   EngineName `json:"engine"`
	Eligible bool       `json:"eligible"`
	Reason   string     `json:"reason"` // "3 of 1500 applications", or why it is not eligible
	Score    float64    `json:"score"`  // higher is better; 0 when not eligible
}

// EngineLoad is what an engine carries now, to be held against its capacity.
type EngineLoad struct {
	Applications int `json:"applications"`
	Environments int `json:"environments"`
}
