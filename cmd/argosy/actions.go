package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/view"
)

// actionFlags are the flags that the commands of all actions have.
type actionFlags struct {
	yes, wait bool
	resources []string
	ask       wire.ActionRequest
}

func (f *actionFlags) add(cmd *cobra.Command, a *app) {
	addYes(cmd, &f.yes)
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until it has ended, and show the result")
	cmd.Flags().StringVar(&f.ask.Note, "note", "", "reason, for the record")
	a.completeOne(cmd, "applications")
}

func addYes(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask")
}

func (f *actionFlags) addResources(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.resources, "resource", nil,
		"this resource alone: "+resourceHelp+"; may be repeated")
}

const anApplication = "TENANT/DEPLOYMENT@ENVIRONMENT"

func refreshCommand(a *app) *cobra.Command {
	var f actionFlags
	cmd := &cobra.Command{
		Use: "refresh " + anApplication, Short: "Compare an Application with its sources now",
		Long: "Argo CD compares every Application every few minutes, and after each push to\n" +
			"its sources. With --hard it also renders the manifests again, without its cache: for\n" +
			"a chart or a base that has changed under the same version.",
		Example: "  argosy refresh acme/checkout@prod-eu\n" +
			"  argosy refresh acme/checkout@prod-eu --hard --wait",
		Args: exactly(anApplication),
	}
	f.add(cmd, a)
	cmd.Flags().BoolVar(&f.ask.Hard, "hard", false, "render the manifests again, without the cache")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.yes = true // it changes nothing that Argo CD would not change by itself
		return a.act(cmd.Context(), mirror.ActionRefresh, args[0], &f)
	}
	return cmd
}

func terminateCommand(a *app) *cobra.Command {
	var f actionFlags
	cmd := &cobra.Command{
		Use: "terminate " + anApplication, Short: "End the running operation of an Application",
		Long: "Argo CD stops the sync and its hooks. What the sync has changed stays changed. An\n" +
			"automated Application that still differs is synced again: pause that with\n" +
			"`argosy stop --tenant`, or fix the source.",
		Example: "  argosy terminate acme/checkout@prod-eu\n" +
			"  argosy terminate acme/checkout@prod-eu --yes --wait",
		Args: exactly(anApplication),
	}
	f.add(cmd, a)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.act(cmd.Context(), mirror.ActionTerminate, args[0], &f)
	}
	return cmd
}

func restartCommand(a *app) *cobra.Command {
	var f actionFlags
	cmd := &cobra.Command{
		Use:   "restart " + anApplication + " [KIND/NAME...]",
		Short: "Replace the Pods of an Application's workloads, a few at a time",
		Long: "It does what `kubectl rollout restart` does, for the Deployments, StatefulSets and\n" +
			"DaemonSets that the sources of the Application declare, or for the named ones:\n" +
			"each workload replaces its Pods by its own strategy. It restarts exactly the\n" +
			"objects that it has listed, and never a later one of the same name.",
		Example: "  argosy restart acme/checkout@prod-eu\n" +
			"  argosy restart acme/checkout@prod-eu Deployment/web StatefulSet/db --yes --wait",
		Args: cobra.MinimumNArgs(1),
	}
	f.add(cmd, a)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.restart(cmd.Context(), args[0], args[1:], &f)
	}
	return cmd
}

