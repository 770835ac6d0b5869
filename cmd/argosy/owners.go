package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

var ownerColumns = []column[view.Owner]{
	{head: "OWNER", of: func(v view.Owner, _ time.Time) table.Cell {
		return table.Text(v.Name)
	}},
	{head: "COUNTS", of: func(v view.Owner, _ time.Time) table.Cell {
		return table.Text(fmt.Sprint(v.ID))
	}},
	{head: "PINNED", of: func(v view.Owner, now time.Time) table.Cell {
		return age(v.PinnedAt, now)
	}},
	{head: "NOW", of: func(v view.Owner, _ time.Time) table.Cell {
		if !v.Changed() {
			return table.Cell{}
		}
		return table.Cell{Text: fmt.Sprintf("%d, does not count", v.NowID), Tone: table.Bad}
	}},
	{head: "HOST", wide: true, of: func(v view.Owner, _ time.Time) table.Cell {
		return table.Text(v.Host)
	}},
}

func (a *app) releaseOwnerCommand() *cobra.Command {
	var id int64
	var note string
	cmd := &cobra.Command{
		Use:   "release-owner NAME",
		Short: "Let whoever has the name of an owner now count, as `get owners` lists it",
		Long: "The name of an owner is pinned to the account or team that had it when it was " +
			"first looked up. When another one has the name, that one does\n" +
			"not count until you have made sure who it is. This releases exactly the number " +
			"that you looked at.",
		Example: "  argosy get owners\n  argosy release-owner alice --id 4711 --note \"her new " +
			"account; asked in person\"",
		Args: exactly("NAME"),
	}
	cmd.Flags().Int64Var(&id, "id", 0,
		"number of the account or team that was looked at (required)")
	cmd.Flags().StringVar(&note, "note", "", "why, for those who read it later")
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
		return a.say("owner %s counts as number %d from now on", done.Name, done.ID)
	}
	return cmd
}
