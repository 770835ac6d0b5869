package webhook_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/plan/report"
	"argosy.dev/argosy/reconciler/plan/reviews"
	"argosy.dev/argosy/webhook"
	"argosy.dev/argosy/webhook/github"
	"argosy.dev/argosy/webhook/github/githubtest"
)

const secret = "ghp_canary0123456789"

// harbor is a Reviewer with a small GitHub as its Git host, a store in memory, and a planner with
// fixed answers.
type harbor struct {
	*testing.T
	*webhook.Reviewer
	*webhook.Reviews
	server      *githubtest.Server
	repo        *githubtest.Repository
	alice, bob  *githubtest.Account // an owner of acme, and one who writes to the repository
	self        *githubtest.Account
	app         *githubtest.App // nil: with a token
	hook        *githubtest.Hook
	gate        *gate
	log         *bytes.Buffer
	records     *records
	planner     *planner
	now         time.Time
	pullRequest *githubtest.Pull
}

func newHarbor(t *testing.T) *harbor { return harborOf(t, false) }

func harborOf(t *testing.T, asApp bool) *harbor {
	h := &harbor{T: t, server: githubtest.New(t), log: &bytes.Buffer{}, records: newRecords(),
		planner: newPlanner(), now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	h.gate = &gate{next: h.server}
	front := httptest.NewServer(h.gate)
	t.Cleanup(front.Close)
	h.server.URL = front.URL + "/"
	h.repo = h.server.Repository(h.server.Organization("acme"), "fleet", true)
	h.alice, h.bob, h.self = h.server.User("alice"), h.server.User("bob"), h.server.User("argosy")
	h.repo.Grant(h.bob, "write")
	h.repo.Grant(h.self, "admin")
	forge, err := github.New(h.config(asApp))
	if err != nil {
		t.Fatal(err)
	}
	h.Reviewer = webhook.NewReviewer(webhook.Config{Forge: forge, Planner: h.planner,
		Records: h.records, Status: h.records, Branch: "main", Sweep: time.Minute,
		Log: slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now: func() time.Time { return h.now }})
	h.Reviews = webhook.NewReviews(
		webhook.ReviewsConfig{Pulls: forge, Records: h.records, Branch: "main",
			Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return h.now }})
	return h
}

// config configures the client as an App or with a token.
func (h *harbor) config(asApp bool) github.Config {
	const at = "https://argosy.example/webhook/github"
	c := github.Config{BaseURL: h.server.URL, Repository: h.repo.Name, RepositoryID: h.repo.ID,
		AllowHTTP: true, HookURL: at}
	if !asApp {
		token := h.server.Token(h.self, secret)
		h.hook = h.repo.Hook(at)
		c.Auth.Token = func(context.Context) (string, error) { return token, nil }
		return c
	}
	h.app = h.server.App("argosy")
	h.app.Install(githubtest.Everything(), h.repo)
	h.hook = h.app.Hook()
	c.Auth.App = &github.App{ID: h.app.ID, Key: func(context.Context) ([]byte, error) {
		return h.app.Key, nil
	}}
	return c
}

// gate is a proxy of the small GitHub. It loses the write with the number cut: the request, or with
// done its response.
type gate struct {
	next        http.Handler
	mu          sync.Mutex
	writes, cut int
	done        bool
	credentials map[string]bool // as sent
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.loses(r) {
		if g.done {
			g.next.ServeHTTP(httptest.NewRecorder(), r)
		}
		panic(http.ErrAbortHandler)
	}
	g.next.ServeHTTP(w, r)
}

func (g *gate) loses(r *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.credentials == nil {
		g.credentials = map[string]bool{}
	}
	_, credential, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	g.credentials[credential] = true
	if r.Method == http.MethodGet {
		return false
	}
	g.writes++
	return g.writes == g.cut
}

// lose has the next write but n-1 be lost.
func (g *gate) lose(n int, done bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut, g.done = g.writes+n, done
}

// lost reports whether that has happened.
func (g *gate) lost() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.writes >= g.cut
}

func (h *harbor) open(by *githubtest.Account, from *githubtest.Repository) {
	h.pullRequest = h.repo.Open(by, "v1.5.0", from)
}

func (h *harbor) try() error {
	err := h.Recheck(
		h.Context(), forge.Recheck{Kind: forge.RecheckPull, Number: h.pullRequest.Number})
	if err != nil && strings.Contains(err.Error(), secret) {
		h.Error("the error has the token")
	}
	return err
}

func (h *harbor) review() {
	h.Helper()
	if err := h.try(); err != nil {
		h.Fatal(err)
	}
}

func (h *harbor) record() forge.PullRecord { return h.records.pulls[h.pullRequest.Number] }

func (h *harbor) state(check string) string {
	if h.app == nil {
		return h.repo.Statuses(h.pullRequest.Head)[check].State
	}
	run := h.repo.Runs(h.app, h.pullRequest.Head)[check]
	return cmp.Or(run.Conclusion, run.Status)
}

