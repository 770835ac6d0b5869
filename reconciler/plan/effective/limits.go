package effective

import (
	"errors"
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// Limits is what the rounds of one plan found out about each other: each round lets less of the
// head in. They only grow, by at least one key a round, and there are no more keys than
// declarations: so a plan converges.
type Limits struct {
	deferred map[fleet.Key]applied.Deferred // changes that would remove something still in use
	refused  map[fleet.Key]fleet.Problem    // changes that no object can be rendered from
	recheck  map[fleet.Key]bool             // unchanged declarations that need new problems
}

// NewLimits returns the limits of a first round: none.
func NewLimits() *Limits { return &Limits{} }

// Size measures the progress of a plan's rounds: it grows with every round but the last.
func (l *Limits) Size() int { return len(l.deferred) + len(l.refused) + len(l.recheck) }

// Defer adds the changes of d that would remove something that an Application still needs: one that
// terminates or whose deletion is held after the round. It costs the changes that remove something,
// and for those what terminates or is held.
func (l *Limits) Defer(d *Declarations, after *applied.Layers) {
	var left map[fleet.TenantName][]leftover
	for _, c := range d.Changes {
		if !removes(c) {
			continue
		}
		if left == nil {
			left = leftovers(after)
		}
		if needed(c, left[applied.TenantOf(c.Key)]) {
			l.deferChange(d, c)
		}
	}
}

// keepConnections adds the environments whose change drops a connection that Applications are
// reached by, and reports whether there are any. They move under both connections, and the change
// takes effect once they have.
func (l *Limits) keepConnections(d *Declarations, deleted []fleet.ObjectKey) (found bool) {
	for _, c := range d.Changes {
		if d.drops(c, deleted) {
			l.deferChange(d, c)
			found = true
		}
	}
	return found
}

func (l *Limits) deferChange(d *Declarations, c catalog.Change) {
	applied.Set(&l.deferred, c.Key, applied.Deferred{
		Input:    d.head(c.Key),
		Removing: c.After == nil && c.Key.Kind == fleet.KindManagedEnvironment,
	})
	if c.After != nil && (c.After.Environment == nil || c.After.Environment.Cluster != nil) {
		return
	}
	// The encrypted credential goes with the object that it opens, not before.
	var sealed fleet.Key
	switch c.Key.Kind {
	case fleet.KindManagedEnvironment:
		cluster := c.Before.Environment.Cluster
		if cluster == nil {
			return // an agent has a credential of its own
		}
		sealed = catalog.SealedKey(c.Key.Tenant, "environments", cluster.CredentialsRef.Name)
	case fleet.KindRepositoryCredential:
		sealed = catalog.SealedKey(c.Key.Tenant, "credentials",
			c.Before.Credential.CredentialsRef.Name)
	}
	for _, other := range d.Changes {
		if _, done := l.deferred[other.Key]; !done && other.Key == sealed && other.After == nil {
			l.deferChange(d, other)
		}
	}
}

// leftover is an Application that still exists as no declaration wants it any more.
type leftover struct {
	id   fleet.ApplicationID
	urls fleet.RepoURLs
}

func leftovers(after *applied.Layers) map[fleet.TenantName][]leftover {
	out := map[fleet.TenantName][]leftover{}
	after.Terminating.Each(func(_ fleet.ObjectKey, t applied.Terminating) {
		out[t.Application.Tenant] = append(out[t.Application.Tenant],
			leftover{t.Application, t.RepoURLs})
	})
	after.Held.Each(func(id fleet.ApplicationID, h applied.Held) {
		urls := h.Deployment.Deployment.RepoURLs()
		out[id.Tenant] = append(out[id.Tenant], leftover{id, urls})
	})
	after.Frozen.Each(func(id fleet.ApplicationID, f applied.Frozen) {
		if f.RepoURLs != "" { // it exists, and needs what it was rendered from
			out[id.Tenant] = append(out[id.Tenant], leftover{id, f.RepoURLs})
		}
	})
	after.Rollouts.Each(func(of fleet.DeploymentID, r mirror.Rollout) {
		for _, m := range r.Members {
			if m.State.Changed() && m.Before != nil { // it may return to what it was
				id := applied.ApplicationID(of, fleet.EnvironmentID{Tenant: of.Tenant,
					Name: m.Environment})
				out[of.Tenant] = append(out[of.Tenant], leftover{id, m.Before.RepoURLs})
			}
		}
	})
	return out
}

func needed(c catalog.Change, left []leftover) bool {
	return slices.ContainsFunc(left, func(x leftover) bool {
		switch c.Key.Kind {
		case fleet.KindManagedEnvironment:
			return x.id.In() == applied.EnvironmentID(c.Key)
		case fleet.KindTenant:
			return true
		case fleet.KindRepositoryCredential:
			for url := range x.urls.All() {
				if fleet.RepoScopeCovers(c.Before.Credential.Scope(), applied.RepoKey(url)) {
					return true
				}
			}
		}
		return false
	})
}

// Recheck adds the environments that get an engine, or another reason for having none, although
// their file did not change: the plan repeats all of their problems.
func (l *Limits) Recheck(d *Declarations, decided map[fleet.SliceID]fleet.Placement) {
	var checked map[fleet.Key]bool
	for id := range decided {
		was, known := d.applied.Placements.Get(id)
		if !known || was.Engine != "" {
			continue
		}
		if checked == nil {
			checked = map[fleet.Key]bool{}
			for _, k := range d.After.Checked() {
				checked[k] = true
			}
		}
		if k := applied.EnvironmentKey(id.In()); !checked[k] {
			applied.Set(&l.recheck, k, true)
		}
	}
}

// CodeAdopted is the code of a deployment that adopts an Application of another declaration.
const CodeAdopted = "already-adopted"

// CodeAdoptNamespace is the code of a deployment that adopts an Application in a namespace that the
// engine does not give to its tenant.
const CodeAdoptNamespace = "adopt-namespace"

// RecheckAdoptions adds the deployments that were rejected with CodeAdopted for an Application that
// another deployment no longer adopts, or no longer wants to, and those with CodeAdoptNamespace for
// a namespace that an engine, or an environment with an agent, now gives.
func (l *Limits) RecheckAdoptions(d *Declarations) {
	for _, c := range d.Changes {
		before := givenBy(c.Before)
		for _, n := range givenBy(c.After) {
			if !slices.Contains(before, n) {
				l.recheckAdopters(d, c.Key, n.Namespace+"/", CodeAdoptNamespace)
			}
		}
	}
	for _, k := range d.After.Checked() {
		if k.Kind != fleet.KindGitOpsDeployment {
			continue
		}
		before := d.applied.Catalog.Declaration(k)
		if q, is := d.applied.Catalog.Quarantine(k); is && q.Declaration != nil {
			l.recheckAdoptersOf(d, k, q.Declaration)
		}
		if before != nil && before != d.After.Declaration(k) {
			l.recheckAdoptersOf(d, k, before)
		}
	}
}

// RecheckSharing adds the declarations that were rejected with catalog.CodeSharedClone and that a
// change may let in: of a repository that lost a reader or the credential of one, or of a tenant
// whose environments, credentials or placements changed. An environment may concern any repository.
func (l *Limits) RecheckSharing(d *Declarations, repositories map[string]bool,
	tenants map[fleet.TenantName]bool,
) {
	if len(repositories)+len(tenants) == 0 {
		return
	}
	for _, k := range d.After.SharingClones() {
		q, quarantined := d.After.Quarantine(k)
		_, again := l.refused[k]
		if quarantined && !again && q.Declaration != nil &&
			(tenants[k.Tenant] || concerns(q.Declaration, repositories)) {
			applied.Set(&l.recheck, k, true)
		}
	}
}

// RecheckArtifacts adds the deployments that were rejected with catalog.CodeArtifact and that a
// change may let in: of every tenant after an upgrade of an Argo CD, or of a tenant whose
// environments or placements changed.
func (l *Limits) RecheckArtifacts(d *Declarations,
	decided map[fleet.SliceID]fleet.Placement, upgraded bool,
) {
	rejected := d.After.RejectedArtifacts()
	if len(rejected) == 0 {
		return
	}
	tenants := map[fleet.TenantName]bool{}
	for id := range decided {
		tenants[id.Tenant] = true
	}
	for _, c := range d.Changes {
		if c.Key.Kind == fleet.KindManagedEnvironment {
			tenants[c.Key.Tenant] = true
		}
	}
	for _, k := range rejected {
		if _, again := l.refused[k]; !again && (upgraded || tenants[k.Tenant]) {
			applied.Set(&l.recheck, k, true)
		}
	}
}

// concerns reports whether a declaration may concern one of the repositories.
func concerns(d *fleet.Declaration, repositories map[string]bool) bool {
	switch {
	case d.Deployment != nil:
		for url := range d.Deployment.RepoURLs().All() {
			if repositories[applied.RepoKey(url)] {
				return true
			}
		}
		return false
	case d.Credential != nil:
		for key := range repositories {
			if fleet.RepoScopeCovers(d.Credential.Scope(), key) {
				return true
			}
		}
		return false
	}
	return len(repositories) > 0
}

// recheckAdoptersOf adds the rejected deployments that want an Application of another one.
func (l *Limits) recheckAdoptersOf(d *Declarations, of fleet.Key, before *fleet.Declaration) {
	for _, a := range before.Deployment.Adopt {
		l.recheckAdopters(d, of, a.Application, CodeAdopted)
	}
}

// recheckAdopters adds the deployments that were rejected with a code and adopt an object.
func (l *Limits) recheckAdopters(d *Declarations, of fleet.Key, object, code string) {
	for _, id := range d.After.Adopters(object) {
		k := fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: id.Tenant,
			Name: string(id.Name)}
		q, quarantined := d.After.Quarantine(k)
		if _, again := l.refused[k]; k != of && !again && quarantined &&
			slices.ContainsFunc(q.Problems, func(p fleet.Problem) bool {
				return p.Code == code
			}) {
			applied.Set(&l.recheck, k, true)
		}
	}
}

