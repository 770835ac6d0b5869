// Package apitest holds a mirror in memory for tests of what stands in front of the store: the API,
// its client and the command line.
//
// It implements api.Reader, api.Decider, api.Tokens and api.Agents with the semantics that they
// document, so that a test of the API against it and one against the real store expect the same.
package apitest

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
)

// Mirror is the content of a store. It may be decoded from JSON.
type Mirror struct {
	Tenants      []fleet.TenantView
	Environments []fleet.EnvironmentView
	Deployments  []fleet.DeploymentView
	Applications []fleet.ApplicationView
	Engines      []fleet.EngineView
	Orphans      []fleet.OrphanView
	Owners       []fleet.OwnerView
	Operations   []fleet.Operation
	Revisions    []fleet.RevisionView
	Problems     []fleet.Problem
	Holds        []fleet.Hold
	Stops        []fleet.Stop
	Pulls        []Pull
	Source       fleet.SourceView
	Tokens       []Token
	Agents       []fleet.AgentView
	AgentTokens  []fleet.AgentToken
	Own          []fleet.OwnView
}

// Pull is a pull request with the plan of its head, if there is one.
type Pull struct {
	fleet.PullView
	Plan json.RawMessage
}

// Token is a token with its plaintext, which only a test would keep.
type Token struct {
	fleet.Token
	Plaintext string
}

// Store is a mirror that can be read and decided about, by many at once.
type Store struct {
	mu     sync.Mutex
	m      Mirror
	events []fleet.Event
	fail   error
	hook   func()
}

// New is a store with that content.
func New(m Mirror) *Store { return &Store{m: m} }

// Change edits the content and records the events that say so.
func (s *Store) Change(edit func(*Mirror), events ...fleet.Event) {
	s.mu.Lock()
	edit(&s.m)
	s.record(events...)
	hook := s.hook
	s.mu.Unlock()
	if hook != nil {
		hook()
	}
}

// OnChange calls hook after each change, as a NOTIFY would.
func (s *Store) OnChange(hook func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

// Fail makes every call fail with err until it is nil again.
func (s *Store) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *Store) record(events ...fleet.Event) {
	for _, e := range events {
		e.Seq = int64(len(s.events)) + 1
		s.events = append(s.events, e)
	}
}

// listing reads one list: what matches, in order, from the cursor on. key must be unique and sort
// as the list does.
func listing[T any](s *Store, items func(*Mirror) []T, key func(T) string, match func(T) bool,
	p fleet.Page) ([]T, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, "", s.fail
	}
	after, err := decodeCursor(p.After)
	if err != nil {
		return nil, "", err
	}
	sorted := slices.Clone(items(&s.m))
	slices.SortStableFunc(sorted, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	var page []T
	for _, item := range sorted {
		if !match(item) || p.After != "" && key(item) <= after {
			continue
		}
		if len(page) == p.Limit {
			return page, encodeCursor(key(page[len(page)-1])), nil
		}
		page = append(page, item)
	}
	return page, "", nil
}

func encodeCursor(key string) string {
	return base64.RawURLEncoding.EncodeToString([]byte("c" + key))
}

func decodeCursor(cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) == 0 || b[0] != 'c' {
		return "", fleet.ErrCursor
	}
	return string(b[1:]), nil
}

// is reports whether a wish is open or met.
func is[T ~string](wish, have T) bool { return wish == "" || wish == have }

// newest sorts later times first.
func newest(t time.Time) string { return fmt.Sprintf("%020d", 1<<62-t.UnixNano()) }

// Tenants implements api.Inventory, as do the following.
func (s *Store) Tenants(_ context.Context, sc fleet.Scope, f fleet.Filter,
	p fleet.Page) ([]fleet.TenantView, string, error) {
	return listing(s, func(m *Mirror) []fleet.TenantView { return m.Tenants },
		func(t fleet.TenantView) string { return string(t.Name) },
		func(t fleet.TenantView) bool { return is(sc.Tenant, t.Name) && is(f.Tenant, t.Name) }, p)
}

// Environments lists environments.
func (s *Store) Environments(_ context.Context, sc fleet.Scope, f fleet.Filter,
	p fleet.Page) ([]fleet.EnvironmentView, string, error) {
	return listing(s, func(m *Mirror) []fleet.EnvironmentView { return m.Environments },
		func(e fleet.EnvironmentView) string { return string(e.Tenant) + "/" + string(e.Name) },
		func(e fleet.EnvironmentView) bool {
			return is(sc.Tenant, e.Tenant) && is(f.Tenant, e.Tenant) && is(f.Environment, e.Name) &&
				is(f.Engine, e.Engine)
		}, p)
}

