package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// asked is a store whose clusters have reached the limit of pending syncs.
type asked struct{ *apitest.Store }

func (asked) AskSync(context.Context, view.Scope, mirror.SyncRequest, string) (mirror.SyncRequest,
	error) {
	return mirror.SyncRequest{}, fmt.Errorf("sync of hunter2: %w", mirror.ErrTooManySyncs)
}

// Too many pending syncs of a cluster are no fault of the mirror: the answer asks the caller to
// wait.
func TestTooManyPendingSyncsAreRefused(t *testing.T) {
	s := newSiteOver(t, asked{apitest.New(content())})
	a := s.do(http.MethodPost,
		wire.Base+"/tenants/acme/environments/edge/own-applications/argocd/shop/sync", acmeToken,
		`{}`)
	s.want(a, http.StatusTooManyRequests, "urn:argosy:too-many",
		"application argocd/shop of environment acme/edge", "are waiting", "argosy get operations")
	if strings.Contains(a.body, "hunter2") || strings.Contains(s.log.String(), "mirror") {
		t.Errorf("answered %s, logged %s", a.body, s.log.String())
	}
}
