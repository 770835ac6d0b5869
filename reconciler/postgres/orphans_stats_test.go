package postgres_test

import (
	"maps"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func TestFleetStatsCountOrphansOfEnginesAndOfAgents(t *testing.T) {
	k := newAgentKit(t)
	worker := hold(t, k.Store, "engine/eu-1")
	check(t, k.Work.ReportOrphans(t.Context(), worker, []mirror.Orphan{
		{Key: fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication, Name: "one"},
			Tenant: "acme", UID: "u1"},
		{Key: fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication, Name: "two"},
			Tenant: "acme", UID: "u2"}}, nil))
	lease := k.open(k.join(acmeEdge, "one"), "p1").Lease
	check(t, k.Agents.ReportAgent(t.Context(), lease, registry.Report{Reachable: true, Orphans: 3}))
	f := must(k.Views.FleetStats(t.Context(), view.StatsQuery{Holder: k.reconciler.Holder}))(t)
	if want := map[fleet.EngineName]int{"eu-1": 2, "far-1": 0, "acme.edge": 3}; !maps.Equal(
		f.Orphans, want) {
		t.Errorf("%v, want %v", f.Orphans, want)
	}
}
