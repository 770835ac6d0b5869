package reconciler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
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

// InstanceReader reads the clusters of pools.
type InstanceReader interface {
	// Installed reports whether Argosy has installed an Argo CD as the engine.
	Installed(ctx context.Context, name fleet.EngineName, spec fleet.EngineSpec) (bool, error)
}

const (
	findEvery   = time.Minute      // between two reads of the clusters of a pool after an error
	findTimeout = 30 * time.Second // of one pool
)

// pools is what the leader remembers of pools between two checks.
type pools struct {
	none    bool                 // the store has no row of a pool
	blocked map[string]string    // why the next instance of a pool cannot be made
	unknown map[string]string    // why the instances of a pool are not known
	tried   map[string]time.Time // of blocked and unknown
}

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
	if !facts.Known[name] {
		var err error
		if p.Unknown, err = l.know(ctx, lease, d); err != nil {
			return err
		}
	}
	if l.pools.retries(name) {
		delete(l.pools.blocked, name)
	}
	p.Blocked = l.pools.blocked[name]
	p.Waiting = state.WaitingFor(emptyInstance(d))
	for _, m := range state.Catalog().InstancesOf(name) {
		e := fleet.InstanceName(name, m.Number)
		i := pool.Instance{PoolMember: m, Load: state.LoadOf(e), Empty: facts.Empty[e]}
		known, installed := facts.Instances[e]
		i.Installed = installed
		i.Ready, i.Message = ready(known, installed, p.Ring)
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
		return false, "ring " + ring + " does not install it yet"
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

// emptyInstance is an instance of a pool that takes environments and has none.
func emptyInstance(d *fleet.Declaration) placement.Engine {
	t := d.Pool.Template
	return placement.Engine{Name: fleet.InstanceName(d.Key.Name, fleet.MaxPoolInstances),
		Labels: t.Labels, Spec: fleet.EngineSpec{Region: t.Region, Capacity: t.Capacity,
			DedicatedTo: t.DedicatedTo, Taints: t.Taints}}
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
			l.pools.fail(&l.pools.blocked, p.Name, why)
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
		same(a.SteppedAt, b.SteppedAt)
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

// know reads which instances of a pool there are, after the mirror was lost or before the first
// one is made. It returns why they are not known yet.
func (l *Loop) know(ctx context.Context, lease mirror.Lease, d *fleet.Declaration) (string, error) {
	name := d.Key.Name
	if why := l.pools.unknown[name]; why != "" && !l.pools.retries(name) {
		return why, nil
	}
	delete(l.pools.unknown, name)
	found, err := l.find(ctx, d, l.stored.state.Catalog().InstancesOf(name))
	if err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		l.pools.fail(&l.pools.unknown, name, err.Error())
		return err.Error(), nil
	}
	if len(found) == 0 {
		return "", nil
	}
	return "", l.planInstances(ctx, lease, found...)
}

// find returns the instances of a pool that its clusters have besides the known ones. Without an
// error, there are no others: each namespace that an instance may have was read.
func (l *Loop) find(ctx context.Context, d *fleet.Declaration, known []fleet.PoolMember) (
	found []catalog.Input, err error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	now := time.Now().UTC().Truncate(time.Second)
	for n := 1; n <= fleet.MaxPoolInstances; n++ {
		if slices.ContainsFunc(known, func(m fleet.PoolMember) bool { return m.Number == n }) {
			continue
		}
		for _, c := range d.Pool.Clusters {
			in, err := instance(d, fleet.PoolMember{Pool: d.Key.Name, Number: n, Cluster: c.Name,
				State: fleet.MemberMaking, Since: now, Reason: "found on cluster " + c.Name})
			if err != nil {
				return nil, err
			}
			is, err := l.Instances.Installed(ctx, fleet.EngineName(in.Key.Name),
				*in.Declaration.Engine)
			if err != nil {
				return nil, fmt.Errorf("cluster %s cannot be read: %w", c.Name, err)
			}
			if is {
				found = append(found, in)
				break // two clusters cannot have one instance: its name is that of one engine
			}
		}
	}
	return found, nil
}

// findInstances adds to the first request after a loss of the mirror the instances of pools that
// there are: their environments must not be placed anywhere else.
func (l *Loop) findInstances(ctx context.Context, r *plan.Request) error {
	if l.Pools == nil {
		return nil
	}
	view := &l.stored.state.Catalog().View
	all := map[fleet.Key]*fleet.Declaration{}
	for _, name := range view.Pools() {
		all[fleet.PoolKey(name)] = view.Declaration(fleet.PoolKey(name))
	}
	for _, f := range r.Files {
		if f.Declaration != nil && f.Declaration.Pool != nil {
			all[f.Key] = f.Declaration
		}
	}
	for k, d := range all {
		found, err := l.find(ctx, d, view.InstancesOf(k.Name))
		if err != nil {
			return fmt.Errorf("nothing is placed before the instances of pool %s are known: %w",
				k.Name, err)
		}
		r.Instances = append(r.Instances, found...)
	}
	return nil
}

func instanceKey(m fleet.PoolMember) fleet.Key {
	return fleet.Key{Kind: fleet.KindEngine, Name: string(fleet.InstanceName(m.Pool, m.Number))}
}

// instance returns the engine of a member of a pool as a file of the config repo would declare it.
func instance(d *fleet.Declaration, m fleet.PoolMember) (catalog.Input, error) {
	m.Since = m.Since.UTC().Truncate(time.Second) // as it comes back from the store
	e, err := d.Instance(m)
	if err != nil {
		return catalog.Input{}, err
	}
	return catalog.Input{Key: e.Key, Path: e.Path, Blob: e.Blob, Declaration: &e}, nil
}

// retries reports whether a failure is old enough to try again.
func (p *pools) retries(name string) bool { return time.Since(p.tried[name]) >= findEvery }

func (p *pools) fail(into *map[string]string, name, why string) {
	if *into == nil {
		*into = map[string]string{}
	}
	if p.tried == nil {
		p.tried = map[string]time.Time{}
	}
	(*into)[name], p.tried[name] = why, time.Now()
}
