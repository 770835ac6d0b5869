package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Act asks something of an Application.
func (d decisions) Act(ctx context.Context, id fleet.ApplicationID, kind mirror.ActionKind,
	ask wire.ActionRequest) (out wire.ActionRequested, err error) {
	return out, d.conn.do(ctx, http.MethodPost, applicationPath(id, string(kind)), nil, ask, &out)
}

// PreviewAction returns what an action would do.
func (l lists) PreviewAction(ctx context.Context, id fleet.ApplicationID, kind mirror.ActionKind,
	options mirror.ActionOptions) (out wire.ActionPreview, err error) {
	q := url.Values{}
	if options.Revision != "" {
		q.Set("revision", options.Revision)
	}
	for name, on := range map[string]bool{"prune": options.Prune, "hard": options.Hard,
		"end": options.End} {
		if on {
			q.Set(name, strconv.FormatBool(on))
		}
	}
	return out, l.conn.do(ctx, http.MethodGet, applicationPath(id, "preview")+"/"+string(kind), q,
		nil, &out)
}

// Actions returns what people asked of an Application, newest first; with an operation only that.
func (l lists) Actions(ctx context.Context, id fleet.ApplicationID, operation string) (
	[]mirror.Action, error) {
	q := url.Values{}
	if operation != "" {
		q.Set("name", operation)
	}
	var found wire.List[mirror.Action]
	err := l.conn.do(ctx, http.MethodGet, applicationPath(id, "actions"), q, nil, &found)
	return found.Items, err
}
