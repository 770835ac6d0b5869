package postgres_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// shownToAgents are the tables with an agent's rows.
var shownToAgents = []string{"actions", "desired", "source_refreshes", "status", "syncs"}

// Every table with a row-level policy for tenants has one for agents too. On all other tables
// agents have no privilege.
func TestEveryTableHasAPolicyForAgents(t *testing.T) {
	t.Parallel()
	conn := connect(t, newDatabase(t))
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `
		SELECT c.relname, c.relrowsecurity, EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'agent_wall' AND NOT p.polpermissive AND p.polcmd = '*'
				AND p.polroles = '{0}' AND pg_get_expr(p.polqual, p.polrelid) LIKE '%agent_bound()%'),
			has_table_privilege('argosy_agent', c.oid, 'SELECT'),
			has_table_privilege('argosy_agent', c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
				OR has_any_column_privilege('argosy_agent', c.oid, 'INSERT, UPDATE, REFERENCES'),
			has_any_column_privilege('argosy_agent', c.oid, 'SELECT')
		FROM pg_class c WHERE c.relnamespace = 'argosy'::regnamespace AND c.relkind IN ('r', 'p', 'm', 'v', 'f') ORDER BY 1`)
	check(t, err)
	var name string
	var secured, walled, reads, writes, columns bool
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&name, &secured, &walled, &reads, &writes, &columns},
		func() error {
			n++
			if secured && !walled {
				t.Errorf("%s: no wall before agents", name)
			}
			// see TestAnAgentReadsTheMovesOfItsEngine,
			// TestAnAgentReadsAndReportsTheInstanceOfItsEngine,
			// TestAnAgentComparesTheApplicationsOfItsEngine and
			// TestAnAgentSeesTheReadsOfItsOwnEngineAlone
			shown := slices.Contains([]string{"application_moves", "instances", "inspections",
				"ring_manifests", "shadows", "shadow_differences"}, name) ||
				slices.Contains(shownToAgents, name)
			if reads != shown || columns != shown ||
				writes || shown && !walled {
				t.Errorf("%s: an agent reads it %v (a column %v), writes it %v, wall %v", name,
					reads,
					columns, writes, walled)
			}
			return nil
		})
	check(t, err)
	if n < 30 {
		t.Errorf("%d tables", n)
	}
	var login, bypass, super bool
	check(t,
		conn.QueryRow(t.Context(),
			`SELECT rolcanlogin, rolbypassrls, rolsuper FROM pg_roles WHERE rolname = 'argosy_agent'`).Scan(&login, &bypass, &super))
	if login || bypass || super {
		t.Errorf("argosy_agent may log in %v, pass the wall %v, is superuser %v", login, bypass,
			super)
	}
	for _, name := range []string{"agents", "agent_tokens", "agent_access", "leases",
		"declarations", "sealed", "audit", "mirror", "river_job"} {
		tx := must(conn.Begin(t.Context()))(t)
		_, err = tx.Exec(t.Context(),
			`SET LOCAL ROLE argosy_agent; SET LOCAL argosy.engine = 'acme.edge'`)
		check(t, err)
		var refused *pgconn.PgError
		if _, err = tx.Exec(t.Context(), `SELECT FROM `+name); !errors.As(err, &refused) ||
			refused.Code != "42501" {
			t.Errorf("%s: an agent is answered %v", name, err)
		}
		check(t, tx.Rollback(t.Context()))
	}
}

