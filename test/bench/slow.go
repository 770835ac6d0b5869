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
	openRevisions = 500              // at least; a block begins with openAhead more
	openAhead     = 50
	// slowInFlight requests run at once to an engine: many requests at once would apply revisions
	// about as fast as commits add them.
	slowInFlight = 4
	// slowFolders of each engine: a later commit to a deployment closes an earlier revision, so
	// the slow engine needs more deployments than open revisions.
	slowFolders = 4
)

// slow measures what a change of engine a takes while engine b of the same control plane takes 25
// seconds for each request and has 500 revisions that it has not applied. The floor is the same
// commit to a second control plane, whose engine b is fast and has applied every revision. The
// commits alternate between both, so that the load of the machine is the same for both.
func slow(ctx context.Context, o options) (f *report.Figure, err error) {
	g, err := startGround(ctx)
	if err != nil {
		return nil, err
	}
	defer stopGround(g)
	n := &neighbours{commits: 20 * o.commits}
	for _, side := range []*neighbour{&n.slow, &n.fast} {
		if err := side.start(ctx, g); err != nil {
			return nil, errors.Join(err, n.end(ctx))
		}
	}
	defer func() { err = errors.Join(err, n.end(ctx)) }()
	n.slow.proxy.Order(func(_ http.ResponseWriter, r *http.Request) bool {
		pacing.Sleep(r.Context(), slowness)
		return false
	})
	for block := range o.blocks {
		if err := n.fallBehind(ctx); err != nil {
			return nil, err
		}
		progress("block %d of %d", block+1, o.blocks)
		if err := n.block(ctx); err != nil {
			return nil, err
		}
	}
	f = &report.Figure{Name: "slow", Title: fmt.Sprintf(
		"A change beside an engine that takes %s a request, with %d open revisions", slowness,
		openRevisions)}
	f.Add(report.Against("push to API server, p99", "ms",
		report.Sample{percentile(n.slow.all, 99)}, report.Sample{percentile(n.fast.all, 99)}, 1.05))
	f.Add(report.Against("  p99 of each block", "ms", n.slow.p99, n.fast.p99, 0))
	f.Add(report.Against("  median of each block", "ms", n.slow.median, n.fast.median, 0))
	f.Add(report.Against("CPU of the control plane", "ms", n.slow.cpu, n.fast.cpu, 0))
	f.Note("floor: the same %d changes, in turn, to a second control plane whose other engine is "+
		"fast and has no open revision; %d in a block", len(n.fast.all), n.commits)
	f.Note("CPU is that of the argosy process for each change. At the beginning of each block at "+
		"least %d revisions were open, at its end %d", n.begin, n.left)
	return f, n.catchUp(ctx)
}

// neighbours are two control planes whose engine a takes the same commits. Engine b of one is slow.
type neighbours struct {
	slow, fast  neighbour
	commits     int // in a block
	begin, left int // fewest open revisions at the begin and the end of a block
}

// neighbour is a control plane with its samples in milliseconds, one from each block.
type neighbour struct {
	*plane
	proxy            *stack.Proxy  // before engine b
	released         [2]int        // on each engine
	all              report.Sample // the latency of each change
	p99, median, cpu report.Sample
}

// start starts the control plane and brings the deployments to its engines.
func (n *neighbour) start(ctx context.Context, g *ground) (err error) {
	if n.proxy, err = stack.StartProxy(g.clusters[1]); err != nil {
		return err
	}
	g.proxy = n.proxy
	if n.plane, err = g.preparePlane(ctx, false); err != nil {
		return err
	}
	n.inFlight = slowInFlight
	if err := n.plane.start(ctx, g.host, time.Hour); err != nil {
		return err
	}
	_, err = n.fill(ctx, 2*slowFolders*corpus.PerFolder)
	return n.explain(err)
}

// explain adds the state of the control plane to an error.
func (n *neighbour) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w%s", err, n.diagnose())
}

// end stops both control planes.
func (n *neighbours) end(ctx context.Context) (err error) {
	for _, side := range []*neighbour{&n.slow, &n.fast} {
		if side.plane != nil {
			err = errors.Join(err, side.plane.end(ctx))
		}
		if side.proxy != nil {
			side.proxy.Stop()
		}
	}
	return err
}

