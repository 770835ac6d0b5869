package postgres_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/reconciler/postgres/embedded"
)

// durable starts a server with PostgreSQL's own settings: commits are flushed, as in production.
func durable(b *testing.B) *embedded.Server {
	b.Helper()
	dir, err := os.MkdirTemp("", "argosy-postgres-bench-")
	check(b, err)
	b.Cleanup(func() { os.RemoveAll(dir) })
	check(b, os.Chmod(dir, 0o711))
	own, err := embedded.StartWith(context.Background(), dir+"/db", embedded.Options{
		Set: []string{"max_wal_size=4GB"}})
	check(b, err)
	b.Cleanup(func() { own.Stop() })
	must(postgres.Migrate(context.Background(), own.URL))(b)
	return own
}

// speed is the cost of n rows in wall-clock time and in CPU time of this process and of the
// server's sessions. CPU time does not depend on other work on the machine.
type speed struct{ wall, cpu float64 }

func rate(n int, f func()) speed {
	began, used := time.Now(), cpuTime()
	f()
	return speed{float64(n) / time.Since(began).Seconds(),
		float64(n) / (cpuTime() - used).Seconds()}
}

// cpuTime is the CPU time that this process and every session of PostgreSQL has used so far; 0
// without /proc.
func cpuTime() time.Duration {
	const tick = 10 * time.Millisecond
	var total time.Duration
	found, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range found {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(raw), "(")
		name, rest, _ := strings.Cut(rest, ") ")
		fields := strings.Fields(rest)
		if name != "postgres" && file != fmt.Sprintf("/proc/%d/stat", os.Getpid()) ||
			len(fields) < 13 {
			continue
		}
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		total += time.Duration(user+system) * tick
	}
	return total
}

func median(all []speed, of func(speed) float64) float64 {
	var v []float64
	for _, s := range all {
		v = append(v, of(s))
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// alternate runs two arms in blocks A B B A and reports the median rate of each and their ratio.
func alternate(b *testing.B, name string, ours, floor func() speed) {
	b.Helper()
	var a, f []speed
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			a, f = append(a, ours()), append(f, floor())
		} else {
			f, a = append(f, floor()), append(a, ours())
		}
	}
	b.ReportMetric(0, "ns/op")
	wall, cpu := func(s speed) float64 { return s.wall }, func(s speed) float64 { return s.cpu }
	b.ReportMetric(median(a, wall), "rows/s")
	b.ReportMetric(median(f, wall), name+"/s")
	b.ReportMetric(median(a, wall)/median(f, wall), "ratio")
	b.ReportMetric(median(a, cpu)/median(f, cpu), "cpu-ratio")
}

// BenchmarkBulk compares a revision of 10,000 new and of 10,000 changed objects with a raw COPY of
// the same rows into a table with the same keys and indexes.
func BenchmarkBulk(b *testing.B) {
	const n = 10_000
	own := durable(b)
	s := openWith(b, own.URL, postgres.Options{})
	lease := hold(b, s, "reconciler")
	exec(b, own.URL, `CREATE TABLE argosy.floor (LIKE argosy.desired INCLUDING ALL)`)
	conn := connect(b, own.URL)
	defer conn.Close(context.Background())
	revisions := 0
	rows := func(version int) []mirror.Row {
		all := make([]mirror.Row, n)
		for i := range all {
			all[i] = application("eu-1", "acme", fmt.Sprintf("d%05d", i), "prod",
				fmt.Sprint("v", version))
		}
		return all
	}
	record := func(all []mirror.Row) speed {
		revisions++
		r := step(revisions-1, revisions, func(r *mirror.Record) { r.Rows = all })
		return rate(n, func() { must(s.Plans.Record(context.Background(), lease, r))(b) })
	}
	empty := func() { exec(b, own.URL, `TRUNCATE desired, floor; CHECKPOINT`) }
	copied := func() speed {
		all := rows(0)
		return rate(n, func() {
			_, err := conn.CopyFrom(context.Background(), pgx.Identifier{"floor"},
				[]string{"engine", "kind", "name", "tenant", "environment", "deployment", "seq",
					"created_at", "changed_at", "absent", "held", "deletion", "revision", "hash",
					"body"}, pgx.CopyFromSlice(n, func(i int) ([]any, error) {
					r := all[i]
					return []any{string(r.Key.Engine), string(r.Key.Kind), r.Key.Name,
						string(r.Tenant),
						string(r.Environment), string(r.Deployment), int64(i),
						time.Now(), time.Now(), false, false, string(r.Deletion),
						string(revision(1)),
						r.Manifest.Hash, r.Manifest.Body}, nil
				}))
			check(b, err)
		})
	}
	b.Run("new", func(b *testing.B) {
		alternate(b, "COPY", func() speed { empty(); return record(rows(revisions)) },
			func() speed { empty(); return copied() })
	})
	b.Run("changed", func(b *testing.B) {
		alternate(b, "COPY", func() speed {
			empty()
			record(rows(revisions))
			return record(rows(revisions))
		}, func() speed { empty(); return copied() })
	})
}

