package diff

import (
	"cmp"
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// shared writes or deletes the objects that Applications share: clusters, repositories, projects.
func (p *phase) shared() error {
	environments := slices.SortedFunc(maps.Keys(p.Placed.Environments), applied.CompareEnvironments)
	for _, id := range environments {
		if err := p.clusters(id); err != nil {
			return err
		}
	}
	readers := slices.SortedFunc(maps.Keys(p.Placed.Readers), func(a, b applied.Reader) int {
		return cmp.Or(
			cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Tenant, b.Tenant),
			cmp.Compare(a.Key, b.Key))
	})
	// A credential that changes its URL is deleted under the old one and written under the new one:
	// in this order.
	for _, r := range readers {
		p.deleteRepository(r)
	}
	for _, r := range readers {
		if err := p.repository(r); err != nil {
			return err
		}
	}
	shares := slices.SortedFunc(maps.Keys(p.Placed.Shares), func(a, b applied.Share) int {
		return cmp.Or(cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Tenant, b.Tenant))
	})
	for _, s := range shares {
		if err := p.project(s); err != nil {
			return err
		}
	}
	return nil
}

// clusters writes an environment's Cluster on every engine of one of its slices; while a slice
// moves, on both engines. The row of a removed environment went with its placement.
func (p *phase) clusters(id fleet.EnvironmentID) error {
	env := p.after.Environment(id)
	if env == nil || env.Environment.Cluster == nil {
		return nil
	}
	for _, engine := range p.EnginesWith(id) {
		on := p.after.Engine(engine)
		if on == nil {
			continue
		}
		c := cluster(engine, on.Engine, &p.after.View, p.Layers, env)
		o := fleet.Object{Key: applied.ClusterKey(engine, id), Cluster: c}
		row := applied.Row{Tenant: id.Tenant, Environment: id.Name, Credential: c.Credential}
		if err := p.write(o, row); err != nil {
			return err
		}
	}
	return nil
}

// deleteRepository deletes the tenant's Secret of a repository on an engine, if another one or none
// is wanted.
func (p *phase) deleteRepository(r applied.Reader) {
	before := p.Applied.Catalog.CredentialFor(r.Tenant, r.Key)
	after := p.after.CredentialFor(r.Tenant, r.Key)
	if before == nil {
		return
	}
	key := repositoryKey(r.Repo, before)
	if after != nil && key == repositoryKey(r.Repo, after) && p.reads(r) {
		return
	}
	p.delete(key)
}

func (p *phase) repository(r applied.Reader) error {
	cred := p.after.CredentialFor(r.Tenant, r.Key)
	if cred == nil || !p.reads(r) {
		return nil
	}
	desired := repository(&p.after.View, p.Layers, r, cred)
	o := fleet.Object{Key: repositoryKey(r.Repo, cred), Repository: desired}
	return p.write(o, applied.Row{Tenant: r.Tenant, Credential: desired.Credential})
}

// reads reports whether the Applications of a tenant on an engine need the Secret of a repository.
// An evacuated engine has no environment of the tenant any more: it applies nothing, and the
// absence of its Applications may never be proven.
func (p *phase) reads(r applied.Reader) bool {
	return p.Readers.Count(r.Repo, r.Tenant) > 0 &&
		!p.Environments.Empty(applied.Share{Tenant: r.Tenant, Engine: r.Engine})
}

func repositoryKey(r applied.Repo, cred *fleet.Declaration) fleet.ObjectKey {
	return fleet.ObjectKey{
		Engine: r.Engine, Kind: fleet.ObjectRepository,
		Name: fleet.RepositoryName(credentialID(cred), cred.Credential.Part(r.Key)),
	}
}

func credentialID(cred *fleet.Declaration) fleet.CredentialID {
	return fleet.CredentialID{Tenant: cred.Key.Tenant, Name: fleet.CredentialName(cred.Key.Name)}
}

func (p *phase) project(s applied.Share) error {
	key := fleet.ObjectKey{
		Engine: s.Engine, Kind: fleet.ObjectProject, Name: fleet.ProjectName(s.Tenant),
	}
	if p.Environments.Empty(s) || p.autonomous(s) {
		p.delete(key)
		return nil
	}
	on := p.engine(s.Engine, s.Tenant)
	if on == nil {
		return nil
	}
	project := project(on, &p.after.View, p.Layers, s)
	return p.write(fleet.Object{Key: key, Project: project}, applied.Row{Tenant: s.Tenant})
}

// autonomous reports whether an engine is the cluster of an autonomous environment of the tenant:
// nothing is written there.
func (p *phase) autonomous(s applied.Share) bool {
	if !s.Engine.OfEnvironment() {
		return false
	}
	for _, env := range p.Environments.Keys(s) {
		e := p.after.Environment(fleet.EnvironmentID{Tenant: s.Tenant, Name: env})
		if e != nil && !e.Environment.Agent.Autonomous() {
			return false
		}
	}
	return true
}
