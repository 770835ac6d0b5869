package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

func evacuateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "evacuate",
		Short:   "Give the environments of an engine that is gone or does not work other engines",
		Example: "  argosy evacuate engine eu-1 --confirm-gone eu-1",
	}
	cmd.AddCommand(evacuateEngineCommand(a))
	return cmd
}

func evacuateEngineCommand(a *app) *cobra.Command {
	var r mirror.EvacuationRequest
	cmd := &cobra.Command{
		Use:   "engine ENGINE (--confirm-gone ENGINE | --fence | --end)",
		Short: "Give the environments of an engine that is gone or does not work other engines",
		Long: "The other engines adopt the workloads, without the part of the engine, and without\n" +
			"touching a Pod. An environment that no other engine may have stays, with the reason.\n" +
			"Of an engine that does not answer, you confirm that it is gone. An engine that\n" +
			"answers and does not work is fenced: Argosy scales its application-controllers and\n" +
			"its ApplicationSet controller to zero, and evacuates it once no Pod of them is left.\n" +
			"If an engine comes back, Argosy first freezes what it has lost, and then removes it\n" +
			"from the engine, but no workload. --end undoes the evacuation while no environment\n" +
			"is elsewhere, readmits an engine that has lost everything, and lifts its fence.",
		Example: "  argosy evacuate engine eu-1 --confirm-gone eu-1 --reason 'the site burned'\n" +
			"  argosy evacuate engine eu-1 --fence --dry-run\n" +
			"  argosy evacuate engine eu-1 --fence --reason 'its controller is stuck'\n" +
			"  argosy describe engine eu-1\n" +
			"  argosy evacuate engine eu-1 --end",
		Args: exactly("ENGINE"),
	}
	cmd.Flags().StringVar((*string)(&r.ConfirmGone), "confirm-gone", "",
		"the engine's name again: no controller of its Argo CD runs any more")
	cmd.Flags().BoolVar(&r.Fence, "fence", false,
		"scale its controllers to zero first: its API server answers")
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false,
		"with --fence: print what would be scaled, or why it cannot be, and scale nothing")
	cmd.Flags().StringVar(&r.Reason, "reason", "", "reason, for the record")
	cmd.Flags().BoolVar(&r.End, "end", false, "end the evacuation, and lift the fence")
	cmd.MarkFlagsMutuallyExclusive("confirm-gone", "fence", "end")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Engine = fleet.EngineName(args[0])
		c, err := a.connect()
		if err != nil {
			return err
		}
		e, err := c.Evacuate(cmd.Context(), r)
		switch {
		case err != nil:
			return err
		case r.End:
			return a.printLine("ended the evacuation of engine %s", r.Engine)
		case r.DryRun && e.Fence != nil:
			return a.endOfCheck(cmd.Context(), c, e.Fence.ID)
		case r.Fence:
			err = a.printLine("engine %s is being fenced, and evacuated then", r.Engine)
		default:
			err = a.printLine("engine %s is being evacuated", r.Engine)
		}
		a.hint("`argosy describe engine %s` shows the progress, and what stays;\n"+
			"`argosy get moves` shows each environment", r.Engine)
		return err
	}
	return cmd
}

// endOfCheck prints the result of a fence's dry run, once the engine's worker has it.
func (a *app) endOfCheck(ctx context.Context, c *client.Client, operation string) error {
	for {
		o, err := c.Operation(ctx, operation)
		if err != nil {
			return err
		}
		if o.EndedAt != nil {
			if err := a.printLine("%s", o.Message); err != nil {
				return err
			}
			if o.State == mirror.OperationFailed {
				return findings{"the engine cannot be fenced"}
			}
			return nil
		}
		if !pacing.Sleep(ctx, time.Second) {
			return ctx.Err()
		}
	}
}

// fenceOf describes the fence of an engine; empty without one.
func fenceOf(f *mirror.Fence, now time.Time) table.Value {
	if f == nil {
		return table.Value{}
	}
	text := fmt.Sprintf("%s for %s, by %s", f.State, fleet.Age(now.Sub(f.Since)), f.By)
	if f.ProvenAt != nil {
		text += fmt.Sprintf(", proven %s ago", fleet.Age(now.Sub(*f.ProvenAt)))
	}
	for _, w := range f.Workloads {
		text += fmt.Sprintf("; %s %s had %d replicas", w.Kind, w.Name, w.Replicas)
	}
	if f.ConfirmedBy != "" {
		text += "; " + f.ConfirmedBy + " confirms that the engine is gone"
	}
	if f.Message != "" {
		text += "; " + f.Message
	}
	v := table.Value{Text: text, Tone: table.Busy}
	if f.State == mirror.FenceBroken {
		v.Tone = table.Bad
	}
	return v
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
