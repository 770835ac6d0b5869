package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet/mirror"
)

const sampleRebalance = "06h0ja8ghxdrp749mc73rf3jd0"

func acceptRebalanceCommand(a *app) *cobra.Command {
	return rebalanceCommand(a, "accept", "accepted",
		"Let the moves of a proposed rebalance happen",
		"Exactly its moves happen, in their order, within Fleet.spec.placement.churn.\n"+
			"Each is checked again before it begins, and left out if it is not right any more.",
		"moves begin within `spec.placement.churn`: `argosy describe rebalance %s`")
}

func rejectRebalanceCommand(a *app) *cobra.Command {
	return rebalanceCommand(a, "reject", "rejected",
		"End a rebalance, proposed or accepted",
		"Moves under way end as usual. For 24 hours, Argosy does not propose to relieve\n"+
			"the same engines.",
		"moves under way end as usual: `argosy describe rebalance %s`")
}

func pauseRebalanceCommand(a *app) *cobra.Command {
	return rebalanceCommand(a, "pause", "paused", "Request no further move of a rebalance",
		"Moves under way end as usual. The pause survives restarts.",
		"end it with `argosy resume-rebalance %s`")
}

func resumeRebalanceCommand(a *app) *cobra.Command {
	return rebalanceCommand(a, "resume", "resumed",
		"Let a rebalance go on that is paused, or stopped by moves that failed",
		"Moves that wait, were refused or were undone before no longer stop it.",
		"`argosy describe rebalance %s` shows its progress")
}

func rebalanceCommand(a *app, verb, done, short, long, hint string) *cobra.Command {
	var d mirror.RebalanceDecision
	cmd := &cobra.Command{
		Use: verb + "-rebalance ID", Short: short, Long: long,
		Example: "  argosy get rebalances\n  argosy " + verb + "-rebalance " + sampleRebalance +
			" --reason 'incident 42'",
		Args: exactly("ID"),
	}
	cmd.Flags().StringVar(&d.Reason, "reason", "", "reason, for the record")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		d.ID = args[0]
		if _, err := c.DecideRebalance(cmd.Context(), verb, d); err != nil {
			return err
		}
		err = a.printLine("%s rebalance %s", done, d.ID)
		a.hint(hint, d.ID)
		return err
	}
	return cmd
}

var rebalanceColumns = []column[mirror.Rebalance]{
	{head: "ID", of: func(r mirror.Rebalance, _ time.Time) table.Value { return table.Text(r.ID) }},
	{head: "STATE", of: func(r mirror.Rebalance, _ time.Time) table.Value {
		return table.State(r.State)
	}},
	{head: "MOVED", of: func(r mirror.Rebalance, _ time.Time) table.Value {
		moved := 0
		for _, m := range r.Moves {
			if m.State == mirror.RebalanceMoveMoved {
				moved++
			}
		}
		return table.Value{Text: fmt.Sprintf("%d/%d", moved, len(r.Moves))}
	}},
	{head: "FROM", of: func(r mirror.Rebalance, _ time.Time) table.Value {
		return enginesOf(r, func(m mirror.RebalanceMove) string { return string(m.From) })
	}},
	{head: "TO", of: func(r mirror.Rebalance, _ time.Time) table.Value {
		return enginesOf(r, func(m mirror.RebalanceMove) string { return string(m.To) })
	}},
	{head: "AGE", of: func(r mirror.Rebalance, now time.Time) table.Value {
		return age(r.ProposedAt, now)
	}},
	{head: "ACCEPTED BY", of: func(r mirror.Rebalance, _ time.Time) table.Value {
		return table.Text(r.AcceptedBy)
	}},
	{head: "MESSAGE", of: func(r mirror.Rebalance, _ time.Time) table.Value {
		return table.Text(r.Message)
	}},
}

// enginesOf lists one engine of each move, each once.
func enginesOf(r mirror.Rebalance, of func(mirror.RebalanceMove) string) table.Value {
	var names []string
	seen := map[string]bool{}
	for _, m := range r.Moves {
		if name := of(m); !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return table.Text(strings.Join(names, ","))
}

var rebalanceMoveColumns = []column[mirror.RebalanceMove]{
	{head: "ENVIRONMENT", of: func(m mirror.RebalanceMove, _ time.Time) table.Value {
		return table.Text(m.Environment.String())
	}},
	{head: "APPLICATIONS", of: func(m mirror.RebalanceMove, _ time.Time) table.Value {
		return count(m.Applications)
	}},
	{head: "FROM", of: func(m mirror.RebalanceMove, _ time.Time) table.Value {
		return table.Text(m.From)
	}},
	{head: "TO", of: func(m mirror.RebalanceMove, _ time.Time) table.Value {
		return table.Text(m.To)
	}},
	{head: "MOVE", of: func(m mirror.RebalanceMove, _ time.Time) table.Value {
		return table.State(m.State)
	}},
	{head: "MESSAGE", of: func(m mirror.RebalanceMove, _ time.Time) table.Value {
		return table.Text(m.Message)
	}},
}

var rebalanceEngineColumns = []column[mirror.RebalanceEngine]{
	{head: "ENGINE", of: func(e mirror.RebalanceEngine, _ time.Time) table.Value {
		return table.Text(e.Engine)
	}},
	{head: "CPU", of: func(e mirror.RebalanceEngine, _ time.Time) table.Value {
		return proposedCPU(e, e.CPUBefore)
	}},
	{head: "AFTER", of: func(e mirror.RebalanceEngine, _ time.Time) table.Value {
		return proposedCPU(e, e.CPUAfter)
	}},
	{head: "APPLICATIONS", of: func(e mirror.RebalanceEngine, _ time.Time) table.Value {
		return table.Number(e.Before.Applications)
	}},
	{head: "AFTER", of: func(e mirror.RebalanceEngine, _ time.Time) table.Value {
		return table.Value{Text: fmt.Sprintf("%d/%d", e.After.Applications,
			e.Capacity.Applications)}
	}},
}

func proposedCPU(e mirror.RebalanceEngine, cores float64) table.Value {
	mark := ""
	if e.Estimated {
		mark = "~"
	}
	return table.Value{Text: fmt.Sprintf("%s%.2f", mark, cores)}
}

func describeRebalance(ctx context.Context, c *client.Client, id string) (description, error) {
	r, err := c.Rebalance(ctx, id)
	if err != nil {
		return description{}, err
	}
	now := time.Now()
	var accepted, ended table.Value
	if r.AcceptedAt != nil {
		accepted = ago(r.AcceptedAt, now)
	}
	if r.EndedAt != nil {
		ended = ago(r.EndedAt, now)
	}
	return description{item: r, sections: []section{
		{facts: []table.Fact{
			{Name: "Rebalance", Value: table.Text(r.ID)},
			{Name: "State", Value: table.State(r.State)},
			{Name: "Message", Value: table.Text(r.Message)},
			{Name: "Proposed", Value: ago(&r.ProposedAt, now)},
			{Name: "Accepted", Value: accepted},
			{Name: "Accepted by", Value: table.Text(r.AcceptedBy)},
			{Name: "Ended", Value: ended},
		}},
		{title: "Moves, in their order",
			table: tabulate(r.Moves, rebalanceMoveColumns, true, now)},
		{title: "Engines, as proposed",
			table: tabulate(r.Engines, rebalanceEngineColumns, true, now)},
	}}, nil
}
