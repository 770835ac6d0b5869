// Package diff renders the objects that a plan touches and returns the rows that change.
package diff

import (
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/freeze"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/effective"
	"argosy.dev/argosy/reconciler/plan/guard"
	"argosy.dev/argosy/reconciler/plan/place"
	"argosy.dev/argosy/reconciler/plan/report"
)

// Input is the results of the earlier phases.
type Input struct {
	Applied   *applied.State
	Declared  *effective.Declarations
	Placed    *place.Result // its Layers get the rows and holds after the plan
	Verdicts  []guard.Verdict
	Explained []applied.Held // earlier holds with a new message
	Revision  fleet.Revision
	Now       time.Time
	Freezes   *freeze.Calendar
	Renderer  engine.Renderer
	ArgoCD    map[fleet.EngineName]string // known versions
	Recovered *mirror.Recovered           // after a loss of the mirror
}

// RowChange is one row that changes.
type RowChange struct {
	Action     report.Action
	Subject    string     // see report.Change
	Row        mirror.Row // without a manifest on Delete and Hold
	BeforeHash string     // of the present manifest; empty on Create
	Before     []byte     // the present manifest, if requested
	Note       string     // see report.Change
}

// Result is the rows that change, and the syncs that new SyncRuns ask for.
type Result struct {
	Rows     map[fleet.ObjectKey]*RowChange
	Freed    map[fleet.ObjectKey]bool // rows that are no longer held
	Approved map[fleet.ObjectKey]bool // deletions that do not count against the guards
	Failures []effective.RenderFailure
	Rejected []fleet.Problem // of changed deployments that the engine would refuse
	// manifests for new engines that rollouts may return to
	LastGood []mirror.RolloutManifest
	Syncs    []mirror.SyncRequest
	Problems []fleet.Problem // of SyncRuns
}

// Compute renders what the earlier phases touch. An error is a fault of the planner; an object that
// cannot be rendered is one of the Failures.
func Compute(in Input) (*Result, error) {
	p := &phase{
		Input: in, Layers: in.Placed.Layers, after: in.Declared.After,
		out: &Result{
			Rows: map[fleet.ObjectKey]*RowChange{},
		},
	}
	for _, k := range in.Placed.Clusters {
		p.delete(k)
	}
	for _, m := range in.Placed.Begun {
		for _, id := range m.Applications {
			p.depart(id, m.From)
		}
	}
	if err := p.applications(); err != nil {
		return nil, err
	}
	p.returned()
	p.carried()
	if err := p.frozen(); err != nil {
		return nil, err
	}
	p.rollouts()
	if err := p.verdicts(); err != nil {
		return nil, err
	}
	if err := p.shared(); err != nil {
		return nil, err
	}
	p.thaw()
	p.requestSyncs()
	return p.out, nil
}

type phase struct {
	Input
	*applied.Layers
	after *catalog.Changeset
	out   *Result

	rolling map[fleet.DeploymentID]*rolling // whose Applications the plan touches

	secrets, secretsBefore map[applied.Share]map[string]secret // see secretsOf
}

// applications writes the wanted Applications and deletes those that an approval released.
func (p *phase) applications() error {
	p.checkAdoptions()
	p.checkArtifacts()
	p.checkWaves()
	for _, h := range p.Explained {
		p.Held.Set(h.Application, h)
	}
	for _, id := range p.Placed.Ended {
		p.endSyncHold(id)
	}
	for _, a := range p.Placed.Wanted {
		p.keep(a)
		if err := p.writeApplication(a.Key, a.ID, a.Deployment, a.Use); err != nil {
			return err
		}
	}
	for _, u := range p.Placed.Released {
		p.remove(u, true)
	}
	return nil
}

