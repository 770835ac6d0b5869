package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/bench/report"
)

// change measures what one changed file costs in repos of growing size: from the end of the push
// until a watch sees the Application changed, against the same in the plainest way (F-sum): git
// fetch, diff-tree and cat-file, a commit of one row, one apply, in series.
func change(ctx context.Context, o options, name string, flat bool,
	sizes []int) (figs []*report.Figure, err error) {
	g, err := startGround(ctx)
	if err != nil {
		return nil, err
	}
	defer stopGround(g)
	p, err := g.newPlane(ctx, flat)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w%s", err, p.diagnose())
		}
		err = errors.Join(err, p.end(ctx))
	}()
	layout := "250 deployments a folder"
	if flat {
		layout = "all in one folder"
	}
	l := &ladder{plane: p, options: o, change: &report.Figure{
		Name: name, Title: "One file changed, push to API server; " + layout},
		noop: &report.Figure{Name: name + "-noop",
			Title: "A commit that touches nothing of ours; " + layout},
		memory: &report.Figure{Name: name + "-memory", Title: "Memory of argosy serve; " + layout}}
	if l.empty, err = observe.Memory(p.argosy.PID()); err != nil {
		return nil, err
	}
	if l.sum, err = newSum(ctx, p); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.sum.end(ctx)) }()
	for _, n := range sizes {
		if err := l.climb(ctx, n); err != nil {
			return nil, fmt.Errorf("with %d files: %w", n, err)
		}
	}
	l.slopes(sizes)
	figs = []*report.Figure{l.change, l.noop}
	if len(l.memory.Lines) > 0 {
		figs = append(figs, l.memory)
	}
	return figs, nil
}

// ladder grows one repo and measures at each size.
type ladder struct {
	*plane
	options options
	sum     *sum
	commits int
	empty   observe.Resident // with an empty fleet

	change, noop, memory *report.Figure
	points               []point
	// argosy's metrics: what they grew by over the blocks of this size
	stages map[string]float64
}

// point is one block of commits at one size.
type point struct {
	n                      int
	latency, cpu, requests float64
}

func (l *ladder) climb(ctx context.Context, n int) error {
	progress("%d files: growing the repo and the engines", n)
	if _, err := l.fill(ctx, n); err != nil {
		return err
	}
	if err := l.sum.prepare(ctx); err != nil {
		return err
	}
	watch := observe.StartWatch(ctx, l.arena.watched...)
	defer watch.Stop()
	if err := l.blocks(ctx, n, watch); err != nil {
		return err
	}
	progress("%d files: counting rows, commits that touch nothing", n)
	if err := l.rows(ctx, n, watch); err != nil {
		return err
	}
	if err := l.verify(ctx); err != nil {
		return err
	}
	if err := l.rest(ctx, n); err != nil {
		return err
	}
	if n == l.options.memory {
		return l.remember(ctx)
	}
	return nil
}

// blocks measures the two arms in turn.
func (l *ladder) blocks(ctx context.Context, n int, watch *observe.Watch) error {
	var ours, raw, cpu, rawCPU, requests report.Sample
	l.stages = map[string]float64{}
	for block := range l.options.blocks {
		progress("%d files: block %d of %d", n, block+1, l.options.blocks)
		err := alternate(block, []func() error{
			func() error {
				b, err := l.block(ctx, watch)
				b.n, l.points = n, append(l.points, b)
				ours, cpu, requests = append(ours, b.latency), append(cpu, b.cpu),
					append(requests, b.requests)
				l.points[len(l.points)-1] = b
				return err
			},
			func() error {
				took, used, err := l.sum.block(ctx, l)
				raw, rawCPU = append(raw, took), append(rawCPU, used)
				return err
			},
		})
		if err != nil {
			return err
		}
	}
	size := fmt.Sprintf("%d files: ", n)
	l.change.Add(report.Against(size+"latency", "ms", ours, raw, 1.2))
	l.change.Add(report.Against(size+"CPU a commit", "ms", cpu, rawCPU, 2))
	l.change.Add(report.Line{Name: size + "API requests", Ours: requests, Goal: 1, Exact: true})
	l.change.Add(report.Line{Name: size + "passes a commit", Ours: report.Sample{
		l.stage("argosy_reconcile_total") / l.stage("argosy_reconcile_seconds_count")}})
	pass := 1000 * l.stage("argosy_reconcile_seconds_sum") / l.stage(
		"argosy_reconcile_seconds_count")
	apply := 1000 * l.stage("argosy_engine_handle_seconds_sum") / l.stage(
		"argosy_engine_handle_seconds_count")
	l.change.Note(
		"%d files, mean by stage: fetch to recorded %.1f ms, apply %.1f ms; floor, median: git "+
			"%.1f, commit %.1f, apply to watch %.1f ms",
		n, pass, apply, l.sum.git.Median(), l.sum.commit.Median(), l.sum.apply.Median())
	return nil
}

// stage is how much one of argosy's metrics grew over the blocks of this size, over all its labels.
func (l *ladder) stage(name string) float64 {
	sum := 0.0
	for full, v := range l.stages {
		if full == name || strings.HasPrefix(full, name+"{") {
			sum += v
		}
	}
	return sum
}