// again is what a re-run, or a status under our name that another has set, asks for.
func (h *harbor) again() error {
	return h.Recheck(h.Context(), forge.Recheck{Kind: forge.RecheckHead,
		Head: fleet.Revision(h.pullRequest.Head)})
}

// comment is our one comment.
func (h *harbor) comment() string {
	h.Helper()
	ours := h.ours()
	if len(ours) != 1 {
		h.Fatalf("there are %d comments of ours: %q", len(ours), ours)
	}
	return ours[0]
}

// writes counts the requests that change something on the Git host.
func (h *harbor) writes() int {
	return len(h.server.Asked()) - h.server.Count("GET ")
}

func (h *harbor) ours() (texts []string) {
	for _, text := range h.repo.Comments(h.pullRequest.Number) {
		if strings.HasPrefix(text, "<!--") {
			texts = append(texts, text)
		}
	}
	return texts
}

// planner answers as the test sets it.
type planner struct {
	answer           webhook.Preview
	err              error
	parseErr         error
	includes         bool // the applied revision contains the merge
	previews, parses int
	engines          map[fleet.EngineName]fleet.EngineSpec
}

var checkout = fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication,
	Name: "acme-checkout-prod"}

func newPlanner() *planner {
	return &planner{answer: webhook.Preview{Base: fleet.Revision(strings.Repeat("b", 40)),
		Files:  []string{"tenants/acme/deployments/checkout.yaml"},
		Shown:  map[string]string{"tenants/acme/deployments/checkout.yaml": "b1"},
		Report: &report.Report{}, Hash: "h", Effects: []mirror.Effect{
			{Key: checkout, Tenant: "acme", Deletes: true}}}}
}

func (p *planner) Wake() {}

func (p *planner) Parent(context.Context, fleet.Revision) (fleet.Revision, error) {
	return p.answer.Base, nil
}

func (p *planner) Preview(context.Context, string, fleet.Revision,
	func(fleet.TenantName) bool) (webhook.Preview, error) {
	p.previews++
	if p.err != nil {
		return webhook.Preview{}, p.err
	}
	out, report := p.answer, *p.answer.Report
	report.Problems, out.Report = out.Problems, &report
	return out, nil
}

func (p *planner) Parse(context.Context, string, fleet.Revision) (webhook.Preview, error) {
	p.parses++
	if p.parseErr != nil {
		return webhook.Preview{}, p.parseErr
	}
	// The branch's head is not applied while the loop applies it.
	return webhook.Preview{Base: p.answer.Base, Files: p.answer.Files, Shown: p.answer.Shown,
		Behind: p.err != nil}, nil
}

func (p *planner) Platform() (fleet.FleetSpec, error) { return fleet.FleetSpec{}, nil }

func (p *planner) Tenant(name fleet.TenantName) (fleet.TenantSpec, bool, error) {
	owner := "github:alice"
	if name == "globex" {
		owner = "github:gus"
	}
	return fleet.TenantSpec{Owners: []string{owner}, Quota: fleet.Quota{
		Environments: 9, Deployments: 9, Applications: 9}}, true, nil
}

func (p *planner) Engine(name fleet.EngineName) (fleet.EngineSpec, bool, error) {
	spec, ok := p.engines[name]
	return spec, ok, nil
}

func (p *planner) Applied(context.Context, fleet.Revision) (fleet.Revision, bool, error) {
	return p.answer.Base, p.includes, nil
}

var errDown = errors.New("the store is down")

// records keeps what it is given. The save of number failing fails, once.
type records struct {
	pulls          map[int]forge.PullRecord
	reviewed       map[fleet.Revision]forge.ReviewedPlan
	outcomes       map[fleet.ObjectKey]forge.Outcome
	approved       []mirror.Hold // whose approval has not taken effect
	asked          []forge.Recheck
	changes        []change
	agents         []view.Agent
	pushes         []forge.Push
	saves, failing int
	askFails       bool
	pinFails       bool
	pins           map[string]int64
}

// change is what recording one revision changed.
type change struct {
	tenants []fleet.TenantName
	head    fleet.Revision
	base    fleet.Revision
	effects []mirror.Effect
}

func (r *records) ChangedSince(_ context.Context, after int64) (out []fleet.TenantName,
	newest int64, _ error) {
	if r.askFails {
		return nil, 0, errDown
	}
	for i, c := range r.changes {
		if after >= 0 && int64(i) >= after {
			out = append(out, c.tenants...)
		}
	}
	return out, int64(len(r.changes)), nil
}

func (r *records) RecordedEffects(_ context.Context, head fleet.Revision) (fleet.Revision,
	[]mirror.Effect, bool, error) {
	for _, c := range r.changes {
		if c.head == head && c.effects != nil {
			return c.base, c.effects, true, nil
		}
	}
	return "", nil, false, nil
}

