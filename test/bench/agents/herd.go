package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/bench/report"
)

// herd measures what happens when a hub dies with many agents on it and comes back: all connect at
// once, and none has an access token that counts.
func herd(ctx context.Context, g *ground, o options) (*report.Figure, error) {
	m, err := newFixture(ctx, g.postgres, "herd", "argocd", o.herd)
	if err != nil {
		return nil, err
	}
	defer m.store.Close()
	h, err := g.startHub(ctx, hubConfig{Database: m.url, OpenRate: 5000, TokenRate: 5000})
	if err != nil {
		return nil, err
	}
	defer func() { h.Stop() }()
	progress("%d agents join and connect", o.herd)
	c, err := newCrowd(ctx, m, h, g.ca, 0, o.herd)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	c.connect(ctx)
	defer c.stop()
	if err := c.reported(ctx, begun,
		patience+time.Duration(o.herd)*30*time.Millisecond); err != nil {
		return nil, err
	}
	begun = time.Now()
	if h, err = g.replace(ctx, m, h, o.rate); err != nil {
		return nil, err
	}
	return c.stampede(ctx, h, o, begun)
}

// replace ends a hub the hard way, drops all access tokens as an outage of five minutes would, and
// starts another in its place.
func (g *ground) replace(ctx context.Context, m *fixture, old *hubProcess, rate int) (*hubProcess,
	error) {
	old.Kill()
	conn, err := pgx.Connect(ctx, m.url)
	if err != nil {
		return old, err
	}
	_, err = conn.Exec(ctx, `DELETE FROM argosy.agent_access`)
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return old, err
	}
	h, err := g.startHub(ctx, hubConfig{Database: m.url, Address: old.Address, OpenRate: rate,
		TokenRate: 2 * rate})
	if err != nil {
		return old, err
	}
	return h, nil
}

// second is one sample of the state.
type second struct {
	at                 time.Time
	opened, statements float64
	waiting            float64
}

// stampede follows the return of all. They begin to while the hub is still starting, so what counts
// as back is what came since the last one's end.
func (c *crowd) stampede(ctx context.Context, h *hubProcess, o options,
	begun time.Time) (*report.Figure, error) {
	progress("%d agents come back at once to a hub that opens %d sessions a second", o.herd, o.rate)
	var looks []second
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(o.herd/o.rate)*3*time.Second)
	defer cancel()
	for n, reported := 0, time.Now(); n < len(c.members); {
		at, err := h.sample(ctx)
		if err != nil {
			return nil, err
		}
		looks = append(looks, at)
		if n, err = c.in(begun); err != nil {
			return nil, err
		}
		if time.Since(reported) > 15*time.Second {
			reported = time.Now()
			progress("%d are back, %.0f wait for their turn", n, at.waiting)
		}
		if !pacing.Sleep(ctx, 250*time.Millisecond) {
			return nil, fmt.Errorf("%d of %d agents are back", n, len(c.members))
		}
	}
	return c.herdFigure(ctx, h, o, begun, looks)
}

func (h *hubProcess) sample(ctx context.Context) (second, error) {
	now, err := h.metrics(ctx)
	if err != nil {
		return second{}, err
	}
	asked, err := h.statements(ctx)
	return second{time.Now(), now["argosy_agent_streams_total"], float64(sum(asked)),
		now["argosy_agent_openings_waiting"]}, err
}

func (c *crowd) herdFigure(ctx context.Context, h *hubProcess, o options, begun time.Time,
	looks []second) (*report.Figure, error) {
	memory, err := observe.Memory(h.PID())
	if err != nil {
		return nil, err
	}
	cpu, err := observe.CPU(h.PID())
	if err != nil {
		return nil, err
	}
	values, err := h.metrics(ctx)
	if err != nil {
		return nil, err
	}
	var took report.Sample
	for _, x := range c.members {
		took = append(took, time.Duration(x.opened.Load()-begun.UnixNano()).Seconds())
	}
	back, err := c.in(begun)
	if err != nil {
		return nil, err
	}
	n := float64(o.herd)
	opened, asked := busiest(looks)
	f := &report.Figure{Name: "agents-herd",
		Title: fmt.Sprintf("%d agents come back at once to a hub that opens %d sessions a second",
			o.herd, o.rate)}
	f.Add(report.Line{Name: "agents that are back", Ours: report.Sample{float64(back)}, Goal: n,
		Exact: true})
	f.Add(report.Against("until the last is back", "s", report.Sample{slices.Max(took)},
		report.Sample{n / float64(o.rate)}, 1.5))
	f.Add(report.Line{Name: "  half of them", Unit: "s", Ours: report.Sample{took.Median()}})
	f.Add(report.Line{Name: "sessions opened a second", Ours: report.Sample{n / slices.Max(took)},
		Goal: float64(o.rate)})
	f.Add(report.Line{Name: "  most", Ours: report.Sample{opened}})
	f.Add(report.Line{Name: "statements a second, most", Ours: report.Sample{asked}})
	f.Add(report.Line{Name: "statements an agent", Ours: report.Sample{
		looks[len(looks)-1].statements / n}})
	f.Add(report.Line{Name: "sent away for a while, an agent", Ours: report.Sample{
		values[`argosy_agent_refusals_total{code="busy"}`] / n}})
	f.Add(report.Line{Name: "RSS of the hub, peak", Unit: "MiB", Ours: report.Sample{
		memory.Peak / 1024}})
	f.Add(report.Line{Name: "CPU of the hub, an agent", Unit: "ms", Ours: report.Sample{
		cpu.Seconds() * 1000 / n}})
	f.Note(
		"floor: as long as so many sessions take at that rate. The last hub was killed, and " +
			"every access token dropped with it: each agent signs in, proves itself and opens " +
			"its stream, where the last one ended")
	f.Note(
		"most: over any five seconds, as they were done. They are let in at that rate; what "+
			"waits for a processor then, while both ends of %d TLS connections begin on this "+
			"machine, is done together", o.herd)
	return f, connected(ctx, h, o.herd)
}

// busiest is the most that five seconds have seen of sessions and of statements, by second.
func busiest(looks []second) (opened, statements float64) {
	for i, a := range looks {
		for _, b := range looks[i+1:] {
			if over := b.at.Sub(a.at).Seconds(); over >= 5 {
				opened, statements = max(opened, (b.opened-a.opened)/over),
					max(statements, (b.statements-a.statements)/over)
				break
			}
		}
	}
	return opened, statements
}
