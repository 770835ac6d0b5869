package api

import (
	"context"
	"net/http"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"github.com/danielgtaylor/huma/v2"
)

type (
	// ByLabels filters by the labels of deployments and environments.
	ByLabels struct {
		Labels string `query:"labels" maxLength:"1024" doc:"Selector of labels as kubectl reads it: tier=prod,zone in (a,b),!x. An Application has the labels of its deployment and of its environment"`

		selector *fleet.LabelSelector
	}
	// ByText filters by a part of the name.
	ByText struct {
		Text string `query:"text" maxLength:"200" doc:"Part of tenant/deployment@environment, whatever its case"`
	}
	// ByImage filters by what runs.
	ByImage struct {
		Image string `query:"image" maxLength:"512" pattern:"^[A-Za-z0-9._/:@+-]+$" doc:"That the workload runs: a repository, with or without a tag"`
	}

	searchIn struct {
		Text  string `query:"q" required:"true" maxLength:"200" doc:"Words of a name, the beginning of a commit, an image, the number or a part of the title of a pull request, or the ID of an operation"`
		Limit int    `query:"limit" minimum:"1" maximum:"50" default:"20"`
	}
	matrixIn struct {
		Limit int    `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"Deployments per page"`
		After string `query:"after" maxLength:"8192" pattern:"^[!-~]*$" doc:"The 'next' of the page before"`
		ByTenant
		ByEnvironment
		ByDeployment
		ByLabels
		ByText
	}
	countsIn struct {
		ByTenant
		ByEnvironment
		ByDeployment
		ByEngine
		ByRevision
		ByLabels
		ByText
		ByImage
		Sync   mirror.SyncState   `query:"sync" enum:"Synced,OutOfSync,Unknown"`
		Health mirror.HealthState `query:"health" enum:"Healthy,Progressing,Degraded,Suspended,Missing,Unknown"`
		Apply  mirror.ApplyState  `query:"apply" enum:"Pending,Applied,Failed,Conflict,Deleting,Held"`
	}
	changesIn struct {
		Paging
		ByTenant
		Revision fleet.Revision `query:"revision" required:"true" pattern:"^[0-9a-f]{40}$" doc:"Of the config repo, in full"`
	}
)

// Resolve parses the selector.
func (in *ByLabels) Resolve(huma.Context) []error {
	var err error
	if in.selector, err = fleet.ParseLabelSelector(in.Labels); err != nil {
		return []error{&huma.ErrorDetail{Location: "query.labels", Message: err.Error()}}
	}
	return nil
}

func (in *changesIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, Revision: in.Revision}, in.page()
}

func (s *Server) registerFinder() {
	huma.Register(s.api, operation(http.MethodGet, "/search", "search",
		"Objects of any kind by name, commit, image, pull request or operation, the best first",
		"search", nil),
		func(ctx context.Context, in *searchIn) (*body[view.SearchResult], error) {
			found, err := s.search(ctx, callerOf(ctx).Scope(), in.Text, in.Limit)
			if err != nil {
				return nil, s.answer(ctx, "search", err)
			}
			return &body[view.SearchResult]{found}, nil
		})
	huma.Register(s.api, operation(http.MethodGet, "/matrix", "get-matrix",
		"What runs where: a row for each deployment, a column for each environment", "search", nil),
		func(ctx context.Context, in *matrixIn) (*body[view.Matrix], error) {
			filter := view.Filter{Tenant: in.Tenant, Environment: in.Environment,
				Deployment: in.Deployment, Labels: in.selector, Text: in.Text}
			m, err := s.reader.Matrix(ctx, callerOf(ctx).Scope(), filter,
				view.Page{Limit: in.Limit, After: in.After})
			if err != nil {
				return nil, s.answer(ctx, "matrix", err)
			}
			return &body[view.Matrix]{m}, nil
		})
	huma.Register(s.api, operation(http.MethodGet, "/application-counts", "count-applications",
		"How many Applications have each state under a filter. The counts of one field ignore "+
			"the filter of that field", "applications", nil),
		func(ctx context.Context, in *countsIn) (*body[view.Facets], error) {
			filter := view.Filter{Tenant: in.Tenant, Environment: in.Environment,
				Deployment: in.Deployment, Engine: in.Engine, Revision: in.Revision,
				Sync: in.Sync, Health: in.Health, Apply: in.Apply, Labels: in.selector,
				Text: in.Text, Image: in.Image}
			f, err := s.facets(ctx, callerOf(ctx).Scope(), filter)
			if err != nil {
				return nil, s.answer(ctx, "application counts", err)
			}
			return &body[view.Facets]{f}, nil
		})
	list[changesIn](s, "changes",
		"Objects that a recorded commit of the config repo has written and no later one again",
		s.reader.Changes)
}

// search bounds the text by cutting it: a person who pastes a page gets no error.
func (s *Server) search(ctx context.Context, scope view.Scope, text string, limit int) (
	view.SearchResult, error) {
	text = strings.ToValidUTF8(text[:min(len(text), view.MaxSearchText)], "")
	return s.reader.Search(ctx, scope, text, min(max(limit, 1), view.MaxHits))
}

// facets count the Applications of a filter. Everybody who filters by states only shares one read
// of the scope.
func (s *Server) facets(ctx context.Context, scope view.Scope, filter view.Filter) (view.Facets,
	error) {
	finder := sharedFinder{Finder: s.reader.Finder, counts: &s.counts}
	all := narrowed(filter)
	if all != (view.Filter{}) {
		all.Tenant = filter.Tenant
	}
	counts, err := finder.StateCounts(ctx, scope, all)
	if err != nil {
		return view.Facets{}, err
	}
	return view.FacetsOf(counts, filter), nil
}

// narrowed returns the fields of a filter that the counts of states cannot be split by.
func narrowed(filter view.Filter) view.Filter {
	return view.Filter{Deployment: filter.Deployment, Revision: filter.Revision,
		Labels: filter.Labels, Text: filter.Text, Image: filter.Image}
}
