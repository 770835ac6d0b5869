package worker

import (
	"context"
	"errors"
	"time"

	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// Remedies is a store that knows the remedies of engines (ADR 0063). Both methods carry the lease
// of the engine.
type Remedies interface {
	// OpenRemedy returns the remedy to carry out; false if there is none.
	OpenRemedy(ctx context.Context, lease mirror.Lease) (mirror.Remedy, bool, error)
	// ReportRemedy records how far it has come; mirror.RemedyFailed ends it.
	ReportRemedy(ctx context.Context, lease mirror.Lease, id string, state mirror.RemedyState,
		why string) error
}

// remedyEvery is between two steps of a remedy.
const remedyEvery = 5 * time.Second

// remedy takes the next step of a remedy. It asks the store only while this session's own evidence
// shows a fault: nothing is restarted for what an earlier worker has measured.
func (p *prober) remedy(ctx context.Context) error {
	p.mu.Lock()
	due := p.last.Faulty() && time.Since(p.remedied) >= min(remedyEvery, p.Poll)
	fault := p.last.State
	if due {
		p.remedied = time.Now()
	}
	p.mu.Unlock()
	store, ok := p.Rows.(Remedies)
	if !due || !ok || !p.lease.Valid() {
		return nil
	}
	r, ok, err := store.OpenRemedy(ctx, p.lease.Lease())
	if err != nil || !ok || r.Fault != fault {
		return err
	}
	ctx, end := p.lease.Writing(ctx)
	defer end()
	state, why := p.restart(ctx, store, r)
	if state == "" {
		return nil // the session or the lease ends
	}
	p.Log.Warn("remedy", "engine", p.Engine, "restarts", r.Restarts, "state", state, "reason", why)
	return store.ReportRemedy(ctx, p.lease.Lease(), r.ID, state, short(why))
}

// restart returns the state of a remedy after one more step, and its reason.
func (p *prober) restart(ctx context.Context, store Remedies, r mirror.Remedy) (mirror.RemedyState,
	string) {
	target, ok := engine.As[engine.Restarter](p.target)
	if !ok {
		return mirror.RemedyFailed, "its components cannot be restarted"
	}
	if r.State == mirror.RemedyRequested { // recorded before the first write
		if err := target.CheckRestart(ctx, r.Restarts); err != nil {
			return p.refused(ctx, r, err)
		}
		if err := store.ReportRemedy(ctx, p.lease.Lease(), r.ID, mirror.RemedyRestarting,
			""); err != nil {
			return "", ""
		}
		r.State = mirror.RemedyRestarting
	}
	waits, err := target.Restart(ctx, r.Restarts, r.RequestedAt)
	switch {
	case err != nil:
		return p.refused(ctx, r, err)
	case waits != "":
		return r.State, waits
	}
	return mirror.RemedyRestarted, ""
}

// refused returns the state after a failed step. Only what a person has to fix ends the remedy.
func (p *prober) refused(ctx context.Context, r mirror.Remedy, err error) (mirror.RemedyState,
	string) {
	switch {
	case ctx.Err() != nil || !p.lease.Valid():
		return "", ""
	case errors.Is(err, engine.ErrRefused):
		return mirror.RemedyFailed, err.Error()
	}
	return r.State, err.Error()
}
