package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/plan/report"
)

// description is one thing in all its forms.
type description struct {
	item     any // for JSON and YAML
	sections []section
}

// section is one part of a description: facts, a table, or both.
type section struct {
	title string
	facts []table.Fact
	table table.Table
	text  func(io.Writer) error // any other content
}

type describer func(context.Context, *client.Client, string) (description, error)

func describeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe KIND NAME",
		Short: "Show one object in detail",
		Long: "NAME is a tenant's, engine's, ring's or pool's name, tenant/name for environments,\n" +
			"their moves and deployments, tenant/deployment@environment for applications, an ID for\n" +
			"operations and rebalances, a full or shortened commit id for revisions, a number for\n" +
			"pulls, and tenant/name or an engine's name for agents.",
		Example: "  argosy describe application acme/checkout@prod-eu\n" +
			"  argosy describe environment acme/prod-eu\n" +
			"  argosy describe engine eu-1 -o yaml",
		Args: exactly("KIND", "NAME"),
		ValidArgsFunction: a.completeKinds(func(r resource) bool {
			return describers()[r.plural] != nil
		}),
	}
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kind, err := findResource(args[0])
		if err != nil {
			return err
		}
		describe := describers()[kind.plural]
		if describe == nil {
			return fmt.Errorf("%s can be listed but not described: run `argosy get %s -o wide`",
				kind.plural, kind.plural)
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		found, err := describe(cmd.Context(), c, args[1])
		if err != nil {
			return err
		}
		if done, err := a.structured(out, found.item); done {
			return err
		}
		return a.writeDescription(found)
	}
	return cmd
}

func describers() map[string]describer {
	return map[string]describer{
		"applications": describeApplication, "environments": describeEnvironment,
		"deployments": describeDeployment, "tenants": describeTenant,
		"engines": describeEngine, "operations": describeOperation, "revisions": describeRevision,
		"moves": describeMove, "pulls": describePull, "agents": describeAgent,
		"rebalances": describeRebalance, "rollouts": describeRollout,
		"rings": describeRing,
		"pools": describePool,
	}
}

func describeApplication(ctx context.Context, c *client.Client, name string) (description, error) {
	id, err := applicationID(name)
	if err != nil {
		return description{}, err
	}
	v, err := c.Application(ctx, id)
	if err != nil {
		return description{}, err
	}
	now := time.Now()
	return description{item: v, sections: []section{{facts: []table.Fact{
		{Name: "Application", Value: table.Text(id.String())},
		{Name: "Object", Value: table.Text(v.Object())},
		{Name: "UID", Value: table.Text(v.UID)},
		{Name: "Engine", Value: table.Text(v.Engine)},
		{Name: "Apply", Value: applyOf(v)},
		{Name: "Reason", Value: table.Text(v.ApplyMessage)},
		{Name: "Deletion blocked", Value: blocked(v)},
		{Name: "Unreachable", Value: unreachable(v.Unreachable, now)},
		{Name: "Last seen", Value: lastSeen(v.LastSeenAt, now)},
		{Name: "Sync", Value: table.State(v.Sync)},
		{Name: "Health", Value: table.State(v.Health)},
		{Name: "Automation", Value: paused(v)},
		{Name: "Rollback in Git", Value: lasting(v)},
		{Name: "Message", Value: table.Text(v.Message)},
		{Name: "Operation", Value: table.State(v.OperationPhase)},
		{Name: "Repository", Value: table.Text(v.RepoURL)},
		{Name: "Target revision", Value: table.Text(v.TargetRevision)},
		{Name: "Synced revision", Value: table.Text(v.SyncedRevision)},
		{Name: "Declared at", Value: table.Text(v.Revision)},
		{Name: "Images", Value: table.Text(strings.Join(v.Images, "\n"))},
		{Name: "Resources", Value: table.Number(v.Resources)},
		{Name: "Created", Value: ago(&v.CreatedAt, now)},
		{Name: "Changed", Value: ago(&v.ChangedAt, now)},
		{Name: "Last report", Value: ago(v.ObservedAt, now)},
	}}}}, nil
}