func rollbackCommand(a *app) *cobra.Command {
	var f actionFlags
	var list bool
	cmd := &cobra.Command{
		Use:   "rollback " + anApplication,
		Short: "Return an Application to a revision with which it was Healthy",
		Long: "Argo CD syncs the Application to the last revision with which it was Healthy before the\n" +
			"one that runs, or with --to to another one; --list shows them. Its automation is paused\n" +
			"until Git asks for another targetRevision, so that nothing brings the faulty one back.\n" +
			"Change the declaration to make it lasting; --end lets automation go on without a\n" +
			"change.",
		Example: "  argosy rollback acme/checkout@prod-eu\n" +
			"  argosy rollback acme/checkout@prod-eu --list\n" +
			"  argosy rollback acme/checkout@prod-eu --to 4f1c2d9 --wait\n" +
			"  argosy rollback acme/checkout@prod-eu --end --yes",
		Args: exactly(anApplication),
	}
	f.add(cmd, a)
	cmd.Flags().StringVar(&f.ask.Revision, "to", "", "a listed revision, or its first digits")
	cmd.Flags().BoolVar(&f.ask.End, "end", false, "end the rollback that is in force")
	cmd.Flags().BoolVar(&list, "list", false, "list the revisions with which it was Healthy")
	cmd.MarkFlagsMutuallyExclusive("to", "end", "list")
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if list {
			return a.listHealthy(cmd.Context(), args[0], out)
		}
		if cmd.Flags().Changed("output") {
			return errors.New("-o is the format of --list; write --list too")
		}
		return a.rollBack(cmd.Context(), args[0], &f)
	}
	return cmd
}

func (a *app) listHealthy(ctx context.Context, name string, out *format) error {
	_, id, p, err := a.preview(ctx, name, mirror.ActionRollback)
	if err != nil {
		return err
	}
	if done, err := a.structured(out, p.Healthy); done {
		return err
	}
	return a.showHealthy(id, p.Healthy)
}

func (a *app) rollBack(ctx context.Context, name string, f *actionFlags) error {
	if f.ask.End {
		return a.act(ctx, mirror.ActionRollback, name, f)
	}
	_, id, p, err := a.preview(ctx, name, mirror.ActionRollback)
	if err != nil {
		return err
	}
	switch {
	case f.ask.Revision != "":
		f.ask.Revision, err = healthyRevision(id, p.Healthy, f.ask.Revision)
	case p.Before == "":
		err = fmt.Errorf("application %s was not Healthy with an earlier revision than the one "+
			"that runs; `argosy rollback %s --list` shows all, --to chooses one", id, id)
	default:
		f.ask.Revision = p.Before
		a.hint("to %s, the last revision with which it was Healthy before", p.Before)
	}
	if err != nil {
		return err
	}
	return a.act(ctx, mirror.ActionRollback, name, f)
}

