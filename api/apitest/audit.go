package apitest

import (
	"context"
	"fmt"
	"math"
	"strings"

	"argosy.dev/argosy/fleet/audit"
	"argosy.dev/argosy/fleet/view"
)

func matchesEntry(sc view.Scope, f view.Filter, e audit.Entry) bool {
	has := func(pattern, value string) bool {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
			return strings.HasPrefix(value, prefix)
		}
		return is(pattern, value)
	}
	by := f.Entry
	return is(sc.Tenant, e.Tenant) && is(f.Tenant, e.Tenant) && is(f.Engine, e.Engine) &&
		is(f.Revision, e.Revision) && (f.Pull == 0 || f.Pull == e.Pull) &&
		is(by.Operation, e.Operation) && has(by.Actor, e.Actor) && has(by.Action, e.Action) &&
		has(by.Subject, e.Subject) && !e.At.Before(by.Since) &&
		(by.Until.IsZero() || e.At.Before(by.Until)) &&
		strings.Contains(strings.ToLower(e.Actor+" "+e.Subject+" "+e.Detail),
			strings.ToLower(by.Text))
}

// Audit lists entries of the audit log.
func (s *Store) Audit(_ context.Context, sc view.Scope, f view.Filter, p view.Page) (
	[]audit.Entry, string, error) {
	return listing(s, func(m *Mirror) []audit.Entry { return m.Audit },
		func(e audit.Entry) string { return fmt.Sprintf("%020d", math.MaxInt64-e.N) },
		func(e audit.Entry) bool { return matchesEntry(sc, f, e) }, p)
}

// SealedAudit returns the sealed entries after the position.
func (s *Store) SealedAudit(_ context.Context, sc view.Scope, f view.Filter, after int64,
	limit int) ([]audit.Entry, error) {
	entries, _, err := listing(s, func(m *Mirror) []audit.Entry { return m.Audit },
		func(e audit.Entry) string { return fmt.Sprintf("%020d", e.Position) },
		func(e audit.Entry) bool { return e.Position > after && matchesEntry(sc, f, e) },
		view.Page{Limit: limit})
	return entries, err
}

// AuditState is where the chain begins and ends.
func (s *Store) AuditState(context.Context) (audit.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var state audit.State
	for _, e := range s.m.Audit {
		if e.Position > state.Head.Position {
			state.Head = audit.Head{Position: e.Position, Hash: e.Hash}
		}
		if e.Hash == "" {
			state.Unsealed++
		}
	}
	return state, s.fail
}