// paused returns what pauses an Application's automation, and what ends that.
func paused(v view.Application) table.Value {
	if v.Hold == "" {
		return table.Value{}
	}
	by, end := "SyncRun "+string(v.Hold), "remove its file"
	if operation := mirror.RollbackOf(v.Hold); operation != "" {
		by, end = "rollback "+operation, "`argosy rollback "+v.ID().String()+" --end`"
	}
	return table.Value{Tone: table.Busy, Text: fmt.Sprintf(
		"paused by %s until Git asks for another revision than %s; to end it: %s", by,
		v.TargetRevision, end)}
}

// lasting returns the pull request that makes an Application's rollback lasting.
func lasting(v view.Application) table.Value {
	p := v.RollbackPull
	switch {
	case p == nil:
		return table.Value{}
	case p.State == forge.LastingImpossible:
		return table.Value{Tone: table.Bad, Text: "no pull request makes the rollback lasting: " +
			p.Message}
	case p.State == forge.LastingNone:
		return table.Value{Tone: table.Busy, Text: "not opened yet: " + p.Message}
	}
	return table.Text(fmt.Sprintf("%s #%d %s", strings.ToLower(string(p.State)), p.Number, p.URL))
}

// blocked names the deciders of a deletion that waits for an unreachable cluster.
func blocked(v view.Application) table.Value {
	if !v.DeletionBlocked {
		return table.Value{}
	}
	return table.Value{
		Tone: table.Bad,
		Text: fmt.Sprintf(
			"the cluster is unreachable; restore it, or tenant %s or the platform runs: argosy "+
				"abandon %s/%s@%s --uid %s",
			v.Tenant, v.Tenant, v.Deployment, v.Environment, v.UID)}
}

func describeEnvironment(ctx context.Context, c *client.Client, name string) (description, error) {
	tenant, short, err := twoParts("environment", name)
	if err != nil {
		return description{}, err
	}
	v, err := c.Environment(
		ctx, fleet.EnvironmentID{Tenant: tenant, Name: fleet.EnvironmentName(short)})
	if err != nil {
		return description{}, err
	}
	apps, err := shownApplications(c, ctx, view.Filter{Tenant: tenant, Environment: v.Name}, 0)
	if err != nil {
		return description{}, err
	}
	facts := []table.Fact{
		{Name: "Environment", Value: table.Text(name)},
		{Name: "Server", Value: servedBy(v)},
		{Name: "Unreachable", Value: unreachable(v.Unreachable, time.Now())},
		{Name: "Last seen", Value: lastSeen(v.LastSeenAt, time.Now())},
		{Name: "Message", Value: unreachableMessage(v.Unreachable)},
		{Name: "Namespaces", Value: table.Text(strings.Join(v.Namespaces, ", "))},
		{Name: "Region", Value: table.Text(v.Region)},
		{Name: "Labels", Value: table.Text(labels(v.Labels))},
		{Name: "Problems", Value: count(v.Problems)},
		{Name: "Healthy", Value: healthOf(v.Counts)},
	}
	placed := section{title: "Slices", table: slicesOf(v.Slices)}
	if len(v.Slices) == 0 {
		facts = append(facts, placementFacts(v.Placement)...)
	}
	return description{item: v, sections: []section{
		{facts: facts}, placed,
		{title: "Applications", table: tabulate(apps, shownColumns(), false, time.Now())},
	}}, nil
}

// unreachable returns why an environment's cluster is unreachable; it is empty for a reachable one.
func unreachable(u *mirror.Unreachable, now time.Time) table.Value {
	if u == nil {
		return table.Value{}
	}
	text := fmt.Sprintf("%s for %s", u.Reason, fleet.Age(now.Sub(u.Since)))
	if u.Parked > 0 {
		text += fmt.Sprintf("; parked until the cluster answers: %d", u.Parked)
	}
	return table.Value{Text: text, Tone: table.Bad}
}

