package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/reconciler/reach"
)

// prober measures whether the engine works: it requests a refresh of the engine's probe every
// minute, and evaluates the comparisons of all Applications.
type prober struct {
	*connection
	changed pacing.Signal // the state has changed: maintain reports it

	mu       sync.Mutex
	work     *reach.Work
	last     mirror.Work
	remedied time.Time // the last step of a remedy
}

const probeEvery = 5 * time.Second // between two questions for an answer

func newProber(c *connection, limits reach.WorkLimits) *prober {
	if limits == (reach.WorkLimits{}) {
		limits = reach.DefaultWorkLimits
	}
	return &prober{connection: c, changed: pacing.NewSignal(), work: reach.NewWork(limits)}
}

// observe takes the results of comparisons. It never waits for a request.
func (p *prober) observe(seen []engine.Contact) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, c := range seen {
		p.work.Observe(now, c)
	}
}

// run probes until ctx ends. An environment's own cluster is not probed: its Argo CD belongs to the
// cluster's users.
func (p *prober) run(ctx context.Context) error {
	target, ok := engine.As[engine.Prober](p.target)
	if !ok || p.Engine.OfEnvironment() {
		return nil
	}
	tick := time.NewTicker(min(probeEvery, p.Poll))
	defer tick.Stop()
	// engines that were connected to together are not probed in the same second
	pacing.Sleep(ctx, rand.N(min(probeEvery, p.Poll)))
	for {
		if err := p.probe(ctx, target); err != nil && !p.retryable(ctx, err) {
			return err
		}
		p.judge()
		if err := p.remedy(ctx); err != nil && !p.retryable(ctx, err) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// probe takes the next step: it requests a refresh that is due, or asks for the answer to one.
func (p *prober) probe(ctx context.Context, target engine.Prober) error {
	p.mu.Lock()
	if p.target.Health() != nil {
		p.work.Abandon() // it is reported as unreachable
		p.mu.Unlock()
		return nil
	}
	due, open := p.work.Due(time.Now()), p.work.Open()
	p.mu.Unlock()
	switch {
	case open:
		left, err := target.Probed(ctx)
		if errors.Is(err, engine.ErrNoProbe) && p.lease.Valid() {
			ctx, end := p.lease.Writing(ctx)
			defer end()
			return target.RequestProbe(ctx) // the answer is due as before
		}
		if err != nil {
			return err
		}
		if left != "" {
			p.mu.Lock()
			p.work.Unanswered(left)
			p.mu.Unlock()
			return p.askAgain(ctx, target)
		}
		p.mu.Lock()
		took := p.work.Answered(time.Now())
		p.mu.Unlock()
		p.Metrics.probed(p.Engine, took)
		return nil
	case !due || !p.lease.Valid():
		return nil
	}
	ctx, end := p.lease.Writing(ctx)
	defer end()
	asked := time.Now()
	err := target.RequestProbe(ctx)
	if errors.Is(err, engine.ErrStopped) || errors.Is(err, engine.ErrUnfit) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.work.Forget(time.Now())
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.work.Failed(asked)
		return err
	}
	p.work.Asked(asked)
	return nil
}

// askAgain requests a refresh again whose answer is late.
func (p *prober) askAgain(ctx context.Context, target engine.Prober) error {
	p.mu.Lock()
	due := p.work.AskAgain(time.Now())
	p.mu.Unlock()
	if !due || !p.lease.Valid() {
		return nil
	}
	ctx, end := p.lease.Writing(ctx)
	defer end()
	return target.RequestProbe(ctx)
}

// judge publishes a changed state.
func (p *prober) judge() {
	p.mu.Lock()
	now := p.work.State(time.Now())
	before := p.last
	p.last = now
	p.mu.Unlock()
	if now.State == before.State && now.Since.IsZero() == before.Since.IsZero() {
		return
	}
	p.setWork(now)
	p.changed.Set()
	switch {
	case now.Faulty():
		p.Log.Warn("the engine does not work", "engine", p.Engine, "state", now.State,
			"since", now.Since, "reason", now.Message)
	case before.Faulty():
		p.Log.Info("the engine works again", "engine", p.Engine, "after",
			time.Since(before.Since).Round(time.Second), "before", before.State)
	}
}
