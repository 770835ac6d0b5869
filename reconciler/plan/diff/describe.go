package diff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/report"
)

// Changes returns the rows that change with their subjects and notes, sorted. With explain, updates
// have the manifest before, rendered again.
func (r *Result) Changes(in Input, explain bool) ([]RowChange, error) {
	p := &phase{Input: in, Layers: in.Placed.Layers, after: in.Declared.After, out: r}
	var out []RowChange
	waves := map[fleet.ObjectKey]int{}
	for k, c := range r.Rows {
		waves[k] = p.step(c.Row)
	}
	// Rows get their numbers in this order, in which workers read them: an earlier wave is known
	// before a later one is applied.
	inWaves := func(a, b fleet.ObjectKey) int {
		return cmp.Or(cmp.Compare(a.Engine, b.Engine), a.Kind.Rank()-b.Kind.Rank(),
			cmp.Compare(a.Kind, b.Kind), waves[a]-waves[b], applied.CompareKeys(a, b))
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.Rows), inWaves) {
		c := *r.Rows[k]
		if explain && c.BeforeHash != "" {
			before, err := p.before(k)
			if err != nil {
				return nil, err
			}
			c.Before = before.Body
		}
		c.Subject, c.Note = p.subject(c.Row), p.note(c)
		if set := p.setOf(c.Row); set != "" {
			c.Note = strings.TrimSuffix("set "+set+"; "+c.Note, "; ")
		}
		out = append(out, c)
	}
	return out, nil
}

// step orders the rows of Applications by their waves, and deletions in reverse by the waves that
// they had.
func (p *phase) step(r mirror.Row) int {
	if r.Key.Kind != fleet.ObjectApplication {
		return 0
	}
	id := fleet.ApplicationID{Tenant: r.Tenant, Environment: r.Environment,
		Deployment: r.Deployment}
	dep, sign := p.after.Deployment(id.Deployed()), 1
	if r.Unwanted {
		dep, sign = p.Applied.Catalog.Deployment(id.Deployed()), -1
		if h, ok := p.Applied.Held.Get(id); ok {
			dep = h.Deployment
		}
	}
	if dep == nil {
		return 0
	}
	return sign * dep.Deployment.Wave
}

// subject is the name that people know an object by. No row has a credential's name: it comes from
// the tenant's declarations.
func (p *phase) subject(r mirror.Row) string {
	switch r.Key.Kind {
	case fleet.ObjectApplication:
		return string(r.Deployment) + "@" + string(r.Environment)
	case fleet.ObjectCluster:
		return string(r.Environment)
	case fleet.ObjectRepository:
		s := applied.Share{Tenant: r.Tenant, Engine: r.Key.Engine}
		for _, before := range []bool{false, true} {
			if read, ok := p.secretsOf(s, before)[r.Key.Name]; ok {
				return read.subject()
			}
		}
		return r.Key.Name
	}
	return string(r.Tenant)
}

// secret is the Secret of a repository that a tenant may read on an engine.
type secret struct {
	applied.Reader
	credential *fleet.Declaration
}

// subject is the credential, of a credential for a folder with the repository.
func (s secret) subject() string {
	if s.credential.Credential.Part(s.Key) == "" {
		return s.credential.Key.Name
	}
	return s.credential.Key.Name + " for " + s.Key
}

// secretsOf returns the Secrets that a tenant's credentials give on an engine by their names, of
// the applied state or of the one after the plan.
func (p *phase) secretsOf(s applied.Share, before bool) map[string]secret {
	view, layers, memo := &p.after.View, p.Layers, &p.secrets
	if before {
		view, layers, memo = &p.Applied.Catalog.View, &p.Applied.Layers, &p.secretsBefore
	}
	if found, ok := (*memo)[s]; ok {
		return found
	}
	found := map[string]secret{}
	for _, id := range view.CredentialsOf(s.Tenant) {
		cred := view.Credential(id)
		keys := []string{cred.Credential.Scope()}
		if strings.HasSuffix(keys[0], "/") {
			keys = layers.KeysBelow(s, keys[0])
		}
		for _, key := range keys {
			r := applied.Repo{Engine: s.Engine, Key: key}
			found[repositoryKey(r, cred).Name] = secret{applied.Reader{Repo: r,
				Tenant: s.Tenant}, cred}
		}
	}
	applied.Set(memo, s, found)
	return found
}

