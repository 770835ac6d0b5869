package argocd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

const fanOut = 2000

// BenchmarkFanOut applies 2,000 Applications through an Engine and through a bare client-go loop
// with the same bytes, in blocks A B B A, each in its own namespace, and reports the ratio of the
// medians: first creations, then changes, and then the cost of 2,000 unchanged rows.
//
//	go test -run '^$' -bench FanOut -benchtime 1x -timeout 30m ./fleet/argocd
func BenchmarkFanOut(b *testing.B) {
	for b.Loop() {
		times := map[string][]float64{}
		for _, arm := range []string{"engine", "bare", "bare", "engine", "engine", "bare", "bare",
			"engine"} {
			run := benchArm(b, arm)
			for _, revision := range []string{"v1", "v2", "v2"} {
				begun := time.Now()
				requests := run(revision)
				name := arm + " " + revision
				if revision == "v2" && len(times[name]) > len(times[arm+" same"]) {
					name = arm + " same"
					if arm == "engine" && requests != 0 {
						b.Fatalf("%d requests for unchanged rows", requests)
					}
				}
				times[name] = append(times[name], time.Since(begun).Seconds())
			}
		}
		for what, revision := range map[string]string{"create": "v1", "change": "v2",
			"same": "same"} {
			ours, bare := median(times["engine "+revision]), median(times["bare "+revision])
			b.ReportMetric(ours/bare, what+"-ratio")
			b.ReportMetric(fanOut/bare, what+"-bare/s")
		}
		b.Logf("seconds: %v", times)
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// benchArm prepares one arm in its own namespace. The returned function applies all rows and counts
// the writes.
func benchArm(b *testing.B, arm string) func(revision string) int {
	b.Helper()
	namespace := space(b, apiServer(b))
	bench := fixtureOn(b, apiServer(b).REST(), namespace)
	rows := map[string][]mirror.Row{}
	for _, revision := range []string{"v1", "v2"} {
		for i := range fanOut {
			o := applicationObject(fleet.ApplicationID{
				Tenant: acme, Deployment: fleet.DeploymentName(fmt.Sprintf("app-%d", i)),
				Environment: "prod-eu"}, exampleServer)
			o.Application.Sources[0].TargetRevision = revision
			rows[revision] = append(rows[revision], rowOf(b, o, 1))
		}
	}
	if arm == "bare" {
		return bareLoop(b, namespace, rows)
	}
	if _, err := bench.Engine.Preflight(b.Context()); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	go func() { _ = bench.Engine.Watch(ctx, engine.Sink{}) }()
	for !bench.Engine.Synced() {
		pacing.Sleep(ctx, time.Millisecond)
	}
	return func(revision string) int {
		before := bench.External.Writes()
		each(b, rows[revision], func(row mirror.Row) error {
			_, err := bench.Engine.Apply(ctx, row, fleet.Secret{}, mirror.Lease{Epoch: 1})
			return err
		})
		return bench.External.Writes() - before
	}
}

// bareLoop is the minimum: the same bodies through client-go's own transport without limits, with
// discarded responses.
func bareLoop(b *testing.B, namespace string, rows map[string][]mirror.Row) func(string) int {
	client, err := rest.HTTPClientFor(apiServer(b).REST())
	if err != nil {
		b.Fatal(err)
	}
	bodies := map[string][]byte{}
	for revision, all := range rows {
		for _, row := range all {
			w, err := prepare(row, fleet.Secret{}, mirror.Lease{Epoch: 1})
			if err != nil {
				b.Fatal(err)
			}
			body, err := w.patch(nil)
			if err != nil {
				b.Fatal(err)
			}
			bodies[revision+row.Key.Name] = bytes.Replace(body, []byte(`"resourceVersion":"1"`),
				[]byte(`"namespace":"`+namespace+`"`), 1)
		}
	}
	return func(revision string) int {
		each(b, rows[revision], func(row mirror.Row) error {
			url := apiServer(b).Server + applications.object(namespace, row.Key.Name) +
				"?fieldManager=bare&force=true"
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPatch, url,
				bytes.NewReader(bodies[revision+row.Key.Name]))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", applyPatch)
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			if resp.StatusCode >= 300 {
				return fmt.Errorf("status %s", resp.Status)
			}
			return err
		})
		return len(rows[revision])
	}
}

// each calls do for every row, 16 at a time.
func each(b *testing.B, rows []mirror.Row, do func(mirror.Row) error) {
	work := make(chan mirror.Row)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for row := range work {
				if err := do(row); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for _, row := range rows {
		work <- row
	}
	close(work)
	all.Wait()
}
