package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/fleet/view"
)

func moveCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "move",
		Short:   "Move an environment to another engine",
		Example: "  argosy move environment acme/prod-eu --to eu-2",
	}
	cmd.AddCommand(moveEnvironmentCommand(a))
	return cmd
}

func moveEnvironmentCommand(a *app) *cobra.Command {
	var ask wire.MoveRequest
	var watch bool
	cmd := &cobra.Command{
		Use:   "environment TENANT/ENVIRONMENT --to ENGINE",
		Short: "Move an environment to another engine, without touching its workloads",
		Long: "The new engine first compares every Application. Only if it would change none\n" +
			"does the old engine let go of them. A move waits as long as an engine does not\n" +
			"answer; it never times out. With --to and the engine that the environment is\n" +
			"leaving, the command undoes the move, until the first Application has left.",
		Example: "  argosy move environment acme/prod-eu --to eu-2 --dry-run\n" +
			"  argosy move environment acme/prod-eu --to eu-2 --note 'eu-1 is drained' --watch\n" +
			"  argosy move environment acme/edge --to acme.edge    # to its own agent\n" +
			"  argosy describe move acme/prod-eu",
		Args: exactly("TENANT/ENVIRONMENT"),
	}
	sliceFlag(cmd, &ask.Slice, "of a split environment, the slice that moves")
	moveFlags(cmd, &ask, &watch)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.move(cmd.Context(), args[0], ask, watch)
	}
	return cmd
}

// moveFlags are the flags of each request for a move.
func moveFlags(cmd *cobra.Command, ask *wire.MoveRequest, watch *bool) {
	cmd.Flags().StringVar((*string)(&ask.To), "to", "", "the new engine (required)")
	cmd.Flags().StringVar(&ask.Note, "note", "", "reason, for the record")
	cmd.Flags().BoolVar(&ask.DryRun, "dry-run", false,
		"print the reasons against it, and move nothing")
	cmd.Flags().BoolVarP(watch, "watch", "w", false, "show the progress, until it has ended")
	_ = cmd.MarkFlagRequired("to")
}

// move requests one move, and shows what becomes of it.
func (a *app) move(ctx context.Context, name string, ask wire.MoveRequest, watch bool) error {
	tenant, environment, err := twoParts("environment", name)
	if err != nil {
		return err
	}
	ask.Tenant, ask.Environment = tenant, fleet.EnvironmentName(environment)
	c, err := a.connect()
	if err != nil {
		return err
	}
	requested, err := c.Move(ctx, ask)
	if err != nil {
		return err
	}
	if ask.DryRun || watch {
		return a.followMove(ctx, c, ask, requested.Operation)
	}
	return a.begunMove(ctx, c, ask, requested.Operation)
}

// begunMove waits until a move has begun or is refused.
func (a *app) begunMove(ctx context.Context, c *client.Client, ask wire.MoveRequest,
	operation string) error {
	o, err := takenUp(ctx, c, operation)
	switch {
	case err != nil:
		return err
	case o.EndedAt != nil:
		return a.endedMove(ask, o)
	case o.State == mirror.OperationPending:
		err = a.printLine("requested the move of %s to engine %s", subjectOf(ask), ask.To)
		a.hint("no plan has taken it up yet;\n"+
			"`argosy get operations --tenant %s -o wide` shows why a move is refused", ask.Tenant)
		return err
	}
	err = a.printLine("the move of %s to engine %s has begun", subjectOf(ask), ask.To)
	a.hint("`argosy describe move %s/%s` shows each step", ask.Tenant, ask.Environment)
	return err
}

// subjectOf names what a request moves: "acme/prod", "acme/prod slice 01", or "half of acme/prod".
func subjectOf(ask wire.MoveRequest) string {
	id := fleet.EnvironmentID{Tenant: ask.Tenant, Name: ask.Environment}.Slice(ask.Slice)
	if ask.Split {
		return "half of " + id.String()
	}
	return id.String()
}

// takenUp returns the operation of a move once a plan has begun or refused it, or after some
// seconds.
func takenUp(ctx context.Context, c *client.Client, operation string) (o mirror.Operation,
	err error) {
	const tries, pause = 40, 250 * time.Millisecond
	for range tries {
		if o, err = c.Operation(ctx, operation); err != nil || o.State != mirror.OperationPending {
			return o, err
		}
		if !pacing.Sleep(ctx, pause) {
			return o, ctx.Err()
		}
	}
	return o, nil
}

