package webhook_test

import (
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/plan/report"
)

// behind has the pull request add one Application on an engine.
func (h *harbor) behind(engine fleet.EngineName) {
	key := fleet.ObjectKey{Engine: engine, Kind: fleet.ObjectApplication, Name: "app"}
	h.planner.answer.Effects = []mirror.Effect{
		{Key: key, Tenant: "acme", Environment: "edge", Deployment: "shop", Hash: "m"}}
	h.planner.answer.Report = &report.Report{
		Tenants: []report.Tenant{
			{Name: "acme", Engines: []report.Engine{{Name: engine, Changes: []report.Change{
				{Action: report.Create, Kind: fleet.ObjectApplication, Subject: "shop@edge",
					Object: "app"}}}}}}}
}

func TestAPlanNamesTheMissingAgentThatItWaitsFor(t *testing.T) {
	seen := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	over := seen.Add(-time.Hour)
	recent := seen.Add(3*time.Hour - 20*time.Second)
	for name, c := range map[string]struct {
		engine fleet.EngineName
		agent  view.Agent
		want   string
		at     bool // it is there at once
	}{
		"no agent has joined": {"acme.edge", view.Agent{},
			"Own cluster `acme.edge`: no agent has joined yet", false},
		"away, of an Engine": {
			"far", view.Agent{ID: "a", SeenAt: &seen, Reachable: true},
			"Engine `far`: its agent was last seen 2026-11-20 09:00 UTC", false},
		"away, of an own cluster": {"acme.edge", view.Agent{ID: "a", SeenAt: &seen,
			Reachable: true},
			"Own cluster `acme.edge`: its agent was last seen 2026-11-20 09:00 UTC", false},
		"never there": {"acme.edge", view.Agent{ID: "a"},
			"has joined and never connected", false},
		"revoked": {"acme.edge", view.Agent{ID: "a", SeenAt: &seen,
			RevokedAt: &over, Connected: true}, "no longer admitted", false},
		"expired": {"acme.edge", view.Agent{ID: "a", SeenAt: &seen,
			ExpiresAt: &over}, "no longer admitted", false},
		"cloned": {"acme.edge", view.Agent{ID: "a", SeenAt: &seen,
			Cloned: true}, "no longer admitted", false},
		"there, its Argo CD is not": {"acme.edge", view.Agent{ID: "a", SeenAt: &recent,
			Connected: true, Message: "no answer"}, "Own cluster `acme.edge` is not reachable",
			false},
		"connected": {"acme.edge", view.Agent{ID: "a", SeenAt: &recent,
			Connected: true, Reachable: true}, "`acme.edge` has it within seconds", true},
		"away for a moment": {"acme.edge", view.Agent{ID: "a", SeenAt: &recent,
			Reachable: true}, "`acme.edge` has it within seconds", true},
		"another engine's is no word": {"acme.edge", view.Agent{Engine: "acme.other", ID: "a",
			Connected: true}, "no agent has joined yet", false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarbor(t)
			h.planner.engines = map[fleet.EngineName]fleet.EngineSpec{
				"far": {Connection: fleet.Connection{Agent: &fleet.AgentConnection{}}}}
			if c.agent.Engine == "" {
				c.agent.Engine = c.engine
			}
			h.records.agents = []view.Agent{c.agent}
			h.behind(c.engine)
			h.open(h.alice, nil)
			h.review()
			h.expectText(c.want)
			if promised := strings.Contains(h.comment(), "within seconds"); promised != c.at {
				t.Errorf("it is promised within seconds: %t\n%s", promised, h.comment())
			}
		})
	}
}
