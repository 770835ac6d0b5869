package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"argosy.dev/argosy/test/bench/corpus"
	"argosy.dev/argosy/test/bench/floor"
	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/bench/report"
)

// perApplication is the longest wait per Application, and patience the longest wait for anything
// else.
const (
	perApplication = 60 * time.Millisecond
	patience       = time.Minute
)

// fanout measures a push of everything into an empty fleet, until a watch has seen the last
// Application, against the raw loop that creates the same objects.
func fanout(ctx context.Context, o options) (*report.Figure, error) {
	g, err := startGround(ctx)
	if err != nil {
		return nil, err
	}
	defer stopGround(g)
	f := &report.Figure{
		Name: "fanout", Title: fmt.Sprintf("Cold fan-out of %d Applications over 2 engines", o.n)}
	progress("one cold fan-out, to know the objects")
	warm, err := g.fanoutArgosy(ctx, o.n)
	if err != nil {
		return nil, err
	}
	inFlight, err := g.bestInFlight(ctx, f, warm.objects)
	if err != nil {
		return nil, err
	}
	var ours, raw, begin, cpu, perObject, reads, dryRuns, others, looks report.Sample
	for block := range o.blocks {
		progress("fan-out, block %d of %d", block+1, o.blocks)
		arms := []func() error{
			func() error {
				r, err := g.fanoutArgosy(ctx, o.n)
				if err != nil {
					return err
				}
				ours, cpu = append(ours, r.took.Seconds()),
					append(cpu, r.cpu.Seconds()*1000/float64(o.n))
				perObject = append(perObject, r.requests.Apply/float64(r.count()))
				reads, dryRuns, others = append(reads, r.requests.Read),
					append(dryRuns, r.requests.DryRun), append(others, r.requests.Other)
				looks, begin = append(looks, r.requests.Checks), append(begin, r.first.Seconds())
				return nil
			},
			func() error {
				took, err := g.fanoutRaw(ctx, warm.objects, inFlight, o.n)
				raw = append(raw, took.Seconds())
				return err
			},
		}
		if err := alternate(block, arms); err != nil {
			return nil, err
		}
	}
	f.Add(report.Against("push to last Application seen", "s", ours, raw, 1.5))
	f.Add(report.Line{Name: "push to first Application seen", Unit: "s", Ours: begin})
	f.Add(report.Line{Name: "applies per object", Ours: perObject, Goal: 1, Exact: true})
	f.Add(report.Line{Name: "GET and LIST after start", Ours: reads, Exact: true})
	f.Add(report.Line{Name: "dry runs", Ours: dryRuns, Exact: true})
	f.Add(report.Line{Name: "other writes", Ours: others, Exact: true})
	f.Add(report.Line{Name: "checks of an engine's fitness", Ours: looks})
	f.Add(report.Line{Name: "CPU per Application", Unit: "ms", Ours: cpu})
	f.Note(
		"floor: server-side applies of the same objects, %d in flight per API server, the best "+
			"of 1 to 64; argosy has its default in flight", inFlight)
	f.Note(
		"%d objects: Applications, AppProjects and Secrets; equal to what was asked for by "+
			"sha256 after each run", warm.count())
	return f, nil
}

// alternate runs two arms in the order A B, B A, A B, ...
func alternate(block int, arms []func() error) error {
	if block%2 == 1 {
		return errors.Join(arms[1](), arms[0]())
	}
	return errors.Join(arms[0](), arms[1]())
}

// cold is what one cold fan-out cost.
type cold struct {
	took, first, cpu time.Duration
	requests         observe.Requests
	objects          [][]floor.Object // by API server
}

func (c cold) count() int { return len(c.objects[0]) + len(c.objects[1]) }

func (g *ground) fanoutArgosy(ctx context.Context, n int) (_ *cold, err error) {
	p, err := g.newPlane(ctx, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.end(ctx), p.arena.clear(ctx)) }()
	c, err := p.fill(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, p.diagnose())
	}
	return c, nil
}

