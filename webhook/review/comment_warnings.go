package review

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/report"
)

// warnings tells of what does not stop the merge and yet may spoil it.
func (c *comment) warnings(p *page, d detail) {
	engines := engineNames(c.rows)
	list := slices.Concat(c.f.stopsOf(each(c.tenants, func(t report.Tenant) fleet.TenantName {
		return t.Name
	}), engines),
		c.f.away(engines), c.f.closing(engines), c.unplaced(), c.standing(), c.collisions())
	if len(list) == 0 {
		return
	}
	p.para("**⚠️ Worth knowing before the merge**")
	p.items(list, min(d.list, 20))
}

// stopsOf is the emergency stops that are about any of these.
func (f Facts) stopsOf(tenants []fleet.TenantName, engines []fleet.EngineName) []string {
	var list []string
	for _, s := range f.Stops {
		what := "an emergency stop of the fleet"
		switch s.Scope {
		case mirror.StopTenant:
			if !slices.Contains(tenants, fleet.TenantName(s.Name)) {
				continue
			}
			what = "an emergency stop of " + tenant(fleet.TenantName(s.Name))
		case mirror.StopEngine:
			if !slices.Contains(engines, fleet.EngineName(s.Name)) {
				continue
			}
			what = "an emergency stop of engine " + tick(s.Name)
		}
		text := prose(upper(what)) + " is in force since " + utc(s.At) +
			": nothing is written until it is resumed"
		if s.Reason != "" {
			text += ". Its reason: " + words(s.Reason)
		}
		list = append(list, text)
	}
	return list
}

// engineNames is every engine of the rows, sorted.
func engineNames(rows []change) []fleet.EngineName {
	var names []fleet.EngineName
	for _, r := range rows {
		names = append(names, r.engines...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// away is the engines that cannot be written to now.
func (f Facts) away(engines []fleet.EngineName) []string {
	var list []string
	for _, name := range engines {
		e, known := f.Engines[name]
		switch {
		case !known:
		case e.Agent.away(f.Now):
			list = append(list, prose(upper(place(name)))+": "+e.Agent.absence())
		case !e.Reachable:
			text := prose(upper(place(name))) + " is not reachable"
			if e.Since != nil {
				text += " since " + utc(*e.Since)
			}
			list = append(list, text+": what changes there waits until it is")
		}
	}
	return list
}

// absence is why nothing reaches the cluster of an agent that is away, and when it will.
func (a *Agent) absence() string {
	switch {
	case !a.Joined:
		return "no agent has joined yet; what changes there is applied once one has"
	case a.Over:
		return "its agent is no longer let in; what changes there is applied once one has " +
			"joined again"
	case a.LastSeen == nil:
		return "its agent has joined and never connected; what changes there is applied once it does"
	}
	return "its agent was last seen " + utc(*a.LastSeen) +
		"; what changes there is applied when it is back"
}

// place is an engine as a sentence goes on with it.
func place(name fleet.EngineName) string {
	if name.OfEnvironment() {
		return "own cluster " + tick(string(name))
	}
	return "engine " + tick(string(name))
}

// closing is the engines that take nothing new.
func (f Facts) closing(engines []fleet.EngineName) []string {
	var list []string
	for _, name := range engines {
		at := prose("Engine " + tick(string(name)))
		switch f.Engines[name].State {
		case fleet.EngineCordoned:
			list = append(list,
				at+" is cordoned: it takes no new environment; what stands there goes on")
		case fleet.EngineDraining:
			list = append(list, at+" is draining: what stands there is to move to another engine")
		}
	}
	return list
}

func (c *comment) unplaced() []string {
	var list []string
	for _, t := range c.tenants {
		for _, pl := range t.Placements {
			if pl.Engine == "" {
				list = append(list, prose("Environment "+tick(string(pl.Environment.Name)))+
					" has no engine, and nothing is deployed there: "+words(pl.Reason))
			} else if pl.Misplaced != "" {
				list = append(list, prose("Environment "+tick(string(pl.Environment.Name)))+
					" stays where it is, though it is misplaced: "+words(pl.Misplaced))
			}
		}
	}
	return list
}

// standing names the Applications that were not well before: what comes after the merge is not this
// change's doing alone. Of one that is to go nothing comes after.
func (c *comment) standing() []string {
	var list []string
	for _, r := range c.rows {
		o, known := c.f.Standing[r.key]
		if !known || !o.Present || r.verb == added || r.verb == deleted || r.verb == held {
			continue
		}
		var bad []string
		if o.Sync == mirror.SyncOutOfSync {
			bad = append(bad, string(o.Sync))
		}
		if o.Health == mirror.HealthDegraded || o.Health == mirror.HealthMissing {
			bad = append(bad, string(o.Health))
		}
		if o.Apply == mirror.ApplyFailed || o.Apply == mirror.ApplyConflict {
			bad = append(bad, "not taken by its engine")
		}
		if len(bad) == 0 {
			continue
		}
		text := prose(r.subject()) + " is " + strings.Join(bad, " and ") + " already"
		if message := cmp.Or(o.Message, o.ApplyMessage); message != "" {
			text += ": " + words(message)
		}
		list = append(list, text)
	}
	return list
}

func (c *comment) collisions() []string {
	var list []string
	sorted := slices.Clone(c.f.Collisions)
	slices.SortFunc(sorted, func(a, b forge.Collision) int { return a.Number - b.Number })
	for _, x := range sorted {
		list = append(list,
			fmt.Sprintf(
				"#%d changes %s too: whichever is merged second has to be brought up to date",
				x.Number, prose(series(each(x.Touches, tick), 3))))
	}
	return list
}

// utc is a moment as it stays true: no "ago" that would have to be written anew with every look.
func utc(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
