package mirror

import (
	"errors"
	"time"

	"argosy.dev/argosy/fleet"
)

// Errors of decisions about evacuations.
var (
	ErrEvacuated    = errors.New("the engine is evacuated already")
	ErrNotEvacuated = errors.New("the engine is not evacuated")
	// ErrEngineAnswers means that an engine that a person calls gone can still be reached.
	ErrEngineAnswers = errors.New("the engine still answers")
	// ErrEvacuatedAway means that environments are elsewhere, and that the evacuated engine is not
	// proven empty of them.
	ErrEvacuatedAway = errors.New("environments are elsewhere, and the engine may still have them")
)

// EvacuationRequest is the decision of a person about a dead engine: its environments get other
// engines without its part (ADR 0058).
type EvacuationRequest struct {
	Engine fleet.EngineName `json:"engine" maxLength:"63"`
	// the engine's name again: the person confirms that nothing of it runs any more
	ConfirmGone fleet.EngineName `json:"confirmGone,omitempty" maxLength:"63"`
	Reason      string           `json:"reason,omitempty" maxLength:"1024"`
	// the controllers of an engine that answers are scaled to zero first, and proven to be gone
	Fence bool `json:"fence,omitempty"`
	// of a fence: nothing is scaled, and the reasons against it are recorded
	DryRun bool `json:"dryRun,omitempty"`
	// ends the evacuation and lifts the fence: before an environment is elsewhere, or when the
	// engine has none of them
	End bool   `json:"end,omitempty"`
	By  string `json:"-"`
}

// EvacuationRestored is Evacuation.By of a record that only placements showed. No person has
// confirmed again that the engine is gone, so it loses no further environment.
const EvacuationRestored = "argosy"

// EvacuationState is the state of an evacuation.
type EvacuationState string

// States of evacuations.
const (
	EvacuationMoving  EvacuationState = "Moving"  // environments get other engines
	EvacuationWaiting EvacuationState = "Waiting" // some stay, for the reasons in the message
	EvacuationMoved   EvacuationState = "Moved"   // no environment is left
	EvacuationEnding  EvacuationState = "Ending"  // the engine is readmitted
)

// Evacuation is the evacuation of an engine.
type Evacuation struct {
	Engine  fleet.EngineName `json:"-"`
	State   EvacuationState  `json:"state"`
	Message string           `json:"message,omitempty"`
	Since   time.Time        `json:"since"` // of the state
	By      string           `json:"by"`
	Reason  string           `json:"reason,omitempty"`
	At      time.Time        `json:"at"`        // of the decision
	Away    int              `json:"away"`      // environments that are elsewhere
	Open    int              `json:"open"`      // Applications not adopted by their new engines yet
	Objects int              `json:"leftovers"` // rows of objects that the engine is to lose
	// when a person decided that the engine never returns; absent otherwise
	ForgottenAt *time.Time `json:"forgottenAt,omitempty"`
	ForgottenBy string     `json:"forgottenBy,omitempty"`
	Unproven    int        `json:"unproven,omitempty"` // objects whose deletion is not proven then
	Answers     bool       `json:"-"`                  // it is reachable, and a replica follows it
	Fenced      bool       `json:"-"`                  // it has a fence
	Unfenced    string     `json:"-"`                  // why the fence is not proven; "" if it is
	// the record was lost with the mirror; the engines that got its environments show it
	Lost bool `json:"-"`
}
