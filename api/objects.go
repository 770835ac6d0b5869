package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// The identities of single objects in paths. Exported for the same reason as those of lists.

type (
	// TenantIn is a path that names a tenant.
	TenantIn struct {
		Tenant fleet.TenantName `path:"tenant" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	}
	environmentIn struct {
		TenantIn
		Environment fleet.EnvironmentName `path:"environment" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	}
	// DeploymentIn is a path that names a deployment.
	DeploymentIn struct {
		TenantIn
		Deployment fleet.DeploymentName `path:"deployment" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	}
	applicationIn struct {
		DeploymentIn
		Environment fleet.EnvironmentName `path:"environment" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	}
	engineIn struct {
		Engine fleet.EngineName `path:"engine" maxLength:"63" pattern:"^[a-z0-9.-]+$"`
	}
	operationIn struct {
		ID string `path:"id" maxLength:"64" pattern:"^[A-Za-z0-9-]+$"`
	}
	revisionIn struct {
		Revision fleet.Revision `path:"revision" pattern:"^[0-9a-f]{40}$"`
	}
)

func (in *environmentIn) id() fleet.EnvironmentID {
	return fleet.EnvironmentID{Tenant: in.Tenant, Name: in.Environment}
}

// identified is an input that names one object: as a filter that matches no other, and as text.
type identified interface {
	identity() (filter view.Filter, subject string)
}

func (in *TenantIn) identity() (view.Filter, string) {
	return view.Filter{Tenant: in.Tenant}, subjectf("tenant %s", in.Tenant)
}
func (in *environmentIn) identity() (view.Filter, string) {
	return view.Filter{Tenant: in.Tenant, Environment: in.Environment},
		subjectf("environment %s", in.id())
}
func (in *DeploymentIn) identity() (view.Filter, string) {
	return view.Filter{Tenant: in.Tenant, Deployment: in.Deployment},
		subjectf("deployment %s/%s", in.Tenant, in.Deployment)
}
func (in *applicationIn) identity() (view.Filter, string) {
	id := fleet.ApplicationID{Tenant: in.Tenant, Deployment: in.Deployment,
		Environment: in.Environment}
	return view.Filter{Tenant: in.Tenant, Deployment: in.Deployment, Environment: in.Environment},
		subjectf("application %s", id)
}
func (in *engineIn) identity() (view.Filter, string) {
	return view.Filter{Engine: in.Engine}, subjectf("engine %s", in.Engine)
}
func (in *operationIn) identity() (view.Filter, string) {
	return view.Filter{Name: in.ID}, subjectf("operation %s", in.ID)
}
func (in *revisionIn) identity() (view.Filter, string) {
	return view.Filter{Revision: in.Revision}, subjectf("revision %s", in.Revision)
}

// one registers GET /<path>: the list of everything with that identity, with one item or none.
func one[I any, P interface {
	*I
	identified
}, T any](s *Server, kind, path, summary string, read storeList[T],
	guards ...func(huma.Context, func(huma.Context))) {
	op := operation(http.MethodGet, path, "get-"+kind, summary, kind+"s", guards)
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*body[T], error) {
		filter, subject := P(in).identity()
		item, err := single(ctx, read, callerOf(ctx).Scope(), filter)
		if err != nil {
			return nil, s.answer(ctx, subject, err)
		}
		return &body[T]{item}, nil
	})
}

func single[T any](ctx context.Context, read storeList[T], scope view.Scope,
	filter view.Filter) (item T, err error) {
	items, _, err := read(ctx, scope, filter, view.Page{Limit: 1})
	if err != nil {
		return item, err
	}
	if len(items) == 0 {
		return item, mirror.ErrNotFound
	}
	return items[0], nil
}

func (s *Server) registerObjects() {
	one[TenantIn](s, "tenant", "/tenants/{tenant}", "One tenant", s.reader.Tenants)
	one[environmentIn](s, "environment", "/tenants/{tenant}/environments/{environment}",
		"One environment", s.environments)
	one[DeploymentIn](s, "deployment", "/tenants/{tenant}/deployments/{deployment}",
		"One deployment", s.reader.Deployments)
	one[applicationIn](s, "application",
		"/tenants/{tenant}/applications/{deployment}/{environment}", "One Application",
		s.reader.Applications)
	one[engineIn](s, "engine", "/engines/{engine}", "One engine (platform)", s.reader.Engines,
		s.platformOnly)
	one[operationIn](s, "operation", "/operations/{id}", "One operation", s.reader.Operations)
	one[revisionIn](s, "revision", "/revisions/{revision}", "One recorded commit (platform)",
		s.reader.Revisions, s.platformOnly)
	s.registerState()
}

func (s *Server) registerState() {
	huma.Register(s.api,
		operation(http.MethodGet, "/tenants/{tenant}/environments/{environment}/placement",
			"explain-environment",
			"The environment's engine, the reason, and the alternatives (the last for "+
				"the platform only)", "environments", nil),
		func(ctx context.Context, in *environmentIn) (*body[fleet.Placement], error) {
			scope := callerOf(ctx).Scope()
			placement, err := s.reader.Explain(ctx, scope, in.id())
			if err != nil {
				return nil, s.answer(ctx, subjectf("environment %s", in.id()), err)
			}
			return &body[fleet.Placement]{placementFor(scope, placement)}, nil
		})
	huma.Register(s.api, operation(http.MethodGet, "/source", "get-source",
		"State of the config repo", "state", nil),
		func(ctx context.Context, _ *struct{}) (*body[view.Source], error) {
			source, err := s.reader.Source(ctx)
			if err != nil {
				return nil, s.answer(ctx, "source", err)
			}
			return &body[view.Source]{source}, nil
		})
	huma.Register(s.api, operation(http.MethodGet, "/stops", "list-stops", "Stops in force",
		"state", nil),
		func(ctx context.Context, _ *struct{}) (*body[wire.List[mirror.Stop]], error) {
			stops, err := stopsOf(ctx, s.reader.Stops, callerOf(ctx).Scope())
			if err != nil {
				return nil, s.answer(ctx, "stops", err)
			}
			return &body[wire.List[mirror.Stop]]{wire.List[mirror.Stop]{Items: stops}}, nil
		})
	huma.Register(s.api, operation(http.MethodGet, "/whoami", "whoami", "The token's identity",
		"state", nil),
		func(ctx context.Context, _ *struct{}) (*body[wire.Identity], error) {
			t := callerOf(ctx)
			return &body[wire.Identity]{wire.Identity{
				Subject: t.Subject(), Tenant: t.Tenant, Role: t.Role, ExpiresAt: t.ExpiresAt,
				Version: s.version,
			}}, nil
		})
}

func stopsOf(ctx context.Context, read func(context.Context, view.Scope) ([]mirror.Stop, error),
	scope view.Scope) ([]mirror.Stop, error) {
	stops, err := read(ctx, scope)
	if stops == nil {
		stops = []mirror.Stop{}
	}
	return stops, err
}
