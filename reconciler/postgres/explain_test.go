package postgres_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// asked records the statements that a store sends.
type asked struct {
	mu      sync.Mutex
	all     []pgx.TraceQueryStartData
	inBatch []pgx.TraceQueryStartData
}

func (a *asked) TraceQueryStart(ctx context.Context, _ *pgx.Conn,
	d pgx.TraceQueryStartData) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, d)
	return ctx
}

func (*asked) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// of is the last statement that names the table.
func (a *asked) of(t testing.TB, table string) pgx.TraceQueryStartData {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range slices.Backward(a.all) {
		if strings.Contains(d.SQL, table) {
			return d
		}
	}
	t.Fatalf("nothing asks %s", table)
	return pgx.TraceQueryStartData{}
}

// explain returns the query plan, with the settings of a store, in a tenant's scope.
func explain(t testing.TB, url string, scope view.Scope, d pgx.TraceQueryStartData) string {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	check(t, err)
	settings := `SET LOCAL random_page_cost = 1.1; SET LOCAL jit = off; SET LOCAL timezone = 'UTC'`
	if scope.Tenant != "" {
		settings += `; SET LOCAL argosy.tenant = '` + string(scope.Tenant) +
			`'; SET LOCAL ROLE argosy_reader`
	}
	_, err = tx.Exec(t.Context(), settings)
	check(t, err)
	rows, err := tx.Query(t.Context(), `EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) `+
		d.SQL, d.Args...)
	check(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check(t, err)
	return strings.Join(lines, "\n")
}

// A tenant's page is found in the tenant's own index, however many pull requests others have.
func TestPullsOfATenantAreFoundWithoutReadingOthers(t *testing.T) {
	t.Parallel()
	_, url := populated(t)
	var seen asked
	s := openWith(t, url, postgres.Options{Tracer: &seen})
	check(t, s.Pulls.SavePull(t.Context(), pull(1, forge.PullOpen, "acme")))
	exec(t, url, `
		INSERT INTO pulls (number, state, head, settled, tenants, tenant_uids, body)
		SELECT n, 'merged', p.head, true, ARRAY['globex'], ARRAY(SELECT uid FROM tenants WHERE tenant = 'globex'), p.body
		FROM generate_series(2, 5000) n, pulls p WHERE p.number = 1`)
	check(t, s.Pulls.SavePull(t.Context(), pull(4000, forge.PullOpen, "", "acme", "globex")))
	exec(t, url, `ANALYZE`)
	acme, page := view.Scope{Tenant: "acme"}, view.Page{Limit: 50}
	for name, c := range map[string]struct {
		scope view.Scope
		by    view.Filter
		want  int
	}{
		"as acme":         {acme, view.Filter{}, 2},
		"as acme, merged": {acme, view.Filter{State: forge.PullMerged}, 0},
		"as acme, one":    {acme, view.Filter{Pull: 4000}, 1},
		"of acme":         {view.Scope{}, view.Filter{Tenant: "acme"}, 2},
		"of globex, open": {
			view.Scope{}, view.Filter{Tenant: "globex", State: forge.PullOpen}, 1},
		"as globex, open": {view.Scope{Tenant: "globex"}, view.Filter{
			State: forge.PullOpen}, 1},
		"as globex, one page": {view.Scope{Tenant: "globex"}, view.Filter{}, 50},
		"as globex, merged page": {view.Scope{Tenant: "globex"}, view.Filter{
			State: forge.PullMerged}, 50},
	} {
		got, _, err := s.Views.Pulls(t.Context(), c.scope, c.by, page)
		check(t, err)
		if len(got) != c.want {
			t.Errorf("%s: %d, want %d", name, len(got), c.want)
		}
		how := explain(t, url, c.scope, seen.of(t, "FROM pulls p"))
		if strings.Contains(how, "Seq Scan on pulls") ||
			strings.Contains(how, "Seq Scan on pull_tenants") || strings.Contains(how, "Sort") ||
			strings.Contains(how, "Rows Removed by") ||
			!strings.Contains(how, "pull_tenants_") {
			t.Errorf("%s:\n%s", name, how)
		}
	}
}

// TraceBatchStart and TraceBatchEnd do nothing: the statements of a batch are traced one by one.
func (*asked) TraceBatchStart(ctx context.Context, _ *pgx.Conn,
	_ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery records a statement of a batch.
func (a *asked) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inBatch = append(a.inBatch, pgx.TraceQueryStartData{SQL: d.SQL, Args: d.Args})
}

func (*asked) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// batched is the last statement of a batch that contains these words.
func (a *asked) batched(t testing.TB, words string) pgx.TraceQueryStartData {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range slices.Backward(a.inBatch) {
		if strings.Contains(d.SQL, words) {
			return d
		}
	}
	t.Fatalf("no batch has %s", words)
	return pgx.TraceQueryStartData{}
}

// Filters for the few unhealthy Applications do not read the others.
func TestUnwellApplicationsAreFoundWithoutReadingTheOthers(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	exec(t, url, `
		INSERT INTO desired (engine, kind, name, tenant, environment, deployment, seq, created_at, changed_at, absent, deletion, revision, hash, body)
		SELECT 'eu-1', 'Application', 'a' || i, 't' || i % 50, 'prod', 'd' || i, i, now(), now(), false, 'Delete', 'r', '', '{}' FROM generate_series(1, 20000) i;
		INSERT INTO status (engine, kind, name, tenant, seq, state, sync, health, observed_at)
		SELECT engine, kind, name, tenant, seq, CASE WHEN seq % 5000 = 1 THEN 'Failed' ELSE 'Applied' END, 'Synced',
			CASE WHEN seq % 5000 = 0 THEN 'Degraded' ELSE 'Healthy' END, now() FROM desired;
		ANALYZE`)
	var seen asked
	s := openWith(t, url, postgres.Options{Tracer: &seen})
	for _, c := range []struct {
		by   view.Filter
		want int
	}{
		{view.Filter{Health: mirror.HealthDegraded}, 4},
		{view.Filter{Health: mirror.HealthSuspended}, 0},
		{view.Filter{Health: mirror.HealthMissing}, 0},
		{view.Filter{Apply: mirror.ApplyFailed}, 4}, {view.Filter{Apply: mirror.ApplyConflict}, 0},
	} {
		got, _, err := s.Views.Applications(t.Context(), view.Scope{}, c.by, view.Page{Limit: 100})
		check(t, err)
		if len(got) != c.want {
			t.Errorf("%+v: %d, want %d", c.by, len(got), c.want)
		}
		asked := seen.of(t, "FROM desired d")
		if cost := costOf(t, url, asked.SQL, asked.Args...); cost.rows > 2*c.want ||
			cost.pages > 100 {
			t.Errorf("%+v costs %+v\n%s", c.by, cost, explain(t, url, view.Scope{}, asked))
		}
	}
}