// Reject adds changed declarations with their problems.
func (l *Limits) Reject(problems []fleet.Problem) {
	for _, p := range problems {
		applied.Set(&l.refused, p.Key, p)
	}
}

// CodeUnrendered is the code of a declaration that no object can be rendered from.
const CodeUnrendered = "cannot-render"

// RenderFailure is an object that the renderer refused. Validation should have prevented it. If it
// did not, one declaration is at fault, and this declaration alone keeps its last good state.
type RenderFailure struct {
	Object fleet.Object
	Err    error
}

// Refuse adds the changed declarations that the failed objects are rendered from. An error means
// that no change caused a failure: the fault is older, and going on would drop an existing object.
func (l *Limits) Refuse(d *Declarations, failures []RenderFailure) error {
	before := l.Size()
	for _, f := range failures {
		blamed := d.blame(f.Object)
		if len(blamed) == 0 {
			return f.error()
		}
		for _, b := range blamed {
			applied.Set(&l.refused, b.Key, fleet.Problem{
				Key: b.Key, Path: b.Path, Severity: fleet.SeverityError, Code: CodeUnrendered,
				Message: fmt.Sprintf("no %s can be made from it: %v", f.Object.Key.Kind, f.Err),
				Fix:     "write the value in the form that Argo CD takes",
			})
		}
	}
	if l.Size() == before {
		return errors.Join(errors.New("the planner does not converge; this is a defect of Argosy"),
			failures[0].error())
	}
	return nil
}

