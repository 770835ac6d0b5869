package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func evacuateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "evacuate",
		Short:   "Give the environments of an engine that is gone other engines",
		Example: "  argosy evacuate engine eu-1 --confirm-gone eu-1",
	}
	cmd.AddCommand(evacuateEngineCommand(a))
	return cmd
}

func evacuateEngineCommand(a *app) *cobra.Command {
	var r mirror.EvacuationRequest
	cmd := &cobra.Command{
		Use:   "engine ENGINE --confirm-gone ENGINE",
		Short: "Give the environments of an engine that is gone other engines",
		Long: "The other engines adopt the workloads, without the part of the engine that is gone\n" +
			"and without touching a Pod. An environment that no other engine may have stays, with\n" +
			"the reason. If the engine comes back, Argosy first freezes what it has lost, and then\n" +
			"removes it from the engine, but no workload. --end undoes the evacuation while no\n" +
			"environment is elsewhere, and readmits an engine that has lost everything.",
		Example: "  argosy evacuate engine eu-1 --confirm-gone eu-1 --reason 'the site burned'\n" +
			"  argosy describe engine eu-1\n" +
			"  argosy evacuate engine eu-1 --end",
		Args: exactly("ENGINE"),
	}
	cmd.Flags().StringVar((*string)(&r.ConfirmGone), "confirm-gone", "",
		"the engine's name again: no controller of its Argo CD runs any more")
	cmd.Flags().StringVar(&r.Reason, "reason", "", "reason, for the record")
	cmd.Flags().BoolVar(&r.End, "end", false, "end the evacuation")
	cmd.MarkFlagsMutuallyExclusive("confirm-gone", "end")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Engine = fleet.EngineName(args[0])
		c, err := a.connect()
		if err != nil {
			return err
		}
		if _, err := c.Evacuate(cmd.Context(), r); err != nil {
			return err
		}
		if r.End {
			return a.printLine("ended the evacuation of engine %s", r.Engine)
		}
		err = a.printLine("engine %s is being evacuated", r.Engine)
		a.hint("`argosy describe engine %s` shows the progress, and what stays;\n"+
			"`argosy get moves` shows each environment", r.Engine)
		return err
	}
	return cmd
}

// evacuationOf is how far an engine is evacuated; empty unless it is.
func evacuationOf(e *mirror.Evacuation, now time.Time) table.Value {
	if e == nil {
		return table.Value{}
	}
	text := fmt.Sprintf("%s for %s, by %s: %d environments elsewhere, %d Applications not adopted "+
		"yet, %d objects left here", e.State, fleet.Age(now.Sub(e.Since)), e.By, e.Away, e.Open,
		e.Objects)
	if e.ForgottenAt != nil {
		text += fmt.Sprintf("; forgotten %s ago by %s, %d objects unproven",
			fleet.Age(now.Sub(*e.ForgottenAt)), e.ForgottenBy, e.Unproven)
	}
	if e.Message != "" {
		text += "; " + e.Message
	}
	return table.Value{Text: text, Tone: table.Bad}
}
