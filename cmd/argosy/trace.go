package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

var commitID = regexp.MustCompile(`^[0-9a-f]{7,40}$`)

func traceCommand(a *app) *cobra.Command {
	var application, tenant string
	cmd := &cobra.Command{
		Use: "trace COMMIT", Short: "Show the way of one commit with the time of each step",
		Long: "Show when a commit of the config repo was delivered, fetched, checked, planned and\n" +
			"recorded, and when each Application that it changed was queued, written by its engine,\n" +
			"Synced and Healthy; and what it waits for now. The times come from the control plane's\n" +
			"store. COMMIT is its id, or the first seven digits or more.",
		Example: "  argosy trace 4f1c9e2\n" +
			"  argosy trace 4f1c9e2 --app acme/checkout@prod-eu\n" +
			"  argosy trace 4f1c9e2 -o json",
		Args: exactly("COMMIT"),
	}
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.Flags().StringVar(&application, "app", "", "only this Application: "+anApplication)
	cmd.Flags().StringVar(&tenant, "tenant", "", filterHelp["tenant"])
	a.completeFlag(cmd, "tenant")
	a.completeOne(cmd, "revisions")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		by, err := tracedBy(args[0], application, tenant)
		if err != nil {
			return err
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		t, err := c.Trace(cmd.Context(), args[0], by)
		if err != nil {
			return err
		}
		if done, err := a.structured(out, t); done {
			return err
		}
		return a.printTrace(t, time.Now())
	}
	return cmd
}

// tracedBy returns the filter of a trace.
func tracedBy(commit, application, tenant string) (view.Filter, error) {
	by := view.Filter{Tenant: fleet.TenantName(tenant)}
	if !commitID.MatchString(commit) {
		return by, fmt.Errorf("%q is no commit: write its id, or its first seven digits or more",
			commit)
	}
	if application == "" {
		return by, nil
	}
	id, err := applicationID(application)
	if err != nil {
		return by, fmt.Errorf("--app: %w", err)
	}
	if tenant != "" && string(id.Tenant) != tenant {
		return by, errors.New("--app and --tenant name two tenants")
	}
	by.Tenant, by.Deployment, by.Environment = id.Tenant, id.Deployment, id.Environment
	return by, nil
}

func (a *app) printTrace(t view.Trace, now time.Time) error {
	about := t.Subject
	if t.Author != "" {
		about += " (" + t.Author + ")"
	}
	if t.Pull > 0 {
		about += fmt.Sprintf(", pull request #%d", t.Pull)
	}
	head := t.Revision.Short() + " " + strings.TrimSpace(about)
	if err := a.printLine("commit %s", head); err != nil {
		return err
	}
	if err := stepTable(t).Write(a.out, a.colour()); err != nil {
		return err
	}
	if len(t.Applications) > 0 {
		if err := a.printLine(""); err != nil {
			return err
		}
		if err := tabulate(t.Applications, tracedColumns, true, now).Write(a.out,
			a.colour()); err != nil {
			return err
		}
	}
	for _, w := range t.Waits {
		until := "waits since " + fleet.Age(now.Sub(w.Since))
		if w.Until != nil {
			until = "waited " + fleet.Age(w.Until.Sub(w.Since))
		}
		of := strings.TrimSpace(w.Kind + " " + string(w.Tenant))
		if err := a.printLine("%s: %s: %s", until, of, w.Text); err != nil {
			return err
		}
	}
	a.hintTrace(t)
	return nil
}

func (a *app) hintTrace(t view.Trace) {
	if t.RecordedAt == nil {
		a.hint("the commit is not recorded; `argosy get source` shows what the config repo is at")
		return
	}
	a.hint("%d of %s written; of %s, %d Synced, %d Healthy", t.Written,
		plural(t.Objects, "object"), plural(t.Traced, "Application"), t.Synced, t.Healthy)
	if t.Partial {
		a.hint("the commit has more objects; narrow the trace with --tenant or --app")
	}
	if more := t.Traced - len(t.Applications); more > 0 {
		a.hint("%s not shown; narrow the trace with --tenant or --app",
			plural(more, "further Application"))
	}
	if t.Replaced > 0 {
		a.hint("%s of the commit changed again by later commits, or deleted",
			plural(t.Replaced, "object"))
	}
}

// stepTable has the steps of the whole commit, each with the time since the one before.
func stepTable(t view.Trace) table.Table {
	steps := table.Table{Heads: []string{"STEP", "TIME", "AFTER"}}
	var before time.Time
	for i, s := range t.Steps() {
		after := ""
		if i > 0 {
			after = span(s.At.Sub(before))
		}
		before = s.At
		steps.Rows = append(steps.Rows, []table.Value{table.Text(s.Name),
			table.Text(s.At.UTC().Format("2006-01-02 15:04:05.000Z")), table.Text(after)})
	}
	return steps
}

// tracedColumns show each step as the time since the step before.
var tracedColumns = []column[view.TraceApplication]{
	{head: "APPLICATION", of: func(a view.TraceApplication, _ time.Time) table.Value {
		return table.Text(a.ID().String())
	}},
	{head: "ENGINE", of: func(a view.TraceApplication, _ time.Time) table.Value {
		return table.Text(a.Engine)
	}},
	{head: "QUEUED", of: func(a view.TraceApplication, _ time.Time) table.Value {
		return table.Text(a.QueuedAt.UTC().Format("15:04:05.000Z"))
	}},
	{head: "WRITTEN", of: func(a view.TraceApplication, _ time.Time) table.Value {
		return sinceStep(a.WrittenAt, &a.QueuedAt)
	}},
	{head: "SYNCED", of: func(a view.TraceApplication, _ time.Time) table.Value {
		return sinceStep(a.SyncedAt, a.WrittenAt)
	}},
	{head: "HEALTHY", of: func(a view.TraceApplication, _ time.Time) table.Value {
		return sinceStep(a.HealthyAt, a.SyncedAt)
	}},
	{head: "WAITS FOR", of: func(a view.TraceApplication, _ time.Time) table.Value {
		return table.Value{Text: a.WaitsFor, Tone: table.Busy}
	}},
}

func sinceStep(at, before *time.Time) table.Value {
	if at == nil || before == nil {
		return table.Value{}
	}
	return table.Text(span(at.Sub(*before)))
}

// span is a duration for people: with milliseconds below ten seconds.
func span(d time.Duration) string {
	if d < 10*time.Second {
		return "+" + d.Round(time.Millisecond).String()
	}
	return "+" + d.Round(time.Second).String()
}
