package reconciler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/reconciler/pool"
)

// PoolStore is a store of pools. Every write carries the lease of the leader.
type PoolStore interface {
	PoolFacts(ctx context.Context, draining []fleet.EngineName) (mirror.PoolFacts, error)
	SetPool(ctx context.Context, lease mirror.Lease, p mirror.Pool) error
	KeepPools(ctx context.Context, lease mirror.Lease, names []string) error
	RemoveInstance(ctx context.Context, lease mirror.Lease, engine fleet.EngineName) error
}

// pools is what the leader remembers of pools between two checks.
type pools struct {
	*finder
	none    bool                // the store has no row of a pool
	blocked map[string]obstacle // why the next instance of a pool cannot be made
}

// obstacle is why a step of a pool has failed.
type obstacle struct {
	why string
	at  time.Time
}

const makeAgain = time.Minute // after an instance could not be made

// takePools takes the next step of each pool. An instance is an engine of the applied state: it is
// made, changed and removed by a plan, which the guards of engines judge.
func (l *Loop) takePools(ctx context.Context, lease mirror.Lease) error {
	if l.Pools == nil || l.stored.state == nil || l.stored.state.Revision() == "" ||
		l.recovery.Pending() {
		return nil
	}
	view := &l.stored.state.Catalog().View
	names := view.Pools()
	if len(names) == 0 && l.pools.none {
		return nil
	}
	var draining []fleet.EngineName
	for _, name := range names {
		for _, m := range view.InstancesOf(name) {
			if m.State == fleet.MemberDraining {
				draining = append(draining, fleet.InstanceName(name, m.Number))
			}
		}
	}
	facts, err := l.Pools.PoolFacts(ctx, draining)
	if err != nil {
		return err
	}
	if err := l.keepPools(ctx, lease, names, facts); err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		if err := l.takePool(ctx, lease, name, facts); err != nil {
			if errors.Is(err, mirror.ErrFenced) || errors.Is(err, mirror.ErrStale) {
				return err
			}
			failed = append(failed, fmt.Errorf("pool %s: %w", name, err))
		}
	}
	return errors.Join(failed...)
}

// keepPools forgets the pools that are not in effect any more.
func (l *Loop) keepPools(ctx context.Context, lease mirror.Lease, names []string,
	facts mirror.PoolFacts) error {
	l.pools.none = len(names) == 0
	for name := range facts.Pools {
		if !slices.Contains(names, name) {
			return l.Pools.KeepPools(ctx, lease, names)
		}
	}
	return nil
}

func (l *Loop) takePool(ctx context.Context, lease mirror.Lease, name string,
	facts mirror.PoolFacts) error {
	state := l.stored.state
	d := state.Catalog().Declaration(fleet.PoolKey(name))
	if d == nil {
		return nil
	}
	p := pool.Pool{Name: name, EnginePoolSpec: d.Pool.OrDefaults(), Stored: facts.Pools[name]}
	if q, quarantined := state.Catalog().Quarantine(d.Key); quarantined {
		p.Ending = q.Removed
	}
	if facts.Known[name] {
		l.pools.forget(name)
	} else if why, failed, err := l.know(ctx, lease, d); err != nil || why != "" && !failed {
		return err // the pool is being read
	} else {
		p.Unknown = why
	}
	if time.Since(l.pools.blocked[name].at) >= makeAgain {
		delete(l.pools.blocked, name)
	}
	p.Blocked = l.pools.blocked[name].why
	p.Waiting = state.WaitingFor(d)
	for _, m := range state.Catalog().InstancesOf(name) {
		e := fleet.InstanceName(name, m.Number)
		i := pool.Instance{PoolMember: m, Load: state.LoadOf(e), Empty: facts.Empty[e],
			Measured: facts.Measured[e]}
		known, installed := facts.Instances[e]
		i.Installed, i.Sized = installed, known.Size
		i.Ready, i.Message = ready(known, installed, p.Ring)
		i.Message = cmp.Or(i.Message, known.Message)
		p.Instances = append(p.Instances, i)
		if m.State == fleet.MemberRemoving && installed && known.State != mirror.InstanceRemoving {
			if err := l.Pools.RemoveInstance(ctx, lease, e); err != nil {
				return err
			}
		}
	}
	return l.stepPool(ctx, lease, d, p, pool.Next(facts.Now, p))
}

// ready reports whether the Argo CD of an instance runs, or why not.
func ready(i mirror.InstanceFacts, installed bool, ring string) (bool, string) {
	switch {
	case !installed:
		return false, "ring " + ring + " does not install it yet, see `argosy describe ring " +
			ring + "`"
	case i.State == mirror.InstanceRemoving:
		return false, i.Message
	case i.State != mirror.InstanceRunning:
		return false, cmp.Or(i.Message, "its Argo CD is "+string(i.State))
	case !i.Followed:
		return false, "its cluster is not followed yet"
	case i.Work.Faulty():
		return false, cmp.Or(i.Work.Message, string(i.Work.State))
	}
	return true, ""
}

