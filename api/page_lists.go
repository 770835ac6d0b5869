package api

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/audit"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// A list's page shows one kind of objects: the query string filters it, as that of the API does.

type (
	listView struct {
		frame
		Kind    string // of the template of its rows
		Lead    string
		Items   any
		Count   int // of the items on this page
		Filters []chosen
		Next    string
	}
	// chosen is a filter in effect, with the query string that ends it.
	chosen struct{ Field, Value, Without string }
	// pageList describes the page of a list.
	pageList struct {
		path, title, kind, lead string
		platform                bool
		filters                 []string // fields of the query string
	}
)

// listPage registers the page of a list.
func listPage[T any](s *website, l pageList, read storeList[T]) {
	s.mux.HandleFunc("GET "+l.path, s.signedIn(func(w http.ResponseWriter, r *http.Request,
		token view.Token) {
		v := listView{frame: s.framed(r, token, l.title, crumb{l.title, l.path}), Kind: l.kind,
			Lead: l.lead}
		v.Trail = nil
		if l.platform && token.Tenant != "" {
			s.failPage(w, r, token, l.kind, mirror.ErrNotFound)
			return
		}
		fields := shownTo(token, l.filters)
		q := known(r.URL.Query(), fields)
		items, next, err := read(r.Context(), token.Scope(),
			filterOf(known(r.URL.Query(), l.filters)),
			view.Page{Limit: manyItems, After: cursor(r.URL.Query().Get("after"))})
		v.Items, v.Count, v.Filters = items, len(items), filtersIn(l.path, q, fields)
		if next != "" {
			q.Set("after", next)
			v.Next = l.path + "?" + q.Encode()
		}
		s.show(w, r, token, "list", l.kind, v, err)
	}))
}

// shownTo returns the filters that a token's holder may see and end: a tenant has only itself.
func shownTo(token view.Token, fields []string) []string {
	return slices.DeleteFunc(slices.Clone(fields), func(field string) bool {
		return field == "tenant" && token.Tenant != ""
	})
}

// known returns the fields of a query string that a list has.
func known(q url.Values, fields []string) url.Values {
	kept := url.Values{}
	for _, field := range fields {
		if value := q.Get(field); value != "" {
			kept.Set(field, value)
		}
	}
	return kept
}

// filterOf returns the filter of a query string. An invalid value matches nothing.
func filterOf(q url.Values) view.Filter {
	return view.Filter{
		Tenant:      named[fleet.TenantName](q, "tenant"),
		Environment: named[fleet.EnvironmentName](q, "environment"),
		Deployment:  named[fleet.DeploymentName](q, "deployment"),
		Engine:      engineNamed(q),
		Sync:        worded[mirror.SyncState](q, "sync"),
		Health:      worded[mirror.HealthState](q, "health"),
		Apply:       worded[mirror.ApplyState](q, "apply"),
		Revision:    revisionNamed(q),
		Text:        plainText(q, "text"),
		Image:       plainText(q, "image"),
	}
}

// plainText returns a text from the query string, bounded.
func plainText(q url.Values, field string) string {
	value := q.Get(field)
	return strings.ToValidUTF8(value[:min(len(value), view.MaxSearchText)], "")
}

func revisionNamed(q url.Values) fleet.Revision {
	if value := q.Get("revision"); value == "" || isCommit(value) {
		return fleet.Revision(value)
	}
	return "-"
}

// filtersIn returns the filters in effect.
func filtersIn(path string, q url.Values, fields []string) []chosen {
	var found []chosen
	for _, field := range fields {
		if value := q.Get(field); value != "" {
			rest := url.Values{}
			for _, other := range fields {
				if v := q.Get(other); v != "" && other != field {
					rest.Set(other, v)
				}
			}
			without := path
			if len(rest) > 0 {
				without += "?" + rest.Encode()
			}
			found = append(found, chosen{field, value, without})
		}
	}
	return found
}

