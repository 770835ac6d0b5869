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
	"argosy.dev/argosy/fleet/view"
)

// sessionCommand lists and ends the sessions of people.
func sessionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "session", Short: "List and end sessions of people",
		Example: "  argosy session list\n  argosy session list --all\n  argosy session revoke 0193f2",
		Args:    exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(sessionList(a), sessionRevoke(a))
	return cmd
}

func sessionList(a *app) *cobra.Command {
	var everybody bool
	cmd := &cobra.Command{Use: "list", Short: "List your sessions, newest first",
		Long:    "Lists your sessions, newest first, ended ones included; with --all those of everybody.",
		Example: "  argosy session list\n  argosy session list --all -o json", Args: exactly()}
	cmd.Flags().BoolVar(&everybody, "all", false, "everybody's, for admins of the platform")
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		sessions, err := c.Sessions(cmd.Context(), everybody)
		if err != nil {
			return err
		}
		if done, err := a.structured(out, map[string]any{"items": sessions}); done {
			return err
		}
		return tabulate(sessions, sessionColumns, false, time.Now()).Write(a.out, a.colour())
	}
	return cmd
}

var sessionColumns = []column[view.Session]{
	{head: "ID", of: func(s view.Session, _ time.Time) table.Value { return table.Text(s.ID) }},
	{head: "PERSON", of: func(s view.Session, _ time.Time) table.Value {
		return table.Text(s.Actor)
	}},
	{head: "ISSUER", of: func(s view.Session, _ time.Time) table.Value {
		return table.Text(s.Issuer)
	}},
	{head: "FROM", of: func(s view.Session, _ time.Time) table.Value { return table.Text(s.Kind) }},
	{head: "AGE", of: func(s view.Session, now time.Time) table.Value {
		return age(s.CreatedAt, now)
	}},
	{head: "USED", of: func(s view.Session, now time.Time) table.Value {
		return age(s.LastUsedAt, now)
	}},
	{head: "STATE", of: func(s view.Session, now time.Time) table.Value {
		return sessionState(s, now)
	}},
}

func sessionState(s view.Session, now time.Time) table.Value {
	ends := s.ExpiresAt
	if s.IdleUntil.Before(ends) {
		ends = s.IdleUntil
	}
	switch {
	case s.RevokedAt != nil:
		return table.Value{Text: "revoked", Tone: table.Faint}
	case ends.Before(now):
		return table.Value{Text: "ended", Tone: table.Faint}
	}
	return table.Value{Text: "valid", Tone: table.Good}
}

func sessionRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "End a session at once",
		Long:    "Ends a session at once: one of your own, or for admins of the platform any.",
		Example: "  argosy session revoke 0193f2", Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.RevokeSession(cmd.Context(), args[0]); err != nil {
				return err
			}
			return a.printLine("revoked %s", args[0])
		},
	}
}

// signIn signs a person in by a code that they confirm in a browser, and returns the secret of the
// session. ok is false when the control plane has no identity provider, or is an earlier version.
func (a *app) signIn(ctx context.Context, server, issuer string) (secret string, ok bool,
	err error) {
	c, err := client.New(server, "", "argosy/"+versionText())
	if err != nil {
		return "", false, err
	}
	providers, err := c.Providers(ctx)
	if err != nil || len(providers) == 0 {
		if issuer != "" {
			return "", true, errors.Join(fmt.Errorf("%s has no issuer %q", server, issuer), err)
		}
		return "", false, nil
	}
	if issuer, err = chosenIssuer(providers, issuer); err != nil {
		return "", true, err
	}
	code, err := c.BeginSignIn(ctx, issuer)
	if err != nil {
		return "", true, err
	}
	at := code.Complete
	if at == "" {
		at = code.URL
	}
	a.hint("Open %s\nand confirm the code %s, only if you began this sign-in yourself.", at,
		code.UserCode)
	secret, err = awaitSession(ctx, c, issuer, code)
	return secret, true, err
}

// chosenIssuer returns the issuer of that name, or the only one.
func chosenIssuer(providers []view.Provider, name string) (string, error) {
	var names []string
	for _, p := range providers {
		if p.Name == name {
			return name, nil
		}
		names = append(names, p.Name)
	}
	if name == "" && len(names) == 1 {
		return names[0], nil
	}
	return "", fmt.Errorf("choose with --issuer whom to sign in with: %s, or use a token with "+
		"--token-stdin", strings.Join(names, ", "))
}

// awaitSession polls until the person has confirmed the code, or it expires.
func awaitSession(ctx context.Context, c *client.Client, issuer string,
	code view.DeviceCode) (string, error) {
	pause := time.Duration(max(code.Interval, 1)) * time.Second
	for {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return "", ctx.Err()
		case <-timer.C:
		}
		if time.Now().After(code.ExpiresAt) {
			return "", errors.New("the code expired before it was confirmed; run `argosy login` " +
				"again")
		}
		answer, err := c.FinishSignIn(ctx, issuer, code.Code)
		if err != nil {
			return "", err
		}
		if answer.Session != nil {
			return answer.Plaintext, nil
		}
		if answer.SlowDown {
			pause += 5 * time.Second // RFC 8628, 3.5
		}
	}
}

// endSession ends the session of a context at the control plane, if it is one.
func (a *app) endSession(ctx context.Context, server, token string) error {
	if !strings.HasPrefix(token, view.SessionPrefix) {
		return nil
	}
	c, err := client.New(server, token, "argosy/"+versionText())
	if err != nil {
		return err
	}
	who, err := c.WhoAmI(ctx)
	if err != nil {
		return err
	}
	return c.RevokeSession(ctx, who.Session)
}
