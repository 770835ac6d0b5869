package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

const (
	minTTL = time.Minute
	maxTTL = 10 * 365 * 24 * time.Hour
)

type tokenIn struct {
	ID string `path:"id" maxLength:"64" pattern:"^[A-Za-z0-9_-]+$"`
}

func (s *Server) registerTokens() {
	readers := []func(huma.Context, func(huma.Context)){s.platformOnly}
	writers := []func(huma.Context, func(huma.Context)){s.platformOnly, s.writersOnly}
	huma.Register(s.api, operation(http.MethodGet, "/tokens", "list-tokens",
		"Tokens without their plaintext (platform)", "tokens", readers),
		func(ctx context.Context, in *struct{ Paging }) (*body[wire.List[view.Token]], error) {
			tokens, next, err := s.tokens.ListTokens(ctx, in.page())
			if err != nil {
				return nil, s.answer(ctx, "tokens", err)
			}
			if tokens == nil {
				tokens = []view.Token{}
			}
			return &body[wire.List[view.Token]]{wire.List[view.Token]{Items: tokens, Next: next}},
				nil
		})
	create := operation(http.MethodPost, "/tokens", "create-token",
		"Create a token; its plaintext is in this answer and nowhere else (platform)", "tokens",
		writers)
	create.DefaultStatus = http.StatusCreated
	huma.Register(s.api, create, s.createToken)
	huma.Register(s.api, operation(http.MethodDelete, "/tokens/{id}", "revoke-token",
		"End a token at once (platform)", "tokens", writers),
		func(ctx context.Context, in *tokenIn) (*struct{}, error) {
			err := s.tokens.RevokeToken(ctx, in.ID, callerOf(ctx).Subject())
			return nil, s.answer(ctx, "token "+in.ID, err)
		})
}

func (s *Server) createToken(ctx context.Context,
	in *asked[wire.TokenRequest]) (*body[wire.CreatedToken], error) {
	token := view.Token{Name: in.Body.Name, Tenant: in.Body.Tenant, Role: in.Body.Role,
		CreatedBy: callerOf(ctx).Subject()}
	if err := fleet.ValidateName(in.Body.Name); err != nil {
		return nil, problem(http.StatusUnprocessableEntity, "name", err.Error(),
			"give the token a name such as ci")
	}
	if in.Body.TTL != "" {
		ttl, err := time.ParseDuration(in.Body.TTL)
		if err != nil || ttl < minTTL || ttl > maxTTL {
			return nil, problem(http.StatusUnprocessableEntity, "ttl",
				"a token is valid for 1m to 87600h",
				"leave ttl out for one that is valid until it is revoked")
		}
		expires := s.now().UTC().Add(ttl)
		token.ExpiresAt = &expires
	}
	made, plaintext, err := s.tokens.CreateToken(ctx, token)
	if err != nil {
		return nil, s.answer(ctx, subjectf("tenant %s", in.Body.Tenant), err)
	}
	return &body[wire.CreatedToken]{wire.CreatedToken{Token: made, Plaintext: plaintext}}, nil
}
