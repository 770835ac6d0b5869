package reconciler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan"
)

// Prometheus measures. Only the leader asks it, never inside of a transaction.
type Prometheus interface {
	// Query returns the only value of a query. No answer, no value, several values and a value that
	// is no number are errors, in words for people.
	Query(ctx context.Context, server fleet.Prometheus, query string) (float64, error)
}

const (
	queriesAtOnce = 4
	queryPatience = 5 * time.Second
	roundPatience = 2 * time.Minute // of one measurement in all environments of a wave
)

// gates measures the metrics of waves that soak, in the background, and keeps the latest results.
type gates struct {
	prometheus Prometheus
	semaphore  chan struct{}
	asking     sync.WaitGroup

	mu      sync.Mutex
	results map[mirror.MetricKey]mirror.MetricResult
	busy    map[mirror.MetricKey]bool
}

func newGates(p Prometheus) *gates {
	return &gates{prometheus: p, semaphore: make(chan struct{}, queriesAtOnce),
		results: map[mirror.MetricKey]mirror.MetricResult{}, busy: map[mirror.MetricKey]bool{}}
}

// known returns the latest results for open rollouts, and forgets the others.
func (g *gates) known(open []mirror.Rollout) map[mirror.MetricKey]mirror.MetricResult {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.results, func(k mirror.MetricKey, _ mirror.MetricResult) bool {
		return !slices.ContainsFunc(open, func(r mirror.Rollout) bool { return r.ID == k.Rollout })
	})
	return maps.Clone(g.results)
}

// measure begins the measurements of a rollout that are due.
func (g *gates) measure(ctx context.Context, r mirror.Rollout, state *plan.AppliedState,
	now time.Time) {
	if g.prometheus == nil || r.State != mirror.RolloutRunning {
		return
	}
	for i, w := range r.Waves {
		if w.State != mirror.WaveSoaking {
			continue
		}
		for _, m := range w.Metrics {
			key := mirror.MetricKey{Rollout: r.ID, Wave: i, Name: m.Name}
			a := state.Asks(r, key)
			if !g.begin(key, now, max(time.Duration(a.Metric.Interval), queryPatience)) {
				continue
			}
			g.asking.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, roundPatience)
				defer cancel()
				result := g.round(ctx, a)
				result.At = now
				g.end(key, result)
			})
		}
	}
}

// begin reports whether a measurement is due, which begins then.
func (g *gates) begin(key mirror.MetricKey, now time.Time, interval time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	last, measured := g.results[key]
	if g.busy[key] || measured && now.Sub(last.At) < interval {
		return false
	}
	g.busy[key] = true
	return true
}

func (g *gates) end(key mirror.MetricKey, result mirror.MetricResult) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.busy, key)
	g.results[key] = result
}

// answer is the answer to one query.
type answer struct {
	value float64
	err   error
}

// round measures a metric in all environments. It is bad if one is, and good if all are.
func (g *gates) round(ctx context.Context, a plan.Asks) mirror.MetricResult {
	out := mirror.MetricResult{State: mirror.MetricGood, For: a.Metric.For,
		Failures: a.Metric.Failures}
	if a.Server == nil || len(a.Queries) == 0 {
		out.State, out.Message = mirror.MetricUnknown, "spec.prometheus of the Fleet has no such metric"
		return out
	}
	answers := g.answers(ctx, a)
	for _, env := range slices.Sorted(maps.Keys(a.Queries)) {
		got := answers[a.Queries[env]]
		switch bad := a.Metric.Bad(got.value); {
		case got.err != nil && out.State == mirror.MetricGood:
			out.State = mirror.MetricUnknown
			out.Message = fmt.Sprintf("no value in %s: %s", env, got.err)
		case got.err == nil && bad != "":
			out.State, out.Message = mirror.MetricBad, bad+" in "+string(env)
			return out
		}
	}
	return out
}

// answers asks each query once: one without a variable does not differ between environments.
func (g *gates) answers(ctx context.Context, a plan.Asks) map[string]answer {
	out := map[string]answer{}
	for _, query := range a.Queries {
		out[query] = answer{}
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, query := range slices.Collect(maps.Keys(out)) {
		all.Go(func() {
			v, err := g.ask(ctx, *a.Server, query)
			mu.Lock()
			defer mu.Unlock()
			out[query] = answer{v, err}
		})
	}
	all.Wait()
	return out
}

func (g *gates) ask(ctx context.Context, server fleet.Prometheus, query string) (float64, error) {
	select {
	case g.semaphore <- struct{}{}:
		defer func() { <-g.semaphore }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, queryPatience)
	defer cancel()
	return g.prometheus.Query(ctx, server, query)
}
