// Package api serves the control plane to people and programs: a JSON API over the mirror with its
// OpenAPI document, an event stream, and a page.
//
// Rules of this package:
//   - only the token determines a caller's scope; the answers for another tenant's object and for a
//     missing object are the same;
//   - a token is sent in the Authorization header (or, for the page, in a cookie that scripts
//     cannot read), never in a URL, and is never logged;
//   - no type of an answer has a field for a secret;
//   - an error names its subject and the next step (RFC 9457), and never reveals an internal cause.
package api

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/fleet/view"
)

const (
	maxBody     = 64 << 10         // bytes of a request's body
	requestTime = 30 * time.Second // for an answer, streams excepted
)

// Config configures a Server. Log, Version, Now and Agents are optional.
type Config struct {
	Reader Reader
	// for the lookups of a decision, so that it never waits for other readers; nil: Reader
	Deciding DecisionReader
	Decider  Decider
	Tokens   Tokens
	Sessions Sessions // nil: only tokens are accepted
	SignIn   SignIn   // nil: only tokens are accepted; needs Sessions and Hub
	Limits   SessionLimits
	// Lines returns the line of a field in a blob of the config repo, 0 if unknown; may be nil
	Lines  func(ctx context.Context, blob, field string) int
	Agents Agents // nil: agents are disabled, and so are their routes
	// nil: resources cannot be read, and each such request is refused
	Inspector Inspector
	Log       *slog.Logger
	// Proposals is set if a pull request makes each rollback lasting
	Proposals bool
	Version   string           // of the control plane, for `whoami`
	Hub       string           // the URL by which agents reach it; may be empty
	Now       func() time.Time // nil: the system's clock
}

// Server serves the API, the event stream and the page.
type Server struct {
	reader   Reader
	deciding DecisionReader
	decider  Decider
	tokens   Tokens
	sessions Sessions // nil: only tokens are accepted
	signIn   SignIn
	limits   SessionLimits
	signIns  chan struct{}
	// questions to providers that no request waits for
	refreshing sync.WaitGroup
	lines      func(ctx context.Context, blob, field string) int
	agents     Agents
	inspect    inspecting
	log        *slog.Logger
	proposals  bool
	version    string
	hub        string
	now        func() time.Time

	mux        *http.ServeMux
	api        huma.API
	feed       *feed
	counts     sharedRead[[]view.StateCount]
	readLimits readLimits
	handler    http.Handler
}

