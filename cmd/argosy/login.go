package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/cmd/argosy/contexts"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

func loginCommand(a *app) *cobra.Command {
	var fromStdin, check bool
	var issuer string
	cmd := &cobra.Command{
		Use:   "login URL",
		Short: "Sign in to a control plane and save it as a context",
		Long: "Signs you in by a code that you confirm in a browser, if the control plane has an\n" +
			"identity provider; --issuer chooses one of several. Otherwise it asks for a token on\n" +
			"the terminal, or reads it from stdin with --token-stdin.\n" +
			"It verifies the session or token and saves it in $XDG_CONFIG_HOME/argosy/config.yaml, which\n" +
			"only you may read. With --check it saves nothing and shows your current\n" +
			"identity.",
		Example: "  argosy login https://argosy.example.com\n" +
			"  argosy login https://argosy.example.com --issuer corp\n" +
			"  argosy login https://argosy.example.com --token-stdin --context prod < token\n" +
			"  argosy login --check",
	}
	cmd.Flags().BoolVar(&fromStdin, "token-stdin", false, "read the token from stdin")
	cmd.Flags().StringVar(&issuer, "issuer", "", "identity provider to sign in with")
	cmd.Flags().BoolVar(&check, "check", false, "show your current identity")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check {
			return exactly()(cmd, args)
		}
		return exactly("URL")(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if check {
			c, err := a.connect()
			if err != nil {
				return err
			}
			_, err = a.printIdentity(cmd.Context(), c)
			return err
		}
		return a.login(cmd.Context(), args[0], issuer, fromStdin)
	}
	return cmd
}

func (a *app) login(ctx context.Context, server, issuer string, fromStdin bool) error {
	url, err := client.CheckServer(server)
	if err != nil {
		return err
	}
	path, err := contexts.Path(a.getenv)
	if err != nil {
		return err
	}
	token, signedIn := "", false
	if !fromStdin && first(a.token, a.getenv("ARGOSY_TOKEN")) == "" {
		if token, signedIn, err = a.signIn(ctx, url.String(), issuer); err != nil {
			return err
		}
	}
	if !signedIn {
		if token, err = a.askToken(fromStdin); err != nil {
			return err
		}
	}
	c, err := client.New(url.String(), token, "argosy/"+versionText())
	if err != nil {
		return err
	}
	if _, err := a.printIdentity(ctx, c); err != nil {
		return err
	}
	file, err := contexts.Load(path)
	if err != nil {
		return err
	}
	name := first(a.context, url.Host)
	before, _ := file.Find(name)
	file.Put(contexts.Context{Name: name, Server: url.String(), Token: token,
		Tenant: before.Tenant})
	if err := contexts.Save(path, file); err != nil {
		return fmt.Errorf("failed to save context %s: %w", name, err)
	}
	a.hint("saved as context %q in %s", name, path)
	return nil
}

const maxToken = 4096 // bytes that are read for a token

// askToken reads the token without showing it.
func (a *app) askToken(fromStdin bool) (string, error) {
	given := first(a.token, a.getenv("ARGOSY_TOKEN"))
	in, isFile := a.in.(*os.File)
	switch {
	case fromStdin:
		line, err := bufio.NewReader(io.LimitReader(a.in, maxToken)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("failed to read the token from stdin: %w", err)
		}
		given = line
	case given != "":
	case isFile && isTerminal(in):
		fmt.Fprint(a.err, "Token: ")
		secret, err := term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(a.err)
		if err != nil {
			return "", fmt.Errorf("failed to read the token from the terminal: %w", err)
		}
		given = string(secret)
	default:
		return "", errors.New("no terminal to ask for the token: use --token-stdin")
	}
	if given = strings.TrimSpace(given); given == "" {
		return "", errors.New("the token is empty")
	}
	return given, nil
}

func (a *app) printIdentity(ctx context.Context, c *client.Client) (wire.Identity, error) {
	who, err := c.WhoAmI(ctx)
	if err != nil {
		return who, err
	}
	if who.Unscoped != "" {
		return who, a.printLine("%s on %s: %s", who.Subject, c.Server(), who.Unscoped)
	}
	sees := "the whole platform"
	if who.Tenant != "" {
		sees = "tenant " + string(who.Tenant)
	}
	err = a.printLine("%s on %s: may %s %s", who.Subject, c.Server(), who.Role, sees)
	return who, err
}

