package api

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const pageEvents = "/events" // the event stream for the page's script, by the page's cookie

//go:embed page
var pageFiles embed.FS

// website serves the pages. It reads as the API does, with the token of a cookie.
type website struct {
	*Server
	reader Reader // in place of the Server's: see sharedReader
	// overviews are shared by all viewers.
	overviews sharedRead[overview]
	arounds   sharedRead[around]
	renewals  sharedRead[*renewed]
}

func (s *website) registerPage() {
	s.mux.HandleFunc("GET /static/{file...}", s.staticFile)
	s.mux.HandleFunc("GET /{$}", s.signedIn(s.overviewPage))
	s.mux.HandleFunc("GET /search", s.signedIn(s.searchPage))
	s.mux.HandleFunc("GET /services", s.signedIn(s.servicesPage))
	s.mux.HandleFunc("GET /applications", s.signedIn(s.applicationsPage))
	s.mux.HandleFunc("GET /tenants/{tenant}", s.signedIn(s.tenantPage))
	s.mux.HandleFunc("GET /engines/{engine}", s.signedIn(s.enginePage))
	s.mux.HandleFunc("GET /rings/{ring}/differences", s.signedIn(s.differencesPage))
	s.mux.HandleFunc("GET /strays", s.signedIn(s.orphansPage))
	s.mux.HandleFunc("GET /unproven", s.signedIn(s.unprovenPage))
	s.mux.HandleFunc("GET /rings", s.signedIn(s.ringsPage))
	s.mux.HandleFunc("GET /pools", s.signedIn(s.poolsPage))
	s.mux.HandleFunc("GET /rollouts", s.signedIn(s.rolloutsPage))
	s.mux.HandleFunc("GET /tenants/{tenant}/rollouts/{deployment}", s.signedIn(s.rolloutPage))
	s.mux.HandleFunc("GET /freezes", s.signedIn(s.freezesPage))
	s.mux.HandleFunc("GET /tenants/{tenant}/environments/{environment}",
		s.signedIn(s.environmentPage))
	s.registerApplicationPage()
	s.mux.HandleFunc("GET /tenants/{tenant}/deployments/{deployment}",
		s.signedIn(s.deploymentPage))
	s.mux.HandleFunc("GET /revisions/{revision}", s.signedIn(s.revisionPage))
	s.mux.HandleFunc("GET /operations/{operation}", s.signedIn(s.operationPage))
	s.registerPageLists()
	s.mux.HandleFunc("GET /agents", s.signedIn(s.agentsPage))
	s.mux.HandleFunc("GET /pulls", s.signedIn(s.pullsPage))
	s.mux.HandleFunc("GET /pulls/{number}", s.signedIn(s.pullPage))
	s.mux.HandleFunc("GET "+pageEvents, s.pageStream)
	s.registerChanges()

	sameOrigin := http.NewCrossOriginProtection()
	s.mux.HandleFunc("GET /signin", s.signinForm)
	s.mux.HandleFunc("GET /signin/{provider}", s.signinBegin)
	s.mux.HandleFunc("GET /signin/{provider}/callback", s.signinCallback)
	s.mux.HandleFunc("GET /sessions", s.signedIn(s.sessionsPage))
	s.mux.Handle("POST /sessions/{id}/end", sameOrigin.Handler(s.signedIn(s.endSession)))
	s.mux.Handle("POST /signin", sameOrigin.Handler(http.HandlerFunc(s.signin)))
	s.mux.Handle("POST /tenant", sameOrigin.Handler(http.HandlerFunc(s.setTenant)))
	s.mux.Handle("POST /signout", sameOrigin.Handler(http.HandlerFunc(s.signout)))
	s.mux.HandleFunc("/", s.notFoundRoute)
}

// pageStream is the event stream for the page's script, which cannot set a header.
func (s *website) pageStream(w http.ResponseWriter, r *http.Request) {
	plaintext := sessionToken(r)
	c, refusal := s.identify(r.Context(), plaintext, pageAsksFor(r))
	if refusal == nil {
		refusal = c.unscoped
	}
	if refusal != nil {
		writeProblem(w, refusal)
		return
	}
	s.stream(w, r, c.token, plaintext, -1) // the script only needs the fact of a change
}

