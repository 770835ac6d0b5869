package api

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// SignIn asks identity providers who a person is. Errors wrap view.ErrNoProvider and
// view.ErrProviderDown, or are a *view.SignInRefused.
type SignIn interface {
	// Providers are those that a person may choose, in order.
	Providers() []view.Provider
	// Begin begins a sign-in in a browser, and returns the URL of the provider's page.
	Begin(ctx context.Context, provider, redirect string) (view.Attempt, string, error)
	// Finish redeems the code of a sign-in.
	Finish(ctx context.Context, attempt view.Attempt, redirect, code string) (view.Proven, error)
	// BeginDevice begins a sign-in of a command line.
	BeginDevice(ctx context.Context, provider string) (view.DeviceCode, error)
	// FinishDevice asks once whether the person has confirmed the code: view.ErrPending and
	// view.ErrSlowDown if not yet.
	FinishDevice(ctx context.Context, provider, code string) (view.Proven, error)
	// Refresh asks again about the person of that subject.
	Refresh(ctx context.Context, provider string, refresh []byte, subject string) (view.Proven,
		error)
}

// SessionLimits are how long sessions last.
type SessionLimits struct {
	Idle     time.Duration // without a request
	Absolute time.Duration
	Refresh  time.Duration // between two questions to the provider
}

const (
	attemptTime   = 10 * time.Minute // that a person may take at the provider
	signInsAtOnce = 16               // requests to providers at one replica
	maxCode       = 4096             // bytes of a code, a state or a device code
	secureAttempt = "__Host-argosy-signin"
	plainAttempt  = "argosy-signin" // over plain http; loopback only
)

// noProviders is the SignIn of a control plane that accepts tokens only.
type noProviders struct{ SignIn }

func (noProviders) Providers() []view.Provider { return nil }

func (s *Server) registerSignIn() {
	public := func(op huma.Operation) huma.Operation {
		op.Security, op.Metadata = []map[string][]string{}, map[string]any{isPublic: true}
		return op
	}
	huma.Register(s.api, public(operation(http.MethodGet, "/sign-in", "list-providers",
		"Identity providers that people sign in with; it takes no token", "sign-in", nil)),
		func(context.Context, *struct{}) (*body[wire.List[view.Provider]], error) {
			return &body[wire.List[view.Provider]]{wire.List[view.Provider]{
				Items: append([]view.Provider{}, s.signIn.Providers()...)}}, nil
		})
	huma.Register(s.api, public(operation(http.MethodPost, "/sign-in/device", "begin-sign-in",
		"Begin the sign-in of a command line: a code that the person confirms in a browser "+
			"(RFC 8628); it takes no token", "sign-in", nil)), s.beginDevice)
	huma.Register(s.api, public(operation(http.MethodPost, "/sign-in/device/session",
		"finish-sign-in", "Ask whether the code is confirmed: 202 if not yet, else the session, "+
			"whose secret is in this answer and nowhere else; it takes no token", "sign-in", nil)),
		s.finishDevice)
}

// isPublic marks routes that take no token.
const isPublic = "public"

// asking bounds the requests to providers that people without a token cause.
func (s *Server) asking() (leave func(), refusal *wire.Refusal) {
	select {
	case s.signIns <- struct{}{}:
		return func() { <-s.signIns }, nil
	default:
		return nil, problem(http.StatusTooManyRequests, "sign-in",
			"too many sign-ins are under way at this replica", "try again in some seconds")
	}
}

func (s *Server) beginDevice(ctx context.Context, in *asked[wire.SignInRequest]) (
	*body[view.DeviceCode], error) {
	leave, refusal := s.asking()
	if refusal != nil {
		return nil, refusal
	}
	defer leave()
	code, err := s.signIn.BeginDevice(ctx, in.Body.Provider)
	if err != nil {
		return nil, s.signInProblem(ctx, in.Body.Provider, err)
	}
	return &body[view.DeviceCode]{code}, nil
}

type deviceOut struct {
	Status int
	Body   wire.SignedIn
}

