// Package apitest provides a mirror in memory for tests of the store's callers: the API, its client
// and the command line.
//
// It implements api.Reader, api.Decider, api.Tokens and api.Agents with their documented semantics,
// so that a test of the API against it and one against the real store expect the same.
package apitest

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/audit"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Mirror is the content of a store. It may be decoded from JSON.
type Mirror struct {
	Tenants        []view.Tenant
	Environments   []view.Environment
	Deployments    []view.Deployment
	Sets           []view.Set
	Applications   []view.Application
	Engines        []view.Engine
	Orphans        []view.Orphan
	Unproven       []view.Unproven
	Freezes        []view.Freeze
	Credentials    []view.Credential
	Policies       []view.Policy
	Rings          []mirror.Ring
	Pools          []mirror.Pool
	Bulletins      []view.Bulletin
	Differences    []mirror.Difference
	Owners         []view.Owner
	Operations     []mirror.Operation
	Moves          []view.Move
	Rebalances     []mirror.Rebalance
	Rollouts       []mirror.Rollout
	Notifications  []mirror.Notification
	CommitStatuses []mirror.CommitStatus
	Actions        []mirror.Action
	Healthy        []HealthyRevisions
	Remedies       []mirror.Remedy
	Revisions      []view.Revision
	Problems       []fleet.Problem
	Holds          []mirror.Hold
	Stops          []mirror.Stop
	Pulls          []Pull
	Source         view.Source
	Tokens         []Token
	Agents         []view.Agent
	AgentTokens    []registry.Token
	Own            []view.Own
	Traces         []view.Trace
	Audit          []audit.Entry // in the order of their numbers
}

// Pull is a pull request with the plan of its head, if there is one.
type Pull struct {
	view.Pull
	Plan json.RawMessage
}

// Token is a token with its plaintext, which only tests store.
type Token struct {
	view.Token
	Plaintext string
}

// Store is a mutable mirror, safe for concurrent use.
type Store struct {
	mu     sync.Mutex
	m      Mirror
	events []view.Event
	fail   error
	hook   func()
	aged   time.Time // see KeepAges
}

// New returns a store with that content.
func New(m Mirror) *Store { return &Store{m: m, aged: time.Now()} }

// Change edits the content and records the events.
func (s *Store) Change(edit func(*Mirror), events ...view.Event) {
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

func (s *Store) record(events ...view.Event) {
	for _, e := range events {
		e.Seq = int64(len(s.events)) + 1
		s.events = append(s.events, e)
	}
}

// listing returns one list: the matching items, in order, from the cursor on. key must be unique
// and sort as the list does.
func listing[T any](s *Store, items func(*Mirror) []T, key func(T) string, match func(T) bool,
	p view.Page) ([]T, string, error) {
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
		return "", mirror.ErrCursor
	}
	return string(b[1:]), nil
}

// is reports whether a filter field is empty or matches.
func is[T ~string](wish, have T) bool { return wish == "" || wish == have }

// newest sorts later times first.
func newest(t time.Time) string { return fmt.Sprintf("%020d", 1<<62-t.UnixNano()) }

// Tenants implements api.Inventory, as do the following.
func (s *Store) Tenants(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]view.Tenant, string, error) {
	return listing(s, func(m *Mirror) []view.Tenant { return m.Tenants },
		func(t view.Tenant) string { return string(t.Name) },
		func(t view.Tenant) bool { return is(sc.Tenant, t.Name) && is(f.Tenant, t.Name) }, p)
}

// Environments lists environments.
func (s *Store) Environments(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]view.Environment, string, error) {
	return listing(s, func(m *Mirror) []view.Environment { return m.Environments },
		func(e view.Environment) string { return string(e.Tenant) + "/" + string(e.Name) },
		func(e view.Environment) bool {
			return is(sc.Tenant, e.Tenant) && is(f.Tenant, e.Tenant) && is(f.Environment, e.Name) &&
				is(f.Engine, e.Engine)
		}, p)
}