// followMove shows the progress of a move until it has ended.
func (a *app) followMove(ctx context.Context, c *client.Client, ask wire.MoveRequest,
	operation string) error {
	shown := ""
	for {
		o, err := c.Operation(ctx, operation)
		if err != nil {
			return err
		}
		if o.EndedAt != nil {
			if isTerminal(a.err) && shown != "" {
				fmt.Fprintln(a.err)
			}
			return a.endedMove(ask, o)
		}
		moves, err := c.Moves(ctx, view.Filter{Tenant: ask.Tenant, Environment: ask.Environment},
			1<<fleet.MaxSliceBits)
		if err != nil {
			return err
		}
		for _, m := range moves {
			if text := progress(m); m.Operation == operation && text != shown {
				shown = text
				a.showProgress(text)
			}
		}
		if !pacing.Sleep(ctx, time.Second) {
			return ctx.Err()
		}
	}
}

func (a *app) endedMove(ask wire.MoveRequest, o mirror.Operation) error {
	switch {
	case o.State == mirror.OperationFailed:
		for _, reason := range strings.Split(o.Message, "; ") {
			if err := a.printLine("%s", reason); err != nil {
				return err
			}
		}
		return findings{text: "the move cannot begin, or was undone"}
	case ask.DryRun:
		return a.printLine("%s", o.Message)
	}
	return a.printLine("moved %s to engine %s: %d Applications in %s", subjectOf(ask), ask.To,
		o.Done, o.EndedAt.Sub(o.StartedAt).Round(time.Second))
}

// showProgress replaces the line of the terminal, or prints another one.
func (a *app) showProgress(text string) {
	if isTerminal(a.err) {
		fmt.Fprintf(a.err, "\r\x1b[K%s", printable.Line(text))
		return
	}
	a.hint("%s", text)
}

// stepsOfMove are the steps of an Application in their order.
var stepsOfMove = []mirror.MoveStep{mirror.MoveCheck, mirror.MoveCompare, mirror.MoveReady,
	mirror.MoveFreeze, mirror.MoveAdopt, mirror.MoveDelete, mirror.MoveEnable, mirror.MoveDone}

// progress is a bar with the Applications that have moved, and what the slowest one waits for.
func progress(m view.Move) string {
	const width = 30
	if len(m.Applications) == 0 {
		return ""
	}
	ended, slowest := 0, m.Applications[0]
	for _, a := range m.Applications {
		at := slices.Index(stepsOfMove, a.Step)
		if ended += max(at, 0); at < slices.Index(stepsOfMove, slowest.Step) {
			slowest = a
		}
	}
	full := width * ended / (len(m.Applications) * (len(stepsOfMove) - 1))
	text := fmt.Sprintf("[%s%s] %d/%d", strings.Repeat("#", full), strings.Repeat(".", width-full),
		m.Done, m.Total)
	if slowest.Step != mirror.MoveDone {
		text += fmt.Sprintf(" %s: %s", slowest.Deployment, slowest.Step)
	}
	if slowest.Message != "" {
		text += " waits: " + slowest.Message
	}
	return text
}

var moveColumns = []column[view.Move]{
	{head: "TENANT", of: func(m view.Move, _ time.Time) table.Value {
		return table.Text(m.Tenant)
	}},
	{head: "ENVIRONMENT", of: func(m view.Move, _ time.Time) table.Value {
		return table.Text(inSlice(m.Environment, m.Slice))
	}},
	{head: "FROM", of: func(m view.Move, _ time.Time) table.Value { return table.Text(m.From) }},
	{head: "TO", of: func(m view.Move, _ time.Time) table.Value { return table.Text(m.To) }},
	{head: "STATE", of: func(m view.Move, _ time.Time) table.Value { return table.State(m.State) }},
	{head: "MOVED", of: func(m view.Move, _ time.Time) table.Value {
		return table.Value{Text: fmt.Sprintf("%d/%d", m.Done, m.Total)}
	}},
	{head: "STEP", of: func(m view.Move, _ time.Time) table.Value {
		return table.Text(earliestStep(m))
	}},
	{head: "AGE", of: func(m view.Move, now time.Time) table.Value {
		return age(m.StartedAt, now)
	}},
	{head: "BY", of: func(m view.Move, _ time.Time) table.Value {
		return table.Text(m.RequestedBy)
	}},
	{head: "MESSAGE", wide: true, of: func(m view.Move, _ time.Time) table.Value {
		return table.Text(m.Message)
	}},
}

