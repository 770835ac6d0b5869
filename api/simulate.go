package api

import (
	"context"
	"errors"
	"net/http"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/placement"
	"github.com/danielgtaylor/huma/v2"
)

// Simulator computes what would move.
type Simulator interface {
	// Simulate returns what a change of an engine would move. It changes nothing. The API calls it
	// with the platform in scope only. A change that is impossible is a placement.ImpossibleError.
	Simulate(ctx context.Context, change placement.Change) (placement.Outcome, error)
}

// simulateIn is a placement.Change as the parameters of a query.
type simulateIn struct {
	Change       placement.ChangeKind `query:"change" required:"true" enum:"drain,join,lose,scale,rebalance"`
	Engine       fleet.EngineName     `query:"engine" maxLength:"63" pattern:"^[a-z0-9-]+$" doc:"Of all changes but rebalance"`
	Like         fleet.EngineName     `query:"like" maxLength:"63" pattern:"^[a-z0-9-]+$" doc:"Of join: the declared engine that an engine that is not declared is like"`
	Applications int                  `query:"applications" minimum:"0" maximum:"1000000" doc:"Of join and scale: the new capacity; 0 keeps it"`
	Environments int                  `query:"environments" minimum:"0" maximum:"1000000" doc:"Of join and scale: the new capacity; 0 keeps it"`
}

func (in *simulateIn) change() placement.Change {
	return placement.Change{Kind: in.Change, Engine: in.Engine, Like: in.Like,
		Capacity: fleet.Capacity{Applications: in.Applications, Environments: in.Environments}}
}

func (s *Server) registerSimulate() {
	huma.Register(s.api, operation(http.MethodGet, "/simulate", "simulate",
		"The environments that a change of an engine would move, in order, and the load of each "+
			"engine before and after; nothing moves (platform)", "engines",
		[]guard{s.platformOnly}), s.simulate)
}

func (s *Server) simulate(ctx context.Context, in *simulateIn) (*body[placement.Outcome], error) {
	subject := subjectf("engine %s", in.Engine)
	if in.Engine == "" {
		subject = subjectf("the engines")
	}
	out, err := s.reader.Simulate(ctx, in.change())
	var impossible *placement.ImpossibleError
	if errors.As(err, &impossible) {
		return nil, problem(http.StatusUnprocessableEntity, subject, impossible.Why, impossible.Fix)
	}
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	return &body[placement.Outcome]{out}, nil
}
