package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/test/bench/report"
)

// change measures how long one change for one of many connected agents takes, from the commit of
// its row until the agent holds its bytes.
func change(ctx context.Context, g *ground, o options) (*report.Figure, error) {
	m, err := newFixture(ctx, g.postgres, "change", "argocd", o.idle)
	if err != nil {
		return nil, err
	}
	defer m.store.Close()
	h, err := g.startHub(ctx, hubConfig{Database: m.url, OpenRate: 1000, TokenRate: 1000})
	if err != nil {
		return nil, err
	}
	defer h.Stop()
	c, err := newCrowd(ctx, m, h, g.ca, 0, o.idle)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	c.connect(ctx)
	defer c.stop()
	if err := c.reported(ctx, begun,
		patience+time.Duration(o.idle)*20*time.Millisecond); err != nil {
		return nil, err
	}
	bare, err := newWire(ctx, g, m)
	if err != nil {
		return nil, err
	}
	figure, err := changes(ctx, m, h, c, bare, o)
	return figure, errors.Join(err, bare.close(ctx), connected(ctx, h, o.idle))
}

// changes measures blocks of changes in turn with the floor.
func changes(ctx context.Context, m *fixture, h *hubProcess, c *crowd, bare *wire,
	o options) (*report.Figure, error) {
	var ours, floor, medians, bareMedians report.Sample
	before, err := h.statements(ctx)
	if err != nil {
		return nil, err
	}
	each, n := (o.changes+o.blocks-1)/o.blocks, 0
	block := func(all, medians *report.Sample, one func(n int) (time.Duration, error)) error {
		var took report.Sample
		for range each {
			// not in step with anything
			if !pacing.Sleep(ctx, 60*time.Millisecond+rand.N(60*time.Millisecond)) {
				return ctx.Err()
			}
			n++
			d, err := one(n)
			if err != nil {
				return err
			}
			took = append(took, d.Seconds()*1000)
		}
		*all, *medians = append(*all, took...), append(*medians, took.Median())
		return nil
	}
	for b := range o.blocks {
		progress("%d changes, block %d of %d", each, b+1, o.blocks)
		err := alternate(b,
			func() error {
				return block(&ours, &medians, func(n int) (time.Duration, error) {
					return c.one(ctx, m, n)
				})
			},
			func() error {
				return block(&floor, &bareMedians, func(n int) (time.Duration, error) {
					return bare.one(ctx, n)
				})
			})
		if err != nil {
			return nil, err
		}
	}
	after, err := h.statements(ctx)
	if err != nil {
		return nil, err
	}
	f := &report.Figure{Name: "agents-change",
		Title: fmt.Sprintf(
			"One change for one of %d connected agents, from the row's commit to the agent",
			o.idle)}
	f.Add(report.Against("50 %", "ms", medians, bareMedians, 0))
	f.Add(report.Line{Name: "99 %", Unit: "ms", Ours: report.Sample{percentile(ours, 99)},
		Goal: 250})
	f.Add(report.Line{Name: "  of the floor", Unit: "ms", Ours: report.Sample{
		percentile(floor, 99)}})
	f.Add(report.Line{Name: "the slowest", Unit: "ms", Ours: report.Sample{slices.Max(ours)}})
	f.Add(report.Line{Name: "statements of the hub a change", Ours: report.Sample{
		float64(sum(after)-sum(before)) / float64(len(ours))}})
	f.Note(
		"%d changes to agents at random, in %d blocks; statements: those that look for news and "+
			"stops while time passes, too", len(ours), o.blocks)
	f.Note(
		"floor: an UPDATE of a row of the same bytes and a NOTIFY; a connection that listens " +
			"reads the row with one SELECT and writes it to one open TLS connection. Its reader " +
			"is reported as the agent is")
	return f, nil
}

func percentile(s report.Sample, p int) float64 {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}

// one changes the Application of an agent at random.
func (c *crowd) one(ctx context.Context, m *fixture, n int) (time.Duration, error) {
	x := c.members[rand.N(len(c.members))]
	row, err := m.application(x.in, 0, fmt.Sprintf("v2.0.%d", n))
	if err != nil {
		return 0, err
	}
	at := make(chan time.Time, 1)
	var to chan<- time.Time = at
	x.wanted.Store(&row.Manifest)
	x.awaited.Store(&to)
	defer x.awaited.Store(nil)
	if err := m.commit(ctx, func(r *mirror.Record) { r.Rows = []mirror.Row{row} }); err != nil {
		return 0, err
	}
	committed := time.Now()
	if err := m.store.Notify(ctx, ""); err != nil {
		return 0, err
	}
	return arrival(ctx, committed, at)
}

// arrival is the time from a moment until an arrival; zero if it was faster than the clock was
// read.
func arrival(ctx context.Context, since time.Time, at <-chan time.Time) (time.Duration, error) {
	select {
	case then := <-at:
		return max(then.Sub(since), 0), nil
	case <-time.After(patience):
		return 0, errors.New("void: a change did not arrive")
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