func (s *Server) finishDevice(ctx context.Context, in *asked[wire.SignInPoll]) (*deviceOut, error) {
	leave, refusal := s.asking()
	if refusal != nil {
		return nil, refusal
	}
	defer leave()
	proven, err := s.signIn.FinishDevice(ctx, in.Body.Provider, in.Body.Code)
	switch {
	case errors.Is(err, view.ErrPending):
		return &deviceOut{http.StatusAccepted, wire.SignedIn{}}, nil
	case errors.Is(err, view.ErrSlowDown):
		return &deviceOut{http.StatusAccepted, wire.SignedIn{SlowDown: true}}, nil
	case err != nil:
		return nil, s.signInProblem(ctx, in.Body.Provider, err)
	}
	session, plaintext, err := s.openSession(ctx, proven, view.SessionCLI,
		"device "+in.Body.Provider+" "+in.Body.Code)
	if err != nil {
		return nil, s.signInProblem(ctx, in.Body.Provider, err)
	}
	return &deviceOut{http.StatusOK, wire.SignedIn{Session: &session, Plaintext: plaintext}}, nil
}

// openSession creates the session of a proven person.
func (s *Server) openSession(ctx context.Context, proven view.Proven, kind view.SessionKind,
	once string) (view.Session, string, error) {
	now := s.now()
	session := view.Session{Person: proven.Person, Kind: kind,
		IdleUntil: now.Add(s.limits.Idle), ExpiresAt: now.Add(s.limits.Absolute)}
	if len(proven.Refresh) > 0 {
		next := now.Add(s.limits.Refresh)
		session.RefreshAt = &next
	}
	return s.sessions.CreateSession(ctx, session, once, proven.Refresh)
}

// signInProblem translates an error of a sign-in into what anybody may know.
func (s *Server) signInProblem(ctx context.Context, provider string, err error) *wire.Refusal {
	var refused *view.SignInRefused
	var p *wire.Refusal
	switch {
	case errors.As(err, &refused):
		s.log.InfoContext(ctx, "refused a sign-in", "issuer", provider, "why", refused.Why)
		return problem(http.StatusForbidden, "sign-in", refused.Why, refused.Next)
	case errors.Is(err, view.ErrNoProvider):
		return problem(http.StatusNotFound, "sign-in", "there is no identity provider of this name",
			"see the sign-in page, or GET /api/v1/sign-in")
	case errors.Is(err, mirror.ErrReplayed):
		return problem(http.StatusForbidden, "sign-in", "this sign-in was used already",
			"begin again on the sign-in page")
	case errors.Is(err, view.ErrProviderDown):
		s.log.WarnContext(ctx, "an identity provider does not answer", "issuer", provider,
			"error", err)
		return problem(http.StatusServiceUnavailable, "sign-in",
			"the identity provider does not answer, or not as it has to",
			"people who are signed in stay so; try again, use a token, and see the log of `argosy "+
				"serve` and `argosy doctor`")
	}
	errors.As(s.answer(ctx, "sign-in", err), &p)
	return p
}

// refresh asks the provider again for a session's groups, if they are due. The request does not
// wait: while the provider is down, the last groups count until the session ends.
func (s *Server) refresh(session view.Session, plaintext string) {
	if session.RefreshAt == nil || s.now().Before(*session.RefreshAt) {
		return
	}
	leave, refusal := s.asking()
	if refusal != nil {
		return
	}
	s.refreshing.Go(func() {
		defer leave()
		ctx, cancel := context.WithTimeout(context.Background(), requestTime)
		defer cancel()
		if err := s.askAgain(ctx, session, plaintext); err != nil {
			s.log.WarnContext(ctx, "failed to refresh a session; its groups stay as they are",
				"session", session.ID, "issuer", session.Issuer, "error", err)
		}
	})
}

func (s *Server) askAgain(ctx context.Context, session view.Session, plaintext string) error {
	token, ok, err := s.sessions.ClaimRefresh(ctx, plaintext)
	if err != nil || !ok {
		return err
	}
	proven, err := s.signIn.Refresh(ctx, session.Issuer, token, session.Person.Subject)
	var refused *view.SignInRefused
	if errors.As(err, &refused) {
		s.log.InfoContext(ctx, "an identity provider ended a session", "session", session.ID,
			"issuer", session.Issuer, "why", refused.Why)
		return s.sessions.RevokeSession(ctx, session.ID, nil, "issuer:"+session.Issuer)
	}
	if err != nil {
		return err
	}
	if len(proven.Refresh) == 0 {
		proven.Refresh = token // it stays valid
	}
	return s.sessions.Refreshed(ctx, plaintext, proven.Person, proven.Refresh,
		s.now().Add(s.limits.Refresh))
}

// configured reports whether the settings still have the provider of a session.
func (s *Server) configured(issuer string) bool {
	for _, p := range s.signIn.Providers() {
		if p.Name == issuer {
			return true
		}
	}
	return false
}

// ---- the page

