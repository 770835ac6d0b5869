package reconciler

import (
	"context"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/plan"
)

// Simulator computes what a change of an engine would move, on any replica, from the store alone:
// the loop does not wait for it.
type Simulator struct {
	mirror  MirrorReader
	unready UnreadyReader
	loads   LoadReader
	// computing is full while a simulation runs: each has the whole applied state in memory.
	computing chan struct{}
}

// MirrorReader reads the applied state.
type MirrorReader interface {
	Load(ctx context.Context) (mirror.Snapshot, error)
}

// UnreadyReader reads the status of Applications.
type UnreadyReader interface {
	// Unready counts the Applications of each slice that are not Synced and Healthy, if there
	// are any.
	Unready(ctx context.Context) (map[fleet.SliceID]int, error)
}

// LoadReader reads the measured load of engines.
type LoadReader interface {
	// Measured returns the load of the measured engines, and what excludes engines and
	// environments from a rebalance. After the end of a move, its engines are measured again.
	Measured(ctx context.Context, again time.Duration) (mirror.Measured, error)
}

// NewSimulator returns a Simulator over a store.
func NewSimulator(m MirrorReader, u UnreadyReader, l LoadReader) *Simulator {
	return &Simulator{mirror: m, unready: u, loads: l, computing: make(chan struct{}, 1)}
}

// Simulate returns what a change would move from the state that the store has now. Errors: a
// placement.ImpossibleError, and those of the store.
func (s *Simulator) Simulate(ctx context.Context, c placement.Change) (placement.Outcome, error) {
	select {
	case s.computing <- struct{}{}:
		defer func() { <-s.computing }()
	case <-ctx.Done():
		return placement.Outcome{}, ctx.Err()
	}
	snapshot, err := s.mirror.Load(ctx)
	if err != nil {
		return placement.Outcome{}, err
	}
	unready, err := s.unready.Unready(ctx)
	if err != nil {
		return placement.Outcome{}, err
	}
	state, err := plan.RestoreAppliedState(snapshot)
	if err != nil {
		return placement.Outcome{}, err
	}
	if c.Kind != placement.Rebalance || c.Engine != "" {
		return state.Simulate(c, unready)
	}
	measured, err := s.loads.Measured(ctx, mirror.MeasureAgain)
	if err != nil {
		return placement.Outcome{}, err
	}
	return state.Rebalance(unready, measured)
}
