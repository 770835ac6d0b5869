package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"github.com/danielgtaylor/huma/v2"
)

func (s *Server) registerRollouts() {
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
		{mirror.ApproveRollout, "Let the wave begin that awaits approval; it takes the platform, or a " +
			"token of an owner of the tenant"},
	} {
		guards := []guard{s.may(access.Pause, access.Rollout)}
		if d.verb == mirror.ApproveRollout {
			guards = s.approving(access.Rollout)
		}
		huma.Register(s.api, operation(http.MethodPost, "/rollouts/"+string(d.verb),
			string(d.verb)+"Rollout", d.summary, "decisions", guards),
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
	if err == nil && d.Verb == mirror.ApproveRollout {
		d.By, err = s.approver(ctx, caller, d.Tenant)
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

// approver names the owner that a token approves for. Approvals are for the owners of a tenant, who
// review its files: another token of it may be one of a pipeline.
func (s *Server) approver(ctx context.Context, caller view.Token, t fleet.TenantName) (string,
	error) {
	if caller.Tenant == "" || caller.SignedIn != nil &&
		caller.Owner == "" && caller.May(access.Approve, access.Tenant, t).Allowed {
		return caller.Person(), nil
	}
	tenant, err := single(ctx, s.deciding.Tenants, caller.Scope(), view.Filter{Tenant: t})
	if err != nil || caller.Owns(tenant.Owners) {
		return caller.Person(), err
	}
	if caller.SignedIn != nil {
		return "", forbidden(caller, subjectf("tenant %s", t),
			caller.May(access.Approve, access.Tenant, t))
	}
	why, owner := "this token is of no owner of the tenant, and owners alone approve", "OWNER"
	if caller.Owner != "" {
		why = caller.Owner + " is no owner of the tenant any more"
	}
	if len(tenant.Owners) > 0 {
		owner = tenant.Owners[0]
	}
	return "", problem(http.StatusForbidden, subjectf("tenant %s", t), why, "use a token of "+
		strings.Join(tenant.Owners, " or ")+", or ask the platform for one: `argosy token create "+
		"NAME --tenant "+string(t)+" --write --owner "+owner+"`")
}
