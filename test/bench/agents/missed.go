package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/edge"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/test/bench/report"
)

// back is what one return of an agent cost.
type back struct {
	rows, bytes, statements float64
	took                    float64 // milliseconds
}

// missed measures the rows sent to an agent that comes back after k changes.
func missed(ctx context.Context, g *ground, o options) (*report.Figure, error) {
	m, err := newFixture(ctx, g.postgres, "missed", "argocd", 1)
	if err != nil {
		return nil, err
	}
	defer m.store.Close()
	progress("one agent with %d rows", o.rows)
	if err := m.release(ctx, environment(0), 0, o.rows, first); err != nil {
		return nil, err
	}
	meter, err := newMeter()
	if err != nil {
		return nil, err
	}
	defer meter.close()
	h, err := g.startHub(ctx, hubConfig{Database: m.url, Public: "https://" + meter.address})
	if err != nil {
		return nil, err
	}
	defer h.Stop()
	meter.to(h.Address)
	x, err := newMember(ctx, m, h.Public, g.ca, environment(0))
	if err != nil {
		return nil, err
	}
	defer x.client.Close()
	r := &returning{fixture: m, hub: h, client: x.client, meter: meter}
	return r.measure(ctx, o)
}

// returning is an agent that comes and goes.
type returning struct {
	*fixture
	hub    *hubProcess
	client *edge.Client
	meter  *meter
	epoch  int64
	cursor int64
	n      int
}

func (r *returning) measure(ctx context.Context, o options) (*report.Figure, error) {
	whole, err := r.cost(ctx, r.readAll)
	if err != nil {
		return nil, err
	}
	ks := []int{0, 10, 100, 1000}
	of := map[int][]back{}
	for b := range o.blocks {
		for i := range ks {
			k := ks[i]
			if b%2 == 1 {
				k = ks[len(ks)-1-i]
			}
			progress("back after %d missed changes of %d rows, block %d of %d", k, o.rows, b+1,
				o.blocks)
			cost, err := r.after(ctx, min(k, o.rows))
			if err != nil {
				return nil, err
			}
			of[k] = append(of[k], cost)
		}
	}
	return missedFigure(o, ks, of, whole), nil
}

func missedFigure(o options, ks []int, of map[int][]back, whole back) *report.Figure {
	f := &report.Figure{Name: "agents-missed",
		Title: fmt.Sprintf("An agent with %d rows comes back after k changes that it missed",
			o.rows)}
	var x, y []float64
	for _, k := range ks {
		name := fmt.Sprintf("k = %d: ", k)
		sent := sample(of[k], func(b back) float64 { return b.bytes / 1024 })
		f.Add(report.Line{Name: name + "rows sent", Ours: sample(of[k], func(b back) float64 {
			return b.rows
		}), Goal: float64(min(k, o.rows)), Exact: true})
		f.Add(report.Line{Name: "  sent to the agent", Unit: "KiB", Ours: sent})
		f.Add(report.Line{Name: "  statements", Ours: sample(of[k], func(b back) float64 {
			return b.statements
		})})
		f.Add(report.Line{Name: "  until it has received all", Unit: "ms",
			Ours: sample(of[k], func(b back) float64 { return b.took })})
		if k > 0 {
			x, y = append(x, float64(min(k, o.rows))), append(y, sent.Median())
		}
	}
	slope, half := report.Slope(x, y)
	f.Add(report.Line{Name: "slope of the bytes against k", Ours: report.Sample{slope}, Goal: 1.05})
	f.Add(report.Line{Name: "everything, as at the first time", Unit: "KiB", Ours: report.Sample{
		whole.bytes / 1024}})
	f.Add(report.Line{Name: "  rows", Ours: report.Sample{whole.rows}})
	f.Note("the slope's 95 %% interval is +-%.2f, over k = 10, 100, 1000", half)
	f.Note(
		"bytes: what goes over the wire to the agent, TLS, HTTP/2 and the hello with them, " +
			"until it holds all that it missed. The connection is the one that it had")
	return f
}

func sample(of []back, read func(back) float64) (s report.Sample) {
	for _, b := range of {
		s = append(s, read(b))
	}
	return s
}

// after has the agent come back after k changes.
func (r *returning) after(ctx context.Context, k int) (back, error) {
	r.n++
	if k > 0 {
		if err := r.release(ctx, environment(0), 0, k, fmt.Sprintf("v3.0.%d", r.n)); err != nil {
			return back{}, err
		}
	}
	if !pacing.Sleep(ctx, 500*time.Millisecond) { // the hub has polled, with or without agents
		return back{}, ctx.Err()
	}
	return r.cost(ctx, r.catchUp)
}

// cost measures the bytes that are sent.
func (r *returning) cost(ctx context.Context, read func(context.Context) (rows int,
	err error)) (b back, err error) {
	asked, err := r.hub.statements(ctx)
	if err != nil {
		return b, err
	}
	bytes, begun := r.meter.in(), time.Now()
	rows, err := read(ctx)
	if err != nil {
		return b, err
	}
	b.took = time.Since(begun).Seconds() * 1000
	b.rows, b.bytes = float64(rows), float64(r.meter.in()-bytes)
	after, err := r.hub.statements(ctx)
	b.statements = float64(sum(after) - sum(asked))
	return b, err
}

// readAll is an agent's first time: a snapshot, and the stream after it.
func (r *returning) readAll(ctx context.Context) (int, error) {
	s, err := r.client.Snapshot(ctx, 0)
	if err != nil {
		return 0, err
	}
	r.epoch, r.cursor = s.Epoch, s.Cursor
	n, err := r.catchUp(ctx)
	return n + len(s.Rows), err
}

// catchUp opens the stream at the last cursor, reads until the hub has sent all rows, and leaves.
func (r *returning) catchUp(ctx context.Context) (rows int, err error) {
	stream, err := r.client.Stream(ctx, r.epoch-1, r.cursor)
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	if stream.Hello.Cursor != r.cursor || stream.Hello.Epoch != r.epoch {
		return 0, errors.New("void: the stream did not go on where the last one ended")
	}
	for {
		event, err := stream.Next()
		if err != nil {
			return rows, err
		}
		if event.Name != agent.EventRows {
			continue
		}
		var got agent.Rows
		if err := json.Unmarshal(event.Data, &got); err != nil {
			return rows, err
		}
		rows += len(got.Rows)
		if r.cursor = got.Cursor; !got.More {
			return rows, nil
		}
	}
}
