package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

func TestNewsForAgentsNameTheChangedEngines(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	a, far, own := k.join(acmeEdge, "a"), k.join("far-1", "f"), k.join("acme.own", "o")
	news := must(k.Agents.AgentNews(ctx, -1, time.Time{}))(t)
	if news.Seq != 7 || len(news.Rows)+len(news.Syncs)+len(news.Ended)+len(news.Changed) != 0 ||
		time.Since(news.Now).Abs() > time.Minute {
		t.Errorf("from now on: %+v", news)
	}
	if got := must(k.Agents.AgentNews(ctx, 0, news.Now))(t); !slices.Equal(
		got.Rows, []fleet.EngineName{
			acmeEdge, "far-1"}) {
		t.Errorf("from the first: %+v", got)
	}
	next := func() registry.News {
		t.Helper()
		news = must(k.Agents.AgentNews(ctx, news.Seq, news.Now))(t)
		return news
	}
	k.record(func(r *mirror.Record) {
		r.Rows = []mirror.Row{application("acme.edge", "acme", "a", "edge", "v2"),
			application("globex.edge", "globex", "a", "edge", "v2"),
			application("eu-1", "acme", "c", "prod", "v2")}
	})
	if got := next(); got.Seq != 10 || !slices.Equal(got.Rows, []fleet.EngineName{acmeEdge}) {
		t.Errorf("three rows, one of an agent: %+v", got)
	}
	if got := next(); got.Seq != 10 || len(got.Rows) != 0 {
		t.Errorf("nothing: %+v", got)
	}
	k.record(func(r *mirror.Record) {
		row := application("far-1", "acme", "a", "prod", "v1")
		r.Syncs = []mirror.SyncRequest{{ID: "run", Key: row.Key, Tenant: "acme", Deployment: "a",
			Environment: "prod", SyncRun: "run", Revision: "v1"}}
	})
	for range 2 {
		if got := next(); !slices.Equal(got.Syncs, []fleet.EngineName{"far-1"}) {
			t.Errorf("a sync: %+v", got)
		}
	}
	if syncs := must(k.Agents.AgentSyncs(ctx, "far-1"))(t); len(syncs) != 1 ||
		syncs[0].ID != "run" ||
		syncs[0].Namespace != "" {
		t.Errorf("syncs %+v", syncs)
	}
	check(t, k.Work.UpdateSync(ctx, k.open(far, "one").Lease, "run", mirror.OperationSucceeded, ""))
	if got := next(); len(got.Syncs) != 0 {
		t.Errorf("the sync has ended: %+v", got)
	}
	o := k.open(own, "one")
	k.record(func(r *mirror.Record) {
		r.Declarations = []fleet.Declaration{
			edge("acme", "own", "")}
	})
	if got := next(); len(got.Changed) != 1 || got.Changed[0] != (registry.Change{
		Agent: own.ID, Generation: o.Generation + 1}) {
		t.Errorf("a declaration has changed: %+v", got)
	}
	if o := k.open(own, "one"); o.Mode != fleet.AgentManaged ||
		o.Generation != news.Changed[0].Generation {
		t.Errorf("opened again: %+v", o)
	}
	check(t, k.Agents.RevokeAgent(ctx, view.Scope{}, acmeEdge, "ann"))
	exec(t, k.url, `UPDATE agents SET changed_at = now() - interval '1 hour'`)
	if got := next(); !slices.Equal(got.Ended, []string{a.ID}) || len(got.Changed) != 0 {
		t.Errorf("revoked: %+v", got)
	}
	for age, included := range map[time.Duration]bool{119 * time.Second: true,
		121 * time.Second: false} {
		at := news.Now.Add(-age) // by a transaction that has ended since
		exec(t, k.url,
			`UPDATE agents SET changed_at = $1::timestamptz, ended_at = CASE WHEN ended_at IS NOT NULL THEN $1::timestamptz END`, at)
		got := must(k.Agents.AgentNews(ctx, news.Seq, news.Now))(t)
		if slices.Contains(got.Ended, a.ID) != included || slices.ContainsFunc(got.Changed,
			func(c registry.Change) bool { return c.Agent == own.ID }) != included {
			t.Errorf("%s before: %+v", age, got)
		}
	}
}

