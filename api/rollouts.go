package api

import (
	"context"
	"errors"
	"net/http"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"github.com/danielgtaylor/huma/v2"
)

func (s *Server) registerRollouts(writers []func(huma.Context, func(huma.Context))) {
	for _, d := range []struct {
		verb    mirror.RolloutVerb
		summary string
	}{
		{mirror.PauseRollout, "Let no further Application of a rollout change; a tenant may decide " +
			"about its own"},
		{mirror.ResumeRollout, "Let a rollout go on that is paused, or try again that has failed or " +
			"returned; a tenant may decide about its own"},
		{mirror.AbortRollout, "Give the Applications of a rollout their last good state back; a tenant " +
			"may decide about its own"},
		{mirror.ApproveRollout, "Let the wave begin that awaits approval; a tenant may decide about " +
			"its own"},
	} {
		huma.Register(s.api, operation(http.MethodPost, "/rollouts/"+string(d.verb),
			string(d.verb)+"Rollout", d.summary, "decisions", writers),
			func(ctx context.Context, in *asked[mirror.RolloutDecision]) (
				*body[mirror.Rollout], error) {
				in.Body.Verb = d.verb
				return s.decideRollout(ctx, in.Body)
			})
	}
}

// decideRollout reads the rollout first: one outside of the caller's scope is not found.
func (s *Server) decideRollout(ctx context.Context, d mirror.RolloutDecision) (
	*body[mirror.Rollout], error) {
	caller := callerOf(ctx)
	subject := subjectf("rollout of %s/%s", d.Tenant, d.Deployment)
	d.By = caller.Subject()
	found, _, err := s.deciding.Rollouts(ctx, caller.Scope(),
		view.Filter{Tenant: d.Tenant, Deployment: d.Deployment}, view.Page{Limit: 1})
	if err == nil && len(found) == 0 {
		return nil, problem(http.StatusNotFound, subject, "no change of it goes in waves",
			"see `argosy get rollouts`")
	}
	if err == nil {
		err = s.decider.DecideRollout(ctx, d)
	}
	if errors.Is(err, mirror.ErrRolloutState) {
		return nil, problem(http.StatusConflict, subject, "it is "+string(found[0].State)+
			", so there is nothing to "+string(d.Verb), "see `argosy describe rollout "+
			string(d.Tenant)+"/"+string(d.Deployment)+"`")
	}
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	return &body[mirror.Rollout]{found[0]}, nil
}