// fallBehind commits to engine b of both control planes, one revision after the other, until enough
// revisions of the slow one are open.
func (n *neighbours) fallBehind(ctx context.Context) error {
	for commits := 0; ; commits++ {
		open, err := n.slow.open(ctx)
		if err != nil {
			return err
		}
		if open >= openRevisions+openAhead {
			return n.awaitApplied(ctx)
		}
		if commits%50 == 0 {
			progress("%d of %d revisions are open", open, openRevisions+openAhead)
		}
		if commits == slowFolders*corpus.PerFolder {
			return n.slow.explain(fmt.Errorf("void: after %d commits %d revisions are open, not %d",
				commits, open, openRevisions+openAhead))
		}
		if err := n.both(func(side *neighbour) error {
			if _, _, err := side.next(ctx, 1); err != nil {
				return err
			}
			limit, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return side.explain(errors.Join(side.push(ctx), side.applied(limit)))
		}); err != nil {
			return err
		}
	}
}

// awaitApplied waits until the fast engine b has applied every revision.
func (n *neighbours) awaitApplied(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if open, err := n.fast.open(limit); err != nil || open == 0 {
			return n.fast.explain(err)
		}
		pacing.Sleep(limit, 100*time.Millisecond)
	}
}

// both does something with both control planes at the same time.
func (n *neighbours) both(do func(*neighbour) error) error {
	done := make(chan error)
	go func() { done <- do(&n.fast) }()
	err := do(&n.slow)
	return errors.Join(err, <-done)
}

// catchUp makes engine b fast again, and compares both control planes' engines with their repos.
func (n *neighbours) catchUp(ctx context.Context) error {
	n.slow.proxy.Order(nil)
	n.slow.proxy.Cut()
	progress("the slow engine catches up")
	limit, cancel := context.WithTimeout(ctx, patience+2*slowness)
	defer cancel()
	for {
		err := errors.Join(n.slow.verify(limit), n.fast.verify(limit))
		if err == nil || limit.Err() != nil {
			return n.slow.explain(err)
		}
		pacing.Sleep(limit, time.Second)
	}
}

// open returns how many revisions have an object that is not applied.
func (n *neighbour) open(ctx context.Context) (open int, err error) {
	err = n.notify.QueryRow(ctx, `SELECT count(DISTINCT d.revision) FROM desired d
		LEFT JOIN status s USING (engine, kind, name)
		WHERE s.seq IS DISTINCT FROM d.seq OR s.state <> 'Applied'`).Scan(&open)
	return open, err
}

// block commits releases to engine a of both control planes in turn.
func (n *neighbours) block(ctx context.Context) error {
	begin, err := n.slow.open(ctx)
	if err != nil {
		return err
	}
	sides := []*neighbour{&n.slow, &n.fast}
	used := map[*neighbour]time.Duration{}
	for _, side := range sides {
		if used[side], err = observe.CPU(side.argosy.PID()); err != nil {
			return err
		}
	}
	watch := observe.StartWatch(ctx, n.slow.arena.watched[0], n.fast.arena.watched[0])
	defer watch.Stop()
	for i := range n.commits {
		for _, side := range sides {
			if err := side.change(ctx, watch); err != nil {
				return side.explain(err)
			}
		}
		if i%2 == 0 {
			slices.Reverse(sides)
		}
	}
	left, err := n.slow.open(ctx)
	if err != nil {
		return err
	}
	if n.begin == 0 {
		n.begin, n.left = begin, left
	}
	n.begin, n.left = min(n.begin, begin), min(n.left, left)
	for _, side := range sides {
		now, err := observe.CPU(side.argosy.PID())
		if err != nil {
			return err
		}
		side.cpu = append(side.cpu, 1000*(now-used[side]).Seconds()/float64(n.commits))
		block := side.all[len(side.all)-n.commits:]
		side.p99 = append(side.p99, percentile(block, 99))
		side.median = append(side.median, block.Median())
	}
	return nil
}

// change commits a release to engine a and waits until a watch shows it there.
func (n *neighbour) change(ctx context.Context, watch *observe.Watch) error {
	key, release, err := n.next(ctx, 0)
	if err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	start := time.Now()
	if err := n.push(ctx); err != nil {
		return err
	}
	seen, err := watch.AwaitRevision(limit, key, release)
	if err != nil {
		return err
	}
	n.all = append(n.all, 1000*seen.Sub(start).Seconds())
	if !pacing.Sleep(ctx, breath/2) {
		return ctx.Err()
	}
	return nil
}

// next commits a release that never was, of one deployment of the engine after the other.
func (n *neighbour) next(ctx context.Context, engine int) (key, release string, err error) {
	i := n.released[engine] % (slowFolders * corpus.PerFolder)
	n.released[engine]++
	release = fmt.Sprintf("v3.%d.%d", engine, n.released[engine])
	folder := 2*(i/corpus.PerFolder) + engine
	key, err = n.release(ctx, folder*corpus.PerFolder+i%corpus.PerFolder, release)
	return key, release, err
}

// percentile returns the smallest value that p percent of the sample do not exceed.
func percentile(s report.Sample, p int) float64 {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[(len(sorted)*p+99)/100-1]
}
