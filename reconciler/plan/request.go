package plan

import (
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// Renderer makes the manifest of a desired object; fleet/argocd implements it. It is pure, and of
// the engine it may use only the ArgoCD section of the spec: that is what does not change while the
// engine serves.
type Renderer interface {
	Render(engine fleet.EngineSpec, o fleet.Object) (fleet.Manifest, error)
}

// Relations of a head to the applied revision. All but RelationSame and RelationDescendant wait for
// an approval.
const (
	RelationSame       = "same"
	RelationDescendant = "descendant"
	RelationOlder      = "older"
	RelationRewritten  = "rewritten"
	RelationUnknown    = "unknown"
)

// Request is what a plan is made from, beside the AppliedState.
type Request struct {
	Revision fleet.Revision
	Files    []catalog.Input // that differ from the AppliedState's revision
	Relation string          // of Revision to the AppliedState's revision; "" means RelationDescendant
	AtHead   bool            // Revision is the branch's head: no other one waits

	// the store's log of deletions that the guards let through; older ones than Guards.Window are
	// left out here
	Recent []fleet.Deletion
	// Applications created within the window: they did not stand at its start
	Created map[fleet.TenantName]int
	// an approval counts if it is not older than the hold that it is to release
	Approvals []fleet.Approval

	// Review is who saw the deletions; nil when nobody is asked, and then the guards alone judge
	// them.
	Review *Review

	// Paths says which files somebody reviewed; nil when nobody is asked, and then every file
	// counts.
	Paths *Paths

	// Rebuilt is why the first revision has to be approved, if it has: what was held before is not
	// known.
	Rebuilt string

	// Gone names rows whose objects workers have proven gone since the last plan (acknowledged as
	// Removed). Those that are wanted again are passed over.
	Gone []fleet.ObjectKey

	// Unread names engines that were not read yet after a rebuild: nothing new is placed, since it
	// may stand on one of them already.
	Unread []fleet.EngineName

	// Unheard names engines behind agents of which nobody has told since a rebuild what stands
	// there. An environment that one of them may have been given is not placed, on none: it may
	// stand there, and two Argo CDs must not have it.
	Unheard []fleet.EngineName

	// Stands names the engines behind agents that say of objects of an environment that they stand
	// there, and no row names them. It is placed there if it is placed anew and the engine may have
	// been given it.
	Stands map[fleet.EnvironmentID][]fleet.EngineName

	Now     time.Time // by the store's clock, which also dates approvals and deletions
	Explain bool      // also renders what stood before, for the text forms
}