// lastSeen returns when a silent engine or cluster was last seen; empty while it is not silent.
func lastSeen(at *time.Time, now time.Time) table.Value {
	v := agoIf(at, now)
	if at != nil {
		v.Text, v.Tone = v.Text+"; states since then are Unknown", table.Bad
	}
	return v
}

func unreachableMessage(u *mirror.Unreachable) table.Value {
	if u == nil {
		return table.Value{}
	}
	return table.Text(u.Message)
}

func describeDeployment(ctx context.Context, c *client.Client, name string) (description, error) {
	tenant, short, err := twoParts("deployment", name)
	if err != nil {
		return description{}, err
	}
	v, err := c.Deployment(
		ctx, fleet.DeploymentID{Tenant: tenant, Name: fleet.DeploymentName(short)})
	if err != nil {
		return description{}, err
	}
	apps, err := c.Applications(ctx, view.Filter{Tenant: tenant, Deployment: v.Name}, 0)
	if err != nil {
		return description{}, err
	}
	facts := []table.Fact{{Name: "Deployment", Value: table.Text(name)},
		{Name: "Set", Value: table.Text(v.Set)}}
	for _, l := range v.Listings {
		facts = append(facts,
			table.Fact{Name: "Listing", Value: table.Text(l.RepoURL + " at " + l.TargetRevision)},
			table.Fact{Name: "Commit", Value: table.Text(l.Commit.Short())},
			table.Fact{Name: "Last read", Value: table.Text(cmp.Or(l.Error, l.Head.Short()))})
	}
	for _, s := range v.AllSources() {
		facts = append(facts,
			table.Fact{Name: "Repository", Value: table.Text(s.RepoURL)},
			table.Fact{Name: "Ref", Value: table.Text(s.Ref)},
			table.Fact{Name: "Path", Value: table.Text(s.Path)},
			table.Fact{Name: "Chart", Value: table.Text(s.Chart)},
			table.Fact{Name: "Target revision", Value: table.Text(s.TargetRevision)})
	}
	return description{item: v, sections: []section{{facts: append(facts,
		table.Fact{Name: "Namespace", Value: table.Text(v.Namespace)},
		table.Fact{Name: "Labels", Value: table.Text(labels(v.Labels))},
		table.Fact{Name: "Environments", Value: table.Text(commas(v.Environments))},
		table.Fact{Name: "Problems", Value: count(v.Problems)},
		table.Fact{Name: "Healthy", Value: healthOf(v.Counts)},
	)}, {title: "Applications", table: tabulate(apps, applicationColumns, false, time.Now())}}}, nil
}

func describeTenant(ctx context.Context, c *client.Client, name string) (description, error) {
	v, err := c.Tenant(ctx, fleet.TenantName(name))
	if err != nil {
		return description{}, err
	}
	of := view.Filter{Tenant: v.Name}
	environments, err := c.Environments(ctx, of, 0)
	if err != nil {
		return description{}, err
	}
	deployments, err := c.Deployments(ctx, of, 0)
	if err != nil {
		return description{}, err
	}
	problems, err := c.Problems(ctx, of, 0)
	if err != nil {
		return description{}, err
	}
	holds, err := c.Holds(ctx, of, 0)
	if err != nil {
		return description{}, err
	}
	now := time.Now()
	return description{item: v, sections: []section{
		{facts: []table.Fact{
			{Name: "Tenant", Value: table.Text(v.Name)},
			{Name: "Owners", Value: table.Text(strings.Join(v.Owners, ", "))},
			{Name: "Stopped", Value: stopped(v.Stopped)},
			{Name: "Environments", Value: used(v.Used.Environments, v.Quota.Environments)},
			{Name: "Deployments", Value: used(v.Used.Deployments, v.Quota.Deployments)},
			{Name: "Applications", Value: used(v.Used.Applications, v.Quota.Applications)},
			{Name: "Healthy", Value: healthOf(v.Counts)},
		}},
		{title: "Holds", table: tabulate(holds, holdColumns, false, now)},
		{title: "Problems", table: tabulate(problems, problemColumns, false, now)},
		{title: "Environments", table: tabulate(environments, environmentColumns[1:], false, now)},
		{title: "Deployments", table: tabulate(deployments, deploymentColumns[1:], false, now)},
	}}, nil
}

