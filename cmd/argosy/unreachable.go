package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// unreachable says that an environment's cluster cannot be read, and why; nothing while it can.
func unreachable(u *mirror.Unreachable, now time.Time) table.Cell {
	if u == nil {
		return table.Cell{}
	}
	text := fmt.Sprintf("%s for %s", u.Reason, fleet.Age(now.Sub(u.Since)))
	if u.Parked > 0 {
		text += fmt.Sprintf("; parked until the cluster answers: %d", u.Parked)
	}
	return table.Cell{Text: text, Tone: table.Bad}
}

func unreachableMessage(u *mirror.Unreachable) table.Cell {
	if u == nil {
		return table.Cell{}
	}
	return table.Text(u.Message)
}

// blocked says who decides about a deletion that waits for an unreachable cluster.
func blocked(v view.Application) table.Cell {
	if !v.DeletionBlocked {
		return table.Cell{}
	}
	return table.Cell{
		Tone: table.Bad,
		Text: fmt.Sprintf(
			"the cluster is unreachable; bring it back, or tenant %s or the platform runs: "+
				"argosy orphan %s/%s@%s --uid %s",
			v.Tenant, v.Tenant, v.Deployment, v.Environment, v.UID)}
}

func (a *app) abandonCommand() *cobra.Command {
	var uid, note string
	cmd := &cobra.Command{
		Use:   "orphan TENANT/DEPLOYMENT@ENVIRONMENT",
		Short: "Remove an Application whose deletion is blocked, and leave its workload running",
		Long: "A deletion is blocked when the environment's cluster has been unreachable for an " +
			"hour. This removes the Application from its engine\n" +
			"without the cluster: whatever runs there goes on, and nobody manages it any more. " +
			"It is recorded with your token's name.",
		Example: "  argosy describe application acme/checkout@prod-eu\n  argosy orphan " +
			"acme/checkout@prod-eu --uid 0b5f… --note 'the cluster is scrapped'",
		Args: exactly("TENANT/DEPLOYMENT@ENVIRONMENT"),
	}
	cmd.Flags().StringVar(&uid, "uid", "",
		"of the Application that was looked at, as `describe` shows it (required)")
	cmd.Flags().StringVar(&note, "note", "", "why, for those who read it later")
	_ = cmd.MarkFlagRequired("uid")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := applicationID(args[0])
		if err != nil {
			return err
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		if _, err := c.Abandon(cmd.Context(), wire.OrphanRequest{
			Tenant: id.Tenant, Deployment: id.Deployment, Environment: id.Environment, UID: uid,
			Note: note,
		}); err != nil {
			return err
		}
		return a.say("application %s is being removed; its workload is left running", id)
	}
	return cmd
}
