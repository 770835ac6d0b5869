package api

import (
	"context"
	"html/template"
	"net/http"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/view"
)

// frame is the common part of every page.
type frame struct {
	Title   string
	Who     string // "" before login
	Tenant  fleet.TenantName
	Version string
	Now     time.Time
	Trail   []crumb       // from the list to the page, which is not in it
	Nav     []navGroup    // none before login
	Query   string        // of the search
	session *view.Session // of a person; nil: a token, which changes nothing from the page
	around
}

// around is what every page shows besides its own content.
type around struct {
	Config   view.Source // the config repo, for links to commits and files
	Holds    int         // at most fewMarks+1
	Problems int         // at most fewMarks+1
}

const fewMarks = 99 // up to which the navigation counts

// crumb is one step of the way to a page.
type crumb struct{ Name, Href string }

type (
	navGroup struct {
		Name  string
		Items []navItem
	}
	navItem struct {
		Name, Href, Icon string
		Current          bool
		Mark, Tone       string // a count, if it is not zero
	}
)

// frame returns the frame of a page without navigation.
func (s *website) frame(title string, token view.Token) frame {
	f := frame{Title: title, Tenant: token.Tenant, Version: s.version, Now: s.now().UTC(),
		session: token.SignedIn}
	if token.Name != "" {
		f.Who = token.Subject()
	}
	return f
}

// framed returns the frame of a page within the navigation. trail leads from a list to the page.
func (s *website) framed(r *http.Request, token view.Token, title string, trail ...crumb) frame {
	f := s.frame(title, token)
	f.Trail, f.Query = trail, r.URL.Query().Get("q")
	if f.Who == "" {
		return f
	}
	// a page whose own reads succeed is shown without the marks, and a failing mirror is reported
	// for the page itself
	f.around, _ = s.arounds.get(r.Context(), token.Tenant, func(ctx context.Context) (around,
		error) {
		return s.readAround(ctx, token.Scope())
	})
	at := r.URL.Path
	if len(trail) > 0 {
		at = trail[0].Href
	}
	f.Nav = navigation(token.Tenant, f.around)
	for g := range f.Nav {
		for i := range f.Nav[g].Items {
			item := &f.Nav[g].Items[i]
			item.Current = item.Href == at
		}
	}
	return f
}

func (s *website) readAround(ctx context.Context, scope view.Scope) (around, error) {
	g := &gather{ctx: ctx, scope: scope}
	var a around
	a.Holds = len(many(g, s.reader.Holds, view.Filter{}, fewMarks+1))
	a.Problems = len(many(g, s.reader.Problems, view.Filter{}, fewMarks+1))
	if g.err == nil {
		a.Config, g.err = s.reader.Source(ctx)
	}
	return a, g.err
}

// Person reports whether a person is signed in, not a token.
func (f frame) Person() bool { return f.session != nil }

// Role is the role of the person in the scope of the page, "" for a token.
func (f frame) Role() access.Role {
	switch {
	case f.session == nil:
		return ""
	case f.Tenant == "":
		return f.session.Roles.Platform.Role
	}
	return f.session.Roles.Within(f.Tenant).Tenants[f.Tenant].Role
}

// scopeChoice is a scope that a person may switch to; Tenant "" is the platform.
type scopeChoice struct {
	Tenant  fleet.TenantName
	Role    access.Role
	Current bool
}

// Scopes are what a person may switch between, none if there is one scope only.
func (f frame) Scopes() (choices []scopeChoice) {
	if f.session == nil {
		return nil
	}
	roles := f.session.Roles
	if role := roles.Platform.Role; role != "" {
		choices = append(choices, scopeChoice{"", role, f.Tenant == ""})
	}
	for _, t := range roles.Names() {
		choices = append(choices, scopeChoice{t, roles.Tenants[t].Role, f.Tenant == t})
	}
	if len(choices) < 2 {
		return nil
	}
	return choices
}

