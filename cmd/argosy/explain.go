package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
)

func (a *app) explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain environment TENANT/NAME",
		Short: "Why an environment is on its engine, and what the alternatives were",
		Example: "  argosy explain environment acme/prod-eu\n  argosy explain environment " +
			"acme/prod-eu -o json",
		Args: exactly("environment", "TENANT/NAME"),
	}
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if kind, err := findResource(args[0]); err != nil || kind.plural != "environments" {
			return fmt.Errorf(
				"only environments are explained, and %q is none: argosy explain environment "+
					"TENANT/NAME", args[0])
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
		switch out.value {
		case "json":
			return writeJSON(a.out, p)
		case "yaml":
			return writeYAML(a.out, p)
		}
		return a.writeDescription(description{sections: []section{
			{facts: append([]table.Fact{{Name: "Environment", Value: table.Text(args[1])}},
				placementFacts(p)...)},
			{title: "Engines that were looked at, the best first", table: alternatives(p)},
		}})
	}
	return cmd
}

func alternatives(p fleet.Placement) table.Table {
	t := table.Table{Heads: []string{"ENGINE", "ELIGIBLE", "SCORE", "REASON"}}
	for _, alt := range p.Alternatives {
		eligible, score := table.Cell{Text: "no", Tone: table.Faint}, table.Cell{}
		if alt.Eligible {
			eligible, score = table.State("yes"), table.Cell{Text: fmt.Sprintf("%.3f", alt.Score)}
		}
		t.Rows = append(t.Rows, []table.Cell{table.Text(alt.Engine), eligible, score,
			table.Text(alt.Reason)})
	}
	return t
}
