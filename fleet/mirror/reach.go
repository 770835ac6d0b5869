package mirror

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// UnreachableReason says why an engine cannot read an environment's cluster.
type UnreachableReason string

// Reasons. Only a cluster of UnreachableTimeout costs the engine more than an error.
const (
	// it accepts connections, or nothing, and does not answer
	UnreachableTimeout UnreachableReason = "Timeout"
	// no connection: nobody listens, or the name resolves to nothing
	UnreachableRefused UnreachableReason = "Refused"
	// it answers, and does not accept the credential
	UnreachableDenied UnreachableReason = "Unauthorized"
	UnreachableError  UnreachableReason = "Error" // it answers with another error
)

// Unreachable is that an engine cannot read the cluster of an environment. Message is the engine's
// own.
type Unreachable struct {
	Reason  UnreachableReason `json:"reason" enum:"Timeout,Refused,Unauthorized,Error"`
	Message string            `json:"message"`
	Since   time.Time         `json:"since"`
	// Parked is how many Applications the engine leaves alone until the cluster answers.
	Parked int `json:"parked,omitempty"`
}

// Reach is what a worker reports of one environment: Unreachable is nil once its cluster answers.
type Reach struct {
	Environment fleet.EnvironmentID
	Unreachable *Unreachable
}

// MaxReach is how many unreachable environments an agent tells of.
const MaxReach = 1000
