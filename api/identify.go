package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// id limits the reads of one caller.
func (c caller) id() string {
	if c.session != nil {
		return c.session.ID
	}
	return c.token.ID
}

// scopeAsked is the tenant that a request of a person is about.
type scopeAsked struct {
	chosen fleet.TenantName // by the header, or on the page by the switcher
	// by the route or the filter: it decides if nothing is chosen
	named   fleet.TenantName
	changes bool // the request may change something
}

// asksFor reads the tenant of a request of the API.
func asksFor(r *http.Request) scopeAsked {
	a := scopeAsked{chosen: fleet.TenantName(r.Header.Get(wire.TenantHeader)),
		named: fleet.TenantName(r.PathValue("tenant")), changes: r.Method != http.MethodGet}
	if a.named == "" {
		a.named = fleet.TenantName(r.URL.Query().Get("tenant"))
	}
	return a
}

// identify returns the caller of a plaintext, or the refusal of the request.
func (s *Server) identify(ctx context.Context, plaintext string, asked scopeAsked) (caller,
	*wire.Refusal) {
	if !strings.HasPrefix(plaintext, view.SessionPrefix) || s.sessions == nil {
		token, refusal := s.verify(ctx, plaintext)
		return caller{token: token}, refusal
	}
	session, err := s.sessions.VerifySession(ctx, plaintext)
	if errors.Is(err, mirror.ErrNotFound) || err == nil && !s.configured(session.Issuer) {
		return caller{}, problem(http.StatusUnauthorized, "", "this session has ended",
			"sign in again: `argosy login URL`, or on the page")
	}
	if err != nil {
		var p *wire.Refusal
		errors.As(s.answer(ctx, "session", err), &p)
		return caller{}, p
	}
	s.refresh(session, plaintext)
	c := caller{session: &session}
	tenant, refusal := scopeOf(session.Roles, asked, session.Actor)
	if c.unscoped = refusal; refusal == nil {
		c.token = session.In(tenant)
	}
	return c, nil
}

// verify returns the token of the plaintext, or the refusal of the request.
func (s *Server) verify(ctx context.Context, plaintext string) (view.Token, *wire.Refusal) {
	if plaintext == "" {
		return view.Token{}, problem(http.StatusUnauthorized, "", "a token is required",
			"run `argosy login URL`, or set ARGOSY_TOKEN")
	}
	token, err := s.tokens.VerifyToken(ctx, plaintext)
	if errors.Is(err, mirror.ErrNotFound) {
		return view.Token{}, problem(http.StatusUnauthorized, "",
			"this token is invalid or expired", "ask the platform for another one")
	}
	if err != nil {
		var p *wire.Refusal
		errors.As(s.answer(ctx, "token", err), &p)
		return view.Token{}, p
	}
	return token, nil
}

// scopeOf returns the scope of a person's request, "" for the platform: the chosen tenant; else the
// platform for a person with a role of it; else the tenant that the request names, or the only one.
// The answers for another tenant and for a missing one are the same.
func scopeOf(roles access.Roles, asked scopeAsked, actor string) (fleet.TenantName,
	*wire.Refusal) {
	if t := asked.chosen; t != "" {
		if len(roles.Within(t).Tenants) > 0 {
			return t, nil
		}
		return "", problem(http.StatusForbidden, "tenant "+string(t),
			"you have no role in this tenant, or there is none of this name",
			"choose one of "+tenantNames(roles.Names()))
	}
	own := roles.Tenants[asked.named]
	switch platform := roles.Platform.Role; {
	case platform == access.Viewer && asked.changes && own.Role != "":
		return asked.named, nil
	case platform != "":
		return "", nil
	case own.Role != "":
		return asked.named, nil
	}
	names := roles.Names()
	switch len(names) {
	case 0:
		return "", problem(http.StatusForbidden, actor, "you are signed in, and have no role",
			"ask the platform for one in fleet/access.yaml, or an owner of a tenant for an entry "+
				"in its members or viewers; `argosy login --check` shows your groups")
	case 1:
		return names[0], nil
	}
	return "", problem(http.StatusConflict, actor,
		"you have a role in several tenants: "+tenantNames(names),
		"choose one: `argosy context use CONTEXT --tenant NAME`, ARGOSY_TENANT, or the header "+
			wire.TenantHeader)
}

func tenantNames(names []fleet.TenantName) string {
	if len(names) == 0 {
		return "none"
	}
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = string(n)
	}
	return strings.Join(texts, ", ")
}

// needsNoScope reports whether a route answers a person who has not chosen a tenant.
func needsNoScope(op *huma.Operation) bool { return op.Metadata[noScope] != nil }

const noScope = "noScope"

// unscoped makes a route answer persons without a scope. Its handler calls personOf.
func unscoped(op huma.Operation) huma.Operation {
	op.Metadata = map[string]any{noScope: true}
	return op
}

// still reports whether the caller of an open stream still has its scope.
func (s *Server) still(ctx context.Context, plaintext string, token view.Token) bool {
	c, refusal := s.identify(ctx, plaintext, scopeAsked{chosen: token.Tenant})
	if refusal != nil {
		return refusal.Status != http.StatusUnauthorized
	}
	return c.unscoped == nil && c.token.Tenant == token.Tenant
}
