package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

// tokenCommand gives tokens out and takes them back. It needs a token of the platform.
func (a *app) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "Give bearer tokens out and take them back (platform)",
		Example: "  argosy token create ci --tenant acme\n  argosy token list\n  argosy token " +
			"revoke k7f3",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.tokenCreate(), a.tokenList(), a.tokenRevoke())
	return cmd
}

func (a *app) tokenCreate() *cobra.Command {
	var tenant string
	var write bool
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make a token; stdout is the only place that ever shows it",
		Example: "  argosy token create ci --tenant acme --ttl 720h > token\n  argosy token " +
			"create ops --write", Args: exactly("NAME"),
	}
	cmd.Flags().StringVar(&tenant, "tenant", "",
		"it sees this tenant only (none: the whole platform)")
	cmd.Flags().BoolVar(&write, "write", false, "it may decide, too: approve, stop, resume")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "how long it is valid (0: until it is revoked)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		ask := wire.TokenRequest{Name: args[0], Tenant: fleet.TenantName(tenant),
			Role: view.RoleRead}
		if ttl != 0 {
			ask.TTL = ttl.String()
		}
		if write {
			ask.Role = view.RoleWrite
		}
		made, err := c.CreateToken(cmd.Context(), ask)
		if err != nil {
			return err
		}
		a.hint("%s, id %s; it is shown this once", made.Token.Subject(), made.Token.ID)
		_, err = fmt.Fprintln(a.out, made.Plaintext)
		return err
	}
	return cmd
}

var tokenColumns = []column[view.Token]{
	{head: "ID", of: func(t view.Token, _ time.Time) table.Cell { return table.Text(t.ID) }},
	{head: "NAME", of: func(t view.Token, _ time.Time) table.Cell { return table.Text(t.Name) }},
	{head: "TENANT", of: func(t view.Token, _ time.Time) table.Cell {
		return table.Text(t.Tenant)
	}},
	{head: "ROLE", of: func(t view.Token, _ time.Time) table.Cell { return table.Text(t.Role) }},
	{head: "AGE", of: func(t view.Token, now time.Time) table.Cell {
		return age(t.CreatedAt, now)
	}},
	{head: "STATE", of: func(t view.Token, now time.Time) table.Cell {
		return tokenState(t, now)
	}},
	{head: "BY", of: func(t view.Token, _ time.Time) table.Cell {
		return table.Text(t.CreatedBy)
	}},
}

func tokenState(t view.Token, now time.Time) table.Cell {
	switch {
	case t.RevokedAt != nil:
		return table.Cell{Text: "revoked", Tone: table.Faint}
	case t.ExpiresAt != nil && t.ExpiresAt.Before(now):
		return table.Cell{Text: "expired", Tone: table.Faint}
	case t.ExpiresAt != nil:
		return table.Cell{Text: "valid for " + fleet.Age(t.ExpiresAt.Sub(now)), Tone: table.Good}
	}
	return table.Cell{Text: "valid", Tone: table.Good}
}

func (a *app) tokenList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "Tokens without their plaintext",
		Example: "  argosy token list", Args: exactly()}
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		tokens, err := c.Tokens(cmd.Context())
		if err != nil {
			return err
		}
		switch out.value {
		case "json":
			return writeJSON(a.out, map[string]any{"items": tokens})
		case "yaml":
			return writeYAML(a.out, map[string]any{"items": tokens})
		}
		return tabulate(tokens, tokenColumns, false, time.Now()).Write(a.out, a.colour())
	}
	return cmd
}

func (a *app) tokenRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "End a token at once", Example: "  argosy token revoke k7f3",
		Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.RevokeToken(cmd.Context(), args[0]); err != nil {
				return err
			}
			return a.say("revoked %s", args[0])
		},
	}
}
