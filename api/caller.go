package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// callerKey is the context key of the verified token, the only value that the middleware passes to
// the handler by context.
type callerKey struct{}

func callerOf(ctx context.Context) view.Token {
	token, ok := ctx.Value(callerKey{}).(view.Token)
	if !ok {
		panic("a handler was reached without a verified token")
	}
	return token
}

// authenticate verifies the bearer token of each request. No route bypasses it.
func (s *Server) authenticate(ctx huma.Context, next func(huma.Context)) {
	url := ctx.URL()
	for name := range url.Query() {
		if looksLikeToken(name) {
			s.refuse(ctx, problem(http.StatusBadRequest, "query",
				"a token must not be sent in a URL: URLs end up in logs",
				"send it as 'Authorization: Bearer …', and revoke the one that was sent"))
			return
		}
	}
	token, refusal := s.verify(ctx.Context(), bearer(ctx.Header("Authorization")))
	if refusal != nil {
		if refusal.Status == http.StatusUnauthorized {
			ctx.SetHeader("WWW-Authenticate", `Bearer realm="argosy"`)
		}
		s.refuse(ctx, refusal)
		return
	}
	s.limitReads(ctx, token, next)
}

// verify returns the token of the plaintext, or the refusal of the request.
func (s *Server) verify(ctx context.Context, plaintext string) (view.Token, *wire.Refusal) {
	if plaintext == "" {
		return view.Token{}, problem(http.StatusUnauthorized, "", "a token is required",
			"run `argosy login URL --token-stdin`, or set ARGOSY_TOKEN")
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

func bearer(header string) string {
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func looksLikeToken(parameter string) bool {
	switch strings.ToLower(parameter) {
	case "token", "access_token", "auth", "authorization", "api_key", "apikey":
		return true
	}
	return false
}

// platformOnly accepts tokens of the platform. A tenant can detect that the list exists, which the
// documentation states anyway.
func (s *Server) platformOnly(ctx huma.Context, next func(huma.Context)) {
	if callerOf(ctx.Context()).Tenant != "" {
		s.refuse(ctx, problem(http.StatusForbidden, ctx.Operation().OperationID,
			"this belongs to the platform", "ask with a token of the platform"))
		return
	}
	next(ctx)
}

// writersOnly accepts tokens with a writing role.
func (s *Server) writersOnly(ctx huma.Context, next func(huma.Context)) {
	if callerOf(ctx.Context()).Role != view.RoleWrite {
		s.refuse(ctx, problem(http.StatusForbidden, ctx.Operation().OperationID,
			"this token may only read", "ask with a token of the role write"))
		return
	}
	next(ctx)
}

func (s *Server) refuse(ctx huma.Context, p *wire.Refusal) {
	_, w := unwrap(ctx)
	writeProblem(w, p)
}
