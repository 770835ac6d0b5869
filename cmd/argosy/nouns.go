package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// column is one column of a resource's table.
type column[T any] struct {
	head string
	wide bool // with -o wide only
	of   func(item T, now time.Time) table.Value
}

var ownColumns = []column[view.Own]{
	{head: "NAMESPACE", of: func(o view.Own, _ time.Time) table.Value {
		return table.Text(o.Namespace)
	}},
	{head: "NAME", of: func(o view.Own, _ time.Time) table.Value {
		return table.Text(o.Name)
	}},
	{head: "PROJECT", of: func(o view.Own, _ time.Time) table.Value {
		return table.Text(o.Project)
	}},
	{head: "TARGET", of: func(o view.Own, _ time.Time) table.Value {
		return table.Text(o.TargetRevision)
	}},
	{head: "SYNC", of: func(o view.Own, _ time.Time) table.Value {
		return table.State(o.Sync)
	}},
	{head: "HEALTH", of: func(o view.Own, now time.Time) table.Value {
		return healthOfOne(ownShown(o).Application, now)
	}},
}

func tabulate[T any](items []T, columns []column[T], wide bool, now time.Time) table.Table {
	t := table.Table{Heads: headsOf(columns, wide)}
	for _, item := range items {
		t.Rows = append(t.Rows, rowOf(item, columns, wide, now))
	}
	return t
}

func headsOf[T any](columns []column[T], wide bool) []string {
	var heads []string
	for _, c := range columns {
		if wide || !c.wide {
			heads = append(heads, c.head)
		}
	}
	return heads
}

func rowOf[T any](item T, columns []column[T], wide bool, now time.Time) []table.Value {
	row := make([]table.Value, 0, len(columns))
	for _, c := range columns {
		if wide || !c.wide {
			row = append(row, c.of(item, now))
		}
	}
	return row
}

var waitingColumns = []column[view.Waiting]{
	{head: "KIND", of: func(w view.Waiting, _ time.Time) table.Value {
		return table.Text(w.Kind)
	}},
	{head: "NAME", of: func(w view.Waiting, _ time.Time) table.Value {
		return table.Text(w.Name)
	}},
	{head: "REASON", of: func(w view.Waiting, _ time.Time) table.Value {
		return table.Text(w.Message)
	}},
}

var environmentColumns = []column[view.Environment]{
	{head: "TENANT", of: func(e view.Environment, _ time.Time) table.Value {
		return table.Text(e.Tenant)
	}},
	{head: "ENVIRONMENT", of: func(e view.Environment, _ time.Time) table.Value {
		return table.Text(e.Name)
	}},
	{head: "ENGINE", of: func(e view.Environment, _ time.Time) table.Value {
		return placedOnAll(e)
	}},
	{head: "REGION", of: func(e view.Environment, _ time.Time) table.Value {
		return table.Text(e.Region)
	}},
	{head: "HEALTHY", of: func(e view.Environment, now time.Time) table.Value {
		return environmentHealth(e, now)
	}},
	{head: "PROBLEMS", of: func(e view.Environment, _ time.Time) table.Value {
		return count(e.Problems)
	}},
	{head: "SERVER", wide: true, of: func(e view.Environment, _ time.Time) table.Value {
		return servedBy(e)
	}},
	{head: "NAMESPACES", wide: true, of: func(e view.Environment, _ time.Time) table.Value {
		return table.Text(strings.Join(e.Namespaces, ","))
	}},
	{head: "PLACEMENT", wide: true, of: func(e view.Environment, _ time.Time) table.Value {
		return table.Text(first(e.Placement.Misplaced, e.Placement.Outgrown(), e.Placement.Reason))
	}},
}

// placedOnAll lists the engines of a split environment.
func placedOnAll(e view.Environment) table.Value {
	if len(e.Slices) == 0 {
		return placedOn(e.Engine)
	}
	var engines []string
	for _, p := range e.Slices {
		engines = append(engines, placedOn(p.Engine).Text)
	}
	slices.Sort(engines)
	return table.Text(strings.Join(slices.Compact(engines), ","))
}

func placedOn(engine fleet.EngineName) table.Value {
	if engine == "" {
		return table.State("unplaced")
	}
	return table.Text(engine)
}

// environmentHealth counts the declared Applications. For an autonomous cluster it shows the number
// of its own ones.
func environmentHealth(e view.Environment, now time.Time) table.Value {
	if u := e.Unreachable; u != nil {
		return table.Value{
			Text: fmt.Sprintf("Unreachable (%s, %s)", u.Reason, fleet.Age(now.Sub(u.Since))),
			Tone: table.Bad}
	}
	if e.Agent == fleet.AgentAutonomous && e.Counts.Applications == 0 {
		return table.Value{Text: fmt.Sprintf("%d own", e.Own)}
	}
	return healthOf(e.Counts)
}

// servedBy is the cluster of an environment: its API server, or that it deploys to itself.
func servedBy(v view.Environment) table.Value {
	if v.Agent == "" {
		return table.Text(v.Server)
	}
	return table.Value{Text: "by its agent, " + string(v.Agent)}
}

// sourcesText joins a field of the sources of a deployment.
func sourcesText(d view.Deployment, field func(fleet.Source) string) string {
	var texts []string
	for _, s := range d.AllSources() {
		if text := field(s); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ", ")
}

