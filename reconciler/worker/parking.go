package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/reach"
)

// parking tracks which clusters the engine reaches, and parks the Applications of clusters that do
// not answer.
type parking struct {
	*connection

	mu    sync.Mutex
	board *reach.Board
	whole bool // the store has a complete report of this session
}

const (
	reachEvery  = 5 * time.Second
	parkAtATime = 200 // Applications between two reports
	parkFlight  = 8   // parallel requests
)

func newParking(c *connection, limits reach.Limits) *parking {
	if limits == (reach.Limits{}) {
		limits = reach.Defaults
	}
	return &parking{connection: c, board: reach.New(limits, func(d time.Duration) time.Duration {
		return d + rand.N(d/4+1) // never earlier: Argo CD would answer from its cache
	})}
}

// observe takes the engine's contacts to clusters. It never waits for a request.
func (p *parking) observe(seen []engine.Contact) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, c := range seen {
		p.board.Observe(now, c)
	}
}

// changed resets an environment whose declaration or credential was written to the engine.
func (p *parking) changed(row mirror.Row) {
	if row.Key.Kind != fleet.ObjectCluster {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.board.Changed(time.Now(), fleet.EnvironmentID{Tenant: row.Tenant, Name: row.Environment})
}

// ask requests a probe of an environment's cluster, which a sync waits for.
func (p *parking) ask(id fleet.EnvironmentID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.board.RequestProbe(time.Now(), id)
}

func (p *parking) decide() []engine.ParkRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.board.Decide(time.Now(), parkAtATime)
}

func (p *parking) refused(r engine.ParkRequest, id fleet.EnvironmentID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.board.Refused(r, id)
}

// reports are the changes since the last report; the first report of a session has everything.
func (p *parking) reports() (news []mirror.Reach, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news = p.board.Report()
	if !p.whole {
		return p.board.All(), true
	}
	return news, false
}

func (p *parking) reported(news []mirror.Reach, whole bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil && !whole:
		p.board.Unreported(news)
	case err == nil && whole:
		p.whole = true
	}
}

// run parks and probes until ctx ends. An environment's own cluster is not parked: it has no
// neighbours that would wait for it.
func (p *parking) run(ctx context.Context) error {
	if p.Engine.OfEnvironment() {
		return nil
	}
	tick := time.NewTicker(min(reachEvery, 10*p.Poll))
	defer tick.Stop()
	for {
		if err := p.runSteps(ctx, p.parkOnce, p.reportReach); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (p *parking) parkOnce(ctx context.Context) error {
	if !p.confirmed.Load() || p.Stops.Stopped(p.Engine)("") {
		return nil
	}
	return parallel(p.decide(), parkFlight, func(r engine.ParkRequest) error {
		return p.parkOne(ctx, r)
	})
}

func (p *parking) parkOne(ctx context.Context, request engine.ParkRequest) error {
	live, ok := p.target.Live(request.Key)
	if !ok {
		return nil
	}
	ctx, end := p.lease.Writing(ctx)
	defer end()
	err := p.target.Park(ctx, request, p.lease.Lease())
	if err == nil {
		return nil
	}
	p.refused(request, fleet.EnvironmentID{Tenant: live.Tenant, Name: live.Environment})
	if errors.Is(err, engine.ErrStopped) && p.lease.Valid() {
		return nil
	}
	if errors.Is(err, engine.ErrFenced) && p.forged(request.Key) {
		return nil
	}
	return fmt.Errorf("park Application %s: %w", request.Key.Name, p.refusal(err))
}

func (p *parking) reportReach(ctx context.Context) error {
	news, whole := p.reports()
	if len(news) == 0 && !whole {
		return nil
	}
	err := p.Reports.ReportReach(ctx, p.lease.Lease(), news, whole)
	p.reported(news, whole, err)
	if err != nil {
		return fmt.Errorf("report unreachable environments of engine %s: %w", p.Engine, err)
	}
	for _, r := range news {
		if u := r.Unreachable; u != nil {
			p.Log.Warn("the cluster of an environment cannot be read", "engine", p.Engine,
				"environment", r.Environment,
				"reason", u.Reason, "since", u.Since, "parked", u.Parked)
		} else {
			p.Log.Info("the cluster of an environment answers again", "engine", p.Engine,
				"environment", r.Environment)
		}
	}
	return nil
}
