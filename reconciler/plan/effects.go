package plan

import (
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/report"
)

// Effects returns the plan's changes, object by object, without times and messages, sorted like
// Rows. A merged plan is compared with the effects that reviewers saw. Held deletions are effects
// too, and so are the deletions of a revision that waits as a whole.
func (p *Plan) Effects() []mirror.Effect {
	out := make([]mirror.Effect, 0, len(p.Rows))
	for _, c := range p.Rows {
		out = append(out, effect(c.Row, c.Action == report.Delete || c.Action == report.Hold))
	}
	return append(out, p.outcome.heldEffects...)
}

func effect(r mirror.Row, deletes bool) mirror.Effect {
	e := mirror.Effect{Key: r.Key, Tenant: r.Tenant, Environment: r.Environment,
		Deployment: r.Deployment, Deletes: deletes}
	if !deletes {
		e.Hash = r.Manifest.Hash
	}
	return e
}