// navigation returns the lists that a token's holder may see.
func navigation(tenant fleet.TenantName, a around) []navGroup {
	first := navItem{Name: "Tenants", Href: "/tenants", Icon: "tenant"}
	if tenant != "" {
		first = navItem{Name: string(tenant), Href: "/tenants/" + string(tenant), Icon: "tenant"}
	}
	groups := []navGroup{
		{"", []navItem{
			{Name: "Overview", Href: "/", Icon: "home"},
			{Name: "Services", Href: "/services", Icon: "grid"},
			{Name: "Applications", Href: "/applications", Icon: "app"},
			first,
			{Name: "Environments", Href: "/environments", Icon: "environment"},
			{Name: "Deployments", Href: "/deployments", Icon: "deployment"},
		}},
		{"Delivery", []navItem{
			{Name: "Pull requests", Href: "/pulls", Icon: "pull"},
			{Name: "Rollouts", Href: "/rollouts", Icon: "rollout"},
			{Name: "Holds", Href: "/holds", Icon: "hold", Mark: mark(a.Holds), Tone: "busy"},
			{Name: "Problems", Href: "/problems", Icon: "problem", Mark: mark(a.Problems),
				Tone: "bad"},
			{Name: "Freezes", Href: "/freezes", Icon: "freeze"},
		}},
		{"Activity", []navItem{
			{Name: "Operations", Href: "/operations", Icon: "operation"},
			{Name: "Moves", Href: "/moves", Icon: "move"},
			{Name: "Audit log", Href: "/audit", Icon: "audit"},
		}},
		{"Fleet", []navItem{
			{Name: "Agents", Href: "/agents", Icon: "agent"},
		}},
	}
	if tenant == "" {
		activity, fleet := &groups[2], &groups[3]
		activity.Items = append([]navItem{{Name: "Revisions", Href: "/revisions",
			Icon: "revision"}}, activity.Items...)
		fleet.Items = append([]navItem{{Name: "Engines", Href: "/engines", Icon: "engine"}},
			append(fleet.Items,
				navItem{Name: "Pools", Href: "/pools", Icon: "pool"},
				navItem{Name: "Rings", Href: "/rings", Icon: "ring"},
				navItem{Name: "Orphans", Href: "/strays", Icon: "orphan"},
				navItem{Name: "Unproven", Href: "/unproven", Icon: "unproven"})...)
	}
	return groups
}

// mark returns a count as the navigation shows it.
func mark(n int) string {
	switch {
	case n == 0:
		return ""
	case n > fewMarks:
		return "99+"
	}
	return itoa(n)
}