func TestRotatedCredentialsConcernTheAgentsThatNeedThem(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	k.join(acmeEdge, "a")
	k.join("far-1", "f")
	k.join("globex.edge", "g")
	k.record(func(r *mirror.Record) {
		for i, engine := range []string{"acme.edge", "far-1", "eu-1", "globex.edge"} {
			row := application(engine, []string{"acme", "acme", "acme", "globex"}[i], "r", "edge",
				"v1")
			row.Credential = &fleet.CredentialSource{Tenant: row.Tenant, Name: "git",
				Sealed: "blob"}
			r.Rows = append(r.Rows, row)
		}
	})
	if got := must(k.Agents.CredentialEngines(t.Context(), "acme", "git"))(t); !slices.Equal(got,
		[]fleet.EngineName{acmeEdge, "far-1"}) {
		t.Errorf("engines %v", got)
	}
	if got := must(k.Agents.CredentialEngines(t.Context(), "acme", "other"))(t); len(got) != 0 {
		t.Errorf("of another secret: %v", got)
	}
	rows := must(k.Agents.AgentCredentialRows(t.Context(), acmeEdge, "acme", "git"))(t)
	if len(rows) != 1 || rows[0].Deployment != "r" || rows[0].Credential == nil ||
		rows[0].Credential.Sealed != "blob" {
		t.Errorf("rows %+v", rows)
	}
}

// manyAgents creates n environments behind agents, each with five rows of which one is pending,
// without a record.
func manyAgents(t testing.TB, k *agentKit, n int) {
	t.Helper()
	exec(t, k.url, fmt.Sprintf(`
		INSERT INTO declarations (kind, tenant, name, path, blob, body)
		SELECT kind, tenant, 'e' || n, 'p' || n, 'b', jsonb_set(body, '{key,name}', to_jsonb('e' || n)) FROM declarations, generate_series(1, %[1]d) n WHERE kind = 'ManagedEnvironment' AND name = 'edge' AND tenant = 'acme';
		INSERT INTO agents (id, engine, tenant, tenant_uid, name, sign, seal, thumb, cluster_uid, joined_at, expires_at, changed_at)
		SELECT 'id' || n, 'acme.e' || n, 'acme', live_tenant('acme'), 'e' || n, sha256('a'), sha256('b'), 't' || n, '', now(), now() + interval '30 days', now() FROM generate_series(1, %[1]d) n;
		INSERT INTO desired (engine, kind, name, tenant, environment, deployment, seq, created_at, changed_at, absent, deletion, revision, hash, body)
		SELECT 'acme.e' || n, 'Application', 'app-' || m, 'acme', 'e' || n, 'd' || m, n * 5 + m, now(), now(), m = 5, 'Delete', 'r' || m %% 2, '', convert_to(repeat('x', 700), 'UTF8')
		FROM generate_series(1, %[1]d) n, generate_series(1, 5) m;
		INSERT INTO status (engine, kind, name, tenant, seq, state) SELECT engine, kind, name, tenant, seq, 'Applied' FROM desired WHERE name IN ('app-1', 'app-2', 'app-3');
		UPDATE mirror SET seq = (SELECT max(seq) FROM desired);
		ANALYZE`, n))
}