// breath is left between commits, as between pushes of people: what a commit leaves to be done is
// done.
const breath = 200 * time.Millisecond

// block has the control plane apply some commits, one by one.
func (l *ladder) block(ctx context.Context, watch *observe.Watch) (point, error) {
	var b point
	if err := l.catchUp(ctx); err != nil {
		return b, err
	}
	metrics, err := l.metrics(ctx)
	if err != nil {
		return b, err
	}
	requests, err := l.requests(ctx)
	if err != nil {
		return b, err
	}
	var cpu time.Duration
	if cpu, err = l.cpu(); err != nil {
		return b, err
	}
	latency, err := l.several(ctx, watch)
	if err != nil {
		return b, err
	}
	after, err := l.cpu()
	if err != nil {
		return b, err
	}
	asked, err := l.requests(ctx)
	if err != nil {
		return b, err
	}
	end, err := l.metrics(ctx)
	if err != nil {
		return b, err
	}
	for name, v := range end {
		l.stages[name] += v - metrics[name]
	}
	k := float64(len(latency))
	b.latency, b.cpu, b.requests = latency.Median(), float64((after-cpu).Milliseconds())/k,
		asked.Sub(requests).Total()/k
	return b, nil
}

// several commits a new release of one deployment each, and returns the milliseconds from push to
// sight.
func (l *ladder) several(ctx context.Context, watch *observe.Watch) (report.Sample, error) {
	var latency report.Sample
	for range l.options.commits {
		key, release, err := l.next(ctx)
		if err != nil {
			return nil, err
		}
		limit, cancel := context.WithTimeout(ctx, patience)
		start := time.Now()
		err = l.push(ctx)
		var seen time.Time
		if err == nil {
			seen, err = watch.AwaitRevision(limit, key, release)
		}
		cancel()
		if err != nil {
			return nil, err
		}
		latency = append(latency, 1000*seen.Sub(start).Seconds())
		if !pacing.Sleep(ctx, breath) {
			return nil, ctx.Err()
		}
	}
	return latency, nil
}

// next commits a release that never was, of deployments spread over the whole repo.
func (l *ladder) next(ctx context.Context) (key, release string, err error) {
	l.commits++
	release = fmt.Sprintf("v2.0.%d", l.commits)
	key, err = l.release(ctx, l.commits*7919%l.n, release)
	return key, release, err
}

// catchUp has the control plane take what the other arm has committed.
func (l *ladder) catchUp(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := errors.Join(l.push(ctx), l.applied(limit)); err != nil {
		return err
	}
	pacing.Sleep(ctx, 5*breath)
	return nil
}

// calm is how long an idle control plane is measured.
const calm = 20 * time.Second

// rest measures what a control plane without work uses, and the most memory that it has held.
func (l *ladder) rest(ctx context.Context, n int) error {
	progress("%d files: idle for %s", n, calm)
	if !pacing.Sleep(ctx, calm/4) {
		return ctx.Err()
	}
	before, all, err := l.used()
	if err != nil {
		return err
	}
	begun := time.Now()
	if !pacing.Sleep(ctx, calm) {
		return ctx.Err()
	}
	after, allAfter, err := l.used()
	if err != nil {
		return err
	}
	over := time.Since(begun).Seconds()
	memory, err := observe.Memory(l.argosy.PID())
	if err != nil {
		return err
	}
	size := fmt.Sprintf("%d files: ", n)
	l.change.Add(
		report.Line{
			Name: size + "idle", Unit: "cores", Ours: report.Sample{
				(after - before).Seconds() / over}, Goal: 0.007})
	l.change.Add(
		report.Line{Name: "  with PostgreSQL", Unit: "cores", Ours: report.Sample{
			(allAfter - all).Seconds() / over}})
	l.change.Add(
		report.Line{Name: size + "peak RSS", Unit: "MiB", Ours: report.Sample{memory.Peak / 1024}})
	return nil
}

// used is the CPU of argosy, and of argosy with PostgreSQL.
func (l *ladder) used() (own, all time.Duration, err error) {
	if own, err = observe.CPU(l.argosy.PID()); err == nil {
		all, err = l.cpu()
	}
	return own, all, err
}

// slopes adds how what was measured grows with the number of files.
func (l *ladder) slopes(sizes []int) {
	if len(sizes) < 3 {
		return
	}
	for _, s := range []struct {
		name string
		of   func(point) float64
	}{
		{"slope of latency, 95 %", func(p point) float64 { return p.latency }},
		{"slope of CPU, 95 %", func(p point) float64 { return p.cpu }},
		{"slope of API requests, 95 %", func(p point) float64 { return p.requests }},
	} {
		var x, y []float64
		for _, p := range l.points {
			x, y = append(x, float64(p.n)), append(y, max(s.of(p), 0.01))
		}
		slope, half := report.Slope(x, y)
		l.change.Add(report.Line{Name: s.name, Ours: report.Sample{slope - half, slope,
			slope + half}, Goal: 0.05})
	}
}
