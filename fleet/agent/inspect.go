package agent

import (
	"time"

	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// PathInspections takes the answers to reads that people wait for (ADR 0085).
const PathInspections = "/api/v1/cluster/self/inspections"

// EventInspect is []Inspection: every open read of the engine's Applications. A read that is not in
// the list any more has ended, and the agent stops answering it.
const EventInspect = "inspect"

// InspectionKind is what an Inspection reads of its Application.
type InspectionKind string

// Kinds of inspections. An agent refuses any other one.
const (
	InspectTree     InspectionKind = "tree"     // mirror.Tree
	InspectResource InspectionKind = "resource" // mirror.ResourceDetail
	InspectDiff     InspectionKind = "diff"     // mirror.ApplicationDiff
	InspectEvents   InspectionKind = "events"   // []mirror.ResourceEvent
	InspectLogs     InspectionKind = "logs"     // LogPart in each part
	InspectSyncs    InspectionKind = "syncs"    // []mirror.PastSync
)

// Inspection is one read of one Application that a person waits for. The agent answers it only for
// an Application of its own rows, and only for objects in that Application's tree.
type Inspection struct {
	ID          string                      `json:"id"` // 128 random bits, hexadecimal
	Kind        InspectionKind              `json:"kind"`
	Application mirror.InspectedApplication `json:"application"`
	Resource    *mirror.ResourceRef         `json:"resource,omitempty"`
	Log         *mirror.LogRequest          `json:"log,omitempty"`
	// Left is the time until the read ends, in seconds.
	Left int `json:"left"`
}

// Limits of inspections, for both sides.
const (
	MaxInspections      = registry.MaxInspectionsOfEngine
	MaxInspectionAnswer = 16 << 20  // bytes of an answer other than logs, unpacked
	MaxInspectionPart   = 256 << 10 // bytes of Data of one part
	MaxLogPart          = 1 << 20   // bytes of one part of a log, unpacked
	MaxInspectionBody   = 512 << 10 // bytes of the body of PathInspections
	// A log without lines sends an empty part this often.
	InspectionBeat = 5 * time.Second
	// A log without a part for that long has broken off.
	InspectionSilence = 6 * InspectionBeat
)

// InspectionPart is the body of PathInspections: one part of an answer.
type InspectionPart struct {
	ID string `json:"id"`
	// Run is random, and the same in every part of one answer: a process that starts again does not
	// continue the answer of the one before.
	Run string `json:"run"`
	// Part is 1, 2, …; the hub accepts only the next one, or the last one again.
	Part int `json:"part"`
	// Data is a piece of the gzipped JSON of the answer. Of logs, it is the whole gzipped JSON of a
	// LogPart.
	Data []byte `json:"data,omitempty"`
	Last bool   `json:"last,omitempty"`
	// Failure is why there is no answer; the part is the last one.
	Failure *InspectionFailure `json:"failure,omitempty"`
}

// LogPart is one part of a log. The last one has End.
type LogPart struct {
	Lines []mirror.LogLine `json:"lines,omitempty"`
	End   mirror.LogEnd    `json:"end,omitempty"`
}

// InspectionFailure is why an agent does not answer a read.
type InspectionFailure struct {
	Code    InspectionCode `json:"code"`
	Message string         `json:"message"`
}

// InspectionCode is the error of package mirror that a failure wraps.
type InspectionCode string

// Codes of failures. The hub takes another one for CodeUnreachable.
const (
	CodeNoTree      InspectionCode = "noTree"      // mirror.ErrNoTree
	CodeNotInTree   InspectionCode = "notInTree"   // mirror.ErrNotInTree
	CodeRefused     InspectionCode = "refused"     // mirror.ErrInspectRefused
	CodeInspectBusy InspectionCode = "busy"        // mirror.ErrInspectBusy
	CodeUnreachable InspectionCode = "unreachable" // mirror.ErrInspectUnreachable
)

// inspectionErrors are the errors of the codes.
var inspectionErrors = map[InspectionCode]error{CodeNoTree: mirror.ErrNoTree,
	CodeNotInTree: mirror.ErrNotInTree, CodeRefused: mirror.ErrInspectRefused,
	CodeInspectBusy: mirror.ErrInspectBusy, CodeUnreachable: mirror.ErrInspectUnreachable}

// Error returns the error of package mirror for a code.
func (c InspectionCode) Error() error {
	if err, ok := inspectionErrors[c]; ok {
		return err
	}
	return mirror.ErrInspectUnreachable
}
