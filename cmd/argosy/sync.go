package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

func (a *app) syncCommand() *cobra.Command {
	var ask wire.OwnSyncRequest
	cmd := &cobra.Command{
		Use:   "sync TENANT/ENV APPLICATION",
		Short: "Ask an autonomous cluster to sync one of its own Applications",
		Long: "Only Applications that an autonomous cluster's own people made are synced this " +
			"way (`argosy get applications` marks them own); those of the config\n" +
			"repo are synced by a SyncRun in it. APPLICATION is a name, or NAMESPACE/NAME where " +
			"a name stands in several namespaces. The cluster's agent asks\n" +
			"its Argo CD; how it ends is in `argosy get operations`.",
		Example: "  argosy sync acme/edge shop\n  argosy sync acme/edge argocd/shop --revision " +
			"v1.4.0 --prune",
		Args: exactly("TENANT/ENV", "APPLICATION"),
	}
	cmd.Flags().StringVar(&ask.Revision, "revision", "",
		"of the Application's repository (default: what its targetRevision says)")
	cmd.Flags().BoolVar(&ask.Prune, "prune", false, "delete what its repository no longer has")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		tenant, environment, err := twoParts("environment", args[0])
		if err != nil {
			return err
		}
		id := fleet.EnvironmentID{Tenant: tenant, Name: fleet.EnvironmentName(environment)}
		c, err := a.connect()
		if err != nil {
			return err
		}
		own, err := c.OwnApplications(cmd.Context(), view.Filter{
			Tenant: id.Tenant, Environment: id.Name}, 0)
		if err != nil {
			return err
		}
		target, err := pickOwn(own, id, args[1])
		if err != nil {
			return err
		}
		asked, err := c.SyncOwn(cmd.Context(), id, target.Namespace, target.Name, ask)
		if err != nil {
			return err
		}
		err = a.say("asked for a sync of %s/%s on %s: %s", target.Namespace, target.Name, id,
			asked.State)
		a.hint("see how it ends with `argosy get operations --tenant %s`", id.Tenant)
		return err
	}
	return cmd
}

// pickOwn is the own Application that a person means.
func pickOwn(own []view.Own, id fleet.EnvironmentID, name string) (found view.Own,
	err error) {
	namespace, short, both := strings.Cut(name, "/")
	if !both {
		namespace, short = "", name
	}
	for _, o := range own {
		if o.Name != short || both && o.Namespace != namespace {
			continue
		}
		if found.Name != "" {
			return found, fmt.Errorf("%s has %s in namespaces %s and %s: write it as NAMESPACE/%s",
				id, short, found.Namespace, o.Namespace, short)
		}
		found = o
	}
	if found.Name == "" {
		return found,
			fmt.Errorf(
				"%s has no own Application %s; see `argosy get applications --tenant %s "+
					"--environment %s`. Those of the config repo are synced by a SyncRun",
				id, name, id.Tenant, id.Name)
	}
	return found, nil
}
