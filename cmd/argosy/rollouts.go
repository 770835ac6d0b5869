package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func rolloutsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rollouts", Short: "Decide about changes that go in waves",
		Long: "A deployment with spec.rollout changes its environments in waves. A tenant's token\n" +
			"decides about the rollouts of that tenant.",
		Example: "  argosy get rollouts\n  argosy describe rollout acme/checkout\n" +
			"  argosy rollouts approve acme/checkout",
	}
	cmd.AddCommand(
		rolloutCommand(a, mirror.PauseRollout, "paused", "Let no further Application change",
			"Applications that have the change keep it.",
			"end it with `argosy rollouts resume %s`"),
		rolloutCommand(a, mirror.ResumeRollout, "resumed",
			"Let a rollout go on, or try again after it has failed or returned",
			"A returned rollout begins at its first wave again.",
			"`argosy describe rollout %s` shows its progress"),
		rolloutCommand(a, mirror.AbortRollout, "aborted",
			"Give every Application its last good state back",
			"The change then waits until its declaration changes, or a person resumes it.",
			"`argosy describe rollout %s` shows its progress"),
		rolloutCommand(a, mirror.ApproveRollout, "approved",
			"Let the wave begin that awaits approval",
			"It approves one wave: a later one asks again. On a terminal the command lists the\n"+
				"environments of the wave first, and asks.",
			"`argosy describe rollout %s` shows its progress"))
	return cmd
}

func rolloutCommand(a *app, verb mirror.RolloutVerb, done, short, long,
	hint string) *cobra.Command {
	d := mirror.RolloutDecision{Verb: verb}
	cmd := &cobra.Command{
		Use: string(verb) + " TENANT/DEPLOYMENT", Short: short, Long: long,
		Example: "  argosy rollouts " + string(verb) + " acme/checkout --reason 'incident 42'",
		Args:    exactly("TENANT/DEPLOYMENT"),
	}
	cmd.Flags().StringVar(&d.Reason, "reason", "", "reason, for the record")
	var yes bool
	if verb == mirror.ApproveRollout {
		addYes(cmd, &yes)
	}
	a.completeOne(cmd, "rollouts")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := rolloutOf(args[0])
		if err != nil {
			return err
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		if verb == mirror.ApproveRollout && !yes {
			if err := a.confirmWave(cmd.Context(), c, id); err != nil {
				return err
			}
		}
		d.Tenant, d.Deployment = id.Tenant, id.Name
		if _, err := c.DecideRollout(cmd.Context(), d); err != nil {
			return err
		}
		err = a.printLine("%s the rollout of %s", done, id)
		a.hint(hint, id)
		return err
	}
	return cmd
}

// rolloutOf returns the deployment that a person names.
func rolloutOf(name string) (fleet.DeploymentID, error) {
	tenant, deployment, ok := strings.Cut(name, "/")
	if !ok || tenant == "" || deployment == "" || strings.Contains(deployment, "/") {
		return fleet.DeploymentID{}, fmt.Errorf("rollout %q: write tenant/deployment, such as "+
			"acme/checkout", name)
	}
	return fleet.DeploymentID{Tenant: fleet.TenantName(tenant),
		Name: fleet.DeploymentName(deployment)}, nil
}

var rolloutColumns = []column[mirror.Rollout]{
	{head: "ROLLOUT", of: func(r mirror.Rollout, _ time.Time) table.Value {
		return table.Text(r.Of().String())
	}},
	{head: "STATE", of: func(r mirror.Rollout, _ time.Time) table.Value {
		return table.State(r.State)
	}},
	{head: "WAVE", of: func(r mirror.Rollout, _ time.Time) table.Value {
		return table.Text(waveReached(r))
	}},
	{head: "HEALTHY", of: func(r mirror.Rollout, _ time.Time) table.Value {
		n := 0
		for _, m := range r.Members {
			if m.State == mirror.MemberHealthy {
				n++
			}
		}
		return table.Text(fmt.Sprintf("%d/%d", n, len(r.Members)))
	}},
	{head: "COMMIT", of: func(r mirror.Rollout, _ time.Time) table.Value {
		return table.Text(r.Revision.Short())
	}},
	{head: "AGE", of: func(r mirror.Rollout, now time.Time) table.Value {
		return age(r.BegunAt, now)
	}},
	{head: "ID", wide: true, of: func(r mirror.Rollout, _ time.Time) table.Value {
		return table.Text(r.ID)
	}},
	{head: "MESSAGE", wide: true, of: func(r mirror.Rollout, _ time.Time) table.Value {
		return table.Text(r.Message)
	}},
}

// waveReached names the wave that is next or under way, or the last one that began before the
// Applications got their last good state back.
func waveReached(r mirror.Rollout) string {
	at := mirror.CurrentWave(r.Waves)
	if r.State == mirror.RolloutReturning || r.State == mirror.RolloutReturned {
		for i, w := range r.Waves {
			if w.State != mirror.WaveWaiting && w.State != mirror.WaveAwaits {
				at = i
			}
		}
	}
	if at < 0 {
		return fmt.Sprintf("%d/%d", len(r.Waves), len(r.Waves))
	}
	return fmt.Sprintf("%d/%d %s", at+1, len(r.Waves), r.Waves[at].Name)
}

