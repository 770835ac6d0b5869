package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

type (
	sessionsIn struct {
		Paging
		All bool `query:"all" doc:"Everybody's, not only the caller's own (admins)"`
	}
	sessionIn struct {
		ID string `path:"id" maxLength:"64" pattern:"^[A-Za-z0-9_-]+$"`
	}
	canIn struct {
		Verb   string `query:"verb" required:"true" maxLength:"32" doc:"See docs/roles.md"`
		Thing  string `query:"thing" required:"true" maxLength:"400" example:"application/acme/web@prod"`
		Person string `query:"person" maxLength:"2000" doc:"Entries as files name a person, separated by commas; left out: the caller" example:"github:alice,group:on-call"`
	}
)

func (s *Server) registerSessions() {
	huma.Register(s.api, unscoped(operation(http.MethodGet, "/sessions", "list-sessions",
		"Sessions of people without their secret, newest first: the caller's own, or all (admins)",
		"sessions", nil)), s.listSessions)
	huma.Register(s.api, unscoped(operation(http.MethodDelete, "/sessions/{id}", "revoke-session",
		"End a session at once: one of the caller's own, or any (admins)", "sessions", nil)),
		s.revokeSession)
	huma.Register(s.api, unscoped(operation(http.MethodGet, "/can", "can",
		"Whether the caller, or another person (with a role of the platform), may do something, "+
			"and which entry of which file grants it", "state", nil)), s.can)
}

// whole returns the roles of the caller in every tenant.
func (c caller) whole() access.Roles {
	if c.session != nil {
		return c.session.Roles
	}
	return c.token.Roles()
}

func (c caller) subject() string {
	if c.session != nil {
		return c.session.Actor
	}
	return c.token.Subject()
}

// owned returns whose sessions the caller may list and end: its own, or everybody's (nil).
func (c caller) owned(everybody bool) (*access.Person, *wire.Refusal) {
	d := c.whole().Decide(access.Issue, access.Thing{Kind: access.Session})
	switch {
	case everybody && d.Allowed || c.session == nil && d.Allowed:
		return nil, nil
	case everybody || c.session == nil:
		return nil, problem(http.StatusForbidden, "sessions", d.Why,
			"a person sees and ends their own: `argosy session list`")
	}
	return &c.session.Person, nil
}

func (s *Server) listSessions(ctx context.Context, in *sessionsIn) (
	*body[wire.List[view.Session]], error) {
	of, refusal := personOf(ctx).owned(in.All)
	if refusal != nil {
		return nil, refusal
	}
	list := wire.List[view.Session]{Items: []view.Session{}}
	if s.sessions != nil {
		items, next, err := s.sessions.ListSessions(ctx, of, in.page())
		if err != nil {
			return nil, s.answer(ctx, "sessions", err)
		}
		list.Items, list.Next = append(list.Items, items...), next
	}
	return &body[wire.List[view.Session]]{list}, nil
}

// revokeSession ends a session of the caller. One of somebody else is not found unless the caller
// may end it.
func (s *Server) revokeSession(ctx context.Context, in *sessionIn) (*struct{}, error) {
	c := personOf(ctx)
	of, refusal := c.owned(c.whole().Decide(access.Issue,
		access.Thing{Kind: access.Session}).Allowed)
	if refusal != nil {
		return nil, refusal
	}
	subject := "session " + in.ID
	err := mirror.ErrNotFound
	if s.sessions != nil {
		err = s.sessions.RevokeSession(ctx, in.ID, of, c.subject())
	}
	if errors.Is(err, mirror.ErrNotFound) {
		return nil, problem(http.StatusNotFound, subject,
			"no such session, or not one that you may end", "see `argosy session list`")
	}
	return nil, s.answer(ctx, subject, err)
}

// identity describes the caller, whether or not a tenant is chosen.
func (s *Server) identity(c caller) wire.Identity {
	who := wire.Identity{Subject: c.subject(), Tenant: c.token.Tenant, Role: c.token.Role,
		ExpiresAt: c.token.ExpiresAt, Version: s.version}
	if c.session == nil {
		return who
	}
	who.Session, who.Groups, who.ExpiresAt = c.session.ID, c.session.Person.Groups,
		&c.session.ExpiresAt
	if g := c.session.Roles.Platform; g.Role != "" {
		who.Roles = append(who.Roles, g)
	}
	for _, t := range c.session.Roles.Names() {
		who.Roles = append(who.Roles, c.session.Roles.Tenants[t])
	}
	if c.unscoped != nil {
		who.Unscoped = c.unscoped.Detail
	}
	return who
}

// can answers a question about the caller, or about another person. The answer for another person
// shows entries of files, which takes a role of the platform.
func (s *Server) can(ctx context.Context, in *canIn) (*body[wire.Answer], error) {
	c := personOf(ctx)
	thing, err := access.ParseThing(in.Thing)
	if err != nil {
		return nil, problem(http.StatusUnprocessableEntity, "thing", err.Error(),
			"write a thing such as fleet, tenant/acme or application/acme/web@prod")
	}
	subject, roles := c.subject(), c.whole()
	if in.Person != "" {
		if subject, roles, err = s.rolesOf(ctx, c, in.Person); err != nil {
			return nil, err
		}
	}
	a := wire.Answer{Subject: subject, Verb: in.Verb, Thing: thing.String(),
		Decision: roles.Decide(access.Verb(in.Verb), thing)}
	if a.Grant.Blob != "" && s.lines != nil {
		a.Line = s.lines(ctx, a.Grant.Blob, a.Grant.Field)
	}
	return &body[wire.Answer]{a}, nil
}

// rolesOf returns the roles of a person with exactly the listed entries.
func (s *Server) rolesOf(ctx context.Context, c caller, list string) (string, access.Roles, error) {
	if d := c.whole().Decide(access.View, access.Thing{Kind: access.Fleet}); !d.Allowed {
		return "", access.Roles{}, problem(http.StatusForbidden, "person", d.Why,
			"leave the person out to ask about yourself")
	}
	person, err := access.PersonOf(strings.Split(list, ",")...)
	if err != nil {
		return "", access.Roles{}, problem(http.StatusUnprocessableEntity, "person", err.Error(),
			"write entries as files do, such as github:alice,group:on-call")
	}
	if s.sessions == nil {
		return list, access.Roles{}, nil
	}
	facts, err := s.sessions.Facts(ctx, person)
	if err != nil {
		return "", access.Roles{}, s.answer(ctx, "person", err)
	}
	return list, facts.Of(person), nil
}
