package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// Shadows is a store that knows the shadows of managed engines (ADR 0072). The methods carry the
// lease of the engine.
type Shadows interface {
	Instances
	// WantedShadow returns the engine's shadow; false if it has none.
	WantedShadow(ctx context.Context, lease mirror.Lease) (mirror.Shadow, bool, error)
	// ShadowTasks returns the next Applications to compare, by name.
	ShadowTasks(ctx context.Context, lease mirror.Lease, digest, basis, after string, limit int) (
		[]mirror.ShadowTask, error)
	// RecordShadow records comparisons.
	RecordShadow(ctx context.Context, lease mirror.Lease, digest string,
		results []mirror.ShadowResult) error
	// ReportShadow records how far the shadow has come.
	ReportShadow(ctx context.Context, lease mirror.Lease, digest string, state mirror.ShadowState,
		why string) error
}

// shadower compares what the next version of the engine's Argo CD renders with what the present one
// renders, for as long as the leader wants it.
type shadower struct {
	*connection
	manifests mirror.RingManifests // of the last step
	compared  time.Time            // the last complete comparison
}

const (
	shadowEvery = 5 * time.Second // between two steps of a shadow that is not ready
	// between two comparisons of what has changed
	compareEvery = time.Minute
	// Applications that are recorded together, and how many render at a time: the present
	// repo-server serves its application-controller meanwhile
	shadowBatch    = 50
	shadowParallel = 2
	// failed comparisons after which a round ends: the repo-server is gone
	shadowFailures = 5
)

// run takes steps until ctx ends.
func (s *shadower) run(ctx context.Context) error {
	store, ok := s.Rows.(Shadows)
	target, is := engine.As[engine.Shadower](s.target)
	if !ok || !is || s.Evacuated || s.Engine.OfEnvironment() {
		return nil
	}
	for {
		pause, err := s.step(ctx, store, target)
		if err != nil && !s.retryable(ctx, err) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(pause, s.Poll)):
		}
	}
}

// step takes the next step and returns the pause until another one.
func (s *shadower) step(ctx context.Context, store Shadows, target engine.Shadower) (time.Duration,
	error) {
	if !s.lease.Valid() {
		return shadowEvery, nil
	}
	wanted, ok, err := store.WantedShadow(ctx, s.lease.Lease())
	switch {
	case err != nil || !ok:
		return wantedEvery, err
	case wanted.State == mirror.ShadowEnding:
		s.compared = time.Time{}
		return shadowEvery, s.end(ctx, store, target, wanted)
	case wanted.State == mirror.ShadowCompared && wanted.Digest == s.manifests.Digest &&
		time.Since(s.compared) < min(compareEvery, 6*s.Poll):
		return shadowEvery, nil
	}
	state, why, err := s.compare(ctx, store, target, wanted)
	switch {
	case ctx.Err() != nil || !s.lease.Valid():
		return shadowEvery, nil
	case err != nil:
		state, why = mirror.ShadowFailed, err.Error()
	}
	if state == mirror.ShadowCompared {
		s.compared = time.Now()
	} else if state != wanted.State || short(why) != wanted.Message {
		s.Log.Info("shadow of a managed engine", "engine", s.Engine, "version", wanted.Version,
			"state", state, "reason", why)
	}
	return shadowEvery, store.ReportShadow(ctx, s.lease.Lease(), wanted.Digest, state, short(why))
}

func (s *shadower) end(ctx context.Context, store Shadows, target engine.Shadower,
	wanted mirror.Shadow) error {
	writing, end := s.lease.Writing(ctx)
	defer end()
	waits, err := target.EndShadow(writing)
	if err != nil || waits != "" {
		return err
	}
	return store.ReportShadow(ctx, s.lease.Lease(), wanted.Digest, mirror.ShadowEnded, "")
}

// compare renders what has changed since the last comparison. It returns the state of the shadow
// and the reason. An error means that the shadow cannot render.
func (s *shadower) compare(ctx context.Context, store Shadows, target engine.Shadower,
	wanted mirror.Shadow) (mirror.ShadowState, string, error) {
	if s.manifests.Digest != wanted.Digest {
		m, err := store.Manifests(ctx, wanted.Digest)
		if err != nil {
			return "", "", fmt.Errorf("read the manifests: %w", err)
		}
		s.manifests = m
	}
	waits, err := s.start(ctx, target)
	if err != nil || waits != "" {
		return mirror.ShadowRendering, waits, err
	}
	c, err := target.OpenShadow(ctx)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = c.Close() }()
	r := &round{shadower: s, store: store, comparison: c, digest: wanted.Digest}
	if err := r.run(ctx); err != nil {
		return "", "", err
	}
	return mirror.ShadowCompared, "", nil
}

func (s *shadower) start(ctx context.Context, target engine.Shadower) (string, error) {
	writing, end := s.lease.Writing(ctx)
	defer end()
	return target.StartShadow(writing, s.manifests, s.lease.Lease().Epoch)
}

// round is one comparison of all Applications that have changed.
type round struct {
	*shadower
	store      Shadows
	comparison engine.Comparison
	digest     string

	mu      sync.Mutex
	results []mirror.ShadowResult
	failed  []error
	times   engine.Times
}

// run records each batch of comparisons at once: another worker goes on from there.
func (r *round) run(ctx context.Context) error {
	began, basis, compared, different := time.Now(), r.comparison.Basis(), 0, 0
	for after := ""; ; {
		tasks, err := r.store.ShadowTasks(ctx, r.lease.Lease(), r.digest, basis, after, shadowBatch)
		if err != nil {
			return err
		}
		if len(tasks) == 0 {
			break
		}
		after = tasks[len(tasks)-1].Name
		r.render(ctx, tasks)
		if err := r.store.RecordShadow(ctx, r.lease.Lease(), r.digest, r.results); err != nil {
			return err
		}
		for _, done := range r.results {
			compared++
			if done.Hash != "" {
				different++
			}
		}
		r.results = nil
		if len(r.failed) >= shadowFailures || ctx.Err() != nil {
			break
		}
	}
	if compared > 0 {
		r.Log.Info("Applications compared under the next Argo CD", "engine", r.Engine, "version",
			r.manifests.Version, "applications", compared, "different", different, "failed",
			len(r.failed), "took", time.Since(began).Round(time.Millisecond), "present",
			r.times.Present.Round(time.Millisecond), "next", r.times.Next.Round(time.Millisecond))
	}
	if n := len(r.failed); n > 0 {
		return fmt.Errorf("%d Applications were not compared: %w", n, r.failed[0])
	}
	return ctx.Err()
}

// render compares the tasks, some at a time.
func (r *round) render(ctx context.Context, tasks []mirror.ShadowTask) {
	queue := make(chan mirror.ShadowTask)
	var all sync.WaitGroup
	for range shadowParallel {
		all.Go(func() {
			for task := range queue {
				r.one(ctx, task)
			}
		})
	}
	for _, task := range tasks {
		queue <- task
	}
	close(queue)
	all.Wait()
}

func (r *round) one(ctx context.Context, task mirror.ShadowTask) {
	r.mu.Lock()
	stop := len(r.failed) >= shadowFailures || ctx.Err() != nil
	r.mu.Unlock()
	if stop {
		return
	}
	result, times, err := r.comparison.Compare(ctx, task)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times.Present += times.Present
	r.times.Next += times.Next
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return
	}
	if err != nil {
		r.failed = append(r.failed, err)
		return
	}
	r.results = append(r.results, result)
}