// earliestStep is the step of the Application that is the furthest from its end.
func earliestStep(m view.Move) mirror.MoveStep {
	earliest := mirror.MoveDone
	for _, a := range m.Applications {
		if slices.Index(stepsOfMove, a.Step) < slices.Index(stepsOfMove, earliest) {
			earliest = a.Step
		}
	}
	return earliest
}

var movedColumns = []column[view.MovedApplication]{
	{head: "DEPLOYMENT", of: func(a view.MovedApplication, _ time.Time) table.Value {
		return table.Text(a.Deployment)
	}},
	{head: "STEP", of: func(a view.MovedApplication, _ time.Time) table.Value {
		return table.Text(a.Step)
	}},
	{head: "SINCE", of: func(a view.MovedApplication, now time.Time) table.Value {
		return age(a.Since, now)
	}},
	{head: "TOOK", of: func(a view.MovedApplication, _ time.Time) table.Value {
		return table.Value{Text: took(a.Took)}
	}},
	{head: "REASON", of: func(a view.MovedApplication, _ time.Time) table.Value {
		return table.Text(a.Message)
	}},
}

// took sums the seconds and the requests of each step that has ended.
func took(all []mirror.EndedStep) string {
	var parts []string
	for _, step := range append(slices.Clone(stepsOfMove), mirror.MoveReturn) {
		seconds, calls := 0.0, 0
		for _, s := range all {
			if s.Step == step {
				seconds, calls = seconds+s.Seconds, calls+s.Calls
			}
		}
		if calls > 0 {
			parts = append(parts, fmt.Sprintf("%s %.1fs/%d", step, seconds, calls))
		}
	}
	return strings.Join(parts, ", ")
}

func describeMove(ctx context.Context, c *client.Client, name string) (description, error) {
	tenant, environment, err := twoParts("environment", name)
	if err != nil {
		return description{}, err
	}
	id := fleet.EnvironmentID{Tenant: tenant, Name: fleet.EnvironmentName(environment)}
	m, err := c.MoveOf(ctx, id)
	if err != nil {
		return description{}, err
	}
	if m.Slice == "" {
		return description{item: m, sections: moveSections(name, m)}, nil
	}
	all, err := c.Moves(ctx, view.Filter{Tenant: tenant, Environment: id.Name},
		1<<fleet.MaxSliceBits)
	if err != nil {
		return description{}, err
	}
	d := description{item: all}
	for _, m := range all {
		sections := moveSections(name, m)
		if m.Slice != "" {
			sections[0].title = "Slice " + string(m.Slice)
		}
		d.sections = append(d.sections, sections...)
	}
	return d, nil
}

func moveSections(name string, m view.Move) []section {
	now := time.Now()
	ended := table.Value{}
	if m.EndedAt != nil {
		ended = ago(m.EndedAt, now)
	}
	kind := "move"
	if m.Undo {
		kind = "undo of a move"
	}
	return []section{
		{facts: []table.Fact{
			{Name: "Environment", Value: table.Text(name)},
			{Name: "Slice", Value: table.Text(m.Slice)},
			{Name: "Kind", Value: table.Text(kind)},
			{Name: "From", Value: table.Text(m.From)},
			{Name: "To", Value: table.Text(m.To)},
			{Name: "State", Value: table.State(m.State)},
			{Name: "Moved", Value: table.Value{Text: fmt.Sprintf("%d of %d Applications", m.Done,
				m.Total)}},
			{Name: "Message", Value: table.Text(m.Message)},
			{Name: "Requested by", Value: table.Text(m.RequestedBy)},
			{Name: "Operation", Value: table.Text(m.Operation)},
			{Name: "Started", Value: ago(&m.StartedAt, now)},
			{Name: "Ended", Value: ended},
		}},
		{title: "Applications (steps that have ended: seconds/requests)",
			table: tabulate(m.Applications, movedColumns, true, now)},
	}
}
