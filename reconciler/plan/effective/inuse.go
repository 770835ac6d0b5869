package effective

import (
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/report"
)

// inUse returns the problem of a change that would take an engine away from existing objects: an
// engine's removal or replacement, or an environment's change from one Argo CD to another.
func (d *Declarations) inUse(c catalog.Change, deleted []fleet.ObjectKey) (fleet.Problem, bool) {
	switch {
	case c.Before == nil:
	case c.Key.Kind == fleet.KindManagedEnvironment && c.After == nil:
	case c.Key.Kind == fleet.KindManagedEnvironment:
		id := applied.EnvironmentID(c.Key)
		if to, leaves := d.leaving(id, deleted); leaves &&
			!sameAddress(c.Before.Environment, c.After.Environment) {
			return environmentMoving(d.head(c.Key), to), true
		}
		if sameConnection(c.Before.Environment, c.After.Environment) {
			n, used := d.namespaceInUse(c, fleet.AgentEngine(id), deleted)
			return applicationNamespaceInUse(d.head(c.Key), "spec.agent.applicationNamespaces",
				n), used
		}
		if handsOver(c.Before.Environment, c.After.Environment) {
			return fleet.Problem{}, false // see Limits.keepConnections
		}
		if n := d.existing(id, deleted); n > 0 {
			return environmentInUse(d.head(c.Key), n, c.Before.Environment, c.After.Environment),
				true
		}
	case c.Key.Kind == fleet.KindEngine:
		name := fleet.EngineName(c.Key.Name)
		if !sameInstance(c.Before, c.After) && d.serving(name, deleted) {
			return d.engineInUse(d.head(c.Key), name), true
		}
		if n, used := d.namespaceInUse(c, name, deleted); used {
			return applicationNamespaceInUse(d.head(c.Key), "spec.applicationNamespaces", n), true
		}
	}
	return fleet.Problem{}, false
}

// unread returns the problem of a change that would forget instances of a pool on clusters which
// were not read since a rebuild.
func (d *Declarations) unread(c catalog.Change, pools []string) (fleet.Problem, bool) {
	if c.Key.Kind != fleet.KindEnginePool || c.Before == nil ||
		!slices.Contains(pools, c.Key.Name) {
		return fleet.Problem{}, false
	}
	i := d.head(c.Key)
	p := fleet.Problem{Key: i.Key, Path: i.Path, Severity: fleet.SeverityError,
		Code: "pool-in-use"}
	if c.After == nil {
		p.Message = "the file is removed, and the instances of the pool are not known since the " +
			"mirror was lost"
		p.Fix = "wait until `argosy describe pool " + c.Key.Name + "` shows its instances"
		return p, true
	}
	for _, on := range c.Before.Pool.Clusters {
		if _, kept := c.After.Pool.Cluster(on.Name); !kept {
			p.Field = "spec.clusters"
			p.Message = fmt.Sprintf("cluster %s is removed, and the instances there are not known "+
				"since the mirror was lost", on.Name)
			p.Fix = "restore it until `argosy describe pool " + c.Key.Name +
				"` shows its instances"
			return p, true
		}
	}
	return fleet.Problem{}, false
}

// sameInstance reports whether a changed engine is still the Argo CD that has the engine's objects.
func sameInstance(before, after *fleet.Declaration) bool {
	if after == nil {
		return false
	}
	a, b := before.Engine, after.Engine
	ref := func(c fleet.Connection) fleet.SecretRef {
		if c.KubeconfigRef == nil {
			return fleet.SecretRef{}
		}
		return *c.KubeconfigRef
	}
	return a.ArgoCD.Same(b.ArgoCD) && a.Connection.InCluster == b.Connection.InCluster &&
		ref(a.Connection) == ref(b.Connection) &&
		(a.Connection.Agent == nil) == (b.Connection.Agent == nil)
}

