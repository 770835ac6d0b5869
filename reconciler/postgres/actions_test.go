package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func actionOf(request string, kind mirror.ActionKind) mirror.Action {
	return mirror.Action{Request: request, Kind: kind, Tenant: "acme", Environment: "prod",
		Deployment: "a", By: "token:ann", Note: "at night"}
}

func TestAnActionIsRecordedOnceAndEndsOnce(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	a := application("eu-1", "acme", "a", "prod", "v1")
	s, _, worker, _ := recorded(t, url, a)
	ask := actionOf("r-1", mirror.ActionSync)
	ask.Options = mirror.ActionOptions{DryRun: true, Revision: "4f1c",
		Resources: []mirror.ActionResource{{Group: "apps", Kind: "Deployment", Name: "web"}}}
	made := must(s.Decisions.RequestAction(t.Context(), view.Scope{Tenant: "acme"}, ask))(t)
	again := must(s.Decisions.RequestAction(t.Context(), view.Scope{}, ask))(t)
	if made.ID == "" || made.ID != again.ID || made.Key != a.Key || made.Late ||
		made.State != mirror.OperationPending || made.By != "token:ann" {
		t.Errorf("made %+v, then %+v", made, again)
	}
	open := must(s.Work.OpenActions(t.Context(), "eu-1"))(t)
	if len(open) != 1 || open[0].Options.Revision != "4f1c" || !open[0].Options.DryRun ||
		open[0].Options.Resources[0].String() != "apps/Deployment/web" {
		t.Errorf("open %+v", open)
	}
	for _, u := range []mirror.ActionUpdate{{State: mirror.OperationRunning, Message: "it syncs",
		Outcome: mirror.OperationSucceeded, Results: []mirror.ResourceResult{{Status: "Synced"}}},
		{State: mirror.OperationSucceeded, Message: "done"},
		{State: mirror.OperationFailed, Message: "late"}} {
		u.ID = made.ID
		check(t, s.Work.UpdateAction(t.Context(), worker, u))
	}
	if open := must(s.Work.OpenActions(t.Context(), "eu-1"))(t); len(open) != 0 {
		t.Errorf("open %+v", open)
	}
	seen, _, err := s.Views.Actions(t.Context(), view.Scope{Tenant: "acme"},
		view.Filter{Name: made.ID}, view.Page{Limit: 10})
	check(t, err)
	if len(seen) != 1 || seen[0].State != mirror.OperationSucceeded || len(seen[0].Results) != 1 ||
		seen[0].Message != "done" || seen[0].Outcome != mirror.OperationSucceeded {
		t.Errorf("seen %+v", seen)
	}
	operations, _, err := s.Views.Operations(t.Context(), view.Scope{Tenant: "acme"}, view.Filter{},
		view.Page{Limit: 10})
	check(t, err)
	if len(operations) != 1 || operations[0].State != mirror.OperationSucceeded ||
		operations[0].Kind != mirror.OperationSync || operations[0].Done != 1 ||
		operations[0].Subject != "acme/a@prod" || operations[0].ID != made.ID {
		t.Errorf("operations %+v", operations)
	}
	if n := one[int](t, url, `SELECT count(*) FROM audit WHERE action = 'sync' AND actor = 'token:ann'
		AND detail = 'dry run, at 4f1c, of apps/Deployment/web: at night'`); n != 1 {
		t.Errorf("%d entries in the audit log", n)
	}
}

func TestAnActionIsRefusedOutsideOfItsTenant(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, _, _, _ := recorded(t, url, application("eu-1", "acme", "a", "prod", "v1"))
	ask := actionOf("r", mirror.ActionRefresh)
	if _, err := s.Decisions.RequestAction(t.Context(), view.Scope{Tenant: "globex"},
		ask); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("of another tenant: %v", err)
	}
	missing := ask
	missing.Environment = "staging"
	if _, err := s.Decisions.RequestAction(t.Context(), view.Scope{},
		missing); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("of no Application: %v", err)
	}
	must(s.Decisions.RequestAction(t.Context(), view.Scope{}, ask))(t)
	if seen, _, _ := s.Views.Actions(t.Context(), view.Scope{Tenant: "globex"}, view.Filter{},
		view.Page{Limit: 10}); len(seen) != 0 {
		t.Errorf("another tenant sees %+v", seen)
	}
	// A later tenant of the name sees none of it, and its equal request is another action.
	exec(t, url, `UPDATE tenants SET removed_at = now(); INSERT INTO tenants (tenant) VALUES ('acme')`)
	if seen, _, _ := s.Views.Actions(t.Context(), view.Scope{Tenant: "acme"}, view.Filter{},
		view.Page{Limit: 10}); len(seen) != 0 {
		t.Errorf("a later tenant of the name sees %+v", seen)
	}
}

