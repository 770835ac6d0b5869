package plan

import (
	"fmt"
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
)

// unwanted is an Application whose row stands and that no declaration asks for any more.
type unwanted struct {
	id  fleet.ApplicationID
	key fleet.ObjectKey
	was *held // its hold until now, if it is to be judged anew
}

func compareApplications(a, b fleet.ApplicationID) int {
	return slices.Compare([]string{string(a.Tenant), string(a.Environment), string(a.Deployment)},
		[]string{string(b.Tenant), string(b.Environment), string(b.Deployment)})
}

// applications brings every touched Application's row to what it is to be, and collects those that
// nothing asks for any more.
func (d *draft) applications() error {
	d.release()
	for _, id := range slices.SortedFunc(maps.Keys(d.touchedApps), compareApplications) {
		if err := d.application(id, d.touchedApps[id]); err != nil {
			return err
		}
	}
	return nil
}

func (d *draft) application(id fleet.ApplicationID, wanted bool) error {
	p, ok := d.placements.get(id.In())
	if !ok || p.Engine == "" {
		// what it brings has changed; once it is placed, its Applications are looked at again
		d.touchedEnvironments[id.In()] = true
		return nil
	}
	if !p.Engine.OfEnvironment() && d.changeset.Engine(p.Engine) == nil {
		// found there after a rebuild: it says so as misplaced, until its engine is declared
		return nil
	}
	key := applicationKey(p.Engine, id)
	h, isHeld := d.held.get(id)
	if wanted {
		if isHeld {
			d.held.drop(id)
			d.freed[key] = true
		}
		return d.bring(key, d.changeset.Deployment(id.Deployed()), id)
	}
	r, stands := d.rows.get(key)
	switch {
	case !stands || r.absent:
		d.endSync(id)
	case !isHeld:
		d.unwanted = append(d.unwanted, unwanted{id: id, key: key})
	case d.released[id]:
		d.held.drop(id)
		d.freed[key], d.approved[key] = true, true
		d.delete(key)
	case d.nowReviewed(h):
		d.unwanted = append(d.unwanted, unwanted{id: id, key: key, was: &h})
	default:
		return d.keepUp(key, h.Deployment, id)
	}
	return nil
}

// keepUp makes the row of a held Application. When this draft takes its environment away there is
// nothing to make it from: the draft is made again without that (see withhold).
func (d *draft) keepUp(key fleet.ObjectKey, dep *fleet.Declaration, id fleet.ApplicationID) error {
	if d.changeset.Environment(id.In()) == nil {
		return nil
	}
	return d.bring(key, dep, id)
}

// bring makes the Application's row from a deployment: the one in effect, or for a held Application
// the one it was last made from.
func (d *draft) bring(key fleet.ObjectKey, dep *fleet.Declaration, id fleet.ApplicationID) error {
	env := d.changeset.Environment(id.In())
	if dep == nil || env == nil {
		return fmt.Errorf(
			"application %s is wanted without its deployment and environment; this is a fault "+
				"of the planner", id)
	}
	app := application(d.after.Defaults.Sync, dep, env,
		d.syncHold(id, dep.Deployment.SourceIn(id.Environment).TargetRevision))
	old, stood := d.rows.get(key)
	next := row{tenant: id.Tenant, environment: id.Environment, deployment: id.Deployment,
		deletion: app.DeletionPolicy, repoURL: app.Source.RepoURL}
	if err := d.write(fleet.Object{Key: key, Application: app}, next); err != nil {
		return err
	}
	if stood && old.repoURL == next.repoURL {
		d.leaving.drop(key)
		return nil
	}
	d.count(key.Engine, id, next.repoURL, 1)
	if stood {
		d.leaving.drop(key)
		d.count(key.Engine, id, old.repoURL, -1)
	}
	return nil
}

// write renders an object and changes its row if that is not what stands.
func (d *draft) write(o fleet.Object, next row) error {
	engine := d.engine(o.Key.Engine, next.tenant)
	if engine == nil {
		return fmt.Errorf("%s %s: engine %s is not declared; this is a fault of the planner",
			o.Key.Kind, o.Key.Name, o.Key.Engine)
	}
	m, err := d.render.Render(*engine, o)
	if err != nil {
		d.unrendered = append(d.unrendered, unrendered{o, err})
		return nil
	}
	next.hash = m.Hash
	old, stood := d.rows.get(o.Key)
	if stood && old == next {
		return nil
	}
	d.put(o.Key, next)
	c := &RowChange{Action: Create, Row: rowOf(o.Key, next)}
	c.Row.Manifest, c.Row.Revision = m, d.r.Revision
	if base, stood := d.w.rows.base[o.Key]; stood && !base.absent {
		c.Action, c.BeforeHash = Update, base.hash
	}
	d.rowChanges[o.Key] = c
	return nil
}

func rowOf(k fleet.ObjectKey, r row) fleet.Row {
	out := fleet.Row{Key: k, Tenant: r.tenant, Environment: r.environment, Deployment: r.deployment,
		Deletion: r.deletion, Unwanted: r.absent}
	if r.credential != (fleet.CredentialSource{}) {
		c := r.credential
		out.Credential = &c
	}
	return out
}

// delete makes a row absent. What it counts for, it counts for until the object is gone.
func (d *draft) delete(k fleet.ObjectKey) {
	r, ok := d.rows.get(k)
	if !ok || r.absent {
		return
	}
	before := d.w.rows.base[k].hash
	r.absent = true
	d.put(k, r)
	d.rowChanges[k] = &RowChange{Action: Delete, Row: rowOf(k, r), BeforeHash: before}
	d.rowChanges[k].Row.Revision = d.r.Revision
	if k.Kind == fleet.ObjectApplication {
		d.leaving.set(k, leaving{Application: r.application(), Key: k, RepoURL: r.repoURL})
		d.endSync(r.application())
	}
}

func applicationKey(e fleet.EngineName, id fleet.ApplicationID) fleet.ObjectKey {
	return fleet.ObjectKey{Engine: e, Kind: fleet.ObjectApplication,
		Name: fleet.ApplicationName(id)}
}
