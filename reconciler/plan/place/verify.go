package place

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// verify checks the placements that the revision touches. A placement that no longer complies is
// reported and stays: only a move changes it.
func (p placer) verify() {
	var engines []placement.Engine
	touched := slices.SortedFunc(maps.Keys(p.out.Environments), applied.CompareEnvironments)
	for _, env := range touched {
		for _, pl := range p.PlacementsOf(env) {
			id := pl.ID()
			if pl.Engine == "" || p.after.Environment(env) == nil {
				continue
			}
			if Agent(&p.after.View, env) {
				p.updateReason(env, pl)
				continue
			}
			why := p.misplacement(id, pl.Engine)
			base, known := p.Applied.Placements.Get(id)
			if why == pl.Misplaced && !(known && p.recovered(id, base)) {
				continue
			}
			pl.Misplaced = why
			p.Placements.Set(id, pl)
			if fresh, ok := p.out.Placements[id]; ok {
				pl.Alternatives = fresh.Alternatives
			} else {
				if engines == nil {
					engines = p.candidates()
				}
				pl.Alternatives = p.alternatives(id, pl.Engine, engines)
			}
			p.out.Placements[id] = pl
		}
	}
	p.outgrow()
	for id, pl := range p.out.Placements {
		if pl.Engine != "" && pl.Alternatives == nil {
			if engines == nil {
				engines = p.candidates()
			}
			pl.Alternatives = p.alternatives(id, pl.Engine, engines)
			p.out.Placements[id] = pl
		}
	}
}

// updateReason changes the reason of an agent's environment whose mode changed.
func (p placer) updateReason(id fleet.EnvironmentID, pl fleet.Placement) {
	now := onOwnCluster(id, p.after.Environment(id).Environment, pl.Applications)
	if now.Reason == pl.Reason {
		return
	}
	now.Revision = p.Revision
	p.out.Placements[id.Whole()] = now
	now.Alternatives = nil
	p.Placements.Set(id.Whole(), now)
}

// misplacement explains why the engine would not be given the environment today, or returns "".
func (p placer) misplacement(id fleet.SliceID, on fleet.EngineName) string {
	if why := p.unreached(id.In(), on); why != "" || on.OfEnvironment() {
		return why
	}
	e := p.after.Engine(on)
	if e == nil {
		return fmt.Sprintf("engine %s is not declared", on)
	}
	engine := placement.Engine{Name: on, Labels: e.Labels, Spec: *e.Engine}
	why := placement.Verify(p.item(id), engine)
	if why == "" {
		why = p.cannotReach(id.In(), on)
	}
	if why == "" {
		why = p.credentialConflict(id.In(), on)
	}
	if why == "" {
		return ""
	}
	return fmt.Sprintf("engine %s %s", on, why)
}

// unreached explains that the environment's declaration waits until its Applications have left an
// engine to which it has no connection any more, or returns "".
func (p placer) unreached(id fleet.EnvironmentID, on fleet.EngineName) string {
	x, waits := p.Declared.Deferred[applied.EnvironmentKey(id)]
	switch d := x.Input.Declaration; {
	case !waits || d == nil || d.Environment.ReachedBy(on):
		return ""
	case on.OfEnvironment():
		return "its cluster is declared to be reached by an engine (spec.cluster), and its agent " +
			"still serves it"
	}
	return fmt.Sprintf("its cluster is declared to have an agent of its own (spec.agent), and engine "+
		"%s still serves it", on)
}

// alternatives judges the engines as if the environment had none yet.
func (p placer) alternatives(
	id fleet.SliceID, on fleet.EngineName, engines []placement.Engine,
) []fleet.Alternative {
	without := slices.Clone(engines)
	for i := range without {
		if without[i].Name == on {
			without[i].Load.Environments--
			without[i].Load.Applications -= p.ApplicationsIn.Count(id, on)
		}
	}
	return placement.Decide(p.item(id), without, p.conflicts(id.In())).Alternatives
}

// findCredentialConflicts finds the repositories whose readers on one engine must not share it,
// from now on or no longer, and touches the environments that read them.
func (p placer) findCredentialConflicts() {
	seen := map[applied.Repo]bool{}
	for r := range p.out.Readers {
		if seen[r.Repo] {
			continue
		}
		seen[r.Repo] = true
		_, was := p.CredentialConflicts.Get(r.Repo)
		switch {
		case p.Conflicting(r.Repo):
			p.CredentialConflicts.Set(r.Repo, struct{}{})
		case was:
			p.CredentialConflicts.Delete(r.Repo)
		default:
			continue
		}
		p.touchReaders(r.Repo)
	}
}

func (p placer) credentialConflict(id fleet.EnvironmentID, engine fleet.EngineName) string {
	var found []string
	p.CredentialConflicts.Each(func(r applied.Repo, _ struct{}) {
		reads := p.ReadIn.Count(applied.Reader{Repo: r, Tenant: id.Tenant}, id.Name) > 0
		if r.Engine == engine && reads && p.separated(applied.Reader{Repo: r, Tenant: id.Tenant}) {
			found = append(found, r.Key)
		}
	})
	if len(found) == 0 {
		return ""
	}
	slices.Sort(found)
	return "serves another tenant that reads " + strings.Join(found, " and ") +
		", and one of the two has a credential of its own"
}

// separated reports whether a reader must not share its engine with another one of the repository.
func (p placer) separated(r applied.Reader) bool {
	return p.Separated(r, p.PrivateReaders.Count(r.Repo, r.Tenant) > 0)
}
