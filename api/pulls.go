package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/plan/report"
	"github.com/danielgtaylor/huma/v2"
)

// PullReader reads the stored pull requests.
type PullReader interface {
	// Pulls match Filter.{Tenant, Pull, State}, newest first. With a tenant in scope: those
	// that change files of that tenant.
	Pulls(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]view.Pull, string, error)
	// PullPlan is the plan of the pull request's head, a complete plan.Report as JSON: the API
	// restricts what the caller sees. mirror.ErrNotFound if there is no such pull request in scope,
	// or no plan of its head.
	PullPlan(ctx context.Context, scope view.Scope, number int) ([]byte, error)
}

type (
	pullsIn struct {
		Paging
		ByTenant
		State forge.PullState `query:"state" enum:"open,merged,closed"`
	}
	pullIn struct {
		Number int `path:"number" minimum:"1" maximum:"999999999"`
	}
)

func (in *pullsIn) query() (view.Filter, view.Page) {
	return view.Filter{Tenant: in.Tenant, State: in.State}, in.page()
}

func (in *pullIn) identity() (view.Filter, string) {
	return view.Filter{Pull: in.Number}, "pull request " + strconv.Itoa(in.Number)
}

func (s *Server) registerPulls() {
	list[pullsIn](s, "pulls", "Pull requests with their last review, newest first", s.pulls)
	one[pullIn](s, "pull", "/pulls/{number}", "One pull request", s.pulls)
	huma.Register(s.api, operation(http.MethodGet, "/pulls/{number}/plan", "get-pull-plan",
		"The plan that its reviewers see; for a tenant: that tenant's part", "pulls", nil),
		func(ctx context.Context, in *pullIn) (*body[report.Report], error) {
			plan, err := s.pullPlan(ctx, callerOf(ctx).Scope(), in.Number)
			if err != nil {
				return nil, s.answer(ctx, fmt.Sprintf("plan of pull request %d", in.Number), err)
			}
			return &body[report.Report]{plan}, nil
		})
}

// pulls removes from a tenant's answer the other tenants that a pull request changes.
func (s *Server) pulls(ctx context.Context, scope view.Scope, filter view.Filter,
	page view.Page) ([]view.Pull, string, error) {
	items, next, err := s.reader.Pulls(ctx, scope, filter, page)
	items = slices.Clone(items)
	for i := range items {
		if scope.Tenant != "" {
			if len(items[i].Tenants) > 1 {
				items[i].Verdict = "" // it may name other tenants
			}
			items[i].Tenants = []fleet.TenantName{scope.Tenant}
		}
		if items[i].Tenants == nil {
			items[i].Tenants = []fleet.TenantName{}
		}
	}
	return items, next, err
}

func (s *Server) pullPlan(ctx context.Context, scope view.Scope, number int) (report.Report,
	error) {
	raw, err := s.reader.PullPlan(ctx, scope, number)
	if err != nil {
		return report.Report{}, err
	}
	var plan report.Report
	if err := json.Unmarshal(raw, &plan); err != nil {
		return report.Report{}, fmt.Errorf("the stored plan of pull request %d: %w", number, err)
	}
	if scope.Tenant != "" {
		plan = plan.For(scope.Tenant)
	}
	return plan, nil
}

type (
	pullsView struct {
		frame
		Pulls []view.Pull
		Next  string
	}
	pullView struct {
		frame
		View view.Pull
		Plan *report.Report
	}
)

func (s *website) pullsPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	v := pullsView{frame: s.framed(r, token, "Pull requests")}
	var err error
	v.Pulls, v.Next, err = s.pulls(r.Context(), token.Scope(), view.Filter{}, view.Page{
		Limit: manyItems, After: cursor(r.URL.Query().Get("after"))})
	if v.Next != "" {
		v.Next = "?" + url.Values{"after": {v.Next}}.Encode()
	}
	s.show(w, r, token, "pulls", "pull requests", v, err)
}

func (s *website) pullPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	number, err := strconv.Atoi(r.PathValue("number"))
	subject := fmt.Sprintf("pull request %d", number)
	if err != nil || number <= 0 {
		s.failPage(w, r, token, "pull request", mirror.ErrNotFound)
		return
	}
	g := &gather{ctx: r.Context(), scope: token.Scope()}
	v := pullView{frame: s.framed(r, token, "Pull request "+strconv.Itoa(number),
		crumb{"Pull requests", "/pulls"}),
		View: the(g, s.pulls, view.Filter{Pull: number})}
	if g.err == nil {
		report, err := s.pullPlan(g.ctx, g.scope, number)
		switch {
		case err == nil:
			v.Plan = &report
		case !errors.Is(err, mirror.ErrNotFound):
			g.err = err
		}
	}
	s.show(w, r, token, "pull", subject, v, g.err)
}

// actionTone returns the colour of a plan's action.
func actionTone(action report.Action) string {
	return map[report.Action]string{
		report.Create: "good", report.Update: "busy", report.Delete: "bad",
		report.Hold: "bad", report.Depart: "busy", report.Freeze: "busy",
		report.Wave: "busy"}[action]
}

// web reports whether a link from the Git host is an http or https URL.
func web(link string) bool {
	u, err := url.Parse(link)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}
