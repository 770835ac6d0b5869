package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// engineStates are the commands that write spec.state into the file of an Engine.
func engineStates(a *app) []*cobra.Command {
	return []*cobra.Command{
		engineStateCommand(a, "drain", fleet.EngineDraining,
			"Declare in the config repo's files that an engine is emptied",
			"When the change is merged, Argosy moves every environment of the engine to other\n"+
				"engines, within the budget Fleet.spec.placement.churn. `argosy simulate drain`\n"+
				"shows the moves beforehand, `argosy describe engine` the progress."),
		engineStateCommand(a, "cordon", fleet.EngineCordoned,
			"Declare in the config repo's files that an engine takes no new environment",
			"Its environments stay. On a draining engine, cordon ends the drain."),
		engineStateCommand(a, "uncordon", fleet.EngineActive,
			"Declare in the config repo's files that an engine takes environments again",
			"It ends a cordon or a drain. Moves under way end as usual, or are undone\n"+
				"(`argosy move environment`)."),
	}
}

func engineStateCommand(a *app, verb string, state fleet.EngineState, short,
	long string) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: verb + " ENGINE", Short: short,
		Long: "Writes spec.state: " + string(state) + " into fleet/engines/ENGINE.yaml, which you " +
			"commit.\n" + long,
		Example: "  argosy " + verb + " eu-1\n  argosy " + verb + " eu-1 --dir path/to/config-repo",
		Args:    exactly("ENGINE"),
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "folder of the config repo")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		where, err := pathOf(fleet.KindEngine, "", args[0])
		if err != nil {
			return err
		}
		file := filepath.Join(dir, filepath.FromSlash(where))
		before, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("%s: %w; --dir names the folder of the config repo", file,
				reason(err))
		}
		after, err := configschema.SetEngineState(before, state)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if bytes.Equal(before, after) {
			a.hint("%s declares spec.state: %s already", file, state)
			return nil
		}
		if err := replace(file, after); err != nil {
			return fmt.Errorf("%s: %w", file, reason(err))
		}
		a.hint("commit and merge it; nothing happens before")
		return a.printLine("%s", file)
	}
	return cmd
}

func pauseDrainCommand(a *app) *cobra.Command {
	p := mirror.DrainPause{}
	cmd := &cobra.Command{
		Use:   "pause-drain ENGINE",
		Short: "Request no further move off a draining engine",
		Long: "Moves under way end as usual. The pause survives restarts, and ends with\n" +
			"`argosy resume-drain` or when the engine is no longer declared Draining.",
		Example: "  argosy pause-drain eu-1 --reason 'incident 42'",
		Args:    exactly("ENGINE"),
	}
	cmd.Flags().StringVar(&p.Reason, "reason", "", "reason, for people who find it paused")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		p.Engine = fleet.EngineName(args[0])
		e, err := c.PauseDrain(cmd.Context(), p)
		if err != nil {
			return err
		}
		err = a.printLine("paused the drain of engine %s", e.Name)
		a.hint("end it with `argosy resume-drain %s`", e.Name)
		return err
	}
	return cmd
}

func resumeDrainCommand(a *app) *cobra.Command {
	p := mirror.DrainPause{}
	cmd := &cobra.Command{
		Use:   "resume-drain ENGINE",
		Short: "Let a drain go on that is paused, or stopped by moves that failed",
		Long: "It also requests the moves again that were undone or refused, and moves that wait\n" +
			"now no longer stop the drain.",
		Example: "  argosy resume-drain eu-1 --reason 'acme/prod is Synced again'",
		Args:    exactly("ENGINE"),
	}
	cmd.Flags().StringVar(&p.Reason, "reason", "", "reason, for the record")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		p.Engine = fleet.EngineName(args[0])
		e, err := c.ResumeDrain(cmd.Context(), p)
		if err != nil {
			return err
		}
		err = a.printLine("resumed the drain of engine %s", e.Name)
		a.hint("`argosy describe engine %s` shows its progress", e.Name)
		return err
	}
	return cmd
}