var deploymentColumns = []column[view.Deployment]{
	{head: "TENANT", of: func(d view.Deployment, _ time.Time) table.Value {
		return table.Text(d.Tenant)
	}},
	{head: "DEPLOYMENT", of: func(d view.Deployment, _ time.Time) table.Value {
		return table.Text(d.Name)
	}},
	{head: "TARGET", of: func(d view.Deployment, _ time.Time) table.Value {
		return table.Text(sourcesText(d, func(s fleet.Source) string { return s.TargetRevision }))
	}},
	{head: "HEALTHY", of: func(d view.Deployment, _ time.Time) table.Value {
		return healthOf(d.Counts)
	}},
	{head: "PROBLEMS", of: func(d view.Deployment, _ time.Time) table.Value {
		return count(d.Problems)
	}},
	{head: "REPOSITORY", wide: true, of: func(d view.Deployment, _ time.Time) table.Value {
		return table.Text(sourcesText(d, func(s fleet.Source) string { return s.RepoURL }))
	}},
	{head: "PATH", wide: true, of: func(d view.Deployment, _ time.Time) table.Value {
		return table.Text(sourcesText(d, func(s fleet.Source) string {
			return first(s.Path, s.Chart)
		}))
	}},
	{head: "NAMESPACE", wide: true, of: func(d view.Deployment, _ time.Time) table.Value {
		return table.Text(d.Namespace)
	}},
	{head: "ENVIRONMENTS", of: func(d view.Deployment, _ time.Time) table.Value {
		return table.Text(commas(d.Environments))
	}},
}

var setColumns = []column[view.Set]{
	{head: "TENANT", of: func(v view.Set, _ time.Time) table.Value {
		return table.Text(v.Tenant)
	}},
	{head: "SET", of: func(v view.Set, _ time.Time) table.Value { return table.Text(v.Name) }},
	{head: "DEPLOYMENTS", of: func(v view.Set, _ time.Time) table.Value {
		return table.Number(len(v.Deployments))
	}},
	{head: "READ", of: func(v view.Set, _ time.Time) table.Value {
		return listingText(v, func(l view.Listing) string { return l.Head.Short() })
	}},
	{head: "AGE", of: func(v view.Set, now time.Time) table.Value {
		return listingText(v, func(l view.Listing) string {
			if l.HeadAt == nil {
				return ""
			}
			return fleet.Age(now.Sub(*l.HeadAt))
		})
	}},
	{head: "PROBLEMS", of: func(v view.Set, _ time.Time) table.Value {
		return count(v.Problems)
	}},
	{head: "IN EFFECT", wide: true, of: func(v view.Set, _ time.Time) table.Value {
		return listingText(v, func(l view.Listing) string { return l.Commit.Short() })
	}},
	{head: "REPOSITORY", wide: true, of: func(v view.Set, _ time.Time) table.Value {
		return listingText(v, func(l view.Listing) string { return l.RepoURL })
	}},
	{head: "REVISION", wide: true, of: func(v view.Set, _ time.Time) table.Value {
		return listingText(v, func(l view.Listing) string { return l.TargetRevision })
	}},
	{head: "MESSAGE", wide: true, of: func(v view.Set, _ time.Time) table.Value {
		return listingText(v, func(l view.Listing) string { return l.Error })
	}},
}

// listingText joins a text of the listings of a set, which has one or two.
func listingText(v view.Set, text func(view.Listing) string) table.Value {
	var texts []string
	for _, l := range v.Listings {
		if t := text(l); t != "" && !slices.Contains(texts, t) {
			texts = append(texts, t)
		}
	}
	return table.Text(strings.Join(texts, ","))
}

func commas[T ~string](names []T) string { return joined(names, ",") }

func joined[T ~string](names []T, by string) string {
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = string(n)
	}
	return strings.Join(texts, by)
}

var tenantColumns = []column[view.Tenant]{
	{head: "TENANT", of: func(t view.Tenant, _ time.Time) table.Value {
		return table.Text(t.Name)
	}},
	{head: "ENVIRONMENTS", of: func(t view.Tenant, _ time.Time) table.Value {
		return used(t.Used.Environments, t.Quota.Environments)
	}},
	{head: "DEPLOYMENTS", of: func(t view.Tenant, _ time.Time) table.Value {
		return used(t.Used.Deployments, t.Quota.Deployments)
	}},
	{head: "APPLICATIONS", of: func(t view.Tenant, _ time.Time) table.Value {
		return used(t.Used.Applications, t.Quota.Applications)
	}},
	{head: "HEALTHY", of: func(t view.Tenant, _ time.Time) table.Value {
		return healthOf(t.Counts)
	}},
	{head: "PROBLEMS", of: func(t view.Tenant, _ time.Time) table.Value {
		return count(t.Problems)
	}},
	{head: "HELD", of: func(t view.Tenant, _ time.Time) table.Value { return count(t.Held) }},
	{head: "STOPPED", wide: true, of: func(t view.Tenant, _ time.Time) table.Value {
		return stopped(t.Stopped)
	}},
	{head: "OWNERS", wide: true, of: func(t view.Tenant, _ time.Time) table.Value {
		return table.Text(strings.Join(t.Owners, ","))
	}},
}