// stepPool records a step: the instance first, since the state of the pool follows from it.
func (l *Loop) stepPool(ctx context.Context, lease mirror.Lease, d *fleet.Declaration,
	p pool.Pool, s pool.Step) error {
	var in catalog.Input
	switch {
	case s.Drop != nil:
		in = catalog.Input{Key: instanceKey(*s.Drop), Path: d.Path, Removed: true}
	case s.Set != nil:
		var err error
		if in, err = instance(d, *s.Set); err != nil {
			return err
		}
	}
	if in.Path != "" {
		if err := l.planInstances(ctx, lease, in); err != nil {
			return err
		}
		why := l.rejected(in.Key, s)
		if s.Set != nil && s.Set.State == fleet.MemberMaking && why != "" {
			l.pools.blocked[p.Name] = obstacle{why, time.Now()}
			s.Pool.State, s.Pool.Message = mirror.PoolBlocked, why
		}
		l.Log.Info("pool", "pool", p.Name, "state", s.Pool.State, "reason", s.Pool.Message)
	}
	if samePool(s.Pool, p.Stored) {
		return nil
	}
	return l.Pools.SetPool(ctx, lease, s.Pool)
}

// rejected returns why a new instance is not in effect.
func (l *Loop) rejected(k fleet.Key, s pool.Step) string {
	view := &l.stored.state.Catalog().View
	if s.Set == nil || view.Declaration(k) != nil {
		return ""
	}
	why := "the plan does not have it"
	if q, ok := view.Quarantine(k); ok && len(q.Problems) > 0 {
		why = q.Problems[0].Message
	}
	return k.Name + " cannot be made: " + why
}

func samePool(a, b mirror.Pool) bool {
	same := func(a, b *time.Time) bool {
		return (a == nil) == (b == nil) && (a == nil || a.Equal(*b))
	}
	return a.State == b.State && a.Message == b.Message && a.Load == b.Load &&
		a.Waiting == b.Waiting && same(a.HighSince, b.HighSince) && same(a.LowSince, b.LowSince) &&
		same(a.SteppedAt, b.SteppedAt) &&
		maps.EqualFunc(a.Sizing, b.Sizing, func(a, b mirror.SizeMemory) bool {
			return same(a.HighSince, b.HighSince) && same(a.LowSince, b.LowSince) &&
				same(a.RefusedAt, b.RefusedAt) && a.Refused == b.Refused
		})
}

// planInstances plans the applied revision again with other instances.
func (l *Loop) planInstances(ctx context.Context, lease mirror.Lease,
	inputs ...catalog.Input) error {
	r := &plan.Request{Revision: l.stored.state.Revision(), Relation: mirror.RelationSame,
		Instances: inputs}
	l.lacking(r)
	if err := l.planner.readHistory(ctx, l.stored.state, r); err != nil {
		return err
	}
	_, err := l.planAndRecord(ctx, lease, Head{Revision: r.Revision}, r)
	return err
}

// know declares the instances of a pool that its clusters have, after the mirror was lost or before
// the first one is made. It returns why they are not known yet; failed is set if a cluster could
// not be read.
func (l *Loop) know(ctx context.Context, lease mirror.Lease, d *fleet.Declaration) (why string,
	failed bool, err error) {
	found, why, failed := l.pools.result(ctx, d)
	if why != "" {
		return why, failed, nil
	}
	inputs, err := missing(d, found, l.stored.state.Catalog().InstancesOf(d.Key.Name))
	if err != nil || len(inputs) == 0 {
		return "", false, err
	}
	if l.recovery.Required() {
		return "its instances are being read", false, nil // the next plan of the head declares them
	}
	return "", false, l.planInstances(ctx, lease, inputs...)
}

// findInstances adds to a request after a loss of the mirror the instances that pools turn out to
// have, and the pools of which that is not known yet: environments that their instances may have
// must not be placed anywhere else.
func (l *Loop) findInstances(ctx context.Context, r *plan.Request) error {
	if l.Pools == nil {
		return nil
	}
	view := &l.stored.state.Catalog().View
	all := map[string]*fleet.Declaration{}
	for _, name := range view.Pools() {
		all[name] = view.Declaration(fleet.PoolKey(name))
	}
	for _, f := range r.Files {
		if f.Declaration != nil && f.Declaration.Pool != nil {
			all[f.Key.Name] = f.Declaration
		}
	}
	begins := false
	for name, d := range all {
		begins = begins || l.pools.searches[name] == nil
		l.pools.result(ctx, d)
	}
	if begins {
		l.pools.wait(ctx)
	}
	var unread []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		found, why, _ := l.pools.result(ctx, all[name])
		if why != "" {
			l.Log.Warn("pool is not read yet; environments that its instances may have are not "+
				"placed until it is", "pool", name, "reason", why)
			unread = append(unread, name)
			continue
		}
		inputs, err := missing(all[name], found, view.InstancesOf(name))
		if err != nil {
			return err
		}
		r.Instances = append(r.Instances, inputs...)
	}
	l.recovery.AwaitPools(unread)
	return nil
}

func instanceKey(m fleet.PoolMember) fleet.Key {
	return fleet.Key{Kind: fleet.KindEngine, Name: string(fleet.InstanceName(m.Pool, m.Number))}
}

// instance returns the engine of a member of a pool as a file of the config repo would declare it.
func instance(d *fleet.Declaration, m fleet.PoolMember) (catalog.Input, error) {
	m.Since = m.Since.UTC().Truncate(time.Second) // as they come back from the store
	m.SizedAt = m.SizedAt.UTC().Truncate(time.Second)
	e, err := d.Instance(m)
	if err != nil {
		return catalog.Input{}, err
	}
	return catalog.Input{Key: e.Key, Path: e.Path, Blob: e.Blob, Declaration: &e}, nil
}
