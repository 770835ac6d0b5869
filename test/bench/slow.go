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
	// slowFolders of each engine: a later commit to a deployment closes an earlier revision, so
	// the slow engine needs more deployments than open revisions.
	slowFolders = 4
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
	if _, err := p.fill(ctx, 2*slowFolders*corpus.PerFolder); err != nil {
		return nil, err
	}
	n := &neighbours{plane: p, commits: 20 * o.commits}
	if err := n.rounds(ctx, o.blocks); err != nil {
		return nil, err
	}
	f = &report.Figure{Name: "slow", Title: fmt.Sprintf(
		"A change beside an engine that takes %s a request, with %d open revisions", slowness,
		openRevisions)}
	f.Add(report.Against("push to API server, p99", "ms", n.slow.p99, n.fast.p99, 1.05))
	f.Add(report.Against("push to API server, median", "ms", n.slow.median, n.fast.median, 1.05))
	f.Note("floor: the same %d commits while the other engine is fast and has no open revision, "+
		"before and after. A sample is one block. At the beginning of each slow block at least "+
		"%.0f revisions were open, at its end %.0f", n.commits, n.begin, n.end)
	return f, p.verify(ctx)
}

// neighbours is the changes of engine a beside engine b.
type neighbours struct {
	*plane
	commits    int // in a block
	released   int
	fast, slow latencies
	begin, end float64 // least open revisions at the begin and the end of a slow block
}

// latencies have a sample from each block, in milliseconds.
type latencies struct{ p99, median report.Sample }

// rounds measures blocks beside a fast engine b, as many while b is slow and has open revisions,
// and as many again once b has caught up.
func (n *neighbours) rounds(ctx context.Context, blocks int) error {
	fast := func() error {
		for block := range blocks {
			progress("block %d of %d beside a fast engine", block+1, blocks)
			if err := n.block(ctx, &n.fast); err != nil {
				return err
			}
		}
		return nil
	}
	if err := fast(); err != nil {
		return err
	}
	n.ground.proxy.Order(func(_ http.ResponseWriter, r *http.Request) bool {
		pacing.Sleep(r.Context(), slowness)
		return false
	})
	for block := range blocks {
		open, err := n.fallBehind(ctx)
		if err != nil {
			return err
		}
		progress("block %d of %d beside a slow engine, %.0f revisions are open", block+1, blocks,
			open)
		if err := n.block(ctx, &n.slow); err != nil {
			return err
		}
		left, err := n.open(ctx)
		if err != nil {
			return err
		}
		if block == 0 {
			n.begin, n.end = open, left
		}
		n.begin, n.end = min(n.begin, open), min(n.end, left)
	}
	n.ground.proxy.Order(nil)
	n.ground.proxy.Cut()
	progress("engine b catches up")
	limit, cancel := context.WithTimeout(ctx, patience+2*slowness)
	defer cancel()
	for {
		err := n.verify(limit)
		if err == nil {
			return fast()
		}
		if limit.Err() != nil {
			return err
		}
		pacing.Sleep(limit, time.Second)
	}
}

// fallBehind commits to engine b, one revision after the other, until openRevisions are open.
func (n *neighbours) fallBehind(ctx context.Context) (open float64, err error) {
	for commits := 0; ; commits++ {
		if open, err = n.open(ctx); err != nil || open >= openRevisions {
			return open, err
		}
		if commits == 2*slowFolders*corpus.PerFolder {
			return 0, fmt.Errorf("void: after %d commits %v revisions are open, not %d", commits,
				open, openRevisions)
		}
		if commits%100 == 0 {
			progress("%.0f of %d revisions are open", open, openRevisions)
		}
		if _, _, err := n.next(ctx, 1); err != nil {
			return 0, err
		}
		if err := errors.Join(n.push(ctx), n.applied(ctx)); err != nil {
			return 0, err
		}
	}
}

// open returns how many revisions have an object that is not applied.
func (n *neighbours) open(ctx context.Context) (open float64, err error) {
	err = n.notify.QueryRow(ctx, `SELECT count(DISTINCT d.revision) FROM desired d
		LEFT JOIN status s USING (engine, kind, name)
		WHERE s.seq IS DISTINCT FROM d.seq OR s.state <> 'Applied'`).Scan(&open)
	return open, err
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

// next commits a release that never was, of one deployment of the engine after the other.
func (n *neighbours) next(ctx context.Context, engine int) (key, release string, err error) {
	n.released++
	release = fmt.Sprintf("v3.0.%d", n.released)
	i := n.released % (slowFolders * corpus.PerFolder)
	folder := 2*(i/corpus.PerFolder) + engine
	key, err = n.release(ctx, folder*corpus.PerFolder+i%corpus.PerFolder, release)
	return key, release, err
}