func stopped(is bool) table.Value {
	if is {
		return table.State("stopped")
	}
	return table.Value{}
}

var engineColumns = []column[view.Engine]{
	{head: "ENGINE", of: func(e view.Engine, _ time.Time) table.Value {
		return table.Text(e.Name)
	}},
	{head: "REGION", of: func(e view.Engine, _ time.Time) table.Value {
		return table.Text(e.Region)
	}},
	{head: "STATE", of: func(e view.Engine, _ time.Time) table.Value {
		if e.Stopped {
			return table.State("stopped")
		}
		if e.Evacuation != nil {
			return table.State("Evacuated")
		}
		if e.Fence != nil && e.Fence.State != mirror.FenceChecking {
			return table.State("Fence " + string(e.Fence.State))
		}
		v := table.State(e.State)
		if e.Drain != nil {
			v = table.Value{Text: fmt.Sprintf("%s, %s", e.State, e.Drain.State),
				Tone: table.ToneOf(string(e.Drain.State))}
		}
		return v
	}},
	{head: "REACHABLE", of: func(e view.Engine, now time.Time) table.Value {
		return reach(e, now)
	}},
	{head: "LOAD", of: func(e view.Engine, _ time.Time) table.Value {
		return used(e.Load.Applications, e.Capacity.Applications)
	}},
	{head: "HEALTHY", of: func(e view.Engine, _ time.Time) table.Value {
		return healthOf(e.Counts)
	}},
	{head: "BEHIND", of: func(e view.Engine, _ time.Time) table.Value {
		return table.Number(e.Pending)
	}},
	{head: "ENVIRONMENTS", wide: true, of: func(e view.Engine, _ time.Time) table.Value {
		return used(e.Load.Environments, e.Capacity.Environments)
	}},
	{head: "LAG", wide: true, of: func(e view.Engine, now time.Time) table.Value {
		return measured(e, now, func(c *mirror.ControllerLoad) string { return seconds(c.Lag()) })
	}},
	{head: "QUEUE", wide: true, of: func(e view.Engine, now time.Time) table.Value {
		return measured(e, now, func(c *mirror.ControllerLoad) string {
			return fmt.Sprintf("%.0f", c.Queue)
		})
	}},
	{head: "CPU", wide: true, of: func(e view.Engine, now time.Time) table.Value {
		return measured(e, now, func(c *mirror.ControllerLoad) string {
			return fmt.Sprintf("%.2f", c.CPU)
		})
	}},
	{head: "MEMORY", wide: true, of: func(e view.Engine, now time.Time) table.Value {
		return measured(e, now, func(c *mirror.ControllerLoad) string {
			return mebibytes(c.Memory)
		})
	}},
	{head: "ARGOCD", wide: true, of: func(e view.Engine, _ time.Time) table.Value {
		return table.Text(e.ArgoCD)
	}},
	{head: "RING", wide: true, of: func(e view.Engine, _ time.Time) table.Value {
		return table.Text(e.Ring)
	}},
	{head: "HOLDER", wide: true, of: func(e view.Engine, _ time.Time) table.Value {
		return table.Text(e.Holder)
	}},
	{head: "EPOCH", wide: true, of: func(e view.Engine, _ time.Time) table.Value {
		return table.Number(int(e.Epoch))
	}},
	{head: "MESSAGE", wide: true, of: func(e view.Engine, _ time.Time) table.Value {
		return table.Text(e.Message)
	}},
}

// measured shows a figure of the application-controller; "-" while it is not measured.
func measured(e view.Engine, now time.Time,
	figure func(*mirror.ControllerLoad) string) table.Value {
	if !e.Measured.Fresh(now) {
		return table.Text("-")
	}
	return table.Text(figure(e.Measured.Controller))
}

func seconds(s float64) string { return fmt.Sprintf("%.1fs", s) }

func mebibytes(bytes float64) string { return fmt.Sprintf("%.0fMi", bytes/(1<<20)) }

func reach(e view.Engine, now time.Time) table.Value {
	if e.Reachable && e.Work != nil && e.Work.Faulty() {
		return table.Value{Tone: table.Bad,
			Text: fmt.Sprintf("%s, %s", e.Work.State, fleet.Age(now.Sub(e.Work.Since)))}
	}
	if e.Reachable {
		return table.State("yes")
	}
	if e.Since == nil {
		return table.State("no")
	}
	return table.Value{Text: "no, " + fleet.Age(now.Sub(*e.Since)), Tone: table.Bad}
}

// used shows the used part of a quota, and marks a full one.
func used(n, quota int) table.Value {
	cell := table.Value{Text: fmt.Sprintf("%d/%d", n, quota)}
	if n > 0 && n >= quota {
		cell.Tone = table.Busy
	}
	return cell
}

func healthOf(c view.Counts) table.Value {
	cell := table.Value{Text: fmt.Sprintf("%d/%d", c.Healthy, c.Applications)}
	if c.Unknown > 0 {
		cell = table.Value{Text: fmt.Sprintf("%s (%d unknown)", cell.Text, c.Unknown),
			Tone: table.Bad}
	}
	if c.Applications > 0 && c.Healthy == c.Applications {
		cell.Tone = table.Good
	}
	if c.Failed > 0 {
		cell = table.Value{Text: fmt.Sprintf("%s (%d failed)", cell.Text, c.Failed),
			Tone: table.Bad}
	}
	return cell
}