type signinPage struct {
	frame
	To        string
	Message   string
	Next      string
	Providers []view.Provider
}

func (s *website) signinView(r *http.Request, to string) signinPage {
	return signinPage{frame: s.frame("Sign in", view.Token{}), To: localPath(to),
		Providers: s.signIn.Providers()}
}

func (s *website) signinForm(w http.ResponseWriter, r *http.Request) {
	s.render(w, http.StatusOK, "signin", s.signinView(r, r.URL.Query().Get("to")))
}

func (s *website) signin(w http.ResponseWriter, r *http.Request) {
	page := s.signinView(r, r.PostFormValue("to"))
	if !overTLS(r) && !onLoopback(r) {
		page.Message = "Signing in needs https: over plain http every proxy could read the token."
		s.render(w, http.StatusForbidden, "signin", page)
		return
	}
	plaintext := strings.TrimSpace(r.PostFormValue("token"))
	_, err := s.tokens.VerifyToken(r.Context(), plaintext)
	if errors.Is(err, mirror.ErrNotFound) {
		page.Message = "This token is invalid or expired. Ask the platform for another one."
		s.render(w, http.StatusUnauthorized, "signin", page)
		return
	}
	if err != nil {
		s.failPage(w, r, view.Token{}, "sign-in", err)
		return
	}
	http.SetCookie(w, sessionCookie(r, plaintext, 0))
	http.Redirect(w, r, page.To, http.StatusSeeOther)
}

// signout ends the session too, not only its cookie.
func (s *website) signout(w http.ResponseWriter, r *http.Request) {
	plaintext := sessionToken(r)
	if strings.HasPrefix(plaintext, view.SessionPrefix) && s.sessions != nil {
		if session, err := s.sessions.VerifySession(r.Context(), plaintext); err == nil {
			err = s.sessions.RevokeSession(r.Context(), session.ID, nil, session.Actor)
			if err != nil {
				s.failPage(w, r, view.Token{}, "session", err)
				return
			}
		}
	}
	http.SetCookie(w, sessionCookie(r, "", -1))
	http.SetCookie(w, tenantCookie(r, ""))
	http.Redirect(w, r, "/signin", http.StatusSeeOther)
}

// redirectURL is where a provider sends people back to: a path of its own, so that no provider can
// answer for another one.
func (s *Server) redirectURL(provider string) string {
	return RedirectURL(s.hub, provider)
}

// RedirectURL is what is registered at a provider, for the public URL of the control plane.
func RedirectURL(public, provider string) string {
	return strings.TrimSuffix(public, "/") + "/signin/" + provider + "/callback"
}

