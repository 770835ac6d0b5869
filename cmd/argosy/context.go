package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/contexts"
	"argosy.dev/argosy/cmd/argosy/table"
)

// contextCommand lists, chooses and deletes the control planes that `argosy login` has saved.
func contextCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "context", Short: "List, use and delete saved control planes",
		Example: "  argosy context list\n" +
			"  argosy context use prod\n" +
			"  argosy context use prod --tenant acme",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(contextList(a), contextUse(a), contextDelete(a))
	return cmd
}

// shownContext is a context without its token.
type shownContext struct {
	Name     string `json:"name"`
	Server   string `json:"server"`
	Tenant   string `json:"tenant,omitempty"`
	Current  bool   `json:"current"`
	SignedIn bool   `json:"signedIn"`
}

func contextList(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the saved contexts",
		Example: "  argosy context list\n  argosy context list -o jsonpath='{.items[*].name}'",
		Args:    exactly()}
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(*cobra.Command, []string) error {
		_, file, err := a.contexts()
		if err != nil {
			return err
		}
		shown := []shownContext{}
		for _, c := range file.Contexts {
			shown = append(shown, shownContext{Name: c.Name, Server: c.Server, Tenant: c.Tenant,
				Current: c.Name == file.Current, SignedIn: c.Token != ""})
		}
		if done, err := a.structured(out, map[string]any{"items": shown}); done {
			return err
		}
		if len(shown) == 0 {
			a.hint("no contexts: run `argosy login URL`")
			return nil
		}
		return tabulate(shown, contextColumns, false, time.Now()).Write(a.out, a.colour())
	}
	return cmd
}

var contextColumns = []column[shownContext]{
	{head: "CURRENT", of: func(c shownContext, _ time.Time) table.Value { return yes(c.Current) }},
	{head: "NAME", of: func(c shownContext, _ time.Time) table.Value { return table.Text(c.Name) }},
	{head: "SERVER", of: func(c shownContext, _ time.Time) table.Value {
		return table.Text(c.Server)
	}},
	{head: "TENANT", of: func(c shownContext, _ time.Time) table.Value {
		return table.Text(c.Tenant)
	}},
	{head: "SIGNED IN", of: func(c shownContext, _ time.Time) table.Value {
		return yes(c.SignedIn)
	}},
}

func yes(b bool) table.Value {
	if b {
		return table.Value{Text: "yes"}
	}
	return table.Value{}
}

func contextUse(a *app) *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use: "use NAME", Short: "Make a saved context the current one",
		Long: "Makes a saved context the current one. With --tenant, `argosy get` shows this\n" +
			"tenant unless it is given --tenant or -A; --tenant '' ends that.",
		Example: "  argosy context use prod\n  argosy context use prod --tenant acme",
		Args:    exactly("NAME"), ValidArgsFunction: a.completeContexts,
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "the tenant that lists show")
	a.completeFlag(cmd, "tenant")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.editContext(args[0], func(file *contexts.File, c contexts.Context) error {
			if cmd.Flags().Changed("tenant") {
				c.Tenant = tenant
			}
			file.Put(c)
			of := ""
			if c.Tenant != "" {
				of = ", tenant " + c.Tenant
			}
			return a.printLine("%s: %s%s", c.Name, c.Server, of)
		})
	}
	return cmd
}

func contextDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a saved context with its token",
		Long: "Deletes a saved context with its token from this machine. The token stays valid\n" +
			"until it expires or `argosy token revoke` revokes it.",
		Example: "  argosy context delete trial", Args: exactly("NAME"),
		ValidArgsFunction: a.completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.editContext(args[0], func(file *contexts.File, c contexts.Context) error {
				file.Delete(c.Name)
				if file.Current == "" && len(file.Contexts) > 0 {
					a.hint("no context is current: run `argosy context use NAME`")
				}
				return a.printLine("deleted %s", c.Name)
			})
		},
	}
}

// logoutCommand removes the token of a context, and keeps its server.
func logoutCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "Remove the token of the current context from this machine",
		Long: "Removes the token of the current context, or of --context, from this machine, and\n" +
			"ends your session. A machine's token stays valid until it expires or `argosy token\n" +
			"revoke` revokes it.",
		Example: "  argosy logout\n  argosy logout --context prod", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.editContext(a.context, func(file *contexts.File, c contexts.Context) error {
				if err := a.endSession(cmd.Context(), c.Server, c.Token); err != nil {
					a.hint("the session could not be ended, and ends by itself: %s", err)
				}
				current := file.Current
				c.Token = ""
				file.Put(c)
				file.Current = current
				return a.printLine("signed out of %s", c.Server)
			})
		},
	}
}

// contexts reads the file of contexts.
func (a *app) contexts() (path string, file contexts.File, err error) {
	if path, err = contexts.Path(a.getenv); err == nil {
		file, err = contexts.Load(path)
	}
	return path, file, err
}

// editContext changes the file of contexts, for the context of that name, or the current one for
// "".
func (a *app) editContext(name string,
	edit func(*contexts.File, contexts.Context) error) error {
	path, file, err := a.contexts()
	if err != nil {
		return err
	}
	found, ok := file.Find(name)
	if !ok {
		return notSaved(name, path)
	}
	if err := edit(&file, found); err != nil {
		return err
	}
	if err := contexts.Save(path, file); err != nil {
		return fmt.Errorf("failed to save %s: %w", path, err)
	}
	return nil
}

func notSaved(name, path string) error {
	if name == "" {
		return fmt.Errorf("no context is current in %s; run `argosy context use NAME` or `argosy "+
			"login URL`", path)
	}
	return fmt.Errorf("context %q is not saved in %s; run `argosy login URL --context %s`", name,
		path, name)
}

func (a *app) completeContexts(_ *cobra.Command, args []string, begun string) ([]string,
	cobra.ShellCompDirective) {
	var names []string
	if _, file, err := a.contexts(); err == nil && len(args) == 0 {
		for _, c := range file.Contexts {
			if strings.HasPrefix(c.Name, begun) {
				names = append(names, c.Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
