package mirror

import (
	"errors"
	"time"

	"argosy.dev/argosy/fleet"
)

// PoolState is what a pool does.
type PoolState string

// States of a pool.
const (
	PoolSteady   PoolState = "Steady"   // its load needs no other number of instances
	PoolGrowing  PoolState = "Growing"  // an instance is being made
	PoolFull     PoolState = "Full"     // the load is above the target, and no instance may be made
	PoolShrinks  PoolState = "Draining" // an instance is being drained or removed
	PoolWaiting  PoolState = "Waiting"  // the cooldown is not over
	PoolPaused   PoolState = "Paused"   // by a person
	PoolResizing PoolState = "Resizing" // an instance changes its size
	PoolBlocked  PoolState = "Blocked"  // an instance cannot be made
	PoolUnknown  PoolState = "Unknown"  // its instances are not known: a cluster cannot be read
	PoolUnneeded PoolState = "Ending"   // its file is removed, and it still has instances
)

// Pool is what the store keeps of a pool of engines (ADR 0073).
type Pool struct {
	Name    string    `json:"name"`
	State   PoolState `json:"state" enum:"Steady,Growing,Resizing,Full,Draining,Waiting,Paused,Blocked,Unknown,Ending"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"` // of the state
	// percent of the capacity of the instances that take environments; 0 without an instance
	Load    int `json:"load"`
	Waiting int `json:"waiting"` // environments that wait for an engine and would fit an instance
	// since when the load is above the target, or low enough for one instance less
	HighSince *time.Time `json:"highSince,omitempty"`
	LowSince  *time.Time `json:"lowSince,omitempty"`
	SteppedAt *time.Time `json:"steppedAt,omitempty"` // the end of the last step
	// Sizing is what the sizes of its instances need, by number.
	Sizing map[int]SizeMemory `json:"sizing,omitempty"`

	PausedAt    *time.Time `json:"pausedAt,omitempty"`
	PausedBy    string     `json:"pausedBy,omitempty"`
	PauseReason string     `json:"pauseReason,omitempty"`

	// of the declaration
	Min        int                `json:"min"`
	Max        int                `json:"max"`
	TargetLoad int                `json:"targetLoad"`
	Ring       string             `json:"ring"`
	Instances  []fleet.PoolMember `json:"instances"` // by number
}

// SizeMemory is what decides about the size of an instance.
type SizeMemory struct {
	// since when its load is above the target of its size, or low enough for a smaller one
	HighSince *time.Time `json:"highSince,omitempty"`
	LowSince  *time.Time `json:"lowSince,omitempty"`
	// Refused is a size that its Pods could not get.
	Refused   string     `json:"refused,omitempty"`
	RefusedAt *time.Time `json:"refusedAt,omitempty"`
}

// PoolFacts is what decides about the pools and is not in the applied state.
type PoolFacts struct {
	Now       time.Time // by the clock of the store
	Pools     map[string]Pool
	Known     map[string]bool // pools whose clusters were read since the mirror was empty
	Instances map[fleet.EngineName]InstanceFacts
	Measured  map[fleet.EngineName]*Load // of engines that are measured
	Empty     map[fleet.EngineName]bool  // drained: nothing is left, and nothing moves
}

// PoolDecision is a person's word about a pool.
type PoolDecision struct {
	Pool   string `json:"pool" minLength:"1" maxLength:"63"`
	Reason string `json:"reason,omitempty" maxLength:"512"`
	By     string `json:"-"`
}

// ErrNoPool means that there is no such pool.
var ErrNoPool = errors.New("there is no such pool")
