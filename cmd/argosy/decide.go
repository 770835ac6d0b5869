package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func (a *app) approveCommand() *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:   "approve REVISION",
		Short: "Release what a revision holds, exactly as `get holds` lists it",
		Long: "A hold is a change that the guards keep back: too many deletions, an empty " +
			"source, a history that was rewritten. The approval is bound to\n" +
			"the revision and is recorded with your token's name. REVISION is a commit id of " +
			"the config repo, in full or at least 7 digits of it.",
		Example: "  argosy get holds\n  argosy approve 4f1c9e2a --note 'planned: team x has left'",
		Args:    exactly("REVISION"),
	}
	cmd.Flags().StringVar(&note, "note", "", "why, for those who read it later")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		revision := fleet.Revision(args[0])
		if len(revision) < 40 {
			holds, err := c.Holds(cmd.Context(), view.Filter{}, 0)
			if err != nil {
				return err
			}
			revision, err = pick(args[0], holds, func(h mirror.Hold) fleet.Revision {
				return h.Revision
			})
			if errors.Is(err, errNoRevision) {
				return fmt.Errorf(
					"revision %s: nothing of it waits for an approval; see `argosy get holds`",
					args[0])
			}
			if err != nil {
				return err
			}
		}
		done, err := c.Approve(cmd.Context(), wire.ApproveRequest{Revision: revision, Note: note})
		if err != nil {
			return err
		}
		for _, h := range done.Holds {
			what := fmt.Sprintf("%d objects", len(h.Items))
			if n := len(h.Paths); n > 0 {
				what = fmt.Sprintf("%d files, %s", n, what)
			}
			if err := a.say("approved %s: %s (%s)", h.Revision.Short(), h.Reason,
				what); err != nil {
				return err
			}
			for _, item := range h.Items {
				a.hint("  %s %s on %s", item.Kind, item.Name, item.Engine)
			}
			for _, path := range h.Paths {
				a.hint("  %s", path)
			}
		}
		return nil
	}
	return cmd
}

// coverage is what --tenant and --engine say a stop covers; neither: the fleet.
type coverage struct{ tenant, engine string }

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

func (a *app) stopCommand() *cobra.Command {
	var over coverage
	var reason string
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Forbid every write to engines, at once: the emergency stop",
		Long: "Without --tenant or --engine the whole fleet is stopped. What runs goes on " +
			"running; nothing is created, changed or deleted any more until\n" +
			"`argosy resume`. A stop survives restarts.",
		Example: "  argosy stop --reason 'incident 42'\n  argosy stop --tenant acme --reason " +
			"'bad rollout'\n  argosy stop --engine eu-1",
		Args: exactly(),
	}
	over.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who find it stopped")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		scope, name := over.scope()
		inForce, err := c.Stop(cmd.Context(), wire.StopRequest{Scope: scope, Name: name,
			Reason: reason})
		if err != nil {
			return err
		}
		err = a.say("stopped %s", covers(scope, name))
		a.hint("by %s; end it with `%s`", inForce.By, resumeLine(scope, name))
		return err
	}
	return cmd
}

func resumeLine(scope mirror.StopScope, name string) string {
	if name == "" {
		return "argosy resume"
	}
	return fmt.Sprintf("argosy resume --%s %s", scope, name)
}

func (a *app) resumeCommand() *cobra.Command {
	var over coverage
	cmd := &cobra.Command{
		Use:     "resume",
		Short:   "End a stop",
		Example: "  argosy get stops\n  argosy resume\n  argosy resume --tenant acme",
		Args:    exactly(),
	}
	over.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		scope, name := over.scope()
		done, err := c.Resume(cmd.Context(), wire.ResumeRequest{Scope: scope, Name: name})
		if err != nil {
			return err
		}
		text := "resumed"
		if !done.Ended {
			text = "was not stopped:"
		}
		if err := a.say("%s %s", text, covers(scope, name)); err != nil {
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
