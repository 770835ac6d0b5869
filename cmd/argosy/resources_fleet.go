package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

var tenantColumns = []column[view.Tenant]{
	{head: "TENANT", of: func(t view.Tenant, _ time.Time) table.Cell {
		return table.Text(t.Name)
	}},
	{head: "ENVIRONMENTS", of: func(t view.Tenant, _ time.Time) table.Cell {
		return used(t.Used.Environments, t.Quota.Environments)
	}},
	{head: "DEPLOYMENTS", of: func(t view.Tenant, _ time.Time) table.Cell {
		return used(t.Used.Deployments, t.Quota.Deployments)
	}},
	{head: "APPLICATIONS", of: func(t view.Tenant, _ time.Time) table.Cell {
		return used(t.Used.Applications, t.Quota.Applications)
	}},
	{head: "HEALTHY", of: func(t view.Tenant, _ time.Time) table.Cell {
		return healthOf(t.Counts)
	}},
	{head: "PROBLEMS", of: func(t view.Tenant, _ time.Time) table.Cell {
		return count(t.Problems)
	}},
	{head: "HELD", of: func(t view.Tenant, _ time.Time) table.Cell { return count(t.Held) }},
	{head: "STOPPED", wide: true, of: func(t view.Tenant, _ time.Time) table.Cell {
		return stopped(t.Stopped)
	}},
	{head: "OWNERS", wide: true, of: func(t view.Tenant, _ time.Time) table.Cell {
		return table.Text(strings.Join(t.Owners, ","))
	}},
}

// used is what is used of a quota; what is full is marked.
func used(n, quota int) table.Cell {
	cell := table.Cell{Text: fmt.Sprintf("%d/%d", n, quota)}
	if n > 0 && n >= quota {
		cell.Tone = table.Busy
	}
	return cell
}

func stopped(is bool) table.Cell {
	if is {
		return table.State("stopped")
	}
	return table.Cell{}
}

var engineColumns = []column[view.Engine]{
	{head: "ENGINE", of: func(e view.Engine, _ time.Time) table.Cell {
		return table.Text(e.Name)
	}},
	{head: "REGION", of: func(e view.Engine, _ time.Time) table.Cell {
		return table.Text(e.Region)
	}},
	{head: "STATE", of: func(e view.Engine, _ time.Time) table.Cell {
		if e.Stopped {
			return table.State("stopped")
		}
		return table.State(e.State)
	}},
	{head: "REACHABLE", of: func(e view.Engine, now time.Time) table.Cell {
		return reach(e, now)
	}},
	{head: "LOAD", of: func(e view.Engine, _ time.Time) table.Cell {
		return used(e.Load.Applications, e.Capacity.Applications)
	}},
	{head: "HEALTHY", of: func(e view.Engine, _ time.Time) table.Cell {
		return healthOf(e.Counts)
	}},
	{head: "BEHIND", of: func(e view.Engine, _ time.Time) table.Cell {
		return table.Number(e.Pending)
	}},
	{head: "ENVIRONMENTS", wide: true, of: func(e view.Engine, _ time.Time) table.Cell {
		return used(e.Load.Environments, e.Capacity.Environments)
	}},
	{head: "ARGOCD", wide: true, of: func(e view.Engine, _ time.Time) table.Cell {
		return table.Text(e.ArgoCD)
	}},
	{head: "RING", wide: true, of: func(e view.Engine, _ time.Time) table.Cell {
		return table.Text(e.Ring)
	}},
	{head: "HOLDER", wide: true, of: func(e view.Engine, _ time.Time) table.Cell {
		return table.Text(e.Holder)
	}},
	{head: "EPOCH", wide: true, of: func(e view.Engine, _ time.Time) table.Cell {
		return table.Number(int(e.Epoch))
	}},
	{head: "MESSAGE", wide: true, of: func(e view.Engine, _ time.Time) table.Cell {
		return table.Text(e.Message)
	}},
}

func reach(e view.Engine, now time.Time) table.Cell {
	if e.Reachable {
		return table.State("yes")
	}
	if e.Since == nil {
		return table.State("no")
	}
	return table.Cell{Text: "no, " + fleet.Age(now.Sub(*e.Since)), Tone: table.Bad}
}

var operationColumns = []column[mirror.Operation]{
	{head: "ID", wide: true, of: func(o mirror.Operation, _ time.Time) table.Cell {
		return table.Text(o.ID)
	}},
	{head: "KIND", of: func(o mirror.Operation, _ time.Time) table.Cell {
		return table.Text(o.Kind)
	}},
	{head: "SUBJECT", of: func(o mirror.Operation, _ time.Time) table.Cell {
		return table.Text(o.Subject)
	}},
	{head: "STATE", of: func(o mirror.Operation, _ time.Time) table.Cell {
		return table.State(o.State)
	}},
	{head: "DONE", of: func(o mirror.Operation, _ time.Time) table.Cell { return done(o) }},
	{head: "AGE", of: func(o mirror.Operation, now time.Time) table.Cell {
		return age(o.StartedAt, now)
	}},
	{head: "ENGINE", wide: true, of: func(o mirror.Operation, _ time.Time) table.Cell {
		return table.Text(o.Engine)
	}},
	{head: "REVISION", wide: true, of: func(o mirror.Operation, _ time.Time) table.Cell {
		return table.Text(o.Revision.Short())
	}},
	{head: "BY", of: func(o mirror.Operation, _ time.Time) table.Cell {
		return table.Text(o.RequestedBy)
	}},
	{head: "MESSAGE", wide: true, of: func(o mirror.Operation, _ time.Time) table.Cell {
		return table.Text(o.Message)
	}},
}