// notFoundRoute answers requests that match no route, to programs and to people.
func (s *website) notFoundRoute(w http.ResponseWriter, r *http.Request) {
	if isAPI(r) {
		writeProblem(w, problem(http.StatusNotFound, "", "no such route, or not with this method",
			"see /openapi.json for all routes"))
		return
	}
	s.signedIn(func(w http.ResponseWriter, r *http.Request, token view.Token) {
		s.failPage(w, r, token, "page", mirror.ErrNotFound)
	})(w, r)
}

type failure struct {
	frame
	Problem *wire.Refusal
}

func (s *website) failPage(w http.ResponseWriter, r *http.Request, token view.Token, subject string,
	err error) {
	var p *wire.Refusal
	errors.As(s.answer(r.Context(), subject, err), &p)
	if p.Status == http.StatusNotFound {
		p.Next = "start from the overview"
	}
	s.render(w, p.Status, "failure", failure{s.framed(r, token, p.Title), p})
}

// tone returns the colour of a state: good, busy, bad or none.
func tone(state any) string {
	switch fmt.Sprint(state) {
	case "Synced", "Healthy", "Applied", "Succeeded", "Active", "Done", "Steady", "Serving",
		"true":
		return "good"
	case "Progressing", "Pending", "Running", "OutOfSync", "Deleting", "Cordoned", "Draining",
		"Moving", "Waiting", "Paused", "Proposed", "Soaking", "Installing", "Releasing",
		"AwaitsApproval", "Growing", "Resizing", "Making", "Removing", "Ending",
		"Changing", "Returning", "Rendering", "Differs",
		"Suspended", "Terminating":
		return "busy"
	case "Degraded", "Missing", "Failed", "Conflict", "Held", "Error", "false", "Unreachable",
		"DeletionBlocked", "Stopped", "Evacuated", "Halted", "Unavailable", "Refused", "Left",
		"Full", "Blocked":
		return "bad"
	}
	return "none"
}

func mebibytes(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/(1<<20)) }

// percent returns part of whole, 0 to 100; 100 if whole is zero and part is not.
func percent(part, whole int) int {
	if whole <= 0 {
		return min(part, 1) * 100
	}
	return min(100*part/whole, 100)
}

const (
	fewItems  = 12  // of a summary
	manyItems = 200 // of a page's main list
)

type (
	overview struct {
		frame
		Source      view.Source
		Stops       []mirror.Stop
		Holds       []mirror.Hold
		Problems    []fleet.Problem
		Failing     []view.Application
		Engines     []view.Engine
		Tenants     []view.Tenant
		Revisions   []view.Revision
		Operations  []mirror.Operation
		Total       view.Counts
		MoreTenants int // that are not listed
		Orphans     []view.Orphan
		Rebalances  []mirror.Rebalance // the open one
		Unproven    []view.Unproven
		Rings       []mirror.Ring // that need a person
	}
	applicationsView struct {
		frame
		Filter       url.Values
		Total        int
		Chips        []chipGroup
		Filters      []chosen
		Applications []view.Application
		Next         string
	}
	tenantView struct {
		frame
		View         view.Tenant
		Environments []view.Environment
		Deployments  []view.Deployment
		Problems     []fleet.Problem
		Holds        []mirror.Hold
		Applications []view.Application
		Stops        []mirror.Stop // that cover it
	}
	engineView struct {
		frame
		View         view.Engine
		Stops        []mirror.Stop // that cover it
		Environments []view.Environment
		Failing      []view.Application
		Operations   []mirror.Operation
		Orphans      []view.Orphan
	}
	orphansView struct {
		frame
		Orphans []view.Orphan
		Next    string
	}
	unprovenView struct {
		frame
		Unproven []view.Unproven
		Next     string
	}
	ringsView struct {
		frame
		Rings     []mirror.Ring
		Bulletins []view.Bulletin
	}
	poolsView struct {
		frame
		Pools []mirror.Pool
	}
	environmentView struct {
		frame
		View view.Environment
		view.Explained
		Moves        []view.Move // the one under way
		Applications []view.Application
		Agents       []view.Agent // the agent that serves it, if any
		Own          []view.Own
	}
)

