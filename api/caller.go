package api

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/audit"
	"argosy.dev/argosy/fleet/view"
	"github.com/danielgtaylor/huma/v2"
)

// callerKey is the context key of the verified caller, the only value that the middleware passes to
// the handler by context.
type callerKey struct{}

// identityOf is who the audit log names beside the caller's name.
func identityOf(c caller) audit.Identity {
	if c.session != nil {
		return audit.Identity{Session: c.session.ID, Issuer: c.session.Issuer,
			Account: c.session.Person.Subject}
	}
	return audit.Identity{Token: c.token.ID}
}

// caller is who sends a request: a token, or the session of a person.
type caller struct {
	token   view.Token
	session *view.Session // nil: a machine
	// why a person has no scope: then token is empty, and only routes that need none go on
	unscoped *wire.Refusal
}

func personOf(ctx context.Context) caller {
	c, ok := ctx.Value(callerKey{}).(caller)
	if !ok {
		panic("a handler was reached without a verified caller")
	}
	return c
}

// callerOf returns the caller within its scope.
func callerOf(ctx context.Context) view.Token {
	c, ok := ctx.Value(callerKey{}).(caller)
	if !ok || c.unscoped != nil {
		panic("a handler was reached without a verified token")
	}
	return c.token
}

// authenticate verifies the bearer token of each request. No route bypasses it but those of a
// sign-in, which are public.
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
	if ctx.Operation().Metadata[isPublic] != nil {
		next(ctx)
		return
	}
	r, _ := unwrap(ctx)
	c, refusal := s.identify(ctx.Context(), bearer(ctx.Header("Authorization")), asksFor(r))
	if refusal == nil && c.unscoped != nil && !needsNoScope(ctx.Operation()) {
		refusal = c.unscoped
	}
	if refusal != nil {
		if refusal.Status == http.StatusUnauthorized {
			ctx.SetHeader("WWW-Authenticate", `Bearer realm="argosy"`)
		}
		s.refuse(ctx, refusal)
		return
	}
	s.limitReads(ctx, c, next)
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

type guard = func(huma.Context, func(huma.Context))

// may is the guard of a route: the one evaluation of whether the caller may do the verb to things
// of the kind. The thing is of the tenant in the caller's scope, or in the scope of the platform of
// the tenant that the route names. A handler that reads the tenant from the body gets only items of
// the scope: another tenant's are missing.
func (s *Server) may(verb access.Verb, kind access.Kind) guard {
	return func(ctx huma.Context, next func(huma.Context)) {
		caller := callerOf(ctx.Context())
		d := caller.May(verb, kind, fleet.TenantName(ctx.Param("tenant")))
		// an approval by someone who is no owner is refused by its handler, which names the owners
		if !d.Allowed && !(verb == access.Approve && caller.Role == view.RoleWrite) {
			s.refuse(ctx, forbidden(caller, ctx.Operation().OperationID, d))
			return
		}
		next(ctx)
	}
}

// forbidden returns the refusal of a verb.
func forbidden(caller view.Token, subject string, d access.Decision) *wire.Refusal {
	switch {
	case caller.SignedIn != nil && caller.Tenant == "" && len(caller.SignedIn.Roles.Tenants) > 0:
		return problem(http.StatusForbidden, subject, d.Why, "for one of your tenants ("+
			tenantNames(caller.SignedIn.Roles.Names())+"), choose it: `argosy context "+
			"use CONTEXT --tenant NAME`, or ARGOSY_TENANT")
	case caller.SignedIn != nil:
		return problem(http.StatusForbidden, subject, d.Why, "see docs/roles.md, and `argosy can "+
			"VERB THING`; "+whoGrants(d))
	case d.Needs == "" && caller.Tenant != "":
		return problem(http.StatusForbidden, subject, "this belongs to the platform",
			"ask with a token of the platform")
	}
	return problem(http.StatusForbidden, subject, "this token may only read",
		"ask with a token of the role write")
}

// whoGrants names the file that could grant the verb.
func whoGrants(d access.Decision) string {
	if d.Needs != "" {
		return "the Tenant's file in fleet/tenants/ grants roles of the tenant"
	}
	return "fleet/access.yaml grants roles of the platform"
}

// platformOnly accepts callers with the scope of the platform. A tenant can detect that the list
// exists, which the documentation states anyway.
func (s *Server) platformOnly(ctx huma.Context, next func(huma.Context)) {
	s.may(access.View, access.Fleet)(ctx, next)
}

func (s *Server) refuse(ctx huma.Context, p *wire.Refusal) {
	_, w := unwrap(ctx)
	writeProblem(w, p)
}

// The page's cookie holds the token itself, so that a revoked token ends a session at once. Scripts
// cannot read it, other sites cannot send it, and the API ignores it: it authorizes no change.
const (
	secureCookie = "__Host-argosy" // over https
	// over plain http, where a browser rejects __Host- cookies; loopback only
	loopbackCookie = "argosy-session"
)