// changed records a revision that changed these tenants.
func (h *harbor) changed(tenants ...fleet.TenantName) {
	h.Recorded(h.Context()) // earlier revisions
	h.records.changes = append(h.records.changes, change{tenants: tenants})
	h.Recorded(h.Context())
}

func newRecords() *records {
	return &records{pulls: map[int]forge.PullRecord{},
		reviewed: map[fleet.Revision]forge.ReviewedPlan{}}
}

func (r *records) save() error {
	if r.saves++; r.saves == r.failing {
		return errDown
	}
	return nil
}

func (r *records) Ask(_ context.Context, jobs []forge.Recheck) error {
	if r.askFails {
		return errDown
	}
	r.asked = append(r.asked, jobs...)
	return nil
}

func (r *records) PullRecord(_ context.Context, number int) (forge.PullRecord, bool, error) {
	p, ok := r.pulls[number]
	return p, ok, nil
}

func (r *records) SavePull(_ context.Context, p forge.PullRecord) error {
	if err := r.save(); err != nil {
		return err
	}
	r.pulls[p.Number] = p
	return nil
}

func (r *records) UnfinishedPulls(context.Context) (out []forge.PullRecord, _ error) {
	for _, p := range r.pulls {
		if p.State == forge.PullOpen || !p.Finished {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b forge.PullRecord) int { return a.Number - b.Number })
	return out, nil
}

func (r *records) SaveReviewed(_ context.Context, p forge.ReviewedPlan) error {
	if err := r.save(); err != nil {
		return err
	}
	r.reviewed[p.Head] = p
	return nil
}

func (r *records) Reviewed(_ context.Context, number int, head fleet.Revision) (forge.ReviewedPlan,
	bool, error) {
	p, ok := r.reviewed[head]
	return p, ok && p.Number == number, nil
}

func (r *records) Colliding(_ context.Context, number int, touches []string) (out []forge.Collision,
	_ error) {
	for _, p := range r.pulls {
		other := forge.Collision{Number: p.Number}
		for _, path := range r.reviewed[p.Head].Touches {
			if slices.Contains(touches, path) {
				other.Touches = append(other.Touches, path)
			}
		}
		if p.Number != number && p.State == forge.PullOpen && len(other.Touches) > 0 {
			out = append(out, other)
		}
	}
	slices.SortFunc(out, func(a, b forge.Collision) int { return a.Number - b.Number })
	return out, nil
}

func (r *records) Outcomes(_ context.Context, keys []fleet.ObjectKey) ([]forge.Outcome, error) {
	out := make([]forge.Outcome, len(keys))
	for i, k := range keys {
		out[i] = r.outcomes[k]
		out[i].Key = k
	}
	return out, nil
}

// PinOwner keeps the first number of a name.
func (r *records) PinOwner(_ context.Context, _, name string, id int64) (view.Owner, error) {
	if r.pinFails {
		return view.Owner{}, errDown
	}
	if r.pins == nil {
		r.pins = map[string]int64{}
	}
	if r.pins[name] == 0 {
		r.pins[name] = id
	}
	v := view.Owner{Name: name, ID: r.pins[name]}
	if v.ID != id {
		v.NowID = id
	}
	return v, nil
}

// Pushes are the stored pushes that end at one of the commits.
func (r *records) Pushes(_ context.Context, ends []fleet.Revision) (out []forge.Push, _ error) {
	for _, p := range r.pushes {
		if slices.Contains(ends, p.After) {
			out = append(out, p)
		}
	}
	return out, nil
}

// deletions asks who saw the deletions of these commits, the oldest first.
func (h *harbor) deletions(commits ...fleet.Revision) (map[fleet.ObjectKey]mirror.ReviewedDeletion,
	error) {
	var line []reviews.Commit
	for _, c := range commits {
		line = append(line, reviews.Commit{ID: c})
	}
	seen, err := h.Reviewed(h.Context(), "base", line)
	return seen.Deletions, err
}

func (r *records) Rendered(_ context.Context, digests []string) (all []mirror.Rendered, err error) {
	for _, d := range digests {
		all = append(all, mirror.Rendered{Ring: "canary", Digest: d, Applications: 40,
			Differences: 3})
	}
	return all, nil
}

func (r *records) Stops(context.Context, view.Scope) ([]mirror.Stop, error) { return nil, nil }

func (r *records) Holds(_ context.Context, _ view.Scope, by view.Filter, _ view.Page) (
	[]mirror.Hold, string, error) {
	if by.Approved {
		return r.approved, "", nil
	}
	return nil, "", nil
}

func (r *records) Agents(_ context.Context, _ view.Scope, by view.Filter,
	_ view.Page) (out []view.Agent, _ string, _ error) {
	for _, a := range r.agents {
		if a.Engine == by.Engine {
			out = append(out, a)
		}
	}
	return out, "", nil
}

func (r *records) Engines(context.Context, view.Scope, view.Filter,
	view.Page) ([]view.Engine, string, error) {
	return nil, "", nil
}
