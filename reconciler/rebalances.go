package reconciler

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/rebalance"
)

// rebalancer proposes moves that relieve engines with a high measured load, and requests those of
// an accepted proposal. It keeps nothing that another replica needs.
type rebalancer struct {
	*Loop
	patience time.Duration // of moves
	again    time.Duration // after a move, until its engines are measured again
	reviewed time.Time
	tried    time.Time // the last simulation of an accepted rebalance without a move to request
	waits    bool      // every move that is not deferred awaits measurements
	deferred []rebalance.Deferred
	revision fleet.Revision
}

func (l *Loop) newRebalancer() *rebalancer {
	return &rebalancer{Loop: l, patience: cmp.Or(l.DrainPatience, drainPatience),
		again: cmp.Or(l.MeasureAgain, mirror.MeasureAgain)}
}

// check takes the next step of the open rebalance, or reviews the measured load. It follows the
// drains, which go first.
func (r *rebalancer) check(ctx context.Context, at *basis) {
	n, err := r.step(ctx, at)
	if err != nil && ctx.Err() == nil {
		r.Log.Warn("failed to check the rebalance; trying again", "error", err)
	}
	if n > 0 {
		r.Wake()
	}
}

func (r *rebalancer) step(ctx context.Context, at *basis) (n int, err error) {
	f, err := r.Store.Rebalance(ctx, r.patience)
	if err != nil {
		return 0, err
	}
	limits := at.state.Catalog().Fleet().Placement
	mode := limits.Rebalance.OrDefaults().Mode
	proposed := f.Open != nil && f.Open.State == mirror.RebalanceProposed
	switch {
	case mode == fleet.RebalanceOff && f.Open == nil:
		return 0, nil
	case mode == fleet.RebalanceOff:
		return 0, r.Store.SetRebalance(ctx, at.lease, *f.Open, mirror.RebalanceObsolete,
			"spec.placement.rebalance.mode is Off")
	case f.Open == nil || proposed:
		if time.Since(r.reviewed) < min(rebalance.Every, r.again) {
			return 0, nil
		}
		r.reviewed = time.Now()
		return 0, r.review(ctx, at, f, mode)
	case f.Open.State == mirror.RebalancePaused:
		return 0, nil
	}
	return r.advance(ctx, at, f, limits.Churn.OrDefaults())
}

// review proposes what the present load asks for, and ends a proposal that does not hold any more.
// With mode Act, it accepts the open proposal if that holds.
func (r *rebalancer) review(ctx context.Context, at *basis, f mirror.RebalanceFacts,
	mode fleet.RebalanceMode) error {
	measured, unready, err := r.status(ctx)
	if err != nil || f.Open == nil && len(measured.Cores) == 0 {
		return err
	}
	fresh, err := r.simulate(ctx, func() (placement.Outcome, error) {
		return at.state.Rebalance(unready, measured)
	})
	var impossible *placement.ImpossibleError
	if err != nil && !errors.As(err, &impossible) {
		return err
	}
	var still placement.Outcome
	awaited := 0
	if f.Open != nil {
		var moves []placement.Move
		moves, awaited = rebalance.Await(rebalance.Moves(f.Open.Moves), measured.Moving)
		still, err = r.simulate(ctx, func() (placement.Outcome, error) {
			return at.state.ContinueRebalance(moves, unready, measured)
		})
		if errors.As(err, &impossible) {
			return nil // the mirror is being built
		}
		if err != nil {
			return err
		}
	}
	v := rebalance.Review(f.Open, fresh, still, awaited)
	if v.End != "" {
		return r.Store.SetRebalance(ctx, at.lease, *f.Open, mirror.RebalanceObsolete, v.End)
	}
	if !v.Propose {
		if f.Open != nil && mode == fleet.RebalanceAct {
			r.drains.Set()
			return r.Store.TakeRebalance(ctx, at.lease, f.Open.ID, byMode)
		}
		return nil
	}
	next, instead := rebalance.New(fresh), ""
	if f.Open != nil {
		instead = f.Open.ID
	}
	if mode == fleet.RebalanceAct {
		next.AcceptedBy = byMode
	}
	r.Log.Info("rebalance", "moves", len(next.Moves), "message", next.Message, "mode", mode)
	r.drains.Set()
	err = r.Store.ProposeRebalance(ctx, at.lease, next, instead)
	if errors.Is(err, mirror.ErrRebalanceState) { // a person has decided meanwhile
		return nil
	}
	return err
}

