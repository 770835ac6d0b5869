package main

import (
	"fmt"

	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/test/bench/report"
)

// moved is the share, in per cent, of those that were there before whose place is another now, as
// far as from counts them.
func moved[P comparable](before, after []P, from func(P) bool) float64 {
	n := 0
	for i, p := range before {
		if from(p) && after[i] != p {
			n++
		}
	}
	return 100 * float64(n) / float64(len(before))
}

func anywhere[P any](P) bool { return true }

// pairs is where Argo CD places the clusters of each block, before and after.
type pairs [][2]shards

func (p *shardingProcess) resized(o options, from, to int) (pairs, error) {
	var out pairs
	for block := range o.blocks {
		ids := uids(o.place, block)
		before, err := p.place(ids, from)
		if err != nil {
			return nil, err
		}
		after, err := p.place(ids, to)
		if err != nil {
			return nil, err
		}
		out = append(out, [2]shards{before, after})
	}
	return out, nil
}

func (p pairs) moved(by func(shards) []int, from func(int) bool) (out report.Sample) {
	for _, pair := range p {
		out = append(out, moved(by(pair[0]), by(pair[1]), from))
	}
	return out
}

func bounded(s shards) []int { return s.Bounded }

func legacy(s shards) []int { return s.Legacy }

// fromScratch is the moves when everything is placed from scratch before and after.
func fromScratch(o options, from, to int) (out report.Sample) {
	for block := range o.blocks {
		in := environments(o.place, block)
		out = append(out, moved(placement.Assign(in, engines(from)),
			placement.Assign(in, engines(to)), anywhere))
	}
	return out
}

// grown adds an engine to n.
func grown(f *report.Figure, argo *shardingProcess, o options, n int) error {
	progress("one engine more than %d", n)
	theirs, err := argo.resized(o, n, n+1)
	if err != nil {
		return err
	}
	w, err := declare(o.place, n)
	if err != nil {
		return err
	}
	ours, _, err := w.plan(engineFile(n))
	if err != nil {
		return err
	}
	floor := theirs.moved(bounded, anywhere)
	f.Add(report.Against(fmt.Sprintf("moves, %d to %d engines", n, n+1), "%",
		repeat(ours, o.blocks), floor, 0.2))
	f.Add(report.Against("  placed from scratch", "%", fromScratch(o, n, n+1), floor, 0))
	f.Add(report.Against("  against Argo CD's default", "%", repeat(ours, o.blocks),
		theirs.moved(legacy, anywhere), 0))
	return nil
}

// shrunk drains the last engine of n.
func shrunk(f *report.Figure, argo *shardingProcess, o options, n int) error {
	progress("one engine less than %d", n)
	theirs, err := argo.resized(o, n, n-1)
	if err != nil {
		return err
	}
	w, err := declare(o.place, n)
	if err != nil {
		return err
	}
	ours, its, err := w.plan(drained(n - 1))
	if err != nil {
		return err
	}
	f.Add(report.Against(fmt.Sprintf("moves, %d to %d, others'", n, n-1), "%",
		repeat(ours, o.blocks), theirs.moved(bounded, func(shard int) bool { return shard != n-1 }),
		0.2))
	f.Add(report.Against("  and of the one that goes", "%", repeat(ours+its, o.blocks),
		theirs.moved(bounded, anywhere), 0))
	return nil
}

// joined adds one per cent of environments to n engines.
func joined(f *report.Figure, argo *shardingProcess, o options, n int) error {
	progress("one per cent more environments on %d engines", n)
	more := max(1, o.place/100)
	var theirs report.Sample
	for block := range o.blocks {
		ids := uids(o.place+more, block)
		before, err := argo.place(ids[:o.place], n)
		if err != nil {
			return err
		}
		after, err := argo.place(ids, n)
		if err != nil {
			return err
		}
		theirs = append(theirs, moved(before.Bounded, after.Bounded, anywhere))
	}
	w, err := declare(o.place, n)
	if err != nil {
		return err
	}
	ours, _, err := w.plan(tenantFiles(o.place, o.place+more)...)
	if err != nil {
		return err
	}
	f.Add(report.Against("moves, 1 % more environments", "%", repeat(ours, o.blocks), theirs, 0.2))
	return nil
}

func repeat(v float64, n int) report.Sample {
	s := make(report.Sample, n)
	for i := range s {
		s[i] = v
	}
	return s
}