// New returns a Server. It serves at once; the event stream needs a running Run.
func New(c Config) *Server {
	s := &Server{reader: c.Reader, decider: c.Decider, tokens: c.Tokens, sessions: c.Sessions,
		signIn: c.SignIn, limits: c.Limits, signIns: make(chan struct{}, signInsAtOnce),
		lines: c.Lines, agents: c.Agents,
		log: c.Log, proposals: c.Proposals,
		version: c.Version, hub: c.Hub, now: c.Now, mux: http.NewServeMux()}
	if s.deciding = c.Deciding; s.deciding == nil {
		s.deciding = c.Reader
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.agents == nil {
		s.agents = noAgents{}
	}
	s.inspect.from = c.Inspector
	if s.signIn == nil || s.sessions == nil {
		s.signIn = noProviders{}
	}
	s.feed = newFeed(c.Reader.History, s.log)
	s.counts.changed = s.feed.changedAt
	s.api = humago.New(s.mux, document())
	s.api.UseMiddleware(s.authenticate)
	s.registerLists()
	s.registerObjects()
	s.registerFinder()
	s.registerPulls()
	s.registerSimulate()
	s.registerInspect()
	s.registerDecisions()
	s.registerActions()
	s.registerTokens()
	s.registerSessions()
	s.registerSignIn()
	s.registerAgents()
	describeProtocol(s.api)
	s.registerAudit()
	s.registerTraces()
	s.registerEvents()
	s.newWebsite().registerPage()
	s.handler = s.observed(s.recovered(secured(bounded(renewals(s.mux)))))
	return s
}

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Run feeds the event streams until ctx ends; open streams end with it.
func (s *Server) Run(ctx context.Context) {
	s.feed.run(ctx)
	s.refreshing.Wait()
}

// Wake notifies open streams that the mirror has changed. It never blocks, and calls in close
// succession count once.
func (s *Server) Wake() { s.feed.notify() }

// HTTP returns a net/http server for the handler with deadlines and limits that a hostile client
// cannot extend.
func HTTP(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		// it also ends a running handler, so it is at least as long as an answer may take,
		ReadTimeout:    requestTime,
		WriteTimeout:   requestTime + 5*time.Second,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

func operation(method, path, id, summary, tag string,
	guards []guard) huma.Operation {
	return huma.Operation{
		Method: method, Path: wire.Base + path, OperationID: id, Summary: summary, Tags: []string{
			tag},
		MaxBodyBytes: maxBody, BodyReadTimeout: requestTime,
		Middlewares: guards,
		Security:    []map[string][]string{{"token": {}}},
	}
}

func document() huma.Config {
	registry := huma.NewMapRegistry("#/components/schemas/", schemaName)
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Argosy", Version: "v1",
				Description: "The fleet as the mirror knows it. Every request carries a bearer " +
					"token; a tenant's token sees that tenant only, " +
					"and gets the same answer for another tenant's object as for a missing one.",
			},
			Components: &huma.Components{
				Schemas: registry,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer",
						Description: "Authorization: Bearer argosy_…"},
					"agent": {Type: "http", Scheme: "DPoP",
						Description: "Authorization: DPoP <access token>, with a proof by the " +
							"agent's key over method, path, token and body in the header DPoP"},
				},
			},
		},
		OpenAPIPath:                  "/openapi",
		Formats:                      formats(),
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
	}
}

// formats returns JSON that escapes control characters and invisible characters.
func formats() map[string]huma.Format {
	all := map[string]huma.Format{}
	for name, f := range huma.DefaultFormats {
		marshal := f.Marshal
		f.Marshal = func(w io.Writer, v any) error { return marshal(printable.JSONWriter(w), v) }
		all[name] = f
	}
	return all
}

// schemaName distinguishes a plan's types, and those of the agents' protocol, from the domain's
// types of the same name.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := huma.DefaultSchemaNamer(t, hint)
	if _, item, ok := strings.Cut(t.Name(), "["); ok { // List[argosy.dev/argosy/fleet/view.Tenant]
		path, item, _ := cutLast(strings.TrimSuffix(item, "]"), ".")
		return strings.TrimSuffix(name, item) + qualified(path, item)
	}
	return qualified(t.PkgPath(), name)
}

func qualified(path, name string) string {
	switch {
	case strings.Contains(path, "/reconciler/plan"):
		switch name { // their names in earlier documents
		case "Change", "Engine", "Sync", "Tenant":
			name += "Report"
		}
		return "Plan" + name
	case strings.HasSuffix(path, "/fleet/placement"):
		return "Simulation" + name
	case strings.HasSuffix(path, "/fleet/agent"):
		return "Protocol" + name
	case strings.HasSuffix(path, "/fleet/agent/registry"):
		return "Agent" + name
	case strings.HasSuffix(path, "/fleet/view") && name != "Counts" && name != "Token":
		return name + "View"
	}
	return name
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+len(sep):], true
}

// OpenAPI returns the document that /openapi.json serves, indented.
func (s *Server) OpenAPI() ([]byte, error) {
	b, err := json.MarshalIndent(s.api.OpenAPI(), "", "  ")
	return append(b, '\n'), err
}

// webhooks is the prefix of Git hosts' deliveries; each host has one path below it.
const webhooks = "/webhook"

// isAPI distinguishes a program's request, whose errors are problems, from a person's, whose errors
// are pages.
func isAPI(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/api/") || strings.HasPrefix(r.URL.Path, "/openapi") ||
		r.URL.Path == webhooks || strings.HasPrefix(r.URL.Path, webhooks+"/")
}

func unwrap(ctx huma.Context) (*http.Request, http.ResponseWriter) { return humago.Unwrap(ctx) }
