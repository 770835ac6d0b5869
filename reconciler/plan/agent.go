package plan

import (
	"fmt"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// An environment with an agent deploys to itself: its engine is its own cluster, by its declaration
// alone. Nothing is decided, so that nothing is to be found again after a rebuild either: the rows
// are made anew, and the agent finds that it has them.

const (
	ownManaged    = "its own cluster: the agent on it applies"
	ownAutonomous = "its own cluster: its own Applications are the truth, and the agent on it shows them"
)

// own is the placement of an environment with an agent.
func own(id fleet.EnvironmentID, spec *fleet.EnvironmentSpec, applications int) fleet.Placement {
	p := fleet.Placement{Environment: id, Engine: fleet.AgentEngine(id), Reason: ownManaged,
		Alternatives: []fleet.Alternative{}, Applications: applications}
	if spec.Agent.Autonomous() {
		p.Reason = ownAutonomous
	}
	return p
}

// reword keeps the reason that stands what it would be today: the mode may have changed.
func (d *draft) reword(id fleet.EnvironmentID, p fleet.Placement) {
	if now := own(id, d.changeset.Environment(id).Environment, p.Applications); now.Reason != p.Reason {
		now.Revision = d.r.Revision
		d.decided[id] = now
		now.Alternatives = nil
		d.placements.set(id, now)
	}
}

// behindAgent reports whether an environment in effect has an agent.
func behindAgent(view catalog.View, id fleet.EnvironmentID) bool {
	env := view.Environment(id)
	return env != nil && env.Environment.Agent != nil
}

// serverKey is the environment's API server as its engine knows it: an agent's own Argo CD knows
// the cluster that it runs on by one name.
func serverKey(spec *fleet.EnvironmentSpec, id fleet.EnvironmentID) string {
	if spec.Cluster == nil {
		return fleet.InClusterServer
	}
	return fleet.ServerKey(spec.Cluster.Server, id)
}

// engineFor is the engine that a tenant's objects are rendered for: a declared one, or the own
// cluster of the environment that is placed on it; nil when it is not in effect.
func (s *state) engineFor(view catalog.View, name fleet.EngineName,
	t fleet.TenantName) *fleet.EngineSpec {
	if !name.OfEnvironment() {
		if d := view.Engine(name); d != nil {
			return d.Engine
		}
		return nil
	}
	for _, env := range s.environments.keys(share{t, name}) {
		if d := view.Environment(fleet.EnvironmentID{Tenant: t, Name: env}); d != nil &&
			d.Environment.Agent != nil {
			e := d.Environment.Agent.Engine(d.Environment.Region)
			return &e
		}
	}
	return nil
}

// engine is what the objects of this draft are rendered for. What still stands in an environment
// that the draft has let go is rendered as it was: the draft is made again without that (see
// withhold).
func (d *draft) engine(name fleet.EngineName, t fleet.TenantName) *fleet.EngineSpec {
	if e := d.engineFor(d.changeset, name, t); e != nil || !name.OfEnvironment() {
		return e
	}
	return d.engineFor(d.w.catalog, name, t)
}

// shut reports whether an engine is the cluster of an autonomous environment of the tenant: nothing
// is made there.
func (d *draft) shut(s share) bool {
	if !s.engine.OfEnvironment() {
		return false
	}
	for _, env := range d.environments.keys(s) {
		if e := d.changeset.Environment(fleet.EnvironmentID{Tenant: s.tenant, Name: env}); e != nil &&
			!e.Environment.Agent.Autonomous() {
			return false
		}
	}
	return true
}

// sameConnection reports whether a changed environment is reached in the way in which its
// Applications are. Another address of a cluster that an engine reaches is the same way: the engine
// goes on with the same objects.
func sameConnection(before, after *fleet.EnvironmentSpec) bool {
	if (before.Agent == nil) != (after.Agent == nil) {
		return false
	}
	return before.Agent == nil || before.Agent.Namespace() == after.Agent.Namespace() &&
		before.Agent.Autonomous() == after.Agent.Autonomous()
}

// inhabited counts the Applications that stand in an environment when what is gone is gone.
func (w *AppliedState) inhabited(id fleet.EnvironmentID, gone []fleet.ObjectKey) int {
	engine := w.placements.base[id].Engine
	n := w.standing.count(id, engine)
	seen := map[fleet.ObjectKey]bool{}
	for _, k := range gone {
		r, ok := w.rows.base[k]
		if ok && r.absent && k.Engine == engine && k.Kind == fleet.ObjectApplication &&
			r.application().In() == id && !seen[k] {
			seen[k] = true
			n--
		}
	}
	return n
}

// environmentInUse says why an environment keeps its connection. Its Applications would go from one
// Argo CD to another that cannot know of the first one: there would be two for one workload, or
// none.
func environmentInUse(i catalog.Input, n int, before, after *fleet.EnvironmentSpec) fleet.Problem {
	p := fleet.Problem{Key: i.Key, Path: i.Path, Severity: fleet.SeverityError,
		Code: "environment-in-use", Field: "spec.agent"}
	stand := fmt.Sprintf("%s %s in environment %s", count(n, "Application"),
		plural(n, "stands", "stand"), i.Key.Name)
	switch {
	case after.Agent == nil:
		p.Field = "spec.cluster"
		p.Message = stand + ", applied by the agent on it: no engine takes them over"
	case before.Agent == nil:
		p.Message = stand + ", applied by an engine that reaches it: no agent takes them over"
	case after.Agent.Autonomous() != before.Agent.Autonomous():
		p.Field = "spec.agent.mode"
		p.Message = stand + ": its mode cannot change under them"
	default:
		p.Field = "spec.agent.argocdNamespace"
		p.Message = stand + ", in namespace " + before.Agent.Namespace() +
			": another Argo CD does not take them over"
	}
	p.Fix =
		"restore the file and declare another environment beside it, to which the deployments " +
			"go; or remove its deployments first: the change waits until their Applications are gone"
	return p
}

// leave takes an environment off the engine of the connection that it no longer has. Nothing stands
// there any more but what served it.
func (d *draft) leave(id fleet.EnvironmentID) {
	p, _ := d.placements.get(id)
	if p.Engine == "" || p.Engine.OfEnvironment() == behindAgent(d.changeset, id) {
		return
	}
	d.place(id, p.Engine, -1)
	d.touchedShares[share{id.Tenant, p.Engine}] = true
	d.delete(fleet.ObjectKey{Engine: p.Engine, Kind: fleet.ObjectCluster,
		Name: fleet.ClusterName(id)})
	d.misplaced.drop(id)
	d.placements.drop(id)
	d.retry = true
}