// icons are drawn on a grid of 16 by 16.
var icons = map[string]string{
	"home":        "M2.5 7.5 8 3l5.5 4.5V13h-4V9.5h-3V13h-4z",
	"grid":        "M2.5 2.5h4.5v4.5H2.5zM9 2.5h4.5v4.5H9zM2.5 9h4.5v4.5H2.5zM9 9h4.5v4.5H9z",
	"app":         "M8 1.8 13.6 5v6L8 14.2 2.4 11V5zM2.6 5.1 8 8.2l5.4-3.1M8 8.2v5.8",
	"tenant":      "M5.6 7.2a2.3 2.3 0 1 0 0-4.6 2.3 2.3 0 0 0 0 4.6zM1.6 13.2c.2-2.4 1.8-3.8 4-3.8s3.8 1.4 4 3.8M10.6 3a2.1 2.1 0 0 1 0 4M11.4 9.6c1.7.3 2.8 1.6 3 3.6",
	"environment": "M8 2 14 5 8 8 2 5zM2 8l6 3 6-3M2 11l6 3 6-3",
	"deployment":  "M8 10V2.5M5 5.2 8 2.2l3 3M2.5 9.5v4h11v-4",
	"pull":        "M4 5.5v5M4 5.3a1.7 1.7 0 1 0 0-3.3 1.7 1.7 0 0 0 0 3.3zM4 14a1.7 1.7 0 1 0 0-3.4A1.7 1.7 0 0 0 4 14zM12 10.5V6.2c0-1.3-.7-2-2-2H7.8M9.3 2.4 7.5 4.2l1.8 1.8M12 14a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4z",
	"rollout":     "M2 4.5c2-1.6 4-1.6 6 0s4 1.6 6 0M2 8.2c2-1.6 4-1.6 6 0s4 1.6 6 0M2 11.9c2-1.6 4-1.6 6 0s4 1.6 6 0",
	"hold":        "M4 7V5.2a4 4 0 0 1 8 0V7M3 7h10v6.5H3zM8 9.5v1.8",
	"problem":     "M8 2 14.5 13.5h-13zM8 6.4v3.3M8 11.7v.1",
	"freeze":      "M8 1.8v12.4M2.6 4.9l10.8 6.2M13.4 4.9 2.6 11.1",
	"operation":   "M1.5 8h3l2-5 3 10 2-5h3",
	"move":        "M2 5.2h10M9.5 2.5l2.7 2.7-2.7 2.7M14 11.2H4M6.5 8.5l-2.7 2.7 2.7 2.7",
	"agent":       "M4 7.5h8v6H4zM8 7.5V4.6M8 4.4a1.2 1.2 0 1 0 0-2.4 1.2 1.2 0 0 0 0 2.4zM6.3 10.4v.2M9.7 10.4v.2",
	"engine":      "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5v.1M5 11v.1",
	"pool":        "M8 4.6c3.3 0 5.5-.7 5.5-1.6S11.3 1.4 8 1.4 2.5 2.1 2.5 3 4.7 4.6 8 4.6zM2.5 3v10c0 .9 2.2 1.6 5.5 1.6s5.5-.7 5.5-1.6V3M2.5 8c0 .9 2.2 1.6 5.5 1.6s5.5-.7 5.5-1.6",
	"ring":        "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 10.6A2.6 2.6 0 1 0 8 5.4a2.6 2.6 0 0 0 0 5.2z",
	"orphan":      "M6.5 4.2 8 2.7a3 3 0 0 1 4.3 4.3L10.8 8.5M9.5 11.8 8 13.3A3 3 0 0 1 3.7 9L5.2 7.5M2.5 2.5l11 11",
	"unproven":    "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM6.2 6.4c0-2.4 3.7-2.4 3.7-.1 0 1.4-1.9 1.6-1.9 2.9M8 11.3v.1",
	"revision":    "M8 10.4A2.4 2.4 0 1 0 8 5.6a2.4 2.4 0 0 0 0 4.8zM1.5 8h4M10.5 8h4",
	"audit":       "M3.5 1.8h6l3 3v9.4h-9zM6 7h4.5M6 9.5h4.5M6 12h2.5",
	"search":      "M7 11.8A4.8 4.8 0 1 0 7 2.2a4.8 4.8 0 0 0 0 9.6zM10.5 10.5 14 14",
	"menu":        "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
	"close":       "M3.5 3.5l9 9M12.5 3.5l-9 9",
	"theme":       "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 2v12M8 5h4.5M8 8h6M8 11h4.5",
	"person":      "M8 7.5a2.7 2.7 0 1 0 0-5.4 2.7 2.7 0 0 0 0 5.4zM3 14c.2-2.9 2.2-4.5 5-4.5s4.8 1.6 5 4.5",
}

// icon returns an icon that only decorates: the word is next to it.
func icon(name string) template.HTML {
	// the path is a constant of this file
	return template.HTML(`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d="` +
		icons[name] + `"/></svg>`)
}

// at returns a time for the script that shows it in the reader's zone: in UTC until then, and
// without scripts.
func at(when any) template.HTML { return stamp(when, "", "") }

// ago returns the time since when in its largest unit, 12s, 5m, 3h or 9d, which a script keeps
// current.
func ago(now time.Time, when any) template.HTML {
	return stamp(when, ` data-as="age"`, fleet.Age(now.Sub(moment(when))))
}

func stamp(when any, as, text string) template.HTML {
	t := moment(when)
	if t.IsZero() {
		return "never"
	}
	t = t.UTC()
	if text == "" {
		text = t.Format("2006-01-02 15:04") + " UTC"
	}
	// every part is a constant or a formatted time
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339) + `"` + as + `>` + text +
		`</time>`)
}

// moment returns a time or a pointer to one; the zero time if it is nil.
func moment(when any) time.Time {
	switch v := when.(type) {
	case time.Time:
		return v
	case *time.Time:
		if v != nil {
			return *v
		}
	}
	return time.Time{}
}

// plural returns a count with its noun.
func plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return itoa(n) + " " + strings.TrimSuffix(noun, "y") + "ies"
	}
	return itoa(n) + " " + noun + "s"
}

// took returns the duration between two times, "" unless both are known.
func took(from, to *time.Time) string {
	if from == nil || to == nil || to.Before(*from) {
		return ""
	}
	if d := to.Sub(*from); d >= time.Second {
		return fleet.Age(d)
	}
	return "1s"
}