// byMode accepts proposals with mode Act.
const byMode = "argosy"

// advance requests the next moves of an accepted rebalance.
func (r *rebalancer) advance(ctx context.Context, at *basis, f mirror.RebalanceFacts,
	churn fleet.Churn) (n int, err error) {
	state, why, allowed := rebalance.Assess(f, churn)
	if f.Open.Message == "" { // it begins, or a person has resumed it
		r.tried, r.deferred = time.Time{}, nil
	}
	if allowed > 0 {
		if r.revision != at.revision || time.Since(r.tried) >= min(rebalance.Retry, r.again) {
			if n, err = r.request(ctx, at, f, allowed, churn); err != nil || n > 0 {
				return n, err
			}
		}
		if r.waits || len(r.deferred) > 0 {
			state, why = rebalance.Wait(*f.Open, why, r.waits, r.deferred)
		}
	}
	if state == f.Open.State && why == f.Open.Message {
		return 0, nil
	}
	if state != f.Open.State {
		r.Log.Info("rebalance", "id", f.Open.ID, "state", state, "message", why)
	}
	return 0, r.Store.SetRebalance(ctx, at.lease, *f.Open, state, why)
}

// request checks the moves that are left and requests the first ones.
func (r *rebalancer) request(ctx context.Context, at *basis, f mirror.RebalanceFacts,
	allowed int, churn fleet.Churn) (int, error) {
	r.tried, r.revision, r.waits = time.Now(), at.revision, false
	measured, unready, err := r.status(ctx)
	if err != nil {
		return 0, err
	}
	moves, awaited := rebalance.Await(rebalance.Moves(f.Open.Moves), measured.Moving)
	obstacles, err := r.obstacles(ctx, moves)
	if err != nil {
		return 0, err
	}
	moves, deferred, refused := rebalance.Defer(moves, obstacles, r.deferred, time.Now(), r.again)
	r.deferred, r.waits = deferred, len(moves) == 0 && awaited > 0
	if len(moves)+len(refused) == 0 {
		return 0, nil
	}
	still, err := r.simulate(ctx, func() (placement.Outcome, error) {
		return at.state.ContinueRebalance(moves, unready, measured)
	})
	if err != nil {
		return 0, err
	}
	next, skip := rebalance.Next(f.Open.ID, still, allowed)
	skip = append(skip, refused...)
	n, err := r.Store.RequestRebalance(ctx, at.lease, f.Open.ID, churn, next, skip)
	if n > 0 || len(skip) > 0 {
		r.tried = time.Time{}
		r.drains.Set() // it may be done
	}
	return n, err
}

// obstacles returns why moves could not begin now: for the engines or the Applications, as for a
// move that a person requests.
func (r *rebalancer) obstacles(ctx context.Context, moves []placement.Move) (
	map[fleet.SliceID]string, error) {
	found := map[fleet.SliceID]string{}
	for _, m := range moves {
		request := mirror.MoveRequest{Environment: m.Environment, Slice: m.Slice, To: m.To}
		all, err := r.Store.MoveObstacles(ctx, request)
		if err != nil {
			return nil, err
		}
		var texts []string
		for _, o := range all {
			if !o.Passes {
				texts = append(texts, o.Text)
			}
		}
		if len(texts) > 0 {
			found[request.ID()] = strings.Join(texts, "; ")
		}
	}
	return found, nil
}

func (r *rebalancer) status(ctx context.Context) (mirror.Measured, map[fleet.SliceID]int,
	error) {
	measured, err := r.Loads.Measured(ctx, r.again)
	if err != nil {
		return measured, nil, err
	}
	unready, err := r.Unready.Unready(ctx)
	return measured, unready, err
}

// simulate runs one simulation at a time: a commit waits for readers of the applied state.
func (l *Loop) simulate(ctx context.Context, of func() (placement.Outcome, error)) (
	placement.Outcome, error) {
	select {
	case l.computing <- struct{}{}:
		defer func() { <-l.computing }()
	case <-ctx.Done():
		return placement.Outcome{}, ctx.Err()
	}
	return of()
}