// serving reports whether an engine serves environments or has objects besides the deleted ones.
func (d *Declarations) serving(name fleet.EngineName, deleted []fleet.ObjectKey) bool {
	if !d.applied.EnvironmentsOn.Empty(name) {
		return true
	}
	left, _ := d.applied.RowsOn.Get(name)
	seen := map[fleet.ObjectKey]bool{}
	for _, k := range deleted {
		if r, ok := d.applied.Rows.Get(k); ok && r.Unwanted && k.Engine == name && !seen[k] {
			seen[k] = true
			left--
		}
	}
	return left > 0
}

func (d *Declarations) engineInUse(i catalog.Input, name fleet.EngineName) fleet.Problem {
	n := d.applied.EnvironmentsOn.Size(name)
	p := fleet.Problem{Key: i.Key, Path: i.Path, Severity: fleet.SeverityError,
		Code: "engine-in-use"}
	serves := fmt.Sprintf("engine %s serves %s", name, report.Count(n, "environment"))
	if n == 0 {
		left, _ := d.applied.RowsOn.Get(name)
		serves = fmt.Sprintf("%s of engine %s %s not removed yet",
			report.Count(left, "object"), name, report.Plural(left, "is", "are"))
	}
	if i.Removed {
		p.Message = serves + ": its declaration stays in effect until they are removed"
		p.Fix =
			"restore the file; to empty the engine set spec.state: Draining, and remove the file " +
				"when `argosy get engines` shows the drain as Empty"
		return p
	}
	p.Field = "spec.argocd"
	p.Message = serves + ": its argocd section and connection cannot change under them"
	p.Fix = "restore spec.argocd and spec.connection, or declare the new instance as another engine"
	return p
}

// givenBy returns the namespaces with Applications that an Engine gives to tenants, or an
// environment with an agent to its own one.
func givenBy(d *fleet.Declaration) []fleet.ApplicationNamespace {
	switch {
	case d == nil:
	case d.Engine != nil:
		return d.Engine.ApplicationNamespaces
	case d.Environment != nil:
		return d.Environment.Agent.Given(d.Key.Tenant)
	}
	return nil
}

// namespaceInUse returns a namespace that a changed declaration of an engine no longer gives to a
// tenant with Applications that it has adopted from there, or that may not be released yet: without
// the right, their AppProject would reject them, and Argo CD could not delete them.
func (d *Declarations) namespaceInUse(c catalog.Change, engine fleet.EngineName,
	deleted []fleet.ObjectKey) (fleet.ApplicationNamespace, bool) {
	after := givenBy(c.After)
	for _, n := range givenBy(c.Before) {
		if slices.Contains(after, n) {
			continue
		}
		for _, id := range d.applied.Catalog.Adopters(n.Namespace + "/") {
			dep := d.applied.Catalog.Deployment(id)
			if dep != nil && id.Tenant == n.Tenant && d.adoptsOn(dep, engine, n.Namespace) {
				return n, true
			}
		}
		used := false
		d.applied.Terminating.Each(func(k fleet.ObjectKey, t applied.Terminating) {
			used = used || k.Engine == engine && t.Application.Tenant == n.Tenant &&
				!slices.Contains(deleted, k)
		})
		d.applied.Held.Each(func(id fleet.ApplicationID, h applied.Held) {
			used = used || id.Tenant == n.Tenant && d.adoptsOn(h.Deployment, engine, n.Namespace)
		})
		if used {
			return n, true
		}
	}
	return fleet.ApplicationNamespace{}, false
}

// adoptsOn reports whether a deployment adopts an Application in a namespace of an engine.
func (d *Declarations) adoptsOn(dep *fleet.Declaration, engine fleet.EngineName,
	namespace string) bool {
	return slices.ContainsFunc(dep.Deployment.Adopt, func(a fleet.Adoption) bool {
		in, _ := fleet.SplitObject(a.Application)
		placement, _ := d.applied.PlacementOf(fleet.ApplicationID{Tenant: dep.Key.Tenant,
			Environment: a.Environment, Deployment: fleet.DeploymentName(dep.Key.Name)})
		return in == namespace && placement.Engine == engine
	})
}

