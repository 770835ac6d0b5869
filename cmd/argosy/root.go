package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the release's linker flags; a build from a checkout tells its commit instead.
var version = ""

func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "dev-" + s.Value[:12]
			}
		}
	}
	return "dev"
}

// The groups that `argosy help` shows.
const (
	groupWrite  = "write"
	groupAsk    = "ask"
	groupDecide = "decide"
	groupRun    = "run"
)

// root is the command with everything under it.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "argosy",
		Short: "One Git repository, a fleet of Argo CD instances",
		Long: "Argosy turns one Git repository into a fleet of Argo CD instances that serve " +
			"many tenants.\n\n" +
			"Exit codes: 0 fine, 1 findings or changes, 2 error, 4 not allowed.",
		Example: "  argosy validate\n  argosy login https://argosy.example.com\n  argosy " +
			"get applications --tenant acme --health Degraded",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddGroup(
		&cobra.Group{ID: groupWrite, Title: "Write and check declarations (offline):"},
		&cobra.Group{ID: groupAsk, Title: "Ask the control plane:"},
		&cobra.Group{ID: groupDecide, Title: "Decide:"},
		&cobra.Group{ID: groupRun, Title: "Run the control plane:"},
	)
	root.SetCompletionCommandGroupID(groupWrite)
	root.PersistentFlags().StringVar(&a.server, "server", "",
		"URL of the control plane (or ARGOSY_SERVER, or the context)")
	root.PersistentFlags().StringVar(&a.token, "token", "",
		"bearer token (better: ARGOSY_TOKEN, or the context)")
	root.PersistentFlags().StringVar(&a.context, "context", "",
		"saved context to use instead of the current one")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see `%s --help`", err, cmd.CommandPath())
	})
	for group, commands := range map[string][]*cobra.Command{
		groupWrite: a.writing(),
		groupAsk: {a.getCommand(), a.describeCommand(), a.explainCommand(), a.loginCommand(),
			a.tokenCommand(), a.agentCommand()},
		groupDecide: {a.approveCommand(), a.releaseOwnerCommand(), a.removeOrphanCommand(),
			a.abandonCommand(), a.stopCommand(), a.resumeCommand(), a.syncCommand()},
		groupRun: a.running(),
	} {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	root.AddCommand(a.versionCommand())
	return root
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "What this binary is", Example: "  argosy version", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.out, "argosy %s %s %s/%s\n", versionText(), runtime.Version(),
				runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