// Deployments lists deployments.
func (s *Store) Deployments(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]view.Deployment, string, error) {
	return listing(s, func(m *Mirror) []view.Deployment { return m.Deployments },
		func(d view.Deployment) string { return string(d.Tenant) + "/" + string(d.Name) },
		func(d view.Deployment) bool {
			return is(sc.Tenant, d.Tenant) && is(f.Tenant, d.Tenant) && is(f.Deployment, d.Name) &&
				(f.Environment == "" || slices.Contains(d.Environments, f.Environment)) &&
				(f.Labels == nil || f.Labels.Matches(d.Labels)) &&
				contains(string(d.Tenant)+"/"+string(d.Name), f.Text)
		}, p)
}

// Sets lists sets.
func (s *Store) Sets(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]view.Set, string, error) {
	return listing(s, func(m *Mirror) []view.Set { return m.Sets },
		func(v view.Set) string { return string(v.Tenant) + "/" + v.Name },
		func(v view.Set) bool {
			return is(sc.Tenant, v.Tenant) && is(f.Tenant, v.Tenant) && is(f.Name, v.Name)
		}, p)
}

// Applications lists Applications.
func (s *Store) Applications(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]view.Application, string, error) {
	return listing(s, func(m *Mirror) []view.Application { return m.Applications },
		func(a view.Application) string {
			return string(a.Tenant) + "/" + string(a.Deployment) + "@" + string(a.Environment)
		},
		func(a view.Application) bool {
			return is(sc.Tenant, a.Tenant) && is(f.Tenant, a.Tenant) &&
				is(f.Environment, a.Environment) && is(f.Deployment, a.Deployment) &&
				is(f.Engine, a.Engine) && is(f.Revision, a.Revision) && is(f.Sync, a.Sync) &&
				is(f.Health, a.Health) &&
				is(f.Apply, a.Apply) && is(f.Name, a.Name) && found(&s.m, f, a)
		}, p)
}

// Engines lists engines.
func (s *Store) Engines(_ context.Context, _ view.Scope, f view.Filter,
	p view.Page) ([]view.Engine, string, error) {
	return listing(s, func(m *Mirror) []view.Engine { return m.Engines },
		func(e view.Engine) string { return string(e.Name) },
		func(e view.Engine) bool { return is(f.Engine, e.Name) }, p)
}

// Owners lists names of owners.
func (s *Store) Owners(_ context.Context, _ view.Scope, _ view.Filter,
	p view.Page) ([]view.Owner, string, error) {
	return listing(s, func(m *Mirror) []view.Owner { return m.Owners },
		func(v view.Owner) string {
			return v.Host + " " + v.Name
		}, func(view.Owner) bool { return true }, p)
}

// Orphans lists orphans.
func (s *Store) Orphans(_ context.Context, _ view.Scope, f view.Filter,
	p view.Page) ([]view.Orphan, string, error) {
	return listing(s, func(m *Mirror) []view.Orphan { return m.Orphans },
		func(v view.Orphan) string {
			return string(v.Engine) + "/" + string(v.Kind) + "/" + v.Name
		},
		func(v view.Orphan) bool { return is(f.Engine, v.Engine) && is(f.Tenant, v.Tenant) }, p)
}

// Unproven lists unproven objects.
func (s *Store) Unproven(_ context.Context, _ view.Scope, f view.Filter,
	p view.Page) ([]view.Unproven, string, error) {
	return listing(s, func(m *Mirror) []view.Unproven { return m.Unproven },
		func(v view.Unproven) string { return newest(v.ForgottenAt) + strconv.FormatInt(v.ID, 10) },
		func(v view.Unproven) bool {
			return is(f.Engine, v.Engine) && is(f.Tenant, v.Tenant) &&
				is(f.Environment, v.Environment)
		}, p)
}

// Credentials lists credentials.
func (s *Store) Credentials(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]view.Credential, string, error) {
	return listing(s, func(m *Mirror) []view.Credential { return m.Credentials },
		func(c view.Credential) string { return c.ID().String() },
		func(c view.Credential) bool {
			return is(sc.Tenant, c.Tenant) && is(f.Tenant, c.Tenant) &&
				is(f.Name, string(c.Name))
		}, p)
}

