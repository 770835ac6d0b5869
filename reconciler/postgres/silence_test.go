package postgres_test

import (
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"github.com/google/go-cmp/cmp"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// greenFleet is populated with every Application Synced and Healthy on two followed engines.
func greenFleet(t *testing.T) (*postgres.Store, string) {
	t.Helper()
	s, url := populated(t)
	exec(t, url, `
		INSERT INTO status (engine, kind, name, tenant, seq, state, sync, health, acked_at, observed_at)
			SELECT engine, kind, name, tenant, seq, 'Applied', 'Synced', 'Healthy', now(), now() FROM desired WHERE kind = 'Application'
			ON CONFLICT (engine, kind, name) DO UPDATE SET seq = excluded.seq, state = 'Applied', sync = 'Synced', health = 'Healthy';
		INSERT INTO engines (engine, reachable, since) VALUES ('eu-1', true, now() - interval '1 hour'), ('us-1', true, now())
			ON CONFLICT (engine) DO UPDATE SET reachable = true, since = excluded.since;
		INSERT INTO leases (name, holder, epoch, expires_at)
			VALUES ('engine/eu-1', 'a', 1, now() + interval '1 hour'), ('engine/us-1', 'a', 1, now() + interval '1 hour')
			ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at`)
	return s, url
}

// silentApplications returns the engines and environments whose Applications are Unknown. It fails
// if an Application of theirs is green anywhere, to the platform or to its tenant.
func silentApplications(t *testing.T, s *postgres.Store) map[string]int {
	t.Helper()
	ctx, all := t.Context(), view.Page{Limit: 1000}
	found := map[string]int{}
	unknown := map[fleet.TenantName]int{}
	for _, scope := range []view.Scope{{}, {Tenant: "acme"}, {Tenant: "globex"}} {
		apps, _, err := s.Views.Applications(ctx, scope, view.Filter{}, all)
		check(t, err)
		var silent int
		for _, a := range apps {
			green := a.Sync == mirror.SyncSynced && a.Health == mirror.HealthHealthy
			if green == (a.LastSeenAt != nil) {
				t.Errorf("%s@%s: %s, %s, last seen %v", a.Deployment, a.Environment, a.Sync,
					a.Health, a.LastSeenAt)
			}
			if a.LastSeenAt == nil {
				continue
			}
			silent++
			if unknown[scope.Tenant]++; scope.Tenant == "" {
				found[string(a.Engine)+" "+string(a.Tenant)+"/"+string(a.Environment)]++
			}
		}
		for by, want := range map[view.Filter]int{
			{Sync: mirror.SyncUnknown}: silent, {Health: mirror.HealthUnknown}: silent,
			{Sync: mirror.SyncSynced}:      len(apps) - silent,
			{Health: mirror.HealthHealthy}: len(apps) - silent, {Health: mirror.HealthDegraded}: 0,
		} {
			got, _, err := s.Views.Applications(ctx, scope, by, all)
			if check(t, err); len(got) != want {
				t.Errorf("tenant %q, %+v: %d Applications, want %d", scope.Tenant, by, len(got),
					want)
			}
		}
	}
	counted := func(what string, of view.Counts, want int) {
		t.Helper()
		if of.Unknown != want || of.Synced+of.Unknown != of.Applications ||
			of.Healthy+of.Unknown != of.Applications {
			t.Errorf("%s: %+v, want %d unknown", what, of, want)
		}
	}
	tenants, _, err := s.Views.Tenants(ctx, view.Scope{}, view.Filter{}, all)
	check(t, err)
	for _, v := range tenants {
		counted(string(v.Name), v.Counts, unknown[v.Name])
	}
	environments, _, err := s.Views.Environments(ctx, view.Scope{}, view.Filter{}, all)
	check(t, err)
	for _, v := range environments {
		name := string(v.Tenant) + "/" + string(v.Name)
		counted(name, v.Counts, found[string(v.Engine)+" "+name])
		if (v.LastSeenAt != nil) != (v.Counts.Unknown > 0) {
			t.Errorf("%s: last seen %v", name, v.LastSeenAt)
		}
	}
	engines, _, err := s.Views.Engines(ctx, view.Scope{}, view.Filter{}, all)
	check(t, err)
	for _, v := range engines {
		if v.LastSeenAt != nil {
			counted(string(v.Name), v.Counts, v.Counts.Applications)
		}
	}
	deployments, _, err := s.Views.Deployments(ctx, view.Scope{}, view.Filter{}, all)
	check(t, err)
	sum := 0
	for _, v := range deployments {
		counted(string(v.Tenant)+"/"+string(v.Name), v.Counts, v.Counts.Unknown)
		sum += v.Counts.Unknown
	}
	if sum != unknown[""] {
		t.Errorf("of deployments: %d unknown, of %d", sum, unknown[""])
	}
	return found
}

func TestApplicationsOfASilentEngineOrClusterAreUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		silence string
		want    []string
	}{
		"all are followed": {`SELECT`, nil},
		"unreachable for a moment": {
			`UPDATE engines SET reachable = false, since = now() - interval '10 seconds'`, nil},
		"unreachable": {
			`UPDATE engines SET reachable = false, since = now() - interval '9 minutes' WHERE engine = 'eu-1'`,
			[]string{"eu-1 acme/prod", "eu-1 globex/prod"}},
		"followed by no replica": {
			`UPDATE leases SET expires_at = now() - interval '9 minutes' WHERE name = 'engine/us-1'`,
			[]string{"us-1 acme/staging", "us-1 globex/staging"}},
		"handed over": {
			`UPDATE leases SET holder = '', expires_at = '-infinity' WHERE name = 'engine/us-1'`,
			nil},
		"a cluster that the engine cannot read": {`
			INSERT INTO reach SELECT 'eu-1', 'acme', 'prod', uid, 'Refused', '', now() - interval '9 minutes', 0 FROM tenants WHERE tenant = 'acme'`,
			[]string{"eu-1 acme/prod"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, url := greenFleet(t)
			exec(t, url, c.silence)
			got := silentApplications(t, s)
			if len(got) != len(c.want) {
				t.Errorf("silent: %v, want %v", got, c.want)
			}
			for _, name := range c.want {
				if got[name] == 0 {
					t.Errorf("%s is not silent", name)
				}
			}
			apps, _, err := s.Views.Applications(t.Context(), view.Scope{}, view.Filter{},
				view.Page{Limit: 1000})
			check(t, err)
			var keys []fleet.ObjectKey
			for _, a := range apps {
				keys = append(keys, fleet.ObjectKey{Engine: a.Engine, Kind: fleet.ObjectApplication,
					Name: a.Name})
			}
			outcomes := must(s.Views.Outcomes(t.Context(), keys))(t)
			for i, a := range apps {
				if o := outcomes[i]; o.Sync != a.Sync || o.Health != a.Health ||
					(o.LastSeenAt == nil) != (a.LastSeenAt == nil) {
					t.Errorf("%s: its outcome is %+v", a.Name, o)
				}
				if at := a.LastSeenAt; at != nil && time.Since(*at).Round(time.Minute) !=
					9*time.Minute {
					t.Errorf("%s was last seen at %s", a.Name, at)
				}
			}
		})
	}
}

