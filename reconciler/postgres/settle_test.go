package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/postgres"
)

// openRevisions adds n revisions, each with one row that its engine failed to apply.
func openRevisions(t testing.TB, url string, n int) {
	t.Helper()
	exec(t, url, `
		INSERT INTO revisions (revision, author, subject, committed_at, recorded_at, created, changed, deleted, held, problems, witness)
		SELECT 'open-' || i, '', '', now(), now(), 1, 0, 0, 0, 0, 1000000 + i FROM generate_series(1, $1::int) i`, n)
	exec(t, url, `
		INSERT INTO desired (engine, kind, name, tenant, environment, deployment, seq, created_at, changed_at, absent, deletion, revision, hash, body)
		SELECT 'far-1', 'Application', 'open-' || i, 'globex', 'prod', 'd' || i, 1000000 + i, now(), now(), false, 'Delete', 'open-' || i, '', ''
		FROM generate_series(1, $1::int) i`, n)
	exec(t, url, `
		INSERT INTO status (engine, kind, name, tenant, seq, state) SELECT engine, kind, name, tenant, seq, 'Failed' FROM desired WHERE engine = 'far-1'`)
	exec(t, url, `ANALYZE`)
}

// An acknowledgement reads no row of a revision that it does not name, however many revisions wait
// for other engines.
func TestAcknowledgeCostsWhatIsAcknowledged(t *testing.T) {
	t.Parallel()
	const open = 3000
	url := newDatabase(t)
	var seen asked
	rows := []mirror.Row{application("eu-1", "acme", "a", "prod", "v1"),
		application("eu-1", "acme", "b", "prod", "v1")}
	_, _, worker, stored := recorded(t, url, rows...)
	openRevisions(t, url, open)
	s := openWith(t, url, postgres.Options{Tracer: &seen})
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(stored)))
	expect(t, url, `SELECT count(*) FROM revisions WHERE applied_at IS NULL`, open)
	expect(t, url, `SELECT count(*) FROM operations WHERE state = 'Succeeded'`, 1)
	exec(t, url, `UPDATE revisions SET applied_at = NULL, witness = 0 WHERE revision = $1`,
		string(revision(1)))
	settle := seen.of(t, "settle")
	if got := costOf(t, url, settle.SQL, settle.Args...); got.rows > 2 || got.pages > 60 {
		t.Errorf("the revision of two rows is settled with %+v beside %d open ones", got, open)
	}
	if got := costOf(t, url, `SELECT settle(NULL)`); got.rows < open {
		t.Fatalf("this test counts nothing: %+v for all", got)
	}
}

// While another transaction holds the rows that completion writes, and its former lock, engines
// acknowledge as before.
func TestAcknowledgeNeitherWaitsNorFailsForCompletion(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, _, worker, stored := recorded(t, url, application("eu-1", "acme", "a", "prod", "v1"))
	other := connect(t, url)
	defer other.Close(t.Context())
	tx := must(other.Begin(t.Context()))(t)
	for _, sql := range []string{
		`SELECT pg_advisory_xact_lock(hashtextextended('argosy settle', 0))`,
		`SELECT FROM revisions FOR UPDATE`} {
		_, err := tx.Exec(t.Context(), sql)
		check(t, err)
	}
	check(t, s.Work.Acknowledge(t.Context(), worker, applied(stored)))
	expect(t, url, `SELECT count(*) FROM status WHERE state = 'Applied'`, 1)
	expect(t, url, `SELECT count(*) FROM revisions WHERE applied_at IS NULL`, 1)
	check(t, tx.Rollback(t.Context()))
	check(t, s.Plans.CompleteRevisions(t.Context()))
	expect(t, url, `SELECT count(*) FROM revisions WHERE applied_at IS NULL`, 0)
	expect(t, url, `SELECT count(*) FROM operations WHERE state = 'Succeeded'`, 1)
}

