package registry

import (
	"encoding/json"
	"errors"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Inspection is one read of an Application behind an agent, for a reader who waits at a replica
// (ADR 0085).
type Inspection struct {
	ID          string // 128 random bits, hexadecimal
	Engine      fleet.EngineName
	Application mirror.InspectedApplication
	Replica     string          // of the reader
	Request     json.RawMessage // the agent.Inspection, without Left
	Left        time.Duration   // until the read ends
}

// InspectionPart is one part of the answer of an agent: see agent.InspectionPart.
type InspectionPart struct {
	ID, Run string
	Part    int
	Data    []byte
	Last    bool
	Failure json.RawMessage // the agent.InspectionFailure; nil: there is none
}

// Limits of the reads that are open at once (ADR 0085).
const (
	MaxInspectionsOfEngine = 8
	MaxInspectionsOfTenant = 32
	MaxInspectionParts     = 4 // that no reader has taken yet, of one read
	// A read whose reader has not asked for that long has ended.
	InspectionAlive = 15 * time.Second
)

// Errors of inspections.
var (
	// ErrInspectionEnded means that no reader waits any more, or that there never was one at this
	// engine.
	ErrInspectionEnded = errors.New("the read has ended")
	// ErrInspectionFull means that the reader has not taken the earlier parts yet.
	ErrInspectionFull = errors.New("the reader has not taken the earlier parts yet")
	// ErrInspectionOrder means that the part is not the next one.
	ErrInspectionOrder = errors.New("not the next part of this answer")
)
