package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/onsite"
	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/fleet/agent/edge"
)

// writesAtOnce is how many objects an agent writes at a time to its own Argo CD.
const writesAtOnce = 32

func (a *app) agentRun() *cobra.Command {
	var p place
	var hub, ops string
	log := settings.Log{Level: "info", Format: "text"}
	cmd := &cobra.Command{
		Use: "run", Short: "Run the agent, on the cluster that it is for", Args: exactly(),
		Long: "Follows the hub and brings the cluster's own Argo CD to what is declared, until " +
			"it is told to stop (SIGTERM, Ctrl-C). `argosy agent join` installs it as\n" +
			"a Deployment. It waits for an identity: one that join has made, or a " +
			"registrationToken in its Secret. While the hub cannot be reached everything stays\n" +
			"as it is. It ends by itself when somebody has to do something first, and says what.",
		Example: "  argosy agent run --hub https://argosy.example.com\n  argosy agent run --hub " +
			"https://argosy.example.com --kubeconfig edge.kubeconfig --ops 127.0.0.1:8081",
	}
	cmd.Flags().StringVar(&hub, "hub", "", "URL of the control plane (or ARGOSY_HUB)")
	cmd.Flags().StringVar(&ops, "ops", "127.0.0.1:8081",
		"host:port of /healthz, /readyz and /metrics; empty: none")
	cmd.Flags().StringVar(&log.Level, "log-level", log.Level, "debug, info, warn or error")
	cmd.Flags().StringVar(&log.Format, "log-format", log.Format, "text or json")
	p.kubeFlags(cmd)
	p.runFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if hub = first(hub, a.getenv("ARGOSY_HUB")); hub == "" {
			return errors.New(
				"--hub is required: the URL of the control plane, such as " +
					"https://argosy.example.com")
		}
		if err := log.Check(); err != nil {
			return err
		}
		s, err := p.settings(hub)
		if err != nil {
			return err
		}
		cluster, err := p.here()
		if err != nil {
			return err
		}
		made, err := onsite.New(onsite.Config{
			Hub: hub, Namespace: p.install.Namespace, ArgoCDNamespace: p.install.ArgoCDNamespace,
			CA: s.CA, Proxy: s.Proxy, MaxDeletions: p.install.MaxDeletions,
			NoSecrets: p.install.PublicOnly, InFlight: writesAtOnce, Cluster: cluster, Ops: ops,
			Version: s.Version, Log: log.Logger(a.err),
		})
		if err != nil {
			return err
		}
		return verdictOf(made.Run(cmd.Context()))
	}
	return cmd
}

// verdictOf is how a run ended: an identity that is refused is not allowed rather than wrong.
func verdictOf(err error) error {
	var ended *edge.TerminalError
	switch {
	case errors.As(err, &ended):
		return notAllowed{ended}
	case errors.Is(err, context.Canceled):
		return nil
	}
	return err
}
