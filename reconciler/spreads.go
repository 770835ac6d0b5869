package reconciler

import (
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/pool"
)

// giver is an instance of a pool that environments leave for the emptiest one.
type giver struct {
	change placement.Change // of the instance that takes them
	left   int              // by the last simulation; 1 before it
}

// spread decides which instances of pools give environments to another one of their pool. It costs
// the engines of pools; a simulation finds the environments.
func (d *drainer) spread(at *basis, now time.Time) {
	catalog := at.state.Catalog()
	names := catalog.Pools()
	for name, s := range d.spreads {
		if !slices.Contains(names, name) {
			d.end(s)
			delete(d.spreads, name)
		}
	}
	for _, name := range names {
		var instances []pool.Instance
		for _, m := range catalog.InstancesOf(name) {
			instances = append(instances, pool.Instance{PoolMember: m,
				Load: at.state.LoadOf(fleet.InstanceName(name, m.Number))})
		}
		declared := catalog.Declaration(fleet.PoolKey(name))
		if declared == nil {
			continue
		}
		was := d.spreads[name]
		s := was.Next(now, *declared.Pool, instances)
		if was.To != "" && !slices.ContainsFunc(s.From, func(e fleet.EngineName) bool {
			_, gives := d.gives[e]
			return gives
		}) {
			s = s.Done(now)
		}
		switch {
		case was.To == "" && s.To != "":
			d.Log.Info("the load of a pool is spread", "pool", name, "to", s.To)
			for _, from := range s.From {
				delete(d.retry, from)
				d.gives[from] = giver{placement.Change{Kind: placement.Join, Engine: s.To,
					Pool: name}, 1}
			}
		case was.To != "" && s.To == "":
			d.Log.Info("the load of a pool is no longer spread", "pool", name, "to", was.To)
			d.end(was)
		}
		d.spreads[name] = s
	}
}

// end keeps the instances of a pool from giving more environments.
func (d *drainer) end(s pool.Spread) {
	for _, from := range s.From {
		delete(d.gives, from)
	}
}