// tokenCommand gives tokens out and takes them back. It needs a token of the platform.
func tokenCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "Create, list and revoke bearer tokens (platform)",
		Example: "  argosy token create ci --tenant acme\n" +
			"  argosy token list\n" +
			"  argosy token revoke k7f3",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(tokenCreate(a), tokenList(a), tokenRevoke(a))
	return cmd
}

func tokenCreate(a *app) *cobra.Command {
	var tenant string
	var write bool
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a token; only stdout ever shows it",
		Example: "  argosy token create ci --tenant acme --ttl 720h > token\n" +
			"  argosy token create alice --tenant acme --write --owner github:alice > token\n" +
			"  argosy token create ops --write", Args: exactly("NAME"),
	}
	var owner string
	cmd.Flags().StringVar(&owner, "owner", "", "entry of the tenant's spec.owners: may approve\n"+
		"waves and differences, and pass freezes of the tenant")
	cmd.Flags().StringVar(&tenant, "tenant", "",
		"restrict it to this tenant (default: the whole platform)")
	cmd.Flags().BoolVar(&write, "write", false,
		"also allow decisions: release, stop, resume and others")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "validity (0: until it is revoked)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		ask := wire.TokenRequest{Name: args[0], Tenant: fleet.TenantName(tenant),
			Role: view.RoleRead, Owner: owner}
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
		a.hint("%s, id %s; it is shown only once", made.Token.Subject(), made.Token.ID)
		_, err = fmt.Fprintln(a.out, made.Plaintext)
		return err
	}
	return cmd
}

func tokenList(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List tokens without their plaintext",
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
		if done, err := a.structured(out, map[string]any{"items": tokens}); done {
			return err
		}
		return tabulate(tokens, tokenColumns, false, time.Now()).Write(a.out, a.colour())
	}
	return cmd
}

var tokenColumns = []column[view.Token]{
	{head: "ID", of: func(t view.Token, _ time.Time) table.Value { return table.Text(t.ID) }},
	{head: "NAME", of: func(t view.Token, _ time.Time) table.Value { return table.Text(t.Name) }},
	{head: "TENANT", of: func(t view.Token, _ time.Time) table.Value {
		return table.Text(t.Tenant)
	}},
	{head: "ROLE", of: func(t view.Token, _ time.Time) table.Value { return table.Text(t.Role) }},
	{head: "OWNER", of: func(t view.Token, _ time.Time) table.Value { return table.Text(t.Owner) }},
	{head: "AGE", of: func(t view.Token, now time.Time) table.Value {
		return age(t.CreatedAt, now)
	}},
	{head: "STATE", of: func(t view.Token, now time.Time) table.Value {
		return tokenState(t, now)
	}},
	{head: "USED", of: func(t view.Token, now time.Time) table.Value {
		if t.LastUsedAt == nil {
			return table.Value{Text: "-", Tone: table.Faint}
		}
		return age(*t.LastUsedAt, now)
	}},
	{head: "BY", of: func(t view.Token, _ time.Time) table.Value {
		return table.Text(t.CreatedBy)
	}},
}

func tokenState(t view.Token, now time.Time) table.Value {
	switch {
	case t.RevokedAt != nil:
		return table.Value{Text: "revoked", Tone: table.Faint}
	case t.ExpiresAt != nil && t.ExpiresAt.Before(now):
		return table.Value{Text: "expired", Tone: table.Faint}
	case t.ExpiresAt != nil:
		return table.Value{Text: "valid for " + fleet.Age(t.ExpiresAt.Sub(now)), Tone: table.Good}
	}
	return table.Value{Text: "valid", Tone: table.Good}
}

func tokenRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Revoke a token at once", Example: "  argosy token revoke k7f3",
		Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.RevokeToken(cmd.Context(), args[0]); err != nil {
				return err
			}
			return a.printLine("revoked %s", args[0])
		},
	}
}