func TestAgentSeesItsEngineOnly(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	a, far := k.open(k.join(acmeEdge, "a"), "one"), k.open(k.join("far-1", "f"), "one")
	for engine, lease := range map[fleet.EngineName]mirror.Lease{
		acmeEdge: a.Lease, "far-1": far.Lease} {
		rows := must(k.Work.Changed(t.Context(), engine, 0, 100))(t)
		check(t, k.Work.Acknowledge(t.Context(), lease, applied(rows)))
	}
	k.record(func(r *mirror.Record) {
		for _, row := range []mirror.Row{application("acme.edge", "acme", "a", "edge", "v1"),
			application("far-1", "acme", "a", "prod", "v1")} {
			r.Syncs = append(r.Syncs, mirror.SyncRequest{ID: "run-" + string(row.Key.Engine),
				Key: row.Key, Tenant: row.Tenant, Deployment: row.Deployment,
				Environment: row.Environment, SyncRun: "run", Revision: "v1"})
		}
	})
	exec(t, k.url, `INSERT INTO actions (id, request, kind, engine, name, tenant, tenant_uid, environment, deployment, options, by)
		SELECT engine, engine, 'Refresh', engine, name, tenant, tenant_uid, environment, deployment, '{}', 'ann' FROM syncs`)
	exec(t, k.url, `INSERT INTO source_refreshes (engine, name, tenant, environment, deployment)
		SELECT engine, name, tenant, environment, deployment FROM syncs`)
	conn := connect(t, k.url)
	defer conn.Close(t.Context())
	count := func(t *testing.T, table string, settings ...string) (seen, others int) {
		t.Helper()
		tx := must(conn.Begin(t.Context()))(t)
		defer tx.Rollback(t.Context())
		for _, s := range append([]string{`SET LOCAL ROLE argosy_agent`}, settings...) {
			_, err := tx.Exec(t.Context(), s)
			check(t, err)
		}
		check(t,
			tx.QueryRow(t.Context(),
				fmt.Sprintf(
					`SELECT count(*), count(*) FILTER (WHERE engine <> 'acme.edge') FROM %s WHERE true OR engine = 'far-1'`, table)).Scan(&seen, &others))
		return seen, others
	}
	engine := `SELECT set_config('argosy.engine', 'acme.edge', true)`
	for _, table := range shownToAgents {
		if seen, others := count(t, table, engine); seen == 0 || others != 0 {
			t.Errorf("%s: %d rows, %d of others", table, seen, others)
		}
		for name, settings := range map[string][]string{
			"no engine set":   nil,
			"an empty engine": {`SET LOCAL argosy.engine = ''`},
			"a quote": {
				`SELECT set_config('argosy.engine', 'acme.edge'' OR ''1''=''1', true)`},
			"a pattern":               {`SELECT set_config('argosy.engine', '%', true)`},
			"a tenant, and no engine": {`SET LOCAL argosy.tenant = 'acme'`},
			"set and reset":           {engine, `RESET argosy.engine`},
		} {
			if seen, _ := count(t, table, settings...); seen != 0 {
				t.Errorf("%s, %s: %d rows", table, name, seen)
			}
		}
	}

	t.Run("a setting of one transaction does not reach the next", func(t *testing.T) {
		count(t, "desired", engine)
		if seen, _ := count(t, "desired"); seen != 0 {
			t.Errorf("%d rows", seen)
		}
	})
	t.Run("both walls are up at once", func(t *testing.T) {
		if seen, _ := count(t, "desired", engine, `SET LOCAL argosy.tenant = 'globex'`); seen != 0 {
			t.Errorf("%d rows of another tenant", seen)
		}
		tx := must(conn.Begin(t.Context()))(t)
		defer tx.Rollback(t.Context())
		_, err := tx.Exec(t.Context(),
			`SET LOCAL argosy.engine = 'acme.edge'; SET LOCAL argosy.tenant = 'acme'; SET LOCAL ROLE argosy_reader`)
		check(t, err)
		for table, want := range map[string]int{"desired": 2, "declarations": 0, "agents": 0,
			"operations": 0, "pulls": 0, "replicas": 0} {
			var seen int
			check(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM (SELECT 1 FROM `+table+
				`) x`).Scan(&seen))
			if seen != want {
				t.Errorf("%s as a tenant with an engine set: %d rows, want %d", table, seen, want)
			}
		}
	})
	t.Run("a view of the owner lets nothing through", func(t *testing.T) {
		owner := `agent_view_owner_` + databaseOf(k.url)
		exec(t, k.url, `CREATE ROLE `+owner+` NOLOGIN`)
		defer exec(t, k.url, `DROP OWNED BY `+owner+`; DROP ROLE `+owner)
		exec(t, k.url, `GRANT USAGE, CREATE ON SCHEMA argosy TO `+owner+
			`; GRANT SELECT ON desired, declarations TO `+owner)
		exec(t, k.url, `CREATE VIEW leak AS SELECT * FROM desired; ALTER VIEW leak OWNER TO `+owner+
			`; GRANT SELECT ON leak TO argosy_agent;
			CREATE VIEW leaks AS SELECT 'far-1' AS engine FROM declarations; ALTER VIEW leaks OWNER TO `+owner+`; GRANT SELECT ON leaks TO argosy_agent`)
		defer exec(t, k.url, `DROP VIEW leak, leaks`)
		if seen, others := count(t, "leak", engine); seen == 0 || others != 0 {
			t.Errorf("%d rows, %d of others", seen, others)
		}
		if seen, _ := count(t, "leak"); seen != 0 {
			t.Errorf("with no engine set: %d rows", seen)
		}
		if seen, _ := count(t, "leaks", engine); seen != 0 {
			t.Errorf("of another table: %d rows", seen)
		}
	})
	t.Run("writing is refused", func(t *testing.T) {
		for _, sql := range []string{`UPDATE status SET message = 'x'`, `DELETE FROM desired`,
			`INSERT INTO syncs SELECT * FROM syncs`, `SELECT FROM desired FOR UPDATE`,
			`SELECT new_event('x', 'acme', '', '')`, `SELECT fence('engine/acme.edge', '', 1)`} {
			tx := must(conn.Begin(t.Context()))(t)
			_, err := tx.Exec(t.Context(),
				`SET LOCAL ROLE argosy_agent; SET LOCAL argosy.engine = 'acme.edge'`)
			check(t, err)
			if _, err := tx.Exec(t.Context(), sql); err == nil {
				t.Errorf("%s is done", sql)
			}
			check(t, tx.Rollback(t.Context()))
		}
	})
}

// The queries alone protect the rows: without row-level security, an agent still gets only its own
// rows.
func TestQueriesAloneLimitAnAgentToItsOwnRows(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	k.join(acmeEdge, "a")
	k.join("globex.edge", "g")
	k.join("far-1", "f")
	want := map[fleet.EngineName][]string{
		acmeEdge:      {"acme/a@edge false", "acme/b@edge false"},
		"globex.edge": {"globex/a@edge false", "globex/b@edge false"},
		"far-1":       {"acme/a@prod false", "globex/a@prod false"},
	}
	for _, wall := range []bool{true, false} {
		if !wall {
			for _, table := range shownToAgents {
				exec(t, k.url, `ALTER TABLE `+table+` DISABLE ROW LEVEL SECURITY`)
			}
		}
		for engine, names := range want {
			if got := k.rows(engine); !slices.Equal(got, names) {
				t.Errorf("%s, wall %v: %v", engine, wall, got)
			}
			changed := must(k.Agents.AgentChanged(t.Context(), engine, 0, 1))(t)
			if len(changed) != 1 || changed[0].Key.Engine != engine {
				t.Errorf("%s, wall %v: changed %+v", engine, wall, changed)
			}
			if after := must(k.Agents.AgentChanged(t.Context(), engine, changed[0].Seq, 10))(
				t); len(
				after) != 1 || after[0].Seq <= changed[0].Seq {
				t.Errorf("%s, wall %v: then %+v", engine, wall, after)
			}
		}
		for _, engine := range []fleet.EngineName{"eu-1", "acme.own", "", "acme.edge' OR '1'='1",
			"none"} {
			if _, err := k.Agents.AgentRows(t.Context(), engine, func(mirror.Row) error {
				return nil
			}); !errors.Is(err, mirror.ErrNotFound) {
				t.Errorf("%q, wall %v: %v", engine, wall, err)
			}
		}
	}
}

// Reads for an agent run as the role that the policies bind: without the role's privilege they read
// nothing.
func TestRowsForAgentsAreReadAsTheirRole(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	k.join(acmeEdge, "a")
	reads := map[string]func() error{
		"AgentRows": func() error {
			_, err := k.Agents.AgentRows(ctx, acmeEdge, func(mirror.Row) error { return nil })
			return err
		},
		"AgentChanged": func() error {
			_, err := k.Agents.AgentChanged(ctx, acmeEdge, 0, 10)
			return err
		},
		"AgentCredentialRows": func() error {
			_, err := k.Agents.AgentCredentialRows(ctx, acmeEdge, "acme",
				"git")
			return err
		},
		"AgentSyncs": func() error { _, err := k.Agents.AgentSyncs(ctx, acmeEdge); return err },
		"AgentActions": func() error {
			_, err := k.Agents.AgentActions(ctx, acmeEdge)
			return err
		},
	}
	for name, read := range reads {
		if err := read(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	exec(t, k.url, `REVOKE SELECT ON desired, syncs, actions FROM argosy_agent`)
	for name, read := range reads {
		var refused *pgconn.PgError
		if err := read(); !errors.As(err, &refused) || refused.Code != "42501" {
			t.Errorf("%s without the role's right: %v", name, err)
		}
	}
}

// The queries alone protect tenants in the lists of agents for people.
func TestQueriesAloneLimitAgentListsToTheTenant(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	o := k.open(k.join("acme.own", "o"), "one")
	check(
		t,
		k.Agents.RecordOwn(ctx, o.Lease, []mirror.OwnApplication{{Namespace: "gitops", Name: "x"}},
			true))
	k.join("globex.edge", "g")
	k.join("far-1", "f")
	exec(t, k.url, ownOfEveryTenant)
	read := func(scope view.Scope, by view.Filter) string {
		t.Helper()
		page := view.Page{Limit: 100}
		agents, _, err := k.Views.Agents(ctx, scope, by, page)
		check(t, err)
		own, _, err := k.Views.OwnApplications(ctx, scope, by, page)
		check(t, err)
		tokens, _, err := k.Agents.ListAgentTokens(ctx, scope, by, page)
		check(t, err)
		return fmt.Sprintf("%d %d %d %+v %+v %+v", len(agents), len(own), len(tokens), agents, own,
			tokens)
	}
	acme := view.Scope{Tenant: "acme"}
	both := read(acme, view.Filter{})
	if !strings.HasPrefix(both, "2 2 1 ") || strings.Contains(both, "globex") ||
		strings.Contains(both, "far-1") {
		t.Fatalf("with both walls: %s", both)
	}
	if got := read(acme, view.Filter{Tenant: "globex"}); !strings.HasPrefix(got, "0 0 0 ") {
		t.Errorf("asked for another tenant: %s", got)
	}
	for _, column := range []string{"agents.sign", "agents.seal", "agents.thumb", "agents.turns",
		"agents.instance", "agent_tokens.hash", "agent_access.hash"} {
		table, name, _ := strings.Cut(column, ".")
		if one[bool](t, k.url,
			`SELECT has_column_privilege('argosy_reader', 'argosy.' || $1, $2, 'SELECT')`, table,
			name) {
			t.Errorf("a tenant may read %s", column)
		}
	}
	for _, table := range []string{"agents", "agent_tokens", "own_applications", "declarations",
		"desired", "status", "tenants"} {
		exec(t, k.url, `ALTER TABLE `+table+` DISABLE ROW LEVEL SECURITY`)
	}
	if alone := read(acme, view.Filter{}); alone != both {
		t.Errorf("without the wall in the database:\n%s\nwith it:\n%s", alone, both)
	}
}

// newPlainDatabase is a migrated database whose owner, the user of its URL, is no superuser, as in
// hosted databases: row-level security binds it.
func newPlainDatabase(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("plain_%d", databases.Add(1))
	admin := databaseURL(t, "postgres")
	exec(t, admin,
		`CREATE ROLE `+name+
			` LOGIN PASSWORD 'p' NOSUPERUSER NOBYPASSRLS; GRANT argosy_reader, argosy_agent TO `+
			name)
	exec(t, admin, `CREATE DATABASE `+name+` OWNER `+name)
	t.Cleanup(func() {
		exec(t, admin, `DROP DATABASE `+name+` WITH (FORCE)`)
		exec(t, admin, `DROP ROLE `+name)
	})
	url := strings.Replace(databaseURL(t, name), server.URL[:strings.Index(server.URL, "@")],
		"postgres://"+name+":p", 1)
	must(postgres.Migrate(t.Context(), url))(t)
	return url
}

// Row-level security binds an owner that is no superuser, as in hosted databases. It blocks nothing
// that the store does for agents.
func TestAgentsNeedNoSuperuser(t *testing.T) {
	t.Parallel()
	k := agentKitOn(t, newPlainDatabase(t), func(url string) *postgres.Store {
		return open(t, url)
	})
	ctx := t.Context()
	a, own := k.join(acmeEdge, "x"), k.join("acme.own", "o")
	hash := sha256.Sum256([]byte("access"))
	check(t, k.Agents.SaveAccess(ctx, a.ID, "j", hash, time.Minute))
	must(k.Agents.AccessAgent(ctx, hash))(t)
	a = must(k.Agents.RotateAgent(ctx, a.ID, a.Keys.Thumb(), keys("y")))(t)
	check(t, k.Agents.BeatReplica(ctx, "hub-1"))
	o, ownSession := k.open(a, "one"), k.open(own, "one")
	if rows := k.rows(acmeEdge); len(rows) != 2 {
		t.Errorf("rows %v", rows)
	}
	rows := must(k.Agents.AgentChanged(ctx, acmeEdge, 0, 10))(t)
	must(k.Agents.TakeReport(ctx, o.Lease, 1))(t)
	check(t, k.Work.Acknowledge(ctx, o.Lease, applied(rows)))
	check(t, k.Agents.ReportAgent(ctx, o.Lease, registry.Report{Reachable: true}))
	check(t, k.Agents.ReportTaken(ctx, o.Lease, 1))
	check(t, k.Agents.RecordOwn(ctx, ownSession.Lease, []mirror.OwnApplication{
		{Namespace: "gitops", Name: "x"}}, true))
	q := must(k.Agents.AskSync(ctx, view.Scope{Tenant: "acme"}, mirror.SyncRequest{
		Tenant: "acme", Environment: "own", Namespace: "gitops", Key: fleet.ObjectKey{Name: "x"}},
		"ann"))(t)
	if syncs := must(k.Agents.AgentSyncs(ctx, "acme.own"))(t); len(syncs) != 1 {
		t.Errorf("syncs %+v", syncs)
	}
	check(t, k.Work.UpdateSync(ctx, ownSession.Lease, q.ID, mirror.OperationSucceeded, ""))
	for scope, want := range map[view.Scope][3]int{{}: {4, 1, 2}, {Tenant: "acme"}: {2, 1, 2},
		{Tenant: "globex"}: {1, 0, 0}} {
		page := view.Page{Limit: 10}
		agents, _, err := k.Views.Agents(ctx, scope, view.Filter{}, page)
		check(t, err)
		apps, _, err := k.Views.OwnApplications(ctx, scope, view.Filter{}, page)
		check(t, err)
		tokens, _, err := k.Agents.ListAgentTokens(ctx, scope, view.Filter{}, page)
		check(t, err)
		if got := [3]int{len(agents), len(apps), len(tokens)}; got != want {
			t.Errorf("scope %q: %v, want %v", scope.Tenant, got, want)
		}
		if scope.Tenant == "acme" && (!agents[0].Connected || agents[0].Pending != 0) {
			t.Errorf("as a tenant: %+v", agents[0])
		}
	}
	if news := must(k.Agents.AgentNews(ctx, 0, time.Time{}))(t); len(news.Rows) != 1 {
		t.Errorf("news %+v", news)
	}
	k.record(func(r *mirror.Record) {
		r.Removed = []fleet.Key{{Kind: fleet.KindTenant, Name: "acme"},
			edge("acme", "edge", "").Key, edge("acme", "own", "").Key}
	})
	k.record(func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{tenantDeclaration("acme"), edge("acme", "edge", "")}
	})
	if _, err := k.Agents.Agent(ctx, a.ID); !errors.Is(err, registry.ErrRevoked) {
		t.Errorf("of the tenant before: %v", err)
	}
	k.join(acmeEdge, "z")
	check(t, k.Agents.RevokeAgent(ctx, view.Scope{Tenant: "acme"}, acmeEdge, "ann"))
	must(k.Prune(ctx, postgres.Retention{}))(t)
	check(t, k.Reset(ctx))
}
