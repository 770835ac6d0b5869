package main

import (
	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
)

func splitCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "split",
		Short:   "Split an environment over several engines",
		Example: "  argosy split environment acme/prod-eu --to eu-2",
	}
	cmd.AddCommand(splitEnvironmentCommand(a))
	return cmd
}

func splitEnvironmentCommand(a *app) *cobra.Command {
	ask := wire.MoveRequest{Split: true}
	var watch bool
	cmd := &cobra.Command{
		Use:   "environment TENANT/ENVIRONMENT --to ENGINE",
		Short: "Move half of an environment to another engine, without touching its workloads",
		Long: "An environment that is too large for one engine is split into slices. The names of\n" +
			"the deployments decide which slice has them, so about half of them move, by the\n" +
			"steps of a move. A slice can be split again, by its name. To undo a split under\n" +
			"way, move the slice back to the engine that it is leaving.",
		Example: "  argosy split environment acme/prod-eu --to eu-2 --dry-run\n" +
			"  argosy split environment acme/prod-eu --to eu-2 --watch\n" +
			"  argosy split environment acme/prod-eu --slice 0 --to eu-3\n" +
			"  argosy explain environment acme/prod-eu",
		Args: exactly("TENANT/ENVIRONMENT"),
	}
	sliceFlag(cmd, &ask.Slice, "the slice to split, if the environment is split already")
	moveFlags(cmd, &ask, &watch)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.move(cmd.Context(), args[0], ask, watch)
	}
	return cmd
}

func joinCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "join",
		Short:   "Join the slices of an environment on one engine",
		Example: "  argosy join environment acme/prod-eu --to eu-1",
	}
	cmd.AddCommand(joinEnvironmentCommand(a))
	return cmd
}

func joinEnvironmentCommand(a *app) *cobra.Command {
	var ask wire.MoveRequest
	var watch bool
	cmd := &cobra.Command{
		Use:   "environment TENANT/ENVIRONMENT --to ENGINE",
		Short: "Move all slices of an environment to one engine, which joins them",
		Long: "Each slice that is on another engine moves there, by the steps of a move. Two\n" +
			"halves on one engine are joined as soon as neither moves.",
		Example: "  argosy join environment acme/prod-eu --to eu-1 --dry-run\n" +
			"  argosy join environment acme/prod-eu --to eu-1 --watch",
		Args: exactly("TENANT/ENVIRONMENT"),
	}
	moveFlags(cmd, &ask, &watch)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		tenant, environment, err := twoParts("environment", args[0])
		if err != nil {
			return err
		}
		ask.Tenant, ask.Environment = tenant, fleet.EnvironmentName(environment)
		c, err := a.connect()
		if err != nil {
			return err
		}
		requested, err := c.Join(cmd.Context(), wire.JoinRequest{Tenant: ask.Tenant,
			Environment: ask.Environment, To: ask.To, Note: ask.Note, DryRun: ask.DryRun})
		if err != nil {
			return err
		}
		if len(requested.Operations) == 0 {
			return a.printLine("all slices of %s are on engine %s already", args[0], ask.To)
		}
		for _, operation := range requested.Operations {
			if ask.DryRun || watch {
				err = a.followMove(cmd.Context(), c, ask, operation)
			} else {
				err = a.begunMove(cmd.Context(), c, ask, operation)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func sliceFlag(cmd *cobra.Command, slice *fleet.Slice, help string) {
	cmd.Flags().StringVar((*string)(slice), "slice", "", help+" (digits 0 and 1)")
}

// inSlice names an environment, with the slice if it is split.
func inSlice(environment fleet.EnvironmentName, slice fleet.Slice) string {
	if slice == "" {
		return string(environment)
	}
	return string(environment) + " slice " + string(slice)
}
