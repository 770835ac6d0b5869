package api

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/view"
)

// The page keeps the chosen tenant in a cookie, which is no secret and grants nothing.
const (
	secureTenant   = "__Host-argosy-tenant"
	loopbackTenant = "argosy-tenant"
)

// pageAsksFor reads the tenant of a request of the page.
func pageAsksFor(r *http.Request) scopeAsked {
	a := scopeAsked{named: fleet.TenantName(r.PathValue("tenant")),
		changes: r.Method != http.MethodGet}
	if strings.HasPrefix(r.URL.Path, doPath) { // the confirmation has the scope of its change
		a.named, a.changes = tenantIn(r.URL.Query()), true
	}
	if cookie, err := r.Cookie(tenantCookieName(r)); err == nil {
		a.chosen = fleet.TenantName(cookie.Value)
	}
	return a
}

func tenantCookieName(r *http.Request) string {
	if overTLS(r) {
		return secureTenant
	}
	return loopbackTenant
}

func tenantCookie(r *http.Request, t fleet.TenantName) *http.Cookie {
	age := int((365 * 24 * time.Hour).Seconds())
	if t == "" {
		age = -1
	}
	return &http.Cookie{Name: tenantCookieName(r), Value: string(t), Path: "/", MaxAge: age,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: overTLS(r)}
}

type tenantsPage struct {
	frame
	Tenants []access.Grant
	Message string
	To      string
}

// chooseTenant shows a person without a scope the tenants to choose from. A choice that is not
// valid any more is forgotten.
func (s *website) chooseTenant(w http.ResponseWriter, r *http.Request, c caller) {
	page := tenantsPage{frame: s.frame("Choose a tenant", view.Token{}), Message: c.unscoped.Detail,
		To: localPath(r.URL.Path)}
	page.Who = c.session.Actor
	for _, t := range c.session.Roles.Names() {
		page.Tenants = append(page.Tenants, c.session.Roles.Tenants[t])
	}
	if pageAsksFor(r).chosen != "" {
		http.SetCookie(w, tenantCookie(r, ""))
	}
	s.render(w, c.unscoped.Status, "tenants", page)
}

// setTenant chooses the tenant of the pages that follow; "" ends the choice.
func (s *website) setTenant(w http.ResponseWriter, r *http.Request) {
	t := fleet.TenantName(r.PostFormValue("tenant"))
	if t != "" && fleet.ValidateName(string(t)) != nil {
		t = ""
	}
	http.SetCookie(w, tenantCookie(r, t))
	to, err := url.Parse(localPath(r.PostFormValue("to")))
	if err != nil {
		to = &url.URL{Path: "/"}
	}
	http.Redirect(w, r, to.Path, http.StatusSeeOther)
}
