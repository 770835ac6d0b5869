package api

import (
	"context"
	"net/http"
	"slices"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"github.com/danielgtaylor/huma/v2"
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
		ByLabels
		ByText
	}
	setsIn struct {
		Paging
		ByTenant
		ByName
	}
	applicationsIn struct {
		Paging
		ByTenant
		ByEnvironment
		ByDeployment
		ByEngine
		ByRevision
		ByName
		ByLabels
		ByText
		ByImage
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
	unprovenIn struct {
		Paging
		ByTenant
		ByEnvironment
		ByEngine
	}
	operationsIn struct {
		Paging
		ByTenant
		ByEngine
		ByRevision
		Kind  mirror.OperationKind  `query:"kind" maxLength:"32" pattern:"^[A-Za-z]+$" doc:"Such as Sync or Move"`
		State mirror.OperationState `query:"state" enum:"Pending,Running,Succeeded,Failed,Held"`
	}
	remediesIn struct {
		Paging
		ByEngine
	}
	movesIn struct {
		Paging
		ByTenant
		ByEnvironment
	}
	rebalancesIn struct{ Paging }
	revisionsIn  struct{ Paging }
	problemsIn   struct {
		Paging
		ByTenant
		ByName
	}
	rolloutsIn struct {
		Paging
		ByTenant
		ByDeployment
	}
	notificationsIn struct {
		Paging
		ByTenant
		ByName // of the channel
	}
	commitStatusesIn struct {
		Paging
		ByTenant
		ByDeployment
		ByEnvironment
	}
	credentialsIn struct {
		Paging
		ByTenant
		ByName
	}
	policiesIn struct {
		Paging
		ByName
	}
	freezesIn struct {
		Paging
		ByTenant
	}
	ringsIn struct {
		Paging
		ByName
	}
	bulletinsIn struct {
		Paging
		ByName
	}
	poolsIn struct {
		Paging
		ByName
	}
	differencesIn struct {
		Paging
		ByTenant
		ByEnvironment
		ByDeployment
		ByEngine
		ByName // of the ring
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

func (in *tenantsIn) query() (view.Filter, view.Page)    { return view.Filter{}, in.page() }
func (in *enginesIn) query() (view.Filter, view.Page)    { return view.Filter{}, in.page() }
func (in *ownersIn) query() (view.Filter, view.Page)     { return view.Filter{}, in.page() }
func (in *rebalancesIn) query() (view.Filter, view.Page) { return view.Filter{}, in.page() }
func (in *revisionsIn) query() (view.Filter, view.Page)  { return view.Filter{}, in.page() }
func (in *orphansIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Engine: in.Engine}, in.page()
}
func (in *unprovenIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Environment: in.Environment, Engine: in.Engine},
		in.page()
}
func (in *environmentsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Environment: in.Environment, Engine: in.Engine},
		in.page()
}
func (in *deploymentsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Deployment: in.Deployment, Environment: in.Environment,
		Labels: in.selector, Text: in.Text}, in.page()
}
func (in *setsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Name: in.Name}, in.page()
}
func (in *applicationsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Environment: in.Environment, Deployment: in.Deployment,
			Engine:   in.Engine,
			Revision: in.Revision, Sync: in.Sync, Health: in.Health, Apply: in.Apply,
			Name: in.Name, Labels: in.selector, Text: in.Text, Image: in.Image},
		in.page()
}
func (in *operationsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Engine: in.Engine, Revision: in.Revision,
		OperationKind: in.Kind, OperationState: in.State}, in.page()
}
func (in *remediesIn) query() (view.Filter, view.Page) {
	return view.Filter{Engine: in.Engine}, in.page()
}
func (in *movesIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Environment: in.Environment}, in.page()
}
func (in *problemsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Name: in.Name}, in.page()
}
func (in *rolloutsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Deployment: in.Deployment}, in.page()
}
func (in *notificationsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Name: in.Name}, in.page()
}
func (in *commitStatusesIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Deployment: in.Deployment,
		Environment: in.Environment}, in.page()
}
func (in *credentialsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Name: in.Name}, in.page()
}
func (in *policiesIn) query() (view.Filter, view.Page) {
	return view.Filter{Name: in.Name}, in.page()
}
func (in *freezesIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant}, in.page()
}
func (in *ringsIn) query() (view.Filter, view.Page) {
	return view.Filter{Name: in.Name}, in.page()
}

func (in *bulletinsIn) query() (view.Filter, view.Page) {
	return view.Filter{Name: in.Name}, in.page()
}

func (in *poolsIn) query() (view.Filter, view.Page) {
	return view.Filter{Name: in.Name}, in.page()
}