// gather reads one list after another until one fails.
type gather struct {
	ctx   context.Context
	scope view.Scope
	err   error
}

func many[T any](g *gather, read storeList[T], filter view.Filter, limit int) []T {
	if g.err != nil {
		return nil
	}
	var items []T
	items, _, g.err = read(g.ctx, g.scope, filter, view.Page{Limit: limit})
	return items
}

func the[T any](g *gather, read storeList[T], filter view.Filter) (item T) {
	if g.err == nil {
		item, g.err = single(g.ctx, read, g.scope, filter)
	}
	return item
}

// failing returns the Applications that need attention, the worst first.
func (s *website) failing(g *gather, filter view.Filter) []view.Application {
	var found []view.Application
	seen := map[string]bool{}
	for _, narrow := range []func(*view.Filter){
		func(f *view.Filter) { f.Apply = mirror.ApplyFailed },
		func(f *view.Filter) { f.Apply = mirror.ApplyConflict },
		func(f *view.Filter) { f.Health = mirror.HealthDegraded },
		func(f *view.Filter) { f.Health = mirror.HealthMissing },
	} {
		one := filter
		narrow(&one)
		for _, a := range many(g, s.reader.Applications, one, fewItems) {
			if !seen[a.Name] {
				seen[a.Name] = true
				found = append(found, a)
			}
		}
	}
	return found[:min(len(found), fewItems)]
}

func (s *website) overviewPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	v, err := s.overviews.get(r.Context(), token.Tenant, func(ctx context.Context) (overview,
		error) {
		return s.readOverview(ctx, token.Scope())
	})
	v.frame = s.framed(r, token, "Overview")
	s.show(w, r, token, "overview", "overview", v, err)
}

// readOverview returns the overview of a scope. Its three longest reads run beside each other.
func (s *website) readOverview(ctx context.Context, scope view.Scope) (overview, error) {
	g, tenants, engines := &gather{ctx: ctx, scope: scope}, &gather{ctx: ctx, scope: scope},
		&gather{ctx: ctx, scope: scope}
	var v overview
	var beside sync.WaitGroup
	beside.Go(func() { v.Tenants = allTenants(tenants, s.reader.Tenants) })
	if scope.Tenant == "" {
		beside.Go(func() {
			v.Engines = many(engines, s.reader.Engines, view.Filter{}, manyItems)
		})
	}
	if v.Source, g.err = s.reader.Source(g.ctx); g.err == nil {
		v.Stops, g.err = s.reader.Stops(g.ctx, g.scope)
	}
	v.Holds = many(g, s.reader.Holds, view.Filter{}, fewItems)
	v.Problems = many(g, s.reader.Problems, view.Filter{}, fewItems)
	v.Operations = many(g, s.reader.Operations, view.Filter{}, fewItems)
	v.Failing = s.failing(g, view.Filter{})
	if scope.Tenant == "" {
		v.Revisions = many(g, s.reader.Revisions, view.Filter{}, fewItems)
		v.Orphans = many(g, s.reader.Orphans, view.Filter{}, fewItems)
		v.Rebalances = slices.DeleteFunc(many(g, s.reader.Rebalances, view.Filter{}, 1),
			func(r mirror.Rebalance) bool { return !r.State.Open() })
		v.Unproven = many(g, s.reader.Unproven, view.Filter{}, 1)
		v.Rings = slices.DeleteFunc(many(g, s.reader.Rings, view.Filter{}, manyItems),
			func(r mirror.Ring) bool { return tone(r.State) != "bad" })
	}
	beside.Wait()
	for _, t := range v.Tenants {
		v.Total.Applications += t.Counts.Applications
		v.Total.Synced += t.Counts.Synced
		v.Total.Healthy += t.Counts.Healthy
		v.Total.Failed += t.Counts.Failed
		v.Total.Unknown += t.Counts.Unknown
	}
	v.Tenants, v.MoreTenants = neediest(v.Tenants)
	return v, cmp.Or(g.err, tenants.err, engines.err)
}

