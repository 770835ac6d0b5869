package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// The parameters of lists. Each is checked against its pattern before the store sees it; an unknown
// one is rejected, never ignored. They are exported only because the API's framework finds them by
// reflection.

type (
	// Paging selects the page.
	Paging struct {
		Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Items per page"`
		After string `query:"after" maxLength:"8192" pattern:"^[!-~]*$" doc:"The 'next' of the page before"`
	}
	// ByTenant filters by tenant.
	ByTenant struct {
		Tenant fleet.TenantName `query:"tenant" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	}
	// ByEnvironment filters by environment.
	ByEnvironment struct {
		Environment fleet.EnvironmentName `query:"environment" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	}
	// ByDeployment filters by deployment.
	ByDeployment struct {
		Deployment fleet.DeploymentName `query:"deployment" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	}
	// ByEngine filters by engine.
	ByEngine struct {
		Engine fleet.EngineName `query:"engine" maxLength:"63" pattern:"^[a-z0-9.-]+$"`
	}
	// ByRevision filters by revision.
	ByRevision struct {
		Revision fleet.Revision `query:"revision" pattern:"^[0-9a-f]{40}$" doc:"Of the config repo, in full"`
	}
	// ByName filters by an object's name.
	ByName struct {
		Name string `query:"name" maxLength:"253" pattern:"^[A-Za-z0-9._-]+$"`
	}

	tenantsIn      struct{ Paging }
	environmentsIn struct {
		Paging
		ByTenant
		ByEnvironment
		ByEngine
	}
	deploymentsIn struct {
		Paging
		ByTenant
		ByDeployment
		ByEnvironment
	}
	applicationsIn struct {
		Paging
		ByTenant
		ByEnvironment
		ByDeployment
		ByEngine
		ByRevision
		ByName
		Sync   mirror.SyncState   `query:"sync" enum:"Synced,OutOfSync,Unknown"`
		Health mirror.HealthState `query:"health" enum:"Healthy,Progressing,Degraded,Suspended,Missing,Unknown"`
		Apply  mirror.ApplyState  `query:"apply" enum:"Pending,Applied,Failed,Conflict,Deleting,Held"`
	}
	enginesIn struct{ Paging }
	ownersIn  struct{ Paging }
	orphansIn struct {
		Paging
		ByTenant
		ByEngine
	}
	operationsIn struct {
		Paging
		ByTenant
		ByEngine
		ByRevision
	}
	revisionsIn struct{ Paging }
	problemsIn  struct {
		Paging
		ByTenant
		ByName
	}
	holdsIn struct {
		Paging
		ByTenant
		ByRevision
	}
)

func (p Paging) page() view.Page { return view.Page{Limit: p.Limit, After: p.After} }

// listed is the input of a list handler: the scope comes from the token, the rest from the request.
type listed interface {
	query() (view.Filter, view.Page)
}

func (in *tenantsIn) query() (view.Filter, view.Page)   { return view.Filter{}, in.page() }
func (in *enginesIn) query() (view.Filter, view.Page)   { return view.Filter{}, in.page() }
func (in *ownersIn) query() (view.Filter, view.Page)    { return view.Filter{}, in.page() }
func (in *revisionsIn) query() (view.Filter, view.Page) { return view.Filter{}, in.page() }
func (in *orphansIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Engine: in.Engine}, in.page()
}
func (in *environmentsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Environment: in.Environment, Engine: in.Engine},
		in.page()
}
func (in *deploymentsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Deployment: in.Deployment, Environment: in.Environment},
		in.page()
}
func (in *applicationsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Environment: in.Environment, Deployment: in.Deployment,
			Engine:   in.Engine,
			Revision: in.Revision, Sync: in.Sync, Health: in.Health, Apply: in.Apply,
			Name: in.Name},
		in.page()
}
func (in *operationsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Engine: in.Engine, Revision: in.Revision}, in.page()
}
func (in *problemsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Name: in.Name}, in.page()
}
func (in *holdsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Revision: in.Revision}, in.page()
}

type body[T any] struct{ Body T }

// storeList is a list method of the store.
type storeList[T any] func(context.Context, view.Scope, view.Filter, view.Page) ([]T, string,
	error)

// list registers GET /<what>.
func list[I any, P interface {
	*I
	listed
}, T any](s *Server, what, summary string, read storeList[T],
	guards ...func(huma.Context, func(huma.Context))) {
	op := operation(http.MethodGet, "/"+what, "list-"+what, summary, what, guards)
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*body[wire.List[T]], error) {
		filter, page := P(in).query()
		items, next, err := read(ctx, callerOf(ctx).Scope(), filter, page)
		if err != nil {
			return nil, s.answer(ctx, what, err)
		}
		if items == nil {
			items = []T{}
		}
		return &body[wire.List[T]]{wire.List[T]{Items: items, Next: next}}, nil
	})
}

func (s *Server) registerLists() {
	list[tenantsIn](s, "tenants", "Tenants with quota, usage and status", s.reader.Tenants)
	list[environmentsIn](s, "environments", "Environments with their engine and the reason for it",
		s.environments)
	list[deploymentsIn](s, "deployments", "Deployments with their environments", s.reader.Deployments)
	list[applicationsIn](s, "applications",
		"Applications with desired state and status on their engine",
		s.reader.Applications)
	list[enginesIn](s, "engines", "Engines with load, lag and reach (platform)", s.reader.Engines,
		s.platformOnly)
	list[ownersIn](s, "owners",
		"Names of owners on the Git host, and the accounts and teams that they are pinned to "+
			"(platform)", s.reader.Owners, s.platformOnly)
	list[orphansIn](s, "strays", "Live objects of ours that no declaration asks for (platform)",
		s.reader.Orphans, s.platformOnly)
	list[operationsIn](s, "operations", "Operations with requester and result, newest first",
		s.reader.Operations)
	list[revisionsIn](s, "revisions",
		"Recorded commits of the config repo, newest first (platform)", s.reader.Revisions,
		s.platformOnly)
	list[problemsIn](s, "problems", "Problems of the config repo, by file", s.reader.Problems)
	list[holdsIn](s, "holds", "Held changes, which wait for a release", s.reader.Holds)
}

// environments removes from a tenant's answer what a placement reveals of other tenants: the
// engines that were not chosen, with their load and owners.
func (s *Server) environments(ctx context.Context, scope view.Scope, filter view.Filter,
	page view.Page) ([]view.Environment, string, error) {
	items, next, err := s.reader.Environments(ctx, scope, filter, page)
	items = slices.Clone(items)
	for i := range items {
		items[i].Placement = placementFor(scope, items[i].Placement)
	}
	return items, next, err
}

func placementFor(scope view.Scope, p fleet.Placement) fleet.Placement {
	if scope.Tenant != "" || p.Alternatives == nil {
		p.Alternatives = []fleet.Alternative{}
	}
	return p
}