func describeEngine(ctx context.Context, c *client.Client, name string) (description, error) {
	v, err := c.Engine(ctx, fleet.EngineName(name))
	if err != nil {
		return description{}, err
	}
	environments, err := c.Environments(ctx, view.Filter{Engine: v.Name}, 0)
	if err != nil {
		return description{}, err
	}
	now := time.Now()
	holder := ""
	if v.Holder != "" {
		holder = fmt.Sprintf("%s, epoch %d", v.Holder, v.Epoch)
	}
	return description{item: v, sections: []section{
		{facts: []table.Fact{
			{Name: "Engine", Value: table.Text(v.Name)},
			{Name: "Region", Value: table.Text(v.Region)},
			{Name: "State", Value: table.State(v.State)},
			{Name: "Drain", Value: drainOf(v.Drain, now)},
			{Name: "Stopped", Value: stopped(v.Stopped)},
			{Name: "Reachable", Value: reach(v, now)},
			{Name: "Last seen", Value: lastSeen(v.LastSeenAt, now)},
			{Name: "Works", Value: works(v.Work, now)},
			{Name: "Remedy", Value: remedyOf(v.Remedy, now)},
			{Name: "Next", Value: table.Text(v.NextRemedy)},
			{Name: "Fence", Value: fenceOf(v.Fence, now)},
			{Name: "Evacuation", Value: evacuationOf(v.Evacuation, now)},
			{Name: "Message", Value: table.Text(v.Message)},
			{Name: "Controller", Value: controllerLoad(v.Measured, now)},
			{Name: "Repo-server", Value: repoServerLoad(v.Measured, now)},
			{Name: "Measured", Value: measuredAt(v.Measured, now)},
			{Name: "Argo CD", Value: table.Text(v.ArgoCD)},
			{Name: "Size", Value: table.Text(v.Size)},
			{Name: "Installation ID", Value: table.Text(v.InstanceID)},
			{Name: "Ring", Value: table.Text(v.Ring)},
			{Name: "Applications", Value: used(v.Load.Applications, v.Capacity.Applications)},
			{Name: "Environments", Value: used(v.Load.Environments, v.Capacity.Environments)},
			{Name: "Outgrown by", Value: outgrownBy(environments)},
			{Name: "Healthy", Value: healthOf(v.Counts)},
			{Name: "Behind", Value: table.Number(v.Pending)},
			{Name: "Held by", Value: table.Text(holder)},
			{Name: "Orphans", Value: waits(v.Orphans)},
			{Name: "Unreachable", Value: unreadOf(v)},
			{Name: "Moved back", Value: agePtr(v.WentBackAt, now)},
			{Name: "Moved back by", Value: table.Text(v.WentBack)},
		}},
		{title: "Waiting", table: tabulate(v.Waiting, waitingColumns, false, now)},
		{title: "Environments", table: tabulate(environments, environmentColumns, false, now)},
	}}, nil
}

// outgrownBy lists the environments that have more Applications than their engine has capacity.
func outgrownBy(environments []view.Environment) table.Value {
	var found []string
	for _, e := range environments {
		if e.Placement.Outgrown() != "" {
			found = append(found, fmt.Sprintf("%s/%s (%s)", e.Tenant, e.Name,
				plural(e.Placement.TooLarge.Applications, "Application")))
		}
	}
	return table.Value{Text: strings.Join(found, ", "), Tone: table.Bad}
}

