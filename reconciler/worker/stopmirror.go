package worker

import (
	"context"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/reconciler/lease"
)

// stopMirror keeps the emergency stops on the engine as well, so that they outlive the database,
// and restores stops that only the engine remembers.
type stopMirror struct {
	*connection
	done bool // the engine has the stops in force
}

// write reads the stops that the engine remembers and writes the stops in force, unless that is
// done.
func (m *stopMirror) write(ctx context.Context) error {
	if m.done {
		return nil
	}
	there, err := m.read(ctx)
	if err == nil {
		err = m.update(ctx, m.Stops.On(m.Engine), there)
	}
	if err != nil {
		return fmt.Errorf(
			"mirror the emergency stops to engine %s; until then they hold by the database "+
				"alone: %w", m.Engine, err)
	}
	m.done = true
	return nil
}

// read reads the stops that the engine remembers. The board takes the stops whose end is unknown.
func (m *stopMirror) read(ctx context.Context) ([]mirror.Stop, error) {
	there, err := m.target.ReadStops(ctx)
	if err == nil {
		m.Stops.remembered(m.Engine, there)
	}
	return there, err
}

// await waits until the stops on the engine were read: they may be newer than the database.
func (m *stopMirror) await(ctx context.Context) error {
	for {
		_, err := m.read(ctx)
		if err == nil {
			return nil
		}
		if !m.retryable(ctx, err) {
			return err
		}
		m.healthy = false
		m.report(ctx, m.lease, mirror.EngineReport{
			Engine: m.Engine,
			Message: "nothing is written until the emergency stops that the engine remembers " +
				"can be read: " + err.Error()})
		if !pacing.Sleep(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
}

// update writes the stops in force that the engine lacks or has in an older version, and clears
// stops that have ended.
func (m *stopMirror) update(ctx context.Context, wanted, there []mirror.Stop) error {
	ctx, end := m.lease.Writing(ctx)
	defer end()
	known := map[stopPlace]mirror.Stop{}
	for _, stop := range there {
		if !stop.At.IsZero() { // only a person may remove an unreadable note
			known[placeOf(stop)] = stop
		}
	}
	for _, stop := range wanted {
		if marked, ok := known[placeOf(stop)]; !ok || marked.At.Before(stop.At) {
			if !m.lease.Valid() {
				return lease.ErrLost
			}
			if err := m.target.SetStop(ctx, stop); err != nil {
				return err
			}
		}
		delete(known, placeOf(stop))
	}
	for at, stop := range known {
		if !m.Stops.over(stop) {
			continue
		}
		if !m.lease.Valid() {
			return lease.ErrLost
		}
		if err := m.target.ClearStop(ctx, at.scope, at.name); err != nil {
			return err
		}
	}
	return nil
}
