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

// parking follows which clusters the engine reaches, and has it leave those alone that do not
// answer.
type parking struct {
	mu    sync.Mutex
	board *reach.Board
	whole bool // what the store has of the engine is of this session
}

const (
	reachEvery  = 5 * time.Second
	parkAtATime = 200 // Applications, between two reports
	parkFlight  = 8   // requests at a time
)

func newParking(limits reach.Limits) *parking {
	if limits == (reach.Limits{}) {
		limits = reach.Defaults
	}
	return &parking{board: reach.New(limits, func(d time.Duration) time.Duration {
		return d + rand.N(d/4+1) // never earlier: Argo CD would give the answer that it had
	})}
}

// contacts takes what the engine shows. It never waits for a request.
func (p *parking) contacts(seen []engine.Contact) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, c := range seen {
		p.board.Observe(now, c)
	}
}

// changed says that the declaration or the credential of an environment was written to the engine.
func (p *parking) changed(row mirror.Row) {
	if row.Key.Kind != fleet.ObjectCluster {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.board.Changed(time.Now(), fleet.EnvironmentID{Tenant: row.Tenant, Name: row.Environment})
}

// ask says that a sync waits for an environment's cluster.
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

// reports are what the store has not heard of yet: after the session's begin, everything.
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

// park does what is decided about clusters that do not answer, beside everything else. An
// environment's own cluster has no neighbours that it could keep waiting.
func (s *session) park(ctx context.Context) error {
	if s.Engine.OfEnvironment() {
		return nil
	}
	tick := time.NewTicker(min(reachEvery, 10*s.Poll))
	defer tick.Stop()
	for {
		if err := s.steps(ctx, s.parkOnce, s.reportReach); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (s *session) parkOnce(ctx context.Context) error {
	if !s.confirmed.Load() || s.Stops.Stopped(s.Engine)("") {
		return nil
	}
	var mu sync.Mutex
	var failed []error
	var all sync.WaitGroup
	places := make(chan struct{}, parkFlight)
	for _, request := range s.parked.decide() {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if err := s.parkOne(ctx, request); err != nil {
				mu.Lock()
				failed = append(failed, err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

func (s *session) parkOne(ctx context.Context, request engine.ParkRequest) error {
	live, ok := s.target.Live(request.Key)
	if !ok {
		return nil
	}
	ctx, end := s.lease.Writing(ctx)
	defer end()
	err := s.target.Park(ctx, request, s.lease.Lease())
	if err == nil {
		return nil
	}
	s.parked.refused(request, fleet.EnvironmentID{Tenant: live.Tenant, Name: live.Environment})
	if errors.Is(err, engine.ErrStopped) && s.lease.Valid() {
		return nil
	}
	if errors.Is(err, engine.ErrFenced) && s.forged(request.Key) {
		return nil
	}
	return fmt.Errorf("park Application %s: %w", request.Key.Name, s.refusal(err))
}

func (s *session) reportReach(ctx context.Context) error {
	news, whole := s.parked.reports()
	if len(news) == 0 && !whole {
		return nil
	}
	err := s.Rows.ReportReach(ctx, s.lease.Lease(), news, whole)
	s.parked.reported(news, whole, err)
	if err != nil {
		return fmt.Errorf("report unreachable environments of engine %s: %w", s.Engine, err)
	}
	for _, r := range news {
		if u := r.Unreachable; u != nil {
			s.Log.Warn("the cluster of an environment cannot be read", "engine", s.Engine,
				"environment", r.Environment,
				"reason", u.Reason, "since", u.Since, "parked", u.Parked)
		} else {
			s.Log.Info("the cluster of an environment answers again", "engine", s.Engine,
				"environment", r.Environment)
		}
	}
	return nil
}
