package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/bench/report"
)

// warmers connect first, so that what the process makes once is not counted for the agents.
const warmers = 20

// idle measures what connected agents cost the hub while nothing happens.
func idle(ctx context.Context, g *ground, o options) (*report.Figure, error) {
	m, err := newFixture(ctx, g.postgres, "idle", "argocd", warmers+o.idle)
	if err != nil {
		return nil, err
	}
	defer m.store.Close()
	h, err := g.startHub(ctx, hubConfig{Database: m.url, OpenRate: 1000, TokenRate: 1000})
	if err != nil {
		return nil, err
	}
	defer h.Stop()
	if err := warm(ctx, g, m, h); err != nil {
		return nil, err
	}
	alone, before, err := quietly(ctx, h, o.window, "no agent connected")
	if err != nil {
		return nil, err
	}
	c, err := newCrowd(ctx, m, h, g.ca, warmers, warmers+o.idle)
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
	raw, err := observe.Memory(h.PID())
	if err != nil {
		return nil, err
	}
	busy, after, err := quietly(ctx, h, o.window, fmt.Sprintf("%d agents connected", o.idle))
	if err != nil {
		return nil, err
	}
	f := idleFigure(o, alone, busy, before, after)
	f.Add(report.Line{Name: "  before collection", Unit: "KiB", Ours: report.Sample{
		(raw.Now - before.rss) / float64(o.idle)}})
	return f, connected(ctx, h, o.idle)
}

// idleFigure compares the counts without agents and with all of them.
func idleFigure(o options, alone, busy map[string]int, before, after size) *report.Figure {
	f := &report.Figure{Name: "agents-idle", Title: fmt.Sprintf("%d idle agents on one hub",
		o.idle)}
	n := float64(o.idle)
	added := 0
	for text, times := range busy {
		if alone[text] == 0 {
			added += times
		}
	}
	per := func(a, b float64) report.Sample { return report.Sample{(a - b) / n} }
	f.Add(report.Line{Name: "statements of other kinds", Ours: report.Sample{float64(added)},
		Exact: true})
	f.Add(report.Against("statements in all", "", report.Sample{float64(sum(busy))}, report.Sample{
		float64(sum(alone))}, 1.1))
	f.Add(report.Line{Name: "RSS an agent", Unit: "KiB", Ours: per(after.rss, before.rss),
		Goal: 100})
	f.Add(report.Line{Name: "  of it heap", Unit: "KiB", Ours: per(after.heap, before.heap)})
	f.Add(report.Line{Name: "  of it stacks", Unit: "KiB", Ours: per(after.stacks, before.stacks)})
	f.Add(report.Line{Name: "goroutines an agent", Ours: per(after.goroutines, before.goroutines)})
	f.Add(report.Line{Name: "open files an agent", Ours: per(after.files, before.files)})
	f.Add(report.Line{Name: "RSS of the hub, no agent connected", Unit: "MiB", Ours: report.Sample{
		before.rss / 1024}})
	f.Note(
		"statements: what the hub sent to PostgreSQL in %s. Of other kinds: whose text is not "+
			"among those of a hub with no agent connected, which polls for news every 2 s, at the "+
			"stops every second, and writes every 10 s that it lives. Floor: those of that hub, "+
			"give or take one at the edges", o.window)
	f.Note(
		"memory: resident set after a collection that gives everything back, before and after; " +
			"TLS and HTTP/2 end at the hub, one connection an agent")
	return f
}

// warm has a few agents come and go.
func warm(ctx context.Context, g *ground, m *fixture, h *hubProcess) error {
	c, err := newCrowd(ctx, m, h, g.ca, 0, warmers)
	if err != nil {
		return err
	}
	begun := time.Now()
	c.connect(ctx)
	err = c.reported(ctx, begun, patience)
	c.stop()
	return errors.Join(err, until(ctx, patience, func() error { return connected(ctx, h, 0) }))
}

// connected returns nil if the hub has n streams.
func connected(ctx context.Context, h *hubProcess, n int) error {
	now, err := h.metrics(ctx)
	if err == nil && now["argosy_agent_connected"] != float64(n) {
		err = fmt.Errorf("void: %.0f agents are connected, not %d", now["argosy_agent_connected"],
			n)
	}
	return err
}

// quietly counts the statements of a time in which nothing happens, and weighs the hub.
func quietly(ctx context.Context, h *hubProcess, window time.Duration, what string) (map[string]int,
	size, error) {
	progress("%s: %s of nothing", what, window)
	pacing.Sleep(ctx, time.Second) // the requests of the last agents are done
	before, err := h.statements(ctx)
	if err != nil {
		return nil, size{}, err
	}
	pacing.Sleep(ctx, window)
	after, err := h.statements(ctx)
	if err != nil {
		return nil, size{}, err
	}
	for text, n := range before {
		if after[text] -= n; after[text] == 0 {
			delete(after, text)
		}
	}
	s, err := h.size(ctx)
	return after, s, err
}