// fill brings an empty plane to n deployments.
func (p *plane) fill(ctx context.Context, n int) (*cold, error) {
	g, grown := p.ground, n-p.n
	watch := observe.StartWatch(ctx, p.arena.watched...)
	defer watch.Stop()
	if err := p.grow(ctx, n); err != nil {
		return nil, err
	}
	requests, err := p.requests(ctx)
	if err != nil {
		return nil, err
	}
	cpu, err := p.cpu()
	if err != nil {
		return nil, err
	}
	limit, cancel := context.WithTimeout(ctx, patience+time.Duration(grown)*perApplication)
	defer cancel()
	start := time.Now()
	if err := p.push(ctx); err != nil {
		return nil, err
	}
	begun, err := watch.Await(limit, "a first Application", func(at map[string]string) bool {
		return len(at) > n-grown
	})
	if err != nil {
		return nil, err
	}
	last, err := watch.AwaitCount(limit, n)
	if err != nil {
		return nil, err
	}
	c := &cold{took: last.Sub(start), first: begun.Sub(start)}
	after, err := p.cpu()
	if err != nil {
		return nil, err
	}
	c.cpu = after - cpu
	if c.requests, err = observe.CountRequests(ctx, g.admins...); err != nil {
		return nil, err
	}
	c.requests = c.requests.Sub(requests)
	if err := p.verify(ctx); err != nil {
		return nil, err
	}
	for _, place := range p.arena.watched {
		objects, err := floor.Capture(ctx, place)
		if err != nil {
			return nil, err
		}
		c.objects = append(c.objects, objects)
	}
	return c, nil
}

// fanoutRaw creates the same objects by the raw loop.
func (g *ground) fanoutRaw(ctx context.Context, objects [][]floor.Object, inFlight,
	n int) (time.Duration, error) {
	a, err := g.arena(ctx)
	if err != nil {
		return 0, err
	}
	watch := observe.StartWatch(ctx, a.watched...)
	defer watch.Stop()
	limit, cancel := context.WithTimeout(ctx, patience+time.Duration(n)*perApplication)
	defer cancel()
	start := time.Now()
	if err := both(a.written, func(i int, p observe.Place) error {
		return floor.Apply(limit, p, objects[i], inFlight)
	}); err != nil {
		return 0, err
	}
	last, err := watch.AwaitCount(limit, n)
	if err != nil {
		return 0, err
	}
	c := corpus.Corpus{Engines: a.engines}
	wanted := make([]corpus.Wanted, n)
	for i := range wanted {
		wanted[i] = c.Wanted(i, first)
	}
	if err := observe.Check(ctx, wanted, a.watched...); err != nil {
		return 0, fmt.Errorf("raw loop: %w", err)
	}
	return last.Sub(start), a.clear(ctx)
}

// bestInFlight tries the raw loop with each number in flight, upwards and downwards, on a part of
// the objects.
func (g *ground) bestInFlight(ctx context.Context, f *report.Figure, objects [][]floor.Object) (int,
	error) {
	some, n := make([][]floor.Object, len(objects)), 0
	for i := range objects {
		some[i] = objects[i][:min(len(objects[i]), 1000)]
		n += len(some[i])
	}
	levels := []int{1, 4, 8, 16, 32, 64}
	downwards := slices.Clone(levels)
	slices.Reverse(downwards)
	rates := map[int]float64{}
	for _, inFlight := range append(levels, downwards...) {
		progress("raw loop with %d in flight", inFlight)
		a, err := g.arena(ctx)
		if err != nil {
			return 0, err
		}
		start := time.Now()
		if err := both(a.written, func(i int, p observe.Place) error {
			return floor.Apply(ctx, p, some[i], inFlight)
		}); err != nil {
			return 0, err
		}
		rates[inFlight] = max(rates[inFlight], float64(n)/time.Since(start).Seconds())
		if err := a.clear(ctx); err != nil {
			return 0, err
		}
	}
	best := slices.MaxFunc(levels, func(a, b int) int { return cmp.Compare(rates[a], rates[b]) })
	for _, inFlight := range levels {
		f.Note("raw loop, %d in flight per API server: %.0f applies/s on both", inFlight,
			rates[inFlight])
	}
	return best, nil
}