const fewTenants = 40 // that the overview lists

// allTenants reads the tenants of a scope, whose counts the store keeps.
func allTenants(g *gather, read storeList[view.Tenant]) (all []view.Tenant) {
	page := view.Page{Limit: 1000}
	for {
		var some []view.Tenant
		some, page.After, g.err = read(g.ctx, g.scope, view.Filter{}, page)
		all = append(all, some...)
		if g.err != nil || page.After == "" {
			return all
		}
	}
}

// neediest returns the tenants with the most Applications that are not well, in the order of their
// names, and how many others there are.
func neediest(all []view.Tenant) (few []view.Tenant, others int) {
	if len(all) <= fewTenants {
		return all, 0
	}
	few = slices.Clone(all)
	unwell := func(t view.Tenant) int {
		return t.Counts.Applications - min(t.Counts.Healthy, t.Counts.Synced)
	}
	slices.SortStableFunc(few, func(a, b view.Tenant) int {
		return cmp.Compare(unwell(b), unwell(a))
	})
	few = few[:fewTenants]
	slices.SortFunc(few, func(a, b view.Tenant) int { return cmp.Compare(a.Name, b.Name) })
	return few, len(all) - fewTenants
}

// applicationFilters are the fields by which the page of Applications filters.
var applicationFilters = []string{"tenant", "environment", "deployment", "engine", "revision",
	"image", "text", "apply", "sync", "health"}

// stateChips are the states by which the page of Applications filters, each with one press.
var stateChips = []struct {
	Field  string
	Values []string
}{
	{"apply", []string{"Failed", "Conflict", "Pending", "Held", "Deleting", "Applied"}},
	{"sync", []string{"OutOfSync", "Synced", "Unknown"}},
	{"health", []string{"Degraded", "Missing", "Progressing", "Suspended", "Healthy", "Unknown"}},
}

type (
	chipGroup struct {
		Field string
		Chips []chip
	}
	chip struct {
		Value, Href string
		Current     bool
		Count       string // "": not counted
	}
)

// chipsOf returns the states as links, each of which sets or ends its filter.
func chipsOf(q url.Values, counts map[string]map[string]int) []chipGroup {
	groups := make([]chipGroup, 0, len(stateChips))
	for _, of := range stateChips {
		group := chipGroup{Field: of.Field}
		for _, value := range of.Values {
			next, current := url.Values{}, q.Get(of.Field) == value
			for field := range q {
				next.Set(field, q.Get(field))
			}
			if next.Set(of.Field, value); current {
				next.Del(of.Field)
			}
			href := "/applications"
			if len(next) > 0 {
				href += "?" + next.Encode()
			}
			group.Chips = append(group.Chips, chip{Value: value, Href: href, Current: current,
				Count: countOf(counts, of.Field, value)})
		}
		groups = append(groups, group)
	}
	return groups
}

// stateCounts returns the number of Applications by field and state, and of those that match. The
// counts of one field ignore its own filter.
func (s *website) stateCounts(ctx context.Context, scope view.Scope, filter view.Filter) (
	counts map[string]map[string]int, total int, err error) {
	counted, err := s.reader.StateCounts(ctx, scope, filter)
	facets := view.FacetsOf(counted, filter)
	counts = map[string]map[string]int{}
	for field, values := range map[string][]view.Facet{"apply": facets.Apply,
		"sync": facets.Sync, "health": facets.Health} {
		counts[field] = map[string]int{}
		for _, v := range values {
			counts[field][v.Value] = v.Count
		}
	}
	return counts, facets.Total, err
}

func countOf(counts map[string]map[string]int, field, value string) string {
	if n := counts[field][value]; n > 0 {
		return itoa(n)
	}
	return ""
}

// namesOnly returns the fields that are not states, which chips show.
func namesOnly(fields []string) []string {
	return slices.DeleteFunc(slices.Clone(fields), func(field string) bool {
		return field == "apply" || field == "sync" || field == "health"
	})
}

