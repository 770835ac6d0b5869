package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/cmd/argosy/contexts"
)

const maxToken = 4096 // bytes that are read for a token

func (a *app) loginCommand() *cobra.Command {
	var fromStdin, check bool
	cmd := &cobra.Command{
		Use:   "login URL",
		Short: "Save a control plane and a token as a context",
		Long: "The token is asked for on the terminal, or read from stdin with --token-stdin; " +
			"it is checked before it is saved in\n" +
			"$XDG_CONFIG_HOME/argosy/config.yaml, which only you may read. With --check nothing " +
			"is saved: it says who you are now.",
		Example: "  argosy login https://argosy.example.com\n  argosy login " +
			"https://argosy.example.com --token-stdin --context prod < token\n  argosy login --check",
	}
	cmd.Flags().BoolVar(&fromStdin, "token-stdin", false, "read the token from stdin")
	cmd.Flags().BoolVar(&check, "check", false, "say who you are signed in as")
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
			_, err = a.sayWho(cmd.Context(), c)
			return err
		}
		return a.login(cmd.Context(), args[0], fromStdin)
	}
	return cmd
}

func (a *app) login(ctx context.Context, server string, fromStdin bool) error {
	url, err := client.CheckServer(server)
	if err != nil {
		return err
	}
	path, err := contexts.Path(a.getenv)
	if err != nil {
		return err
	}
	token, err := a.askToken(fromStdin)
	if err != nil {
		return err
	}
	c, err := client.New(url.String(), token, "argosy/"+versionText())
	if err != nil {
		return err
	}
	if _, err := a.sayWho(ctx, c); err != nil {
		return err
	}
	file, err := contexts.Load(path)
	if err != nil {
		return err
	}
	name := first(a.context, url.Host)
	file.Put(contexts.Context{Name: name, Server: url.String(), Token: token})
	if err := contexts.Save(path, file); err != nil {
		return fmt.Errorf("context %s: it cannot be saved: %w", name, err)
	}
	a.hint("saved as context %q in %s", name, path)
	return nil
}

// askToken reads the token without showing it.
func (a *app) askToken(fromStdin bool) (string, error) {
	given := first(a.token, a.getenv("ARGOSY_TOKEN"))
	in, isFile := a.in.(*os.File)
	switch {
	case fromStdin:
		line, err := bufio.NewReader(io.LimitReader(a.in, maxToken)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("token: it cannot be read from stdin: %w", err)
		}
		given = line
	case given != "":
	case isFile && isTerminal(in):
		fmt.Fprint(a.err, "Token: ")
		secret, err := term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(a.err)
		if err != nil {
			return "", fmt.Errorf("token: it cannot be read from the terminal: %w", err)
		}
		given = string(secret)
	default:
		return "", errors.New("there is no terminal to ask for the token on: use --token-stdin")
	}
	if given = strings.TrimSpace(given); given == "" {
		return "", errors.New("the token is empty")
	}
	return given, nil
}

func (a *app) sayWho(ctx context.Context, c *client.Client) (wire.Identity, error) {
	who, err := c.WhoAmI(ctx)
	if err != nil {
		return who, err
	}
	sees := "the whole platform"
	if who.Tenant != "" {
		sees = "tenant " + string(who.Tenant)
	}
	err = a.say("%s on %s: may %s %s", who.Subject, c.Server(), who.Role, sees)
	return who, err
}
