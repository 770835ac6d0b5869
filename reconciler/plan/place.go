package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/placement"
)

func compareEnvironments(a, b fleet.EnvironmentID) int {
	return strings.Compare(string(a.Tenant)+"/"+string(a.Name), string(b.Tenant)+"/"+string(b.Name))
}

// placeWaiting gives engines to environments that have none: those that the plan touches, and all
// that wait when something has changed that may let them in. The order is that of their names, so
// that every replica decides alike.
func (d *draft) placeWaiting() error {
	pending := map[fleet.EnvironmentID]bool{}
	for id := range d.touchedEnvironments {
		if p, _ := d.placements.get(id); p.Engine == "" && d.changeset.Environment(id) != nil {
			pending[id] = true
		}
	}
	d.needsEngines = len(d.r.Unread) > 0 && d.anyToChoose(pending)
	if d.retry || d.w.blocked && len(d.r.Unread) == 0 {
		d.unserved.each(func(id fleet.EnvironmentID, _ struct{}) {
			pending[id] = d.changeset.Environment(id) != nil
		})
		maps.DeleteFunc(pending, func(_ fleet.EnvironmentID, inEffect bool) bool {
			return !inEffect
		})
	}
	d.blocked = len(d.r.Unread) > 0 && (d.w.blocked || d.anyToChoose(pending))
	if len(pending) == 0 {
		return nil
	}
	engines := placement.NewFleet(d.candidates())
	for _, id := range slices.SortedFunc(maps.Keys(pending), compareEnvironments) {
		p := d.decide(id, engines)
		p.Revision = d.r.Revision
		if err := d.settleIn(id, p); err != nil {
			return err
		}
		load, _ := d.loads.get(p.Engine)
		engines.Carry(p.Engine, load)
	}
	return nil
}

// anyToChoose reports whether an engine is to be chosen for one of them.
func (d *draft) anyToChoose(pending map[fleet.EnvironmentID]bool) bool {
	for id := range pending {
		if !behindAgent(d.changeset, id) {
			return true
		}
	}
	return false
}

func (d *draft) decide(id fleet.EnvironmentID, engines *placement.Fleet) fleet.Placement {
	item := d.item(id)
	if behindAgent(d.changeset, id) {
		return own(id, d.changeset.Environment(id).Environment, item.Applications)
	}
	if len(d.r.Unread) == 0 {
		if p, told := d.byAgents(item); told {
			return p
		}
		return engines.Decide(item, d.conflicts(id))
	}
	names := make([]string, 0, len(d.r.Unread))
	for _, e := range d.r.Unread {
		names = append(names, string(e))
	}
	slices.Sort(names)
	return fleet.Placement{Environment: id, Applications: item.Applications,
		Reason: "not placed yet: it may stand on an engine that was not read since the rebuild: " +
			strings.Join(names, ", ")}
}

// byAgents is what the agents' words decide after a rebuild: where the item stands already, or that
// it is not placed yet; false when nothing does.
func (d *draft) byAgents(item placement.Item) (fleet.Placement, bool) {
	p := fleet.Placement{Environment: item.Environment, Applications: item.Applications}
	stands := d.mayHave(item, d.r.Stands[item.Environment])
	unheard := slices.DeleteFunc(d.mayHave(item, d.r.Unheard), func(name fleet.EngineName) bool {
		return slices.Contains(stands, name)
	})
	switch {
	case len(stands) > 1:
		p.Reason = fmt.Sprintf(
			"not placed yet: the agents of engines %s and %s both say that it stands there; "+
				"remove its objects from one", stands[0], stands[1])
	case len(unheard) > 0:
		p.Reason = fmt.Sprintf(
			"not placed yet: it may stand on engine %s, whose agent has not told since the "+
				"rebuild that nothing does", unheard[0])
	case len(stands) == 1:
		p.Engine, p.Reason = stands[0],
			fmt.Sprintf("its objects stand on %s, as its agent said when the mirror was rebuilt",
				stands[0])
		return p, true
	default:
		return p, false
	}
	d.blocked = true
	return p, true
}

// mayHave are those of the engines that the item may have been given, in whatever state they are
// now, by name.
func (d *draft) mayHave(item placement.Item, names []fleet.EngineName) []fleet.EngineName {
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	return slices.DeleteFunc(sorted, func(name fleet.EngineName) bool {
		e := d.changeset.Engine(name)
		if e == nil {
			return true
		}
		spec := *e.Engine
		spec.State = fleet.EngineActive
		return placement.Verify(item, placement.Engine{Name: name, Labels: e.Labels,
			Spec: spec}) != ""
	})
}

// settleIn records a decision, and brings the environment's Applications to the engine.
func (d *draft) settleIn(id fleet.EnvironmentID, p fleet.Placement) error {
	old, known := d.placements.get(id)
	kept := p
	kept.Alternatives = nil
	d.placements.set(id, kept)
	if p.Engine == "" {
		d.unserved.set(id, struct{}{})
		if !known || old.Reason != p.Reason {
			d.decided[id] = p
		}
		return nil
	}
	d.decided[id] = p
	d.unserved.drop(id)
	d.place(id, p.Engine, 1)
	d.touchedShares[share{id.Tenant, p.Engine}] = true
	d.touchedEnvironments[id] = true
	for _, dep := range d.changeset.DeploymentsIn(id) {
		if err := d.application(applicationID(dep, id), true); err != nil {
			return err
		}
	}
	return nil
}