// Two engines acknowledge the last two rows of a revision at the same time: it completes, whatever
// the order of their commits.
func TestRevisionEndsWhicheverEngineIsLast(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s := open(t, url)
	reconciler := hold(t, s, "reconciler")
	engines := []mirror.Lease{hold(t, s, "engine/eu-1"), hold(t, s, "engine/us-1")}
	for n := 1; n <= 20; n++ {
		must(s.Plans.Record(t.Context(), reconciler, step(n-1, n, func(r *mirror.Record) {
			for _, engine := range []string{"eu-1", "us-1"} {
				r.Rows = append(r.Rows, application(engine, "acme", "a", engine,
					fmt.Sprint("v", n)))
			}
		})))(t)
		done := make(chan error, len(engines))
		for i, engine := range []fleet.EngineName{"eu-1", "us-1"} {
			rows := must(s.Work.Changed(t.Context(), engine, 0, 10))(t)
			go func() { done <- s.Work.Acknowledge(t.Context(), engines[i], applied(rows)) }()
		}
		for range engines {
			check(t, <-done)
		}
		expect(t, url, `SELECT count(*) FROM revisions WHERE applied_at IS NULL`, 0)
	}
}

// A revision whose last pending row a later one replaces is applied.
func TestRevisionEndsWhenALaterOneTakesItsLastRow(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, reconciler, _, _ := recorded(t, url, application("eu-1", "acme", "a", "prod", "v1"))
	must(s.Plans.Record(t.Context(), reconciler, step(1, 2, func(r *mirror.Record) {
		r.Rows = []mirror.Row{application("eu-1", "acme", "a", "prod", "v2")}
	})))(t)
	if open := one[string](t, url,
		`SELECT string_agg(revision, ' ') FROM revisions WHERE applied_at IS NULL`); open != string(
		revision(2)) {
		t.Errorf("open: %s", open)
	}
}

// BenchmarkAcknowledge measures one acknowledgement of ten rows, alone and while 3,000 revisions
// wait for another engine.
func BenchmarkAcknowledge(b *testing.B) {
	own := durable(b)
	s := openWith(b, own.URL, postgres.Options{})
	reconciler, worker := hold(b, s, "reconciler"), hold(b, s, "engine/eu-1")
	revisions := 0
	next := func() []mirror.Ack {
		revisions++
		must(
			s.Plans.Record(b.Context(), reconciler,
				step(revisions-1, revisions, func(r *mirror.Record) {
					for i := range 10 {
						r.Rows = append(
							r.Rows, application("eu-1", "acme", fmt.Sprint("d", i), "prod",
								fmt.Sprint("v", revisions)))
					}
				})))(b)
		return applied(must(s.Work.Changed(b.Context(), "eu-1", 0, 100))(b))
	}
	const each = 300
	var times [2][]time.Duration
	round := func(arm int) {
		// otherwise one arm writes back the pages of the other, or of its preparation
		exec(b, own.URL, `CHECKPOINT`)
		for range each {
			acks := next()
			began := time.Now()
			check(b, s.Work.Acknowledge(b.Context(), worker, acks))
			times[arm] = append(times[arm], time.Since(began))
		}
	}
	for range 20 {
		next()
	}
	for b.Loop() {
		round(0)
		openRevisions(b, own.URL, 3000)
		round(1)
		round(1)
		exec(b, own.URL, `DELETE FROM revisions WHERE revision LIKE 'open-%'`)
		exec(b, own.URL, `DELETE FROM desired WHERE engine = 'far-1'`)
		exec(b, own.URL, `DELETE FROM status WHERE engine = 'far-1'`)
		exec(b, own.URL, `VACUUM ANALYZE`)
		round(0)
	}
	b.ReportMetric(0, "ns/op")
	for _, share := range []int{50, 99} {
		alone, beside := percentile(times[0], share), percentile(times[1], share)
		b.ReportMetric(float64(alone.Microseconds())/1000, fmt.Sprintf("p%d-alone-ms", share))
		b.ReportMetric(float64(beside)/float64(alone), fmt.Sprintf("p%d-ratio", share))
	}
}
