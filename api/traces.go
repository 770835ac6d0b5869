package api

import (
	"context"
	"net/http"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
	"github.com/danielgtaylor/huma/v2"
)

type traceIn struct {
	Revision fleet.Revision `path:"revision" pattern:"^[0-9a-f]{7,40}$" doc:"Of the config repo, or its first seven digits or more"`
	ByTenant
	ByDeployment
	ByEnvironment
}

func (s *Server) registerTraces() {
	huma.Register(s.api, operation(http.MethodGet, "/traces/{revision}", "trace",
		"The way of one commit, with the time of each step; a tenant's token sees the "+
			"Applications and waits of its tenant", "revisions", nil),
		func(ctx context.Context, in *traceIn) (*body[view.Trace], error) {
			t, err := s.reader.Trace(ctx, callerOf(ctx).Scope(), in.Revision, view.Filter{
				Tenant: in.Tenant, Deployment: in.Deployment, Environment: in.Environment})
			if err != nil {
				return nil, s.answer(ctx, subjectf("commit %s", in.Revision), err)
			}
			return &body[view.Trace]{t}, nil
		})
}
