package api

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/fleet/view"
)

const pageEvents = "/events" // the event stream for the page's script, by the page's cookie

//go:embed page
var pageFiles embed.FS

// frame is the common part of every page.
type frame struct {
	Title   string
	Who     string // "" before login
	Tenant  fleet.TenantName
	Version string
	Now     time.Time
}

func (s *Server) frame(title string, token view.Token) frame {
	f := frame{Title: title, Tenant: token.Tenant, Version: s.version, Now: s.now().UTC()}
	if token.Name != "" {
		f.Who = token.Subject()
	}
	return f
}

func (s *Server) registerPage() {
	static, err := fs.Sub(pageFiles, "page/static")
	if err != nil {
		panic(err) // the folder is embedded: its absence is a build error
	}
	s.mux.Handle("GET /static/{file}", http.StripPrefix("/static/", http.FileServerFS(static)))
	s.mux.HandleFunc("GET /{$}", s.signedIn(s.overviewPage))
	s.mux.HandleFunc("GET /applications", s.signedIn(s.applicationsPage))
	s.mux.HandleFunc("GET /tenants/{tenant}", s.signedIn(s.tenantPage))
	s.mux.HandleFunc("GET /engines/{engine}", s.signedIn(s.enginePage))
	s.mux.HandleFunc("GET /strays", s.signedIn(s.orphansPage))
	s.mux.HandleFunc("GET /tenants/{tenant}/environments/{environment}",
		s.signedIn(s.environmentPage))
	s.mux.HandleFunc("GET /tenants/{tenant}/applications/{deployment}/{environment}",
		s.signedIn(s.applicationPage))
	s.mux.HandleFunc("GET /agents", s.signedIn(s.agentsPage))
	s.mux.HandleFunc("GET /pulls", s.signedIn(s.pullsPage))
	s.mux.HandleFunc("GET /pulls/{number}", s.signedIn(s.pullPage))
	s.mux.HandleFunc("GET "+pageEvents, s.pageStream)

	sameOrigin := http.NewCrossOriginProtection()
	s.mux.HandleFunc("GET /signin", s.signinForm)
	s.mux.Handle("POST /signin", sameOrigin.Handler(http.HandlerFunc(s.signin)))
	s.mux.Handle("POST /signout", sameOrigin.Handler(http.HandlerFunc(s.signout)))
	s.mux.HandleFunc("/", s.notFoundRoute)
}

// pageStream is the event stream for the page's script, which cannot set a header.
func (s *Server) pageStream(w http.ResponseWriter, r *http.Request) {
	plaintext := sessionToken(r)
	token, refusal := s.verify(r.Context(), plaintext)
	if refusal != nil {
		writeProblem(w, refusal)
		return
	}
	s.stream(w, r, token, plaintext, -1) // the script only needs the fact of a change
}

// notFoundRoute answers requests that match no route, to programs and to people.
func (s *Server) notFoundRoute(w http.ResponseWriter, r *http.Request) {
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

func (s *Server) failPage(w http.ResponseWriter, r *http.Request, token view.Token, subject string,
	err error) {
	var p *wire.Refusal
	errors.As(s.answer(r.Context(), subject, err), &p)
	if p.Status == http.StatusNotFound {
		p.Next = "start from the overview"
	}
	s.render(w, p.Status, "failure", failure{s.frame(p.Title, token), p})
}

func (s *Server) render(w http.ResponseWriter, status int, name string, data any) {
	var out bytes.Buffer // buffer, so that a failing template sends nothing
	if err := pages[name].ExecuteTemplate(&out, "frame", data); err != nil {
		s.log.Error("failed to render a page", "page", name, "error", err)
		http.Error(w, "this page cannot be shown: see the log of argosy serve",
			http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(printable.Lines(out.Bytes())) // the client has disconnected
}

var pages = parsePages("signin", "overview", "applications", "tenant", "engine", "environment",
	"application", "agents", "orphans", "pulls", "pull", "failure")

func parsePages(names ...string) map[string]*template.Template {
	parsed := map[string]*template.Template{}
	for _, name := range names {
		t := template.New(name).Funcs(template.FuncMap{"ago": ago, "tone": tone, "percent": percent,
			"short": fleet.Revision.Short, "deed": actionTone, "agentstate": agentState, "web": web})
		parsed[name] = template.Must(t.ParseFS(pageFiles, "page/frame.html", "page/parts.html",
			"page/"+name+".html"))
	}
	return parsed
}

// ago formats the time since when in its largest unit: 12s, 5m, 3h, 9d.
func ago(now time.Time, when any) string {
	var t time.Time
	switch v := when.(type) {
	case time.Time:
		t = v
	case *time.Time:
		if v == nil {
			return "never"
		}
		t = *v
	}
	if t.IsZero() {
		return "never"
	}
	return fleet.Age(now.Sub(t))
}

// tone returns the colour of a state: good, busy, bad or none.
func tone(state any) string {
	switch fmt.Sprint(state) {
	case "Synced", "Healthy", "Applied", "Succeeded", "Active", "true":
		return "good"
	case "Progressing", "Pending", "Running", "OutOfSync", "Deleting", "Cordoned", "Draining",
		"Suspended", "Terminating":
		return "busy"
	case "Degraded", "Missing", "Failed", "Conflict", "Held", "Error", "false", "Unreachable",
		"DeletionBlocked":
		return "bad"
	}
	return "none"
}

// percent returns part of whole, 0 to 100; 100 if whole is zero and part is not.
func percent(part, whole int) int {
	if whole <= 0 {
		return min(part, 1) * 100
	}
	return min(100*part/whole, 100)
}
