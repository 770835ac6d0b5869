package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Open pages ask again for what an event has changed, all at the same time and mostly for the same
// lists. Their requests share the reads of a scope; a request that a person makes reads for itself.

type renewalKey struct{}

// renewals marks the requests by which an open page renews itself. The page of one Application is
// read for itself: it is seldom open for many people.
func renewals(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(partsHeader) != "" && !strings.Contains(r.URL.Path, "/applications/") {
			r = r.WithContext(context.WithValue(r.Context(), renewalKey{}, true))
		}
		next.ServeHTTP(w, r)
	})
}

// newWebsite returns the pages of a server, whose reads are shared.
func (s *Server) newWebsite() *website {
	w := &website{Server: s, reader: sharedReader(s.reader, s.feed, &s.counts)}
	w.overviews.changed, w.arounds.changed = s.feed.changedAt, s.feed.changedAt
	w.renewals.changed = s.feed.changedAt
	return w
}

// sharedReader returns the reader for the page.
func sharedReader(r Reader, feed *feed, counts *sharedRead[[]view.StateCount]) Reader {
	lists := &sharedRead[any]{changed: feed.changedAt}
	r.Inventory = sharedInventory{r.Inventory, lists}
	r.History = sharedHistory{r.History, lists}
	r.State = sharedState{r.State, lists}
	r.Finder = sharedFinder{r.Finder, lists, counts}
	return r
}

type sharedPage[T any] struct {
	items []T
	next  string
}

// sharedList reads a list, or shares the read if the request is a renewal.
func sharedList[T any](ctx context.Context, lists *sharedRead[any], what string, scope view.Scope,
	filter view.Filter, page view.Page, read storeList[T]) ([]T, string, error) {
	if ctx.Value(renewalKey{}) == nil {
		return read(ctx, scope, filter, page)
	}
	plain := filter
	plain.Labels = nil // a pointer
	subject := fmt.Sprintf("%s %q %+v %+v", what, filter.Labels, plain, page)
	v, err := lists.getOf(ctx, scope.Tenant, subject, func(ctx context.Context) (any, error) {
		items, next, err := read(ctx, scope, filter, page)
		return sharedPage[T]{items, next}, err
	})
	if err != nil {
		return nil, "", err
	}
	found, _ := v.(sharedPage[T])
	return slices.Clone(found.items), found.next, nil // a page may drop items of its own
}

// sharedValue is sharedList for a value without a filter.
func sharedValue[T any](ctx context.Context, lists *sharedRead[any], what string,
	scope view.Scope, read func(context.Context) (T, error)) (T, error) {
	if ctx.Value(renewalKey{}) == nil {
		return read(ctx)
	}
	v, err := lists.getOf(ctx, scope.Tenant, what, func(ctx context.Context) (any, error) {
		return read(ctx)
	})
	found, _ := v.(T)
	return found, err
}

type (
	sharedInventory struct {
		Inventory
		lists *sharedRead[any]
	}
	sharedHistory struct {
		History
		lists *sharedRead[any]
	}
	sharedState struct {
		State
		lists *sharedRead[any]
	}
	sharedFinder struct {
		Finder
		lists  *sharedRead[any]
		counts *sharedRead[[]view.StateCount]
	}
)

func (r sharedInventory) Tenants(ctx context.Context, scope view.Scope, filter view.Filter,
	page view.Page) ([]view.Tenant, string, error) {
	return sharedList(ctx, r.lists, "tenants", scope, filter, page, r.Inventory.Tenants)
}

func (r sharedInventory) Environments(ctx context.Context, scope view.Scope, filter view.Filter,
	page view.Page) ([]view.Environment, string, error) {
	return sharedList(ctx, r.lists, "environments", scope, filter, page, r.Inventory.Environments)
}

func (r sharedInventory) Deployments(ctx context.Context, scope view.Scope, filter view.Filter,
	page view.Page) ([]view.Deployment, string, error) {
	return sharedList(ctx, r.lists, "deployments", scope, filter, page, r.Inventory.Deployments)
}

func (r sharedInventory) Applications(ctx context.Context, scope view.Scope, filter view.Filter,
	page view.Page) ([]view.Application, string, error) {
	return sharedList(ctx, r.lists, "applications", scope, filter, page, r.Inventory.Applications)
}

func (r sharedInventory) Engines(ctx context.Context, scope view.Scope, filter view.Filter,
	page view.Page) ([]view.Engine, string, error) {
	return sharedList(ctx, r.lists, "engines", scope, filter, page, r.Inventory.Engines)
}

func (r sharedHistory) Operations(ctx context.Context, scope view.Scope, filter view.Filter,
	page view.Page) ([]mirror.Operation, string, error) {
	return sharedList(ctx, r.lists, "operations", scope, filter, page, r.History.Operations)
}

func (r sharedHistory) Revisions(ctx context.Context, scope view.Scope, filter view.Filter,
	page view.Page) ([]view.Revision, string, error) {
	return sharedList(ctx, r.lists, "revisions", scope, filter, page, r.History.Revisions)
}

func (r sharedHistory) Holds(ctx context.Context, scope view.Scope, filter view.Filter,
	page view.Page) ([]mirror.Hold, string, error) {
	return sharedList(ctx, r.lists, "holds", scope, filter, page, r.History.Holds)
}

func (r sharedState) Source(ctx context.Context) (view.Source, error) {
	return sharedValue(ctx, r.lists, "source", view.Scope{}, r.State.Source)
}

func (r sharedState) Stops(ctx context.Context, scope view.Scope) ([]mirror.Stop, error) {
	return sharedValue(ctx, r.lists, "stops", scope, func(ctx context.Context) ([]mirror.Stop,
		error) {
		return r.State.Stops(ctx, scope)
	})
}

func (r sharedFinder) Matrix(ctx context.Context, scope view.Scope, filter view.Filter,
	page view.Page) (view.Matrix, error) {
	found, _, err := sharedList(ctx, r.lists, "matrix", scope, filter, page, func(
		ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) ([]view.Matrix,
		string, error) {
		m, err := r.Finder.Matrix(ctx, scope, filter, page)
		return []view.Matrix{m}, "", err
	})
	if err != nil {
		return view.Matrix{}, err
	}
	return found[0], nil
}

// StateCounts shares one read of a scope among all requests that do not narrow it.
func (r sharedFinder) StateCounts(ctx context.Context, scope view.Scope, filter view.Filter) (
	[]view.StateCount, error) {
	narrow := narrowed(filter)
	if narrow != (view.Filter{}) {
		narrow.Tenant = filter.Tenant
		return r.Finder.StateCounts(ctx, scope, narrow)
	}
	all, err := r.counts.get(ctx, scope.Tenant, func(ctx context.Context) ([]view.StateCount,
		error) {
		return r.Finder.StateCounts(ctx, scope, narrow)
	})
	if filter.Tenant == "" || err != nil {
		return all, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(c view.StateCount) bool {
		return c.Tenant != filter.Tenant
	}), nil
}
