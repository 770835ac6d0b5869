package api

import (
	"context"
	"errors"
	"net/http"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// forgetEngine reads the engine first: a misspelt name is not found.
func (s *Server) forgetEngine(ctx context.Context, in *asked[mirror.EngineForgetting]) (
	*body[view.Engine], error) {
	caller, r := callerOf(ctx), in.Body
	subject, of := subjectf("engine %s", r.Engine), view.Filter{Engine: r.Engine}
	r.By = caller.Subject()
	e, err := single(ctx, s.deciding.Engines, caller.Scope(), of)
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	if r.ConfirmGone != r.Engine {
		return nil, problem(http.StatusUnprocessableEntity, subject,
			"an engine is forgotten only with the confirmation that it never returns",
			"make sure of that, and repeat the name: --confirm-gone "+string(r.Engine))
	}
	if err = s.decider.ForgetEngine(ctx, r); err == nil {
		e, err = single(ctx, s.deciding.Engines, caller.Scope(), of)
	}
	if err != nil {
		return nil, s.forgetProblem(ctx, subject, r, err)
	}
	return &body[view.Engine]{e}, nil
}

func (s *Server) forgetProblem(ctx context.Context, subject string, r mirror.EngineForgetting,
	err error) error {
	name := string(r.Engine)
	switch {
	case errors.Is(err, mirror.ErrEngineAnswers):
		return problem(http.StatusConflict, subject, "its API server answers, so it is not gone",
			"wait until Argosy has removed what the engine has lost, and end the evacuation: "+
				"`argosy evacuate engine "+name+" --end`")
	case errors.Is(err, mirror.ErrNotEvacuated):
		return problem(http.StatusConflict, subject, "it is not evacuated",
			"give its environments other engines first: `argosy evacuate engine "+name+
				" --confirm-gone "+name+"`")
	case errors.Is(err, mirror.ErrServes):
		return problem(http.StatusConflict, subject, err.Error(),
			"wait for the evacuation; `argosy describe engine "+name+"` shows what stays and why")
	case errors.Is(err, mirror.ErrForgotten):
		return problem(http.StatusConflict, subject, "it is forgotten already",
			"see `argosy get unproven --engine "+name+"`")
	}
	return s.answer(ctx, subject, err)
}

func (s *Server) forgetCluster(ctx context.Context, in *asked[mirror.ClusterForgetting]) (
	*body[wire.Forgotten], error) {
	r := in.Body
	r.By = callerOf(ctx).Subject()
	name := r.ID().String()
	subject := subjectf("cluster of environment %s", name)
	if r.ConfirmGone != name {
		return nil, problem(http.StatusUnprocessableEntity, subject,
			"a cluster is forgotten only with the confirmation that it never returns",
			"make sure of that, and repeat the name: --confirm-gone "+name)
	}
	n, err := s.decider.ForgetCluster(ctx, r)
	switch {
	case errors.Is(err, mirror.ErrDeclared):
		return nil, problem(http.StatusConflict, subject, "the environment is declared",
			"remove it and its deployments from the config repo first; if the cluster has been "+
				"replaced, change spec.cluster instead")
	case errors.Is(err, mirror.ErrServes):
		return nil, problem(http.StatusConflict, subject, err.Error(),
			"remove the deployments from the config repo; `argosy get holds` shows held deletions")
	case errors.Is(err, mirror.ErrClusterAnswers):
		return nil, problem(http.StatusConflict, subject, err.Error(),
			"wait for the deletions; an engine notices within minutes that a cluster does not "+
				"answer; end the identity of an agent that is gone: `argosy agent revoke "+name+"`")
	case errors.Is(err, mirror.ErrNotFound):
		return nil, problem(http.StatusNotFound, subject, "no deletion waits for it",
			"see `argosy get applications --tenant "+string(r.Tenant)+"`")
	case err != nil:
		return nil, s.answer(ctx, subject, err)
	}
	return &body[wire.Forgotten]{wire.Forgotten{Unproven: n}}, nil
}

func (s *Server) resolveUnproven(ctx context.Context, in *asked[mirror.UnprovenResolution]) (
	*body[wire.Resolved], error) {
	r := in.Body
	r.By = callerOf(ctx).Subject()
	const subject = "unproven objects"
	if r.Scopes() != 1 || (r.Tenant == "") != (r.Environment == "") {
		return nil, problem(http.StatusUnprocessableEntity, subject,
			"select them by IDs, by engine, or by tenant and environment: by one of these",
			"see `argosy get unproven`")
	}
	n, err := s.decider.ResolveUnproven(ctx, r)
	if errors.Is(err, mirror.ErrNotFound) {
		return nil, problem(http.StatusNotFound, subject, "none of these is listed",
			"see `argosy get unproven`")
	}
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	return &body[wire.Resolved]{wire.Resolved{Objects: n}}, nil
}
