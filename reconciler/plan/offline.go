package plan

import (
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/diff"
)

// Offline returns the plan of `argosy render`: every object that each engine would get from these
// declarations, with nothing applied before. Environments are placed from nothing, so the control
// plane may have placed them elsewhere. An empty engine means all engines. The declarations' own
// policies judge them.
func Offline(files []catalog.Input, engine fleet.EngineName, judge catalog.Judge,
	render engine.Renderer) (*Plan, error) {
	p, err := NewAppliedState().Judging(judge).Compute(
		Request{Files: files, Relation: mirror.RelationDescendant},
		render)
	if err != nil {
		return nil, err
	}
	if engine == "" {
		return p, nil
	}
	own := slices.ContainsFunc(p.Placements, func(pl fleet.Placement) bool {
		return engine.OfEnvironment() && pl.Engine == engine
	})
	if !own && p.outcome.declared.After.Engine(engine) == nil {
		return nil,
			fmt.Errorf(
				"engine %s is not declared; fleet/engines/ declares %v, and TENANT.ENVIRONMENT "+
					"is an environment's own cluster with an agent", engine,
				p.outcome.declared.After.Engines())
	}
	p.Rows = slices.DeleteFunc(p.Rows, func(c diff.RowChange) bool {
		return c.Row.Key.Engine != engine
	})
	p.Placements = slices.DeleteFunc(p.Placements, func(pl fleet.Placement) bool {
		return pl.Engine != engine
	})
	return p, nil
}
