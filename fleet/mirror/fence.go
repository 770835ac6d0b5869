package mirror

import (
	"errors"
	"time"

	"argosy.dev/argosy/fleet"
)

// Errors of decisions about fences.
var (
	// ErrFencing means that a fence of the engine is requested or in force.
	ErrFencing = errors.New("a fence of it is requested or in force already")
	// ErrFenceForbidden means that the platform does not allow Argosy to fence the engine.
	ErrFenceForbidden = errors.New("the platform does not allow a fence of it")
	// ErrEngineSilent means that no worker reaches the engine, so that nothing can be scaled.
	ErrEngineSilent = errors.New("the engine does not answer")
)

// FenceState is the state of a Fence.
type FenceState string

// States of fences.
const (
	FenceChecking FenceState = "Checking" // of a dry run: nothing is scaled
	FenceScaling  FenceState = "Scaling"  // the controllers are being scaled to zero
	FenceEmptying FenceState = "Emptying" // they are scaled; a Pod of them may be left
	FenceFenced   FenceState = "Fenced"   // no writer is left: the engine is evacuated
	FenceBroken   FenceState = "Broken"   // a writer may be back: nothing more leaves the engine
	FenceLifting  FenceState = "Lifting"  // the controllers get their replicas back
)

// FencedWorkload is a workload that a fence scales to zero.
type FencedWorkload struct {
	Kind     string `json:"kind"` // StatefulSet or Deployment
	Name     string `json:"name"`
	Replicas int    `json:"replicas"` // before the fence
}

// Fence scales the controllers of an engine to zero, so that it can be evacuated although its API
// server answers (ADR 0068).
type Fence struct {
	ID      string           `json:"id"` // of its operation, and on the workloads
	Engine  fleet.EngineName `json:"-"`
	State   FenceState       `json:"state" enum:"Checking,Scaling,Emptying,Fenced,Broken,Lifting"`
	Message string           `json:"message,omitempty"` // why it waits, or why it is broken
	Since   time.Time        `json:"since"`             // of the state
	By      string           `json:"by"`
	Reason  string           `json:"reason,omitempty"`
	At      time.Time        `json:"at"` // of the decision
	// of the last proof that no writer is left; absent before the first
	ProvenAt  *time.Time       `json:"provenAt,omitempty"`
	Workloads []FencedWorkload `json:"workloads,omitempty"`
	// who has confirmed since that the engine is gone: while it does not answer, nothing can be
	// proven
	ConfirmedBy string `json:"confirmedBy,omitempty"`
}

// FenceProof is how long a proof counts: a step of the evacuation needs a later one.
const FenceProof = 15 * time.Second

// FenceReport is what the engine's worker records of a fence.
type FenceReport struct {
	ID        string
	State     FenceState // the next one
	Message   string
	Workloads []FencedWorkload // as CheckFence found them; nil: as before
	Proven    bool             // no writer is left
	Took      time.Duration    // of the proof, which counts from its beginning
	// End ends the fence: lifted, or a dry run. Failed ends a dry run that found a reason against
	// the fence.
	End, Failed bool
}