// BenchmarkStatusStorm compares observations of 10,000 Applications, in the batches of the workers,
// with one UPDATE per commit.
func BenchmarkStatusStorm(b *testing.B) {
	const n, batch = 10_000, 500
	own := durable(b)
	s := openWith(b, own.URL, postgres.Options{})
	ctx := context.Background()
	var rows []mirror.Row
	for i := range n {
		rows = append(rows, application("eu-1", "acme", fmt.Sprintf("d%05d", i), "prod", "v1"))
	}
	must(s.Plans.Record(ctx, hold(b, s, "reconciler"),
		step(0, 1, func(r *mirror.Record) { r.Rows = rows })))(b)
	worker := hold(b, s, "engine/eu-1")
	storm := 0
	observe := func() speed {
		storm++
		seen := make([]mirror.Observation, n)
		for i := range seen {
			seen[i] = mirror.Observation{Key: rows[i].Key, Sync: mirror.SyncSynced,
				Health: mirror.HealthHealthy, SyncedRevision: fmt.Sprintf("%040x", storm),
				Resources: storm, ReconciledAt: time.Now()}
		}
		return rate(n, func() {
			for part := range slices.Chunk(seen, batch) {
				check(b, s.Work.Observe(ctx, worker, part))
			}
		})
	}
	observe() // inserts
	each := func(clients int) func() speed {
		return func() speed {
			storm++
			var all sync.WaitGroup
			return rate(n, func() {
				for c := range clients {
					conn := connect(b, own.URL)
					all.Go(func() {
						defer conn.Close(ctx)
						for i := c; i < n; i += clients {
							_, err := conn.Exec(ctx,
								`UPDATE status SET sync = $4, health = $5, synced_revision = $6, resources = $7, observed_at = now() WHERE engine = $1 AND kind = $2 AND name = $3`,
								"eu-1", "Application", rows[i].Key.Name, "Synced", "Healthy",
								fmt.Sprintf("%040x", storm), storm)
							check(b, err)
						}
					})
				}
				all.Wait()
			})
		}
	}
	for _, clients := range []int{1, 8} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			alternate(b, "UPDATE", observe, each(clients))
		})
	}
	b.Run("hot", func(b *testing.B) {
		exec(b, own.URL, `VACUUM status`)
		exec(b, own.URL, `SELECT pg_stat_reset()`)
		rounds := 0
		for b.Loop() {
			observe()
			rounds++
		}
		var updated, hot int
		until(b, "the statistics", func() bool {
			conn := connect(b, own.URL)
			defer conn.Close(ctx)
			check(b,
				conn.QueryRow(ctx,
					`SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'status'`).Scan(&updated, &hot))
			return updated >= rounds*n
		})
		b.ReportMetric(100*float64(hot)/float64(updated), "%HOT")
	})
}

