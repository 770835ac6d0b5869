package plan

import (
	"slices"

	"argosy.dev/argosy/fleet"
)

// Effects is what the plan does, object by object and free of times and words: what reviewers saw
// is held against what is applied. A held deletion is one too, and so is each that a revision would
// ask for that waits as a whole. Sorted as the rows are.
func (p *Plan) Effects() []fleet.Effect {
	out := make([]fleet.Effect, 0, len(p.Rows))
	for _, c := range p.Rows {
		out = append(out, effect(c.Row, c.Action == Delete || c.Action == Hold))
	}
	return append(out, p.awaited...)
}

func effect(r fleet.Row, deletes bool) fleet.Effect {
	e := fleet.Effect{Key: r.Key, Tenant: r.Tenant, Environment: r.Environment,
		Deployment: r.Deployment, Deletes: deletes}
	if !deletes {
		e.Hash = r.Manifest.Hash
	}
	return e
}

// Touches is the paths of the declarations that the plan was asked to change, sorted; those that
// end up in quarantine too.
func (p *Plan) Touches() []string {
	var paths []string
	for _, f := range p.draft.r.Files {
		paths = append(paths, f.Path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