// works returns whether a reachable engine works; empty while it is unknown.
func works(w *mirror.Work, now time.Time) table.Value {
	switch {
	case w == nil:
		return table.Value{}
	case !w.Faulty():
		return table.Value{Text: "yes, for " + fleet.Age(now.Sub(w.Since)), Tone: table.Good}
	}
	return table.Value{Tone: table.Bad,
		Text: fmt.Sprintf("no, %s for %s: %s", w.State, fleet.Age(now.Sub(w.Since)), w.Message)}
}

// drainOf returns how far an engine is emptied; empty unless it drains.
func drainOf(d *mirror.Drain, now time.Time) table.Value {
	if d == nil {
		return table.Value{}
	}
	return table.Value{Tone: table.ToneOf(string(d.State)), Text: fmt.Sprintf("%s for %s: %s",
		d.State, fleet.Age(now.Sub(d.Since)), cmp.Or(d.Message, "it begins"))}
}

// controllerLoad returns the measured load of the application-controller; empty without one.
func controllerLoad(l *mirror.Load, now time.Time) table.Value {
	if !l.Fresh(now) {
		return table.Value{}
	}
	c := l.Controller
	return table.Text(fmt.Sprintf("lag %s (waits %s, compares in %s), queue %.0f, %s",
		seconds(c.Lag()), seconds(c.Wait), seconds(c.Compare), c.Queue, processLoad(c.ProcessLoad)))
}

// repoServerLoad returns the measured load of the repo-server; empty without one.
func repoServerLoad(l *mirror.Load, now time.Time) table.Value {
	if !l.Fresh(now) || l.RepoServer == nil {
		return table.Value{}
	}
	return table.Text(fmt.Sprintf("%.0f requests wait, %s", l.RepoServer.Pending,
		processLoad(l.RepoServer.ProcessLoad)))
}

func processLoad(p mirror.ProcessLoad) string {
	return fmt.Sprintf("%.2f CPU, %s (processes: %d)", p.CPU, mebibytes(p.Memory), p.Processes)
}

// measuredAt returns when the load was measured, and why it, or a part of it, is not.
func measuredAt(l *mirror.Load, now time.Time) table.Value {
	switch {
	case l == nil:
		return table.Text("no: the Engine has no spec.metrics; placement counts Applications")
	case !l.Fresh(now) && l.Message != "":
		return table.Value{Tone: table.Bad, Text: "no: " + l.Message +
			"; placement counts Applications"}
	case !l.Fresh(now):
		return table.Value{Tone: table.Bad, Text: "no, last seen " + fleet.Age(now.Sub(l.At)) +
			" ago; placement counts Applications"}
	case l.Message != "":
		return table.Value{Tone: table.Busy, Text: fleet.Age(now.Sub(l.At)) + " ago; " + l.Message}
	}
	return table.Text(fleet.Age(now.Sub(l.At)) + " ago")
}

// unreadOf counts the environments whose clusters are unreachable for an engine.
func unreadOf(v view.Engine) table.Value {
	if v.Unreachable == 0 {
		return table.Value{}
	}
	return table.Value{
		Text: fmt.Sprintf("%d environments; %d Applications are parked", v.Unreachable, v.Parked),
		Tone: table.Bad}
}

func describeOperation(ctx context.Context, c *client.Client, id string) (description, error) {
	v, err := c.Operation(ctx, id)
	if err != nil {
		return description{}, err
	}
	now := time.Now()
	ended := table.Value{}
	if v.EndedAt != nil {
		ended = ago(v.EndedAt, now)
	}
	return description{item: v, sections: []section{{facts: []table.Fact{
		{Name: "Operation", Value: table.Text(v.ID)},
		{Name: "Kind", Value: table.Text(v.Kind)},
		{Name: "Subject", Value: table.Text(v.Subject)},
		{Name: "State", Value: table.State(v.State)},
		{Name: "Done", Value: done(v)},
		{Name: "Message", Value: table.Text(v.Message)},
		{Name: "Tenant", Value: table.Text(v.Tenant)},
		{Name: "Engine", Value: table.Text(v.Engine)},
		{Name: "Revision", Value: table.Text(v.Revision)},
		{Name: "Requested by", Value: table.Text(v.RequestedBy)},
		{Name: "Started", Value: ago(&v.StartedAt, now)},
		{Name: "Ended", Value: ended},
	}}}}, nil
}

