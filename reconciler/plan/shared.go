package plan

import (
	"cmp"
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
)

// shared brings the objects that Applications share to what they are to be: clusters, repositories,
// projects.
func (d *draft) shared() error {
	for _, id := range slices.SortedFunc(maps.Keys(d.touchedEnvironments), compareEnvironments) {
		if err := d.cluster(id); err != nil {
			return err
		}
	}
	readers := slices.SortedFunc(maps.Keys(d.touchedReaders), func(a, b reader) int {
		return cmp.Or(cmp.Compare(a.engine, b.engine), cmp.Compare(a.tenant, b.tenant),
			cmp.Compare(a.key, b.key))
	})
	// a credential that changes its URL is dropped under one and written under another: in this
	// order
	for _, r := range readers {
		d.dropRepository(r)
	}
	for _, r := range readers {
		if err := d.repository(r); err != nil {
			return err
		}
	}
	for _, s := range slices.SortedFunc(maps.Keys(d.touchedShares), func(a, b share) int {
		return cmp.Or(cmp.Compare(a.engine, b.engine), cmp.Compare(a.tenant, b.tenant))
	}) {
		if err := d.project(s); err != nil {
			return err
		}
	}
	return nil
}

func (d *draft) cluster(id fleet.EnvironmentID) error {
	env := d.changeset.Environment(id)
	p, _ := d.placements.get(id)
	if env == nil || env.Environment.Cluster == nil || p.Engine == "" ||
		d.changeset.Engine(p.Engine) == nil {
		return nil // a removed environment's row went with its placement
	}
	c := cluster(d.changeset, env)
	key := fleet.ObjectKey{Engine: p.Engine, Kind: fleet.ObjectCluster, Name: c.Name}
	return d.write(fleet.Object{Key: key, Cluster: c}, row{tenant: id.Tenant, environment: id.Name,
		credential: c.Credential})
}

// dropRepository removes the Secret that the tenant had for the repository on the engine, if it is
// no longer the one to have.
func (d *draft) dropRepository(r reader) {
	before, after := d.w.catalog.CredentialFor(r.tenant, r.key), d.changeset.CredentialFor(r.tenant,
		r.key)
	if before == nil || after != nil && after.Key == before.Key &&
		d.readers.count(r.repo, r.tenant) > 0 {
		return
	}
	d.delete(repositoryKey(r.engine, before))
}

func (d *draft) repository(r reader) error {
	cred := d.changeset.CredentialFor(r.tenant, r.key)
	if cred == nil || d.readers.count(r.repo, r.tenant) == 0 {
		return nil
	}
	o := repository(d.changeset, cred)
	return d.write(fleet.Object{Key: repositoryKey(r.engine, cred), Repository: o},
		row{tenant: r.tenant, credential: o.Credential})
}

func repositoryKey(e fleet.EngineName, cred *fleet.Declaration) fleet.ObjectKey {
	id := fleet.CredentialID{Tenant: cred.Key.Tenant, Name: fleet.CredentialName(cred.Key.Name)}
	return fleet.ObjectKey{Engine: e, Kind: fleet.ObjectRepository, Name: fleet.RepositoryName(id)}
}

func (d *draft) project(s share) error {
	key := fleet.ObjectKey{Engine: s.engine, Kind: fleet.ObjectProject,
		Name: fleet.ProjectName(s.tenant)}
	if d.environments.empty(s) || d.shut(s) {
		d.delete(key)
		return nil
	}
	if d.engine(s.engine, s.tenant) == nil {
		return nil
	}
	p := project(d.changeset, s.tenant, d.environments.keys(s), d.repos.keys(s))
	return d.write(fleet.Object{Key: key, Project: p}, row{tenant: s.tenant})
}