func TestOpenActionsAreBoundedAndExpire(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, _, worker, _ := recorded(t, url, application("eu-1", "acme", "a", "prod", "v1"))
	for i := range mirror.MaxOpenActions {
		must(s.Decisions.RequestAction(t.Context(), view.Scope{},
			actionOf(fmt.Sprint(i), mirror.ActionRefresh)))(t)
	}
	more := actionOf("more", mirror.ActionRefresh)
	if _, err := s.Decisions.RequestAction(t.Context(), view.Scope{},
		more); !errors.Is(err, mirror.ErrTooManyActions) {
		t.Errorf("one more: %v", err)
	}
	begun := must(s.Work.OpenActions(t.Context(), "eu-1"))(t)[0]
	check(t, s.Work.UpdateAction(t.Context(), worker, mirror.ActionUpdate{ID: begun.ID,
		State: mirror.OperationRunning}))
	exec(t, url, `UPDATE actions SET requested_at = now() - interval '11 minutes'`)
	for _, a := range must(s.Work.OpenActions(t.Context(), "eu-1"))(t) {
		if a.Late != (a.ID != begun.ID) {
			t.Errorf("%s is late: %t", a.Request, a.Late)
		}
	}
	exec(t, url, `UPDATE actions SET requested_at = now() - interval '21 minutes'`)
	must(s.Decisions.RequestAction(t.Context(), view.Scope{}, more))(t)
	if open := must(s.Work.OpenActions(t.Context(), "eu-1"))(t); len(open) != 2 {
		t.Errorf("%d are open", len(open))
	}
	if n := one[int](t, url, `SELECT count(*) FROM operations WHERE state = 'Failed' AND ended_at IS NOT NULL`); n !=
		mirror.MaxOpenActions-1 {
		t.Errorf("%d operations have failed", n)
	}
}

// The agent reads its own engine's actions alone, and ends no other's. One of an earlier protocol
// would never answer.
func TestActionsBehindAnAgentNeedItsProtocolAndStayOnItsEngine(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	k.record(func(r *mirror.Record) {
		r.Rows = []mirror.Row{application(string(acmeEdge), "acme", "a", "edge", "v1"),
			application("globex.edge", "globex", "a", "edge", "v1")}
	})
	other := k.open(k.join("globex.edge", "g"), "one")
	joined := k.join(acmeEdge, "a")
	ask := actionOf("r", mirror.ActionRefresh)
	ask.Environment = "edge"
	for protocol, want := range map[int]error{0: mirror.ErrAgentCannotAct,
		agent.ProtocolActions - 1: mirror.ErrAgentCannotAct} {
		s := session(joined, "one")
		s.Protocol = protocol
		must(k.Agents.OpenAgent(ctx, s))(t)
		if _, err := k.Decisions.RequestAction(ctx, view.Scope{}, ask); !errors.Is(err, want) {
			t.Errorf("protocol %d: %v", protocol, err)
		}
	}
	s := session(joined, "one")
	s.Protocol = agent.ProtocolActions
	o := must(k.Agents.OpenAgent(ctx, s))(t)
	made := must(k.Decisions.RequestAction(ctx, view.Scope{Tenant: "acme"}, ask))(t)
	news := must(k.Agents.AgentNews(ctx, -1, time.Time{}))(t)
	if !slices.Equal(news.Actions, []fleet.EngineName{acmeEdge}) {
		t.Errorf("news %+v", news)
	}
	if open := must(k.Agents.AgentActions(ctx, "globex.edge"))(t); len(open) != 0 {
		t.Errorf("another agent reads %+v", open)
	}
	if open := must(k.Agents.AgentActions(ctx, acmeEdge))(t); len(open) != 1 ||
		open[0].ID != made.ID || open[0].Key.Engine != acmeEdge {
		t.Errorf("open %+v", open)
	}
	end := mirror.ActionUpdate{ID: made.ID, State: mirror.OperationSucceeded}
	check(t, k.Work.UpdateAction(ctx, other.Lease, end))
	if open := must(k.Agents.AgentActions(ctx, acmeEdge))(t); len(open) != 1 {
		t.Error("another agent has ended it")
	}
	check(t, k.Work.UpdateAction(ctx, o.Lease, end))
	if open := must(k.Agents.AgentActions(ctx, acmeEdge))(t); len(open) != 0 {
		t.Errorf("it has ended: %+v", open)
	}
	if news := must(k.Agents.AgentNews(ctx, -1, time.Time{}))(t); len(news.Actions) != 0 {
		t.Errorf("it has ended: %+v", news)
	}
}