// Deployments lists deployments.
func (s *Store) Deployments(_ context.Context, sc fleet.Scope, f fleet.Filter,
	p fleet.Page) ([]fleet.DeploymentView, string, error) {
	return listing(s, func(m *Mirror) []fleet.DeploymentView { return m.Deployments },
		func(d fleet.DeploymentView) string { return string(d.Tenant) + "/" + string(d.Name) },
		func(d fleet.DeploymentView) bool {
			return is(sc.Tenant, d.Tenant) && is(f.Tenant, d.Tenant) && is(f.Deployment, d.Name) &&
				(f.Environment == "" || slices.Contains(d.Environments, f.Environment))
		}, p)
}

// Applications lists Applications.
func (s *Store) Applications(_ context.Context, sc fleet.Scope, f fleet.Filter,
	p fleet.Page) ([]fleet.ApplicationView, string, error) {
	return listing(s, func(m *Mirror) []fleet.ApplicationView { return m.Applications },
		func(a fleet.ApplicationView) string {
			return string(a.Tenant) + "/" + string(a.Deployment) + "@" + string(a.Environment)
		},
		func(a fleet.ApplicationView) bool {
			return is(sc.Tenant, a.Tenant) && is(f.Tenant, a.Tenant) &&
				is(f.Environment, a.Environment) && is(f.Deployment, a.Deployment) &&
				is(f.Engine, a.Engine) && is(f.Revision, a.Revision) && is(f.Sync, a.Sync) &&
				is(f.Health, a.Health) &&
				is(f.Apply, a.Apply) && is(f.Name, a.Name)
		}, p)
}

// Engines lists engines.
func (s *Store) Engines(_ context.Context, _ fleet.Scope, f fleet.Filter,
	p fleet.Page) ([]fleet.EngineView, string, error) {
	return listing(s, func(m *Mirror) []fleet.EngineView { return m.Engines },
		func(e fleet.EngineView) string { return string(e.Name) },
		func(e fleet.EngineView) bool { return is(f.Engine, e.Name) }, p)
}

// Owners lists names of owners.
func (s *Store) Owners(_ context.Context, _ fleet.Scope, _ fleet.Filter,
	p fleet.Page) ([]fleet.OwnerView, string, error) {
	return listing(s, func(m *Mirror) []fleet.OwnerView { return m.Owners },
		func(v fleet.OwnerView) string {
			return v.Host + " " + v.Name
		}, func(fleet.OwnerView) bool { return true }, p)
}

// Orphans lists strays.
func (s *Store) Orphans(_ context.Context, _ fleet.Scope, f fleet.Filter,
	p fleet.Page) ([]fleet.OrphanView, string, error) {
	return listing(s, func(m *Mirror) []fleet.OrphanView { return m.Orphans },
		func(v fleet.OrphanView) string {
			return string(v.Engine) + "/" + string(v.Kind) + "/" + v.Name
		},
		func(v fleet.OrphanView) bool { return is(f.Engine, v.Engine) && is(f.Tenant, v.Tenant) }, p)
}

// Operations lists operations.
func (s *Store) Operations(_ context.Context, sc fleet.Scope, f fleet.Filter,
	p fleet.Page) ([]fleet.Operation, string, error) {
	return listing(s, func(m *Mirror) []fleet.Operation { return m.Operations },
		func(o fleet.Operation) string { return newest(o.StartedAt) + o.ID },
		func(o fleet.Operation) bool {
			return is(sc.Tenant, o.Tenant) && is(f.Tenant, o.Tenant) && is(f.Engine, o.Engine) &&
				is(f.Revision, o.Revision) && is(f.Name, o.ID)
		}, p)
}

// Revisions lists recorded commits.
func (s *Store) Revisions(_ context.Context, _ fleet.Scope, f fleet.Filter,
	p fleet.Page) ([]fleet.RevisionView, string, error) {
	return listing(s, func(m *Mirror) []fleet.RevisionView { return m.Revisions },
		func(r fleet.RevisionView) string { return newest(r.RecordedAt) + string(r.Revision) },
		func(r fleet.RevisionView) bool { return is(f.Revision, r.Revision) }, p)
}