func (s *website) registerPageLists() {
	s.mux.HandleFunc("GET /audit", s.signedIn(s.auditPage))
	s.mux.HandleFunc("GET /audit/export", s.signedIn(s.auditFile))
	listPage(s, pageList{path: "/tenants", title: "Tenants", kind: "tenants",
		lead: "Teams with their quota, and the states of their Applications."}, s.reader.Tenants)
	listPage(s, pageList{path: "/environments", title: "Environments", kind: "environments",
		lead:    "Clusters and namespaces of tenants, each with the engine that serves it.",
		filters: []string{"tenant", "engine"}}, s.environments)
	listPage(s, pageList{path: "/deployments", title: "Deployments", kind: "deployments",
		lead:    "What tenants run, and the environments that it runs in.",
		filters: []string{"tenant", "environment"}}, s.reader.Deployments)
	listPage(s, pageList{path: "/engines", title: "Engines", kind: "engines", platform: true,
		lead: "The Argo CD instances that apply the fleet."}, s.reader.Engines)
	listPage(s, pageList{path: "/revisions", title: "Revisions", kind: "revisions", platform: true,
		lead: "Recorded commits of the config repo, the newest first."}, s.reader.Revisions)
	listPage(s, pageList{path: "/moves", title: "Moves", kind: "moves",
		lead:    "The last move of each environment to another engine.",
		filters: []string{"tenant"}}, s.reader.Moves)
	listPage(s, pageList{path: "/problems", title: "Problems", kind: "problems",
		lead:    "Errors and warnings about declarations, with the file and the line to fix.",
		filters: []string{"tenant"}}, s.reader.Problems)
	listPage(s, pageList{path: "/holds", title: "Holds", kind: "holds",
		lead:    "Merged changes that wait for a release.",
		filters: []string{"tenant", "revision"}}, s.reader.Holds)
	listPage(s, pageList{path: "/operations", title: "Operations", kind: "operations",
		lead:    "What people and Argosy have requested and how it ended, the newest first.",
		filters: []string{"tenant", "engine", "revision"}}, s.reader.Operations)
}

// auditFilters are the fields by which the page of the audit log filters.
var auditFilters = []string{"tenant", "engine", "revision", "actor", "action", "subject",
	"operation", "pull", "since", "until", "text"}

type auditPageView struct {
	listView
	Filter url.Values
	Export string
	Fields []string // of the form
}

// entryFilterOf returns the filter of the audit log. An invalid value matches nothing.
func entryFilterOf(q url.Values) (view.Filter, error) {
	f := filterOf(q)
	f.Text, f.Entry = "", view.EntryFilter{Actor: plainText(q, "actor"),
		Action: plainText(q, "action"), Subject: plainText(q, "subject"),
		Operation: named[string](q, "operation"), Text: plainText(q, "text")}
	var err error
	if value := q.Get("pull"); value != "" {
		if f.Pull, err = strconv.Atoi(value); err != nil || f.Pull < 1 {
			return f, problem(http.StatusBadRequest, "pull", "it is the number of a pull request",
				"write a number such as 42")
		}
	}
	for field, to := range map[string]*time.Time{"since": &f.Entry.Since,
		"until": &f.Entry.Until} {
		value := q.Get(field)
		if value == "" {
			continue
		}
		if *to, err = time.Parse(time.RFC3339, value); err != nil {
			*to, err = time.Parse(time.DateOnly, value)
		}
		if err != nil {
			return f, problem(http.StatusBadRequest, field, "it is no date or time in UTC",
				"write 2026-11-28 or 2026-11-28T20:00:00Z")
		}
	}
	return f, nil
}

// auditOf returns the filter of a request for the audit log, or the refusal.
func auditOf(r *http.Request, token view.Token) (url.Values, view.Filter, error) {
	q := known(r.URL.Query(), shownTo(token, auditFilters))
	if d := token.May(access.Audit, access.Tenant, token.Tenant); !d.Allowed {
		return q, view.Filter{}, forbidden(token, "audit log", d)
	}
	f, err := entryFilterOf(q)
	return q, f, err
}