// healthyRevision returns the only revision that begins so.
func healthyRevision(id fleet.ApplicationID, all []mirror.HealthyRevision, begins string) (
	string, error) {
	var found []string
	for _, r := range all {
		if r.Revision == begins {
			return begins, nil
		}
		if strings.HasPrefix(r.Revision, begins) {
			found = append(found, r.Revision)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("application %s was not Healthy with revision %s; `argosy rollback "+
			"%s --list` shows those with which it was", id, begins, id)
	}
	return "", fmt.Errorf("--to %s: %d revisions of application %s begin so; write more digits",
		begins, len(found), id)
}

// showHealthy lists the revisions that a rollback may lead to.
func (a *app) showHealthy(id fleet.ApplicationID, all []mirror.HealthyRevision) error {
	now := time.Now()
	t := table.Table{Heads: []string{"REVISION", "FIRST HEALTHY", "LAST HEALTHY", "RUNS"}}
	for _, r := range all {
		runs := ""
		if r.Runs {
			runs = "yes"
		}
		t.Rows = append(t.Rows, []table.Value{table.Text(r.Revision), age(r.FirstAt, now),
			age(r.LastAt, now), table.Text(runs)})
	}
	if err := t.Write(a.out, a.colour()); err != nil {
		return err
	}
	a.hint("`argosy rollback %s --to REVISION` returns to one", id)
	return nil
}

// preview asks what an action without options would do to the named Application.
func (a *app) preview(ctx context.Context, name string, kind mirror.ActionKind) (c *client.Client,
	id fleet.ApplicationID, p wire.ActionPreview, err error) {
	if id, err = applicationID(name); err != nil {
		return c, id, p, err
	}
	if c, err = a.connect(); err != nil {
		return c, id, p, err
	}
	p, err = c.PreviewAction(ctx, id, kind, mirror.ActionOptions{})
	return c, id, p, err
}

// restart asks for the restart of the listed workloads, by their UIDs.
func (a *app) restart(ctx context.Context, name string, only []string, f *actionFlags) error {
	c, id, p, err := a.preview(ctx, name, mirror.ActionRestart)
	if err != nil {
		return err
	}
	if len(only) > 0 {
		if err := onlyWorkloads(&p, only); err != nil {
			return err
		}
	}
	for _, r := range p.Resources {
		f.ask.Resources = append(f.ask.Resources, mirror.ActionResource{Group: r.Group,
			Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, UID: r.UID})
	}
	if !f.yes {
		a.showPreview(p, nil)
		if err := a.confirm(fmt.Sprintf("restart %s of %s?", plural(len(p.Resources), "workload"),
			id)); err != nil {
			return err
		}
	}
	if p.More > 0 {
		return fmt.Errorf("application %s has %s more than one restart takes; name some", id,
			plural(p.More, "workload"))
	}
	return a.request(ctx, c, id, mirror.ActionRestart, f)
}

// onlyWorkloads keeps the named workloads of a preview.
func onlyWorkloads(p *wire.ActionPreview, only []string) error {
	all := p.Resources
	p.Resources = nil
	for _, text := range only {
		want, err := parseResource(text)
		if err != nil {
			return err
		}
		if want.Group == "" {
			want.Group = "apps"
		}
		before := len(p.Resources)
		for _, r := range all {
			if r.Group == want.Group && strings.EqualFold(r.Kind, want.Kind) &&
				r.Name == want.Name && (want.Namespace == "" || r.Namespace == want.Namespace) {
				p.Resources = append(p.Resources, r)
			}
		}
		switch found := len(p.Resources) - before; {
		case found == 0 && p.Note != "":
			return fmt.Errorf("%s: %s", text, p.Note)
		case found == 0:
			return fmt.Errorf("%s: it is no Deployment, StatefulSet or DaemonSet of %s; "+
				"`argosy restart %s` lists them and asks", text, p.Application, p.Application)
		case found > 1:
			return fmt.Errorf("%s: it is in %d namespaces; write KIND/NAMESPACE/NAME", text, found)
		}
	}
	return nil
}

// syncDeclared adds to the command for own Applications what syncs declared ones.
func (a *app) syncDeclared(cmd *cobra.Command, f *actionFlags) {
	cmd.Use = "sync " + anApplication + " | TENANT/ENV APPLICATION"
	cmd.Short = "Sync an Application, or show what a sync would change"
	cmd.Long = "Argo CD applies the manifests of the Application's revision. With --dry-run it\n" +
		"changes nothing, and reports what it would do with each resource.\n" +
		"--revision names a commit, tag or chart version; an automated Application takes\n" +
		"only the revision that it follows.\n\n" +
		"With two arguments it syncs an Application that the people of an autonomous\n" +
		"cluster created (`argosy get applications` marks them own). APPLICATION is a\n" +
		"name, or NAMESPACE/NAME if several namespaces have the name."
	cmd.Example = "  argosy sync acme/checkout@prod-eu --dry-run --wait\n" +
		"  argosy sync acme/checkout@prod-eu --prune --yes --wait\n" +
		"  argosy sync acme/checkout@prod-eu --resource Deployment/web\n" +
		"  argosy sync acme/edge shop\n" +
		"  argosy sync acme/edge argocd/shop --revision v1.4.0 --prune"
	cmd.Args = cobra.RangeArgs(1, 2)
	f.add(cmd, a)
	f.addResources(cmd)
	cmd.Flags().BoolVar(&f.ask.DryRun, "dry-run", false, "change nothing, and report what would change")
}

// act shows what an action would do, asks, requests it, and follows it with --wait.
func (a *app) act(ctx context.Context, kind mirror.ActionKind, name string, f *actionFlags) error {
	id, err := applicationID(name)
	if err != nil {
		return err
	}
	names, err := parseResources(f.resources)
	if err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	if f.ask.Resources, err = actedOn(names, func() (view.Tree, error) {
		return c.Tree(ctx, id)
	}); err != nil {
		return err
	}
	if !f.yes && !f.ask.DryRun {
		p, err := c.PreviewAction(ctx, id, kind, f.ask.ActionOptions)
		if err != nil {
			return err
		}
		a.showPreview(p, f.ask.Resources)
		if err := a.confirm(fmt.Sprintf("%s %s?", kind, id)); err != nil {
			return err
		}
	}
	return a.request(ctx, c, id, kind, f)
}

// request asks for the action, and follows it with --wait.
func (a *app) request(ctx context.Context, c *client.Client, id fleet.ApplicationID,
	kind mirror.ActionKind, f *actionFlags) error {
	f.ask.Request = rand.Text()
	asked, err := c.Act(ctx, id, kind, f.ask)
	if err != nil {
		return err
	}
	if f.wait {
		return a.followAction(ctx, c, id, asked.Operation)
	}
	err = a.printLine("requested a %s of %s: operation %s", kind, id, asked.Operation)
	a.hint("`argosy get operations %s` shows the result", asked.Operation)
	return err
}

// showPreview shows what an action would do.
func (a *app) showPreview(p wire.ActionPreview, only []mirror.ActionResource) {
	a.hint("%s of %s on engine %s: %s", p.Action, p.Application, p.Engine, p.Does)
	if p.Refused != "" {
		a.hint("refused: %s", p.Refused)
	}
	if p.Synced != "" && p.Action == mirror.ActionSync {
		a.hint("runs %s, declared is %s", p.Synced, p.Target)
	}
	if len(only) > 0 {
		for _, r := range only {
			a.hint("  %s", r)
		}
		return
	}
	for _, r := range p.Resources {
		name := mirror.ActionResource{Group: r.Group, Kind: r.Kind, Namespace: r.Namespace,
			Name: r.Name}
		a.hint("  %-8s %s", r.Change, name)
	}
	if p.More > 0 {
		a.hint("  and %d more", p.More)
	}
	if p.Kept > 0 {
		a.hint("keeps %s that the sources no longer have; --prune deletes them",
			plural(p.Kept, "resource"))
	}
	if p.Note != "" {
		a.hint("%s", p.Note)
	}
}

var errNotConfirmed = errors.New("nothing was done")

// confirm asks a person, and refuses without a terminal.
func (a *app) confirm(question string) error {
	if !isTerminal(a.in) {
		return fmt.Errorf("%w: this is not a terminal; confirm with --yes", errNotConfirmed)
	}
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(a.in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errNotConfirmed
}

// followAction shows the progress of an action until it has ended, and its results.
func (a *app) followAction(ctx context.Context, c *client.Client, id fleet.ApplicationID,
	operation string) error {
	shown := ""
	for {
		o, err := c.Operation(ctx, operation)
		if err != nil {
			return err
		}
		if o.EndedAt != nil {
			return a.showActionEnd(ctx, c, id, o)
		}
		if text := string(o.State) + ": " + o.Message; text != shown {
			shown = text
			a.hint("%s", text)
		}
		if !pacing.Sleep(ctx, 500*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func (a *app) showActionEnd(ctx context.Context, c *client.Client, id fleet.ApplicationID,
	o mirror.Operation) error {
	all, err := c.Actions(ctx, id, o.ID)
	if err != nil {
		return err
	}
	for _, action := range all {
		for _, r := range action.Results {
			if err := a.printLine("%s %s %s", r.Status, r.ActionResource, r.Message); err != nil {
				return err
			}
		}
	}
	if o.State == mirror.OperationFailed {
		return findings{text: fmt.Sprintf("%s of %s failed: %s", o.Kind, id, o.Message)}
	}
	a.hint("%s: %s", o.State, o.Message)
	return nil
}