// The state of a cluster is unknown while its agent is not connected, and after the agent's
// identity has ended.
func TestApplicationsOfADisconnectedAgentAreUnknown(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	a, own := k.join(acmeEdge, "x"), k.join("acme.own", "o")
	o, ownSession := k.open(a, "one"), k.open(own, "one")
	k.beat()
	check(t, k.Agents.ReportAgent(ctx, o.Lease, registry.Report{Reachable: true}))
	check(t, k.Agents.ReportAgent(ctx, ownSession.Lease, registry.Report{Reachable: true}))
	rows := must(k.Agents.AgentChanged(ctx, acmeEdge, 0, 10))(t)
	check(t, k.Work.Acknowledge(ctx, o.Lease, applied(rows)))
	for _, r := range rows {
		check(t, k.Work.Observe(ctx, o.Lease, []mirror.Observation{
			{Key: r.Key, Sync: mirror.SyncSynced, Health: mirror.HealthHealthy}}))
	}
	check(t, k.Agents.RecordOwn(ctx, ownSession.Lease, []mirror.OwnApplication{{
		Namespace: "gitops", Name: "x", Sync: mirror.SyncSynced,
		Health: mirror.HealthHealthy}}, true))
	green := func(what string, want bool) {
		t.Helper()
		for _, scope := range []view.Scope{{}, {Tenant: "acme"}} {
			apps, _, err := k.Views.Applications(ctx, scope, view.Filter{Environment: "edge",
				Tenant: "acme", Health: mirror.HealthHealthy}, view.Page{Limit: 10})
			if check(t, err); (len(apps) == 2) != want || (len(apps) == 0) == want {
				t.Errorf("%s: %d of 2 Applications are Healthy", what, len(apps))
			}
			mine := k.own(scope, view.Filter{Health: mirror.HealthHealthy})
			if len(mine) != map[bool]int{true: 1}[want] {
				t.Errorf("%s: %d of 1 own Applications are Healthy", what, len(mine))
			}
		}
	}
	green("connected", true)
	k.exec(`UPDATE replicas SET beat_at = now() - interval '31 seconds'`)
	green("its replica has died", false)
	k.beat()
	green("its replica is back", true)
	check(t, k.Agents.RevokeAgent(ctx, view.Scope{}, acmeEdge, "test"))
	check(t, k.Agents.RevokeAgent(ctx, view.Scope{}, "acme.own", "test"))
	green("their identities have ended", false)
	k.open(k.join(acmeEdge, "y"), "two")
	k.open(k.join("acme.own", "p"), "two")
	green("they have joined again", true)
	k.exec(`UPDATE agents SET connected_to = '', seen_at = now() WHERE ended_at IS NULL`)
	green("disconnected", false)
}