// candidates is every engine with what it carries now.
func (d *draft) candidates() []placement.Engine {
	names := d.changeset.Engines()
	out := make([]placement.Engine, 0, len(names))
	for _, name := range names {
		e := d.changeset.Engine(name)
		load, _ := d.loads.get(name)
		out = append(out, placement.Engine{Name: name, Labels: e.Labels, Spec: *e.Engine,
			Load: load})
	}
	return out
}

func (d *draft) item(id fleet.EnvironmentID) placement.Item {
	i := placement.Item{Environment: id, Region: d.changeset.Environment(id).Environment.Region,
		Applications: len(d.changeset.DeploymentsIn(id))}
	if t := d.changeset.Tenant(id.Tenant); t != nil {
		i.Constraints = t.Tenant.Placement
	}
	return i
}

// conflicts says why an engine cannot take the environment for what else it carries or what becomes
// of it. Argo CD looks repository credentials and its caches up by URL: two tenants who read one
// repository with credentials of their own do not share an engine. The other tenant is not named:
// the reason is shown to this one.
func (d *draft) conflicts(id fleet.EnvironmentID) func(fleet.EngineName) string {
	own := slices.DeleteFunc(d.changeset.Repositories(id), func(r catalog.Repository) bool {
		return r.Credential.Name == ""
	})
	return func(engine fleet.EngineName) string {
		if _, going := d.deferred[fleet.Key{Kind: fleet.KindEngine, Name: string(engine)}]; going {
			return "is to be removed or replaced and takes nothing new"
		}
		for _, r := range own {
			for _, other := range d.readers.keys(repo{engine, r.Key}) {
				if other != id.Tenant && d.changeset.CredentialFor(other, r.Key) != nil {
					return fmt.Sprintf(
						"already serves another tenant that reads %s with a credential of its own",
						r.Key)
				}
			}
		}
		return ""
	}
}

// verifyPlaced looks whether placements that the plan touches still hold. What no longer holds is
// said and stays: only a move moves it.
func (d *draft) verifyPlaced() {
	d.contest()
	var engines []placement.Engine
	for _, id := range slices.SortedFunc(maps.Keys(d.touchedEnvironments), compareEnvironments) {
		p, _ := d.placements.get(id)
		if p.Engine == "" || d.changeset.Environment(id) == nil {
			continue
		}
		if behindAgent(d.changeset, id) {
			d.reword(id, p)
			continue
		}
		why := d.misplacement(id, p.Engine)
		if base, stood := d.w.placements.base[id]; why == p.Misplaced &&
			!(stood && d.found(id, base)) {
			continue
		}
		p.Misplaced = why
		d.placements.set(id, p)
		if fresh, ok := d.decided[id]; ok {
			p.Alternatives = fresh.Alternatives
		} else {
			if engines == nil {
				engines = d.candidates()
			}
			p.Alternatives = d.alternatives(id, p.Engine, engines)
		}
		d.decided[id] = p
	}
}

// misplacement says why the engine would not be given the environment today, or "".
func (d *draft) misplacement(id fleet.EnvironmentID, on fleet.EngineName) string {
	e := d.changeset.Engine(on)
	if e == nil {
		return fmt.Sprintf("engine %s is not declared", on)
	}
	why := placement.Verify(d.item(id), placement.Engine{Name: on, Labels: e.Labels,
		Spec: *e.Engine})
	if why == "" {
		why = d.contestedFor(id, on)
	}
	if why == "" {
		return ""
	}
	return fmt.Sprintf("engine %s %s", on, why)
}

// alternatives looks at the engines as if the environment had none yet.
func (d *draft) alternatives(id fleet.EnvironmentID, on fleet.EngineName,
	engines []placement.Engine) []fleet.Alternative {
	without := slices.Clone(engines)
	for i := range without {
		if without[i].Name == on {
			without[i].Load.Environments--
			without[i].Load.Applications -= d.standing.count(id, on)
		}
	}
	return placement.Decide(d.item(id), without, d.conflicts(id)).Alternatives
}

// contest finds the repositories that two tenants have come to read, or no longer read, with
// credentials of their own on one engine, and touches the environments that are concerned.
func (d *draft) contest() {
	seen := map[repo]bool{}
	for r := range d.touchedReaders {
		if seen[r.repo] {
			continue
		}
		seen[r.repo] = true
		tenants := d.readers.keys(r.repo)
		owners := 0
		for _, t := range tenants {
			if d.changeset.CredentialFor(t, r.key) != nil {
				owners++
			}
		}
		_, was := d.contested.get(r.repo)
		if owners < 2 && !was {
			continue
		}
		if owners < 2 {
			d.contested.drop(r.repo)
			d.retry = true
		} else {
			d.contested.set(r.repo, struct{}{})
		}
		for _, t := range tenants {
			for _, env := range d.readIn.keys(reader{r.repo, t}) {
				d.touchedEnvironments[fleet.EnvironmentID{Tenant: t, Name: env}] = true
			}
		}
	}
}

func (d *draft) contestedFor(id fleet.EnvironmentID, engine fleet.EngineName) string {
	var found []string
	d.contested.each(func(r repo, _ struct{}) {
		if r.engine == engine && d.readIn.count(reader{r, id.Tenant}, id.Name) > 0 &&
			d.changeset.CredentialFor(id.Tenant, r.key) != nil {
			found = append(found, r.key)
		}
	})
	if len(found) == 0 {
		return ""
	}
	slices.Sort(found)
	return "serves another tenant that reads " + strings.Join(found, " and ") +
		" with a credential of its own"
}
