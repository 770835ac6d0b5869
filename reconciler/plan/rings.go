package plan

import (
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler/plan/report"
)

// rings returns the rings of which an engine gets another Argo CD or agent after the plan. It goes
// by the declarations: an engine of a halted ring may run an earlier version.
func (p *Plan) rings() (all []report.Ring) {
	if !slices.ContainsFunc(p.Declarations, func(c catalog.Change) bool {
		return slices.Contains([]fleet.Kind{fleet.KindFleet, fleet.KindEngine,
			fleet.KindEnginePool, fleet.KindTenant}, c.Key.Kind)
	}) {
		return nil
	}
	before, after := &p.outcome.base.state.Catalog.View, &p.outcome.declared.After.View
	was, is := before.Fleet(), after.Fleet()
	following, agents := after.Following(), after.AgentsFollowing()
	agentsBefore := agentsOf(&was, before.AgentsFollowing())
	for _, declared := range is.Rings {
		d := declared.OrDefaults()
		d.Soak = is.SoakOf(d)
		r := report.Ring{Name: d.Name, Version: d.Version, Digest: d.Manifests.Digest,
			AtOnce: d.AtOnce, Soak: d.Soak, SkipShadow: d.Gates.SkipShadow,
			Differences: d.Gates.Differences}
		for _, name := range following[d.Name] {
			e := report.RingEngine{Name: name,
				Behind: after.Engine(name).Engine.Connection.Agent != nil}
			var had fleet.Ring
			if b := before.Engine(name); b != nil && b.Engine.ArgoCD.Managed {
				had, _ = was.RingNamed(b.Engine.RingName())
				e.From, e.FromDigest = had.Version, had.Manifests.Digest
			}
			agent := e.Behind && d.Agent != nil && (had.Agent == nil || *had.Agent != *d.Agent)
			if agent {
				r.AgentVersion = d.Agent.Version
			}
			if agent || e.FromDigest != r.Digest {
				r.Engines = append(r.Engines, e)
			}
		}
		if d.Agent != nil {
			for _, name := range agents[d.Name] {
				if agentsBefore[name] != *d.Agent {
					r.AgentVersion = d.Agent.Version
					r.Engines = append(r.Engines, report.RingEngine{Name: name, Behind: true,
						AgentOnly: true})
				}
			}
		}
		if len(r.Engines) == 0 {
			continue
		}
		if n := len(all); n > 0 {
			r.After = all[n-1].Name
		}
		all = append(all, r)
	}
	return all
}

// agentsOf returns the declared version of each agent that follows a ring alone.
func agentsOf(f *fleet.FleetSpec,
	following map[string][]fleet.EngineName) map[fleet.EngineName]fleet.RingAgent {
	all := map[fleet.EngineName]fleet.RingAgent{}
	for ring, names := range following {
		d, ok := f.RingNamed(ring)
		for _, e := range names {
			if ok && d.Agent != nil {
				all[e] = *d.Agent
			}
		}
	}
	return all
}
