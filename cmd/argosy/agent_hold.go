package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"argosy.dev/argosy/fleet/agent/edge"
)

func agentHoldCommand(a *app) *cobra.Command {
	var p place
	var until string
	var h edge.Hold
	var end bool
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Keep the agent from writing until a time, or show or end that",
		Args:  exactly(),
		Long: "For the admin of a cluster behind an agent: from a few seconds later until the given\n" +
			"time, the agent changes nothing, whatever the control plane asks for. The workloads\n" +
			"and their Argo CD run on, and the control plane shows the hold and its reason. The\n" +
			"agent applies the waiting changes when the hold ends.",
		Example: "  argosy agent hold --until 2026-12-24T06:00:00Z --reason 'stocktaking'\n" +
			"  argosy agent hold --until 8h --kubeconfig edge.kubeconfig\n" +
			"  argosy agent hold\n" +
			"  argosy agent hold --end",
	}
	p.kubeFlags(cmd)
	cmd.Flags().StringVar(&until, "until", "",
		"the end: a time such as 2026-12-24T06:00:00Z, or a duration from now such as 8h")
	cmd.Flags().StringVar(&h.Reason, "reason", "", "reason, for the people at the control plane")
	cmd.Flags().BoolVar(&end, "end", false, "end the hold now")
	cmd.MarkFlagsMutuallyExclusive("until", "end")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if until != "" {
			if h.Until, err = timeOf(until, time.Now()); err != nil {
				return err
			}
		} else if h.Reason != "" {
			return errors.New("--reason belongs to --until")
		}
		config, err := p.cluster()
		if err != nil {
			return err
		}
		kube, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		store := edge.ConfigMapStore(kube, p.install.Namespace, edge.DeletionsName)
		switch {
		case end:
			ended, err := edge.EndHold(cmd.Context(), store)
			if err == nil && !ended {
				return a.printLine("the agent is not held")
			}
			if err != nil {
				return err
			}
			return a.printLine("ended the hold; the agent goes on within seconds")
		case until == "":
			known, err := edge.ReadHold(cmd.Context(), store)
			switch {
			case err != nil:
				return err
			case !known.Active(time.Now()):
				return a.printLine("the agent is not held")
			}
			return a.printLine("%s", known)
		}
		h.By = first(a.getenv("USER"), a.getenv("LOGNAME"), "unknown")
		if err := edge.SetHold(cmd.Context(), store, h, time.Now()); err != nil {
			return err
		}
		return a.printLine("the agent writes nothing from a few seconds on until %s",
			h.Until.UTC().Format("2006-01-02 15:04 UTC"))
	}
	return cmd
}

// timeOf reads a time, or a duration from now.
func timeOf(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(d), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, fmt.Errorf("%q is no time: write one such as 2026-12-24T06:00:00Z, or a duration "+
			"such as 8h", s)
	}
	return t, nil
}
