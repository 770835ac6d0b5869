package agent

import (
	"encoding/json"
	"time"
)

// PathInspections takes the answers to reads that people wait for (ADR 0085).
const PathInspections = "/api/v1/cluster/self/inspections"

// EventInspect is []Inspection: every open read of the engine's Applications. A read that is not in
// it any more has ended, and the agent stops answering it.
const EventInspect = "inspect"

// InspectionKind is what an Inspection reads of its Application.
type InspectionKind string

// Kinds of inspections. An agent refuses any other one.
const (
	InspectTree     InspectionKind = "tree"     // view.Tree
	InspectResource InspectionKind = "resource" // view.ResourceDetail
	InspectEvents   InspectionKind = "events"   // []view.ResourceEvent
	InspectLogs     InspectionKind = "logs"     // view.LogLine by line, as they come
	InspectHistory  InspectionKind = "history"  // []view.PastSync
)

// Inspection is one read of one Application that a person waits for. The agent answers it only for
// an Application of its own rows, and only for objects in that Application's tree.
type Inspection struct {
	ID   string         `json:"id"` // 128 random bits, hexadecimal
	Kind InspectionKind `json:"kind"`
	// Name is the Application's object. Namespace is set for an Application that the people of an
	// autonomous cluster made.
	Namespace string          `json:"namespace,omitempty"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Left is the time until the read ends, in seconds.
	Left int `json:"left"`
}

// Limits of inspections, for both sides.
const (
	MaxInspections       = 8         // open reads of one agent
	MaxInspectionAnswer  = 32 << 20  // bytes of an answer other than logs, unpacked
	MaxInspectionPart    = 256 << 10 // bytes of Data of one part
	MaxInspectionBody    = 512 << 10 // bytes of the body of PathInspections
	MaxInspectionPending = 8         // parts that no reader has taken yet; further ones wait
	// of every read but followed logs
	InspectionTimeout = 30 * time.Second
	// of followed logs
	InspectionFollow = 30 * time.Minute
	// An agent without lines sends an empty part at least this often.
	InspectionBeat = 5 * time.Second
)

// InspectionPart is the body of PathInspections: one part of an answer. Parts are numbered from 1;
// the hub accepts only the next one, or the last one again.
type InspectionPart struct {
	ID   string `json:"id"`
	Part int    `json:"part"`
	// Data is a piece of the gzipped JSON of the answer. Of logs, it is a whole gzip stream with one
	// JSON value for each line.
	Data []byte `json:"data,omitempty"`
	Last bool   `json:"last,omitempty"`
	// Failure ends the answer.
	Failure *InspectionFailure `json:"failure,omitempty"`
}

// InspectionFailure is why an agent does not answer a read.
type InspectionFailure struct {
	Code    string `json:"code"` // one of the codes of package engine
	Message string `json:"message"`
}
