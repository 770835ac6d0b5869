package api

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

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
func (s *Server) signedIn(next func(http.ResponseWriter, *http.Request,
	view.Token)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		plaintext := sessionToken(r)
		if plaintext == "" {
			http.Redirect(w, r, "/signin?to="+url.QueryEscape(r.URL.Path), http.StatusSeeOther)
			return
		}
		token, err := s.tokens.VerifyToken(r.Context(), plaintext)
		if errors.Is(err, mirror.ErrNotFound) {
			http.SetCookie(w, sessionCookie(r, "", -1))
			http.Redirect(w, r, "/signin?to="+url.QueryEscape(r.URL.Path), http.StatusSeeOther)
			return
		}
		if err != nil {
			s.failPage(w, r, view.Token{}, "session", err)
			return
		}
		leave, refusal := s.admitRead(r, token)
		if refusal != nil {
			w.Header().Set("Retry-After", "1")
			s.failPage(w, r, token, "page", refusal)
			return
		}
		defer leave()
		next(w, r, token)
	}
}

type signinPage struct {
	frame
	To      string
	Message string
}

func (s *Server) signinForm(w http.ResponseWriter, r *http.Request) {
	s.render(w, http.StatusOK, "signin", signinPage{frame: s.frame("Sign in", view.Token{}),
		To: localPath(r.URL.Query().Get("to"))})
}

func (s *Server) signin(w http.ResponseWriter, r *http.Request) {
	page := signinPage{frame: s.frame("Sign in", view.Token{}),
		To: localPath(r.PostFormValue("to"))}
	if !overTLS(r) && !onLoopback(r) {
		page.Message =
			"Signing in needs https: over plain http every proxy could read the token."
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

func (s *Server) signout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, sessionCookie(r, "", -1))
	http.Redirect(w, r, "/signin", http.StatusSeeOther)
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
