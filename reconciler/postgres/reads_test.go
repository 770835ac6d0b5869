package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// cost is the number of rows and pages that a statement reads.
type cost struct {
	rows int // of desired: rows read, including filtered ones
	// of all tables and indexes; includes an index scan that reads no row
	pages int
}

// costOf runs a statement with the settings of a store, once to plan it, and again to measure it.
// It rolls its writes back.
func costOf(t testing.TB, url, sql string, args ...any) cost {
	t.Helper()
	conn := connect(t, url)
	defer conn.Close(t.Context())
	tx := must(conn.Begin(t.Context()))(t)
	_, err := tx.Exec(t.Context(),
		`SET LOCAL random_page_cost = 1.1; SET LOCAL jit = off; SET LOCAL plan_cache_mode = force_custom_plan; SAVEPOINT planned`)
	check(t, err)
	_, err = tx.Exec(t.Context(), sql, args...)
	check(t, err)
	_, err = tx.Exec(t.Context(), `ROLLBACK TO planned`)
	check(t, err)
	read := func() (n int) {
		t.Helper()
		check(t,
			tx.QueryRow(t.Context(),
				`SELECT pg_stat_get_xact_tuples_returned('desired'::regclass) + (
			SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) FROM pg_index WHERE indrelid = 'desired'::regclass)`).Scan(&n))
		return n
	}
	before := read()
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	check(t, tx.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql, args...).Scan(
		&plans))
	return cost{rows: read() - before, pages: plans[0].Plan.Hit + plans[0].Plan.Read}
}

// bigFirst is a kit whose next revision has created n more rows: an environment's own engine has
// half of them, and each of two Engines, one behind an agent, a quarter. Each row is applied.
func bigFirst(t testing.TB, n int) *agentKit {
	t.Helper()
	k := agentKitOn(t, newPlainDatabase(t), func(url string) *postgres.Store {
		return open(t, url)
	})
	k.record(func(r *mirror.Record) {
		for i := range n {
			row := application([]string{"acme.edge", "eu-1", "acme.edge", "far-1"}[i%4], "acme",
				fmt.Sprint("d", i), "edge", "v1")
			row.Manifest = manifest(fmt.Sprint("{}", i))
			r.Rows = append(r.Rows, row)
		}
	})
	exec(t, k.url,
		`INSERT INTO status (engine, kind, name, tenant, seq, state, acked_at) SELECT engine, kind, name, tenant, seq, 'Applied', now() FROM desired`)
	return k
}

// After a first start one revision has nearly every row, and in an old fleet all rows are applied.
// With neither statistics do the repeated queries cost more than the changes.
func TestWhatIsAskedAgainAndAgainReadsWhatHasChanged(t *testing.T) {
	t.Parallel()
	const n = 20_000
	k := bigFirst(t, n)
	k.join(acmeEdge, "x")
	k.join("far-1", "f")
	var seen asked
	s := openWith(t, k.url, postgres.Options{Tracer: &seen})
	settle := func(when string, rows int) {
		t.Helper()
		if got := costOf(t, k.url, `SELECT settle(NULL)`); got.rows > rows || got.pages > 80+
			8*rows {
			t.Errorf("%s, revisions are settled with %+v, want %d rows", when, got, rows)
		}
	}
	news := func(when string, after int64, rows int, engines ...fleet.EngineName) {
		t.Helper()
		news := must(s.Agents.AgentNews(t.Context(), after, time.Time{}))(t)
		if fmt.Sprint(news.Rows) != fmt.Sprint(engines) {
			t.Errorf("%s, news of %v, want %v", when, news.Rows, engines)
		}
		asked := seen.of(t, "FROM desired d")
		if got := costOf(t, k.url, asked.SQL, asked.Args...); got.rows > rows || got.pages > 60 {
			t.Errorf("%s, news cost %+v, want %d rows\n%s", when, got, rows,
				explain(t, k.url, view.Scope{}, asked))
		}
	}
	state := func(state string, from, to int64) {
		t.Helper()
		exec(t, k.url, `UPDATE status SET state = $1 WHERE seq BETWEEN $2 AND $3`, state, from, to)
	}
	last := must(s.Plans.Load(t.Context()))(t).Seq
	for _, stats := range []string{"without statistics", "with statistics"} {
		if stats == "with statistics" {
			exec(t, k.url, `ANALYZE`)
		}
		exec(t, k.url, `UPDATE revisions SET applied_at = NULL, witness = $1`, last-2)
		settle(stats+", the last three applied", 3)
		state("Pending", last-2, last)
		settle(stats+", the last three pending", 1)
		state("Applied", last-2, last-1)
		settle(stats+", but one applied", 3)
		state("Applied", last, last)
		exec(t, k.url, `SELECT settle(NULL)`)
		expect(t, k.url, `SELECT count(*) FROM revisions WHERE applied_at IS NULL`, 0)
		news(stats+", nothing", last, 0)
		news(stats+", the last four rows", last-4, 3, acmeEdge, "far-1")
	}
	k.record(func(r *mirror.Record) {
		for i, engine := range []string{"eu-1", "far-1", "eu-1"} {
			r.Rows = append(r.Rows, application(engine, "acme", fmt.Sprint("d", 2*i+1), "edge",
				"v2"))
		}
	})
	settle("three changed", 1)
	news("three changed", last, 1, "far-1")
	exec(t, k.url,
		`UPDATE status s SET seq = d.seq FROM desired d WHERE d.engine = s.engine AND d.kind = s.kind AND d.name = s.name`)
	settle("three applied", 3)
	exec(t, k.url, `SELECT settle(NULL)`)
	settle("all applied", 0)
}

// An engine without an agent pays nothing for agents' news.
func TestRowsOfOtherEnginesAreNotIndexedForAgents(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	plan := one[string](t, k.url,
		`SELECT pg_get_expr(indpred, indrelid) FROM pg_index WHERE indexrelid = 'desired_news'::regclass`)
	got := one[string](t, k.url,
		`SELECT string_agg(DISTINCT engine, ' ' ORDER BY engine) FROM desired WHERE `+plan)
	if got != "acme.edge globex.edge" {
		t.Errorf("of engines %s", got)
	}
}