var operationColumns = []column[mirror.Operation]{
	{head: "ID", wide: true, of: func(o mirror.Operation, _ time.Time) table.Value {
		return table.Text(o.ID)
	}},
	{head: "KIND", of: func(o mirror.Operation, _ time.Time) table.Value {
		return table.Text(o.Kind)
	}},
	{head: "SUBJECT", of: func(o mirror.Operation, _ time.Time) table.Value {
		return table.Text(o.Subject)
	}},
	{head: "STATE", of: func(o mirror.Operation, _ time.Time) table.Value {
		return table.State(o.State)
	}},
	{head: "DONE", of: func(o mirror.Operation, _ time.Time) table.Value { return done(o) }},
	{head: "AGE", of: func(o mirror.Operation, now time.Time) table.Value {
		return age(o.StartedAt, now)
	}},
	{head: "ENGINE", wide: true, of: func(o mirror.Operation, _ time.Time) table.Value {
		return table.Text(o.Engine)
	}},
	{head: "REVISION", wide: true, of: func(o mirror.Operation, _ time.Time) table.Value {
		return table.Text(o.Revision.Short())
	}},
	{head: "BY", of: func(o mirror.Operation, _ time.Time) table.Value {
		return table.Text(o.RequestedBy)
	}},
	{head: "MESSAGE", wide: true, of: func(o mirror.Operation, _ time.Time) table.Value {
		return table.Text(o.Message)
	}},
}

func done(o mirror.Operation) table.Value {
	if o.Total == 0 {
		return table.Value{}
	}
	return table.Value{Text: fmt.Sprintf("%d/%d", o.Done, o.Total)}
}

var revisionColumns = []column[view.Revision]{
	{head: "REVISION", of: func(r view.Revision, _ time.Time) table.Value {
		return table.Text(r.Revision.Short())
	}},
	{head: "CREATED", of: func(r view.Revision, _ time.Time) table.Value {
		return table.Number(r.Created)
	}},
	{head: "CHANGED", of: func(r view.Revision, _ time.Time) table.Value {
		return table.Number(r.Changed)
	}},
	{head: "DELETED", of: func(r view.Revision, _ time.Time) table.Value {
		return table.Number(r.Deleted)
	}},
	{head: "HELD", of: func(r view.Revision, _ time.Time) table.Value {
		return count(r.Held)
	}},
	{head: "PROBLEMS", of: func(r view.Revision, _ time.Time) table.Value {
		return count(r.Problems)
	}},
	{head: "PENDING", of: func(r view.Revision, _ time.Time) table.Value {
		return table.Number(r.Pending)
	}},
	{head: "AGE", of: func(r view.Revision, now time.Time) table.Value {
		return age(r.RecordedAt, now)
	}},
	{head: "AUTHOR", wide: true, of: func(r view.Revision, _ time.Time) table.Value {
		return table.Text(r.Author)
	}},
	{head: "APPLIED", wide: true, of: func(r view.Revision, now time.Time) table.Value {
		return agePtr(r.AppliedAt, now)
	}},
	{head: "SUBJECT", of: func(r view.Revision, _ time.Time) table.Value {
		return table.Text(r.Subject)
	}},
}

// count shows a number that is good only at 0.
func count(n int) table.Value {
	if n == 0 {
		return table.Number(0)
	}
	return table.Value{Text: fmt.Sprint(n), Tone: table.Bad}
}

