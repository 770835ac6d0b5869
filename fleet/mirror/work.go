package mirror

import (
	"slices"
	"time"
)

// WorkState is whether an engine that is reachable works, and else what does not.
type WorkState string

// States of work. An empty one is unknown: the engine was not probed yet, or may not be written to.
const (
	Working WorkState = "Working"
	// the application-controller answers no requested refresh
	ControllerStuck WorkState = "ControllerStuck"
	// the application-controller answers refreshes late: its queue is long
	QueueLong WorkState = "QueueLong"
	// the repo-server answers the application-controller no longer
	RepoServerSilent WorkState = "RepoServerSilent"
	// the application-controller can read no cluster
	ClustersUnread WorkState = "ClustersUnread"
)

// WorkFaults are the states of an engine that does not work.
var WorkFaults = []WorkState{ControllerStuck, QueueLong, RepoServerSilent, ClustersUnread}

// Work is the state of an engine, since when, and the evidence. A report without a state and a time
// changes nothing: nothing is measured yet. One without a state makes it unknown.
type Work struct {
	State   WorkState `json:"state" enum:"Working,ControllerStuck,QueueLong,RepoServerSilent,ClustersUnread"`
	Since   time.Time `json:"since"`
	Message string    `json:"message,omitempty"`
}

// Faulty reports whether the engine is known not to work.
func (w Work) Faulty() bool { return slices.Contains(WorkFaults, w.State) }