// recent is the number of revisions searched for a shortened one.
const recent = 1000

// shownChanges is the maximum number of changes that are shown of a revision.
const shownChanges = 200

func describeRevision(ctx context.Context, c *client.Client, digits string) (description, error) {
	revision := fleet.Revision(digits)
	if len(digits) < 40 {
		all, err := c.Revisions(ctx, view.Filter{}, recent)
		if err != nil {
			return description{}, err
		}
		if revision, err = pick(digits, all, func(r view.Revision) fleet.Revision {
			return r.Revision
		}); err != nil {
			return description{}, fmt.Errorf("revision %s: %w; see `argosy get revisions`", digits,
				err)
		}
	}
	v, err := c.Revision(ctx, revision)
	if err != nil {
		return description{}, err
	}
	changes, err := c.Changes(ctx, revision, shownChanges)
	if err != nil {
		return description{}, err
	}
	now := time.Now()
	return description{item: struct {
		view.Revision
		Changes []view.Change `json:"changes"`
	}{v, changes}, sections: []section{{facts: []table.Fact{
		{Name: "Revision", Value: table.Text(v.Revision)},
		{Name: "Subject", Value: table.Text(v.Subject)},
		{Name: "Author", Value: table.Text(v.Author)},
		{Name: "Committed", Value: ago(&v.CommittedAt, now)},
		{Name: "Recorded", Value: ago(&v.RecordedAt, now)},
		{Name: "Applied", Value: ago(v.AppliedAt, now)},
		{Name: "Created", Value: table.Number(v.Created)},
		{Name: "Changed", Value: table.Number(v.Changed)},
		{Name: "Deleted", Value: table.Number(v.Deleted)},
		{Name: "Held", Value: count(v.Held)},
		{Name: "Problems", Value: count(v.Problems)},
		{Name: "Pending", Value: table.Number(v.Pending)},
	}}, {title: "Objects that it has written and no later revision again",
		table: tabulate(changes, changeColumns, false, now)}}}, nil
}

var changeColumns = []column[view.Change]{
	{head: "ACTION", of: func(c view.Change, _ time.Time) table.Value {
		return table.Text(c.Action)
	}},
	{head: "KIND", of: func(c view.Change, _ time.Time) table.Value { return table.Text(c.Kind) }},
	{head: "NAME", of: func(c view.Change, _ time.Time) table.Value { return table.Text(c.Name) }},
	{head: "ENGINE", of: func(c view.Change, _ time.Time) table.Value {
		return table.Text(c.Engine)
	}},
	{head: "APPLY", of: func(c view.Change, _ time.Time) table.Value {
		return table.State(c.Apply)
	}},
	{head: "REASON", of: func(c view.Change, _ time.Time) table.Value {
		return table.Text(c.Message)
	}},
}