// Policies lists policies. A tenant sees no expression, as with the store.
func (s *Store) Policies(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]view.Policy, string, error) {
	all, next, err := listing(s, func(m *Mirror) []view.Policy { return m.Policies },
		func(p view.Policy) string { return p.Name },
		func(p view.Policy) bool {
			return is(f.Name, p.Name) && (sc.Tenant == "" || len(p.Tenants) == 0 ||
				slices.Contains(p.Tenants, sc.Tenant))
		}, p)
	if sc.Tenant == "" {
		return all, next, err
	}
	var seen []view.Policy
	for _, p := range all {
		seen = append(seen, p.ForTenant())
	}
	return seen, next, err
}

// Freezes lists freezes.
func (s *Store) Freezes(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]view.Freeze, string, error) {
	return listing(s, func(m *Mirror) []view.Freeze { return m.Freezes },
		func(v view.Freeze) string { return string(v.Tenant) + "/" + v.Name },
		func(v view.Freeze) bool {
			return v.Tenant == "" || is(sc.Tenant, v.Tenant) && is(f.Tenant, v.Tenant)
		}, p)
}

// Pools lists pools.
func (s *Store) Pools(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]mirror.Pool, string, error) {
	return listing(s, func(m *Mirror) []mirror.Pool { return m.Pools },
		func(p mirror.Pool) string { return p.Name },
		func(p mirror.Pool) bool { return sc.Tenant == "" && is(f.Name, p.Name) }, p)
}

// Bulletins lists bulletins.
func (s *Store) Bulletins(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]view.Bulletin, string, error) {
	return listing(s, func(m *Mirror) []view.Bulletin { return m.Bulletins },
		func(b view.Bulletin) string { return b.Name },
		func(b view.Bulletin) bool { return sc.Tenant == "" && is(f.Name, b.Name) }, p)
}

// Rings lists rings.
func (s *Store) Rings(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]mirror.Ring, string, error) {
	return listing(s, func(m *Mirror) []mirror.Ring { return m.Rings },
		func(r mirror.Ring) string { return r.Name },
		func(r mirror.Ring) bool { return sc.Tenant == "" && is(f.Name, r.Name) }, p)
}

// Operations lists operations.
func (s *Store) Operations(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]mirror.Operation, string, error) {
	return listing(s, func(m *Mirror) []mirror.Operation { return m.Operations },
		func(o mirror.Operation) string { return newest(o.StartedAt) + o.ID },
		func(o mirror.Operation) bool {
			return is(sc.Tenant, o.Tenant) && is(f.Tenant, o.Tenant) && is(f.Engine, o.Engine) &&
				is(f.Revision, o.Revision) && is(f.Name, o.ID) && is(f.OperationKind, o.Kind) &&
				is(f.OperationState, o.State)
		}, p)
}

// Remedies lists the remedies of engines.
func (s *Store) Remedies(_ context.Context, sc view.Scope, f view.Filter, p view.Page) (
	[]mirror.Remedy, string, error) {
	return listing(s, func(m *Mirror) []mirror.Remedy { return m.Remedies },
		func(r mirror.Remedy) string { return newest(r.RequestedAt) + r.ID },
		func(r mirror.Remedy) bool { return sc.Tenant == "" && is(f.Engine, r.Engine) }, p)
}

// Moves lists the last move of each environment.
func (s *Store) Moves(_ context.Context, sc view.Scope, f view.Filter, p view.Page) ([]view.Move,
	string, error) {
	return listing(s, func(m *Mirror) []view.Move { return m.Moves },
		func(m view.Move) string { return string(m.Tenant) + "/" + string(m.Environment) },
		func(m view.Move) bool {
			return is(sc.Tenant, m.Tenant) && is(f.Tenant, m.Tenant) &&
				is(f.Environment, m.Environment)
		}, p)
}