var problemColumns = []column[fleet.Problem]{
	{head: "WHERE", of: func(p fleet.Problem, _ time.Time) table.Value {
		return table.Text(where(p))
	}},
	{head: "SEVERITY", of: func(p fleet.Problem, _ time.Time) table.Value {
		return table.State(p.Severity)
	}},
	{head: "CODE", wide: true, of: func(p fleet.Problem, _ time.Time) table.Value {
		return table.Text(p.Code)
	}},
	{head: "FIELD", wide: true, of: func(p fleet.Problem, _ time.Time) table.Value {
		return table.Text(p.Field)
	}},
	{head: "MESSAGE", of: func(p fleet.Problem, _ time.Time) table.Value {
		return table.Text(p.Message)
	}},
	{head: "FIX", wide: true, of: func(p fleet.Problem, _ time.Time) table.Value {
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
	{head: "REVISION", of: func(h mirror.Hold, _ time.Time) table.Value {
		return table.Text(h.Revision.Short())
	}},
	{head: "TENANT", of: func(h mirror.Hold, _ time.Time) table.Value {
		return table.Text(h.Tenant)
	}},
	{head: "REASON", of: func(h mirror.Hold, _ time.Time) table.Value {
		return table.Text(h.Reason)
	}},
	{head: "ITEMS", of: func(h mirror.Hold, _ time.Time) table.Value {
		return table.Number(len(h.Items) + len(h.Paths))
	}},
	{head: "AGE", of: func(h mirror.Hold, now time.Time) table.Value { return age(h.Since, now) }},
	{head: "MESSAGE", of: func(h mirror.Hold, _ time.Time) table.Value {
		return table.Text(held(h))
	}},
	{head: "FILES", wide: true, of: func(h mirror.Hold, _ time.Time) table.Value {
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

// stops accepts the filter and the limit of the other lists, and ignores the filter: there is at
// most one stop per tenant and engine.
//
//nolint:revive // the shape of a method expression
func stops(c *client.Client, ctx context.Context, _ view.Filter, limit int) ([]mirror.Stop, error) {
	all, err := c.Stops(ctx)
	if limit > 0 && len(all) > limit {
		all = all[:limit]
	}
	return all, err
}

var stopColumns = []column[mirror.Stop]{
	{head: "SCOPE", of: func(s mirror.Stop, _ time.Time) table.Value {
		return table.Text(s.Scope)
	}},
	{head: "NAME", of: func(s mirror.Stop, _ time.Time) table.Value { return table.Text(s.Name) }},
	{head: "BY", of: func(s mirror.Stop, _ time.Time) table.Value { return table.Text(s.By) }},
	{head: "AGE", of: func(s mirror.Stop, now time.Time) table.Value { return age(s.At, now) }},
	{head: "REASON", of: func(s mirror.Stop, _ time.Time) table.Value {
		return table.Text(s.Reason)
	}},
}

var agentColumns = []column[view.Agent]{
	{head: "AGENT", of: func(a view.Agent, _ time.Time) table.Value {
		return table.Value{Text: agentName(a)}
	}},
	{head: "CONNECTED", of: func(a view.Agent, now time.Time) table.Value {
		return agentState(a, now)
	}},
	{head: "SEEN", of: func(a view.Agent, now time.Time) table.Value {
		return agePtr(a.SeenAt, now)
	}},
	{head: "LAG", of: func(a view.Agent, _ time.Time) table.Value { return waits(a.Lag) }},
	{head: "PENDING", of: func(a view.Agent, _ time.Time) table.Value {
		return waits(a.Pending)
	}},
	{head: "DELETIONS", of: func(a view.Agent, _ time.Time) table.Value {
		return agentDeletions(a)
	}},
	{head: "VERSION", of: func(a view.Agent, _ time.Time) table.Value {
		return table.Text(a.Version)
	}},
	{head: "ARGOCD", of: func(a view.Agent, _ time.Time) table.Value {
		return table.Text(a.ArgoCD)
	}},
	{head: "MODE", wide: true, of: func(a view.Agent, _ time.Time) table.Value {
		return table.Text(a.Mode)
	}},
	{head: "ENGINE", wide: true, of: func(a view.Agent, _ time.Time) table.Value {
		return table.Text(a.Engine)
	}},
	{head: "ID", wide: true, of: func(a view.Agent, _ time.Time) table.Value {
		return table.Text(a.ID)
	}},
	{head: "JOINED", wide: true, of: func(a view.Agent, now time.Time) table.Value {
		return agePtr(a.JoinedAt, now)
	}},
	{head: "EXPIRES", wide: true, of: func(a view.Agent, now time.Time) table.Value {
		return expires(a.ExpiresAt, now)
	}},
	{head: "ORPHANS", wide: true, of: func(a view.Agent, _ time.Time) table.Value {
		return waits(a.Orphans)
	}},
	{head: "OWN", wide: true, of: func(a view.Agent, _ time.Time) table.Value {
		return table.Number(a.Own)
	}},
	{head: "RING", wide: true, of: func(a view.Agent, _ time.Time) table.Value {
		if a.Upgrade == nil {
			return table.Text("")
		}
		return table.Text(a.Upgrade.Ring)
	}},
	{head: "UPGRADE", wide: true, of: func(a view.Agent, _ time.Time) table.Value {
		return agentUpgrade(a.Upgrade)
	}},
	{head: "MESSAGE", wide: true, of: func(a view.Agent, _ time.Time) table.Value {
		return table.Text(a.Message)
	}},
}

// agentUpgrade is the version that an agent is to have, and why it does not have it.
func agentUpgrade(u *view.AgentUpgrade) table.Value {
	if u == nil {
		return table.Text("")
	}
	v := table.Text(cmp.Or(u.Version, "the version before"))
	switch u.State {
	case mirror.InstanceRefused:
		v.Text, v.Tone = v.Text+" Refused", table.Bad
	case mirror.InstanceRunning:
	default:
		v.Text, v.Tone = v.Text+" "+string(u.State), table.Busy
	}
	if u.Message != "" {
		v.Text += ": " + u.Message
	}
	return v
}

// agentState is whether an agent is there, and if not, why.
func agentState(a view.Agent, now time.Time) table.Value {
	switch {
	case a.ID == "":
		return table.Value{Text: "not joined", Tone: table.Faint}
	case a.Cloned:
		return table.Value{Text: "cloned", Tone: table.Bad}
	case a.RevokedAt != nil:
		return table.Value{Text: "revoked", Tone: table.Bad}
	case a.ExpiresAt != nil && a.ExpiresAt.Before(now):
		return table.Value{Text: "expired", Tone: table.Bad}
	case a.Connected:
		return table.State("yes")
	}
	return table.State("no")
}

func agentDeletions(a view.Agent) table.Value {
	if a.HeldDeletions > 0 {
		return table.Value{Text: fmt.Sprintf("%d (%d held)", a.PendingDeletions, a.HeldDeletions),
			Tone: table.Bad}
	}
	return waits(a.PendingDeletions)
}

// waits shows a number of pending items: not an error, but not finished.
func waits(n int) table.Value {
	if n == 0 {
		return table.Number(0)
	}
	return table.Value{Text: fmt.Sprint(n), Tone: table.Busy}
}

func expires(at *time.Time, now time.Time) table.Value {
	switch {
	case at == nil:
		return table.Value{}
	case at.Before(now):
		return table.Value{Text: "expired", Tone: table.Bad}
	}
	return table.Value{Text: "in " + fleet.Age(at.Sub(now))}
}

var agentTokenColumns = []column[registry.Token]{
	{head: "ID", of: func(t registry.Token, _ time.Time) table.Value { return table.Text(t.ID) }},
	{head: "FOR", of: func(t registry.Token, _ time.Time) table.Value {
		return table.Value{
			Text: agentName(
				view.Agent{Engine: t.Engine, Tenant: t.Tenant, Environment: t.Environment})}
	}},
	{head: "AGE", of: func(t registry.Token, now time.Time) table.Value {
		return age(t.CreatedAt, now)
	}},
	{head: "STATE", of: func(t registry.Token, now time.Time) table.Value {
		return agentTokenState(t, now)
	}},
	{head: "BY", of: func(t registry.Token, _ time.Time) table.Value {
		return table.Text(t.CreatedBy)
	}},
}

// agentName is how people call an agent: by its environment, or by its engine.
func agentName(a view.Agent) string {
	if a.Environment != "" {
		return string(a.Tenant) + "/" + string(a.Environment)
	}
	return string(a.Engine)
}

func agentTokenState(t registry.Token, now time.Time) table.Value {
	valid := table.Value{Text: "valid for " + fleet.Age(t.ExpiresAt.Sub(now)), Tone: table.Good}
	switch {
	case t.RevokedAt != nil:
		return table.Value{Text: "revoked", Tone: table.Faint}
	case t.ExpiresAt.Before(now):
		return table.Value{Text: "expired", Tone: table.Faint}
	case t.UsedAt != nil && t.Legacy:
		return table.Value{Text: "used, reads for " + fleet.Age(t.ExpiresAt.Sub(now)),
			Tone: table.Good}
	case t.UsedAt != nil:
		return table.Value{Text: "used", Tone: table.Faint}
	}
	return valid
}

// shownApplication is an Application of the config repo, or one of an autonomous cluster's own
// people.
type shownApplication struct {
	view.Application
	Namespace string `json:"namespace,omitempty"` // on the cluster, of an own one
	// its cluster's own people made it: the mirror shows it and writes nothing
	Own bool `json:"own,omitempty"`
}

func (a shownApplication) name() string {
	if a.Own {
		return string(a.Tenant) + "/" + string(a.Environment) + ":" + a.Namespace + "/" + a.Name
	}
	return fleet.ApplicationID{
		Tenant: a.Tenant, Deployment: a.Deployment, Environment: a.Environment}.String()
}

// shownApplications are those of the config repo, and behind them the own ones of autonomous
// clusters, which have no deployment, no revision of the config repo and no apply state.
//
//nolint:revive // the shape of a method expression
func shownApplications(c *client.Client, ctx context.Context, f view.Filter,
	limit int) ([]shownApplication, error) {
	declared, err := c.Applications(ctx, f, limit)
	if err != nil {
		return nil, err
	}
	shown := make([]shownApplication, len(declared))
	for i, a := range declared {
		shown[i] = shownApplication{Application: a}
	}
	if f.Deployment != "" || f.Revision != "" || f.Apply != "" || limit > 0 && len(shown) == limit {
		return shown, nil
	}
	own, err := c.OwnApplications(ctx, view.Filter{Tenant: f.Tenant, Environment: f.Environment},
		0)
	var refused *wire.Refusal
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return shown, nil // a control plane that does not know of them yet
	}
	for _, o := range own {
		if wanted(f, o) && (limit == 0 || len(shown) < limit) {
			shown = append(shown, ownShown(o))
		}
	}
	return shown, err
}

// wanted holds an own Application against the filters that its list does not have.
func wanted(f view.Filter, o view.Own) bool {
	return (f.Engine == "" || f.Engine == o.Engine) && (f.Sync == "" || f.Sync == o.Sync) &&
		(f.Health == "" || f.Health == o.Health)
}

func ownShown(o view.Own) shownApplication {
	seen := o.ObservedAt
	return shownApplication{
		Own: true, Namespace: o.Namespace, Application: view.Application{
			Tenant: o.Tenant, Environment: o.Environment, Name: o.Name, Engine: o.Engine,
			RepoURL: o.RepoURL, TargetRevision: o.TargetRevision, Sync: o.Sync,
			Health: o.Health, SyncedRevision: o.SyncedRevision, OperationPhase: o.OperationPhase,
			Message: o.Message, Resources: o.Resources, ObservedAt: &seen,
			LastSeenAt: o.LastSeenAt,
		}}
}

// shownColumns are the columns of Applications. An own one shows its name as deployment.
func shownColumns() []column[shownApplication] {
	columns := make([]column[shownApplication], len(applicationColumns))
	for i, c := range applicationColumns {
		columns[i] = column[shownApplication]{
			head: c.head, wide: c.wide, of: func(a shownApplication, now time.Time) table.Value {
				switch {
				case a.Own && c.head == "DEPLOYMENT":
					return table.Value{Text: a.Name + " (own)"}
				case a.Own && c.head == "CONFIG":
					return table.Value{Text: "own", Tone: table.Faint}
				}
				return c.of(a.Application, now)
			}}
	}
	return columns
}

// shortCommit shortens a whole commit ID, and keeps branches, tags and versions.
func shortCommit(revision string) string {
	if len(revision) == commitDigits && strings.Trim(revision, "0123456789abcdef") == "" {
		return fleet.Revision(revision).Short()
	}
	return revision
}

var applicationColumns = []column[view.Application]{
	{head: "TENANT", of: func(a view.Application, _ time.Time) table.Value {
		return table.Text(a.Tenant)
	}},
	{head: "DEPLOYMENT", of: func(a view.Application, _ time.Time) table.Value {
		return table.Text(a.Deployment)
	}},
	{head: "ENVIRONMENT", of: func(a view.Application, _ time.Time) table.Value {
		return table.Text(a.Environment)
	}},
	{head: "ENGINE", of: func(a view.Application, _ time.Time) table.Value {
		return table.Text(a.Engine)
	}},
	{head: "TARGET", of: func(a view.Application, _ time.Time) table.Value {
		return table.Text(shortCommit(a.TargetRevision))
	}},
	{head: "CONFIG", wide: true, of: func(a view.Application, _ time.Time) table.Value {
		return table.Text(a.Revision.Short())
	}},
	{head: "APPLY", wide: true, of: func(a view.Application, _ time.Time) table.Value {
		return applyOf(a)
	}},
	{head: "SYNC", of: func(a view.Application, _ time.Time) table.Value {
		return table.State(a.Sync)
	}},
	{head: "HEALTH", of: func(a view.Application, now time.Time) table.Value {
		return healthOfOne(a, now)
	}},
	{head: "AGE", of: func(a view.Application, now time.Time) table.Value {
		return age(a.CreatedAt, now)
	}},
	{head: "OBJECT", wide: true, of: func(a view.Application, _ time.Time) table.Value {
		return table.Text(a.Object())
	}},
	{head: "SYNCED", wide: true, of: func(a view.Application, _ time.Time) table.Value {
		return table.Text(fleet.Revision(a.SyncedRevision).Short())
	}},
	{head: "IMAGES", wide: true, of: func(a view.Application, _ time.Time) table.Value {
		return table.Text(strings.Join(a.Images, ","))
	}},
	{head: "REPORT", wide: true, of: func(a view.Application, now time.Time) table.Value {
		return agePtr(a.ObservedAt, now)
	}},
	{head: "MESSAGE", wide: true, of: func(a view.Application, _ time.Time) table.Value {
		return table.Text(first(a.ApplyMessage, a.Message))
	}},
}

// applyOf is how far an Application has come on its engine.
func applyOf(a view.Application) table.Value {
	if a.DeletionBlocked {
		return table.State("DeletionBlocked")
	}
	return table.State(a.Apply)
}

// healthOfOne returns the health that the engine reports, unless the engine or the cluster is
// silent.
func healthOfOne(a view.Application, now time.Time) table.Value {
	switch {
	case a.Unreachable != nil:
		return table.State("Unreachable")
	case a.LastSeenAt != nil:
		return table.Value{Tone: table.Bad, Text: fmt.Sprintf("%s (last seen %s ago)", a.Health,
			fleet.Age(now.Sub(*a.LastSeenAt)))}
	}
	return table.State(a.Health)
}

var pullColumns = []column[view.Pull]{
	{head: "PULL", of: func(p view.Pull, _ time.Time) table.Value {
		return table.Text("#" + strconv.Itoa(p.Number))
	}},
	{head: "STATE", of: func(p view.Pull, _ time.Time) table.Value {
		return table.Text(p.State)
	}},
	{head: "AUTHOR", of: func(p view.Pull, _ time.Time) table.Value {
		return table.Text(p.Author)
	}},
	{head: "HEAD", of: func(p view.Pull, _ time.Time) table.Value {
		return table.Text(p.Head.Short())
	}},
	{head: "VERDICT", of: func(p view.Pull, _ time.Time) table.Value {
		return table.Text(p.Verdict)
	}},
	{head: "TENANTS", wide: true, of: func(p view.Pull, _ time.Time) table.Value {
		return table.Text(whose(p.Tenants))
	}},
	{head: "UPDATED", wide: true, of: func(p view.Pull, now time.Time) table.Value {
		return age(p.UpdatedAt, now)
	}},
	{head: "TITLE", wide: true, of: func(p view.Pull, _ time.Time) table.Value {
		return table.Text(p.Title)
	}},
}

// whose joins the names of tenants; an empty one is the platform.
func whose(tenants []fleet.TenantName) string {
	var names []string
	for _, t := range tenants {
		names = append(names, first(string(t), "the platform"))
	}
	return strings.Join(names, ", ")
}

var ownerColumns = []column[view.Owner]{
	{head: "OWNER", of: func(v view.Owner, _ time.Time) table.Value {
		return table.Text(v.Name)
	}},
	{head: "COUNTS", of: func(v view.Owner, _ time.Time) table.Value {
		return table.Text(fmt.Sprint(v.ID))
	}},
	{head: "PINNED", of: func(v view.Owner, now time.Time) table.Value {
		return age(v.PinnedAt, now)
	}},
	{head: "NOW", of: func(v view.Owner, _ time.Time) table.Value {
		if !v.Changed() {
			return table.Value{}
		}
		return table.Value{Text: fmt.Sprintf("%d, does not count", v.NowID), Tone: table.Bad}
	}},
	{head: "HOST", wide: true, of: func(v view.Owner, _ time.Time) table.Value {
		return table.Text(v.Host)
	}},
}

var orphanColumns = []column[view.Orphan]{
	{head: "ORPHAN", of: func(v view.Orphan, _ time.Time) table.Value {
		return table.Text(orphanName(v))
	}},
	{head: "TENANT", of: func(v view.Orphan, _ time.Time) table.Value {
		return table.Text(v.Tenant)
	}},
	{head: "UID", of: func(v view.Orphan, _ time.Time) table.Value {
		return table.Text(v.UID)
	}},
	{head: "FOUND", of: func(v view.Orphan, now time.Time) table.Value {
		return age(v.FoundAt, now)
	}},
	{head: "REMOVAL", of: func(v view.Orphan, _ time.Time) table.Value {
		if v.RemovedAt == nil {
			return table.Value{}
		}
		return table.Text(string(v.Deletion) + " by " + v.RemovedBy)
	}},
	{head: "ENVIRONMENT", wide: true, of: func(v view.Orphan, _ time.Time) table.Value {
		return table.Text(v.Environment)
	}},
	{head: "DEPLOYMENT", wide: true, of: func(v view.Orphan, _ time.Time) table.Value {
		return table.Text(v.Deployment)
	}},
	{head: "REVISION", wide: true, of: func(v view.Orphan, _ time.Time) table.Value {
		return table.Text(v.Revision.Short())
	}},
	{head: "EPOCH", wide: true, of: func(v view.Orphan, _ time.Time) table.Value {
		return table.Text(fmt.Sprint(v.Epoch))
	}},
}

// orphanName returns the name of an orphan, as remove-orphan takes it.
func orphanName(v view.Orphan) string {
	return string(v.Engine) + "/" + string(v.Kind) + "/" + v.Name
}

func agePtr(t *time.Time, now time.Time) table.Value {
	if t == nil {
		return table.Value{}
	}
	return age(*t, now)
}

// age is how long ago something was; a time that is not known is a dash.
func age(t time.Time, now time.Time) table.Value {
	if t.IsZero() {
		return table.Value{}
	}
	return table.Value{Text: fleet.Age(now.Sub(t))}
}

func applicationID(name string) (fleet.ApplicationID, error) {
	tenant, rest, ok := strings.Cut(name, "/")
	deployment, environment, ok2 := strings.Cut(rest, "@")
	if !ok || !ok2 || tenant == "" || deployment == "" || environment == "" ||
		strings.ContainsAny(rest, "/") {
		return fleet.ApplicationID{},
			fmt.Errorf(
				"application %q: write tenant/deployment@environment, such as acme/checkout@prod-eu", name)
	}
	return fleet.ApplicationID{
		Tenant: fleet.TenantName(tenant), Deployment: fleet.DeploymentName(deployment),
		Environment: fleet.EnvironmentName(environment)}, nil
}

// servedEngine is the engine that a person names: TENANT/ENV of an environment that deploys to
// itself, or an engine's own name.
func servedEngine(name string) (fleet.EngineName, error) {
	if !strings.Contains(name, "/") {
		return fleet.EngineName(name), nil
	}
	tenant, environment, err := twoParts("environment", name)
	return fleet.AgentEngine(
		fleet.EnvironmentID{Tenant: tenant, Name: fleet.EnvironmentName(environment)}), err
}

// twoParts splits tenant/name.
func twoParts(kind, name string) (fleet.TenantName, string, error) {
	tenant, rest, ok := strings.Cut(name, "/")
	if !ok || tenant == "" || rest == "" || strings.ContainsAny(rest, "/@") {
		return "", "", fmt.Errorf("%s %q: write tenant/name, such as acme/%s", kind, name,
			first(map[string]string{"environment": "prod-eu", "deployment": "checkout"}[kind],
				"name"))
	}
	return fleet.TenantName(tenant), rest, nil
}

// shortest is the minimum number of digits of a shortened revision.
const shortest = 7

var errNoRevision = errors.New("no such revision")

// pick is the one revision that begins with the digits.
func pick[T any](digits string, items []T, revision func(T) fleet.Revision) (fleet.Revision,
	error) {
	if len(digits) < shortest || strings.Trim(digits, "0123456789abcdef") != "" {
		return "", fmt.Errorf("revision %q: write at least its first %d hexadecimal digits", digits,
			shortest)
	}
	var found fleet.Revision
	for _, item := range items {
		r := revision(item)
		if !strings.HasPrefix(string(r), digits) || r == found {
			continue
		}
		if found != "" {
			return "", fmt.Errorf("revision %s is ambiguous: %s or %s; write more digits", digits,
				found, r)
		}
		found = r
	}
	if found == "" {
		return "", errNoRevision
	}
	return found, nil
}

func labels(m map[string]string) string {
	var pairs []string
	for k, v := range m {
		pairs = append(pairs, k+"="+v)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ", ")
}
