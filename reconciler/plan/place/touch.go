package place

import (
	"reflect"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// forgetDeleted removes the rows of objects that are proven deleted.
func (p *phase) forgetDeleted() {
	for _, k := range p.Deleted {
		r, ok := p.Rows.Get(k)
		if !ok || !r.Unwanted {
			continue
		}
		p.RemoveRow(k)
		if k.Kind != fleet.ObjectApplication {
			continue
		}
		p.Terminating.Delete(k)
		p.count(k.Engine, r.Application(), r.RepoURL, -1)
		p.retry = true
	}
}

// count adds an Application (n = 1) or removes it (-1), and touches the shared objects that may
// change by that.
func (p *phase) count(engine fleet.EngineName, id fleet.ApplicationID, url string, n int) {
	r := applied.Repo{Engine: engine, Key: applied.RepoKey(url)}
	c := p.Count(engine, id, url, n)
	if c.Listed {
		p.out.Shares[applied.Share{Tenant: id.Tenant, Engine: engine}] = true
	}
	if c.Used {
		p.out.Readers[applied.Reader{Repo: r, Tenant: id.Tenant}] = true
		p.retry = p.retry || n < 0
	}
	if _, conflict := p.CredentialConflicts.Get(r); c.UsedIn && conflict {
		p.out.Environments[id.In()] = true
	}
}

// touch finds what the catalog's changes reach, by the catalog's own reverse indexes.
func (p *phase) touch() {
	for _, c := range p.Declared.Changes {
		switch c.Key.Kind {
		case fleet.KindFleet:
			p.touchFleet()
		case fleet.KindEngine:
			p.touchEngine(c)
		case fleet.KindTenant:
			p.touchTenant(fleet.TenantName(c.Key.Name))
		case fleet.KindManagedEnvironment:
			p.touchEnvironment(applied.EnvironmentID(c.Key))
		case fleet.KindGitOpsDeployment:
			p.touchDeployment(c)
		case fleet.KindRepositoryCredential:
			p.touchCredential(c)
		case fleet.KindSealedSecret:
			p.touchSealed(c.Key)
		}
	}
	if !p.Applied.Started() || p.Applied.Blocked {
		// After a rebuild engines report environments that have no rows yet, or that may be
		// removed.
		for id, pl := range p.Applied.Placements.Base() {
			if p.recovered(id, pl) {
				p.touchEnvironment(id)
			}
		}
	}
	p.touchDeferred()
}

// touchDeferred touches what was deferred and no longer is, and the environments whose removal is
// deferred from now on.
func (p *phase) touchDeferred() {
	before, removing := p.Applied.Deferred, p.Declared.Removing
	for id := range removing {
		if !before[applied.EnvironmentKey(id)].Removing {
			p.touchEnvironment(id)
		}
	}
	for k, x := range before {
		if _, still := p.Declared.Deferred[k]; k.Kind == fleet.KindEngine && !still {
			p.retry = true // the engine may take environments again
		}
		if x.Removing && !removing[applied.EnvironmentID(k)] {
			p.touchEnvironment(applied.EnvironmentID(k))
		}
	}
}

// recovered reports whether an engine reported a placement after a rebuild that is not recorded
// yet: every recorded placement has its Cluster row. An agent's environment has none, and is not
// reported.
func (p *phase) recovered(id fleet.EnvironmentID, pl fleet.Placement) bool {
	if pl.Engine == "" || pl.Engine.OfEnvironment() {
		return false
	}
	_, recorded := p.Applied.Rows.Get(applied.ClusterKey(pl.Engine, id))
	return !recorded
}

// touchFleet reaches every Application if the defaults change: each inherits them.
func (p *phase) touchFleet() {
	if reflect.DeepEqual(p.Applied.Catalog.Fleet().Defaults, p.Declared.Fleet.Defaults) {
		return
	}
	for _, t := range p.after.Tenants() {
		for _, id := range p.after.DeploymentsOf(t) {
			p.touchWanted(id)
		}
	}
	for id := range p.Held.Base() {
		p.touchUnwanted(id)
	}
}

// touchEngine reaches the placements on the engine, and lets unplaced environments try again.
func (p *phase) touchEngine(c catalog.Change) {
	p.retry = true
	for _, id := range p.EnvironmentsOn.Keys(fleet.EngineName(c.Key.Name)) {
		p.out.Environments[id] = true
		if c.Before == nil { // reported after a rebuild, before the engine was declared
			p.touchEnvironment(id)
		}
	}
}

// touchTenant reaches all placements and AppProjects of the tenant.
func (p *phase) touchTenant(t fleet.TenantName) {
	for _, e := range p.EnginesOf.Keys(t) {
		p.out.Shares[applied.Share{Tenant: t, Engine: e}] = true
	}
	for _, id := range p.after.EnvironmentsOf(t) {
		p.out.Environments[id] = true
	}
}

// touchEnvironment reaches the environment's Applications, old and new.
func (p *phase) touchEnvironment(id fleet.EnvironmentID) {
	p.out.Environments[id] = true
	if p.after.Environment(id) != nil {
		p.leaveOldConnection(id)
	}
	if pl, ok := p.Placements.Get(id); ok && pl.Engine != "" {
		p.out.Shares[applied.Share{Tenant: id.Tenant, Engine: pl.Engine}] = true
	}
	for _, dep := range p.Applied.Catalog.DeploymentsIn(id) {
		p.touchUnwanted(applied.ApplicationID(dep, id))
	}
	if !p.Declared.Removing[id] {
		for _, dep := range p.after.DeploymentsIn(id) {
			p.applications[applied.ApplicationID(dep, id)] = true
		}
	}
	for app := range p.Held.Base() {
		if app.In() == id {
			p.touchUnwanted(app)
		}
	}
}

// leaveOldConnection takes an environment off the engine of a connection that it no longer has.
// Only its Cluster is left there.
func (p *phase) leaveOldConnection(id fleet.EnvironmentID) {
	pl, _ := p.Placements.Get(id)
	if pl.Engine == "" || pl.Engine.OfEnvironment() == Agent(&p.after.View, id) {
		return
	}
	p.leave(id, pl.Engine)
	p.Placements.Delete(id)
}

// leave takes an environment off its engine.
func (p *phase) leave(id fleet.EnvironmentID, engine fleet.EngineName) {
	p.Place(id, engine, -1)
	p.out.Shares[applied.Share{Tenant: id.Tenant, Engine: engine}] = true
	p.out.Clusters = append(p.out.Clusters, applied.ClusterKey(engine, id))
	p.retry = true
}

func (p *phase) touchDeployment(c catalog.Change) {
	id := applied.DeploymentID(c.Key)
	if c.Before != nil {
		for _, env := range p.Applied.Catalog.Targets(id) {
			p.touchUnwanted(applied.ApplicationID(id, env))
		}
	}
	if c.After != nil {
		p.touchWanted(id)
	}
}

// touchCredential reaches the repository's Secrets on every engine where the tenant reads it.
func (p *phase) touchCredential(c catalog.Change) {
	p.retry = p.retry || c.Before != nil
	for _, decl := range []*fleet.Declaration{c.Before, c.After} {
		if decl == nil {
			continue
		}
		for _, e := range p.EnginesOf.Keys(c.Key.Tenant) {
			r := applied.Repo{Engine: e, Key: applied.RepoKey(decl.Credential.RepoURL)}
			if p.Readers.Count(r, c.Key.Tenant) > 0 {
				p.out.Readers[applied.Reader{Repo: r, Tenant: c.Key.Tenant}] = true
			}
		}
	}
}

// touchSealed reaches the Secrets whose content is in an encrypted file: the file has the name of a
// credentialsRef beside it.
func (p *phase) touchSealed(k fleet.Key) {
	for _, id := range p.after.EnvironmentsOf(k.Tenant) {
		c := p.after.Environment(id).Environment.Cluster
		if c != nil && k == catalog.SealedKey(k.Tenant, "environments", c.CredentialsRef.Name) {
			p.out.Environments[id] = true
		}
	}
	for _, id := range p.after.CredentialsOf(k.Tenant) {
		cred := p.after.Credential(id)
		if k == catalog.SealedKey(k.Tenant, "credentials", cred.Credential.CredentialsRef.Name) {
			p.touchCredential(catalog.Change{Key: cred.Key, After: cred})
		}
	}
}

// touchWanted touches all Applications of a deployment in effect. An environment whose removal is
// deferred wants none.
func (p *phase) touchWanted(id fleet.DeploymentID) {
	for _, env := range p.after.Targets(id) {
		if p.Declared.Removing[env] {
			p.touchUnwanted(applied.ApplicationID(id, env))
		} else {
			p.applications[applied.ApplicationID(id, env)] = true
		}
	}
}

// touchUnwanted touches an Application that may no longer be wanted.
func (p *phase) touchUnwanted(id fleet.ApplicationID) {
	if !p.applications[id] {
		p.applications[id] = false
	}
}

// removeEnvironments deletes the placements of environments that are removed and empty. While
// Applications exist in one, its removal will be deferred.
func (p *phase) removeEnvironments() {
	for id := range p.out.Environments {
		if p.after.Environment(id) != nil {
			continue
		}
		pl, ok := p.Placements.Get(id)
		if !ok || pl.Engine != "" && p.ApplicationsIn.Count(id, pl.Engine) > 0 {
			continue
		}
		p.Placements.Delete(id)
		p.Unplaced.Delete(id)
		p.out.Removed[id] = true
		p.retry = true
		if pl.Engine != "" {
			p.leave(id, pl.Engine)
		}
	}
}