// signinBegin sends the browser to the provider. The attempt is in a cookie that the browser sends
// when the provider sends it back: SameSite=Lax, since that is a request from another site. A link
// of another site begins nothing.
func (s *website) signinBegin(w http.ResponseWriter, r *http.Request) {
	page := s.signinView(r, r.URL.Query().Get("to"))
	if !overTLS(r) && !onLoopback(r) {
		page.Message = "Signing in needs https: over plain http every proxy could read the session."
		s.render(w, http.StatusForbidden, "signin", page)
		return
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" &&
		site != "none" {
		s.render(w, http.StatusOK, "signin", page)
		return
	}
	leave, refusal := s.asking()
	if refusal != nil {
		s.refuseSignIn(w, page, refusal)
		return
	}
	defer leave()
	provider := r.PathValue("provider")
	attempt, to, err := s.signIn.Begin(r.Context(), provider, s.redirectURL(provider))
	if err != nil {
		s.refuseSignIn(w, page, s.signInProblem(r.Context(), provider, err))
		return
	}
	attempt.To = page.To
	text, err := json.Marshal(attempt)
	if err != nil {
		s.failPage(w, r, view.Token{}, "sign-in", err)
		return
	}
	http.SetCookie(w, attemptCookie(r, base64.RawURLEncoding.EncodeToString(text),
		int(attemptTime.Seconds())))
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// sameText compares secrets in constant time.
func sameText(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func attemptCookie(r *http.Request, value string, maxAge int) *http.Cookie {
	name := plainAttempt
	if overTLS(r) {
		name = secureAttempt
	}
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, Secure: overTLS(r)}
}

// attemptOf returns the sign-in that the browser has begun with the provider, if its state is that
// of the callback.
func attemptOf(r *http.Request, now time.Time) (view.Attempt, bool) {
	var a view.Attempt
	cookie, err := r.Cookie(attemptCookie(r, "", 0).Name)
	if err != nil {
		return a, false
	}
	a, ok := parseAttempt(cookie.Value)
	age := now.Sub(a.At)
	return a, ok && a.Provider == r.PathValue("provider") && age >= 0 && age < attemptTime &&
		sameText(a.State, r.URL.Query().Get("state"))
}

// parseAttempt reads the cookie of a sign-in.
func parseAttempt(value string) (a view.Attempt, ok bool) {
	if len(value) > maxCode {
		return a, false
	}
	text, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || json.Unmarshal(text, &a) != nil {
		return view.Attempt{}, false
	}
	return a, a.State != "" && a.Nonce != "" && a.Verifier != "" && a.Provider != ""
}

// signinCallback is where the provider sends the browser back to. It answers with a page of our
// own, whose request for the next page is the first one from this site: with that one, the browser
// sends the session's strict cookie.
func (s *website) signinCallback(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, attemptCookie(r, "", -1))
	attempt, ok := attemptOf(r, s.now())
	page := s.signinView(r, attempt.To)
	q := r.URL.Query()
	code := q.Get("code")
	switch {
	case !ok:
		s.refuseSignIn(w, page, problem(http.StatusForbidden, "sign-in",
			"this browser has not begun this sign-in, or too long ago", "begin again"))
		return
	case code == "" || len(code) > maxCode:
		why := "the identity provider sent no code"
		if e := q.Get("error"); e != "" {
			why = "the identity provider refused: " + shortened(e+" "+q.Get("error_description"))
		}
		s.refuseSignIn(w, page, problem(http.StatusForbidden, "sign-in", why, "begin again"))
		return
	}
	leave, refusal := s.asking()
	if refusal != nil {
		s.refuseSignIn(w, page, refusal)
		return
	}
	defer leave()
	proven, err := s.signIn.Finish(r.Context(), attempt, s.redirectURL(attempt.Provider), code)
	var plaintext string
	if err == nil {
		_, plaintext, err = s.openSession(r.Context(), proven, view.SessionPage,
			"state "+attempt.State)
	}
	if err != nil {
		s.refuseSignIn(w, page, s.signInProblem(r.Context(), attempt.Provider, err))
		return
	}
	http.SetCookie(w, sessionCookie(r, plaintext, int(s.limits.Absolute.Seconds())))
	http.SetCookie(w, tenantCookie(r, ""))
	s.render(w, http.StatusOK, "signedin", page)
}

// shortened bounds a text of a provider.
func shortened(text string) string {
	text = strings.TrimSpace(text)
	return text[:min(len(text), 200)]
}

func (s *website) refuseSignIn(w http.ResponseWriter, page signinPage, p *wire.Refusal) {
	page.Message, page.Next = p.Detail, p.Next
	s.render(w, p.Status, "signin", page)
}

type sessionsView struct {
	frame
	Sessions []view.Session
	Own      string // the session of this request
	Next     string
	All      bool
}

// sessionsPage lists the person's sessions, and for an admin with ?all=1 those of everybody.
func (s *website) sessionsPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	c := caller{token: token, session: token.SignedIn}
	v := sessionsView{frame: s.framed(r, token, "Sessions"), All: r.URL.Query().Get("all") != ""}
	if c.session != nil {
		v.Own = c.session.ID
	}
	of, refusal := c.owned(v.All)
	if refusal != nil {
		s.failPage(w, r, token, "sessions", refusal)
		return
	}
	if s.sessions == nil {
		s.show(w, r, token, "sessions", "sessions", v, nil)
		return
	}
	var err error
	v.Sessions, v.Next, err = s.sessions.ListSessions(r.Context(), of,
		view.Page{Limit: manyItems, After: cursor(r.URL.Query().Get("after"))})
	s.show(w, r, token, "sessions", "sessions", v, err)
}

// endSession ends a session from the page.
func (s *website) endSession(w http.ResponseWriter, r *http.Request, token view.Token) {
	c := caller{token: token, session: token.SignedIn}
	of, refusal := c.owned(c.whole().Decide(access.Issue,
		access.Thing{Kind: access.Session}).Allowed)
	if refusal != nil || s.sessions == nil {
		s.failPage(w, r, token, "session", mirror.ErrNotFound)
		return
	}
	if err := s.sessions.RevokeSession(r.Context(), r.PathValue("id"), of,
		c.subject()); err != nil {
		s.failPage(w, r, token, "session", err)
		return
	}
	http.Redirect(w, r, "/sessions", http.StatusSeeOther)
}
