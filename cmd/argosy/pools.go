package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func poolsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "pools",
		Short:   "Decide about pools of engines",
		Example: "  argosy get pools\n  argosy pools pause eu --reason 'the cluster is full'",
		Args:    exactly("COMMAND"),
		RunE: func(*cobra.Command, []string) error {
			return errors.New("name a command: pause or resume")
		},
	}
	cmd.AddCommand(
		poolCommand(a, "pause", "Make and drain no further instance of a pool",
			"An instance that is being made becomes ready, and one that drains is removed. The\n"+
				"pause survives restarts, and ends with `argosy pools resume`.", "paused",
			"end it with `argosy pools resume %s`"),
		poolCommand(a, "resume", "End the pause of a pool",
			"The pool makes and drains instances again.", "resumed",
			"`argosy describe pool %s` shows its instances"))
	return cmd
}

func poolCommand(a *app, verb, short, long, done, hint string) *cobra.Command {
	d := mirror.PoolDecision{}
	cmd := &cobra.Command{
		Use: verb + " POOL", Short: short, Long: long, Args: exactly("POOL"),
		Example: "  argosy pools " + verb + " eu --reason 'the cluster is full'",
	}
	cmd.Flags().StringVar(&d.Reason, "reason", "", "reason, for the record")
	a.completeOne(cmd, "pools")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		d.Pool = args[0]
		p, err := c.DecidePool(cmd.Context(), verb, d)
		if err != nil {
			return err
		}
		err = a.printLine("%s pool %s", done, p.Name)
		a.hint(hint, p.Name)
		return err
	}
	return cmd
}

func poolState(p mirror.Pool) table.Value {
	v := table.Text(p.State)
	switch p.State {
	case mirror.PoolSteady:
		v.Tone = table.Good
	case mirror.PoolBlocked, mirror.PoolUnknown, mirror.PoolFull:
		v.Tone = table.Bad
	default:
		v.Tone = table.Busy
	}
	return v
}

var poolColumns = []column[mirror.Pool]{
	{head: "POOL", of: func(p mirror.Pool, _ time.Time) table.Value { return table.Text(p.Name) }},
	{head: "STATE", of: func(p mirror.Pool, _ time.Time) table.Value { return poolState(p) }},
	{head: "INSTANCES", of: func(p mirror.Pool, _ time.Time) table.Value {
		return table.Text(fmt.Sprintf("%d (%d-%d)", len(p.Instances), p.Min, p.Max))
	}},
	{head: "LOAD", of: func(p mirror.Pool, _ time.Time) table.Value {
		return table.Text(fmt.Sprintf("%d%%/%d%%", p.Load, p.TargetLoad))
	}},
	{head: "WAITING", wide: true, of: func(p mirror.Pool, _ time.Time) table.Value {
		return table.Number(p.Waiting)
	}},
	{head: "RING", wide: true, of: func(p mirror.Pool, _ time.Time) table.Value {
		return table.Text(p.Ring)
	}},
	{head: "MESSAGE", of: func(p mirror.Pool, _ time.Time) table.Value {
		return table.Text(p.Message)
	}},
}

var poolMemberColumns = []column[fleet.PoolMember]{
	{head: "ENGINE", of: func(m fleet.PoolMember, _ time.Time) table.Value {
		return table.Text(string(fleet.InstanceName(m.Pool, m.Number)))
	}},
	{head: "CLUSTER", of: func(m fleet.PoolMember, _ time.Time) table.Value {
		return table.Text(m.Cluster)
	}},
	{head: "STATE", of: func(m fleet.PoolMember, _ time.Time) table.Value {
		return table.Text(m.State)
	}},
	{head: "SIZE", of: func(m fleet.PoolMember, _ time.Time) table.Value {
		return table.Text(m.Size)
	}},
	{head: "AGE", of: func(m fleet.PoolMember, now time.Time) table.Value {
		return age(m.Since, now)
	}},
	{head: "REASON", of: func(m fleet.PoolMember, _ time.Time) table.Value {
		if m.SizedWhy != "" && m.SizedAt.After(m.Since) {
			return table.Text("size: " + m.SizedWhy)
		}
		return table.Text(m.Reason)
	}},
}

func describePool(ctx context.Context, c *client.Client, name string) (description, error) {
	all, err := c.Pools(ctx, view.Filter{Name: name}, 1)
	if err != nil {
		return description{}, err
	}
	if len(all) == 0 {
		return description{}, fmt.Errorf("there is no pool %q in effect; `argosy get pools` lists "+
			"them", name)
	}
	p, now := all[0], time.Now()
	paused := ""
	if p.PausedAt != nil {
		paused = strings.TrimSpace("by " + p.PausedBy + " " + p.PauseReason)
	}
	return description{item: p, sections: []section{
		{facts: []table.Fact{
			{Name: "Pool", Value: table.Text(p.Name)},
			{Name: "State", Value: poolState(p)},
			{Name: "Since", Value: age(p.Since, now)},
			{Name: "Message", Value: table.Text(p.Message)},
			{Name: "Load", Value: table.Text(fmt.Sprintf("%d%%, target %d%%", p.Load,
				p.TargetLoad))},
			{Name: "Waiting", Value: table.Text(plural(p.Waiting, "environment"))},
			{Name: "Bounds", Value: table.Text(fmt.Sprintf("%d to %d instances", p.Min, p.Max))},
			{Name: "Ring", Value: table.Text(p.Ring)},
			{Name: "Paused", Value: table.Text(paused)},
		}},
		{title: "Instances", table: tabulate(p.Instances, poolMemberColumns, false, now)},
	}}, nil
}
