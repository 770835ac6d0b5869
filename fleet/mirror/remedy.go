package mirror

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// RemedyState is the state of a Remedy.
type RemedyState string

// States of remedies. The last four end it.
const (
	RemedyRequested  RemedyState = "Requested"  // the engine's worker has not begun
	RemedyRestarting RemedyState = "Restarting" // its Pods are being replaced
	RemedyRestarted  RemedyState = "Restarted"  // its Pods are replaced; the probe has not answered
	RemedyHelped     RemedyState = "Helped"
	RemedyDidNotHelp RemedyState = "DidNotHelp"
	RemedyFailed     RemedyState = "Failed"   // its Pods could not be replaced
	RemedyUnneeded   RemedyState = "Unneeded" // the engine worked again before the worker began
)

// Ended reports whether nothing happens any more.
func (s RemedyState) Ended() bool {
	switch s {
	case RemedyRequested, RemedyRestarting, RemedyRestarted:
		return false
	}
	return true
}

// Remedy is the restart of a component of an engine that does not work (ADR 0063).
type Remedy struct {
	ID          string           `json:"id"` // of its operation
	Engine      fleet.EngineName `json:"engine"`
	Restarts    fleet.Component  `json:"restarts" enum:"applicationController,repoServer"`
	State       RemedyState      `json:"state" enum:"Requested,Restarting,Restarted,Helped,DidNotHelp,Failed,Unneeded"`
	Message     string           `json:"message,omitempty"`
	Since       time.Time        `json:"since"` // of the state
	Fault       WorkState        `json:"fault"`
	FaultSince  time.Time        `json:"faultSince"`
	RequestedAt time.Time        `json:"requestedAt"`
	EndedAt     *time.Time       `json:"endedAt,omitempty"`
}

// RemedyFacts is what decides about the remedies of an engine that does not work, or has not since
// its last remedy.
type RemedyFacts struct {
	Engine   fleet.EngineName
	Now      time.Time // by the clock of the store
	Followed bool      // it is reachable, and a replica holds its lease
	Fenced   bool      // a fence scales its controllers to zero, or will
	Work     Work
	Last     *Remedy // since the engine worked last; nil: none
	LastHour int     // remedies of the engine that were requested in the last hour
	Next     string  // as it was recorded last
}

// RemedyStep is what the leader records about one engine, in one transaction.
type RemedyStep struct {
	Engine fleet.EngineName
	// End and Message end the open remedy ID.
	ID      string
	End     RemedyState
	Message string
	Over    bool // the engine works again
	// Request is recorded if it stays within these budgets.
	Request         *Remedy
	PerHour, AtOnce int
	Next            string // what happens next, for people; "": nothing needs to
}
