package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/placement"
)

func simulateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "simulate CHANGE ENGINE",
		Short: "Show what a change of an engine would move, before anything moves",
		Long: "Shows the environments that would move, in the order in which they move, the\n" +
			"load of each engine before and after, and the environments that no engine can\n" +
			"take. Exit code 1: there are such environments.",
		Example: "  argosy simulate drain eu-1\n" +
			"  argosy simulate join eu-4 --like eu-1\n" +
			"  argosy simulate scale eu-1 --applications 3000",
	}
	cmd.AddCommand(
		simulateChange(a, placement.Drain, "Empty an engine",
			"Every environment of the engine moves to another one, the riskiest last."),
		simulateChange(a, placement.Lose, "Lose an engine",
			"Every environment of the engine goes to another one, as if the engine were gone."),
		simulateChange(a, placement.Join, "Let an engine join",
			"A declared engine becomes Active, or --like names the declared engine whose\n"+
				"region, labels, taints and capacity the new one has. It takes environments from\n"+
				"the fullest engines until its load is near the average."),
		simulateChange(a, placement.Scale, "Give an engine another capacity",
			"The engine takes environments, or gives some away, until its load is near the\n"+
				"average."),
		simulateChange(a, placement.Rebalance, "Relieve the engines with a high measured load",
			"Engines that use more than 1.5 times the average CPU for their capacity give\n"+
				"environments away, until they use 1.25 times the average at most. The engines\n"+
				"need spec.metrics."))
	return cmd
}

func simulateChange(a *app, kind placement.ChangeKind, short, long string) *cobra.Command {
	change := placement.Change{Kind: kind}
	words, example := []string{"ENGINE"}, " eu-1"
	if kind == placement.Rebalance {
		words, example = nil, ""
	}
	cmd := &cobra.Command{
		Use:   strings.Join(append([]string{string(kind)}, words...), " "),
		Short: short, Long: long + "\nNothing moves.",
		Example: "  argosy simulate " + string(kind) + example + "\n" +
			"  argosy simulate " + string(kind) + example + " -o json",
		Args: exactly(words...),
	}
	if kind == placement.Join {
		cmd.Flags().StringVar((*string)(&change.Like), "like", "",
			"the declared engine that a new engine is like")
	}
	if kind == placement.Join || kind == placement.Scale {
		cmd.Flags().IntVar(&change.Capacity.Applications, "applications", 0,
			"its capacity of Applications; 0 keeps it")
		cmd.Flags().IntVar(&change.Capacity.Environments, "environments", 0,
			"its capacity of environments; 0 keeps it")
	}
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			change.Engine = fleet.EngineName(args[0])
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		found, err := c.Simulate(cmd.Context(), change)
		if err != nil {
			return err
		}
		if err := a.writeOutcome(found, out); err != nil {
			return err
		}
		if len(found.Left) > 0 {
			return findings{fmt.Sprintf("%s; no engine takes %s", moved(found),
				plural(len(found.Left), "environment"))}
		}
		a.hint("%s", moved(found))
		return nil
	}
	return cmd
}

func moved(o placement.Outcome) string {
	n := len(o.Moves)
	if n == 1 {
		return "1 environment would move"
	}
	return fmt.Sprintf("%d environments would move", n)
}

func (a *app) writeOutcome(o placement.Outcome, out *format) error {
	if done, err := a.structured(out, o); done {
		return err
	}
	return a.writeDescription(description{sections: []section{
		{table: effects(o)}, {title: "Moves", table: moves(o)},
		{title: "No engine takes", table: left(o)}}})
}

// effects shows the engines whose load changes.
func effects(o placement.Outcome) table.Table {
	t := table.Table{Heads: []string{"ENGINE", "STATE", "APPLICATIONS", "AFTER", "ENVIRONMENTS",
		"AFTER"}}
	rebalance := o.Kind == placement.Rebalance
	if rebalance {
		t.Heads = append(t.Heads, "CPU", "AFTER")
	}
	for _, e := range o.Engines {
		if e.Before == e.After && e.Engine != o.Engine && !rebalance {
			continue
		}
		row := []table.Value{table.Text(e.Engine), table.State(e.State),
			table.Number(e.Before.Applications),
			used(e.After.Applications, e.Capacity.Applications),
			table.Number(e.Before.Environments),
			used(e.After.Environments, e.Capacity.Environments)}
		if e.Measured != nil {
			row = append(row, cores(e.Measured.Before, e.Measured.Estimated),
				cores(e.Measured.After, e.Measured.Estimated))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// cores shows the CPU of an engine; "~" marks an estimate by its Applications.
func cores(n float64, estimated bool) table.Value {
	if estimated {
		return table.Text(fmt.Sprintf("~%.2f", n))
	}
	return table.Text(fmt.Sprintf("%.2f", n))
}

func moves(o placement.Outcome) table.Table {
	t := table.Table{Heads: []string{"ENVIRONMENT", "APPLICATIONS", "NOT READY", "FROM", "TO"}}
	for _, m := range o.Moves {
		t.Rows = append(t.Rows, []table.Value{table.Text(m.Environment.String()),
			table.Number(m.Applications), count(m.Unready), table.Text(m.From), table.Text(m.To)})
	}
	return t
}

func left(o placement.Outcome) table.Table {
	t := table.Table{Heads: []string{"ENVIRONMENT", "APPLICATIONS", "ENGINE", "REASON"}}
	for _, l := range o.Left {
		t.Rows = append(t.Rows, []table.Value{table.Text(l.Environment.String()),
			table.Number(l.Applications), table.Text(l.Engine), table.Text(l.Reason)})
	}
	return t
}
