package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// A page of the whole fleet counts as the pages of its tenants and engines do, after each kind of
// change.
func TestTheCountsOfTheFleetFollowEveryChange(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	loop, worker := hold(t, s, "reconciler"), hold(t, s, "engine/eu-1")
	const many = 12
	var tenants []fleet.Declaration
	var rows []mirror.Row
	for i := range many {
		tenant := fmt.Sprintf("t%02d", i)
		tenants = append(tenants, tenantDeclaration(tenant), fleet.Declaration{
			Key:  fleet.Key{Kind: fleet.KindEngine, Name: fmt.Sprintf("eu-%d", i+1)},
			Path: fmt.Sprintf("fleet/engines/eu-%d.yaml", i+1), Engine: &fleet.EngineSpec{}})
		rows = append(rows, application("eu-1", tenant, "a", "prod", "v1"),
			application(fmt.Sprintf("eu-%d", i+1), tenant, "b", "dev", "v1"))
	}
	must(s.Plans.Record(t.Context(), loop, step(0, 1, func(r *mirror.Record) {
		r.Declarations, r.Rows, r.Created = tenants, rows, len(rows)
	})))(t)
	same := func(what string) {
		t.Helper()
		all, _, err := s.Views.Tenants(t.Context(), view.Scope{}, view.Filter{}, view.Page{
			Limit: 100})
		check(t, err)
		engines, _, err := s.Views.Engines(t.Context(), view.Scope{}, view.Filter{}, view.Page{
			Limit: 100})
		check(t, err)
		if len(all) != many || len(engines) != many {
			t.Fatalf("%s: %d tenants, %d engines", what, len(all), len(engines))
		}
		for _, got := range all {
			one, _, err := s.Views.Tenants(t.Context(), view.Scope{}, view.Filter{
				Tenant: got.Name}, view.Page{Limit: 1})
			check(t, err)
			if got.Counts != one[0].Counts || got.Held != one[0].Held {
				t.Errorf("%s: tenant %s has %+v, and %+v by itself", what, got.Name, got.Counts,
					one[0].Counts)
			}
		}
		for _, got := range engines {
			one, _, err := s.Views.Engines(t.Context(), view.Scope{}, view.Filter{
				Engine: got.Name}, view.Page{Limit: 1})
			check(t, err)
			if got.Counts != one[0].Counts || got.Pending != one[0].Pending {
				t.Errorf("%s: engine %s has %+v and %d pending, and %+v and %d by itself", what,
					got.Name, got.Counts, got.Pending, one[0].Counts, one[0].Pending)
			}
		}
	}
	same("as recorded")
	stored := must(s.Work.Changed(t.Context(), "eu-1", 0, 1000))(t)
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(stored[:6])))
	same("acknowledged")
	for i, o := range []mirror.Observation{
		runsWith(stored[0].Key, "v1", mirror.HealthHealthy),
		runsWith(stored[1].Key, "v1", mirror.HealthDegraded),
		{Key: stored[2].Key, UID: "u", Sync: mirror.SyncOutOfSync, Health: mirror.HealthHealthy}} {
		check(t, s.Work.Observe(t.Context(), worker, []mirror.Observation{o}))
		same(fmt.Sprint("observed ", i))
	}
	check(t, s.Work.ReportReach(t.Context(), worker, []mirror.Reach{
		unreachable(stored[0].Tenant, "prod", time.Now(), 1)}, true))
	same("a cluster that cannot be read")
	check(t, s.Work.ReportReach(t.Context(), worker, nil, true))
	same("a cluster that is read again")
	must(s.Plans.Record(t.Context(), loop, step(1, 2, func(r *mirror.Record) {
		removed := stored[0]
		removed.Unwanted = true
		r.Rows = []mirror.Row{application("eu-3", "t05", "c", "dev", "v1"), removed}
	})))(t)
	same("after another plan")
	exec(t, url, `UPDATE leases SET expires_at = now() - interval '1 hour'`)
	same("an engine is silent")
}
