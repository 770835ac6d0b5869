package client

import (
	"context"
	"net/http"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// Notifications lists notifications, newest first.
func (l lists) Notifications(ctx context.Context, f view.Filter, limit int) (
	[]mirror.Notification, error) {
	return all[mirror.Notification](ctx, l.conn, "notifications", f, limit)
}

// CommitStatuses lists what is reported of commits, the last changed first.
func (l lists) CommitStatuses(ctx context.Context, f view.Filter, limit int) (
	[]mirror.CommitStatus, error) {
	return all[mirror.CommitStatus](ctx, l.conn, "commit-statuses", f, limit)
}

// TestChannel requests a test message.
func (d decisions) TestChannel(ctx context.Context, r wire.TestChannelRequest) (
	out wire.TestChannelResult, err error) {
	err = d.conn.do(ctx, http.MethodPost, path("notifications", "test"), nil, r, &out)
	return out, err
}
