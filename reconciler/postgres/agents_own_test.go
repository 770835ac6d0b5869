package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

func (k *agentKit) own(scope view.Scope, by view.Filter) []view.Own {
	k.t.Helper()
	all, _, err := k.Views.OwnApplications(k.t.Context(), scope, by, view.Page{Limit: 1000})
	check(k.t, err)
	return all
}

func TestOwnApplicationsAreShownAsReported(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	a := k.join("acme.own", "o")
	o := k.open(a, "one")
	k.beat()
	if o.Mode != fleet.AgentAutonomous {
		t.Errorf("%+v", o)
	}
	x := mirror.OwnApplication{Namespace: "gitops", Name: "x", UID: "u", Project: "p",
		RepoURL: "https://git.example.com/x", Path: "deploy", TargetRevision: "v1",
		Sync: mirror.SyncSynced, Health: mirror.HealthHealthy, SyncedRevision: "abc",
		OperationPhase: "Succeeded", OperationID: "id", Message: "<b>\x00", Resources: 3}
	y, z := mirror.OwnApplication{Namespace: "gitops", Name: "y"}, mirror.OwnApplication{
		Namespace: "team", Name: "x"}
	check(t, k.Agents.RecordOwn(ctx, o.Lease, []mirror.OwnApplication{x, y}, false))
	check(t, k.Agents.RecordOwn(ctx, o.Lease, []mirror.OwnApplication{
		z, {Namespace: "team", Name: "never", Gone: true}}, true))
	want := x
	want.Message = `<b>\x00`
	got := k.own(view.Scope{}, view.Filter{})
	if len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	if d := cmp.Diff(view.Own{Tenant: "acme", Environment: "own", Engine: "acme.own",
		OwnApplication: want}, got[0], cmpopts.IgnoreFields(view.Own{},
		"ObservedAt")); d != "" {
		t.Error(d)
	}
	if got[1].Sync != mirror.SyncUnknown || got[1].Health != mirror.HealthUnknown ||
		got[2].Namespace != "team" {
		t.Errorf("%+v", got[1:])
	}
	for name, c := range map[string]struct {
		by   view.Filter
		want int
	}{
		"synced": {view.Filter{Sync: mirror.SyncSynced}, 1}, "unknown": {
			view.Filter{Health: mirror.HealthUnknown}, 2}, "name": {view.Filter{Name: "x"}, 2},
		"engine": {view.Filter{Engine: "acme.own"}, 3}, "environment": {
			view.Filter{Environment: "edge"}, 0}, "tenant": {view.Filter{Tenant: "globex"}, 0},
	} {
		if got := k.own(view.Scope{}, c.by); len(got) != c.want {
			t.Errorf("%s: %d", name, len(got))
		}
	}
	if got := k.own(view.Scope{Tenant: "globex"}, view.Filter{}); len(got) != 0 {
		t.Errorf("another tenant sees %+v", got)
	}
	if got := k.own(view.Scope{Tenant: "acme"}, view.Filter{}); len(got) != 3 {
		t.Errorf("its own tenant sees %+v", got)
	}

	t.Run("a report without news is not written", func(t *testing.T) {
		versions := func() string {
			return one[string](t, k.url,
				`SELECT string_agg(xmin::text, ' ' ORDER BY namespace, name) FROM own_applications`)
		}
		before := versions()
		check(t, k.Agents.RecordOwn(ctx, o.Lease, []mirror.OwnApplication{x, y}, false))
		if after := versions(); after != before {
			t.Errorf("%s, then %s", before, after)
		}
	})
	t.Run("a deleted object is dropped", func(t *testing.T) {
		gone := y
		gone.Gone = true
		check(t, k.Agents.RecordOwn(ctx, o.Lease, []mirror.OwnApplication{y, gone}, false))
		if got := k.own(view.Scope{}, view.Filter{Name: "y"}); len(got) != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a new process reports everything, and the rest is deleted", func(t *testing.T) {
		next := k.open(a, "two")
		check(t, k.Agents.RecordOwn(ctx, next.Lease, []mirror.OwnApplication{x}, false))
		if got := k.own(view.Scope{}, view.Filter{}); len(got) != 2 {
			t.Errorf("before it has reported everything: %+v", got)
		}
		check(t, k.Agents.RecordOwn(ctx, next.Lease, []mirror.OwnApplication{
			{Namespace: "new", Name: "new"}}, true))
		if got := k.own(view.Scope{}, view.Filter{}); len(got) != 2 || got[0].Name != "x" ||
			got[1].Name != "new" {
			t.Errorf("after: %+v", got)
		}
		check(t, k.Agents.RecordOwn(ctx, next.Lease, nil, true))
		if got := k.own(view.Scope{}, view.Filter{}); len(got) != 2 {
			t.Errorf("reported once more: %+v", got)
		}
	})
	t.Run("a managed cluster has none", func(t *testing.T) {
		for _, engine := range []fleet.EngineName{acmeEdge, "far-1"} {
			m := k.open(k.join(engine, string(engine)), "one")
			check(t, k.Agents.RecordOwn(ctx, m.Lease, []mirror.OwnApplication{x}, true))
			if got := k.own(view.Scope{}, view.Filter{Engine: engine}); len(got) != 0 {
				t.Errorf("%s: %+v", engine, got)
			}
		}
	})
}

