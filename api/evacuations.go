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
	if r.End {
		err = s.decider.EndEvacuation(ctx, r)
	} else {
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
	switch {
	case r.End:
		return nil
	case e.BehindAgent:
		return problem(http.StatusUnprocessableEntity, subject,
			"it is behind an agent, and only engines that Argosy reaches itself are evacuated",
			"declare it with kubeconfigRef first, or move its environments by hand")
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
			"empty it: set state: Draining and move its environments; or stop its Argo CD and "+
				"cut Argosy off from its API server")
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
