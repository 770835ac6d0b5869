package postgres_test

import (
	"errors"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func unreachable(tenant fleet.TenantName, name fleet.EnvironmentName, since time.Time,
	parked int) mirror.Reach {
	return mirror.Reach{Environment: fleet.EnvironmentID{Tenant: tenant, Name: name},
		Unreachable: &mirror.Unreachable{
			Reason: mirror.UnreachableTimeout, Message: "i/o timeout", Since: since, Parked: parked,
		}}
}

func TestUnreachableEnvironmentsAreShownToTheirTenantAlone(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	exec(t, url,
		`INSERT INTO desired (engine, kind, name, tenant, environment, deployment, seq, created_at, changed_at, absent, deletion, revision, hash, body)
		SELECT 'eu-1', 'Cluster', 'c-' || t.tenant, t.tenant, 'prod', '', 1000, now(), now(), false, 'Delete', '', '', '{}' FROM tenants t`)
	worker := hold(t, s, "engine/eu-1")
	began := time.Now().Add(-10 * time.Minute).UTC().Truncate(time.Microsecond)
	shown := func(scope view.Scope) map[string]*mirror.Unreachable {
		t.Helper()
		all, _, err := s.Views.Environments(t.Context(), scope, view.Filter{},
			view.Page{Limit: 100})
		check(t, err)
		apps, _, err := s.Views.Applications(t.Context(), scope, view.Filter{},
			view.Page{Limit: 100})
		check(t, err)
		found := map[string]*mirror.Unreachable{}
		for _, e := range all {
			if e.Unreachable != nil {
				found[string(e.Tenant)+"/"+string(e.Name)] = e.Unreachable
			}
		}
		for _, a := range apps {
			ofEnvironment := found[string(a.Tenant)+"/"+string(a.Environment)]
			if (a.Unreachable != nil) != (ofEnvironment != nil) {
				t.Errorf("Application %s@%s: %+v", a.Deployment, a.Environment, a.Unreachable)
			}
		}
		return found
	}
	check(t, s.Work.ReportReach(t.Context(), worker, []mirror.Reach{
		unreachable("acme", "prod", began, 3), unreachable("globex", "prod", began, 2),
		unreachable("acme", "none", began, 1),
	}, true))
	if got := shown(view.Scope{}); len(got) != 2 || got["acme/prod"].Parked != 3 ||
		!got["acme/prod"].Since.Equal(began) {
		t.Errorf("to the platform: %+v", got)
	}
	if got := shown(view.Scope{Tenant: "acme"}); len(got) != 1 || got["acme/prod"] == nil {
		t.Errorf("to acme: %+v", got)
	}
	engines, _, err := s.Views.Engines(t.Context(), view.Scope{}, view.Filter{Engine: "eu-1"},
		view.Page{Limit: 10})
	if check(t, err); engines[0].Unreachable != 2 || engines[0].Parked != 5 {
		t.Errorf("the engine: %+v", engines[0])
	}
	events := one[int](t, url, `SELECT count(*) FROM events WHERE kind = 'environment'`)
	// a new session of the worker
	check(t, s.Work.ReportReach(t.Context(), worker, []mirror.Reach{
		unreachable("acme", "prod", time.Now(), 4)}, false))
	if got := shown(view.Scope{}); got["acme/prod"].Parked != 4 ||
		!got["acme/prod"].Since.Equal(began) || got["globex/prod"] == nil {
		t.Errorf("a later report: %+v", got["acme/prod"])
	}
	if n := one[int](t, url,
		`SELECT count(*) FROM events WHERE kind = 'environment'`); n != events || n != 2 {
		t.Errorf("%d events, then %d", events, n)
	}
	check(t, s.Work.ReportReach(t.Context(), worker, []mirror.Reach{
		{Environment: fleet.EnvironmentID{Tenant: "acme", Name: "prod"}}}, false))
	if got := shown(view.Scope{}); len(got) != 1 || got["globex/prod"] == nil {
		t.Errorf("after acme's answers: %+v", got)
	}
	check(t, s.Work.ReportReach(t.Context(), worker, nil, true))
	if got := shown(view.Scope{}); len(got) != 0 {
		t.Errorf("after a new session found none: %+v", got)
	}
	if n := one[int](t, url, `SELECT count(*) FROM events WHERE kind = 'environment'`); n != 4 {
		t.Errorf("%d events", n)
	}
	old := worker
	old.Epoch--
	if err := s.Work.ReportReach(t.Context(), old, nil, true); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("under an earlier lease: %v", err)
	}
}

func TestAnAgentsEngineReportsUnreachableClustersAndLearnsItsTenants(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	exec(t, k.url,
		`INSERT INTO desired (engine, kind, name, tenant, environment, deployment, seq, created_at, changed_at, absent, deletion, revision, hash, body)
		VALUES ('far-1', 'Cluster', 'c', 'acme', 'prod', '', 1000, now(), now(), false, 'Delete', '', '', '{}')`)
	a := k.join("far-1", "x")
	session := k.open(a, "one")
	if len(session.DedicatedTo) != 0 {
		t.Errorf("a shared engine is dedicated to %v", session.DedicatedTo)
	}
	rows := func(want int) {
		t.Helper()
		if got := one[int](t, k.url,
			`SELECT count(*) FROM reach WHERE engine = 'far-1' AND tenant = 'acme' AND environment = 'prod'`); got != want {
			t.Errorf("%d environments, want %d", got, want)
		}
	}
	report := registry.Report{Reachable: true, Reach: []mirror.Reach{
		// not served by it
		unreachable("acme", "prod", time.Now(), 2), unreachable("globex", "prod", time.Now(), 2),
	}}
	check(t, k.Agents.ReportAgent(t.Context(), session.Lease, report))
	rows(1)
	if n := one[int](t, k.url, `SELECT count(*) FROM reach`); n != 1 {
		t.Errorf("%d environments in all", n)
	}
	report.Reach, report.Message = nil, "an agent of an earlier version"
	check(t, k.Agents.ReportAgent(t.Context(), session.Lease, report))
	rows(1)
	report.Reach = []mirror.Reach{}
	check(t, k.Agents.ReportAgent(t.Context(), session.Lease, report))
	rows(0)
	k.record(func(r *mirror.Record) {
		d := behind("far-1")
		d.Engine.DedicatedTo = []fleet.TenantName{"acme"}
		r.Declarations = []fleet.Declaration{d}
	})
	if again := k.open(a, "two"); len(again.DedicatedTo) != 1 || again.DedicatedTo[0] != "acme" ||
		again.Generation <= session.Generation {
		t.Errorf("a dedicated engine is opened as %+v", again)
	}
}
