package api

import (
	"context"
	"errors"
	"net/http"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// evacuate reads the engine first: a misspelt name is not found.
func (s *Server) evacuate(ctx context.Context, in *asked[mirror.EvacuationRequest]) (
	*body[view.Engine], error) {
	caller, r := callerOf(ctx), in.Body
	subject, of := subjectf("engine %s", r.Engine), view.Filter{Engine: r.Engine}
	r.By = caller.Subject()
	e, err := single(ctx, s.deciding.Engines, caller.Scope(), of)
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	if refusal := evacuable(e, r); refusal != nil {
		return nil, refusal
	}
	switch {
	case r.End:
		err = s.decider.EndEvacuation(ctx, r)
	case r.Fence:
		_, err = s.decider.RequestFence(ctx, r)
	default:
		err = s.decider.RequestEvacuation(ctx, r)
	}
	if err == nil {
		e, err = single(ctx, s.deciding.Engines, caller.Scope(), of)
	}
	if err != nil {
		return nil, s.evacuationProblem(ctx, subject, r, err)
	}
	return &body[view.Engine]{e}, nil
}

// evacuable returns why the request cannot be meant.
func evacuable(e view.Engine, r mirror.EvacuationRequest) error {
	subject := subjectf("engine %s", e.Name)
	several := 0
	for _, is := range []bool{r.End, r.Fence, r.ConfirmGone != ""} {
		if is {
			several++
		}
	}
	switch {
	case several > 1:
		return problem(http.StatusUnprocessableEntity, subject,
			"a fence, a confirmation that it is gone, and the end are three requests",
			"use one of --fence, --confirm-gone and --end")
	case r.DryRun && !r.Fence:
		return problem(http.StatusUnprocessableEntity, subject, "only a fence has a dry run",
			"add --fence, or see `argosy simulate lose "+string(e.Name)+"`")
	case r.End:
		return nil
	case e.BehindAgent && r.Fence:
		return problem(http.StatusUnprocessableEntity, subject,
			"it is behind an agent, which scales nothing",
			"on its cluster, restart the application-controller (kubectl rollout restart); once it "+
				"works, `argosy drain "+string(e.Name)+"`")
	case e.BehindAgent:
		return problem(http.StatusUnprocessableEntity, subject,
			"it is behind an agent, and only engines that Argosy reaches itself are evacuated",
			"declare it with kubeconfigRef first, or move its environments by hand")
	case r.Fence:
		return nil
	case r.ConfirmGone != r.Engine:
		return problem(http.StatusUnprocessableEntity, subject,
			"the evacuation of an engine needs the confirmation that none of its controllers runs",
			"make sure of that, and repeat the name: --confirm-gone "+string(r.Engine))
	}
	return nil
}

func (s *Server) evacuationProblem(ctx context.Context, subject string,
	r mirror.EvacuationRequest, err error) error {
	describe := "`argosy describe engine " + string(r.Engine) + "`"
	switch {
	case errors.Is(err, mirror.ErrEngineAnswers):
		return problem(http.StatusConflict, subject, "its API server answers, so it is not gone",
			"if it works, `argosy drain "+string(r.Engine)+"`; if it does not, `argosy evacuate "+
				"engine "+string(r.Engine)+" --fence` stops its Argo CD first")
	case errors.Is(err, mirror.ErrEngineSilent):
		return problem(http.StatusConflict, subject,
			"its API server does not answer, so Argosy can scale nothing there",
			"make sure that none of its controllers runs, then `argosy evacuate engine "+
				string(r.Engine)+" --confirm-gone "+string(r.Engine)+"`")
	case errors.Is(err, mirror.ErrFenceForbidden):
		return problem(http.StatusConflict, subject,
			"spec.remedies.fence of the Engine or the Fleet does not allow it",
			"commit spec.remedies.fence: Allowed, and grant the right (docs/evacuating.md)")
	case errors.Is(err, mirror.ErrFencing):
		return problem(http.StatusConflict, subject, "it has a fence already", "see "+describe+
			"; to lift it, `argosy evacuate engine "+string(r.Engine)+" --end`")
	case errors.Is(err, mirror.ErrEvacuated):
		return problem(http.StatusConflict, subject, "it is evacuated already", "see "+describe)
	case errors.Is(err, mirror.ErrNotEvacuated):
		return problem(http.StatusConflict, subject, "it is not evacuated", "see "+describe)
	case errors.Is(err, mirror.ErrEvacuatedAway):
		return problem(http.StatusConflict, subject, err.Error(),
			"bring the engine back and wait until it has lost its objects: "+describe)
	}
	return s.answer(ctx, subject, err)
}