func TestOwnApplicationsAreCapped(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	o := k.open(k.join("acme.own", "o"), "one")
	var all []mirror.OwnApplication
	for i := range mirror.MaxOwn + 300 {
		all = append(all, mirror.OwnApplication{Namespace: "gitops", Name: fmt.Sprintf("a%05d", i),
			Message: strings.Repeat("x", 10_000)})
	}
	for part := range 11 {
		from, to := part*500, min(len(all), (part+1)*500)
		check(t, k.Agents.RecordOwn(ctx, o.Lease, all[from:to], part == 10))
	}
	expect(t, k.url, `SELECT count(*) FROM own_applications`, mirror.MaxOwn)
	// the last of its 512 bytes are three of …
	expect(t, k.url, `SELECT max(length(message)) FROM own_applications`, 510)
	all[7].Message = "known ones still change"
	check(t, k.Agents.RecordOwn(ctx, o.Lease, []mirror.OwnApplication{all[7], all[mirror.MaxOwn+1]},
		false))
	expect(t, k.url,
		`SELECT count(*) FROM own_applications WHERE message = 'known ones still change'`, 1)
	gone := all[0]
	gone.Gone = true
	check(t, k.Agents.RecordOwn(ctx, o.Lease, []mirror.OwnApplication{gone, all[mirror.MaxOwn+1],
		all[mirror.MaxOwn+2]}, false))
	expect(t, k.url, `SELECT count(*) FROM own_applications`, mirror.MaxOwn)
	expect(t, k.url, `SELECT count(*) FROM own_applications WHERE name = 'a05001'`, 1)
	check(t, k.Agents.ReportAgent(ctx, o.Lease, registry.Report{Message: "well", Own: len(all)}))
	if v := k.view("acme.own"); v.Own != len(all) ||
		v.Message != "well; 5300 own Applications, of which 5000 are shown" {
		t.Errorf("%+v", v)
	}
}

