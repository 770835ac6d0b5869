package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/bench/report"
)

const (
	answered = 2000 // deliveries of one sample
	pushes   = 1000 // signed pushes of the burst
	burst    = 10 * time.Second
)

// deliveries measures what webhook deliveries cost: how much CPU an answer takes in a small repo
// and in a large one, and what a burst of pushes comes to.
func deliveries(ctx context.Context, o options) (fig *report.Figure, err error) {
	g, err := startGround(ctx)
	if err != nil {
		return nil, err
	}
	defer stopGround(g)
	p, err := g.newPlane(ctx, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.end(ctx)) }()
	fig = &report.Figure{Name: "deliveries", Title: "Webhook deliveries"}
	sizes := []int{o.sizes[0], o.sizes[len(o.sizes)-1]}
	var cpu [2]report.Sample
	for i, n := range sizes {
		progress("%d files: growing the repo and the engines", n)
		if _, err := p.fill(ctx, n); err != nil {
			return nil, fmt.Errorf("%w%s", err, p.diagnose())
		}
		for range o.blocks {
			used, err := p.answers(ctx)
			if err != nil {
				return nil, err
			}
			cpu[i] = append(cpu[i], used.Seconds()*1000/answered)
		}
	}
	fig.Add(report.Against(fmt.Sprintf("CPU an answer, %d files", sizes[1]), "ms", cpu[1], cpu[0],
		1.1))
	if err := p.burst(ctx, fig); err != nil {
		return nil, err
	}
	fig.Note("floor: the same with %d files", sizes[0])
	fig.Note(
		"an answer: the signature is checked, and the delivery and its job are stored; %d of "+
			"them, 8 at a time, a sample", answered)
	return fig, p.verify(ctx)
}

// answers sends deliveries about a pull request that the Git host does not have, and returns their
// CPU.
func (p *plane) answers(ctx context.Context) (time.Duration, error) {
	before, err := p.cpu()
	if err != nil {
		return 0, err
	}
	work := make(chan int)
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for range 8 {
		all.Go(func() {
			for range work {
				if err := p.deliver(ctx, `{"action":"synchronize","pull_request":{"number":7}}`,
					"pull_request"); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for i := range answered {
		work <- i
	}
	close(work)
	all.Wait()
	after, err := p.cpu()
	return after - before, errors.Join(append(errs, err)...)
}

// burst sends signed pushes over ten seconds, with real commits among them, and holds what the
// control plane does against it.
func (p *plane) burst(ctx context.Context, fig *report.Figure) error {
	progress("%d signed pushes in %s", pushes, burst)
	passes, err := p.passes(ctx)
	if err != nil {
		return err
	}
	memory, err := observe.Memory(p.argosy.PID())
	if err != nil {
		return err
	}
	begun := time.Now()
	var took report.Sample
	for i := range pushes {
		if i%(pushes/10) == pushes/10-1 {
			if _, err := p.release(ctx, 0, fmt.Sprintf("v2.0.%d", i)); err != nil {
				return err
			}
		}
		sent := time.Now()
		if err := p.push(ctx); err != nil {
			return err
		}
		took = append(took, time.Since(sent).Seconds()*1000)
		time.Sleep(time.Until(begun.Add(burst * time.Duration(i+1) / pushes)))
	}
	over := time.Since(begun)
	if err := p.applied(ctx); err != nil {
		return fmt.Errorf("the last commit is not applied: %w", err)
	}
	now, err := p.passes(ctx)
	if err != nil {
		return err
	}
	after, err := observe.Memory(p.argosy.PID())
	if err != nil {
		return err
	}
	slices.Sort(took)
	fig.Add(report.Line{Name: fmt.Sprintf("%d pushes: passes", pushes), Ours: report.Sample{
		now - passes}, Goal: 20})
	fig.Add(report.Line{Name: "  over", Unit: "s", Ours: report.Sample{over.Seconds()}})
	fig.Add(report.Line{Name: "  answered within, median", Unit: "ms", Ours: report.Sample{
		took[len(took)/2]}})
	fig.Add(report.Line{Name: "  answered within, 99 %", Unit: "ms", Ours: report.Sample{
		took[len(took)*99/100]}})
	fig.Add(report.Line{Name: "  RSS, grown by", Unit: "MiB", Ours: report.Sample{
		(after.Now - memory.Now) / 1024}})
	return nil
}

// passes returns the number of reconciles.
func (p *plane) passes(ctx context.Context) (sum float64, err error) {
	m, err := p.metrics(ctx)
	for _, result := range []string{"recorded", "unchanged", "held", "failed"} {
		sum += m[`argosy_reconcile_total{result="`+result+`"}`]
	}
	return sum, err
}
