package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/access"
)

func (s *Server) registerNotifications() {
	huma.Register(s.api, operation(http.MethodPost, "/notifications/test", "testChannel",
		"Send a test message to a channel of a tenant, or of the platform without one; a tenant may "+
			"test its own", "decisions",
		[]guard{s.may(access.Notify, access.Tenant)}), s.testChannel)
}

// testChannel records the request: the replica that leads sends the message, and the list of
// notifications has the receiver's answer.
func (s *Server) testChannel(ctx context.Context, in *asked[wire.TestChannelRequest]) (
	*body[wire.TestChannelResult], error) {
	caller := callerOf(ctx)
	tenant := in.Body.Tenant
	if tenant == "" {
		tenant = caller.Tenant
	}
	subject := subjectf("channel %s", in.Body.Channel)
	if caller.Tenant != "" && tenant != caller.Tenant {
		return nil, problem(http.StatusNotFound, subject, "the tenant is not known to this token",
			"name a channel of tenant "+string(caller.Tenant))
	}
	id, err := s.decider.TestChannel(ctx, tenant, in.Body.Channel, caller.Subject())
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	return &body[wire.TestChannelResult]{wire.TestChannelResult{ID: id, Tenant: tenant}}, nil
}