func done(o mirror.Operation) table.Cell {
	if o.Total == 0 {
		return table.Cell{}
	}
	return table.Cell{Text: fmt.Sprintf("%d/%d", o.Done, o.Total)}
}

var revisionColumns = []column[view.Revision]{
	{head: "REVISION", of: func(r view.Revision, _ time.Time) table.Cell {
		return table.Text(r.Revision.Short())
	}},
	{head: "CREATED", of: func(r view.Revision, _ time.Time) table.Cell {
		return table.Number(r.Created)
	}},
	{head: "CHANGED", of: func(r view.Revision, _ time.Time) table.Cell {
		return table.Number(r.Changed)
	}},
	{head: "DELETED", of: func(r view.Revision, _ time.Time) table.Cell {
		return table.Number(r.Deleted)
	}},
	{head: "HELD", of: func(r view.Revision, _ time.Time) table.Cell { return count(r.Held) }},
	{head: "PROBLEMS", of: func(r view.Revision, _ time.Time) table.Cell {
		return count(r.Problems)
	}},
	{head: "PENDING", of: func(r view.Revision, _ time.Time) table.Cell {
		return table.Number(r.Pending)
	}},
	{head: "AGE", of: func(r view.Revision, now time.Time) table.Cell {
		return age(r.RecordedAt, now)
	}},
	{head: "AUTHOR", wide: true, of: func(r view.Revision, _ time.Time) table.Cell {
		return table.Text(r.Author)
	}},
	{head: "APPLIED", wide: true, of: func(r view.Revision, now time.Time) table.Cell {
		return agePtr(r.AppliedAt, now)
	}},
	{head: "SUBJECT", of: func(r view.Revision, _ time.Time) table.Cell {
		return table.Text(r.Subject)
	}},
}

var problemColumns = []column[fleet.Problem]{
	{head: "WHERE", of: func(p fleet.Problem, _ time.Time) table.Cell {
		return table.Text(where(p))
	}},
	{head: "SEVERITY", of: func(p fleet.Problem, _ time.Time) table.Cell {
		return table.State(p.Severity)
	}},
	{head: "CODE", wide: true, of: func(p fleet.Problem, _ time.Time) table.Cell {
		return table.Text(p.Code)
	}},
	{head: "FIELD", wide: true, of: func(p fleet.Problem, _ time.Time) table.Cell {
		return table.Text(p.Field)
	}},
	{head: "MESSAGE", of: func(p fleet.Problem, _ time.Time) table.Cell {
		return table.Text(p.Message)
	}},
	{head: "FIX", wide: true, of: func(p fleet.Problem, _ time.Time) table.Cell {
		return table.Text(p.Fix)
	}},
}

func where(p fleet.Problem) string {
	if p.Line == 0 {
		return p.Path
	}
	return fmt.Sprintf("%s:%d:%d", p.Path, p.Line, p.Column)
}

var holdColumns = []column[mirror.Hold]{
	{head: "REVISION", of: func(h mirror.Hold, _ time.Time) table.Cell {
		return table.Text(h.Revision.Short())
	}},
	{head: "TENANT", of: func(h mirror.Hold, _ time.Time) table.Cell {
		return table.Text(h.Tenant)
	}},
	{head: "REASON", of: func(h mirror.Hold, _ time.Time) table.Cell {
		return table.Text(h.Reason)
	}},
	{head: "ITEMS", of: func(h mirror.Hold, _ time.Time) table.Cell {
		return table.Number(len(h.Items) + len(h.Paths))
	}},
	{head: "AGE", of: func(h mirror.Hold, now time.Time) table.Cell { return age(h.Since, now) }},
	{head: "MESSAGE", of: func(h mirror.Hold, _ time.Time) table.Cell {
		return table.Text(held(h))
	}},
	{head: "FILES", wide: true, of: func(h mirror.Hold, _ time.Time) table.Cell {
		return table.Text(strings.Join(h.Paths, " "))
	}},
}

// held is a hold's message with the first files that it holds.
func held(h mirror.Hold) string {
	const most = 3
	switch n := len(h.Paths); {
	case n == 0:
		return h.Message
	case n <= most:
		return strings.Join(h.Paths, ", ") + ": " + h.Message
	default:
		return fmt.Sprintf("%s and %d more: %s", strings.Join(h.Paths[:most], ", "), n-most,
			h.Message)
	}
}

// stops takes the filter and the limit of the other lists: there is at most one stop per tenant and
// engine, and none is left out.
func stops(c *client.Client, ctx context.Context, _ view.Filter, limit int) ([]mirror.Stop, error) {
	//nolint:revive // the shape of a method expression
	all, err := c.Stops(ctx)
	if limit > 0 && len(all) > limit {
		all = all[:limit]
	}
	return all, err
}

var stopColumns = []column[mirror.Stop]{
	{head: "SCOPE", of: func(s mirror.Stop, _ time.Time) table.Cell { return table.Text(s.Scope) }},
	{head: "NAME", of: func(s mirror.Stop, _ time.Time) table.Cell { return table.Text(s.Name) }},
	{head: "BY", of: func(s mirror.Stop, _ time.Time) table.Cell { return table.Text(s.By) }},
	{head: "AGE", of: func(s mirror.Stop, now time.Time) table.Cell { return age(s.At, now) }},
	{head: "REASON", of: func(s mirror.Stop, _ time.Time) table.Cell {
		return table.Text(s.Reason)
	}},
}
