package mirror

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// UnreachableReason is why an engine cannot read an environment's cluster.
type UnreachableReason string

// Reasons. Only UnreachableTimeout costs the engine more than an error.
const (
	// accepts connections, or nothing, and does not answer
	UnreachableTimeout UnreachableReason = "Timeout"
	// connection refused, or the name does not resolve
	UnreachableRefused UnreachableReason = "Refused"
	// answers and rejects the credential
	UnreachableDenied UnreachableReason = "Unauthorized"
	UnreachableError  UnreachableReason = "Error" // answers with another error
)

// Unreachable describes an environment's cluster that an engine cannot read. Message is the
// engine's own.
type Unreachable struct {
	Reason  UnreachableReason `json:"reason" enum:"Timeout,Refused,Unauthorized,Error"`
	Message string            `json:"message"`
	Since   time.Time         `json:"since"`
	// Parked is the number of Applications that the engine skips until the cluster answers.
	Parked int `json:"parked,omitempty"`
}

// Reach is a worker's report on one environment. Unreachable is nil once its cluster answers.
type Reach struct {
	Environment fleet.EnvironmentID
	Unreachable *Unreachable
}

// MaxReach is the number of unreachable environments that an agent reports.
const MaxReach = 1000
