package apitest

import (
	"context"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Notifications lists notifications, newest first.
func (s *Store) Notifications(_ context.Context, scope view.Scope, f view.Filter, p view.Page) (
	[]mirror.Notification, string, error) {
	return listing(s, func(m *Mirror) []mirror.Notification { return m.Notifications },
		func(n mirror.Notification) string { return newest(n.At) + n.ID },
		func(n mirror.Notification) bool {
			return is(scope.Tenant, n.Tenant) && is(f.Tenant, n.Tenant) && is(f.Name, n.Channel)
		}, p)
}

// CommitStatuses lists what is reported of commits, the last changed first.
func (s *Store) CommitStatuses(_ context.Context, scope view.Scope, f view.Filter,
	p view.Page) ([]mirror.CommitStatus, string, error) {
	return listing(s, func(m *Mirror) []mirror.CommitStatus { return m.CommitStatuses },
		func(c mirror.CommitStatus) string {
			return newest(c.ChangedAt) + c.Of().String() + c.Repository + c.Commit
		},
		func(c mirror.CommitStatus) bool {
			return is(scope.Tenant, c.Tenant) && is(f.Tenant, c.Tenant) &&
				is(f.Deployment, c.Deployment) && is(f.Environment, c.Environment)
		}, p)
}

// TestChannel implements api.Decider. Its message is sent at once.
func (s *Store) TestChannel(_ context.Context, tenant fleet.TenantName, channel, by string) (string,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	n := mirror.Notification{ID: fmt.Sprintf("test-%d", len(s.m.Notifications)), Tenant: tenant,
		Channel: channel, Trigger: fleet.TriggerTest, About: tenant, Since: now, At: now, Due: now,
		State: mirror.NotificationSent, Attempts: 1, Answer: "200 OK for " + by, EndedAt: &now}
	s.m.Notifications = append(s.m.Notifications, n)
	return n.ID, nil
}
