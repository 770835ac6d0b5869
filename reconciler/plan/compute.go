package plan

import (
	"errors"
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/freeze"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/diff"
	"argosy.dev/argosy/reconciler/plan/effective"
	"argosy.dev/argosy/reconciler/plan/guard"
	"argosy.dev/argosy/reconciler/plan/place"
	"argosy.dev/argosy/reconciler/plan/report"
)

// Compute returns what r changes. The AppliedState stays as it is.
//
// An error means that nothing may be done. A declaration that no object can be rendered from is no
// error: it is quarantined alone.
//
// A panic quarantines the files that cause it, and is an error when no file does.
func (w *AppliedState) Compute(r Request, render engine.Renderer) (*Plan, error) {
	p, err := w.guarded(r, render)
	var failed *fault
	if errors.As(err, &failed) {
		return w.isolated(r, render, failed)
	}
	return p, err
}

func (w *AppliedState) compute(r Request, render engine.Renderer) (*Plan, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if r.Relation == "" {
		r.Relation = mirror.RelationDescendant
	}
	o := &outcome{base: w, version: w.version, request: r, render: render}
	o.freezes = w.state.Freezes(r.Now)
	o.admission = effective.Admit(w.state, r.arrival())
	if err := o.converge(); err != nil {
		return nil, err
	}
	return o.plan()
}

// outcome is the results of all phases of one plan.
type outcome struct {
	base    *AppliedState
	version int // of the AppliedState
	request Request
	render  engine.Renderer

	freezes   *freeze.Calendar // of the applied declarations: a commit ends no freeze that holds it
	admission effective.Admission
	declared  *effective.Declarations
	placed    *place.Result
	diff      *diff.Result

	files        applied.Files // at the head
	revisionHold *mirror.Hold  // of a whole revision, after the plan

	memory   []byte // the AppliedState's memory after the plan, if it changes
	timeless []byte // the same without its times

	quotas      []report.QuotaUse
	drains      []report.Drain
	moves       map[fleet.SliceID]report.Move
	heldEffects []mirror.Effect // of Plan.RevisionHold
}

// converge runs the phases under stricter and stricter limits, until a round finds none to add.
// Each round but the last grows Limits.Size, which the number of declarations bounds.
func (o *outcome) converge() error {
	limits := effective.NewLimits()
	for {
		before := limits.Size()
		if err := o.round(limits); err != nil {
			return err
		}
		if limits.Size() == before {
			return nil
		}
	}
}

// round runs the phases once, in their order, and adds to the limits what the next round must not
// let in.
func (o *outcome) round(limits *effective.Limits) (err error) {
	s, r := o.base.state, o.request
	thawing := s.Thawing(o.freezes, r.Approvals)
	o.declared = effective.Compute(effective.Input{
		Applied: s, Files: o.admission.Files, Deleted: r.Deleted, Resume: o.resumes(),
		UnreadPools: r.UnreadPools,
		Thaws:       len(thawing)+len(r.Rollouts) > 0,
	}, limits)

	guards := r.guards()
	guards.Freezes = o.freezes
	freed, explained := guard.Release(s, guards)
	o.placed, err = place.Compute(place.Input{
		Applied: s, Declared: o.declared, Revision: r.Revision, Deleted: r.Deleted, Freed: freed,
		Freezes: o.freezes, Resumes: o.resumes(), Thawing: thawing, Steps: r.Rollouts,
		Rollbacks: r.Rollbacks,
		Moves:     r.Moves, Carry: o.carry, Evacuated: r.Evacuated, Readmit: r.Readmit,
		Unread: r.Unread, SilentAgents: r.SilentAgents, Reported: r.Reported,
		UnreadPools: r.UnreadPools, Undecided: r.Undecided,
		Recovered: r.Recovered, Now: r.Now,
	})
	if err != nil {
		return err
	}
	verdicts := guard.Judge(s, o.placed.Unwanted, o.admission.Released, guards)
	o.diff, err = diff.Compute(diff.Input{
		Applied: s, Declared: o.declared, Placed: o.placed, Verdicts: verdicts,
		Explained: explained,
		Revision:  r.Revision, Now: r.Now, Freezes: o.freezes, Renderer: o.render, ArgoCD: r.ArgoCD,
		Recovered: r.Recovered,
	})
	if err != nil {
		return err
	}
	if rejected := slices.Concat(o.diff.Rejected, o.placed.Sharing); len(rejected) > 0 {
		limits.Reject(rejected)
		return nil
	}
	if len(o.diff.Failures) > 0 {
		return limits.Refuse(o.declared, o.diff.Failures)
	}
	before := limits.Size()
	limits.Defer(o.declared, o.placed.Layers)
	if limits.Size() == before {
		limits.Recheck(o.declared, o.placed.Placements)
		limits.RecheckAdoptions(o.declared)
		limits.RecheckSharing(
			o.declared, o.placed.Loosened.Repositories, o.placed.Loosened.Tenants)
		limits.RecheckArtifacts(o.declared, o.placed.Placements, r.Upgraded)
	}
	return nil
}

// carry returns a manifest of the request as another engine gets it.
func (o *outcome) carry(hash string, to fleet.ObjectKey, tenant fleet.TenantName) (
	fleet.Manifest, error) {
	m, known := o.request.Manifests[hash]
	on := o.declared.After.Engine(to.Engine)
	if !known || on == nil {
		return m, fmt.Errorf("its manifest or engine %s is not known; repeat this later", to.Engine)
	}
	return o.render.Retarget(*on.Engine, to.Engine, tenant, m)
}

// resumes reports whether the plan is the first after a rebuild: objects of an earlier mirror
// exist, or may exist on an engine that was not read.
func (o *outcome) resumes() bool {
	s, r := o.base.state, o.request
	known := len(s.Placements.Base()) + len(s.SyncHolds.Base())
	unknown := len(r.Unread) + len(r.SilentAgents) + len(r.UnreadPools)
	return !s.Started() && known+unknown+len(r.Reported) > 0
}

// Touches returns the paths of the declarations that the plan was asked to change, sorted, the
// quarantined ones included.
func (p *Plan) Touches() []string {
	var paths []string
	for _, f := range p.outcome.admission.Files {
		paths = append(paths, f.Path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