// Revisions lists recorded commits.
func (s *Store) Revisions(_ context.Context, _ view.Scope, f view.Filter,
	p view.Page) ([]view.Revision, string, error) {
	return listing(s, func(m *Mirror) []view.Revision { return m.Revisions },
		func(r view.Revision) string { return newest(r.RecordedAt) + string(r.Revision) },
		func(r view.Revision) bool { return is(f.Revision, r.Revision) }, p)
}

// Problems lists the problems of the config repo.
func (s *Store) Problems(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]fleet.Problem, string, error) {
	return listing(s, func(m *Mirror) []fleet.Problem { return m.Problems },
		func(p fleet.Problem) string {
			return fmt.Sprintf("%s\x00%06d\x00%06d\x00%s", p.Path, p.Line, p.Column, p.Code)
		},
		func(p fleet.Problem) bool {
			return is(sc.Tenant, p.Key.Tenant) && is(f.Tenant, p.Key.Tenant) &&
				is(f.Name, p.Key.Name)
		}, p)
}

// Holds lists held changes.
func (s *Store) Holds(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]mirror.Hold, string, error) {
	return listing(s, func(m *Mirror) []mirror.Hold { return m.Holds },
		func(h mirror.Hold) string {
			return newest(h.Since) + string(h.Revision) + string(h.Tenant) + string(h.Reason)
		},
		func(h mirror.Hold) bool {
			return is(sc.Tenant, h.Tenant) && is(f.Tenant, h.Tenant) && is(f.Revision, h.Revision)
		}, p)
}

// Pulls implements api.PullReader.
func (s *Store) Pulls(_ context.Context, sc view.Scope, f view.Filter,
	p view.Page) ([]view.Pull, string, error) {
	return listing(s, func(m *Mirror) []view.Pull {
		var views []view.Pull
		for _, pull := range m.Pulls {
			views = append(views, pull.Pull)
		}
		return views
	}, func(v view.Pull) string { return fmt.Sprintf("%010d", 1<<32-v.Number) },
		func(v view.Pull) bool {
			return (sc.Tenant == "" || slices.Contains(v.Tenants, sc.Tenant)) &&
				(f.Tenant == "" || slices.Contains(v.Tenants, f.Tenant)) &&
				(f.Pull == 0 || f.Pull == v.Number) && is(f.State, v.State)
		}, p)
}

// PullPlan implements api.PullReader.
func (s *Store) PullPlan(ctx context.Context, sc view.Scope, number int) ([]byte, error) {
	found, _, err := s.Pulls(ctx, sc, view.Filter{Pull: number}, view.Page{Limit: 1})
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
	return nil, mirror.ErrNotFound
}

// Events implements api.History.
func (s *Store) Events(_ context.Context, sc view.Scope, after int64, limit int) ([]view.Event,
	int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := int64(len(s.events))
	if s.fail != nil || after < 0 {
		return nil, last, s.fail
	}
	var found []view.Event
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
func (s *Store) Source(context.Context) (view.Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.Source, s.fail
}

// Explain implements api.State.
func (s *Store) Explain(ctx context.Context, sc view.Scope,
	id fleet.EnvironmentID) (view.Explained, error) {
	found, _, err := s.Environments(ctx, sc, view.Filter{Tenant: id.Tenant, Environment: id.Name},
		view.Page{Limit: 1})
	if err == nil && len(found) == 0 {
		err = mirror.ErrNotFound
	}
	if err != nil {
		return view.Explained{}, err
	}
	return view.Explained{Placement: found[0].Placement, Slices: found[0].Slices}, nil
}

// Stops implements api.State.
func (s *Store) Stops(_ context.Context, sc view.Scope) ([]mirror.Stop, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []mirror.Stop
	for _, stop := range s.m.Stops {
		if sc.Tenant == "" || stop.Scope == mirror.StopFleet || stop.Scope == mirror.StopTenant &&
			stop.Name == string(sc.Tenant) {
			found = append(found, stop)
		}
	}
	return found, s.fail
}