// BenchmarkRead measures reads of 25,000 Applications of 50 tenants on 20 engines.
func BenchmarkRead(b *testing.B) {
	const n = 25_000
	url := newDatabase(b)
	s := openWith(b, url, postgres.Options{})
	ctx := context.Background()
	must(s.Plans.Record(ctx, hold(b, s, "reconciler"), step(0, 1, func(r *mirror.Record) {
		for i := range n {
			tenant, engine := fmt.Sprintf("t%02d", i%50), fmt.Sprintf("e%02d", i%20)
			r.Declarations = append(r.Declarations,
				deploymentDeclaration(tenant, fmt.Sprintf("d%05d", i), "prod"))
			r.Rows = append(r.Rows, application(engine, tenant, fmt.Sprintf("d%05d", i), "prod",
				"v1"))
		}
		for i := range 50 {
			r.Declarations = append(r.Declarations, tenantDeclaration(fmt.Sprintf("t%02d", i)),
				environmentDeclaration(fmt.Sprintf("t%02d", i), "prod"))
		}
		for i := range 20 {
			r.Declarations = append(r.Declarations, engineDeclaration(fmt.Sprintf("e%02d", i)))
		}
	})))(b)
	for i := range 20 {
		engine := fmt.Sprintf("e%02d", i)
		lease := hold(b, s, "engine/"+engine)
		rows := must(s.Work.Changed(ctx, fleet.EngineName(engine), 0, n))(b)
		var seen []mirror.Observation
		for j, r := range rows {
			health := mirror.HealthHealthy
			if j == 0 {
				health = mirror.HealthDegraded
			}
			seen = append(seen, mirror.Observation{Key: r.Key, Sync: mirror.SyncSynced,
				Health: health})
		}
		check(b, s.Work.Acknowledge(ctx, lease, applied(rows)))
		check(b, s.Work.Observe(ctx, lease, seen))
	}
	exec(b, url, `ANALYZE`)
	all, page := view.Scope{}, view.Page{Limit: 1000}
	for name, f := range map[string]func() error{
		"applications/first-page": func() error {
			_, _, err := s.Views.Applications(ctx, all, view.Filter{}, page)
			return err
		},
		"applications/of-a-tenant": func() error {
			_, _, err := s.Views.Applications(ctx, view.Scope{Tenant: "t07"}, view.Filter{}, page)
			return err
		},
		"applications/degraded": func() error {
			_, _, err := s.Views.Applications(ctx, all, view.Filter{Health: mirror.HealthDegraded},
				page)
			return err
		},
		"applications/failed": func() error {
			_, _, err := s.Views.Applications(ctx, all, view.Filter{Apply: mirror.ApplyFailed},
				page)
			return err
		},
		"applications/of-engine": func() error {
			_, _, err := s.Views.Applications(ctx, all, view.Filter{Engine: "e07"}, page)
			return err
		},
		"applications/one": func() error {
			_, _, err := s.Views.Applications(ctx, all, view.Filter{Name: "x"}, page)
			return err
		},
		"applications/everything": func() error {
			for p := page; ; {
				_, next, err := s.Views.Applications(ctx, all, view.Filter{}, p)
				if p.After = next; next == "" || err != nil {
					return err
				}
			}
		},
		"tenants": func() error {
			_, _, err := s.Views.Tenants(ctx, all, view.Filter{}, page)
			return err
		},
		"deployments": func() error {
			_, _, err := s.Views.Deployments(ctx, all, view.Filter{}, page)
			return err
		},
		"engines": func() error {
			_, _, err := s.Views.Engines(ctx, all, view.Filter{}, page)
			return err
		},
		"operations": func() error {
			_, _, err := s.Views.Operations(ctx, all, view.Filter{}, page)
			return err
		},
		"load":   func() error { _, err := s.Plans.Load(ctx); return err },
		"lately": func() error { _, err := s.Plans.Recent(ctx, time.Minute); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				check(b, f())
			}
		})
	}
}

// BenchmarkRecordOne records one changed object in a large mirror: its cost is that of the change.
func BenchmarkRecordOne(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("of=%d", n), func(b *testing.B) {
			s := openWith(b, newDatabase(b), postgres.Options{})
			lease := hold(b, s, "reconciler")
			must(s.Plans.Record(context.Background(), lease, fullRecord(0, 1, n)))(b)
			for i := 2; b.Loop(); i++ {
				must(
					s.Plans.Record(context.Background(), lease,
						step(i-1, i, func(r *mirror.Record) {
							r.Rows = []mirror.Row{
								application("eu-1", "acme", "d000007", "prod", fmt.Sprint("w", i))}
						})))(b)
			}
		})
	}
}

// BenchmarkGrown changes everything in a mirror whose query plans date from when it was small, as
// after a first start.
func BenchmarkGrown(b *testing.B) {
	const n = 10_000
	s := openWith(b, newDatabase(b), postgres.Options{Connections: postgres.Connections{
		Workers: 1}})
	ctx := context.Background()
	lease, worker := hold(b, s, "reconciler"), hold(b, s, "engine/eu-1")
	revisions := 0
	round := func(n int) {
		revisions++
		must(s.Plans.Record(ctx, lease, fullRecord(revisions-1, revisions, n)))(b)
		rows := must(s.Work.Changed(ctx, "eu-1", 0, n))(b)
		for part := range slices.Chunk(rows, 500) {
			var seen []mirror.Observation
			for _, r := range part {
				seen = append(seen, mirror.Observation{Key: r.Key, Resources: revisions})
			}
			check(b, s.Work.Observe(ctx, worker, seen))
			check(b, s.Work.Acknowledge(ctx, worker, applied(part)))
		}
	}
	for range 20 {
		round(1)
	}
	round(n)
	for b.Loop() {
		round(n)
	}
}

func percentile(all []time.Duration, share int) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[(len(sorted)-1)*share/100]
}