func applicationNamespaceInUse(i catalog.Input, field string,
	n fleet.ApplicationNamespace) fleet.Problem {
	return fleet.Problem{Key: i.Key, Path: i.Path, Severity: fleet.SeverityError,
		Code: "engine-in-use", Field: field,
		Message: fmt.Sprintf("tenant %s has adopted Applications of namespace %q, or its "+
			"deletions have not ended", n.Tenant, n.Namespace),
		Fix: "restore the entry; to take the namespace back, have the Applications released " +
			"first (deletionPolicy: Release)"}
}

// sameConnection reports whether a changed environment keeps the connection that applies its
// Applications. A new address of a cluster that an engine reaches is the same connection: the
// engine keeps its objects.
func sameConnection(before, after *fleet.EnvironmentSpec) bool {
	if (before.Agent == nil) != (after.Agent == nil) ||
		(before.Cluster == nil) != (after.Cluster == nil) {
		return false
	}
	return sameAgent(before, after)
}

// sameAgent reports whether two declarations that both have an agent have it in the same Argo CD.
func sameAgent(before, after *fleet.EnvironmentSpec) bool {
	return before.Agent == nil || after.Agent == nil ||
		before.Agent.Namespace() == after.Agent.Namespace() &&
			before.Agent.Autonomous() == after.Agent.Autonomous()
}

// handsOver reports whether a change adds or removes a connection under which Applications can
// move: both connections are in effect until they have. Nothing is deployed by an autonomous agent,
// and no other engine serves the cluster of an engine.
func handsOver(before, after *fleet.EnvironmentSpec) bool {
	for _, s := range []*fleet.EnvironmentSpec{before, after} {
		if s.Agent.Autonomous() || s.OnEngine() != "" {
			return false
		}
	}
	return sameAgent(before, after) && !sameConnection(before, after)
}

// drops reports whether Applications of an environment are on an engine to which a change has no
// connection any more.
func (d *Declarations) drops(c catalog.Change, deleted []fleet.ObjectKey) bool {
	if c.Key.Kind != fleet.KindManagedEnvironment || c.Before == nil || c.After == nil ||
		!handsOver(c.Before.Environment, c.After.Environment) {
		return false
	}
	for _, pl := range d.applied.PlacementsOf(applied.EnvironmentID(c.Key)) {
		for _, engine := range []fleet.EngineName{pl.Engine, pl.From} {
			if engine != "" && !c.After.Environment.ReachedBy(engine) &&
				d.existingIn(pl.ID(), []fleet.EngineName{engine}, deleted) > 0 {
				return true
			}
		}
	}
	return false
}

// sameAddress reports whether a changed environment keeps the address of its cluster. A change from
// or to an agent of its own is another matter: see sameConnection.
func sameAddress(before, after *fleet.EnvironmentSpec) bool {
	return before.Cluster == nil || after.Cluster == nil || sameServer(before, after)
}

// Waiting returns a warning for each environment of a plan whose cluster changes only once its
// terminating Applications are deleted: Argo CD finds their workloads at the present address only.
func (d *Declarations) Waiting(after *applied.Layers) []fleet.Problem {
	var out []fleet.Problem
	for _, k := range d.After.Checked() {
		x, deferred := d.Deferred[k]
		if !deferred || k.Kind != fleet.KindManagedEnvironment || x.Input.Declaration == nil {
			continue
		}
		now := d.After.Environment(applied.EnvironmentID(k))
		if now == nil {
			continue
		}
		if handsOver(now.Environment, x.Input.Declaration.Environment) {
			if from, left := unreached(after, x.Input.Declaration); left > 0 {
				out = append(out, environmentSwitching(x.Input, from, left))
				continue
			}
		} else if sameAddress(now.Environment, x.Input.Declaration.Environment) {
			continue
		}
		if _, quarantined := d.After.Quarantine(k); quarantined {
			continue // for a move, with that reason
		}
		n := 0
		after.Terminating.Each(func(_ fleet.ObjectKey, t applied.Terminating) {
			if t.Application.In() == applied.EnvironmentID(k) {
				n++
			}
		})
		why := ""
		after.Frozen.Each(func(id fleet.ApplicationID, f applied.Frozen) {
			if id.In() == applied.EnvironmentID(k) && (why == "" || f.Why < why) {
				why = f.Why
			}
		})
		after.Rollouts.Each(func(of fleet.DeploymentID, r mirror.Rollout) {
			i := r.Member(fleet.EnvironmentName(k.Name))
			if of.Tenant == k.Tenant && i >= 0 && r.Members[i].State.Changed() && why == "" {
				why = fmt.Sprintf("the rollout of %s may return it", of)
			}
		})
		if n == 0 && why != "" {
			out = append(out, environmentFrozen(x.Input, why))
			continue
		}
		out = append(out, environmentDeleting(x.Input, n))
	}
	return out
}

