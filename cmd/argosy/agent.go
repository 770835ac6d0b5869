package main

import (
	"github.com/spf13/cobra"
)

// agentCommand is everything about clusters that dial out: what people of the control plane do, and
// what runs on the cluster.
func (a *app) agentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "agent", Short: "Clusters that dial out: tokens to join with, and what runs there",
		Long: "A cluster behind a firewall joins with one command and a one-time token; from " +
			"then on its agent dials out over https. Make the token where\n" +
			"the control plane is known (token create), then run join on the cluster. See " +
			"`argosy get agents`.",
		Example: "  argosy agent token create acme/edge\n  argosy agent join --check " +
			"https://argosy.example.com\n  argosy agent join https://argosy.example.com " +
			"--token-file token",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.agentTokenCommand(), a.agentRevoke(), a.agentJoin(), a.agentManifest(),
		a.agentRun(), a.agentApprove())
	return cmd
}