func describePull(ctx context.Context, c *client.Client, name string) (description, error) {
	number, err := strconv.Atoi(strings.TrimPrefix(name, "#"))
	if err != nil || number <= 0 {
		return description{}, fmt.Errorf("pull request %q: write its number, such as 7", name)
	}
	v, err := c.Pull(ctx, number)
	if err != nil {
		return description{}, err
	}
	plan, err := c.PullPlan(ctx, number)
	var refusal *wire.Refusal
	planned := err == nil
	if err != nil && (!errors.As(err, &refusal) || refusal.Status != 404) {
		return description{}, err
	}
	item := struct {
		view.Pull
		Plan *report.Report `json:"plan,omitempty"`
	}{Pull: v}
	sections := []section{{facts: []table.Fact{
		{Name: "Pull request", Value: table.Text("#" + strconv.Itoa(v.Number))},
		{Name: "Title", Value: table.Text(v.Title)},
		{Name: "Author", Value: table.Text(v.Author)},
		{Name: "State", Value: table.Text(v.State)},
		{Name: "Verdict", Value: table.Text(v.Verdict)},
		{Name: "Changes files of", Value: table.Text(whose(v.Tenants))},
		{Name: "Head", Value: table.Text(v.Head)},
		{Name: "Planned on", Value: table.Text(v.Base)},
		{Name: "URL", Value: table.Text(v.URL)},
	}}}
	if planned {
		item.Plan = &plan
		sections = append(sections, section{title: "Plan for reviewers", text: plan.WriteText})
	}
	return description{item: item, sections: sections}, nil
}