// unreached returns the first engine with Applications of an environment to which the declaration
// has no connection, and how many there are besides terminating ones.
func unreached(after *applied.Layers, d *fleet.Declaration) (on fleet.EngineName, left int) {
	for _, pl := range after.PlacementsOf(applied.EnvironmentID(d.Key)) {
		for _, engine := range []fleet.EngineName{pl.Engine, pl.From} {
			if engine == "" || d.Environment.ReachedBy(engine) {
				continue
			}
			left = after.ApplicationsIn.Count(pl.ID(), engine)
			if engine == pl.Engine {
				after.Terminating.Each(func(k fleet.ObjectKey, t applied.Terminating) {
					if k.Engine == engine && t.Application.In() == pl.Environment &&
						pl.ID().Holds(t.Application) {
						left--
					}
				})
			}
			if left > 0 {
				return engine, left
			}
		}
	}
	return "", 0
}

// environmentSwitching warns that Applications of an environment are still on an engine of its
// former connection.
func environmentSwitching(i catalog.Input, from fleet.EngineName, n int) fleet.Problem {
	p := fleet.Problem{Key: i.Key, Path: i.Path, Severity: fleet.SeverityWarning,
		Code: "environment-in-use", Field: "spec.cluster"}
	id := applied.EnvironmentID(i.Key)
	exist := fmt.Sprintf("%s of environment %s %s", report.Count(n, "Application"), i.Key.Name,
		report.Plural(n, "is", "are"))
	if from.OfEnvironment() {
		p.Message = exist + " still applied by the agent on its cluster, which stays in effect " +
			"beside spec.cluster until they have moved"
		p.Fix = fmt.Sprintf("move them: argosy move environment %s --to ENGINE", id)
		return p
	}
	p.Field = "spec.agent"
	p.Message = fmt.Sprintf("%s still on engine %s: the former spec.cluster stays in effect beside "+
		"the agent until they have moved", exist, from)
	p.Fix = fmt.Sprintf("let the agent join (argosy agent token create %s), and move "+
		"them: argosy move environment %s --to %s", id, id, fleet.AgentEngine(id))
	return p
}

func environmentFrozen(i catalog.Input, why string) fleet.Problem {
	return fleet.Problem{Key: i.Key, Path: i.Path, Severity: fleet.SeverityWarning,
		Code: "environment-in-use", Field: "spec.cluster",
		Message: fmt.Sprintf("the change of the cluster waits, since a change of an Application in "+
			"environment %s waits or may return: %s", i.Key.Name, why),
		Fix: "wait for the end, or decide about it (argosy get holds, argosy get rollouts)"}
}

func environmentDeleting(i catalog.Input, n int) fleet.Problem {
	return fleet.Problem{Key: i.Key, Path: i.Path, Severity: fleet.SeverityWarning,
		Code: "environment-in-use", Field: "spec.cluster",
		Message: fmt.Sprintf("the change of the cluster waits until %s in environment %s %s "+
			"deleted: Argo CD finds their workloads at the present address", report.Count(n,
			"Application"), i.Key.Name, report.Plural(n, "is", "are")),
		Fix: "wait for the deletions (argosy get applications --environment " + i.Key.Name +
			"); if one never ends because its cluster does not answer at the present address, end " +
			"it with argosy abandon"}
}