var waveColumns = []column[waveRow]{
	{head: "WAVE", of: func(w waveRow, _ time.Time) table.Value {
		return table.Text(fmt.Sprintf("%d %s", w.n, w.Name))
	}},
	{head: "STATE", of: func(w waveRow, _ time.Time) table.Value { return table.State(w.State) }},
	{head: "SINCE", of: func(w waveRow, now time.Time) table.Value { return age(w.Since, now) }},
	{head: "HEALTHY", of: func(w waveRow, _ time.Time) table.Value {
		return table.Text(fmt.Sprintf("%d/%d", w.healthy, w.members))
	}},
	{head: "SOAK", of: func(w waveRow, _ time.Time) table.Value {
		return table.Text(w.Soak.Short())
	}},
	{head: "AT ONCE", of: func(w waveRow, _ time.Time) table.Value {
		return table.Text(w.MaxConcurrent)
	}},
	{head: "APPROVAL", of: func(w waveRow, _ time.Time) table.Value {
		switch {
		case w.ApprovedBy != "":
			return table.Text("by " + w.ApprovedBy)
		case w.Approval:
			return table.Text("needed")
		}
		return table.Text("")
	}},
}

// waveRow is a wave with the numbers of its Applications.
type waveRow struct {
	mirror.RolloutWave
	n, members, healthy int
}

// metricRow is a metric of a wave.
type metricRow struct {
	mirror.RolloutMetric
	wave string
}

func metricsOf(r mirror.Rollout) (all []metricRow) {
	for _, w := range r.Waves {
		for _, m := range w.Metrics {
			all = append(all, metricRow{RolloutMetric: m, wave: w.Name})
		}
	}
	return all
}

var metricColumns = []column[metricRow]{
	{head: "METRIC", of: func(m metricRow, _ time.Time) table.Value { return table.Text(m.Name) }},
	{head: "WAVE", of: func(m metricRow, _ time.Time) table.Value { return table.Text(m.wave) }},
	{head: "STATE", of: func(m metricRow, _ time.Time) table.Value { return table.State(m.State) }},
	{head: "SINCE", of: func(m metricRow, now time.Time) table.Value { return age(m.Since, now) }},
	{head: "MEASURED", of: func(m metricRow, now time.Time) table.Value {
		if m.MeasuredAt == nil {
			return table.Text("never")
		}
		return age(*m.MeasuredAt, now)
	}},
	{head: "MESSAGE", of: func(m metricRow, _ time.Time) table.Value {
		return table.Text(m.Message)
	}},
}

var memberColumns = []column[memberRow]{
	{head: "ENVIRONMENT", of: func(m memberRow, _ time.Time) table.Value {
		return table.Text(m.Environment)
	}},
	{head: "WAVE", of: func(m memberRow, _ time.Time) table.Value { return table.Text(m.wave) }},
	{head: "STATE", of: func(m memberRow, _ time.Time) table.Value { return table.State(m.State) }},
	{head: "SINCE", of: func(m memberRow, now time.Time) table.Value { return age(m.Since, now) }},
	{head: "MESSAGE", of: func(m memberRow, _ time.Time) table.Value {
		return table.Text(m.Message)
	}},
}

type memberRow struct {
	mirror.RolloutMember
	wave string
}

func describeRollout(ctx context.Context, c *client.Client, name string) (description, error) {
	id, err := rolloutOf(name)
	if err != nil {
		return description{}, err
	}
	found, err := c.Rollouts(ctx, view.Filter{Tenant: id.Tenant, Deployment: id.Name}, 1)
	if err != nil {
		return description{}, err
	}
	if len(found) == 0 {
		return description{}, fmt.Errorf("deployment %s has had no rollout: its changes reach all "+
			"environments at once, or it has not changed since it has spec.rollout", id)
	}
	r, now := found[0], time.Now()
	waves := make([]waveRow, len(r.Waves))
	for i, w := range r.Waves {
		waves[i] = waveRow{RolloutWave: w, n: i + 1}
	}
	members := make([]memberRow, len(r.Members))
	for i, m := range r.Members {
		members[i] = memberRow{RolloutMember: m}
		if m.Wave < len(waves) {
			members[i].wave = waves[m.Wave].Name
			waves[m.Wave].members++
			if m.State == mirror.MemberHealthy {
				waves[m.Wave].healthy++
			}
		}
	}
	var ended table.Value
	if r.EndedAt != nil {
		ended = ago(r.EndedAt, now)
	}
	sections := []section{
		{facts: []table.Fact{
			{Name: "Rollout", Value: table.Text(r.Of().String())},
			{Name: "ID", Value: table.Text(r.ID)},
			{Name: "State", Value: table.State(r.State)},
			{Name: "Message", Value: table.Text(r.Message)},
			{Name: "Commit", Value: table.Text(r.Revision)},
			{Name: "On failure", Value: table.Text(r.OnFailure)},
			{Name: "Begun", Value: ago(&r.BegunAt, now)},
			{Name: "Ended", Value: ended},
		}},
		{title: "Waves", table: tabulate(waves, waveColumns, true, now)},
	}
	if metrics := metricsOf(r); len(metrics) > 0 {
		sections = append(sections, section{title: "Metrics",
			table: tabulate(metrics, metricColumns, true, now)})
	}
	sections = append(sections, section{title: "Applications",
		table: tabulate(members, memberColumns, true, now)})
	return description{item: r, sections: sections}, nil
}