func (f RenderFailure) error() error {
	k := f.Object.Key
	return fmt.Errorf("render %s %s for engine %s: %w", k.Kind, k.Name, k.Engine, f.Err)
}

// Changed reports whether a declaration changes that the object is rendered from.
func (d *Declarations) Changed(o fleet.Object) bool { return len(d.blame(o)) > 0 }

// blame returns the changed declaration that an object is rendered from, the most specific one. An
// AppProject is rendered from everything that its tenant declares: then all of these that changed.
func (d *Declarations) blame(o fleet.Object) []*fleet.Declaration {
	changed, ofTenant := map[fleet.Key]*fleet.Declaration{}, []*fleet.Declaration{}
	for _, c := range d.Changes {
		if c.After == nil {
			continue
		}
		changed[c.Key] = c.After
		if o.Project != nil && applied.TenantOf(c.Key) == o.Project.Tenant {
			ofTenant = append(ofTenant, c.After)
		}
	}
	for _, k := range sources(o) {
		if after := changed[k]; after != nil {
			return []*fleet.Declaration{after}
		}
	}
	return ofTenant
}

// sources returns the declarations that an object is rendered from, the most specific one first.
func sources(o fleet.Object) []fleet.Key {
	switch {
	case o.Application != nil:
		id := o.Application.ID
		return []fleet.Key{
			applied.DeploymentKey(id), applied.EnvironmentKey(id.In()),
			applied.TenantKey(id.Tenant),
		}
	case o.Cluster != nil:
		return []fleet.Key{applied.EnvironmentKey(o.Cluster.ID)}
	case o.Repository != nil:
		id := o.Repository.ID
		return []fleet.Key{
			{Kind: fleet.KindRepositoryCredential, Tenant: id.Tenant, Name: string(id.Name)},
		}
	default:
		return nil
	}
}