func (s *website) applicationsPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	fields := shownTo(token, applicationFilters)
	q := known(r.URL.Query(), fields)
	filter := filterOf(known(r.URL.Query(), applicationFilters))
	counts, total, err := s.stateCounts(r.Context(), token.Scope(), filter)
	if err != nil {
		s.failPage(w, r, token, "applications", err)
		return
	}
	v := applicationsView{frame: s.framed(r, token, "Applications"), Filter: q, Total: total,
		Chips: chipsOf(q, counts), Filters: filtersIn("/applications", q, namesOnly(fields))}
	v.Applications, v.Next, err = s.reader.Applications(r.Context(), token.Scope(),
		filter, view.Page{Limit: manyItems,
			After: cursor(r.URL.Query().Get("after"))})
	if v.Next != "" {
		q.Set("after", v.Next)
		v.Next = "/applications?" + q.Encode()
	}
	s.show(w, r, token, "applications", "applications", v, err)
}

// named returns a name from the query string. An invalid name is replaced by a name that no object
// has, so that it matches nothing.
func named[T ~string](q url.Values, field string) T {
	value := q.Get(field)
	if value != "" && fleet.ValidateName(value) != nil {
		return "-"
	}
	return T(value)
}

// worded returns a state from the query string: letters only, or a word that no state has.
func worded[T ~string](q url.Values, field string) T {
	value := q.Get(field)
	for _, c := range value {
		if (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return "-"
		}
	}
	return T(value)
}

func cursor(after string) string {
	for _, c := range after {
		if c < '!' || c > '~' {
			return "-"
		}
	}
	return after[:min(len(after), 8192)]
}

func (s *website) tenantPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	name := pathName[fleet.TenantName](r, "tenant")
	g := &gather{ctx: r.Context(), scope: token.Scope()}
	of := view.Filter{Tenant: name}
	v := tenantView{frame: s.framed(r, token, "Tenant "+string(name),
		crumb{"Tenants", "/tenants"}),
		View: the(g, s.reader.Tenants, of)}
	v.Environments = many(g, s.reader.Environments, of, manyItems)
	v.Deployments = many(g, s.reader.Deployments, of, manyItems)
	v.Problems = many(g, s.reader.Problems, of, manyItems)
	v.Holds = many(g, s.reader.Holds, of, fewItems)
	v.Applications = many(g, s.reader.Applications, of, manyItems)
	v.Stops = s.stopsOver(g, name, "")
	s.show(w, r, token, "tenant", "tenant "+string(name), v, g.err)
}

func (s *website) enginePage(w http.ResponseWriter, r *http.Request, token view.Token) {
	name := pathName[fleet.EngineName](r, "engine")
	g := gatherOfPlatform(r, token)
	of := view.Filter{Engine: name}
	v := engineView{frame: s.framed(r, token, "Engine "+string(name),
		crumb{"Engines", "/engines"}),
		View: the(g, s.reader.Engines, of)}
	v.Environments = many(g, s.reader.Environments, of, manyItems)
	v.Operations = many(g, s.reader.Operations, of, fewItems)
	v.Failing = s.failing(g, of)
	v.Orphans = many(g, s.reader.Orphans, of, manyItems)
	v.Stops = s.stopsOver(g, "", name)
	s.show(w, r, token, "engine", "engine "+string(name), v, g.err)
}

// stopsOver returns the emergency stops over a tenant or an engine.
func (s *website) stopsOver(g *gather, t fleet.TenantName, e fleet.EngineName) (
	over []mirror.Stop) {
	if g.err != nil {
		return nil
	}
	var stops []mirror.Stop
	stops, g.err = s.reader.Stops(g.ctx, g.scope)
	for _, stop := range stops {
		if stop.Covers(t, e) {
			over = append(over, stop)
		}
	}
	return over
}

// orphansPage lists orphans. Only the platform may see it.
func (s *website) orphansPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	q := r.URL.Query()
	v := orphansView{frame: s.framed(r, token, "Orphans")}
	err := mirror.ErrNotFound
	if token.Tenant == "" {
		v.Orphans, v.Next, err = s.reader.Orphans(r.Context(), token.Scope(), view.Filter{
			Engine: engineNamed(q)},
			view.Page{Limit: manyItems, After: cursor(q.Get("after"))})
	}
	v.Next = nextOfEngine(q, v.Next)
	s.show(w, r, token, "orphans", "orphans", v, err)
}