func TestListOfAThousandAgentsReadsNoOtherRows(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	manyAgents(t, k, 10_000)
	var seen asked
	s := openWith(t, k.url, postgres.Options{Tracer: &seen})
	for _, scope := range []view.Scope{{}, {Tenant: "acme"}} {
		views, next, err := s.Views.Agents(t.Context(), scope, view.Filter{Tenant: "acme"},
			view.Page{
				Limit: 1000})
		check(t, err)
		if len(views) != 1000 || next == "" {
			t.Fatalf("scope %q: %d agents", scope.Tenant, len(views))
		}
		if v := views[10]; v.ID == "" || v.Pending != 2 || v.PendingDeletions != 1 || v.Lag != 2 {
			t.Errorf("%+v", v)
		}
		for _, table := range []string{"FROM desired d", "FROM declarations d"} {
			how := explain(t, k.url, scope, seen.of(t, table))
			for _, bad := range []string{"Seq Scan on desired", "Seq Scan on status",
				"Seq Scan on agents"} {
				if strings.Contains(how, bad) {
					t.Errorf("scope %q: %s\n%s", scope.Tenant, bad, how)
				}
			}
		}
	}
	one, _, err := s.Views.Agents(t.Context(), view.Scope{Tenant: "acme"}, view.Filter{
		Engine: "acme.e777"}, view.Page{Limit: 10})
	if err != nil || len(one) != 1 || one[0].Environment != "e777" {
		t.Errorf("one of them: %+v, %v", one, err)
	}
}

func TestNewsCostWhatHasChanged(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	manyAgents(t, k, 4000)
	var seen asked
	s := openWith(t, k.url, postgres.Options{Tracer: &seen})
	before := must(s.Agents.AgentNews(t.Context(), -1, time.Time{}))(t)
	if got := must(s.Agents.AgentNews(t.Context(), before.Seq-5, before.Now.Add(time.Hour)))(
		t); len(
		got.Rows) != 1 {
		t.Fatalf("%+v", got)
	}
	how := explain(t, k.url, view.Scope{}, seen.of(t, "FROM desired d"))
	for _, bad := range []string{"Seq Scan on desired", "Seq Scan on agents"} {
		if strings.Contains(how, bad) {
			t.Errorf("%s:\n%s", bad, how)
		}
	}
	if !strings.Contains(how, "desired_news") {
		t.Errorf("not by the index:\n%s", how)
	}
}

// Neither row-level security nor the join reads rows of other agents.
func TestRowsOfAnAgentAreFoundByItsEngine(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	manyAgents(t, k, 4000)
	var seen asked
	s := openWith(t, k.url, postgres.Options{Tracer: &seen})
	conn := connect(t, k.url)
	defer conn.Close(t.Context())
	for name, read := range map[string]func() (int, error){
		"all": func() (n int, err error) {
			_, err = s.Agents.AgentRows(t.Context(), "acme.e7", func(mirror.Row) error {
				n++
				return nil
			})
			return n, err
		},
		"changed": func() (int, error) {
			rows, err := s.Agents.AgentChanged(t.Context(), "acme.e7", 0, 100)
			return len(rows), err
		},
	} {
		if n, err := read(); err != nil || n != 5 {
			t.Fatalf("%s: %d rows, %v", name, n, err)
		}
		asked := seen.of(t, "FROM desired d")
		tx := must(conn.Begin(t.Context()))(t)
		_, err := tx.Exec(t.Context(),
			`SET LOCAL random_page_cost = 1.1; SET LOCAL argosy.engine = 'acme.e7'; SET LOCAL ROLE argosy_agent`)
		check(t, err)
		rows, err := tx.Query(t.Context(), `EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) `+
			asked.SQL, asked.Args...)
		check(t, err)
		how := strings.Join(must(pgx.CollectRows(rows, pgx.RowTo[string]))(t), "\n")
		check(t, tx.Rollback(t.Context()))
		moves := "Seq Scan on application_moves" // a handful of rows, seldom any
		if strings.Contains(strings.ReplaceAll(how, moves, ""), "Seq Scan") ||
			!strings.Contains(how, "(actual rows=5 ") {
			t.Errorf("%s:\n%s", name, how)
		}
	}
}
