package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/audit"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const (
	platformToken = "argosy_ops_4d3c2b1a"
	readerToken   = "argosy_look_9f8e7d6c"
	acmeToken     = "argosy_acme_0a1b2c3d"
	rev1          = fleet.Revision("4f1c9e2a00000000000000000000000000000000")
)

// content is a fleet of two tenants, equal except for their names.
func content() apitest.Mirror {
	m := apitest.Mirror{
		Source: view.Source{URL: "https://git.example.com/config", Branch: "main", Head: rev1,
			Applied: rev1},
		Engines: []view.Engine{{Name: "eu-1", Region: "eu", State: fleet.EngineActive,
			Reachable: true,
			Capacity:  fleet.Capacity{Applications: 10, Environments: 5}}},
		Revisions: []view.Revision{
			{Revision: rev1, Author: "Ana", Subject: "globex: a secret plan"}},
		Tokens: []apitest.Token{
			{Token: view.Token{ID: "ops", Name: "ops", Role: view.RoleWrite},
				Plaintext: platformToken},
			{Token: view.Token{ID: "look", Name: "look", Role: view.RoleRead},
				Plaintext: readerToken},
			{Token: view.Token{ID: "acme", Name: "ci", Tenant: "acme", Role: view.RoleWrite},
				Plaintext: acmeToken},
		},
	}
	for i, t := range []fleet.TenantName{"acme", "globex"} {
		addTenant(&m, t)
		m.Traces = append(m.Traces, view.Trace{Author: "Ana", Subject: "of " + string(t),
			Revision:     fleet.Revision(strings.Repeat([]string{"8", "9"}[i], 40)),
			Applications: []view.TraceApplication{tracedWeb(t)}, Waits: []view.TraceWait{}})
	}
	m.Traces = append(m.Traces, view.Trace{Revision: rev1, Author: "Ana",
		Subject:      "globex: a secret plan",
		Applications: []view.TraceApplication{tracedWeb("acme"), tracedWeb("globex")},
		Waits: []view.TraceWait{{Kind: "hold", Tenant: "globex", Text: "of globex"},
			{Kind: "hold", Tenant: "acme", Text: "of acme"}}})
	m.Pulls = []apitest.Pull{
		pull(7, `{"tenants":[{"name":"acme"}]}`, "acme"),
		pull(8,
			`{"hash":"c0ffee","summary":"1 to create for globex","platform":["new Tenant globex"],"tenants":[{"name":"acme","engines":[{"name":"eu-1",`+
				`"changes":[{"action":"update","kind":"Application","subject":"web@prod","fields":[{"path":"spec.source.path","before":"old","after":"<b>new"}]}]}]},{"name":"globex"}]}`, "acme", "globex", ""),
		pull(9, "", "globex"),
	}
	return m
}

func tracedWeb(t fleet.TenantName) view.TraceApplication {
	return view.TraceApplication{Tenant: t, Deployment: "web", Environment: "prod", Engine: "eu-1",
		WaitsFor: "the worker or agent of engine eu-1"}
}

func pull(number int, plan string, tenants ...fleet.TenantName) apitest.Pull {
	return apitest.Pull{Plan: json.RawMessage(plan), Pull: view.Pull{
		Number: number, Title: "change <things>", Author: "ana", State: forge.PullOpen, Head: rev1,
		Verdict: fmt.Sprint("needs an approval for ", tenants), Tenants: tenants,
		URL: "https://git.example.com/platform/config/pulls/1"}}
}