func TestSyncOfAnOwnApplication(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	o := k.open(k.join("acme.own", "o"), "one")
	check(
		t,
		k.Agents.RecordOwn(ctx, o.Lease, []mirror.OwnApplication{{Namespace: "gitops", Name: "x"},
			{Namespace: "team", Name: "x"}}, true))
	acme := view.Scope{Tenant: "acme"}
	ask := mirror.SyncRequest{Tenant: "acme", Environment: "own", Namespace: "gitops",
		Key: fleet.ObjectKey{Name: "x"}, Revision: "v2", Prune: true}
	got := must(k.Agents.AskSync(ctx, acme, ask, "token:acme/ci"))(t)
	if got.ID == "" || got.State != mirror.OperationPending || got.Namespace != "gitops" ||
		got.Key.Engine != "acme.own" || got.Revision != "v2" || !got.Prune || got.Deployment != "" {
		t.Errorf("%+v", got)
	}
	if again := must(k.Agents.AskSync(ctx, acme, ask, "token:acme/ci"))(t); again != got {
		t.Errorf("asked again: %+v", again)
	}
	team := ask
	team.Namespace = "team"
	other := must(k.Agents.AskSync(ctx, acme, team, "token:acme/ci"))(t)
	if syncs := must(k.Agents.AgentSyncs(ctx, "acme.own"))(t); len(syncs) != 2 || syncs[0] != got ||
		syncs[1] != other {
		t.Errorf("the agent is asked %+v", syncs)
	}
	for name, bad := range map[string]func(*mirror.SyncRequest) view.Scope{
		"another tenant's scope": func(*mirror.SyncRequest) view.Scope {
			return view.Scope{Tenant: "globex"}
		},
		"no such name": func(q *mirror.SyncRequest) view.Scope {
			q.Key.Name = "y"
			return acme
		},
		"no such namespace": func(q *mirror.SyncRequest) view.Scope {
			q.Namespace = ""
			return acme
		},
		"another environment": func(q *mirror.SyncRequest) view.Scope {
			q.Environment = "edge"
			return view.Scope{}
		},
		"another tenant": func(q *mirror.SyncRequest) view.Scope {
			q.Tenant = "globex"
			return view.Scope{}
		},
	} {
		q := ask
		if _, err := k.Agents.AskSync(ctx, bad(&q), q, "eve"); !errors.Is(err, mirror.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(t, k.Work.UpdateSync(ctx, o.Lease, got.ID, mirror.OperationSucceeded, "done"))
	operations, _, err := k.Views.Operations(ctx, acme, view.Filter{}, view.Page{Limit: 10})
	check(t, err)
	ended := 0
	for _, op := range operations {
		if op.Kind == mirror.OperationSync && op.Subject == "acme/own: gitops/x" &&
			op.State == mirror.OperationSucceeded && op.RequestedBy == "token:acme/ci" &&
			op.EndedAt != nil {
			ended++
		}
	}
	if ended != 1 {
		t.Errorf("operations %+v", operations)
	}
	expect(t, k.url,
		`SELECT count(*) FROM events WHERE tenant = 'acme' AND text = 'sync of acme/own: gitops/x: Succeeded'`, 1)
	if next := must(k.Agents.AskSync(ctx, acme, ask, "token:acme/ci"))(t); next.ID == got.ID {
		t.Errorf("an ended sync is returned: %+v", next)
	}
	t.Run("at most a hundred wait", func(t *testing.T) {
		exec(t, k.url,
			`INSERT INTO syncs SELECT id || n, operation, engine, name || n, tenant, tenant_uid, environment, deployment, sync_run, revision, prune, state, message, namespace
			FROM syncs, generate_series(1, 98) n WHERE id = '`+other.ID+`'`)
		check(t, k.Agents.RecordOwn(ctx, o.Lease, []mirror.OwnApplication{
			{Namespace: "gitops", Name: "more"}}, false))
		more := ask
		more.Key.Name = "more"
		if _, err := k.Agents.AskSync(ctx, acme, more, "x"); !errors.Is(
			err, mirror.ErrTooManySyncs) {
			t.Errorf("one more: %v", err)
		}
	})
	t.Run("they end with the autonomy of the cluster, and so does all of its own",
		func(t *testing.T) {
			k.record(func(r *mirror.Record) {
				r.Declarations = []fleet.Declaration{
					edge("acme", "own", "")}
			})
			expect(t, k.url, `SELECT count(*) FROM syncs WHERE state IN ('Pending', 'Running')`, 0)
			expect(t, k.url,
				`SELECT count(*) FROM operations WHERE kind = 'Sync' AND ended_at IS NULL`,
				0)
			expect(t, k.url, `SELECT count(*) FROM own_applications`, 0)
			if _, err := k.Agents.AskSync(ctx, acme, ask, "x"); !errors.Is(
				err, mirror.ErrNotFound) {
				t.Errorf("asked: %v", err)
			}
		})
}

func TestAnAgentsReportIsWrittenOnlyWithNews(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	o := k.open(k.join(acmeEdge, "x"), "one")
	report := registry.Report{Reachable: true, Message: strings.Repeat("é\x00", 2000),
		ArgoCD: "v3.6.0", Version: "v1.2.0", PendingDeletions: 3, HeldDeletions: 2,
		Orphans: 1 << 40}
	orphan := func(wantReported bool, want ...fleet.EnvironmentID) {
		t.Helper()
		if of, reported, err := k.Views.OrphanEnvironments(ctx, acmeEdge); err != nil ||
			reported != wantReported ||
			!slices.Equal(of, want) {
			t.Errorf("orphans are of %v, reported %t, %v", of, reported, err)
		}
	}
	orphan(false)
	check(t, k.Agents.ReportAgent(ctx, o.Lease, report))
	v := k.view(acmeEdge)
	if !v.Reachable || v.ArgoCD != "v3.6.0" || v.Version != "v1.2.0" || v.HeldDeletions != 2 ||
		v.Orphans != 1<<31-1 || len(v.Message) > 1024 || strings.Contains(v.Message, "\x00") {
		t.Errorf("%+v", v)
	}
	expect(t, k.url,
		`SELECT count(*) FROM events WHERE kind = 'engine' AND tenant = 'acme' AND name = 'acme.edge' AND text = 'reachable'`, 1)
	versions := func() string {
		return one[string](t, k.url,
			`SELECT (SELECT xmin::text FROM agents) || ' ' || (SELECT xmin::text FROM engines WHERE engine = 'acme.edge')`)
	}
	before := versions()
	check(t, k.Agents.ReportAgent(ctx, o.Lease, report))
	silent := report
	silent.ArgoCD, silent.Version = "", ""
	check(t, k.Agents.ReportAgent(ctx, o.Lease, silent))
	if after := versions(); after != before {
		t.Errorf("%s, then %s", before, after)
	}
	report.Reachable = false
	check(t, k.Agents.ReportAgent(ctx, o.Lease, report))
	orphan(false)
	report.Environments = []fleet.EnvironmentID{}
	check(t, k.Agents.ReportAgent(ctx, o.Lease, report))
	orphan(true)
	report.Environments = []fleet.EnvironmentID{{Tenant: "acme", Name: "prod"},
		{Tenant: "globex", Name: "x"}}
	check(t, k.Agents.ReportAgent(ctx, o.Lease, report))
	orphan(true, report.Environments...)
	if versions() == before || k.view(acmeEdge).Reachable {
		t.Error("that it is not reachable is not written")
	}
}

func TestEnvironmentsWithAgentsAreNoEngines(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	o, own := k.open(k.join(acmeEdge, "x"), "one"), k.open(k.join("acme.own", "o"), "one")
	k.beat()
	rows := must(k.Agents.AgentChanged(ctx, acmeEdge, 0, 10))(t)
	check(t, k.Work.Acknowledge(ctx, o.Lease, applied(rows[:1])))
	check(t, k.Work.Observe(ctx, o.Lease, []mirror.Observation{
		{Key: rows[0].Key, Sync: mirror.SyncSynced, Health: mirror.HealthHealthy}}))
	check(t, k.Agents.ReportAgent(ctx, o.Lease, registry.Report{Reachable: true}))
	check(
		t,
		k.Agents.RecordOwn(ctx, own.Lease, []mirror.OwnApplication{
			{Namespace: "gitops", Name: "x"}},
			true))
	engines, _, err := k.Views.Engines(ctx, view.Scope{}, view.Filter{}, view.Page{Limit: 10})
	if err != nil || len(engines) != 2 || engines[0].Name != "eu-1" || engines[1].Name != "far-1" {
		t.Errorf("engines %+v, %v", engines, err)
	}
	specs := must(k.Plans.EngineSpecs(ctx))(t)
	if len(specs) != 2 || specs["far-1"].Connection.Agent == nil {
		t.Errorf("specs %+v", specs)
	}
	environments, _, err := k.Views.Environments(ctx, view.Scope{Tenant: "acme"}, view.Filter{},
		view.Page{Limit: 10})
	check(t, err)
	for i, want := range []view.Environment{
		{Name: "edge", Agent: fleet.AgentManaged, Counts: view.Counts{Applications: 2, Synced: 1,
			Healthy: 1}},
		{Name: "own", Agent: fleet.AgentAutonomous, Own: 1},
		{Name: "prod", Server: "https://prod.example.com", Counts: view.Counts{Applications: 2}},
	} {
		if e := environments[i]; e.Name != want.Name || e.Agent != want.Agent ||
			e.Server != want.Server || e.Own != want.Own || e.Counts != want.Counts {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
	apps, _, err := k.Views.Applications(ctx, view.Scope{Tenant: "acme"}, view.Filter{
		Environment: "edge", Sync: mirror.SyncSynced, Apply: mirror.ApplyApplied}, view.Page{
		Limit: 10})
	if err != nil || len(apps) != 1 || apps[0].Engine != acmeEdge {
		t.Errorf("applications %+v, %v", apps, err)
	}
}

func TestAgentListHasAgentsNotJoinedAndAgentsLeftOver(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	k.join(acmeEdge, "x")
	names := func(scope view.Scope, by view.Filter) string {
		t.Helper()
		var all []string
		for page := (view.Page{Limit: 1}); ; {
			views, next, err := k.Views.Agents(ctx, scope, by, page)
			check(t, err)
			for _, v := range views {
				all = append(all, fmt.Sprintf("%s %s %v", v.Engine, v.Mode, v.ID != ""))
			}
			if page.After = next; next == "" {
				return strings.Join(all, ", ")
			}
		}
	}
	for name, c := range map[string]struct {
		scope view.Scope
		by    view.Filter
		want  string
	}{
		"all": {
			want: "far-1 managed false, acme.edge managed true, acme.own autonomous false, " +
				"globex.edge managed false"},
		"of acme": {scope: view.Scope{Tenant: "acme"},
			want: "acme.edge managed true, acme.own autonomous false"},
		"of globex":  {scope: view.Scope{Tenant: "globex"}, want: "globex.edge managed false"},
		"of another": {scope: view.Scope{Tenant: "initech"}},
		"environment": {by: view.Filter{Environment: "edge"},
			want: "acme.edge managed true, globex.edge managed false"},
		"engine":       {by: view.Filter{Engine: "far-1"}, want: "far-1 managed false"},
		"no agent's":   {by: view.Filter{Engine: "eu-1"}},
		"a stranger's": {scope: view.Scope{Tenant: "globex"}, by: view.Filter{Engine: acmeEdge}},
	} {
		if got := names(c.scope, c.by); got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
	v := k.view(acmeEdge)
	if v.Pending != 2 || v.Lag != 1 || v.PendingDeletions != 0 || v.Tenant != "acme" ||
		v.Environment != "edge" {
		t.Errorf("%+v", v)
	}
	k.record(func(r *mirror.Record) {
		gone := application("acme.edge", "acme", "a", "edge", "v1")
		gone.Unwanted = true
		r.Rows, r.Removed = []mirror.Row{gone}, []fleet.Key{edge("acme", "edge", "").Key}
	})
	if v := k.view(acmeEdge); v.Pending != 2 || v.Lag != 2 || v.PendingDeletions != 1 ||
		v.ID == "" {
		t.Errorf("its declaration is deleted: %+v", v)
	}
	if got := names(view.Scope{Tenant: "acme"},
		view.Filter{}); got != "acme.edge managed true, acme.own autonomous false" {
		t.Errorf("its declaration is deleted: %s", got)
	}

	t.Run("an engine whose name is too long is found once it was joined", func(t *testing.T) {
		tenant, name := strings.Repeat("t", 40), strings.Repeat("e", 40)
		engine := fleet.AgentEngine(fleet.EnvironmentID{Tenant: fleet.TenantName(tenant),
			Name: fleet.EnvironmentName(name)})
		k.record(func(r *mirror.Record) {
			r.Declarations = []fleet.Declaration{tenantDeclaration(tenant), edge(tenant, name, "")}
		})
		_, plaintext, err := k.Agents.CreateAgentToken(ctx, registry.Token{
			Tenant: fleet.TenantName(tenant), Environment: fleet.EnvironmentName(name),
			ExpiresAt: time.Now().Add(time.Hour)}, "")
		check(t, err)
		a := must(k.Agents.JoinAgent(ctx, plaintext, registry.Join{Keys: keys("l")}))(t)
		if v := k.view(engine); a.Engine != engine || v.ID != a.ID ||
			string(v.Environment) != name {
			t.Errorf("%+v, %+v", a, v)
		}
	})
}

func TestRebuildKeepsAgents(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	a, own := k.join(acmeEdge, "x"), k.join("acme.own", "o")
	_, unused := k.token("globex.edge")
	before, o := k.open(a, "one"), k.open(own, "one")
	check(
		t,
		k.Agents.RecordOwn(ctx, o.Lease, []mirror.OwnApplication{{Namespace: "gitops", Name: "x"}},
			true))
	report := registry.Report{Reachable: true, Orphans: 1, Environments: []fleet.EnvironmentID{
		{Tenant: "acme", Name: "prod"}}}
	check(t, k.Agents.ReportAgent(ctx, before.Lease, report))
	asked := must(k.Agents.AskSync(ctx, view.Scope{}, mirror.SyncRequest{
		Tenant: "acme", Environment: "own", Namespace: "gitops", Key: fleet.ObjectKey{Name: "x"}},
		"ann"))(t)
	check(t, k.Reset(ctx))
	if _, err := k.Agents.OpenAgent(ctx, session(a, "one")); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("while the mirror is empty: %v", err)
	}
	must(k.Agents.Agent(ctx, a.ID))(t)
	if len(k.own(view.Scope{}, view.Filter{})) != 1 || len(k.rows(acmeEdge)) != 0 {
		t.Error("the cluster's own is lost, or rows are not")
	}
	reportedView := func() (view.Agent, bool) {
		t.Helper()
		_, reported, err := k.Views.OrphanEnvironments(ctx, acmeEdge)
		check(t, err)
		return k.view(acmeEdge), reported
	}
	if v, reported := reportedView(); v.Reachable || v.Orphans != 0 || reported {
		t.Errorf("its report on the old mirror counts: %+v", v)
	}
	expect(t, k.url,
		`SELECT count(*) FROM engines WHERE engine = 'acme.edge' AND NOT reachable AND since > now() - interval '1 minute'`, 1)
	// the lease must not end: it has no other holder
	if _, err := k.Agents.TakeReport(ctx, before.Lease, 1); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("a report of before: %v", err)
	}
	k.reconciler, k.revisions = hold(t, k.Store, "reconciler"), 0
	k.record(func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{tenantDeclaration("acme"), tenantDeclaration("globex"),
			edge("acme", "edge", ""), edge("acme", "own", fleet.AgentAutonomous),
			edge("globex", "edge", "")}
		r.Rows = []mirror.Row{application("acme.edge", "acme", "a", "edge", "v1")}
	})
	after := k.open(a, "one")
	if after.Lease.Epoch <= before.Lease.Epoch || after.Generation <= before.Generation ||
		len(k.rows(acmeEdge)) != 1 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if err := k.Agents.ReportAgent(ctx, before.Lease, report); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("its report on the old mirror is accepted: %v", err)
	}
	check(t, k.Agents.ReportAgent(ctx, after.Lease, report))
	if v, reported := reportedView(); !v.Reachable || v.Orphans != 1 || !reported {
		t.Errorf("of the new one: %+v", v)
	}
	must(k.Agents.JoinAgent(ctx, unused, registry.Join{Keys: keys("g")}))(t)
	if syncs := must(k.Agents.AgentSyncs(ctx, "acme.own"))(t); len(syncs) != 1 ||
		syncs[0].ID != asked.ID {
		t.Errorf("syncs %+v", syncs)
	}
	if got := k.own(view.Scope{}, view.Filter{}); len(got) != 1 {
		t.Errorf("own applications %+v", got)
	}
}

func TestPruneDropsWhatAgentsNoLongerNeed(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	for _, age := range []string{"29 days", "31 days", "91 days"} {
		used, _ := k.token(acmeEdge)
		a := k.join(acmeEdge, age)
		exec(t, k.url,
			`UPDATE agent_tokens SET expires_at = now() - $1::text::interval WHERE id = $2`, age,
			used.ID)
		exec(t, k.url,
			`UPDATE agent_tokens SET used_at = now() - $1::text::interval WHERE used_by = $2`, age,
			a.ID)
		exec(t, k.url,
			`UPDATE agents SET ended_at = now() - $1::text::interval, ended = 'revoked' WHERE id = $2`, age, a.ID)
	}
	exec(t, k.url, `
		INSERT INTO replicas VALUES ('old', now() - interval '25 hours'), ('new', now());
		INSERT INTO agent_access VALUES ('a', 'old', sha256('1'), now() - interval '11 minutes'), ('a', 'remembered', sha256('2'), now() - interval '9 minutes'), ('a', 'live', sha256('3'), now() + interval '1 minute')`)
	live := k.join("far-1", "f")
	must(k.Prune(ctx, postgres.Retention{}))(t)
	expect(t, k.url, `SELECT count(*) FROM agent_tokens`, 3)
	expect(t, k.url, `SELECT count(*) FROM agents`, 3)
	expect(t, k.url, `SELECT count(*) FROM agents WHERE id = '`+live.ID+`'`, 1)
	expect(t, k.url, `SELECT count(*) FROM replicas WHERE replica = 'new'`, 1)
	expect(t, k.url, `SELECT count(*) FROM replicas`, 1)
	expect(t, k.url, `SELECT count(*) FROM agent_access`, 2)
}
