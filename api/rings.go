package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// registerRings registers a person's decisions about rings.
func (s *Server) registerRings() {
	pause := []guard{s.may(access.Pause, access.Ring)}
	for _, d := range []struct {
		verb, id, summary string
		decide            func(context.Context, mirror.RingDecision) error
	}{
		{"pause", "pauseRing", "Begin to change no further engine of a ring (platform)",
			s.decider.PauseRing},
		{"resume", "resumeRing", "Let a ring go on that is paused, halted or returned (platform)",
			s.decider.ResumeRing},
		{"return", "returnRing", "Halt a ring, and give its engines their last version again " +
			"(platform)", s.decider.ReturnRing},
	} {
		huma.Register(s.api, operation(http.MethodPost, "/rings/"+d.verb, d.id, d.summary,
			"decisions", pause),
			func(ctx context.Context, in *asked[mirror.RingDecision]) (*body[mirror.Ring], error) {
				return s.decideRing(ctx, in.Body, d.decide)
			})
	}
}

// decideRing reads the ring first: a misspelt name is not found.
func (s *Server) decideRing(ctx context.Context, d mirror.RingDecision,
	decide func(context.Context, mirror.RingDecision) error) (*body[mirror.Ring], error) {
	caller := callerOf(ctx)
	subject := subjectf("ring %s", d.Ring)
	d.By = caller.Subject()
	of := view.Filter{Name: d.Ring}
	r, err := single(ctx, s.deciding.Rings, caller.Scope(), of)
	if err == nil {
		err = decide(ctx, d)
	}
	if errors.Is(err, mirror.ErrNoRing) {
		return nil, problem(http.StatusConflict, subject, "its engines have passed the gates of "+
			r.Version, "declare the earlier version in fleet/fleet.yaml")
	}
	if err == nil {
		r, err = single(ctx, s.deciding.Rings, caller.Scope(), of)
	}
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	return &body[mirror.Ring]{r}, nil
}
