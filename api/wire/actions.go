package wire

import (
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// ActionRequest asks something of one Application.
type ActionRequest struct {
	Request string `json:"request" minLength:"8" maxLength:"64" pattern:"^[A-Za-z0-9_-]+$" doc:"An ID that the client makes for each action: the same request sent again is the same action" example:"0b5f6a1e-restart"`
	Note    string `json:"note,omitempty" maxLength:"1024" doc:"Reason, for the record"`
	mirror.ActionOptions
}

// ActionRequested names the operation of an action. Its result is in the operation.
type ActionRequested struct {
	Operation string                `json:"operation"`
	State     mirror.OperationState `json:"state"`
	Message   string                `json:"message,omitempty"`
}

// ActionPreview is what an action would do.
type ActionPreview struct {
	Action      mirror.ActionKind `json:"action"`
	Application string            `json:"application"`
	Engine      fleet.EngineName  `json:"engine"`
	Does        string            `json:"does" doc:"The effect in a sentence"`
	Refused     string            `json:"refused,omitempty" doc:"Why it would be refused now, with the next step"`
	Note        string            `json:"note,omitempty" doc:"What this preview cannot show"`
	Target      string            `json:"target,omitempty" doc:"The declared targetRevision"`
	Synced      string            `json:"synced,omitempty" doc:"The revision that runs"`
	// Resources are those that would change, at most 200.
	Resources  []PreviewedResource `json:"resources" nullable:"false"`
	More       int                 `json:"more,omitempty" doc:"Further resources that would change"`
	Kept       int                 `json:"kept,omitempty" doc:"Resources that a sync with prune would delete"`
	ComparedAt *time.Time          `json:"comparedAt,omitempty" doc:"When Argo CD compared them"`
	// of a rollback: the revisions that it may lead to, the latest first
	Healthy []mirror.HealthyRevision `json:"healthy,omitempty"`
	Before  string                   `json:"before,omitempty" doc:"rollback: the revision that it leads to unless another one is chosen, the last one that was Healthy before the one that runs; none: there is none"`
}

// PreviewedResource is a resource that an action would change.
type PreviewedResource struct {
	mirror.ResourceRef
	Change string `json:"change" doc:"Create, Update, Prune, or Restart with the number of Pods"`
}

// Add adds a resource within the bound.
func (p *ActionPreview) Add(ref mirror.ResourceRef, change string) {
	if len(p.Resources) == mirror.MaxActionResources {
		p.More++
		return
	}
	p.Resources = append(p.Resources, PreviewedResource{ref, change})
}
