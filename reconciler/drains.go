package reconciler

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/drain"
	"argosy.dev/argosy/reconciler/pool"
)

const (
	drainPatience = 5 * time.Minute
	drainPoll     = 10 * time.Second // at most, between checks of drains
	drainSpacing  = time.Second      // at least
)

// drainer empties the engines that are declared Draining, takes misplaced environments off theirs
// if the Fleet declares that, and spreads the load of pools, apart from reconciles: it requests
// moves as people do, and the loop takes them. It keeps nothing that another replica needs.
type drainer struct {
	*Loop
	patience time.Duration
	ended    []fleet.EngineName // all drains but theirs were ended last
	clean    bool               // ended is known
	retry    map[fleet.EngineName]attempt

	// misplaced environments of each engine in the applied state of counted: counting them costs
	// all placements, and each recorded change publishes another basis
	misplaced map[fleet.EngineName]int
	counted   *basis

	spreads map[string]pool.Spread // by pool
	gives   map[fleet.EngineName]giver
}

// attempt is a simulation that gave no move to request.
type attempt struct {
	at       time.Time
	revision fleet.Revision
	drain    mirror.Drain
}

// drain empties engines, and relieves those with a high measured load, while this replica leads.
func (l *Loop) drain(ctx context.Context) {
	d := &drainer{Loop: l, patience: cmp.Or(l.DrainPatience, drainPatience),
		retry: map[fleet.EngineName]attempt{}, spreads: map[string]pool.Spread{},
		gives: map[fleet.EngineName]giver{}}
	r := l.newRebalancer()
	for ctx.Err() == nil {
		if at := l.at.Load(); at != nil && at.ready {
			d.check(ctx, at)
			if l.Loads != nil {
				r.check(ctx, at)
			}
		}
		if !pacing.Sleep(ctx, min(l.Poll, drainSpacing)) {
			return
		}
		select {
		case <-ctx.Done():
		case <-l.drains:
		case <-time.After(min(l.Poll, drainPoll)):
		}
	}
}

// check takes the next step of each drain. No step waits for an engine, or for another drain.
func (d *drainer) check(ctx context.Context, at *basis) {
	var draining []fleet.EngineName
	if d.counted != at {
		d.misplaced, d.counted = at.state.Misplaced(), at
	}
	d.spread(at, time.Now())
	catalog := at.state.Catalog()
	for _, name := range catalog.Engines() {
		e := catalog.Engine(name)
		_, _, part := d.part(name)
		if e != nil && (part != "" || e.Engine.State == fleet.EngineDraining) {
			draining = append(draining, name)
		}
	}
	if !d.clean || !slices.Equal(draining, d.ended) {
		if err := d.Store.EndDrains(ctx, at.lease, draining); err != nil {
			d.failed(ctx, "", err)
			return
		}
		d.ended, d.clean = draining, true
	}
	requested := false
	for _, engine := range draining {
		n, err := d.step(ctx, at, engine)
		if err != nil {
			d.failed(ctx, engine, err)
		}
		requested = requested || n > 0
	}
	if requested {
		d.Wake()
	}
}

func (d *drainer) failed(ctx context.Context, engine fleet.EngineName, err error) {
	if ctx.Err() == nil {
		d.Log.Warn("failed to check a drain; trying again", "engine", engine, "error", err)
	}
}

// step requests the next moves of a drain, and returns how many.
func (d *drainer) step(ctx context.Context, at *basis, engine fleet.EngineName) (n int,
	err error) {
	f, err := d.Store.Drain(ctx, engine, d.patience)
	if err != nil {
		return 0, err
	}
	c, left, part := d.part(engine)
	if part != "" {
		if f.Environments, f.Objects = left, 0; left+len(f.Open) == 0 {
			delete(d.gives, engine)
			return 0, nil // the last one has left
		}
	}
	churn := at.state.Catalog().Fleet().Placement.Churn.OrDefaults()
	now, allowed := drain.Assess(f, churn)
	if f.Message == "" { // it begins, or a person has resumed it
		delete(d.retry, engine)
	}
	switch last := d.retry[engine]; {
	case allowed == 0:
	case last.revision != at.revision || time.Since(last.at) >= min(drain.Retry, d.patience):
		if n, now, err = d.request(ctx, at, engine, c, f, now, allowed, churn); err != nil {
			return n, err
		}
	case len(f.Open) == 0:
		now = last.drain
	}
	if part != "" {
		now.Message = part + ": " + now.Message
	}
	if now.State == f.State && now.Message == f.Message {
		return n, nil
	}
	if now.State != f.State {
		d.Log.Info("drain", "engine", engine, "state", now.State, "message", now.Message)
	}
	return n, d.Store.SetDrain(ctx, engine, now)
}