func addTenant(m *apitest.Mirror, t fleet.TenantName) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	m.Tenants = append(m.Tenants, view.Tenant{Name: t, Owners: []string{"group:" + string(t)},
		Counts: view.Counts{Applications: 1}})
	m.Environments = append(m.Environments, view.Environment{Tenant: t, Name: "prod",
		Server: "https://" + string(t) + ".example.com", Engine: "eu-1",
		Placement: fleet.Placement{Engine: "eu-1", Reason: "least loaded",
			Alternatives: []fleet.Alternative{{Engine: "eu-9", Reason: "is dedicated to globex"}}}})
	m.Deployments = append(m.Deployments, view.Deployment{Tenant: t, Name: "web",
		Environments: []fleet.EnvironmentName{"prod"},
		Source: fleet.Source{RepoURL: "https://git.example.com/" + string(t) + "/web",
			TargetRevision: "main"}})
	m.Sets = append(m.Sets, view.Set{Tenant: t, Name: "services",
		Deployments: []fleet.DeploymentName{"web"}, Listings: []view.Listing{{
			RepoURL: "https://git.example.com/" + string(t) + "/services", TargetRevision: "main",
			Commit: rev1, Head: rev1, HeadAt: &at, Error: "of " + string(t), Since: &at}}})
	m.Applications = append(m.Applications, view.Application{Tenant: t, Environment: "prod",
		Deployment: "web", Name: string(t) + "-web-prod", Adopted: string(t) + "-apps/shop",
		Engine: "eu-1", Revision: rev1, Apply: mirror.ApplyApplied, Sync: mirror.SyncSynced,
		Health: mirror.HealthHealthy, CreatedAt: at, ChangedAt: at})
	entry := audit.Entry{N: int64(len(m.Audit) + 1), At: at, Actor: "token:" + string(t) + "/ci",
		Action: "stop", Subject: "tenant " + string(t), Tenant: t, TenantUID: "uid-" + string(t),
		Detail: "of " + string(t)}
	log := audit.Head{}
	if n := len(m.Audit); n > 0 {
		log = audit.Head{Position: m.Audit[n-1].Position, Hash: m.Audit[n-1].Hash}
	}
	audit.Append(&entry, log, audit.Head{})
	m.Audit = append(m.Audit, entry)
	m.Operations = append(m.Operations, mirror.Operation{ID: "op-" + string(t),
		Kind: mirror.OperationSync, State: mirror.OperationRunning, Tenant: t,
		Subject: string(t) + "/web@prod", StartedAt: at})
	engine := fleet.AgentEngine(fleet.EnvironmentID{Tenant: t, Name: "edge"})
	m.Agents = append(m.Agents, view.Agent{Engine: engine, Tenant: t, Environment: "edge",
		ID: "agent-" + string(t), Mode: fleet.AgentAutonomous, Version: "v1"})
	m.AgentTokens = append(m.AgentTokens, registry.Token{ID: "join-" + string(t), Engine: engine,
		Tenant: t, Environment: "edge", CreatedAt: at, ExpiresAt: at})
	m.Own = append(m.Own, view.Own{Tenant: t, Environment: "edge", Engine: engine,
		OwnApplication: mirror.OwnApplication{
			Namespace: "argocd", Name: "shop", Project: "default",
			RepoURL: "https://git.example.com/" +
				string(t), Sync: mirror.SyncSynced, Health: mirror.HealthHealthy}, ObservedAt: at})
	m.Problems = append(m.Problems, fleet.Problem{
		Key:  fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: t, Name: "bad"},
		Path: "tenants/" + string(t) + "/deployments/bad.yaml", Line: 3, Column: 1,
		Severity: fleet.SeverityError, Code: "x", Message: "wrong"})
	m.Holds = append(m.Holds, mirror.Hold{Revision: rev1, Reason: mirror.HoldDeletions, Tenant: t,
		Message: "too many of " + string(t), Since: at,
		Items: []fleet.ObjectKey{
			{Engine: "eu-1", Kind: fleet.ObjectApplication, Name: string(t) + "-web-prod"}}})
}

// site is a served API with its store and its log.
type site struct {
	t      *testing.T
	url    string
	store  *apitest.Store // nil over a real store
	tokens api.Tokens
	server *api.Server
	log    *safeBuffer
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// anyStore combines all stores of the API.
type anyStore interface {
	api.Finder
	api.Inventory
	api.History
	api.State
	api.PullReader
	api.AuditReader
	api.Simulator
	api.Decider
	api.Tokens
}

func configOf(store anyStore) api.Config {
	return api.Config{
		Reader: api.Reader{Inventory: store, History: store, State: store, PullReader: store,
			AuditReader: store, Finder: store, Simulator: store},
		Decider: store, Tokens: store}
}

func newSite(t *testing.T, m apitest.Mirror) *site {
	t.Helper()
	store := apitest.New(m)
	s := newSiteOver(t, store)
	s.store = store
	store.OnChange(s.server.Wake)
	return s
}

func newSiteOver(t *testing.T, store anyStore, change ...func(*api.Config)) *site {
	t.Helper()
	s := &site{t: t, tokens: store, log: &safeBuffer{}}
	log := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	config := configOf(store)
	config.Log, config.Version, config.Hub = log, "test", "https://argosy.example.com"
	if agents, ok := store.(api.Agents); ok {
		config.Agents = agents
	}
	if has, ok := store.(interface{ Inspector() api.Inspector }); ok {
		config.Inspector = has.Inspector()
	}
	for _, f := range change {
		f(&config)
	}
	s.server = api.New(config)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		s.server.Run(ctx)
	}()
	web := httptest.NewServer(s.server)
	s.url = web.URL
	t.Cleanup(func() {
		cancel()
		<-ran
		web.Close()
	})
	return s
}

// in returns the same site for a subtest, so that a failure ends that subtest.
func (s *site) in(t *testing.T) *site {
	sub := *s
	sub.t = t
	return &sub
}

// answer is a complete response.
type answer struct {
	status int
	header http.Header
	body   string
}

// whole returns everything by which a caller can distinguish answers.
func (a answer) whole() string {
	a.header.Del("Date")
	var out strings.Builder
	_ = a.header.Write(&out) // a Builder does not fail
	return http.StatusText(a.status) + "\n" + out.String() + "\n" + a.body
}

func (s *site) do(method, path, token, body string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path,
		strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return s.send(req)
}

func (s *site) send(req *http.Request) answer {
	s.t.Helper()
	resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}).Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

func (s *site) get(path, token string) answer {
	s.t.Helper()
	return s.do(http.MethodGet, wire.Base+path, token, "")
}

func (s *site) want(a answer, status int, parts ...string) {
	s.t.Helper()
	if a.status != status {
		s.t.Fatalf("answered %d, not %d: %s", a.status, status, a.body)
	}
	text := timeTags.ReplaceAllString(a.body, "")
	for _, p := range parts {
		if !strings.Contains(a.body, p) && !strings.Contains(text, p) {
			s.t.Fatalf("%q is not in the answer: %s", p, a.body)
		}
	}
}

// timeTags are the elements around a page's times, whose texts a reader sees.
var timeTags = regexp.MustCompile(`</?time[^>]*>`)

func decode[T any](t *testing.T, a answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return v
}
