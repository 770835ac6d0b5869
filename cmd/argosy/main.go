// Command argosy turns a Git repository into a fleet of Argo CD instances. See `argosy help`.
//
// This package only wires: flags to values, values to components, results to output. Data goes to
// stdout, hints and errors to stderr; the exit code is 0 for success, 1 for findings or changes, 2
// for an error and 4 for a missing permission.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/wire"
)

func main() { os.Exit(mainCode()) }

func mainCode() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv}
	return a.run(ctx, os.Args[1:])
}

// run runs one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := root(a)
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return exitFine // Ctrl-C is the regular end of an endless command
	}
	return a.exit(err)
}

func (a *app) exit(err error) int {
	var found findings
	var forbidden notAllowed
	var refused *wire.Refusal
	switch {
	case err == nil:
		return exitFine
	case errors.As(err, &found):
		if found.text != "" {
			a.hint("%s", found.text)
		}
		return exitFindings
	case errors.As(err, &forbidden), errors.As(err, &refused) && refused.NotAllowed():
		a.hint("error: %s", err)
		return exitNotAllowed
	}
	a.hint("error: %s", err)
	return exitError
}

// root is the command with everything under it.
func root(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "argosy",
		Short: "One Git repository, a fleet of Argo CD instances",
		Long: "Argosy turns one Git repository into a fleet of Argo CD instances that serve\n" +
			"many tenants.\n\n" +
			"Exit codes: 0 fine, 1 findings or changes, 2 error, 4 not allowed.",
		Example: "  argosy validate\n" +
			"  argosy login https://argosy.example.com\n" +
			"  argosy get applications --tenant acme --health Degraded",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddGroup(
		&cobra.Group{ID: groupWrite, Title: "Write and check declarations (offline):"},
		&cobra.Group{ID: groupAsk, Title: "See what runs, and why:"},
		&cobra.Group{ID: groupAct, Title: "Act on an Application:"},
		&cobra.Group{ID: groupDecide, Title: "Decide for the fleet:"},
		&cobra.Group{ID: groupAccess, Title: "Sign in, and give access:"},
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
		groupWrite: writing(a),
		groupAsk: append(inspectCommands(a), getCommand(a), searchCommand(a),
			matrixCommand(a), describeCommand(a), explainCommand(a), simulateCommand(a),
			openCommand(a), auditCommand(a), traceCommand(a), notifyCommand(a)),
		groupAct: {refreshCommand(a), syncCommand(a), terminateCommand(a),
			restartCommand(a), rollbackCommand(a)},
		groupDecide: {releaseCommand(a), pinOwnerCommand(a), removeOrphanCommand(a),
			abandonCommand(a), moveCommand(a), splitCommand(a), joinCommand(a),
			evacuateCommand(a), forgetCommand(a), resolveUnprovenCommand(a), pauseDrainCommand(a),
			resumeDrainCommand(a), acceptRebalanceCommand(a), rejectRebalanceCommand(a),
			pauseRebalanceCommand(a), resumeRebalanceCommand(a), rolloutsCommand(a),
			ringsCommand(a), poolsCommand(a), stopCommand(a), resumeCommand(a)},
		groupAccess: {loginCommand(a), logoutCommand(a), contextCommand(a), sessionCommand(a),
			canCommand(a), tokenCommand(a), agentCommand(a)},
		groupRun: running(a),
	} {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	root.AddCommand(versionCommand(a), renamed("approve", "release"), renamed("orphan", "abandon"),
		renamed("remove-stray", "remove-orphan"), renamed("release-owner", "pin-owner"))
	return root
}

// writing are the commands that need no control plane.
func writing(a *app) []*cobra.Command {
	return append(engineStates(a), validateCommand(a), renderCommand(a), planCommand(a),
		newCommand(a),
		fmtCommand(a), encryptCommand(a), schemaCommand(a), importCommand(a), exportCommand(a))
}

// running are the commands that run the control plane.
func running(a *app) []*cobra.Command {
	return []*cobra.Command{serveCommand(a), migrateCommand(a), doctorCommand(a), rebuildCommand(a),
		bootstrapCommand(a), prepareCommand(a),
		leaveCommand(a)}
}