// overTLS reports whether the browser uses https to us, or to a proxy in front of us according to
// its header. A forged header only costs the client its cookie.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

func onLoopback(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(r.Host); err == nil {
		host = h
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && addr.IsLoopback()
}

func cookieName(r *http.Request) string {
	if overTLS(r) {
		return secureCookie
	}
	return loopbackCookie
}

func sessionCookie(r *http.Request, value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName(r), Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: overTLS(r),
	}
}

func sessionToken(r *http.Request) string {
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return ""
	}
	return cookie.Value
}

// signedIn serves a page to clients with a valid token, and the login form to others.
func (s *website) signedIn(next func(http.ResponseWriter, *http.Request,
	view.Token)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		plaintext := sessionToken(r)
		if plaintext == "" {
			http.Redirect(w, r, "/signin?to="+url.QueryEscape(r.URL.Path), http.StatusSeeOther)
			return
		}
		c, refusal := s.identify(r.Context(), plaintext, pageAsksFor(r))
		switch {
		case refusal != nil && refusal.Status == http.StatusUnauthorized:
			http.SetCookie(w, sessionCookie(r, "", -1))
			http.Redirect(w, r, "/signin?to="+url.QueryEscape(r.URL.Path), http.StatusSeeOther)
			return
		case refusal != nil:
			s.failPage(w, r, view.Token{}, "session", refusal)
			return
		case c.unscoped != nil:
			s.chooseTenant(w, r, c)
			return
		}
		token := c.token
		leave, refusal := s.admitRead(r, c.id())
		if refusal != nil {
			w.Header().Set("Retry-After", "1")
			s.failPage(w, r, token, "page", refusal)
			return
		}
		defer leave()
		if r.Method == http.MethodGet && r.Header.Get(partsHeader) != "" {
			s.renew(w, r, token, next)
			return
		}
		next(w, r, token)
	}
}

// localPath returns a path of this site that no browser parses as another one.
func localPath(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(to, "/") ||
		strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n\t") {
		return "/"
	}
	return u.EscapedPath()
}

// Limits of one token at one replica. Decisions, such as a stop, never count, and never wait for
// reads with the same token.
const (
	readsAtOnce  = 4
	readsWaiting = 32
	readsWait    = 10 * time.Second
)

// readLimits bounds the concurrent reads of one token, so that a client with many requests waits
// for itself and does not delay others.
type readLimits struct {
	mu sync.Mutex
	of map[string]*tokenReads
}

type tokenReads struct {
	semaphore chan struct{}
	users     int // in progress or waiting
}

// enter waits for the token's semaphore; leave releases it. It returns false if too many reads wait
// already, or if the wait times out.
func (s *readLimits) enter(ctx context.Context, token string) (leave func(), ok bool) {
	s.mu.Lock()
	if s.of == nil {
		s.of = map[string]*tokenReads{}
	}
	mine := s.of[token]
	if mine == nil {
		mine = &tokenReads{semaphore: make(chan struct{}, readsAtOnce)}
		s.of[token] = mine
	}
	if mine.users == readsAtOnce+readsWaiting {
		s.mu.Unlock()
		return nil, false
	}
	mine.users++
	s.mu.Unlock()
	gone := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(s.of, token)
		}
	}
	timer := time.NewTimer(readsWait)
	defer timer.Stop()
	select {
	case mine.semaphore <- struct{}{}:
		return func() { <-mine.semaphore; gone() }, true
	case <-ctx.Done():
	case <-timer.C:
	}
	gone()
	return nil, false
}

// admitRead admits the token's read, or returns the refusal. Decisions, and streams, which mostly
// wait, do not count.
func (s *Server) admitRead(r *http.Request, id string) (leave func(),
	refusal *wire.Refusal) {
	// a pattern of GET answers HEAD too, with the same reads
	if r.Method != http.MethodGet && r.Method != http.MethodHead || isStream(r) {
		return func() {}, nil
	}
	leave, ok := s.readLimits.enter(r.Context(), id)
	if !ok {
		return nil, problem(http.StatusTooManyRequests, "",
			"this token has 4 reads in progress at this replica, and the others have waited too "+
				"long or are too many",
			"ask again after Retry-After seconds, fewer at a time, or give each program a token "+
				"of its own")
	}
	return leave, nil
}

// limitReads is shared for the routes of the API.
func (s *Server) limitReads(ctx huma.Context, c caller, next func(huma.Context)) {
	r, w := unwrap(ctx)
	leave, refusal := s.admitRead(r, c.id())
	if refusal != nil {
		w.Header().Set("Retry-After", "1")
		writeProblem(w, refusal)
		return
	}
	defer leave()
	with := context.WithValue(ctx.Context(), callerKey{}, c)
	next(huma.WithContext(ctx, audit.WithIdentity(with, identityOf(c))))
}
