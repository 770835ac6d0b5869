package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func releaseCommand(a *app) *cobra.Command {
	var note string
	var yes bool
	cmd := &cobra.Command{
		Use:   "release REVISION",
		Short: "Release the held changes of a revision, exactly as `get holds` lists them",
		Long: "The guards hold a change with too many deletions, an empty source or a rewritten\n" +
			"history, and a freeze holds the changes to its environments. The platform\n" +
			"releases them all; with a token of an owner, a tenant releases what its own\n" +
			"freezes hold. A release is bound to the revision and recorded with your token's\n" +
			"name. On a terminal the command lists the changes first, and asks.\n" +
			"REVISION is a commit id of the config repo, in full or at least its first 7\n" +
			"digits.",
		Example: "  argosy get holds\n  argosy release 4f1c9e2a --note 'planned: team x has left'",
		Args:    exactly("REVISION"),
	}
	cmd.Flags().StringVar(&note, "note", "", "reason, for the record")
	addYes(cmd, &yes)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		revision, asks := fleet.Revision(args[0]), !yes && isTerminal(a.in)
		var holds []mirror.Hold
		if len(revision) < 40 || asks {
			if holds, err = c.Holds(cmd.Context(), view.Filter{}, 0); err != nil {
				return err
			}
		}
		if len(revision) < 40 {
			revision, err = pick(args[0], holds, func(h mirror.Hold) fleet.Revision {
				return h.Revision
			})
			if errors.Is(err, errNoRevision) {
				return fmt.Errorf("revision %s holds no change that this token may see; see "+
					"`argosy get holds`", args[0])
			}
			if err != nil {
				return err
			}
		}
		if asks {
			if err := a.confirmRelease(holds, revision); err != nil {
				return err
			}
		}
		done, err := c.Approve(cmd.Context(), wire.ApproveRequest{Revision: revision, Note: note})
		if err != nil {
			return err
		}
		for _, h := range done.Holds {
			what := plural(len(h.Items), "object")
			if n := len(h.Paths); n > 0 {
				what = plural(n, "file") + ", " + what
			}
			if err := a.printLine("released %s: %s (%s)", h.Revision.Short(), h.Reason,
				what); err != nil {
				return err
			}
			a.showHeldChanges(h)
		}
		return nil
	}
	return cmd
}

// coverage holds --tenant and --engine of a stop; without them it covers the fleet.
type coverage struct{ tenant, engine string }

func stopCommand(a *app) *cobra.Command {
	var over coverage
	var reason string
	var yes bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop every write to engines at once (emergency stop)",
		Long: "Without --tenant or --engine it stops the whole fleet. Workloads keep running;\n" +
			"Argosy creates, changes and deletes nothing until `argosy resume`. A stop\n" +
			"survives restarts. The command lists the tenants and engines that it covers with\n" +
			"the number of their Applications, and asks; a script needs --yes, which reads\n" +
			"nothing first.",
		Example: "  argosy stop --reason 'incident 42'\n" +
			"  argosy stop --tenant acme --reason 'bad rollout'\n" +
			"  argosy stop --engine eu-1 --yes",
		Args: exactly(),
	}
	over.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for people who find it stopped")
	addYes(cmd, &yes)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		scope, name := over.scope()
		if !yes {
			if err := a.confirmStop(cmd.Context(), c, scope, name); err != nil {
				return err
			}
		}
		inForce, err := c.Stop(cmd.Context(), wire.StopRequest{
			Scope: scope, Name: name, Reason: reason})
		if err != nil {
			return err
		}
		err = a.printLine("stopped %s", covers(scope, name))
		a.hint("by %s; end it with `%s`", inForce.By, resumeLine(scope, name))
		return err
	}
	return cmd
}

func resumeCommand(a *app) *cobra.Command {
	var over coverage
	var yes bool
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "End an emergency stop",
		Long: "Argosy writes again what has changed meanwhile. On a terminal the command lists the\n" +
			"tenants and engines that it covers first, and asks.",
		Example: "  argosy get stops\n  argosy resume\n  argosy resume --tenant acme",
		Args:    exactly(),
	}
	over.flags(cmd)
	addYes(cmd, &yes)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		scope, name := over.scope()
		if !yes {
			if err := a.confirmResume(cmd.Context(), c, scope, name); err != nil {
				return err
			}
		}
		done, err := c.Resume(cmd.Context(), wire.ResumeRequest{Scope: scope, Name: name})
		if err != nil {
			return err
		}
		text := "resumed"
		if !done.Ended {
			text = "was not stopped:"
		}
		if err := a.printLine("%s %s", text, covers(scope, name)); err != nil {
			return err
		}
		for _, s := range done.Stops {
			a.hint("still stopped: %s (by %s); end it with `%s`", covers(s.Scope, s.Name), s.By,
				resumeLine(s.Scope, s.Name))
		}
		return nil
	}
	return cmd
}

func (v *coverage) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&v.tenant, "tenant", "", "this tenant only")
	cmd.Flags().StringVar(&v.engine, "engine", "", "this engine only")
	cmd.MarkFlagsMutuallyExclusive("tenant", "engine")
}

func (v *coverage) scope() (mirror.StopScope, string) {
	switch {
	case v.tenant != "":
		return mirror.StopTenant, v.tenant
	case v.engine != "":
		return mirror.StopEngine, v.engine
	}
	return mirror.StopFleet, ""
}

func covers(scope mirror.StopScope, name string) string {
	if name == "" {
		return "the whole fleet"
	}
	return string(scope) + " " + name
}

func resumeLine(scope mirror.StopScope, name string) string {
	if name == "" {
		return "argosy resume"
	}
	return fmt.Sprintf("argosy resume --%s %s", scope, name)
}