// unprovenPage lists unproven objects. Only the platform may see it.
func (s *website) unprovenPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	q := r.URL.Query()
	v := unprovenView{frame: s.framed(r, token, "Unproven")}
	err := mirror.ErrNotFound
	if token.Tenant == "" {
		v.Unproven, v.Next, err = s.reader.Unproven(r.Context(), token.Scope(),
			view.Filter{Engine: engineNamed(q)},
			view.Page{Limit: manyItems, After: cursor(q.Get("after"))})
	}
	v.Next = nextOfEngine(q, v.Next)
	s.show(w, r, token, "unproven", "unproven objects", v, err)
}

// gatherOfPlatform finds nothing for a tenant: engines belong to the platform.
func gatherOfPlatform(r *http.Request, token view.Token) *gather {
	g := &gather{ctx: r.Context(), scope: token.Scope()}
	if token.Tenant != "" {
		g.err = mirror.ErrNotFound
	}
	return g
}

// ringsPage shows the rings in their order. Only the platform may see it.
func (s *website) ringsPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	g := gatherOfPlatform(r, token)
	v := ringsView{frame: s.framed(r, token, "Rings")}
	v.Rings = many(g, s.reader.Rings, view.Filter{}, manyItems)
	v.Bulletins = many(g, s.reader.Bulletins, view.Filter{}, manyItems)
	s.show(w, r, token, "rings", "rings", v, g.err)
}

// poolsPage shows the pools of engines. Only the platform may see it.
func (s *website) poolsPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	g := gatherOfPlatform(r, token)
	v := poolsView{frame: s.framed(r, token, "Pools")}
	v.Pools = many(g, s.reader.Pools, view.Filter{}, manyItems)
	s.show(w, r, token, "pools", "pools", v, g.err)
}

// nextOfEngine returns the query string of the next page of a list that the query string may limit
// to an engine; "" on the last page.
func nextOfEngine(q url.Values, after string) string {
	if after == "" {
		return ""
	}
	more := url.Values{"after": {after}}
	if engine := q.Get("engine"); engine != "" {
		more.Set("engine", engine)
	}
	return "?" + more.Encode()
}

// engineNamed returns an engine from the query string: one of the platform, or an environment's own
// cluster.
func engineNamed(q url.Values) fleet.EngineName {
	value := q.Get("engine")
	for part := range strings.SplitSeq(value, ".") {
		if value != "" && fleet.ValidateName(part) != nil {
			return "-"
		}
	}
	return fleet.EngineName(value)
}

func (s *website) environmentPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	id := fleet.EnvironmentID{Tenant: pathName[fleet.TenantName](r, "tenant"),
		Name: pathName[fleet.EnvironmentName](r, "environment")}
	g := &gather{ctx: r.Context(), scope: token.Scope()}
	of := view.Filter{Tenant: id.Tenant, Environment: id.Name}
	v := environmentView{frame: s.framed(r, token, "Environment "+id.String(),
		crumb{"Environments", "/environments"}, tenantCrumb(id.Tenant)),
		View: the(g, s.reader.Environments, of)}
	if g.err == nil {
		v.Explained, g.err = s.reader.Explain(g.ctx, g.scope, id)
		v.Explained = explainedFor(g.scope, v.Explained)
	}
	v.Moves = slices.DeleteFunc(many(g, s.reader.Moves, of, 1), func(m view.Move) bool {
		return m.EndedAt != nil
	})
	v.Applications = many(g, s.reader.Applications, of, manyItems)
	if v.View.Agent != "" {
		v.Agents, v.Own = many(g, s.agents.Agents, of, 1), many(g, s.agents.OwnApplications, of,
			manyItems)
	}
	s.show(w, r, token, "environment", "environment "+id.String(), v, g.err)
}

// pathName returns a name from the path; an invalid one is replaced by a name that no object has.
func pathName[T ~string](r *http.Request, field string) T {
	if value := r.PathValue(field); fleet.ValidateName(value) == nil {
		return T(value)
	}
	return "-"
}