// part returns what changes the load of an engine, and how many environments are to leave it. part
// names them in a message; "": all of them leave.
func (d *drainer) part(engine fleet.EngineName) (c placement.Change, left int, part string) {
	c = placement.Change{Kind: placement.Drain, Engine: engine}
	if left, c.Misplaced = d.misplaced[engine]; c.Misplaced {
		return c, left, "misplaced environments"
	}
	if g, gives := d.gives[engine]; gives {
		return g.change, g.left, "environments for engine " + string(g.change.Engine)
	}
	return c, 0, ""
}

// awaitAgents leaves the environments on the engine whose own agent, to which they would move, has
// not joined: a request would be refused, and refused ones stop a drain.
func (d *drainer) awaitAgents(ctx context.Context, out *placement.Outcome) error {
	moves := out.Moves[:0:0]
	for _, m := range out.Moves {
		var unfit []string
		if m.To.OfEnvironment() {
			var err error
			if unfit, err = d.Store.UnfitAgents(ctx, mirror.MoveRequest{Environment: m.Environment,
				Slice: m.Slice, To: m.To}); err != nil {
				return err
			}
		}
		if len(unfit) == 0 {
			moves = append(moves, m)
			continue
		}
		out.Left = append(out.Left, placement.Left{Environment: m.Environment, Slice: m.Slice,
			Engine: m.From, Applications: m.Applications, Reason: strings.Join(unfit, "; ")})
	}
	out.Moves = moves
	return nil
}

// openMoves are the slices that move off an engine, or are requested to.
func openMoves(f mirror.DrainFacts) (ids []fleet.SliceID) {
	for _, m := range f.Open {
		ids = append(ids, m.ID())
	}
	return ids
}

// knows reports whether a published state has every plan that was recorded. Without the last one,
// an environment whose move is over in the database is on its former engine here: a simulation
// would move another one in its place. The next publication checks the drains again.
func (d *drainer) knows(ctx context.Context, at *basis) (bool, error) {
	now, err := d.Store.Mirror(ctx)
	return now.Plan == at.plan, err
}

// request simulates the change and requests the first moves off the engine.
func (d *drainer) request(ctx context.Context, at *basis, engine fleet.EngineName,
	c placement.Change, f mirror.DrainFacts, now mirror.Drain, allowed int, churn fleet.Churn) (
	int, mirror.Drain, error) {
	delete(d.retry, engine)
	if knows, err := d.knows(ctx, at); err != nil || !knows {
		return 0, now, err
	}
	unready, err := d.Unready.Unready(ctx)
	if err != nil {
		return 0, now, err
	}
	// The simulation may choose others than those whose move is requested and not planned yet. They
	// are counted before it: what is planned meanwhile, it knows.
	requested := len(at.state.PlacedOn(engine, openMoves(f)))
	out, err := d.simulate(ctx, func() (placement.Outcome, error) {
		return at.state.Simulate(c, unready)
	})
	if err != nil {
		return 0, now, err
	}
	if c.Pool != "" {
		out.Moves = slices.DeleteFunc(out.Moves, func(m placement.Move) bool {
			return m.From != engine
		})
		d.gives[engine] = giver{c, len(out.Moves)}
		f.Environments = len(out.Moves)
		now, allowed = drain.Assess(f, churn)
		allowed = max(0, min(allowed, len(out.Moves)-requested))
	}
	if err := d.awaitAgents(ctx, &out); err != nil {
		return 0, now, err
	}
	next := drain.Next(out, f, allowed)
	if len(next) == 0 {
		now = drain.Stuck(out, f, now)
		d.retry[engine] = attempt{at: time.Now(), revision: at.revision, drain: now}
		return 0, now, nil
	}
	n, err := d.Store.RequestDrain(ctx, engine, churn, next)
	return n, now, err
}