// leaving reports whether an environment moves and its former engine still has Applications of it,
// besides the deleted ones. They keep their destination, and with it the address of the cluster.
func (d *Declarations) leaving(id fleet.EnvironmentID, deleted []fleet.ObjectKey) (
	to fleet.EngineName, leaves bool) {
	for _, pl := range d.applied.PlacementsOf(id) {
		if pl.From != "" && d.existingIn(pl.ID(), []fleet.EngineName{pl.From}, deleted) > 0 {
			return pl.Engine, true
		}
	}
	return "", false
}

func environmentMoving(i catalog.Input, to fleet.EngineName) fleet.Problem {
	return fleet.Problem{Key: i.Key, Path: i.Path, Severity: fleet.SeverityError,
		Code: "environment-in-use", Field: "spec.cluster",
		Message: fmt.Sprintf("environment %s is moving to engine %s, and both engines need the "+
			"present address of its cluster", i.Key.Name, to),
		Fix: "keep the address until the move has ended (argosy describe move); the change waits " +
			"for that"}
}

// existing counts the Applications of an environment without the deleted ones.
func (d *Declarations) existing(id fleet.EnvironmentID, deleted []fleet.ObjectKey) int {
	n := 0
	for _, pl := range d.applied.PlacementsOf(id) {
		n += d.existingIn(pl.ID(), []fleet.EngineName{pl.Engine, pl.From}, deleted)
	}
	return n
}

// existingIn counts the Applications of a slice on engines without the deleted ones.
func (d *Declarations) existingIn(id fleet.SliceID, engines []fleet.EngineName,
	deleted []fleet.ObjectKey) (n int) {
	for _, engine := range engines {
		n += d.applied.ApplicationsIn.Count(id, engine)
	}
	seen := map[fleet.ObjectKey]bool{}
	for _, k := range deleted {
		if !slices.Contains(engines, k.Engine) || k.Kind != fleet.ObjectApplication || seen[k] {
			continue
		}
		if r, ok := d.applied.Rows.Get(k); ok && r.Unwanted && r.Application().In() == id.In() &&
			id.Holds(r.Application()) {
			seen[k] = true
			n--
		}
	}
	return n
}

// environmentInUse explains why an environment keeps its connection. Its Applications would go from
// one Argo CD to another that does not know the first one: a workload would have two, or none.
func environmentInUse(i catalog.Input, n int, before, after *fleet.EnvironmentSpec) fleet.Problem {
	p := fleet.Problem{
		Key: i.Key, Path: i.Path, Severity: fleet.SeverityError, Code: "environment-in-use",
		Field: "spec.agent",
	}
	exist := fmt.Sprintf("%s %s in environment %s",
		report.Count(n, "Application"), report.Plural(n, "exists", "exist"), i.Key.Name)
	switch {
	case after.Agent == nil:
		p.Field = "spec.cluster"
		p.Message = exist + ", applied by the agent on it: no engine takes them over"
	case before.Agent == nil:
		p.Message = exist + ", applied by an engine that reaches it: no agent takes them over"
	case after.Agent.Autonomous() != before.Agent.Autonomous():
		p.Field = "spec.agent.mode"
		p.Message = exist + ": its mode cannot change under them"
	default:
		p.Field = "spec.agent.argocdNamespace"
		p.Message = exist + ", in namespace " + before.Agent.Namespace() +
			": another Argo CD does not take them over"
	}
	p.Fix = "restore the file; or keep the change, set deletionPolicy: Orphan in the deployments " +
		"of the environment, remove them, and declare them again once the change is in effect: " +
		"it waits until their Applications are deleted, and the workloads run on"
	if before.Agent == nil {
		p.Fix += ". To serve the environment from behind a firewall, an Engine with an agent " +
			"takes it by argosy move environment"
	}
	return p
}