func TestTheWorkOfAnEngineIsShownWithItsReason(t *testing.T) {
	t.Parallel()
	s, url := greenFleet(t)
	exec(t, url, `DELETE FROM leases WHERE name = 'engine/eu-1'`)
	worker := hold(t, s, "engine/eu-1")
	since := time.Now().Add(-5 * time.Minute).UTC().Truncate(time.Microsecond)
	work := func(w mirror.Work) *mirror.Work {
		t.Helper()
		check(t, s.Work.ReportEngine(t.Context(), worker, mirror.EngineReport{Engine: "eu-1",
			Reachable: true, Work: w}))
		engines, _, err := s.Views.Engines(t.Context(), view.Scope{}, view.Filter{Engine: "eu-1"},
			view.Page{Limit: 1})
		check(t, err)
		return engines[0].Work
	}
	if got := work(mirror.Work{}); got != nil {
		t.Errorf("before a probe: %+v", got)
	}
	for state, silent := range map[mirror.WorkState]bool{mirror.Working: false,
		mirror.QueueLong: false, mirror.RepoServerSilent: false, mirror.ControllerStuck: true} {
		want := mirror.Work{State: state, Since: since, Message: "as measured"}
		if got := work(want); got == nil || got.State != state || got.Message != want.Message ||
			!got.Since.Equal(since) {
			t.Errorf("%+v, want %+v", got, want)
		}
		events := one[int](t, url, `SELECT count(*) FROM events WHERE kind = 'engine'`)
		work(want)
		if n := one[int](t, url, `SELECT count(*) FROM events WHERE kind = 'engine'`); n != events {
			t.Errorf("%s: a repeated report is an event", state)
		}
		// Nothing is reported by a stuck application-controller; the others still report.
		if got := silentApplications(t, s); (len(got) > 0) != silent {
			t.Errorf("%s: silent are %v", state, got)
		}
		hold(t, s, "reconciler")
		f := must(s.Views.FleetStats(t.Context(), asLeader))(t)
		if len(f.Engines) == 0 || f.Engines[0].Work != state {
			t.Errorf("%s: the statistics have %+v", state, f.Engines)
		}
	}
	work(mirror.Work{State: mirror.ControllerStuck, Since: since})
	if got := work(mirror.Work{}); got == nil || got.State != mirror.ControllerStuck {
		t.Errorf("another worker has measured nothing yet: %+v", got)
	}
	if got := work(mirror.Work{Since: time.Now()}); got != nil {
		t.Errorf("nothing may be measured, and it is %+v", got)
	}
	work(mirror.Work{State: mirror.Working, Since: since})
	check(t, s.Work.ReportEngine(t.Context(), worker, mirror.EngineReport{Engine: "eu-1"}))
	engines, _, err := s.Views.Engines(t.Context(), view.Scope{}, view.Filter{Engine: "eu-1"},
		view.Page{Limit: 1})
	if check(t, err); engines[0].Work != nil {
		t.Errorf("an unreachable engine works as %+v", engines[0].Work)
	}
}

