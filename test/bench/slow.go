package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/test/bench/corpus"
	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/bench/report"
	"argosy.dev/argosy/test/stack"
)

const (
	slowness      = 25 * time.Second // of each request to the slow engine
	openRevisions = 500
	slowFiles     = 4 * corpus.PerFolder
)

// slow measures what the changes of one engine take while the other one takes 25 seconds for each
// request and has 500 revisions that it has not applied, against the same while it is fast and has
// none.
func slow(ctx context.Context, o options) (f *report.Figure, err error) {
	g, err := startGround(ctx)
	if err != nil {
		return nil, err
	}
	defer stopGround(g)
	if g.proxy, err = stack.StartProxy(g.clusters[1]); err != nil {
		return nil, err
	}
	defer g.proxy.Stop()
	p, err := g.newPlane(ctx, false)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w%s", err, p.diagnose())
		}
		err = errors.Join(err, p.end(ctx))
	}()
	if _, err := p.fill(ctx, slowFiles); err != nil {
		return nil, err
	}
	n := &neighbours{plane: p, commits: 20 * o.commits}
	for block := range o.blocks {
		progress("block %d of %d: %d commits beside a fast and a slow engine", block+1, o.blocks,
			n.commits)
		if err := alternate(block, []func() error{
			func() error { return n.block(ctx, &n.fast) },
			func() error { return n.besideSlow(ctx) },
		}); err != nil {
			return nil, err
		}
	}
	f = &report.Figure{Name: "slow", Title: fmt.Sprintf(
		"A change beside an engine that takes %s a request, with %d open revisions", slowness,
		openRevisions)}
	f.Add(report.Against("push to API server, p99", "ms", n.slow.p99, n.fast.p99, 1.05))
	f.Add(report.Against("push to API server, median", "ms", n.slow.median, n.fast.median, 1.05))
	f.Note("floor: the same %d commits while the other engine is fast and has no open revision. A "+
		"sample is one block", n.commits)
	return f, p.verify(ctx)
}

// neighbours is the changes of engine a beside engine b.
type neighbours struct {
	*plane
	commits    int // in a block
	released   int
	fast, slow latencies
}

// latencies have a sample from each block, in milliseconds.
type latencies struct{ p99, median report.Sample }

// besideSlow is a block while engine b is slow. It ends when b has caught up.
func (n *neighbours) besideSlow(ctx context.Context) error {
	n.ground.proxy.Order(func(_ http.ResponseWriter, r *http.Request) bool {
		pacing.Sleep(r.Context(), slowness)
		return false
	})
	for range openRevisions {
		if _, _, err := n.next(ctx, corpus.PerFolder); err != nil {
			return err
		}
		if err := errors.Join(n.push(ctx), n.applied(ctx)); err != nil {
			return err
		}
	}
	metrics, err := n.metrics(ctx)
	if err != nil {
		return err
	}
	const open = `argosy_revisions_under_way{stage="applied"}`
	if metrics[open] < openRevisions {
		return fmt.Errorf("void: %v revisions are open, not %d", metrics[open], openRevisions)
	}
	if err := n.block(ctx, &n.slow); err != nil {
		return err
	}
	n.ground.proxy.Order(nil)
	n.ground.proxy.Cut()
	limit, cancel := context.WithTimeout(ctx, patience+2*slowness)
	defer cancel()
	for {
		err := n.verify(limit)
		if err == nil || limit.Err() != nil {
			return err
		}
		pacing.Sleep(limit, time.Second)
	}
}

// block commits one release after the other to engine a.
func (n *neighbours) block(ctx context.Context, to *latencies) error {
	watch := observe.StartWatch(ctx, n.arena.watched[0])
	defer watch.Stop()
	var all report.Sample
	for range n.commits {
		key, release, err := n.next(ctx, 0)
		if err != nil {
			return err
		}
		limit, cancel := context.WithTimeout(ctx, patience)
		start := time.Now()
		err = n.push(ctx)
		var seen time.Time
		if err == nil {
			seen, err = watch.AwaitRevision(limit, key, release)
		}
		cancel()
		if err != nil {
			return err
		}
		all = append(all, 1000*seen.Sub(start).Seconds())
		if !pacing.Sleep(ctx, breath/4) {
			return ctx.Err()
		}
	}
	slices.Sort(all)
	to.p99 = append(to.p99, all[(len(all)*99+99)/100-1])
	to.median = append(to.median, all.Median())
	return nil
}

// next commits a release that never was, of one of the 250 deployments from first on.
func (n *neighbours) next(ctx context.Context, first int) (key, release string, err error) {
	n.released++
	release = fmt.Sprintf("v3.0.%d", n.released)
	key, err = n.release(ctx, first+n.released*79%corpus.PerFolder, release)
	return key, release, err
}
