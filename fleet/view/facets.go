package view

import (
	"cmp"
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// maxFacets bounds the values of one field of Facets: those with the most Applications.
const maxFacets = 100

// FacetsOf counts the Applications of the filter's Tenant, Environment, Engine, Sync, Health and
// Apply. counted are those that match the filter's other fields.
func FacetsOf(counted []StateCount, filter Filter) Facets {
	var f Facets
	sync, health, apply := tally[mirror.SyncState]{}, tally[mirror.HealthState]{},
		tally[mirror.ApplyState]{}
	engines, environments := tally[fleet.EngineName]{}, tally[fleet.EnvironmentName]{}
	tenants := tally[fleet.TenantName]{}
	for _, c := range counted {
		match := [...]bool{matches(filter.Sync, c.Sync), matches(filter.Health, c.Health),
			matches(filter.Apply, c.Apply), matches(filter.Engine, c.Engine),
			matches(filter.Environment, c.Environment), matches(filter.Tenant, c.Tenant)}
		missed, n := -1, 0 // the only field that does not match
		for i, ok := range match {
			if !ok {
				missed, n = i, n+1
			}
		}
		if n > 1 {
			continue
		}
		if n == 0 {
			f.Total += c.Count
		}
		count := func(field int, add func()) {
			if n == 0 || missed == field {
				add()
			}
		}
		count(0, func() { sync[c.Sync] += c.Count })
		count(1, func() { health[c.Health] += c.Count })
		count(2, func() { apply[c.Apply] += c.Count })
		count(3, func() { engines[c.Engine] += c.Count })
		count(4, func() { environments[c.Environment] += c.Count })
		count(5, func() { tenants[c.Tenant] += c.Count })
	}
	f.Sync, f.Health, f.Apply = sync.facets(), health.facets(), apply.facets()
	f.Engines, f.Environments, f.Tenants = engines.facets(), environments.facets(),
		tenants.facets()
	return f
}

func matches[T ~string](wanted, have T) bool { return wanted == "" || wanted == have }

type tally[T ~string] map[T]int

// facets are the values with the most Applications, the most frequent first.
func (t tally[T]) facets() []Facet {
	all := make([]Facet, 0, len(t))
	for _, value := range slices.Sorted(maps.Keys(t)) {
		if value != "" && t[value] > 0 {
			all = append(all, Facet{Value: string(value), Count: t[value]})
		}
	}
	slices.SortStableFunc(all, func(a, b Facet) int { return cmp.Compare(b.Count, a.Count) })
	return all[:min(len(all), maxFacets)]
}
