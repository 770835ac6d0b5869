package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// registerPools registers a person's decisions about pools.
func (s *Server) registerPools() {
	pause := []guard{s.may(access.Pause, access.Pool)}
	for _, d := range []struct {
		verb, id, summary string
		decide            func(context.Context, mirror.PoolDecision) error
	}{
		{"pause", "pausePool", "Make and drain no further instance of a pool (platform)",
			s.decider.PausePool},
		{"resume", "resumePool", "End the pause of a pool (platform)", s.decider.ResumePool},
	} {
		huma.Register(s.api, operation(http.MethodPost, "/pools/"+d.verb, d.id, d.summary,
			"decisions", pause),
			func(ctx context.Context, in *asked[mirror.PoolDecision]) (*body[mirror.Pool], error) {
				return s.decidePool(ctx, in.Body, d.decide)
			})
	}
}

// decidePool reads the pool first: a misspelt name is not found.
func (s *Server) decidePool(ctx context.Context, d mirror.PoolDecision,
	decide func(context.Context, mirror.PoolDecision) error) (*body[mirror.Pool], error) {
	caller := callerOf(ctx)
	d.By = caller.Subject()
	of := view.Filter{Name: d.Pool}
	p, err := single(ctx, s.deciding.Pools, caller.Scope(), of)
	if err == nil {
		err = decide(ctx, d)
	}
	if err == nil {
		p, err = single(ctx, s.deciding.Pools, caller.Scope(), of)
	}
	if err != nil {
		return nil, s.answer(ctx, subjectf("pool %s", d.Pool), err)
	}
	return &body[mirror.Pool]{p}, nil
}
