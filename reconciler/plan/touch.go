package plan

import (
	"reflect"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// forgetGone lets go of what workers have proven gone.
func (d *draft) forgetGone() {
	for _, k := range d.r.Gone {
		r, ok := d.rows.get(k)
		if !ok || !r.absent {
			continue
		}
		d.remove(k)
		if k.Kind != fleet.ObjectApplication {
			continue
		}
		d.leaving.drop(k)
		d.count(k.Engine, r.application(), r.repoURL, -1)
		d.retry = true
	}
}

// count counts an Application in (n = 1) or out (-1) and notes which shared objects that may
// change.
func (d *draft) count(engine fleet.EngineName, id fleet.ApplicationID, url string, n int) {
	r := repo{engine, repoKey(url)}
	c := d.stand(engine, id, url, n)
	if c.listed {
		d.touchedShares[share{id.Tenant, engine}] = true
	}
	if c.used {
		d.touchedReaders[reader{r, id.Tenant}] = true
		d.retry = d.retry || n < 0
	}
	if _, contested := d.contested.get(r); c.usedIn && contested {
		d.touchedEnvironments[id.In()] = true
	}
}

// touch finds what the catalog's changes reach, by the catalog's own reverse indexes.
func (d *draft) touch() {
	for _, c := range d.changes {
		switch c.Key.Kind {
		case fleet.KindFleet:
			d.touchFleet(c)
		case fleet.KindEngine:
			d.touchEngine(c)
		case fleet.KindTenant:
			d.touchTenant(c)
		case fleet.KindManagedEnvironment:
			d.touchEnvironment(environmentID(c.Key))
		case fleet.KindGitOpsDeployment:
			d.touchDeployment(c)
		case fleet.KindRepositoryCredential:
			d.touchCredential(c)
		case fleet.KindSealedSecret:
			d.touchSealed(c.Key)
		}
	}
	// a rebuild: engines tell of environments that have no rows yet, or that may be gone
	if !d.started || d.w.blocked {
		for id, p := range d.w.placements.base {
			if d.found(id, p) {
				d.touchEnvironment(id)
			}
		}
	}
	// The removal of an environment was deferred, or is no longer wanted.
	for id := range d.going {
		if !d.w.deferred[environmentKey(id)].Going {
			d.touchEnvironment(id)
		}
	}
	for k, x := range d.w.deferred {
		if _, still := d.deferred[k]; k.Kind == fleet.KindEngine && !still {
			d.retry = true // it may take environments again
		}
		if x.Going && !d.going[environmentID(k)] {
			d.touchEnvironment(environmentID(k))
		}
	}
}

// found reports whether the placement is one that an engine told of after a rebuild, and that is
// not recorded yet: whatever is recorded as placed has its Cluster row.
func (d *draft) found(id fleet.EnvironmentID, p fleet.Placement) bool {
	// no engine tells of an agent's environment, and it has no Cluster row
	if p.Engine == "" || p.Engine.OfEnvironment() {
		return false
	}
	_, recorded := d.w.rows.base[fleet.ObjectKey{Engine: p.Engine, Kind: fleet.ObjectCluster,
		Name: fleet.ClusterName(id)}]
	return !recorded
}

// touchFleet reaches every Application if the defaults change: each of them inherits them.
func (d *draft) touchFleet(c catalog.Change) {
	if reflect.DeepEqual(d.w.catalog.Fleet().Defaults, d.after.Defaults) {
		return
	}
	for _, t := range d.changeset.Tenants() {
		for _, id := range d.changeset.DeploymentsOf(t) {
			d.want(id)
		}
	}
	d.held.each(func(id fleet.ApplicationID, _ held) { d.look(id) })
}

// touchEngine looks at the placements on the engine, and at those who wait for one.
func (d *draft) touchEngine(c catalog.Change) {
	d.retry = true
	for _, id := range d.on.keys(fleet.EngineName(c.Key.Name)) {
		d.touchedEnvironments[id] = true
		if c.Before == nil { // found there after a rebuild, before it was declared
			d.touchEnvironment(id)
		}
	}
}

// touchTenant looks at all of the tenant's placements and projects.
func (d *draft) touchTenant(c catalog.Change) {
	t := fleet.TenantName(c.Key.Name)
	for _, e := range d.engines.keys(t) {
		d.touchedShares[share{t, e}] = true
	}
	for _, id := range d.changeset.EnvironmentsOf(t) {
		d.touchedEnvironments[id] = true
	}
}

// touchEnvironment reaches the environment's Applications, those that it had and those that it is
// to have.
func (d *draft) touchEnvironment(id fleet.EnvironmentID) {
	d.touchedEnvironments[id] = true
	if d.changeset.Environment(id) != nil {
		d.leave(id)
	}
	if p, ok := d.placements.get(id); ok && p.Engine != "" {
		d.touchedShares[share{id.Tenant, p.Engine}] = true
	}
	for _, dep := range d.w.catalog.DeploymentsIn(id) {
		d.look(applicationID(dep, id))
	}
	if !d.going[id] {
		for _, dep := range d.changeset.DeploymentsIn(id) {
			d.touchedApps[applicationID(dep, id)] = true
		}
	}
	d.held.each(func(app fleet.ApplicationID, _ held) {
		if app.In() == id {
			d.look(app)
		}
	})
}

func (d *draft) touchDeployment(c catalog.Change) {
	id := deploymentID(c.Key)
	if c.Before != nil {
		for _, env := range d.w.catalog.Targets(id) {
			d.look(applicationID(id, env))
		}
	}
	if c.After != nil {
		d.want(id)
	}
}

// touchCredential reaches the repository's Secrets on every engine where the tenant reads it.
func (d *draft) touchCredential(c catalog.Change) {
	d.retry = d.retry || c.Before != nil
	for _, decl := range []*fleet.Declaration{c.Before, c.After} {
		if decl == nil {
			continue
		}
		for _, e := range d.engines.keys(c.Key.Tenant) {
			r := reader{repo{e, repoKey(decl.Credential.RepoURL)}, c.Key.Tenant}
			if d.readers.count(r.repo, r.tenant) > 0 {
				d.touchedReaders[r] = true
			}
		}
	}
}

// touchSealed reaches the Secrets whose content is in the encrypted file: its name is that of a
// credentialsRef beside it.
func (d *draft) touchSealed(k fleet.Key) {
	for _, id := range d.changeset.EnvironmentsOf(k.Tenant) {
		if c := d.changeset.Environment(id).Environment.Cluster; c != nil &&
			k == catalog.SealedKey(k.Tenant, "environments", c.CredentialsRef.Name) {
			d.touchedEnvironments[id] = true
		}
	}
	for _, id := range d.changeset.CredentialsOf(k.Tenant) {
		cred := d.changeset.Credential(id)
		if k == catalog.SealedKey(k.Tenant, "credentials", cred.Credential.CredentialsRef.Name) {
			d.touchCredential(catalog.Change{Key: cred.Key, After: cred})
		}
	}
}

// want marks all Applications of a deployment that is in effect.
func (d *draft) want(id fleet.DeploymentID) {
	for _, env := range d.changeset.Targets(id) {
		if d.going[env] {
			d.look(applicationID(id, env))
		} else {
			d.touchedApps[applicationID(id, env)] = true
		}
	}
}

// look marks an Application that may no longer be wanted.
func (d *draft) look(id fleet.ApplicationID) {
	if !d.touchedApps[id] {
		d.touchedApps[id] = false
	}
}

func applicationID(dep fleet.DeploymentID, env fleet.EnvironmentID) fleet.ApplicationID {
	return fleet.ApplicationID{Tenant: dep.Tenant, Deployment: dep.Name, Environment: env.Name}
}

func environmentKey(id fleet.EnvironmentID) fleet.Key {
	return fleet.Key{Kind: fleet.KindManagedEnvironment, Tenant: id.Tenant, Name: string(id.Name)}
}

// removeEnvironments drops the placements of environments that are gone and in which nothing
// stands.
func (d *draft) removeEnvironments() {
	for id := range d.touchedEnvironments {
		if d.changeset.Environment(id) != nil {
			continue
		}
		p, ok := d.placements.get(id)
		if !ok || p.Engine != "" && d.standing.count(id, p.Engine) > 0 {
			continue // never placed; or something stands, and the removal will be withheld
		}
		d.placements.drop(id)
		d.unserved.drop(id)
		d.misplaced.drop(id)
		d.unplaced[id] = true
		d.retry = true
		if p.Engine != "" {
			d.place(id, p.Engine, -1)
			d.touchedShares[share{id.Tenant, p.Engine}] = true
			d.delete(fleet.ObjectKey{Engine: p.Engine, Kind: fleet.ObjectCluster,
				Name: fleet.ClusterName(id)})
		}
	}
}
