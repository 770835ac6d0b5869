package githubtest

import (
	"crypto/rsa"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v4"
)

// caller is the sender of a request: one of the three.
type caller struct {
	user    *Account
	install *installation
	app     *App

	permissions map[string]string // of an installation's token
	only        []int64           // repositories that an installation's token reaches
}

// admit identifies the caller and counts the request.
func (s *Server) admit(o *operation, q *request) (answer, bool) {
	if strings.HasPrefix(o.Path, "/app-manifests/") {
		return answer{}, true // the code in the path is all the right there is
	}
	scheme, secret, _ := strings.Cut(q.Header.Get("Authorization"), " ")
	if asApp(o.Path) {
		app := s.verify(scheme, secret)
		if app == nil {
			return problem(http.StatusUnauthorized, "A JSON web token could not be decoded"), false
		}
		q.caller = caller{app: app}
		return answer{}, true
	}
	c := s.credentials[secret]
	if c == nil {
		return problem(http.StatusUnauthorized, "Bad credentials"), false
	}
	q.caller = *c
	if c.install != nil && !c.install.suspended.IsZero() {
		return problem(http.StatusForbidden, "This installation has been suspended"), false
	}
	if s.remaining == 0 {
		return problem(http.StatusForbidden, "API rate limit exceeded for user ID 1."), false
	}
	if s.remaining > 0 {
		s.remaining--
	}
	return answer{}, true
}

func asApp(path string) bool {
	return path == "/app" || strings.HasPrefix(path, "/app/") ||
		path == "/repos/{owner}/{repo}/installation"
}

// verify checks the signature, the issuer and the times of an App's token, as GitHub's "Generating
// a JSON Web Token for a GitHub App" has it.
func (s *Server) verify(scheme, secret string) *App {
	var claims jwt.RegisteredClaims
	var app *App
	_, err := jwt.ParseWithClaims(secret, &claims, func(*jwt.Token) (any, error) {
		id, err := strconv.ParseInt(claims.Issuer, 10, 64)
		if app = s.apps[id]; app == nil {
			return (*rsa.PublicKey)(nil), err
		}
		return &app.key.PublicKey, nil
	}, jwt.WithValidMethods([]string{"RS256"}))
	if scheme != "Bearer" || err != nil || app == nil || claims.IssuedAt == nil ||
		claims.ExpiresAt == nil {
		return nil
	}
	if claims.ExpiresAt.Sub(claims.IssuedAt.Time) > 10*time.Minute {
		return nil
	}
	return app
}

var levels = map[string]int{"none": 0, "read": 1, "triage": 1, "write": 2, "maintain": 2,
	"admin": 3}

// reads reports whether the caller may know of the repository.
func (c caller) reads(r *Repository) bool {
	switch {
	case c.app != nil:
		return true
	case c.install != nil:
		return r.Public || c.reaches(r)
	}
	return c.user != nil && levels[r.level(c.user)] >= levels["read"]
}

func (c caller) reaches(r *Repository) bool {
	for _, id := range c.only {
		if id == r.ID {
			return true
		}
	}
	return false
}

// may reports whether the caller has the level: of the repository for a user, of the permission for
// an installation.
func (r *request) may(permission, level string, ofUser string) (answer, bool) {
	if r.install != nil &&
		(!r.reaches(r.repo) || levels[r.permissions[permission]] < levels[level]) {
		return lacks(permission, level), false
	}
	if r.user != nil && levels[r.repo.level(r.user)] < levels[ofUser] {
		return problem(http.StatusForbidden, "Must have "+ofUser+" rights to Repository."), false
	}
	return answer{}, true
}

func lacks(permission, level string) answer {
	a := problem(http.StatusForbidden, "Resource not accessible by integration")
	a.header = http.Header{"X-Accepted-Github-Permissions": {permission + "=" + level}}
	return a
}

// as is the account that the caller writes as.
func (c caller) as() *Account {
	if c.install != nil {
		return c.install.app.bot
	}
	return c.user
}
