package api

import (
	"net/http"
	"net/url"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

type (
	searchView struct {
		frame
		Text   string
		Groups []hitGroup
		More   bool
		Found  int
	}
	hitGroup struct {
		Name string
		Hits []shownHit
	}
	shownHit   struct{ Name, Title, Href string }
	matrixView struct {
		frame
		view.Matrix
		Filters []chosen
		Text    string
		After   string // the next page
	}
)

// hitGroups names the groups of a search's results in their order.
var hitGroups = []struct {
	Kind view.HitKind
	Name string
}{
	{view.HitApplication, "Applications"}, {view.HitDeployment, "Deployments"},
	{view.HitEnvironment, "Environments"}, {view.HitTenant, "Tenants"},
	{view.HitEngine, "Engines"}, {view.HitAgent, "Agents"}, {view.HitSet, "Sets"},
	{view.HitRing, "Rings"}, {view.HitPool, "Pools"}, {view.HitRevision, "Revisions"},
	{view.HitCommit, "Commits"}, {view.HitImage, "Images"},
	{view.HitPull, "Pull requests"}, {view.HitOperation, "Operations"},
}

// searchPage finds objects by name, commit or image. The page's script asks for the part "content"
// while a person types.
func (s *website) searchPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	text = text[:min(len(text), view.MaxSearchText)]
	v := searchView{frame: s.framed(r, token, "Search"), Text: text}
	var err error
	if text != "" {
		var found view.SearchResult
		found, err = s.reader.Search(r.Context(), token.Scope(), strings.ToValidUTF8(text, ""),
			view.MaxHits)
		v.More, v.Found = found.More, len(found.Hits)
		v.Groups = groupHits(found.Hits, token.Tenant)
	}
	s.show(w, r, token, "search", "search", v, err)
}

func groupHits(hits []view.Hit, tenant fleet.TenantName) []hitGroup {
	var groups []hitGroup
	for _, of := range hitGroups {
		group := hitGroup{Name: of.Name}
		for _, h := range hits {
			if h.Kind == of.Kind {
				group.Hits = append(group.Hits, shownHit{hitName(h), hitTitle(h),
					hitHref(h, tenant)})
			}
		}
		if len(group.Hits) > 0 {
			groups = append(groups, group)
		}
	}
	return groups
}

func hitName(h view.Hit) string {
	switch h.Kind {
	case view.HitApplication:
		return string(h.Tenant) + "/" + string(h.Deployment) + "@" + string(h.Environment)
	case view.HitDeployment:
		return string(h.Tenant) + "/" + string(h.Deployment)
	case view.HitEnvironment:
		return string(h.Tenant) + "/" + string(h.Environment)
	case view.HitRevision, view.HitCommit:
		return brief(h.Name)
	case view.HitPull:
		return "#" + h.Name
	}
	return h.Name
}

func hitTitle(h view.Hit) string {
	if h.Applications > 0 {
		return strings.TrimSpace(h.Title + " run by " + plural(h.Applications, "Application"))
	}
	return h.Title
}

// hitHref returns the page of a hit. Each kind has one, so that no result is a dead end.
func hitHref(h view.Hit, tenant fleet.TenantName) string {
	of := "/tenants/" + url.PathEscape(string(h.Tenant))
	switch h.Kind {
	case view.HitTenant:
		return "/tenants/" + url.PathEscape(h.Name)
	case view.HitApplication:
		return applicationHref(fleet.ApplicationID{Tenant: h.Tenant, Deployment: h.Deployment,
			Environment: h.Environment})
	case view.HitDeployment:
		return of + "/deployments/" + string(h.Deployment)
	case view.HitEnvironment:
		return of + "/environments/" + string(h.Environment)
	case view.HitEngine:
		return "/engines/" + url.PathEscape(h.Name)
	case view.HitAgent:
		if h.Environment != "" {
			return of + "/environments/" + string(h.Environment)
		}
		return "/agents"
	case view.HitSet:
		return "/deployments?" + url.Values{"tenant": {string(h.Tenant)}}.Encode()
	case view.HitRing:
		return "/rings#ring-" + url.PathEscape(h.Name)
	case view.HitPool:
		return "/pools#pool-" + url.PathEscape(h.Name)
	case view.HitRevision:
		if tenant != "" {
			return "/applications?" + url.Values{"revision": {h.Name}}.Encode()
		}
		return "/revisions/" + url.PathEscape(h.Name)
	case view.HitCommit, view.HitImage:
		return "/applications?" + url.Values{"image": {h.Name}}.Encode()
	case view.HitPull:
		return "/pulls/" + url.PathEscape(h.Name)
	case view.HitOperation:
		return "/operations/" + url.PathEscape(h.Name)
	}
	return "/"
}

// servicesPage shows which version runs where.
func (s *website) servicesPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	fields := shownTo(token, []string{"tenant", "environment", "text"})
	q := known(r.URL.Query(), fields)
	v := matrixView{frame: s.framed(r, token, "Services"), Text: q.Get("text"),
		Filters: filtersIn("/services", q, fields)}
	filter := filterOf(known(r.URL.Query(), []string{"tenant", "environment"}))
	filter.Text = strings.ToValidUTF8(q.Get("text"), "")
	var err error
	v.Matrix, err = s.reader.Matrix(r.Context(), token.Scope(), filter,
		view.Page{Limit: matrixRows, After: cursor(r.URL.Query().Get("after"))})
	if v.Next != "" {
		q.Set("after", v.Next)
		v.After = "/services?" + q.Encode()
	}
	s.show(w, r, token, "services", "services", v, err)
}

const matrixRows = 100 // of one page
