package api

import (
	"context"
	"errors"
	"net/http"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"github.com/danielgtaylor/huma/v2"
)

func (s *Server) registerRebalances(platform []guard) {
	for _, d := range []struct {
		verb, summary string
		decide        func(context.Context, mirror.RebalanceDecision) error
	}{
		{"accept", "Accept a proposed rebalance: its moves are requested (platform)",
			s.decider.AcceptRebalance},
		{"reject", "End a rebalance, proposed or accepted; moves under way go on (platform)",
			s.decider.RejectRebalance},
		{"pause", "Request no further move of an accepted rebalance (platform)",
			s.decider.PauseRebalance},
		{"resume", "Let a rebalance go on that is paused, or stopped by moves that failed " +
			"(platform)", s.decider.ResumeRebalance},
	} {
		huma.Register(s.api, operation(http.MethodPost, "/rebalances/"+d.verb, d.verb+"Rebalance",
			d.summary, "decisions", platform),
			func(ctx context.Context, in *asked[mirror.RebalanceDecision]) (
				*body[mirror.Rebalance], error) {
				return s.decideRebalance(ctx, in.Body, d.verb, d.decide)
			})
	}
}

// decideRebalance reads the rebalance first: a misspelt id is not found.
func (s *Server) decideRebalance(ctx context.Context, d mirror.RebalanceDecision, verb string,
	decide func(context.Context, mirror.RebalanceDecision) error) (*body[mirror.Rebalance],
	error) {
	caller := callerOf(ctx)
	subject, of := subjectf("rebalance %s", d.ID), view.Filter{Name: d.ID}
	d.By = caller.Subject()
	r, err := single(ctx, s.deciding.Rebalances, caller.Scope(), of)
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	err = decide(ctx, d)
	if errors.Is(err, mirror.ErrRebalanceState) {
		return nil, problem(http.StatusConflict, subject, "it is "+string(r.State)+
			", so there is nothing to "+verb, "see `argosy get rebalances`")
	}
	if err == nil {
		r, err = single(ctx, s.deciding.Rebalances, caller.Scope(), of)
	}
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	return &body[mirror.Rebalance]{r}, nil
}
