package apitest

import (
	"context"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Trace returns the trace of a commit; a tenant finds those with an Application or wait of its own.
func (s *Store) Trace(_ context.Context, sc view.Scope, revision fleet.Revision, f view.Filter) (
	view.Trace, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return view.Trace{}, s.fail
	}
	for _, t := range s.m.Traces {
		if !strings.HasPrefix(string(t.Revision), string(revision)) {
			continue
		}
		t.Applications = slices.DeleteFunc(slices.Clone(t.Applications),
			func(a view.TraceApplication) bool {
				return !is(sc.Tenant, a.Tenant) || !is(f.Tenant, a.Tenant) ||
					!is(f.Deployment, a.Deployment) || !is(f.Environment, a.Environment)
			})
		t.Waits = slices.DeleteFunc(slices.Clone(t.Waits), func(w view.TraceWait) bool {
			return !is(sc.Tenant, w.Tenant) || !is(f.Tenant, w.Tenant)
		})
		if sc.Tenant == "" {
			return t, nil
		}
		if t.Subject = ""; len(t.Applications)+len(t.Waits) > 0 {
			return t, nil
		}
	}
	return view.Trace{}, mirror.ErrNotFound
}
