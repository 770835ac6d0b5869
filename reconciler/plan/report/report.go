// Package report has the forms of a plan for its readers: text, Markdown and JSON.
package report

import (
	"encoding/json"
	"io"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/fleet/printable"
)

// Report is a plan for people and programs. Text, Markdown, JSON and the comment of a pull request
// are forms of it. It is equal after a round trip through its JSON.
type Report struct {
	Base    fleet.Revision `json:"base,omitempty"` // empty: head is the first revision
	Head    fleet.Revision `json:"head"`
	Hash    string         `json:"hash"`
	Summary string         `json:"summary"` // one sentence
	Counts  Counts         `json:"counts"`
	// the whole revision waits, and nothing else is done
	RevisionHold *mirror.Hold `json:"waiting,omitempty"`
	// that the plan touches although none of their declarations changes
	Radius []fleet.TenantName `json:"otherTenants"`
	// changed declarations of the platform: "new Tenant acme"
	Platform []string        `json:"platform,omitempty"`
	Rings    []Ring          `json:"rings,omitempty"`    // that change, in their order
	Drains   []Drain         `json:"drains,omitempty"`   // that begin with the plan
	Tenants  []Tenant        `json:"tenants"`            // that the plan touches, sorted
	Holds    []mirror.Hold   `json:"holds,omitempty"`    // new or changed
	Problems []fleet.Problem `json:"problems,omitempty"` // of every declaration that was checked
}

// Drain is an engine that changes to `state: Draining`, or that misplaced environments leave, with
// the moves that follow the plan.
type Drain struct {
	Engine    fleet.EngineName `json:"engine"`
	Misplaced bool             `json:"misplaced,omitempty"` // misplaced environments alone leave
	Churn     fleet.Churn      `json:"churn"`               // the budget
	Moves     []placement.Move `json:"moves"`               // in the order in which they begin
	Left      []placement.Left `json:"left"`                // environments that cannot leave it
}

// Tenant is the changes of one tenant.
type Tenant struct {
	Name       fleet.TenantName  `json:"name"`
	Quota      QuotaUse          `json:"quota"`
	Placements []fleet.Placement `json:"placements,omitempty"` // new or changed
	// Placements that had another engine before
	Moves    []Move   `json:"moves,omitempty"`
	Unplaced []string `json:"unplaced,omitempty"` // environments that are removed
	Engines  []Engine `json:"engines,omitempty"`  // sorted
	Syncs    []Sync   `json:"syncs,omitempty"`
}

// Move is an environment that changes its engine, with its Applications.
type Move struct {
	Environment  fleet.EnvironmentName `json:"environment"`
	Slice        fleet.Slice           `json:"slice,omitempty"` // "": it is not split
	From         fleet.EngineName      `json:"from"`
	To           fleet.EngineName      `json:"to"`
	Applications int                   `json:"applications"`
}

// Engine is the changes of one tenant's objects on one engine.
type Engine struct {
	Name    fleet.EngineName `json:"name"`
	Changes []Change         `json:"changes"` // by dependency, then by subject
}

// Change is one object that changes.
type Change struct {
	Action Action           `json:"action"`
	Kind   fleet.ObjectKind `json:"kind"`
	// DEPLOYMENT@ENVIRONMENT, or the name of the environment, credential or tenant
	Subject string  `json:"subject"`
	Object  string  `json:"object"` // its name on the engine
	Note    string  `json:"note,omitempty"`
	Fields  []Field `json:"fields,omitempty"` // of an update, if Request.Explain is set
	// of an Application's deletion, also of a held one: its workload is not deleted
	Keeps bool `json:"keeps,omitempty"`
}

// Sync is one sync that a SyncRun asks for.
type Sync struct {
	SyncRun     fleet.SyncRunName `json:"syncRun"`
	Application string            `json:"application"`
	Engine      fleet.EngineName  `json:"engine"`
	Revision    string            `json:"revision"`
}

// QuotaUse is the quota of a tenant with its use before and after the plan.
type QuotaUse struct {
	Tenant fleet.TenantName `json:"tenant"`
	Quota  fleet.Quota      `json:"quota"`
	Before fleet.Quota      `json:"before"`
	After  fleet.Quota      `json:"after"`
}

// WriteJSON writes the report as one JSON document.
func (r Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(printable.JSONWriter(w))
	e.SetIndent("", "  ")
	return e.Encode(r)
}