// setOf returns the set that generates the deployment of an Application, or generated it last.
func (p *phase) setOf(r mirror.Row) string {
	if r.Key.Kind != fleet.ObjectApplication {
		return ""
	}
	id := fleet.DeploymentID{Tenant: r.Tenant, Name: r.Deployment}
	d := p.after.Deployment(id)
	if d == nil {
		d = p.Applied.Catalog.Deployment(id)
	}
	if d == nil {
		return ""
	}
	set, _ := fleet.SetOf(d.Key, d.Path)
	return set
}

// note explains a change beyond its fields.
func (p *phase) note(c RowChange) string {
	switch {
	case c.Action == report.Hold:
		h, ok := p.Held.Get(fleet.ApplicationID{
			Tenant: c.Row.Tenant, Deployment: c.Row.Deployment, Environment: c.Row.Environment,
		})
		if !ok {
			break
		}
		waits := "its deletion waits for argosy release " + h.Revision.Short()
		if h.Reason == mirror.HoldUnreviewed {
			waits = "it has no known review; " + waits
		}
		return waits
	case c.Action == report.Freeze, c.Action == report.Wave:
		return p.frozenNote(c.Row.Application())
	case c.Action == report.Depart:
		pl, _ := p.PlacementOf(c.Row.Application())
		return "it moves to engine " + string(pl.Engine) + "; its workload stays as it is"
	case c.Row.Key.Kind != fleet.ObjectApplication:
	case c.Action == report.Create:
		return p.adoption(c.Row.Application())
	case c.Action == report.Delete && c.Row.Deletion == fleet.DeletionOrphan:
		return "its workload stays (deletionPolicy Orphan)"
	case c.Action == report.Delete && c.Row.Deletion == fleet.DeletionRelease:
		return "it stays on the engine, without an owner (deletionPolicy Release)"
	case c.Action == report.Delete:
		return "its workload is deleted"
	}
	if c.Action == report.Update && c.BeforeHash == c.Row.Manifest.Hash {
		return "same manifest; its deletion policy or the place of its credential changes"
	}
	return ""
}

// adoption names the existing Application that a new one takes over, as Argo CD knows it.
func (p *phase) adoption(id fleet.ApplicationID) string {
	dep := p.after.Deployment(id.Deployed())
	if dep == nil {
		return ""
	}
	switch a := dep.Deployment.AdoptedIn(id.Environment); {
	case a.Application == "":
		return ""
	case a.OrCreate:
		return "it adopts or creates Application " + a.Application
	default:
		return "it adopts Application " + a.Application
	}
}

// before renders an object from the applied state: from the declarations in effect, or for a held
// Application from its last one.
func (p *phase) before(k fleet.ObjectKey) (fleet.Manifest, error) {
	s := p.Applied
	r, _ := s.Rows.Get(k)
	engine := engineOf(&s.Layers, &s.Catalog.View, k.Engine, r.Tenant)
	if engine == nil {
		return fleet.Manifest{}, fmt.Errorf("%s %s exists on engine %s, which is not declared;"+
			" this is a defect of Argosy", k.Kind, k.Name, k.Engine)
	}
	o := fleet.Object{Key: k}
	switch k.Kind {
	case fleet.ObjectApplication:
		id := r.Application()
		dep := s.Catalog.Deployment(id.Deployed())
		if h, ok := s.Held.Get(id); ok {
			dep = h.Deployment
		}
		hold, _ := s.SyncHolds.Get(id)
		target, _ := dep.TargetIn(s.Catalog.Environment(id.In()), s.Catalog.Defaults(id.Tenant))
		o.Application = application(k.Engine, engine, &s.Catalog.View, id, target,
			hold.SyncRun)
	case fleet.ObjectCluster:
		id := fleet.EnvironmentID{Tenant: r.Tenant, Name: r.Environment}
		o.Cluster = cluster(k.Engine, engine, &s.Catalog.View, &s.Layers, s.Catalog.Environment(id))
	case fleet.ObjectRepository:
		share := applied.Share{Tenant: r.Tenant, Engine: k.Engine}
		if read, ok := p.secretsOf(share, true)[k.Name]; ok {
			o.Repository = repository(&s.Catalog.View, &s.Layers, read.Reader, read.credential)
		}
	default:
		share := applied.Share{Tenant: r.Tenant, Engine: k.Engine}
		o.Project = project(engine, &s.Catalog.View, &s.Layers, share)
	}
	return p.Renderer.Render(*engine, o)
}
