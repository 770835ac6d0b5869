package mirror

import (
	"errors"
	"time"

	"argosy.dev/argosy/fleet"
)

// ErrNotDraining means that an engine is not declared Draining, or its drain has not begun yet.
var ErrNotDraining = errors.New("the engine does not drain")

// DrainState is the state of an engine's drain.
type DrainState string

// States of a drain. Moving and Waiting drains request the next move as soon as they can.
const (
	DrainMoving  DrainState = "Moving"  // environments leave
	DrainWaiting DrainState = "Waiting" // no environment leaves now
	DrainPaused  DrainState = "Paused"  // by a person, who resumes it
	DrainStopped DrainState = "Stopped" // too many moves wait or have failed
	DrainEmpty   DrainState = "Empty"   // the engine's declaration can be removed
)

// Drain is how far an engine with `state: Draining` is emptied.
type Drain struct {
	State   DrainState `json:"state"`
	Message string     `json:"message,omitempty"` // what it does, or the reason why not
	Since   time.Time  `json:"since"`             // of State
}

// DrainFacts is the progress of a drain as the store has it.
type DrainFacts struct {
	Drain                     // as it was recorded last
	PausedBy      string      // "": it is not paused
	PauseReason   string      // of the person
	Environments  int         // that the engine serves
	Objects       int         // wanted, or not proven deleted; 1000 for more
	Open          []DrainMove // moves off the engine, also of people, by environment
	Failed        []DrainMove // refused of late, or undone, by environment
	BegunLastHour int         // moves that the drain requested, without refused ones
}

// DrainMove is a move off a draining engine that has not succeeded.
type DrainMove struct {
	Environment fleet.EnvironmentID
	Slice       fleet.Slice // of the environment that moves
	// why it waits or has failed; "": it is under way
	Trouble string
	// no person has resumed the drain since
	Counts bool
}

// ID identifies the slice that moves.
func (m DrainMove) ID() fleet.SliceID { return m.Environment.Slice(m.Slice) }

// DrainPause is the decision of a person to request no further move off an engine.
type DrainPause struct {
	Engine fleet.EngineName `json:"engine" minLength:"1" maxLength:"63"`
	Reason string           `json:"reason,omitempty" maxLength:"1024" doc:"For people who find it paused"`
	By     string           `json:"-"`
}
