package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

// servedEngine is the engine that a person names: TENANT/ENV of an environment that deploys to
// itself, or an engine's own name.
func servedEngine(name string) (fleet.EngineName, error) {
	if !strings.Contains(name, "/") {
		return fleet.EngineName(name), nil
	}
	tenant, environment, err := twoParts("environment", name)
	return fleet.AgentEngine(fleet.EnvironmentID{
		Tenant: tenant, Name: fleet.EnvironmentName(environment)}), err
}

func describeAgent(ctx context.Context, c *client.Client, name string) (description, error) {
	engine, err := servedEngine(name)
	if err != nil {
		return description{}, err
	}
	v, err := c.Agent(ctx, engine)
	if err != nil {
		return description{}, err
	}
	tokens, err := c.AgentTokens(ctx, view.Filter{Engine: engine}, fewTokens)
	if err != nil {
		return description{}, err
	}
	var own []view.Own
	if v.Environment != "" { // an engine's agent has none
		if own, err = c.OwnApplications(ctx, view.Filter{
			Tenant: v.Tenant, Environment: v.Environment}, 0); err != nil {
			return description{}, err
		}
	}
	now := time.Now()
	return description{item: v, sections: []section{
		{facts: agentFacts(v, now)},
		{title: "Own Applications", table: tabulate(own, ownColumns, false, now)},
		{title: "Registration tokens", table: tabulate(tokens, agentTokenColumns, false, now)},
	}}, nil
}

const fewTokens = 10 // the newest

func agentFacts(v view.Agent, now time.Time) []table.Fact {
	facts := []table.Fact{
		{Name: "Agent", Value: table.Cell{Text: agentName(v)}},
		{Name: "Engine", Value: table.Text(v.Engine)},
		{Name: "Mode", Value: table.Text(v.Mode)},
		{Name: "Connected", Value: agentState(v, now)},
	}
	if v.ID == "" {
		return append(facts, table.Fact{Name: "To join", Value: table.Cell{
			Text: "argosy agent token create " + agentName(v)}})
	}
	return append(facts,
		table.Fact{Name: "Last seen", Value: ago(v.SeenAt, now)},
		table.Fact{Name: "Message", Value: table.Text(v.Message)},
		table.Fact{Name: "Version", Value: table.Text(v.Version)},
		table.Fact{Name: "Argo CD", Value: table.Text(v.ArgoCD)},
		table.Fact{Name: "Behind", Value: table.Cell{Text: behind(v)}},
		table.Fact{Name: "Deletions", Value: agentDeletions(v)},
		table.Fact{Name: "Strays", Value: waits(v.Orphans)},
		table.Fact{Name: "Identity", Value: table.Text(v.ID)},
		table.Fact{Name: "Joined", Value: ago(v.JoinedAt, now)},
		table.Fact{Name: "Expires", Value: expires(v.ExpiresAt, now)},
		table.Fact{Name: "Revoked", Value: agoIf(v.RevokedAt, now)},
	)
}

func behind(v view.Agent) string {
	if v.Pending == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%s of %s", plural(v.Pending, "object"), plural(v.Lag, "revision"))
}

// agoIf is ago of what may not have been, and then is left out.
func agoIf(t *time.Time, now time.Time) table.Cell {
	if t == nil {
		return table.Cell{}
	}
	return ago(t, now)
}

var ownColumns = []column[view.Own]{
	{head: "NAMESPACE", of: func(o view.Own, _ time.Time) table.Cell {
		return table.Text(o.Namespace)
	}},
	{head: "NAME", of: func(o view.Own, _ time.Time) table.Cell { return table.Text(o.Name) }},
	{head: "PROJECT", of: func(o view.Own, _ time.Time) table.Cell {
		return table.Text(o.Project)
	}},
	{head: "TARGET", of: func(o view.Own, _ time.Time) table.Cell {
		return table.Text(o.TargetRevision)
	}},
	{head: "SYNC", of: func(o view.Own, _ time.Time) table.Cell {
		return table.State(o.Sync)
	}},
	{head: "HEALTH", of: func(o view.Own, _ time.Time) table.Cell {
		return table.State(o.Health)
	}},
}
