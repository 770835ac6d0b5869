package webhook_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/webhook"
	"argosy.dev/argosy/webhook/github"
	"argosy.dev/argosy/webhook/github/githubtest"
)

const secret = "ghp_canary0123456789"

// harbor is a Reviewer with a small GitHub as its forge, a store in memory, and a planner that answers what the test sets.
type harbor struct {
	*testing.T
	*webhook.Reviewer
	server      *githubtest.Server
	repo        *githubtest.Repository
	alice, bob  *githubtest.Account // an owner of acme, and one who writes to the repository
	self        *githubtest.Account
	records     *records
	planner     *planner
	now         time.Time
	pullRequest *githubtest.Pull
}

func newHarbor(t *testing.T) *harbor {
	h := &harbor{T: t, server: githubtest.Start(t), records: newRecords(), planner: newPlanner(), now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	h.repo = h.server.Repository(h.server.Organization("acme"), "fleet", true)
	h.alice, h.bob, h.self = h.server.User("alice"), h.server.User("bob"), h.server.User("argosy")
	h.repo.Grant(h.bob, "write")
	h.repo.Grant(h.self, "admin")
	token := h.server.Token(h.self, secret)
	forge, err := github.New(github.Config{BaseURL: h.server.URL, Repository: h.repo.Name, RepositoryID: h.repo.ID, AllowHTTP: true,
		Auth: github.Auth{Token: func(context.Context) (string, error) { return token, nil }}})
	if err != nil {
		t.Fatal(err)
	}
	h.Reviewer = webhook.NewReviewer(webhook.Config{Forge: forge, Planner: h.planner, Records: h.records, Branch: "main", Sweep: time.Minute,
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return h.now }})
	return h
}

func (h *harbor) open(by *githubtest.Account, from *githubtest.Repository) {
	h.pullRequest = h.repo.Open(by, "v1.5.0", from)
}

func (h *harbor) try() error {
	err := h.Look(h.Context(), fleet.Look{Kind: fleet.LookPull, Number: h.pullRequest.Number})
	if err != nil && strings.Contains(err.Error(), secret) {
		h.Error("the error has the token")
	}
	return err
}

func (h *harbor) look() {
	h.Helper()
	if err := h.try(); err != nil {
		h.Fatal(err)
	}
}

func (h *harbor) record() fleet.PullRecord { return h.records.pulls[h.pullRequest.Number] }

func (h *harbor) state(check string) string {
	return h.repo.Statuses(h.pullRequest.Head)[check].State
}

// writes counts the requests that change something on the forge.
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
	previews, parses int
}

var checkout = fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication, Name: "acme-checkout-prod"}

func newPlanner() *planner {
	return &planner{answer: webhook.Preview{Base: fleet.Revision(strings.Repeat("b", 40)), Files: []string{"tenants/acme/deployments/checkout.yaml"},
		Report: &plan.Report{}, Hash: "h", Effects: []fleet.Effect{{Key: checkout, Tenant: "acme", Deletes: true}}}}
}

func (p *planner) Wake() {}

func (p *planner) Preview(context.Context, string, fleet.Revision) (webhook.Preview, error) {
	p.previews++
	if p.err != nil {
		return webhook.Preview{}, p.err
	}
	return p.answer, nil
}

func (p *planner) Parse(context.Context, string, fleet.Revision) (webhook.Preview, error) {
	p.parses++
	return webhook.Preview{Base: p.answer.Base, Files: p.answer.Files}, nil
}

func (p *planner) Platform() (fleet.FleetSpec, error) { return fleet.FleetSpec{}, nil }

func (p *planner) Tenant(fleet.TenantName) (fleet.TenantSpec, bool, error) {
	return fleet.TenantSpec{Owners: []string{"github:alice"}, Quota: fleet.Quota{Environments: 9, Deployments: 9, Applications: 9}}, true, nil
}

func (p *planner) Engine(fleet.EngineName) (fleet.EngineSpec, bool, error) {
	return fleet.EngineSpec{}, false, nil
}

func (p *planner) Applied(context.Context, fleet.Revision) (fleet.Revision, bool, error) {
	return p.answer.Base, false, nil
}

var errDown = errors.New("the store is down")

// records keeps what it is given. The save of number failing fails, once.
type records struct {
	pulls          map[int]fleet.PullRecord
	reviewed       map[fleet.Revision]fleet.ReviewedPlan
	asked          []fleet.Look
	saves, failing int
}

func newRecords() *records {
	return &records{pulls: map[int]fleet.PullRecord{}, reviewed: map[fleet.Revision]fleet.ReviewedPlan{}}
}

func (r *records) save() error {
	if r.saves++; r.saves == r.failing {
		return errDown
	}
	return nil
}

func (r *records) Ask(_ context.Context, looks []fleet.Look) error {
	r.asked = append(r.asked, looks...)
	return nil
}

func (r *records) PullRecord(_ context.Context, number int) (fleet.PullRecord, bool, error) {
	p, ok := r.pulls[number]
	return p, ok, nil
}

func (r *records) SavePull(_ context.Context, p fleet.PullRecord) error {
	if err := r.save(); err != nil {
		return err
	}
	r.pulls[p.Number] = p
	return nil
}

func (r *records) UnsettledPulls(context.Context) (out []fleet.PullRecord, _ error) {
	for _, p := range r.pulls {
		if p.State == fleet.PullOpen || !p.Settled {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b fleet.PullRecord) int { return a.Number - b.Number })
	return out, nil
}

func (r *records) SaveReviewed(_ context.Context, p fleet.ReviewedPlan) error {
	if err := r.save(); err != nil {
		return err
	}
	r.reviewed[p.Head] = p
	return nil
}

func (r *records) Reviewed(_ context.Context, number int, head fleet.Revision) (fleet.ReviewedPlan, bool, error) {
	p, ok := r.reviewed[head]
	return p, ok && p.Number == number, nil
}

func (r *records) Colliding(context.Context, int, []string) ([]fleet.Collision, error) {
	return nil, nil
}

func (r *records) Outcomes(_ context.Context, keys []fleet.ObjectKey) ([]fleet.Outcome, error) {
	out := make([]fleet.Outcome, len(keys))
	for i, k := range keys {
		out[i].Key = k
	}
	return out, nil
}
func (r *records) Stops(context.Context, fleet.Scope) ([]fleet.Stop, error) { return nil, nil }

func (r *records) Holds(context.Context, fleet.Scope, fleet.Filter, fleet.Page) ([]fleet.Hold, string, error) {
	return nil, "", nil
}

func (r *records) Engines(context.Context, fleet.Scope, fleet.Filter, fleet.Page) ([]fleet.EngineView, string, error) {
	return nil, "", nil
}