func abandonCommand(a *app) *cobra.Command {
	var uid, note string
	cmd := &cobra.Command{
		Use:   "abandon TENANT/DEPLOYMENT@ENVIRONMENT",
		Short: "Remove an Application whose deletion is blocked, without its unreachable cluster",
		Long: "A deletion is blocked when the environment's cluster has been unreachable for an\n" +
			"hour. The command removes the Application from its engine alone: its workload\n" +
			"keeps running, and Argo CD no longer manages it. The removal is recorded with\n" +
			"your token's name.",
		Example: "  argosy describe application acme/checkout@prod-eu\n" +
			"  argosy abandon acme/checkout@prod-eu --uid 0b5f… --note 'the cluster is scrapped'",
		Args: exactly("TENANT/DEPLOYMENT@ENVIRONMENT"),
	}
	cmd.Flags().StringVar(
		&uid, "uid", "", "UID of the Application, as `describe` shows it (required)")
	cmd.Flags().StringVar(&note, "note", "", "reason, for the record")
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
		return a.printLine("removing application %s; its workload keeps running", id)
	}
	return cmd
}

func removeOrphanCommand(a *app) *cobra.Command {
	var uid, deletion, note string
	cmd := &cobra.Command{
		Use:   "remove-orphan ENGINE/KIND/NAME",
		Short: "Remove one live object without a declaration, as `get orphans` lists it",
		Long: "An orphan keeps running without a declaration. To keep it, declare it again. The\n" +
			"command removes exactly the object with the UID, never a later one of the same\n" +
			"name. The removal is recorded with your token's name and counts for the deletion\n" +
			"guards.",
		Example: "  argosy get orphans\n" +
			"  argosy remove-orphan eu-1/Application/acme-web-prod-qi3qymh336happcb --uid 0b5f… " +
			"--deletion Orphan",
		Args: exactly("ENGINE/KIND/NAME"),
	}
	cmd.Flags().StringVar(
		&uid, "uid", "", "UID of the object, as `get orphans` shows it (required)")
	cmd.Flags().StringVar(&deletion, "deletion", "",
		"Delete also deletes the workload, Orphan leaves it running (required)")
	cmd.Flags().StringVar(&note, "note", "", "reason, for the record")
	_ = cmd.MarkFlagRequired("uid")
	_ = cmd.MarkFlagRequired("deletion")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		parts := strings.Split(args[0], "/")
		if len(parts) != 3 {
			return fmt.Errorf("%s: write ENGINE/KIND/NAME, as in `argosy get orphans`", args[0])
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
		return a.printLine("removing orphan %s", orphanName(done))
	}
	return cmd
}

func pinOwnerCommand(a *app) *cobra.Command {
	var id int64
	var note string
	cmd := &cobra.Command{
		Use:   "pin-owner NAME",
		Short: "Pin an owner's name to the account or team that has it now",
		Long: "An owner's name is pinned to the account or team that had it at the first\n" +
			"lookup. If the name changes hands, the new holder does not count until you have\n" +
			"verified who it is. `argosy get owners` lists the numbers; the command pins\n" +
			"the name to exactly the given one.",
		Example: "  argosy get owners\n" +
			"  argosy pin-owner alice --id 4711 --note \"her new account; asked in person\"",
		Args: exactly("NAME"),
	}
	cmd.Flags().Int64Var(&id, "id", 0, "number of the verified account or team (required)")
	cmd.Flags().StringVar(&note, "note", "", "reason, for the record")
	_ = cmd.MarkFlagRequired("id")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		done, err := c.ReleaseOwner(cmd.Context(), mirror.OwnerRelease{
			Name: strings.TrimPrefix(args[0], "github:"), ID: id, Note: note})
		if err != nil {
			return err
		}
		return a.printLine("owner %s is now pinned to number %d", done.Name, done.ID)
	}
	return cmd
}

func syncCommand(a *app) *cobra.Command {
	var ask wire.OwnSyncRequest
	var declared actionFlags
	cmd := &cobra.Command{}
	a.syncDeclared(cmd, &declared)
	cmd.Flags().StringVar(&ask.Revision, "revision", "",
		"revision of the Application's repository (default: its targetRevision)")
	cmd.Flags().BoolVar(&ask.Prune, "prune", false,
		"delete resources that its repository no longer has")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			declared.ask.Revision, declared.ask.Prune = ask.Revision, ask.Prune
			return a.act(cmd.Context(), mirror.ActionSync, args[0], &declared)
		}
		tenant, environment, err := twoParts("environment", args[0])
		if err != nil {
			return err
		}
		id := fleet.EnvironmentID{Tenant: tenant, Name: fleet.EnvironmentName(environment)}
		c, err := a.connect()
		if err != nil {
			return err
		}
		own, err := c.OwnApplications(
			cmd.Context(), view.Filter{Tenant: id.Tenant, Environment: id.Name}, 0)
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
		err = a.printLine("requested a sync of %s/%s on %s: %s", target.Namespace, target.Name, id,
			asked.State)
		a.hint("`argosy get operations --tenant %s` shows the result", id.Tenant)
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
			return found, fmt.Errorf("%s has %s in namespaces %s and %s: write NAMESPACE/%s", id,
				short, found.Namespace, o.Namespace, short)
		}
		found = o
	}
	if found.Name == "" {
		return found,
			fmt.Errorf(
				"%s has no own Application %s; see `argosy get applications --tenant %s "+
					"--environment %s`. A SyncRun syncs those of the config repo",
				id, name, id.Tenant, id.Name)
	}
	return found, nil
}
