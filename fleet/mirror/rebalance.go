package mirror

import (
	"errors"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
)

// ErrRebalanceState means that a rebalance is in a state in which the decision has no meaning.
var ErrRebalanceState = errors.New("the rebalance is in another state")

// RebalanceState is the state of a rebalance.
type RebalanceState string

// States of a rebalance. At most one rebalance is open: in one of the first five.
const (
	RebalanceProposed RebalanceState = "Proposed" // a person has to accept it
	RebalanceMoving   RebalanceState = "Moving"   // environments move, or the next one is about to
	RebalanceWaiting  RebalanceState = "Waiting"  // no environment begins to move now
	RebalancePaused   RebalanceState = "Paused"   // by a person, who resumes it
	RebalanceStopped  RebalanceState = "Stopped"  // too many moves wait or have failed
	RebalanceDone     RebalanceState = "Done"     // every move has ended or was not needed
	RebalanceRejected RebalanceState = "Rejected" // by a person
	RebalanceObsolete RebalanceState = "Obsolete" // it did not hold any more
)

// RebalanceOpen are the states of an open rebalance.
var RebalanceOpen = []RebalanceState{RebalanceProposed, RebalanceMoving, RebalanceWaiting,
	RebalancePaused, RebalanceStopped}

// Open reports whether a rebalance in this state may still request moves.
func (s RebalanceState) Open() bool {
	return slices.Contains(RebalanceOpen, s)
}

// Requests reports whether a rebalance in this state may request moves.
func (s RebalanceState) Requests() bool { return s == RebalanceMoving || s == RebalanceWaiting }

// Rebalance is a proposal to relieve engines with a high measured load, with its moves in their
// order. The list never changes; each move is checked again before it is requested.
type Rebalance struct {
	ID         string            `json:"id"`
	State      RebalanceState    `json:"state"`
	Message    string            `json:"message,omitempty"` // what it does, or the reason why not
	Since      time.Time         `json:"since"`             // of State
	Moves      []RebalanceMove   `json:"moves"`
	Engines    []RebalanceEngine `json:"engines"` // those that give or take, by name
	ProposedAt time.Time         `json:"proposedAt"`
	// who accepted it: a person, or argosy with mode Act; empty before
	AcceptedBy string     `json:"acceptedBy,omitempty"`
	AcceptedAt *time.Time `json:"acceptedAt,omitempty"`
	EndedAt    *time.Time `json:"endedAt,omitempty"`
}

// RebalanceMoveState is the state of one move of a rebalance.
type RebalanceMoveState string

// States of a move of a rebalance.
const (
	RebalanceMovePlanned   RebalanceMoveState = "Planned"
	RebalanceMoveRequested RebalanceMoveState = "Requested" // requested or under way
	RebalanceMoveMoved     RebalanceMoveState = "Moved"
	RebalanceMoveSkipped   RebalanceMoveState = "Skipped" // not requested: no longer right
	RebalanceMoveRefused   RebalanceMoveState = "Refused" // by the plan, or it could not begin
	RebalanceMoveUndone    RebalanceMoveState = "Undone"  // by a person
)

// RebalanceMove is one move of a rebalance.
type RebalanceMove struct {
	Environment  fleet.EnvironmentID `json:"environment"`
	Slice        fleet.Slice         `json:"slice,omitempty"` // of the environment that moves
	From         fleet.EngineName    `json:"from"`
	To           fleet.EngineName    `json:"to"`
	Applications int                 `json:"applications"`      // when it was proposed
	Unready      int                 `json:"unready,omitempty"` // of them, not Synced and Healthy
	State        RebalanceMoveState  `json:"state"`
	Message      string              `json:"message,omitempty"`   // the reason of State
	Operation    string              `json:"operation,omitempty"` // of the requested move
}

// ID identifies the slice that moves.
func (m RebalanceMove) ID() fleet.SliceID { return m.Environment.Slice(m.Slice) }

// RebalanceEngine is the load of an engine, as it was proposed.
type RebalanceEngine struct {
	Engine   fleet.EngineName `json:"engine"`
	Capacity fleet.Capacity   `json:"capacity"`
	Before   fleet.EngineLoad `json:"before"`
	After    fleet.EngineLoad `json:"after"`
	// cores in use; Estimated: the engine was not measured
	CPUBefore float64 `json:"cpuBefore"`
	CPUAfter  float64 `json:"cpuAfter"`
	Estimated bool    `json:"estimated,omitempty"`
}

// RebalanceFacts is what the store knows of rebalances.
type RebalanceFacts struct {
	Open *Rebalance // nil: there is none
	// Troubles of its moves that wait or have failed, and how many of them count: no person has
	// resumed it since
	Troubles []string
	Counts   int

	UnderWay      int // environments that move, or whose move is requested, of all engines
	BegunLastHour int // moves that rebalances and drains requested, without refused ones
	// Draining are the engines whose drain is Moving: they go first
	Draining []fleet.EngineName
}

// Measured is what a rebalance needs to know besides the applied state.
type Measured struct {
	Cores map[fleet.EngineName]float64 // CPU in use of each measured engine, without Moving
	// Moving are the engines of moves that are open, or have ended of late: they count as not
	// measured, since their figures are those of before
	Moving map[fleet.EngineName]bool
	// Fixed are slices of environments that do not move, with the reason: of late, a rebalance's
	// move of them was refused or undone, or a rebalance that relieves their engine was rejected
	Fixed map[fleet.SliceID]string
}

const (
	// MeasureAgain is how long after a move its engines count as not measured. A measurement is
	// an average of minutes.
	MeasureAgain = 15 * time.Minute
	// RebalanceMemory is how long a decision against a rebalance, or a failed move of one, keeps
	// Argosy from proposing it again.
	RebalanceMemory = 24 * time.Hour
)

// RebalanceDecision is the decision of a person about a rebalance.
type RebalanceDecision struct {
	ID     string `json:"id" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9-]+$"`
	Reason string `json:"reason,omitempty" maxLength:"1024" doc:"For the record"`
	By     string `json:"-"`
}
