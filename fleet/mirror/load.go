package mirror

import (
	"math"
	"time"

	"argosy.dev/argosy/fleet"
)

// Load is the measured load of an engine's components: rates and averages of the last minutes.
type Load struct {
	At time.Time `json:"at"` // of the last measurement that succeeded; zero: there was none
	// why a component, or one of its processes, is not measured
	Message    string          `json:"message,omitempty"`
	Controller *ControllerLoad `json:"applicationController,omitempty"`
	RepoServer *RepoServerLoad `json:"repoServer,omitempty"`
}

// ProcessLoad is the load of all processes of one component.
type ProcessLoad struct {
	Processes int     `json:"processes"` // endpoints that were read
	CPU       float64 `json:"cpu"`       // cores
	Memory    float64 `json:"memory"`    // resident bytes
}

// ControllerLoad is the load of the application-controller.
type ControllerLoad struct {
	ProcessLoad
	// Applications that wait for their comparison, of all processes
	Queue float64 `json:"queue"`
	// seconds that an Application waits for its comparison, and that 95 % of the comparisons take
	// at most; of the slowest process
	Wait    float64 `json:"waitSeconds"`
	Compare float64 `json:"compareSeconds"`
}

// Lag is how many seconds an Application's comparison ends after it was requested.
func (c ControllerLoad) Lag() float64 { return c.Wait + c.Compare }

// RepoServerLoad is the load of the repo-server.
type RepoServerLoad struct {
	ProcessLoad
	Pending float64 `json:"pending"` // requests that wait for another one of their repository
}

// LoadMaxAge is the age after which a measurement does not describe the present load.
const LoadMaxAge = 15 * time.Minute

// Fresh reports whether the load describes the present.
func (l *Load) Fresh(now time.Time) bool {
	return l != nil && l.Controller != nil && now.Sub(l.At) < LoadMaxAge
}

// Cores returns the CPU of all components; false if it is not known now.
func (l *Load) Cores(now time.Time) (float64, bool) {
	if !l.Fresh(now) || l.Controller.CPU <= 0 {
		return 0, false
	}
	cores := l.Controller.CPU
	if l.RepoServer != nil {
		cores += l.RepoServer.CPU
	}
	return cores, true
}

// Sane returns the load with all figures within bounds: a report of an agent is not trusted.
func (l Load) Sane() Load {
	bound := func(p ProcessLoad) ProcessLoad {
		return ProcessLoad{Processes: max(0, min(p.Processes, fleet.MaxMetricsEndpoints)),
			CPU: within(p.CPU, 1e4), Memory: within(p.Memory, 1e14)}
	}
	if c := l.Controller; c != nil {
		l.Controller = &ControllerLoad{ProcessLoad: bound(c.ProcessLoad),
			Queue: within(c.Queue, 1e9), Wait: within(c.Wait, 1e6), Compare: within(c.Compare, 1e6)}
	}
	if r := l.RepoServer; r != nil {
		l.RepoServer = &RepoServerLoad{ProcessLoad: bound(r.ProcessLoad),
			Pending: within(r.Pending, 1e9)}
	}
	return l
}

// within returns v, or the nearest bound; 0 for a value that is no number.
func within(v, most float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return max(0, min(v, most))
}
