package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// resources are what `get` lists.
var resources = []resource{
	{plural: "applications", aliases: []string{"application", "apps", "app"},
		filters: []string{"tenant", "environment", "deployment", "engine", "revision", "sync",
			"health", "apply"},
		list: lister(shownApplications, shownApplication.name, shownColumns())},
	{plural: "environments", aliases: []string{"environment", "envs", "env"}, filters: []string{
		"tenant", "environment", "engine"},
		list: lister((*client.Client).Environments, func(e view.Environment) string {
			return string(e.Tenant) + "/" + string(e.Name)
		}, environmentColumns)},
	{plural: "deployments", aliases: []string{"deployment"}, filters: []string{
		"tenant", "environment", "deployment"},
		list: lister((*client.Client).Deployments, func(d view.Deployment) string {
			return string(d.Tenant) + "/" + string(d.Name)
		}, deploymentColumns)},
	{plural: "tenants", aliases: []string{"tenant"},
		list: lister((*client.Client).Tenants, func(t view.Tenant) string {
			return string(t.Name)
		}, tenantColumns)},
	{plural: "engines", aliases: []string{"engine"},
		list: lister((*client.Client).Engines, func(e view.Engine) string {
			return string(e.Name)
		}, engineColumns)},
	{plural: "agents", aliases: []string{"agent"}, filters: []string{"tenant", "environment",
		"engine"},
		about: "no environment has spec.agent and no engine connection.agent",
		list:  lister((*client.Client).Agents, agentName, agentColumns)},
	{plural: "strays", aliases: []string{"stray"}, filters: []string{"tenant", "engine"},
		about: "every live object is declared",
		list:  lister((*client.Client).Orphans, orphanName, orphanColumns)},
	{plural: "owners", aliases: []string{"owner"},
		about: "no owner was looked up on the Git host yet",
		list: lister((*client.Client).Owners, func(v view.Owner) string { return v.Name },
			ownerColumns)},
	{plural: "operations", aliases: []string{"operation", "ops", "op"}, filters: []string{
		"tenant", "engine", "revision"},
		list: lister((*client.Client).Operations, func(o mirror.Operation) string { return o.ID },
			operationColumns)},
	{plural: "revisions", aliases: []string{"revision", "revs", "rev"},
		list: lister((*client.Client).Revisions, func(r view.Revision) string {
			return string(r.Revision)
		}, revisionColumns)},
	{plural: "pulls", aliases: []string{"pull", "prs", "pr"}, filters: []string{"tenant", "state"},
		list: lister((*client.Client).Pulls, func(p view.Pull) string {
			return strconv.Itoa(p.Number)
		}, pullColumns)},
	{plural: "problems", aliases: []string{"problem"}, filters: []string{"tenant"},
		about: "every declaration is fine",
		list:  lister((*client.Client).Problems, where, problemColumns)},
	{plural: "holds", aliases: []string{"hold"}, filters: []string{"tenant", "revision"},
		about: "nothing waits for an approval",
		list: lister((*client.Client).Holds, func(h mirror.Hold) string {
			return string(h.Revision)
		}, holdColumns)},
	{plural: "stops", aliases: []string{"stop"}, about: "nothing is stopped",
		list: lister(stops, func(s mirror.Stop) string {
			return strings.TrimSuffix(string(s.Scope)+"/"+s.Name, "/")
		}, stopColumns)},
}

// findResource is the resource that a person means by the word.
func findResource(word string) (resource, error) {
	var plurals []string
	for _, r := range resources {
		if r.plural == word || slices.Contains(r.aliases, word) {
			return r, nil
		}
		plurals = append(plurals, r.plural)
	}
	return resource{}, fmt.Errorf("there is no kind %q; there are %s", word,
		strings.Join(plurals, ", "))
}

var applicationColumns = []column[view.Application]{
	{head: "TENANT", of: func(a view.Application, _ time.Time) table.Cell {
		return table.Text(a.Tenant)
	}},
	{head: "DEPLOYMENT", of: func(a view.Application, _ time.Time) table.Cell {
		return table.Text(a.Deployment)
	}},
	{head: "ENVIRONMENT", of: func(a view.Application, _ time.Time) table.Cell {
		return table.Text(a.Environment)
	}},
	{head: "ENGINE", of: func(a view.Application, _ time.Time) table.Cell {
		return table.Text(a.Engine)
	}},
	{head: "REVISION", of: func(a view.Application, _ time.Time) table.Cell {
		return table.Text(a.Revision.Short())
	}},
	{head: "APPLY", wide: true, of: func(a view.Application, _ time.Time) table.Cell {
		return applyOf(a)
	}},
	{head: "SYNC", of: func(a view.Application, _ time.Time) table.Cell {
		return table.State(a.Sync)
	}},
	{head: "HEALTH", of: func(a view.Application, _ time.Time) table.Cell {
		return healthOfOne(a)
	}},
	{head: "AGE", of: func(a view.Application, now time.Time) table.Cell {
		return age(a.CreatedAt, now)
	}},
	{head: "TARGET", wide: true, of: func(a view.Application, _ time.Time) table.Cell {
		return table.Text(a.TargetRevision)
	}},
	{head: "SYNCED", wide: true, of: func(a view.Application, _ time.Time) table.Cell {
		return table.Text(fleet.Revision(a.SyncedRevision).Short())
	}},
	{head: "REPORT", wide: true, of: func(a view.Application, now time.Time) table.Cell {
		return agePtr(a.ObservedAt, now)
	}},
	{head: "MESSAGE", wide: true, of: func(a view.Application, _ time.Time) table.Cell {
		return table.Text(first(a.ApplyMessage, a.Message))
	}},
}

