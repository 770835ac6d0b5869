package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// orphanName is how people name a stray, here and to remove-stray.
func orphanName(v view.Orphan) string {
	return string(v.Engine) + "/" + string(v.Kind) + "/" + v.Name
}

var orphanColumns = []column[view.Orphan]{
	{head: "STRAY", of: func(v view.Orphan, _ time.Time) table.Cell {
		return table.Text(orphanName(v))
	}},
	{head: "TENANT", of: func(v view.Orphan, _ time.Time) table.Cell {
		return table.Text(v.Tenant)
	}},
	{head: "UID", of: func(v view.Orphan, _ time.Time) table.Cell { return table.Text(v.UID) }},
	{head: "FOUND", of: func(v view.Orphan, now time.Time) table.Cell {
		return age(v.FoundAt, now)
	}},
	{head: "REMOVAL", of: func(v view.Orphan, _ time.Time) table.Cell {
		if v.RemovedAt == nil {
			return table.Cell{}
		}
		return table.Text(string(v.Deletion) + " by " + v.RemovedBy)
	}},
	{head: "ENVIRONMENT", wide: true, of: func(v view.Orphan, _ time.Time) table.Cell {
		return table.Text(v.Environment)
	}},
	{head: "DEPLOYMENT", wide: true, of: func(v view.Orphan, _ time.Time) table.Cell {
		return table.Text(v.Deployment)
	}},
	{head: "REVISION", wide: true, of: func(v view.Orphan, _ time.Time) table.Cell {
		return table.Text(v.Revision.Short())
	}},
	{head: "EPOCH", wide: true, of: func(v view.Orphan, _ time.Time) table.Cell {
		return table.Text(fmt.Sprint(v.Epoch))
	}},
}

func (a *app) removeOrphanCommand() *cobra.Command {
	var uid, deletion, note string
	cmd := &cobra.Command{
		Use:   "remove-stray ENGINE/KIND/NAME",
		Short: "Remove one live object that no declaration asks for, as `get strays` lists it",
		Long: "A stray runs on without a declaration. To keep it, declare it again. This " +
			"removes exactly the object of the UID: one that has taken\n" +
			"its name since stays. The removal is recorded with your token's name and counts " +
			"for the deletion guards.",
		Example: "  argosy get strays\n  argosy remove-stray " +
			"eu-1/Application/acme-web-prod-qi3qymh336happcb --uid 0b5f… --deletion Orphan",
		Args: exactly("ENGINE/KIND/NAME"),
	}
	cmd.Flags().StringVar(&uid, "uid", "", "of the object that was looked at (required)")
	cmd.Flags().StringVar(&deletion, "deletion", "",
		"Delete takes the workload along, Orphan leaves it running (required)")
	cmd.Flags().StringVar(&note, "note", "", "why, for those who read it later")
	_ = cmd.MarkFlagRequired("uid")
	_ = cmd.MarkFlagRequired("deletion")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		parts := strings.Split(args[0], "/")
		if len(parts) != 3 {
			return fmt.Errorf("%s: write ENGINE/KIND/NAME, as `argosy get strays` does", args[0])
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		done, err := c.RemoveOrphan(cmd.Context(), mirror.OrphanRemoval{
			Engine: fleet.EngineName(parts[0]), Kind: fleet.ObjectKind(parts[1]), Name: parts[2],
			UID: uid, Deletion: fleet.DeletionPolicy(deletion), Note: note,
		})
		if err != nil {
			return err
		}
		return a.say("stray %s is being removed", orphanName(done))
	}
	return cmd
}