const fewTokens = 10 // the newest

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
		if own, err = c.OwnApplications(
			ctx, view.Filter{Tenant: v.Tenant, Environment: v.Environment}, 0); err != nil {
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

func agentFacts(v view.Agent, now time.Time) []table.Fact {
	facts := []table.Fact{
		{Name: "Agent", Value: table.Value{Text: agentName(v)}},
		{Name: "Engine", Value: table.Text(v.Engine)},
		{Name: "Mode", Value: table.Text(v.Mode)},
		{Name: "Connected", Value: agentState(v, now)},
	}
	if v.ID == "" {
		return append(
			facts, table.Fact{
				Name: "To join", Value: table.Value{
					Text: "argosy agent token create " + agentName(v)}})
	}
	return append(facts,
		table.Fact{Name: "Last seen", Value: ago(v.SeenAt, now)},
		table.Fact{Name: "Message", Value: table.Text(v.Message)},
		table.Fact{Name: "Version", Value: table.Text(v.Version)},
		table.Fact{Name: "Argo CD", Value: table.Text(v.ArgoCD)},
		table.Fact{Name: "Behind", Value: table.Value{Text: behind(v)}},
		table.Fact{Name: "Deletions", Value: agentDeletions(v)},
		table.Fact{Name: "Orphans", Value: waits(v.Orphans)},
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

// agoIf is ago for an event that may not have happened, and is empty then.
func agoIf(t *time.Time, now time.Time) table.Value {
	if t == nil {
		return table.Value{}
	}
	return ago(t, now)
}

func ago(t *time.Time, now time.Time) table.Value {
	if t == nil || t.IsZero() {
		return table.Value{Text: "never"}
	}
	return table.Value{Text: fleet.Age(now.Sub(*t)) + " ago (" + t.UTC().Format(time.RFC3339) + ")"}
}

func explainCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain environment TENANT/NAME",
		Short: "Explain why an environment is on its engine, and list the alternatives",
		Example: "  argosy explain environment acme/prod-eu\n" +
			"  argosy explain environment acme/prod-eu -o json",
		Args: exactly("environment", "TENANT/NAME"),
	}
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if kind, err := findResource(args[0]); err != nil || kind.plural != "environments" {
			return fmt.Errorf(
				"only environments can be explained, not %q: argosy explain environment TENANT/NAME", args[0])
		}
		tenant, name, err := twoParts("environment", args[1])
		if err != nil {
			return err
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		p, err := c.Explain(cmd.Context(), fleet.EnvironmentID{
			Tenant: tenant, Name: fleet.EnvironmentName(name)})
		if err != nil {
			return err
		}
		if done, err := a.structured(out, p); done {
			return err
		}
		environment := []table.Fact{{Name: "Environment", Value: table.Text(args[1])}}
		if len(p.Slices) == 0 {
			return a.writeDescription(description{sections: []section{
				{facts: append(environment, placementFacts(p.Placement)...)},
				{title: "Candidate engines, best first", table: alternatives(p.Placement)},
			}})
		}
		d := description{sections: []section{{facts: environment, table: slicesOf(p.Slices)}}}
		for _, slice := range p.Slices {
			d.sections = append(d.sections, section{title: "Slice " + string(slice.Slice),
				facts: placementFacts(slice)}, section{title: "Candidate engines of slice " +
				string(slice.Slice) + ", best first", table: alternatives(slice)})
		}
		return a.writeDescription(d)
	}
	return cmd
}

func (a *app) writeDescription(d description) error {
	for i, s := range d.sections {
		if len(s.facts) == 0 && len(s.table.Rows) == 0 && s.text == nil {
			continue
		}
		if i > 0 {
			if _, err := fmt.Fprintf(a.out, "\n%s\n", printable.Name(s.title)); err != nil {
				return err
			}
		}
		if err := table.Facts(a.out, a.colour(), s.facts); err != nil {
			return err
		}
		if len(s.table.Rows) > 0 {
			if err := s.table.Write(a.out, a.colour()); err != nil {
				return err
			}
		}
		if s.text != nil {
			if err := s.text(a.out); err != nil {
				return err
			}
		}
	}
	return nil
}

func placementFacts(p fleet.Placement) []table.Fact {
	fix := ""
	move := "argosy move environment " + p.Environment.String() + " --to ENGINE"
	switch {
	case p.Misplaced == "":
	case p.MisplacedPolicy == fleet.MisplacedMove:
		fix = "none: Argosy moves it, since placement.misplaced of the Fleet is Move (argosy " +
			"describe engine " + string(p.Engine) + ")"
	case p.MisplacedPolicy == fleet.MisplacedStay:
		fix = move + "; placement.misplaced of the Fleet is Stay, with Move Argosy moves it"
	default:
		fix = "ask the platform to move it: " + move
	}
	size := table.Value{}
	if l := p.TooLarge; l != nil {
		fix = p.SizeFix()
		largest := "the largest of " + plural(l.Engines, "engine") + " that may serve it"
		if p.Engine != "" {
			largest = "its engine"
		}
		size = table.Value{Tone: table.Bad, Text: fmt.Sprintf("%s; %s has a capacity of %d",
			plural(l.Applications, "Application"), largest, l.LargestCapacity)}
	}
	return []table.Fact{
		{Name: "Engine", Value: placedOn(p.Engine)},
		{Name: "Leaves engine", Value: table.Text(p.From)},
		{Name: "Because", Value: table.Text(p.Reason)},
		{Name: "Too large", Value: size},
		{Name: "Misplaced", Value: table.Value{Text: p.Misplaced, Tone: table.Busy}},
		{Name: "Fix", Value: table.Text(fix)},
		{Name: "Decided at", Value: table.Text(p.Revision)},
	}
}

// slicesOf lists the slices of a split environment.
func slicesOf(all []fleet.Placement) table.Table {
	t := table.Table{Heads: []string{"SLICE", "ENGINE", "APPLICATIONS", "LEAVES"}}
	for _, p := range all {
		t.Rows = append(t.Rows, []table.Value{table.Text(p.Slice), placedOn(p.Engine),
			{Text: strconv.Itoa(p.Applications)}, table.Text(p.From)})
	}
	return t
}

func alternatives(p fleet.Placement) table.Table {
	t := table.Table{Heads: []string{"ENGINE", "ELIGIBLE", "SCORE", "REASON"}}
	for _, alt := range p.Alternatives {
		eligible, score := table.Value{Text: "no", Tone: table.Faint}, table.Value{}
		if alt.Eligible {
			eligible, score = table.State("yes"), table.Value{Text: fmt.Sprintf("%.3f", alt.Score)}
		}
		t.Rows = append(
			t.Rows, []table.Value{table.Text(alt.Engine), eligible, score, table.Text(alt.Reason)})
	}
	return t
}