func (in *differencesIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Environment: in.Environment, Deployment: in.Deployment,
		Engine: in.Engine, Name: in.Name}, in.page()
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
	guards ...guard) {
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
	list[deploymentsIn](s, "deployments", "Deployments with their environments",
		s.reader.Deployments)
	list[setsIn](s, "sets", "Sets in effect with their deployments and listings", s.reader.Sets)
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
	list[unprovenIn](s, "unproven",
		"Objects of forgotten engines and clusters, whose deletion is not proven (platform)",
		s.reader.Unproven, s.platformOnly)
	list[operationsIn](s, "operations", "Operations with requester and result, newest first",
		s.reader.Operations)
	list[remediesIn](s, "remedies",
		"Restarts of components of engines that did not work, newest first (platform)",
		s.reader.Remedies, s.platformOnly)
	list[movesIn](s, "moves", "The last move of each environment to another engine",
		s.reader.Moves)
	list[rebalancesIn](s, "rebalances",
		"Proposals to relieve engines with a high measured load, newest first (platform)",
		s.reader.Rebalances, s.platformOnly)
	list[revisionsIn](s, "revisions",
		"Recorded commits of the config repo, newest first (platform)", s.reader.Revisions,
		s.platformOnly)
	list[problemsIn](s, "problems", "Problems of the config repo, by file", s.reader.Problems)
	list[rolloutsIn](s, "rollouts",
		"Changes of deployments on their way through waves, and past ones, newest first",
		s.reader.Rollouts)
	list[notificationsIn](s, "notifications",
		"Messages about the fleet with their state and the receiver's answer, newest first",
		s.reader.Notifications)
	list[commitStatusesIn](s, "commit-statuses",
		"What is reported of commits on the repositories of Applications, the last changed first",
		s.reader.CommitStatuses)
	list[credentialsIn](s, "credentials",
		"Access to private repositories, and whether the engines have it", s.reader.Credentials)
	list[policiesIn](s, "policies",
		"Rules for the declarations of tenants; a tenant sees those that evaluate its own",
		s.reader.Policies)
	list[freezesIn](s, "freezes", "Freezes with their next or present window", s.freezes)
	list[ringsIn](s, "rings", "Rings of the Fleet with their managed engines, in order (platform)",
		s.reader.Rings, s.platformOnly)
	list[bulletinsIn](s, "bulletins", "Security releases of Argo CD, and the engines that lack one "+
		"(platform)", s.reader.Bulletins, s.platformOnly)
	list[poolsIn](s, "pools", "Pools of engines with their instances (platform)", s.reader.Pools,
		s.platformOnly)
	list[differencesIn](s, "differences",
		"What the next version of Argo CD renders differently, by tenant and Application",
		s.reader.Differences)
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
		items[i].Slices = slices.Clone(items[i].Slices)
		for j, p := range items[i].Slices {
			items[i].Slices[j] = placementFor(scope, p)
		}
	}
	return items, next, err
}

func placementFor(scope view.Scope, p fleet.Placement) fleet.Placement {
	if scope.Tenant != "" || p.Alternatives == nil {
		p.Alternatives = []fleet.Alternative{}
	}
	return p
}

func explainedFor(scope view.Scope, e view.Explained) view.Explained {
	e.Placement, e.Slices = placementFor(scope, e.Placement), slices.Clone(e.Slices)
	for i, p := range e.Slices {
		e.Slices[i] = placementFor(scope, p)
	}
	return e
}

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
	setIn struct {
		TenantIn
		Set string `path:"set" maxLength:"63" pattern:"^[a-z0-9-]+$"`
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
	moveIn struct {
		TenantIn
		Environment fleet.EnvironmentName `path:"environment" maxLength:"63" pattern:"^[a-z0-9-]+$"`
	}
	rebalanceIn struct {
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
func (in *setIn) identity() (view.Filter, string) {
	return view.Filter{Tenant: in.Tenant, Name: in.Set},
		subjectf("set %s", fleet.SetKey(in.Tenant, in.Set))
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
func (in *moveIn) identity() (view.Filter, string) {
	return view.Filter{Tenant: in.Tenant, Environment: in.Environment},
		subjectf("move of environment %s/%s", in.Tenant, in.Environment)
}
func (in *rebalanceIn) identity() (view.Filter, string) {
	return view.Filter{Name: in.ID}, subjectf("rebalance %s", in.ID)
}
func (in *revisionIn) identity() (view.Filter, string) {
	return view.Filter{Revision: in.Revision}, subjectf("revision %s", in.Revision)
}

// one registers GET /<path>: the list of everything with that identity, with one item or none.
func one[I any, P interface {
	*I
	identified
}, T any](s *Server, kind, path, summary string, read storeList[T],
	guards ...guard) {
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
	one[setIn](s, "set", "/tenants/{tenant}/sets/{set}", "One set in effect", s.reader.Sets)
	one[applicationIn](s, "application",
		"/tenants/{tenant}/applications/{deployment}/{environment}", "One Application",
		s.reader.Applications)
	one[engineIn](s, "engine", "/engines/{engine}", "One engine (platform)", s.reader.Engines,
		s.platformOnly)
	one[operationIn](s, "operation", "/operations/{id}", "One operation", s.reader.Operations)
	one[moveIn](s, "move", "/tenants/{tenant}/environments/{environment}/move",
		"The last move of an environment", s.reader.Moves)
	one[rebalanceIn](s, "rebalance", "/rebalances/{id}",
		"One rebalance with its moves and the load of its engines (platform)", s.reader.Rebalances,
		s.platformOnly)
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
		func(ctx context.Context, in *environmentIn) (*body[view.Explained], error) {
			scope := callerOf(ctx).Scope()
			explained, err := s.reader.Explain(ctx, scope, in.id())
			if err != nil {
				return nil, s.answer(ctx, subjectf("environment %s", in.id()), err)
			}
			return &body[view.Explained]{explainedFor(scope, explained)}, nil
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
	huma.Register(s.api, unscoped(operation(http.MethodGet, "/whoami", "whoami",
		"The caller's identity and roles", "state", nil)),
		func(ctx context.Context, _ *struct{}) (*body[wire.Identity], error) {
			return &body[wire.Identity]{s.identity(personOf(ctx))}, nil
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
