package postgres_test

import (
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

func (k *agentKit) engine(name fleet.EngineName) view.Engine {
	k.t.Helper()
	all, _, err := k.Views.Engines(k.t.Context(), view.Scope{}, view.Filter{Engine: name},
		view.Page{
			Limit: 10})
	check(k.t, err)
	if len(all) != 1 {
		k.t.Fatalf("engines called %s: %+v", name, all)
	}
	return all[0]
}

// An agent's last report counts only while the agent is connected, and again as soon as it
// reconnects.
func TestEngineBehindAnAgentIsReachedWhileItIsConnected(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	ctx := t.Context()
	exec(t, k.url,
		`UPDATE engines SET reachable = true, message = '' WHERE engine IN ('eu-1', 'far-1')`)
	want := func(when, message string, since *time.Time) {
		t.Helper()
		e := k.engine("far-1")
		if e.Reachable || !strings.HasPrefix(e.Message, message) ||
			(since == nil) != (e.Since == nil) || since != nil && !since.Equal(*e.Since) {
			t.Errorf("%s: reachable %t since %v, %q", when, e.Reachable, e.Since, e.Message)
		}
		if eu := k.engine("eu-1"); !eu.Reachable {
			t.Errorf("%s: an engine without an agent: %+v", when, eu)
		}
	}
	seen := func() *time.Time { return k.view("far-1").SeenAt }
	want("nobody", "no agent has joined", nil)
	a := k.join("far-1", "f")
	want("joined", "its agent has joined, and has not connected yet", nil)
	check(t, k.Agents.BeatReplica(ctx, "hub-1"))
	o := k.open(a, "one")
	check(t, k.Agents.ReportAgent(ctx, o.Lease, registry.Report{Reachable: true, Message: "well"}))
	if e := k.engine("far-1"); !e.Reachable || e.Message != "well" {
		t.Errorf("connected: %+v", e)
	}
	closed := session(a, "one")
	closed.Opening = o.Opening
	check(t, k.Agents.CloseAgent(ctx, closed))
	want("closed", "its agent was last seen at "+seen().UTC().Format("2006-01-02T15:04"), seen())
	o = k.open(a, "one")
	if e := k.engine("far-1"); !e.Reachable || e.Message != "well" {
		t.Errorf("back: %+v", e)
	}
	exec(t, k.url,
		`UPDATE agents SET seen_at = now() - interval '2 hours'; UPDATE replicas SET beat_at = now() - interval '31 seconds'`)
	want("its replica is gone", "its agent was last seen at ", seen())
	check(t, k.Agents.ReportAgent(ctx, o.Lease, registry.Report{Message: "connection refused"}))
	since := one[time.Time](t, k.url, `SELECT since FROM engines WHERE engine = 'far-1'`)
	want("its Argo CD was away already", "its agent was last seen at ", &since)
	check(t, k.Agents.BeatReplica(ctx, "hub-1"))
	want("connected again, its Argo CD away", "connection refused", &since)
	check(t, k.Agents.RevokeAgent(ctx, view.Scope{}, "far-1", "ann"))
	want("revoked", "no agent has joined", &since)
}

// Listing a few Engines does not read the rows of ten thousand agents.
func TestEnginesReadNoOtherAgents(t *testing.T) {
	t.Parallel()
	k := newAgentKit(t)
	manyAgents(t, k, 10_000)
	var seen asked
	s := openWith(t, k.url, postgres.Options{Tracer: &seen})
	_, _, err := s.Views.Engines(t.Context(), view.Scope{}, view.Filter{}, view.Page{Limit: 1000})
	check(t, err)
	list := seen.of(t, "FROM declarations e")
	must(s.Views.FleetStats(t.Context(), asLeader))(t)
	for name, asked := range map[string]string{
		"list": list.SQL, "figures": seen.of(t, "FROM declarations e").SQL} {
		if !strings.Contains(asked, "JOIN replicas") || name == "figures" && asked == list.SQL {
			t.Fatalf("%s asks %s", name, asked)
		}
		if got := costOf(t, k.url, asked); got.pages > 30 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
