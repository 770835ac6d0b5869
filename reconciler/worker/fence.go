package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// Fences is a store that knows the fences of engines (ADR 0068). The methods carry the lease of the
// engine.
type Fences interface {
	// OpenFence returns the fence of the engine; false if there is none.
	OpenFence(ctx context.Context, lease mirror.Lease) (mirror.Fence, bool, error)
	// ReportFence records a step of a fence that was in state was, unless a person has changed it
	// meanwhile.
	ReportFence(ctx context.Context, lease mirror.Lease, was mirror.FenceState,
		r mirror.FenceReport) error
	// FreezeMove records that the evacuated engine ignores an Application that leaves it.
	FreezeMove(ctx context.Context, lease mirror.Lease, m mirror.ApplicationMove) error
}

// fencer carries out the steps of the engine's fence. It needs no complete read of the engine, and
// begins with the session: a fence has to be proven all the time.
type fencer struct{ *connection }

// fenceEvery is between two steps of a fence; a third of mirror.FenceProof.
const fenceEvery = mirror.FenceProof / 3

func (f fencer) run(ctx context.Context) error {
	for {
		if f.fenced.Load() {
			if err := f.step(ctx); err != nil && !f.retryable(ctx, err) {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.fencing:
		case <-time.After(min(fenceEvery, f.Poll)):
		}
	}
}

// step takes the next step of the fence and records it.
func (f fencer) step(ctx context.Context) error {
	store, ok := f.Rows.(Fences)
	if !ok || !f.lease.Valid() {
		return nil
	}
	r, ok, err := store.OpenFence(ctx, f.lease.Lease())
	if err != nil || !ok {
		return err
	}
	next := mirror.FenceReport{ID: r.ID, State: r.State}
	target, ok := engine.As[engine.Fencer](f.target)
	if !ok {
		err = fmt.Errorf("%w: its components cannot be scaled", engine.ErrRefused)
	} else {
		next, err = f.carryOut(ctx, store, target, r)
	}
	if err != nil {
		if ctx.Err() != nil || !f.lease.Valid() || errors.Is(err, mirror.ErrFenced) {
			return err
		}
		next = mirror.FenceReport{ID: r.ID, State: r.State, Message: err.Error()}
		if r.State == mirror.FenceChecking && errors.Is(err, engine.ErrRefused) {
			next.End, next.Failed = true, true
		}
	}
	next.Message = short(next.Message)
	if next.State == r.State && next.Message == r.Message && !next.Proven && !next.End {
		return nil
	}
	if next.State != r.State || next.End {
		f.Log.Warn("fence", "engine", f.Engine, "was", r.State, "state", next.State, "ended",
			next.End, "reason", next.Message)
	}
	return store.ReportFence(ctx, f.lease.Lease(), r.State, next)
}

// carryOut takes one step on the engine.
func (f fencer) carryOut(ctx context.Context, store Fences, target engine.Fencer,
	r mirror.Fence) (next mirror.FenceReport, err error) {
	next = mirror.FenceReport{ID: r.ID, State: r.State}
	switch r.State {
	case mirror.FenceChecking:
		found, err := target.CheckFence(ctx)
		next.End, next.Message = true, "would scale to zero: "+workloads(found)
		return next, err
	case mirror.FenceScaling:
		found, err := target.CheckFence(ctx)
		if err != nil {
			return next, err
		}
		next.Workloads = found // recorded before the first write
		if err := store.ReportFence(ctx, f.lease.Lease(), r.State, next); err != nil {
			return next, err
		}
		ctx, end := f.lease.Writing(ctx)
		defer end()
		if next.Message, err = target.ScaleToZero(ctx, r.ID); err == nil && next.Message == "" {
			next.State = mirror.FenceEmptying
		}
		return next, f.refusal(err)
	case mirror.FenceLifting:
		ctx, end := f.lease.Writing(ctx)
		defer end()
		next.Message, err = target.LiftFence(ctx, r.Workloads)
		next.End = err == nil && next.Message == ""
		return next, f.refusal(err)
	}
	began := time.Now()
	left, back, err := target.ProveFence(ctx)
	next.Took = time.Since(began)
	switch next.Message = left; {
	case err != nil:
	case left == "":
		next.State, next.Proven = mirror.FenceFenced, true
	case back:
		next.State = mirror.FenceBroken
		next.Message += "; stop what scales it, then `argosy evacuate engine " + string(f.Engine) +
			" --fence` again"
	case r.State == mirror.FenceFenced:
		next.State = mirror.FenceBroken
	}
	return next, err
}

// workloads lists what a fence scales.
func workloads(all []mirror.FencedWorkload) string {
	texts := make([]string, len(all))
	for i, w := range all {
		texts[i] = fmt.Sprintf("%s %s (replicas: %d)", w.Kind, w.Name, w.Replicas)
	}
	return strings.Join(texts, ", ")
}