// The second wall: a tenant that asks for silent engines gets those of its own Applications.
func TestATenantLearnsOfItsOwnSilentEnginesAlone(t *testing.T) {
	t.Parallel()
	_, url := greenFleet(t)
	exec(t, url, `UPDATE engines SET reachable = false, since = now() - interval '9 minutes';
		INSERT INTO engines (engine, reachable, since) VALUES ('globex.edge', false, now() - interval '9 minutes');
		INSERT INTO tenants (tenant) VALUES ('initech')`)
	conn := connect(t, url)
	defer conn.Close(t.Context())
	for tenant, want := range map[string]string{"acme": "eu-1 us-1", "initech": ""} {
		tx, err := conn.Begin(t.Context())
		check(t, err)
		_, err = tx.Exec(t.Context(), `SELECT set_config('argosy.tenant', $1, true)`, tenant)
		check(t, err)
		_, err = tx.Exec(t.Context(), `SET LOCAL ROLE argosy_reader`)
		check(t, err)
		var got string
		check(t, tx.QueryRow(t.Context(),
			`SELECT coalesce(string_agg(e, ' ' ORDER BY e), '') FROM silent_engines() e`).
			Scan(&got))
		if got != want {
			t.Errorf("%s learns of %q, want %q", tenant, got, want)
		}
		check(t, tx.Rollback(t.Context()))
	}
}

func TestTheLoadOfAnEngineIsShownWhileItIsMeasured(t *testing.T) {
	t.Parallel()
	s, url := greenFleet(t)
	exec(t, url, `DELETE FROM leases WHERE name = 'engine/eu-1'`)
	worker := hold(t, s, "engine/eu-1")
	shown := func(l *mirror.Load) *mirror.Load {
		t.Helper()
		check(t, s.Work.ReportEngine(t.Context(), worker, mirror.EngineReport{Engine: "eu-1",
			Reachable: true, Load: l}))
		engines, _, err := s.Views.Engines(t.Context(), view.Scope{}, view.Filter{Engine: "eu-1"},
			view.Page{Limit: 1})
		check(t, err)
		return engines[0].Measured
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	load := &mirror.Load{At: now, Controller: &mirror.ControllerLoad{
		ProcessLoad: mirror.ProcessLoad{CPU: 2}, Queue: 7, Wait: 2},
		RepoServer: &mirror.RepoServerLoad{Pending: 3}}
	if got := shown(load); got != nil {
		t.Errorf("without spec.metrics: %+v", got)
	}
	exec(t, url, `UPDATE engines SET load = NULL;
		UPDATE declarations SET body = jsonb_set(body, '{engine,metrics}', '{}') WHERE kind = 'Engine'`)
	if got := shown(nil); got == nil || got.Fresh(now) || got.Message != "not measured yet" {
		t.Errorf("before the first measurement: %+v", got)
	}
	events := one[int](t, url, `SELECT count(*) FROM events`)
	for _, reported := range []*mirror.Load{load, nil} { // a report without one keeps the last
		if diff := cmp.Diff(load, shown(reported)); diff != "" {
			t.Error(diff)
		}
	}
	// A new worker has no rates before its second reading.
	const first = "rates need two readings of one process"
	if got := shown(&mirror.Load{Message: first}); !got.Fresh(now) || got.Message != first ||
		got.Controller.CPU != 2 {
		t.Errorf("a new worker's first report leaves %+v", got)
	}
	if diff := cmp.Diff(load, shown(load)); diff != "" {
		t.Error(diff)
	}
	if n := one[int](t, url, `SELECT count(*) FROM events`); n != events {
		t.Errorf("a measurement is %d events", n-events)
	}
	hold(t, s, "reconciler")
	measured := func() *mirror.Load {
		return must(s.Views.FleetStats(t.Context(), asLeader))(t).Engines[0].Load
	}
	if got := measured(); got == nil || got.Controller.Queue != 7 {
		t.Errorf("the statistics have %+v", got)
	}
	cores := must(s.Views.Measured(t.Context(), 0))(t).Cores
	if len(cores) != 1 || cores["eu-1"] != 2 {
		t.Errorf("a simulation has %v", cores)
	}
	shown(&mirror.Load{At: now.Add(-mirror.LoadMaxAge), Controller: load.Controller})
	if got := measured(); got != nil {
		t.Errorf("an old load counts: %+v", got)
	}
	if cores := must(s.Views.Measured(t.Context(), 0))(t).Cores; len(cores) != 0 {
		t.Errorf("a simulation has the old load %v", cores)
	}
}
