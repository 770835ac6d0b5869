package plan

import (
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/effective"
	"argosy.dev/argosy/reconciler/plan/guard"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

// Request is a revision to plan, with everything that decides about it beside the AppliedState.
type Request struct {
	Revision fleet.Revision
	Files    []catalog.Input // that differ from the AppliedState's revision
	// Listed are sets whose files did not change, with other listings: at the head or held.
	Listed []catalog.Input
	// Instances are engines of pools that are made, changed or removed (ADR 0073).
	Instances []catalog.Input
	// of Revision to the AppliedState's revision; "" means mirror.RelationDescendant
	Relation mirror.Relation
	AtHead   bool // Revision is the branch's head: no other head waits

	// the store's log of allowed deletions; those before Guards.Window are ignored
	Recent []mirror.Deletion
	// Applications created within the window: they did not exist at its start
	Created   map[fleet.TenantName]int
	Approvals []mirror.Approval // an approval releases only holds that are not younger

	DeletionReviews *reviews.Deletions // nil: deletions need no review, the guards alone judge them
	FileReviews     *reviews.Files     // nil: files need no review

	// Rebuilt is why the first revision needs an approval, if it does: the earlier holds are lost.
	Rebuilt string

	// Gone names rows whose objects workers have proven deleted since the last plan (acknowledged
	// as Removed). Rows that are wanted again are ignored.
	Deleted []fleet.ObjectKey

	// Unread names engines that were not read yet after a rebuild. Environments that one of them
	// may have are not placed on any engine.
	Unread []fleet.EngineName

	// SilentAgents names engines behind agents that did not report their objects since a rebuild.
	// An environment that one of them may have is not placed on any engine: two Argo CDs must not
	// have it.
	SilentAgents []fleet.EngineName

	// UnreadPools names pools whose instances are not known yet after a rebuild. Environments that
	// an instance may have been given are not placed on any engine, and the pools stay declared.
	UnreadPools []string

	// Undecided are environments that such an instance may have, although another engine has
	// objects of them: they were being moved, or are split.
	Undecided []fleet.EnvironmentID

	// Reported names the engines whose agents reported objects of an environment that no row names.
	// The environment is placed there if it needs a placement and the engine may have been given
	// it.
	Reported map[fleet.EnvironmentID][]fleet.EngineName

	// Recovered is what the engines have shown of Applications after a loss of the mirror; nil: it
	// was not lost.
	Recovered *mirror.Recovered

	// Moves are requested moves to other engines, by the slice that each names.
	Moves map[fleet.SliceID]mirror.MoveRequest

	// Manifests are those of AppliedState.Carried for Moves, by their hashes.
	Manifests map[string]fleet.Manifest

	// ArgoCD is the version of each engine's Argo CD, as far as it is known. Upgraded is set if one
	// of them changed since deployments were rejected for it.
	ArgoCD   map[fleet.EngineName]string
	Upgraded bool

	// Thaws is set if a freeze that holds changes is over.
	Thaws bool

	// Rollouts are the next steps of rollouts, by their deployments.
	Rollouts map[fleet.DeploymentID]mirror.RolloutStep

	// Rollbacks are actions of kind mirror.ActionRollback, by their Applications.
	Rollbacks map[fleet.ApplicationID]mirror.Action

	// Evacuated engines get no environment. Readmit are engines whose evacuation ends.
	Evacuated, Readmit []fleet.EngineName

	Now time.Time // by the store's clock, which also dates approvals and deletions
	// also render the manifests before the plan, and simulate drains that begin, for the reports
	Explain bool
	// Unready counts the Applications of each slice that are not Synced and Healthy, for
	// simulated drains; nil: unknown.
	Unready map[fleet.SliceID]int
}

func (r Request) arrival() effective.Arrival {
	return effective.Arrival{
		Revision: r.Revision, Files: r.Files, Listed: r.Listed, Instances: r.Instances,
		Reviews:   r.FileReviews,
		Approvals: r.Approvals, Now: r.Now,
		Continues: r.Relation.Continues(),
	}
}

func (r Request) guards() guard.Request {
	return guard.Request{
		Revision: r.Revision, Relation: r.Relation, Rebuilt: r.Rebuilt, Recent: r.Recent,
		Created: r.Created, Approvals: r.Approvals, Reviews: r.DeletionReviews, Now: r.Now,
	}
}