// applyOf is how far an Application has come on its engine.
func applyOf(a view.Application) table.Cell {
	if a.DeletionBlocked {
		return table.State("DeletionBlocked")
	}
	return table.State(a.Apply)
}

// healthOfOne is what the engine says of an Application, unless it cannot know.
func healthOfOne(a view.Application) table.Cell {
	if a.Unreachable != nil {
		return table.State("Unreachable")
	}
	return table.State(a.Health)
}

func healthOf(c view.Counts) table.Cell {
	cell := table.Cell{Text: fmt.Sprintf("%d/%d", c.Healthy, c.Applications)}
	if c.Applications > 0 && c.Healthy == c.Applications {
		cell.Tone = table.Good
	}
	if c.Failed > 0 {
		cell = table.Cell{Text: fmt.Sprintf("%s (%d failed)", cell.Text, c.Failed), Tone: table.Bad}
	}
	return cell
}

// count is a number that is bad unless it is 0.
func count(n int) table.Cell {
	if n == 0 {
		return table.Number(0)
	}
	return table.Cell{Text: fmt.Sprint(n), Tone: table.Bad}
}

var environmentColumns = []column[view.Environment]{
	{head: "TENANT", of: func(e view.Environment, _ time.Time) table.Cell {
		return table.Text(e.Tenant)
	}},
	{head: "ENVIRONMENT", of: func(e view.Environment, _ time.Time) table.Cell {
		return table.Text(e.Name)
	}},
	{head: "ENGINE", of: func(e view.Environment, _ time.Time) table.Cell {
		return placedOn(e.Engine)
	}},
	{head: "REGION", of: func(e view.Environment, _ time.Time) table.Cell {
		return table.Text(e.Region)
	}},
	{head: "HEALTHY", of: func(e view.Environment, now time.Time) table.Cell {
		return environmentHealth(e, now)
	}},
	{head: "PROBLEMS", of: func(e view.Environment, _ time.Time) table.Cell {
		return count(e.Problems)
	}},
	{head: "SERVER", wide: true, of: func(e view.Environment, _ time.Time) table.Cell {
		return servedBy(e)
	}},
	{head: "NAMESPACES", wide: true, of: func(e view.Environment, _ time.Time) table.Cell {
		return table.Text(strings.Join(e.Namespaces, ","))
	}},
	{head: "PLACEMENT", wide: true, of: func(e view.Environment, _ time.Time) table.Cell {
		return table.Text(first(e.Placement.Misplaced, e.Placement.Reason))
	}},
}

// environmentHealth counts what the config repo declares; of an autonomous cluster, whose own
// people do, it says how many those have.
func environmentHealth(e view.Environment, now time.Time) table.Cell {
	if u := e.Unreachable; u != nil {
		return table.Cell{
			Text: fmt.Sprintf("Unreachable (%s, %s)", u.Reason, fleet.Age(now.Sub(u.Since))),
			Tone: table.Bad}
	}
	if e.Agent == fleet.AgentAutonomous && e.Counts.Applications == 0 {
		return table.Cell{Text: fmt.Sprintf("%d own", e.Own)}
	}
	return healthOf(e.Counts)
}

func placedOn(engine fleet.EngineName) table.Cell {
	if engine == "" {
		return table.State("unplaced")
	}
	return table.Text(engine)
}

var deploymentColumns = []column[view.Deployment]{
	{head: "TENANT", of: func(d view.Deployment, _ time.Time) table.Cell {
		return table.Text(d.Tenant)
	}},
	{head: "DEPLOYMENT", of: func(d view.Deployment, _ time.Time) table.Cell {
		return table.Text(d.Name)
	}},
	{head: "TARGET", of: func(d view.Deployment, _ time.Time) table.Cell {
		return table.Text(d.Source.TargetRevision)
	}},
	{head: "HEALTHY", of: func(d view.Deployment, _ time.Time) table.Cell {
		return healthOf(d.Counts)
	}},
	{head: "PROBLEMS", of: func(d view.Deployment, _ time.Time) table.Cell {
		return count(d.Problems)
	}},
	{head: "REPOSITORY", wide: true, of: func(d view.Deployment, _ time.Time) table.Cell {
		return table.Text(d.Source.RepoURL)
	}},
	{head: "PATH", wide: true, of: func(d view.Deployment, _ time.Time) table.Cell {
		return table.Text(first(d.Source.Path, d.Source.Chart))
	}},
	{head: "NAMESPACE", wide: true, of: func(d view.Deployment, _ time.Time) table.Cell {
		return table.Text(d.Namespace)
	}},
	{head: "ENVIRONMENTS", of: func(d view.Deployment, _ time.Time) table.Cell {
		return table.Text(commas(d.Environments))
	}},
}

func commas[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = string(n)
	}
	return strings.Join(texts, ",")
}