// Problems lists what is wrong in the config repo.
func (s *Store) Problems(_ context.Context, sc fleet.Scope, f fleet.Filter,
	p fleet.Page) ([]fleet.Problem, string, error) {
	return listing(s, func(m *Mirror) []fleet.Problem { return m.Problems },
		func(p fleet.Problem) string {
			return fmt.Sprintf("%s\x00%06d\x00%06d\x00%s", p.Path, p.Line, p.Column, p.Code)
		},
		func(p fleet.Problem) bool {
			return is(sc.Tenant, p.Key.Tenant) && is(f.Tenant, p.Key.Tenant) &&
				is(f.Name, p.Key.Name)
		}, p)
}

// Holds lists what waits for an approval.
func (s *Store) Holds(_ context.Context, sc fleet.Scope, f fleet.Filter,
	p fleet.Page) ([]fleet.Hold, string, error) {
	return listing(s, func(m *Mirror) []fleet.Hold { return m.Holds },
		func(h fleet.Hold) string {
			return newest(h.Since) + string(h.Revision) + string(h.Tenant) + string(h.Reason)
		},
		func(h fleet.Hold) bool {
			return is(sc.Tenant, h.Tenant) && is(f.Tenant, h.Tenant) && is(f.Revision, h.Revision)
		}, p)
}

// Pulls implements api.Pulls.
func (s *Store) Pulls(_ context.Context, sc fleet.Scope, f fleet.Filter,
	p fleet.Page) ([]fleet.PullView, string, error) {
	return listing(s, func(m *Mirror) []fleet.PullView {
		var views []fleet.PullView
		for _, pull := range m.Pulls {
			views = append(views, pull.PullView)
		}
		return views
	}, func(v fleet.PullView) string { return fmt.Sprintf("%010d", 1<<32-v.Number) },
		func(v fleet.PullView) bool {
			return (sc.Tenant == "" || slices.Contains(v.Tenants, sc.Tenant)) &&
				(f.Tenant == "" || slices.Contains(v.Tenants, f.Tenant)) &&
				(f.Pull == 0 || f.Pull == v.Number) && is(f.State, v.State)
		}, p)
}

// PullPlan implements api.Pulls.
func (s *Store) PullPlan(ctx context.Context, sc fleet.Scope, number int) ([]byte, error) {
	found, _, err := s.Pulls(ctx, sc, fleet.Filter{Pull: number}, fleet.Page{Limit: 1})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pull := range s.m.Pulls {
		if len(found) == 1 && pull.Number == number && len(pull.Plan) > 0 {
			return pull.Plan, nil
		}
	}
	return nil, fleet.ErrNotFound
}

// Events implements api.History.
func (s *Store) Events(_ context.Context, sc fleet.Scope, after int64, limit int) ([]fleet.Event,
	int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := int64(len(s.events))
	if s.fail != nil || after < 0 {
		return nil, last, s.fail
	}
	var found []fleet.Event
	for _, e := range s.events[min(after, last):] {
		if !is(sc.Tenant, e.Tenant) {
			continue
		}
		if len(found) == limit {
			return found, found[limit-1].Seq, nil
		}
		found = append(found, e)
	}
	return found, last, nil
}

// Source implements api.State.
func (s *Store) Source(context.Context) (fleet.SourceView, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.Source, s.fail
}

// Explain implements api.State.
func (s *Store) Explain(ctx context.Context, sc fleet.Scope,
	id fleet.EnvironmentID) (fleet.Placement, error) {
	found, _, err := s.Environments(ctx, sc, fleet.Filter{Tenant: id.Tenant, Environment: id.Name},
		fleet.Page{Limit: 1})
	if err == nil && len(found) == 0 {
		err = fleet.ErrNotFound
	}
	if err != nil {
		return fleet.Placement{}, err
	}
	return found[0].Placement, nil
}

// Stops implements api.State.
func (s *Store) Stops(_ context.Context, sc fleet.Scope) ([]fleet.Stop, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []fleet.Stop
	for _, stop := range s.m.Stops {
		if sc.Tenant == "" || stop.Scope == fleet.StopFleet || stop.Scope == fleet.StopTenant &&
			stop.Name == string(sc.Tenant) {
			found = append(found, stop)
		}
	}
	return found, s.fail
}
