package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// tenantTables are the tables with rows of a tenant, whatever the column's name.
func tenantTables(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'argosy'::regnamespace AND c.relkind IN ('r', 'p', 'm', 'v') AND EXISTS (
			SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname LIKE '%tenant%' AND NOT a.attisdropped)
		ORDER BY 1`)
	check(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check(t, err)
	return names
}

func TestEveryTableOfATenantHasAPolicy(t *testing.T) {
	t.Parallel()
	conn := connect(t, newDatabase(t))
	defer conn.Close(t.Context())
	tables := tenantTables(t, conn)
	if len(tables) < 15 {
		t.Fatalf("tables with a tenant: %v", tables)
	}
	for _, name := range tables {
		var enabled, forced bool
		var policies int
		var plainTenant bool // or, for rows of several tenants, their uids
		check(t, conn.QueryRow(t.Context(), `
			SELECT relrowsecurity, relforcerowsecurity, (SELECT count(*) FROM pg_policy WHERE polrelid = c.oid),
				EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname IN ('tenant', 'tenant_uids') AND a.attnotnull)
			FROM pg_class c WHERE c.oid = ('argosy.' || $1)::regclass`, name).Scan(&enabled, &forced, &policies, &plainTenant))
		if !enabled || !forced || policies == 0 || !plainTenant {
			t.Errorf("%s: row security enabled %v, forced %v, %d policies, column tenant %v", name,
				enabled, forced, policies, plainTenant)
		}
	}
	var canLogin, bypass, super bool
	check(t,
		conn.QueryRow(t.Context(),
			`SELECT rolcanlogin, rolbypassrls, rolsuper FROM pg_roles WHERE rolname = 'argosy_reader'`).Scan(&canLogin, &bypass, &super))
	if canLogin || bypass || super {
		t.Errorf("argosy_reader may log in %v, pass the wall %v, is superuser %v", canLogin, bypass,
			super)
	}
	var may int
	check(t, conn.QueryRow(t.Context(), `
		SELECT count(*) FROM pg_class c WHERE c.relnamespace = 'argosy'::regnamespace AND c.relkind = 'r' AND (
			has_table_privilege('argosy_reader', c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
			OR c.relname IN ('tokens', 'audit', 'sealed', 'leases', 'engines') AND has_table_privilege('argosy_reader', c.oid, 'SELECT'))`).Scan(&may))
	if may != 0 {
		t.Errorf("argosy_reader may write, or read data that is not for tenants, in %d tables", may)
	}
}

// For every table of the schema, River's included, the reader is restricted by a policy, or has no
// privilege at all.
func TestNothingIsReadableWithoutAPolicy(t *testing.T) {
	t.Parallel()
	conn := connect(t, newDatabase(t))
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `
		SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity AND EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid)
		FROM pg_class c WHERE c.relnamespace = 'argosy'::regnamespace AND c.relkind IN ('r', 'p', 'm', 'v', 'f')
			AND (has_table_privilege('argosy_reader', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
				OR has_any_column_privilege('argosy_reader', c.oid, 'SELECT, INSERT, UPDATE, REFERENCES')) ORDER BY 1`)
	check(t, err)
	var name string
	var policy bool
	var reachable []string
	_, err = pgx.ForEachRow(rows, []any{&name, &policy}, func() error {
		// which hold revisions and nothing of a tenant
		if reachable = append(reachable, name); !policy && name != "approvals" {
			t.Errorf("%s: the reader reaches it without a policy", name)
		}
		return nil
	})
	check(t, err)
	if len(reachable) < 10 {
		t.Errorf("the reader reaches %v", reachable)
	}
	for _, name := range []string{"river_job", "river_queue", "river_leader", "river_migration",
		"deliveries", "looks", "pull_touches", "pushes"} {
		tx, err := conn.Begin(t.Context())
		check(t, err)
		_, err = tx.Exec(t.Context(), `SET LOCAL ROLE argosy_reader`)
		check(t, err)
		var refused *pgconn.PgError
		if _, err = tx.Exec(t.Context(), `SELECT FROM `+name); !errors.As(err, &refused) ||
			refused.Code != "42501" {
			t.Errorf("%s: the reader is answered %v", name, err)
		}
		check(t, tx.Rollback(t.Context()))
	}
	var sequences int
	check(t, conn.QueryRow(t.Context(), `
		SELECT count(*) FROM pg_class c WHERE c.relnamespace = 'argosy'::regnamespace
			AND CASE WHEN c.relkind = 'S' THEN has_sequence_privilege('argosy_reader', c.oid, 'USAGE, SELECT, UPDATE') END`).Scan(&sequences))
	if sequences != 0 {
		t.Errorf("argosy_reader reaches %d sequences", sequences)
	}
}

const (
	actionOfEveryTenant = `INSERT INTO actions (id, request, kind, engine, name, tenant, tenant_uid, environment, deployment, options, by)
		SELECT t.tenant, '', 'Refresh', 'eu-1', 'a', t.tenant, t.uid, 'prod', 'web', '{}', 'ann' FROM tenants t`
	commitOfEveryTenant = `INSERT INTO commit_statuses (tenant, tenant_uid, deployment, environment, repository, commit, settings, state)
		SELECT t.tenant, t.uid, 'web', 'prod', 'r', 'a', 'github', 'Queued' FROM tenants t`
	healthyOfEveryTenant = `INSERT INTO healthy_revisions (tenant, tenant_uid, environment, deployment, revision)
		SELECT t.tenant, t.uid, 'prod', 'web', 'v1' FROM tenants t`
	notificationOfEveryTenant = `INSERT INTO notifications (id, tenant, tenant_uid, channel, state, body, at, due)
		SELECT t.tenant, t.tenant, t.uid, 'chat', 'Pending', '{}', now(), now() FROM tenants t`
)

func TestReaderSeesItsTenantOnly(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	savePulls(t, s)
	must(s.Decisions.Approve(t.Context(), mirror.Approval{Revision: revision(9), By: "x"}))(t)
	for _, tenant := range []string{"acme", "globex"} {
		must(s.Decisions.SetStop(t.Context(), mirror.Stop{Scope: mirror.StopTenant, Name: tenant},
			true))(t)
	}
	exec(t, url, ownOfEveryTenant)
	exec(t, url,
		`INSERT INTO reach SELECT 'eu-1', t.tenant, 'prod', t.uid, 'Timeout', '', now(), 1 FROM tenants t`)
	exec(t, url, `INSERT INTO listings (tenant, repo_url, target_revision, tenant_uid, commit, error)
		SELECT t.tenant, 'https://git.example.com/' || t.tenant, 'main', t.uid, '', '' FROM tenants t`)
	exec(t, url, `INSERT INTO application_moves (tenant, environment, deployment, tenant_uid, operation, from_engine, to_engine, step)
		SELECT t.tenant, 'prod', 'web', t.uid, '', 'eu-1', 'eu-2', 'Check' FROM tenants t`)
	exec(t, url, `INSERT INTO shadow_differences (engine, application, ring, version, digest, tenant, tenant_uid, environment, deployment, inputs, revision)
		SELECT 'eu-1', t.tenant, 'canary', '3.5.7', '', t.tenant, t.uid, 'prod', 'web', '', '' FROM tenants t`)
	exec(t, url, `INSERT INTO freeze_releases (revision, tenant, tenant_uid, by, at, note)
		SELECT 'a', t.tenant, t.uid, 'ann', now(), '' FROM tenants t`)
	exec(t, url, `INSERT INTO rollouts (id, tenant, deployment, tenant_uid, state, body, begun_at)
		SELECT t.tenant, t.tenant, 'web', t.uid, 'Running', '{}', now() FROM tenants t`)
	exec(t, url, `INSERT INTO running (engine, name, kind, value, short, tag, tenant)
		SELECT 'eu-1', t.tenant, 'commit', 'a', '', '', t.tenant FROM tenants t`)
	exec(t, url, actionOfEveryTenant)
	exec(t, url, notificationOfEveryTenant)
	exec(t, url, commitOfEveryTenant)
	exec(t, url, healthyOfEveryTenant)
	exec(t, url, `INSERT INTO lasting_rollbacks
		SELECT t.tenant, t.uid, 'web', 'Open', '{}', '', '', 1, '', '', 0, now() FROM tenants t`)
	conn := connect(t, url)
	defer conn.Close(t.Context())
	readable := []string{"reviewed_plans"}
	for _, name := range tenantTables(t, conn) {
		if one[bool](t, url,
			`SELECT has_table_privilege('argosy_reader', 'argosy.' || $1, 'SELECT')`, name) {
			readable = append(readable, name)
		}
	}
	ofTenant := map[string]string{
		"declarations":   `CASE kind WHEN 'Tenant' THEN name ELSE tenant END`,
		"pulls":          `CASE WHEN $1 = ANY (tenants) THEN $1 ELSE 'another' END`,
		"reviewed_plans": `CASE WHEN number IN (1, 3) THEN $1 ELSE 'another' END`, // see savePulls
	}
	count := func(t *testing.T, table, tenant string) (seen, others int) {
		t.Helper()
		of := ofTenant[table]
		if of == "" {
			of = "tenant"
		}
		tx, err := conn.Begin(t.Context())
		check(t, err)
		defer tx.Rollback(t.Context())
		_, err = tx.Exec(t.Context(), `SET LOCAL ROLE argosy_reader`)
		check(t, err)
		if tenant != "" {
			_, err = tx.Exec(t.Context(), `SELECT set_config('argosy.tenant', $1, true)`, tenant)
			check(t, err)
		}
		check(t,
			tx.QueryRow(t.Context(),
				fmt.Sprintf(
					`SELECT count(*), count(*) FILTER (WHERE %[1]s <> $1) FROM %[2]s WHERE true OR %[1]s = 'globex'`, of, table), tenant).Scan(&seen, &others))
		return seen, others
	}
	for _, table := range readable {
		if seen, others := count(t, table, "acme"); seen == 0 || others != 0 {
			t.Errorf("%s with acme set: %d rows, %d of others", table, seen, others)
		}
		if seen, _ := count(t, table, ""); seen != 0 {
			t.Errorf("%s with no tenant set: %d rows", table, seen)
		}
		if seen, _ := count(t, table, "acme' OR '1'='1"); seen != 0 {
			t.Errorf("%s with a quote set: %d rows", table, seen)
		}
	}

	t.Run("a setting of one transaction does not reach the next", func(t *testing.T) {
		count(t, "desired", "acme")
		if left := one[string](t, url,
			`SELECT coalesce(current_setting('argosy.tenant', true), '')`); left != "" {
			t.Errorf("left: %q", left)
		}
		if seen, _ := count(t, "desired", ""); seen != 0 {
			t.Errorf("%d rows", seen)
		}
	})
	t.Run("a view of the owner lets nothing through", func(t *testing.T) {
		exec(t, url, `CREATE ROLE view_owner_`+databaseOf(url)+` NOLOGIN`)
		defer exec(t, url, `DROP OWNED BY view_owner_`+databaseOf(url)+`; DROP ROLE view_owner_`+
			databaseOf(url))
		exec(t, url, `GRANT USAGE, CREATE ON SCHEMA argosy TO view_owner_`+databaseOf(url)+
			`; GRANT SELECT ON desired TO view_owner_`+databaseOf(url))
		exec(t, url,
			`CREATE VIEW leak AS SELECT * FROM desired; ALTER VIEW leak OWNER TO view_owner_`+
				databaseOf(url)+`; GRANT SELECT ON leak TO argosy_reader`)
		defer exec(t, url, `DROP VIEW leak`)
		if seen, others := count(t, "leak", "acme"); seen == 0 || others != 0 {
			t.Errorf("through the view: %d rows, %d of others", seen, others)
		}
		if seen, _ := count(t, "leak", ""); seen != 0 {
			t.Errorf("through the view with no tenant set: %d rows", seen)
		}
	})
	t.Run("writing is refused", func(t *testing.T) {
		tx, err := conn.Begin(t.Context())
		check(t, err)
		defer tx.Rollback(t.Context())
		_, err = tx.Exec(t.Context(),
			`SET LOCAL ROLE argosy_reader; SET LOCAL argosy.tenant = 'acme'`)
		check(t, err)
		if _, err := tx.Exec(t.Context(), `UPDATE desired SET name = name`); err == nil {
			t.Error("the reader writes")
		}
	})
}

func databaseOf(url string) string {
	_, rest, _ := strings.Cut(url[strings.LastIndex(url, "@")+1:], "/")
	name, _, _ := strings.Cut(rest, "?")
	return name
}

// The queries alone protect tenants: without row-level security, each list still has only the
// tenant's own rows.
func TestQueriesAloneLimitListsToTheTenant(t *testing.T) {
	t.Parallel()
	s, url := populated(t)
	savePulls(t, s)
	_, _, err := s.Tokens.CreateToken(t.Context(), view.Token{Name: "ci", Tenant: "acme",
		Role: view.RoleRead})
	check(t, err)
	for _, tenant := range []string{"acme", "globex"} {
		must(s.Decisions.SetStop(t.Context(), mirror.Stop{Scope: mirror.StopTenant, Name: tenant},
			true))(t)
	}
	exec(t, url, actionOfEveryTenant)
	exec(t, url, notificationOfEveryTenant)
	exec(t, url, commitOfEveryTenant)
	exec(t, url, healthyOfEveryTenant)
	acme := view.Scope{Tenant: "acme"}
	read := func(t *testing.T, by view.Filter) string {
		t.Helper()
		var all []string
		add := func(items any, n int, err error) {
			check(t, err)
			all = append(all, fmt.Sprintf("%d %+v", n, items))
		}
		ctx, page := t.Context(), view.Page{Limit: 100}
		a, _, err := s.Views.Tenants(ctx, acme, by, page)
		add(a, len(a), err)
		b, _, err := s.Views.Environments(ctx, acme, by, page)
		add(b, len(b), err)
		c, _, err := s.Views.Deployments(ctx, acme, by, page)
		add(c, len(c), err)
		d, _, err := s.Views.Applications(ctx, acme, by, page)
		for i := range d {
			d[i].ObservedAt = nil
		}
		add(d, len(d), err)
		e, _, err := s.Views.Operations(ctx, acme, by, page)
		add(e, len(e), err)
		f, _, err := s.Views.Problems(ctx, acme, by, page)
		add(f, len(f), err)
		g, _, err := s.Views.Holds(ctx, acme, by, page)
		add(g, len(g), err)
		h, _, err := s.Views.Events(ctx, acme, 0, 100)
		if by.Tenant == "" {
			add(h, len(h), err)
		}
		i, _, err := s.Views.Engines(ctx, acme, by, page)
		add(i, len(i), err)
		j, _, err := s.Views.Revisions(ctx, acme, by, page)
		add(j, len(j), err)
		k, _, err := s.Views.Pulls(ctx, acme, by, page)
		add(k, len(k), err)
		l, _, err := s.Views.Sets(ctx, acme, by, page)
		add(l, len(l), err)
		m, _, err := s.Views.Actions(ctx, acme, by, page)
		add(m, len(m), err)
		n, _, err := s.Views.Notifications(ctx, acme, by, page)
		add(n, len(n), err)
		n2, _, err := s.Views.CommitStatuses(ctx, acme, by, page)
		add(n2, len(n2), err)
		n3, _, err := s.Views.Credentials(ctx, acme, by, page)
		add(n3, len(n3), err)
		o, _, err := s.Views.Audit(ctx, acme, by, page)
		add(o, len(o), err)
		p, err := s.Views.Matrix(ctx, acme, by, page)
		check(t, err)
		rows, err := json.Marshal(p.Rows)
		add(string(rows), len(p.Rows), err)
		q, err := s.Views.StateCounts(ctx, acme, by)
		add(q, len(q), err)
		by.Revision = revision(1)
		r, _, err := s.Views.Changes(ctx, acme, by, page)
		add(r, len(r), err)
		if by.Tenant == "" {
			for _, query := range []string{"acme", "globex", "cart", "v1"} {
				found, err := s.Views.Search(ctx, acme, query, 50)
				add(found.Hits, len(found.Hits), err)
			}
		}
		return strings.Join(all, "\n")
	}
	both := read(t, view.Filter{})
	if strings.Contains(both, "globex") || !strings.Contains(both, "acme") {
		t.Fatalf("with both walls:\n%s", both)
	}
	for line := range strings.Lines(read(t, view.Filter{Tenant: "globex"})) {
		if !strings.HasPrefix(line, "0 ") {
			t.Errorf("asked for another tenant: %s", line)
		}
	}
	conn := connect(t, url)
	defer conn.Close(t.Context())
	for _, table := range append(tenantTables(t, conn), "reviewed_plans") {
		exec(t, url, `ALTER TABLE `+table+` DISABLE ROW LEVEL SECURITY`)
	}
	if alone := read(t, view.Filter{}); alone != both {
		t.Errorf("without the wall in the database:\n%s\nwith it:\n%s", alone, both)
	}
}

func TestScopesDoNotLeakBetweenConnections(t *testing.T) {
	t.Parallel()
	_, url := populated(t)
	s := openWith(t, url, postgres.Options{Connections: postgres.Connections{Workers: 2}})
	var readers sync.WaitGroup
	for i := range 8 {
		tenant, want := []fleet.TenantName{"acme", "globex", ""}[i%3], []int{5, 5, 10}[i%3]
		readers.Go(func() {
			for range 20 {
				got, _, err := s.Views.Applications(context.Background(), view.Scope{
					Tenant: tenant},
					view.Filter{}, view.Page{Limit: 100})
				if err != nil || len(got) != want {
					t.Errorf("scope %q: %d applications, %v", tenant, len(got), err)
					return
				}
			}
		})
	}
	readers.Wait()
}

// The store works for an owner that is no superuser, as in hosted databases.
func TestStoreNeedsNoSuperuser(t *testing.T) {
	t.Parallel()
	name := fmt.Sprintf("plain_%d", databases.Add(1))
	admin := databaseURL(t, "postgres")
	exec(t, admin, `CREATE ROLE `+name+` LOGIN PASSWORD 'p' NOSUPERUSER NOBYPASSRLS`)
	exec(t, admin, `CREATE DATABASE `+name+` OWNER `+name)
	t.Cleanup(func() {
		exec(t, admin, `DROP DATABASE `+name+` WITH (FORCE)`)
		exec(t, admin, `DROP ROLE `+name)
	})
	url := strings.Replace(databaseURL(t, name), server.URL[:strings.Index(server.URL, "@")],
		"postgres://"+name+":p", 1)

	_, err := postgres.Migrate(t.Context(), url)
	if err == nil || !strings.Contains(err.Error(), "GRANT argosy_reader TO "+name) {
		t.Fatalf("without the right to the role: %v", err)
	}
	exec(t, admin, `GRANT argosy_reader TO `+name)
	_, err = postgres.Migrate(t.Context(), url)
	if err == nil || !strings.Contains(err.Error(), "GRANT argosy_agent TO "+name) {
		t.Fatalf("without the right to the agents' role: %v", err)
	}
	exec(t, admin, `GRANT argosy_agent TO `+name)
	must(postgres.Migrate(t.Context(), url))(t)
	s := open(t, url)
	lease, worker := hold(t, s, "reconciler"), hold(t, s, "engine/eu-1")
	must(s.Plans.Record(t.Context(), lease, fullRecord(0, 1, 20)))(t)
	rows := must(s.Work.Changed(t.Context(), "eu-1", 0, 100))(t)
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(rows)))
	check(t, s.Work.Observe(t.Context(), worker, []mirror.Observation{
		{Key: rows[0].Key, Sync: mirror.SyncSynced}}))
	if apps, _, err := s.Views.Applications(t.Context(), view.Scope{Tenant: "acme"}, view.Filter{
		Sync: mirror.SyncSynced}, view.Page{Limit: 100}); err != nil || len(apps) != 1 {
		t.Errorf("%d applications, %v", len(apps), err)
	}
	if apps, _, err := s.Views.Applications(t.Context(), view.Scope{Tenant: "globex"},
		view.Filter{},
		view.Page{Limit: 100}); err != nil || len(apps) != 0 {
		t.Errorf("%d applications of another tenant, %v", len(apps), err)
	}
	if _, last, err := s.Views.Events(t.Context(), view.Scope{}, -1, 0); err != nil || last <= 0 {
		t.Errorf("events up to %d, %v", last, err)
	}
	check(t, s.Pulls.SavePull(t.Context(), pull(1, forge.PullOpen, "acme")))
	check(t, s.Pulls.SaveReviewed(t.Context(), reviewed(1, 1, "a.yaml")))
	if _, report, err := s.Views.PullOf(t.Context(), view.Scope{Tenant: "acme"}, 1); err != nil ||
		len(report) == 0 {
		t.Errorf("the pull request of a tenant: %s, %v", report, err)
	}
	if _, _, err := s.Views.PullOf(t.Context(), view.Scope{Tenant: "globex"}, 1); !errors.Is(err,
		mirror.ErrNotFound) {
		t.Errorf("the pull request of another tenant: %v", err)
	}
	work(t, s, nothing).stop()
	check(t, s.Reset(t.Context()))
}
