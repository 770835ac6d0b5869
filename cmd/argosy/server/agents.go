package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/hub"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

// agentPaths are what agents ask. They are mounted beside the API, whose limits of body and time
// are not theirs.
var agentPaths = []string{agent.PathJoin, agent.PathToken, agent.PathKeys, agent.PathSnapshot,
	agent.PathStream, agent.PathStatus, agent.PathManifests, agent.PathComparisons,
	agent.PathInspections, agent.PathProbe}

// errNoPublicURL names the setting that agents need.
var errNoPublicURL = errors.New(
	"agents are switched on and listen.publicURL is not set: no agent can join or connect, " +
		"because an agent proves itself to that name; " +
		"set it to the URL by which agents reach this API, or set agents.enabled: false")

// assembleAgents makes what answers agents, unless they are switched off or there is no name that
// they could prove themselves to.
func (v *Server) assembleAgents() error {
	s := v.settings
	if !s.Agents.Enabled || s.Listen.Public == "" {
		return nil
	}
	proxies, err := s.Listen.Proxies()
	if err != nil {
		return err
	}
	made, err := hub.New(hub.Config{
		Store: agentStore(v.store), Secrets: v.secrets, Stops: v.stops, PublicURL: s.Listen.Public,
		Replica: v.holder, Version: v.version,
		LegacyTokenPath: s.Agents.LegacyTokenPath, Limits: agentLimits(v.store.Workers(),
			s.Agents.ConnectRate, proxies), Log: v.log, Metrics: hub.NewMetrics(v.registry),
	})
	if err != nil {
		return fmt.Errorf("listen.publicURL: %w", err)
	}
	v.hub, v.inspect.agents = made, made.Inspector()
	return nil
}

// agentStore gives every part of the hub the same database.
func agentStore(s *postgres.Store) hub.Store {
	a := s.Agents
	return hub.Store{Identities: a, Sessions: a, Rows: a, Changes: a, Reports: struct {
		*postgres.Agents
		*postgres.Work
	}{a, s.Work}, Inspections: s.Inspections()}
}

// agentLimits limits agents to as many requests of the store at a time as the workers' pool has
// connections: a worker or the loop then waits for one request, never behind a herd.
func agentLimits(connections, openRate int, proxies []netip.Prefix) hub.Limits {
	return hub.Limits{
		OpenRate: openRate, Proxies: proxies,
		Reads: max(1, connections/2), Asks: max(1, connections/4),
	}
}

// agents is what people ask of them; nil when they are switched off.
func (v *Server) agents() api.Agents {
	if !v.settings.Agents.Enabled {
		return nil
	}
	return struct {
		*agentRecords
		agentViews
	}{v.store.Agents, v.store.Views}
}

type agentRecords = postgres.Agents // embedded beside the method of that name

// agentViews are the lists of agents and of their own Applications.
type agentViews interface {
	Agents(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) (
		[]view.Agent, string, error)
	OwnApplications(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) (
		[]view.Own, string, error)
}

// mountAgents adds what agents ask to the front.
func (v *Server) mountAgents(mux *http.ServeMux) {
	if v.hub != nil {
		v.hub.Register(mux)
		return
	}
	why := errors.New("agents are switched off here: agents.enabled of argosy.yaml")
	if v.settings.Agents.Enabled {
		why = errNoPublicURL
	}
	for _, path := range agentPaths {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { refuseAgents(w, why) })
	}
}

// refuseAgents answers an agent with the fix that its operator has to make.
func refuseAgents(w http.ResponseWriter, why error) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Retry-After", "60")
	w.WriteHeader(http.StatusServiceUnavailable)
	// the agent closed the connection and will ask again
	_ = json.NewEncoder(w).Encode(wire.Refusal{Type: "urn:argosy:unavailable",
		Title:  http.StatusText(http.StatusServiceUnavailable),
		Status: http.StatusServiceUnavailable, Detail: why.Error(),
		Next: "ask the operator of the control plane"})
}

// runAgents feeds the agents' streams until ctx ends.
func (v *Server) runAgents(ctx context.Context) {
	switch {
	case v.hub != nil:
		v.hub.Run(ctx)
	case v.settings.Agents.Enabled:
		v.log.Info(errNoPublicURL.Error())
	}
}

// rotated notifies the workers and the hub of a changed secret.
func (v *Server) rotated(tenant fleet.TenantName, name string) {
	v.manager.Rotated(tenant, name)
	v.loop.Rotated(tenant)
	if v.hub != nil {
		v.hub.Rotated(tenant, name)
	}
}

// staleAfter is how long an agent may be away before the doctor names it.
const staleAfter = 10 * time.Minute

// examineAgents lists the agents that joined and are disconnected or refused.
func examineAgents(ctx context.Context, store *postgres.Store, public string,
	now time.Time) (string, error) {
	var all, stale []string
	for page := (view.Page{Limit: wire.MaxPage}); ; {
		found, next, err := store.Views.Agents(ctx, view.Scope{}, view.Filter{}, page)
		if err != nil {
			return "", err
		}
		for _, a := range found {
			all = append(all, string(a.Engine))
			if why := amiss(a, now); why != "" {
				stale = append(stale, string(a.Engine)+" "+why)
			}
		}
		if page.After = next; next == "" {
			break
		}
	}
	switch {
	case len(all) == 0:
		return "none is declared", nil
	case public == "":
		return "", errNoPublicURL
	case len(stale) > 0:
		return "",
			fmt.Errorf(
				"%s; see `argosy get agents -o wide`, and the log of `argosy agent run` on the cluster", strings.Join(slices.Sorted(slices.Values(stale)), ", "))
	}
	return fmt.Sprintf("%d declared, each that has joined is connected or was recently", len(all)),
		nil
}

// amiss returns the problem of one agent, or "". An environment without an agent is no problem.
func amiss(a view.Agent, now time.Time) string {
	switch {
	case a.ID == "" || a.RevokedAt != nil:
		return ""
	case a.Cloned:
		return "is used by two processes in turn"
	case a.ExpiresAt != nil && a.ExpiresAt.Before(now):
		return "has expired: join again"
	case a.Connected:
		return ""
	case a.SeenAt == nil:
		return "has joined and never connected"
	case now.Sub(*a.SeenAt) > staleAfter:
		return "was last seen " + fleet.Age(now.Sub(*a.SeenAt)) + " ago"
	}
	return ""
}