// verdicts deletes or holds the unwanted Applications.
func (p *phase) verdicts() error {
	for _, v := range p.Verdicts {
		if v.Hold == nil {
			p.remove(v.Unwanted, v.Approved)
			continue
		}
		p.Held.Set(v.ID, *v.Hold)
		if v.Was == nil {
			r, _ := p.Rows.Get(v.Key)
			p.out.Rows[v.Key] = &RowChange{
				Action: report.Hold, Row: Row(v.Key, r), BeforeHash: r.Hash}
		} else if p.after.Environment(v.ID.In()) != nil {
			r, _ := p.Rows.Get(v.Key)
			if err := p.writeApplication(v.Key, v.ID, v.Hold.Deployment, r.Use); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove deletes an unwanted Application.
func (p *phase) remove(u place.Unwanted, approved bool) {
	if u.Was != nil {
		p.Held.Delete(u.ID)
		applied.Set(&p.out.Freed, u.Key, true)
	}
	if approved {
		applied.Set(&p.out.Approved, u.Key, true)
	}
	p.delete(u.Key)
}

// keep ends the hold of an Application that is wanted: of its deletion, or of an earlier change.
func (p *phase) keep(a place.Application) {
	if a.Freed {
		p.Held.Delete(a.ID)
		applied.Set(&p.out.Freed, a.Key, true)
	}
	p.Frozen.Delete(a.ID)
}

func (p *phase) writeApplication(
	key fleet.ObjectKey, id fleet.ApplicationID, dep *fleet.Declaration, use applied.Use,
) error {
	o, next, err := p.object(key, id, dep, use)
	if o.Application == nil || err != nil {
		return err
	}
	_, exists := p.Rows.Get(key)
	err = p.write(o, next)
	p.follow(key, id)
	if exists {
		p.Terminating.Delete(key)
	}
	return err
}

// object returns an Application with the index entry of its row, without a manifest; no Application
// if it cannot be rendered.
func (p *phase) object(
	key fleet.ObjectKey, id fleet.ApplicationID, dep *fleet.Declaration, use applied.Use,
) (o fleet.Object, next applied.Row, err error) {
	target, unresolved := dep.TargetIn(p.after.Environment(id.In()), p.after.Defaults(id.Tenant))
	if len(unresolved) > 0 {
		return o, next, p.unresolved(key, id, dep, unresolved[0])
	}
	hold := p.syncHold(id, fleet.TargetRevisions(target.Sources))
	on, err := p.mustEngine(key, id.Tenant)
	if err != nil {
		return o, next, err
	}
	app := application(key.Engine, on, &p.after.View, id, target, hold)
	return fleet.Object{Key: key, Application: app}, applied.Row{
		Tenant: id.Tenant, Environment: id.Environment, Deployment: id.Deployment,
		Deletion: app.DeletionPolicy, RepoURLs: fleet.RepoURLsOf(app.Sources), Use: use,
	}, nil
}

// unresolved reports an Application that cannot be rendered, since its environment gives a text of
// its deployment no valid value. The catalog accepts no such change of a declaration in effect; the
// Application of a deployment that was removed and is held stays as it is.
func (p *phase) unresolved(
	key fleet.ObjectKey, id fleet.ApplicationID, dep *fleet.Declaration, u fleet.Unresolved,
) error {
	if p.after.Deployment(id.Deployed()) == dep {
		o := fleet.Object{Key: key, Application: &fleet.Application{ID: id, Name: key.Name}}
		p.out.Failures = append(p.out.Failures, effective.RenderFailure{
			Object: o, Err: fmt.Errorf("%s: %w", u.Field, u.Err)})
	}
	return nil
}

// write renders an object, and changes its row if the row differs.
func (p *phase) write(o fleet.Object, next applied.Row) error {
	engine, err := p.mustEngine(o.Key, next.Tenant)
	if err != nil {
		return err
	}
	m, changes := p.render(*engine, o, &next)
	if !changes {
		return nil
	}
	p.SetRow(o.Key, next)
	c := &RowChange{Action: report.Create, Row: Row(o.Key, next)}
	c.Row.Manifest, c.Row.Revision = m, p.Revision
	if base, existed := p.Rows.Base()[o.Key]; existed && !base.Unwanted {
		c.Action, c.BeforeHash = report.Update, base.Hash
	}
	p.out.Rows[o.Key] = c
	return nil
}

// render renders an object, completes the index entry of its row, and reports whether the row
// changes.
func (p *phase) render(engine fleet.EngineSpec, o fleet.Object, next *applied.Row) (
	m fleet.Manifest, changes bool) {
	m, err := p.Renderer.Render(engine, o)
	if err != nil {
		if !p.outgrown(o) {
			p.out.Failures = append(p.out.Failures, effective.RenderFailure{Object: o, Err: err})
		}
		return m, false
	}
	next.Hash = m.Hash
	old, exists := p.Rows.Get(o.Key)
	return m, !exists || old != *next
}

// outgrown reports whether an existing Application is of an unchanged deployment in quarantine, as
// after its grant was withdrawn. Its row stays as it is, and stops no other change.
func (p *phase) outgrown(o fleet.Object) bool {
	if _, exists := p.Rows.Get(o.Key); !exists || o.Application == nil || p.Declared.Changed(o) {
		return false
	}
	_, quarantined := p.after.Quarantine(applied.DeploymentKey(o.Application.ID))
	return quarantined
}

// delete makes a row unwanted. It counts until its object is deleted.
func (p *phase) delete(k fleet.ObjectKey) {
	r, ok := p.Rows.Get(k)
	if !ok || r.Unwanted {
		return
	}
	r.Unwanted = true
	p.SetRow(k, r)
	c := &RowChange{Action: report.Delete, Row: Row(k, r), BeforeHash: p.Rows.Base()[k].Hash}
	c.Row.Revision = p.Revision
	p.out.Rows[k] = c
	if k.Kind == fleet.ObjectApplication {
		id := r.Application()
		p.Terminating.Set(k, applied.Terminating{
			Application: id, Key: k, RepoURLs: r.RepoURLs, Use: r.Use})
		p.endSyncHold(id)
	}
}

// depart makes the row of the engine that a moving Application leaves unwanted. The worker carries
// out the steps of the move; no loss of a step or a record removes the workload (ADR 0045).
func (p *phase) depart(id fleet.ApplicationID, from fleet.EngineName) {
	k := applied.ApplicationKey(from, id)
	r, _ := p.Rows.Get(k)
	r.Unwanted, r.Deletion = true, fleet.DeletionOrphan
	p.SetRow(k, r)
	c := &RowChange{Action: report.Depart, Row: Row(k, r), BeforeHash: r.Hash}
	c.Row.Revision = p.Revision
	p.out.Rows[k] = c
	p.Terminating.Set(k, applied.Terminating{
		Application: id, Key: k, RepoURLs: r.RepoURLs, Use: r.Use})
}

// Row returns the stored form of an index entry, without its manifest.
func Row(k fleet.ObjectKey, r applied.Row) mirror.Row {
	out := mirror.Row{
		Key: k, Tenant: r.Tenant, Environment: r.Environment, Deployment: r.Deployment,
		Deletion: r.Deletion, Unwanted: r.Unwanted,
	}
	if r.Credential != (fleet.CredentialSource{}) {
		c := r.Credential
		out.Credential = &c
	}
	return out
}

// engine returns the engine that a tenant's objects are rendered for. Objects that still exist in a
// removed environment are rendered as before: the removal will be deferred.
func (p *phase) engine(name fleet.EngineName, t fleet.TenantName) *fleet.EngineSpec {
	if e := engineOf(p.Layers, &p.after.View, name, t); e != nil || !name.OfEnvironment() {
		return e
	}
	return engineOf(p.Layers, &p.Applied.Catalog.View, name, t)
}

// mustEngine returns the engine that an object is rendered for.
func (p *phase) mustEngine(k fleet.ObjectKey, t fleet.TenantName) (*fleet.EngineSpec, error) {
	if e := p.engine(k.Engine, t); e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("%s %s: engine %s is not declared; this is a defect of Argosy",
		k.Kind, k.Name, k.Engine)
}

// engineOf returns a declared engine, or the own cluster of the tenant's environment that is placed
// on it; nil when it is not in effect.
func engineOf(
	l *applied.Layers, view *catalog.View, name fleet.EngineName, t fleet.TenantName,
) *fleet.EngineSpec {
	if !name.OfEnvironment() {
		if d := view.Engine(name); d != nil {
			return d.Engine
		}
		return nil
	}
	for _, env := range l.Environments.Keys(applied.Share{Tenant: t, Engine: name}) {
		d := view.Environment(fleet.EnvironmentID{Tenant: t, Name: env})
		if d != nil && d.Environment.Agent != nil {
			e := d.Environment.Agent.Engine(t, d.Environment.Region)
			return &e
		}
	}
	return nil
}