func (s *website) auditPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	q, filter, err := auditOf(r, token)
	fields := shownTo(token, auditFilters)
	v := auditPageView{listView: listView{frame: s.framed(r, token, "Audit log",
		crumb{"Audit log", "/audit"}), Filters: filtersIn("/audit", q, fields)},
		Filter: q, Fields: fields, Export: "/audit/export?" + q.Encode()}
	v.Trail = nil
	if err == nil {
		var entries []audit.Entry
		entries, v.Next, err = s.reader.Audit(r.Context(), token.Scope(), filter,
			view.Page{Limit: manyItems, After: cursor(r.URL.Query().Get("after"))})
		v.Items, v.Count = entries, len(entries)
	}
	if v.Next != "" {
		q.Set("after", v.Next)
		v.Next = "/audit?" + q.Encode()
	}
	s.show(w, r, token, "audit", "audit log", v, err)
}

// auditFile sends the sealed entries as JSON lines, as far as one answer goes.
func (s *website) auditFile(w http.ResponseWriter, r *http.Request, token view.Token) {
	_, filter, err := auditOf(r, token)
	if err != nil {
		s.failPage(w, r, token, "audit log", err)
		return
	}
	w.Header().Set("Content-Disposition", `attachment; filename="audit.jsonl"`)
	s.exportAudit(r.Context(), w, token.Scope(), filter, 0)
}

type (
	deploymentView struct {
		frame
		View         view.Deployment
		Applications []view.Application
		Rollouts     []rolloutStrip // the last one
		Problems     []fleet.Problem
		Operations   []mirror.Operation
	}
	revisionView struct {
		frame
		View         view.Revision
		Holds        []mirror.Hold
		Operations   []mirror.Operation
		Applications []view.Application
	}
	operationView struct {
		frame
		View mirror.Operation
	}
)

func (s *website) deploymentPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	id := fleet.DeploymentID{Tenant: pathName[fleet.TenantName](r, "tenant"),
		Name: pathName[fleet.DeploymentName](r, "deployment")}
	g := &gather{ctx: r.Context(), scope: token.Scope()}
	of := view.Filter{Tenant: id.Tenant, Deployment: id.Name}
	v := deploymentView{frame: s.framed(r, token, "Deployment "+id.String(),
		crumb{"Deployments", "/deployments"}, tenantCrumb(id.Tenant))}
	v.View = the(g, s.reader.Deployments, of)
	v.Applications = many(g, s.reader.Applications, of, manyItems)
	for _, one := range many(g, s.reader.Rollouts, of, 1) {
		v.Rollouts = append(v.Rollouts, stripOf(one))
	}
	v.Problems = many(g, s.reader.Problems, view.Filter{Tenant: id.Tenant,
		Name: string(id.Name)}, fewItems)
	s.show(w, r, token, "deployment", "deployment "+id.String(), v, g.err)
}

func tenantCrumb(t fleet.TenantName) crumb { return crumb{string(t), "/tenants/" + string(t)} }

// revisionPage shows one commit of the config repo. Only the platform may see it.
func (s *website) revisionPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	revision := fleet.Revision(r.PathValue("revision"))
	g := gatherOfPlatform(r, token)
	if !isCommit(string(revision)) {
		g.err = mirror.ErrNotFound
	}
	v := revisionView{frame: s.framed(r, token, "Revision "+revision.Short(),
		crumb{"Revisions", "/revisions"})}
	of := view.Filter{Revision: revision}
	v.View = the(g, s.reader.Revisions, of)
	v.Holds = many(g, s.reader.Holds, of, manyItems)
	v.Operations = many(g, s.reader.Operations, of, manyItems)
	v.Applications = many(g, s.reader.Applications, of, manyItems)
	s.show(w, r, token, "revision", "revision", v, g.err)
}

func (s *website) operationPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	g := &gather{ctx: r.Context(), scope: token.Scope()}
	id := r.PathValue("operation")
	if len(id) > 64 {
		g.err = mirror.ErrNotFound
	}
	v := operationView{frame: s.framed(r, token, "Operation", crumb{"Operations",
		"/operations"})}
	v.View = the(g, s.reader.Operations, view.Filter{Name: id})
	s.show(w, r, token, "operation", "operation", v, g.err)
}
