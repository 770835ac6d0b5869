package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// fill gives the inbox what it holds after a long time, and the mirror its rows.
func fill(b *testing.B, url string, n int) {
	b.Helper()
	for _, sql := range []string{
		`INSERT INTO deliveries (id, event, at) SELECT gen_random_uuid(), 'push', now() - i * interval '1 s' FROM generate_series(1, $1::int) i`,
		`INSERT INTO looks (key, wanted, priority, body) SELECT 'head/' || i, false, 3, '{"kind": "head"}' FROM generate_series(1, $1::int) i`,
		`INSERT INTO river_job (args, kind, queue, priority, max_attempts, state, finalized_at) SELECT jsonb_build_object('key', 'head/' || i), 'look', 'looks', 3, 10, 'completed', now() FROM generate_series(1, $1::int) i`,
		`INSERT INTO pulls (number, state, head, settled, tenants, tenant_uids, body) SELECT i, 'open', i, false, '{acme}', '{}', '{}' FROM generate_series(1, $1::int) i`,
		`INSERT INTO pull_touches (number, touch) SELECT i, 'tenants/acme/deployments/' || i || '.yaml' FROM generate_series(1, $1::int) i`,
		`INSERT INTO desired (engine, kind, name, tenant, environment, deployment, seq, created_at, changed_at, absent, deletion, revision, hash, body)
			SELECT 'eu-1', 'Application', i, 'acme', 'prod', i, i, now(), now(), false, 'Delete', 'r', 'h', convert_to(repeat('x', 700), 'UTF8') FROM generate_series(1, $1::int) i`,
	} {
		exec(b, url, sql, n)
	}
	exec(b, url, `ANALYZE`)
}

// BenchmarkAccept compares deliveries with one INSERT per commit: deliveries that request a wanted
// job, as in a burst, and deliveries that request a new one, each from 8 senders, with an empty
// database and a full one.
func BenchmarkAccept(b *testing.B) {
	const n, senders = 4000, 8
	ctx := context.Background()
	deliveries, pulls := 0, 1_000_000
	for _, rows := range []int{0, 100_000} {
		own := durable(b)
		s := openWith(b, own.URL, postgres.Options{})
		exec(b, own.URL, `CREATE TABLE argosy.floor (LIKE argosy.deliveries INCLUDING ALL)`)
		fill(b, own.URL, rows)
		send := func(accept func(i int)) speed {
			deliveries += n
			first := deliveries
			return rate(n, func() {
				var all sync.WaitGroup
				for c := range senders {
					all.Go(func() {
						for i := c; i < n; i += senders {
							accept(first + i)
						}
					})
				}
				all.Wait()
			})
		}
		plain := must(pgxpool.New(ctx, own.URL))(b)
		b.Cleanup(plain.Close)
		floor := func() speed {
			return send(func(i int) {
				_, err := plain.Exec(ctx,
					`INSERT INTO argosy.floor (id, event) VALUES ($1, 'push')`, delivery(i).ID)
				check(b, err)
			})
		}
		accept := func(look func(i int) forge.Recheck) func() speed {
			return func() speed {
				return send(func(i int) {
					must(s.Pulls.Accept(ctx, delivery(i), []forge.Recheck{look(i)}))(b)
				})
			}
		}
		b.Run(fmt.Sprintf("rows=%d/wanted", rows), func(b *testing.B) {
			alternate(b, "INSERT", accept(func(int) forge.Recheck { return branch }), floor)
		})
		b.Run(fmt.Sprintf("rows=%d/new", rows), func(b *testing.B) {
			alternate(b, "INSERT", accept(func(i int) forge.Recheck { return pullJob(pulls + i) }),
				floor)
		})
	}
}

// BenchmarkReviewJob measures the time from a delivery on one replica to its job on another, one
// after the other: River fetches at most ten times a second.
func BenchmarkReviewJob(b *testing.B) {
	url := newDatabase(b)
	fill(b, url, 10_000)
	s := open(b, url)
	got := make(chan time.Time, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- s.Pulls.Work(ctx, func(context.Context, forge.Recheck) error {
			got <- time.Now()
			return nil
		})
	}()
	other, n := open(b, url), 0
	var total time.Duration
	for b.Loop() {
		n++
		began := time.Now()
		must(other.Pulls.Accept(ctx, delivery(n), []forge.Recheck{branch}))(b)
		total += (<-got).Sub(began)
	}
	b.ReportMetric(float64(total.Milliseconds())/float64(n), "ms/look")
	cancel()
	check(b, <-done)
}

// BenchmarkPulls is what the reads and writes of one pull request cost among many.
func BenchmarkPulls(b *testing.B) {
	for _, rows := range []int{100, 100_000} {
		url := newDatabase(b)
		s := open(b, url)
		fill(b, url, rows)
		ctx := context.Background()
		keys := make([]fleet.ObjectKey, min(rows, 20_000))
		touches := make([]string, 100)
		for i := range keys {
			keys[i] = fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication,
				Name: fmt.Sprint(i + 1)}
		}
		for i := range touches {
			touches[i] = fmt.Sprintf("tenants/acme/deployments/%d.yaml", i+1)
		}
		for name, f := range map[string]func(i int) error{
			"save": func(i int) error {
				return s.Pulls.SavePull(ctx,
					pull(i%100+1, forge.PullOpen, fleet.TenantName(fmt.Sprint(i))))
			},
			"reviewed": func(i int) error {
				return s.Pulls.SaveReviewed(ctx, reviewed(i%100+1, i%100+1, fmt.Sprint(i, ".yaml")))
			},
			"colliding": func(int) error {
				_, err := s.Pulls.Colliding(ctx, 1, touches)
				return err
			},
			"one": func(int) error {
				_, _, err := s.Views.PullOf(ctx, view.Scope{}, 7)
				return err
			},
			"first-page": func(int) error {
				_, _, err := s.Views.Pulls(ctx, view.Scope{}, view.Filter{State: forge.PullOpen},
					view.Page{Limit: 50})
				return err
			},
			"of-a-tenant": func(int) error {
				_, _, err := s.Views.Pulls(ctx, view.Scope{Tenant: "globex"}, view.Filter{},
					view.Page{
						Limit: 50})
				return err
			},
			"outcomes/100": func(int) error {
				_, err := s.Views.Outcomes(ctx, keys[:100])
				return err
			},
			"outcomes/most": func(int) error { _, err := s.Views.Outcomes(ctx, keys); return err },
		} {
			b.Run(fmt.Sprintf("rows=%d/%s", rows, name), func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					check(b, f(i))
				}
			})
		}
	}
}
