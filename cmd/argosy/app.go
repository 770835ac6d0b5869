package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/contexts"
	"argosy.dev/argosy/fleet/printable"
)

// app is the environment of every command.
type app struct {
	in     io.Reader
	out    io.Writer // data
	err    io.Writer // hints, progress, errors
	getenv func(string) string

	server  string // of --server
	token   string // of --token
	context string // of --context
}

// Exit codes.
const (
	exitFine       = 0
	exitFindings   = 1 // problems were found, or there are changes
	exitError      = 2
	exitNotAllowed = 4
)

// findings ends a command with exit code 1. The findings are on stdout; text, if any, summarizes
// them.
type findings struct{ text string }

// notAllowed ends a command with exit code 4.
type notAllowed struct{ error }

// The groups that `argosy help` shows.
const (
	groupWrite  = "write"
	groupAsk    = "ask"
	groupAct    = "act"
	groupDecide = "decide"
	groupAccess = "access"
	groupRun    = "run"
)

func (f findings) Error() string { return f.text }

// hint prints a message for a person, which is no data.
func (a *app) hint(format string, args ...any) {
	for _, line := range strings.Split(fmt.Sprintf(format, args...), "\n") {
		fmt.Fprintln(a.err, printable.Line(line))
	}
}

// printLine prints a line of data, with the names that it contains escaped.
func (a *app) printLine(format string, args ...any) error {
	_, err := fmt.Fprintln(a.out, printable.Name(fmt.Sprintf(format, args...)))
	return err
}

// colour reports whether output may be coloured: on a terminal, unless NO_COLOR is set
// (https://no-color.org).
func (a *app) colour() bool {
	return a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb" && isTerminal(a.out)
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// connect is a client for the control plane that the flags, the environment or the context name, in
// this order. A context's token goes to that context's server only.
func (a *app) connect() (*client.Client, error) {
	c, _, err := a.connectTo()
	return c, err
}

// connectTo is connect, with what it connects to.
func (a *app) connectTo() (*client.Client, contexts.Context, error) {
	target, err := a.target()
	if err != nil {
		return nil, target, err
	}
	c, err := client.New(target.Server, target.Token, "argosy/"+versionText())
	if err == nil {
		c.ChooseTenant(first(a.getenv("ARGOSY_TENANT"), target.Tenant))
	}
	return c, target, err
}

func (a *app) target() (contexts.Context, error) {
	given := contexts.Context{Server: first(a.server, a.getenv("ARGOSY_SERVER")),
		Token: first(a.token, a.getenv("ARGOSY_TOKEN"))}
	if given.Server != "" && given.Token != "" && a.context == "" {
		return given, nil
	}
	saved, err := a.saved()
	if err != nil {
		return saved, err
	}
	if given.Server == "" {
		given.Server = saved.Server
	}
	if given.Server == saved.Server {
		given.Token, given.Tenant = first(given.Token, saved.Token), saved.Tenant
	}
	switch {
	case given.Server == "":
		return given,
			errors.New(
				"no control plane is configured; run `argosy login URL`, or set --server or " +
					"ARGOSY_SERVER")
	case given.Token == "":
		return given, notAllowed{
			fmt.Errorf("there is no token for %s; run `argosy login %s`, or set ARGOSY_TOKEN",
				given.Server, given.Server)}
	}
	return given, nil
}

// saved is the context that --context names, or the current one; an empty one when none is saved.
func (a *app) saved() (contexts.Context, error) {
	path, err := contexts.Path(a.getenv)
	if err != nil {
		if a.context == "" {
			return contexts.Context{}, nil
		}
		return contexts.Context{}, err
	}
	file, err := contexts.Load(path)
	if err != nil {
		return contexts.Context{}, err
	}
	found, ok := file.Find(a.context)
	if !ok && a.context != "" {
		return found, notSaved(a.context, path)
	}
	return found, nil
}

// version is set by the release's linker flags; a build from a checkout shows its commit instead.
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

// renamed is the former name of a command. It only names the new one: a word that once had several
// meanings must not keep one of them unnoticed in a script.
func renamed(former, name string) *cobra.Command {
	return &cobra.Command{
		Use: former, Hidden: true, DisableFlagParsing: true, Short: "Renamed to " + name,
		RunE: func(cmd *cobra.Command, _ []string) error {
			parent := cmd.Parent().CommandPath()
			return fmt.Errorf("`%s` is now `%s %s`; see `%s %s --help`", cmd.CommandPath(), parent,
				name, parent, name)
		},
	}
}

// exactly is cobra.ExactArgs with the names of the arguments in its error.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want := strings.Join(names, " ")
		if want == "" {
			want = "no argument"
		}
		return fmt.Errorf("%s takes %s, got %d; see `%s --help`", cmd.CommandPath(), want,
			len(args), cmd.CommandPath())
	}
}

// atMost is exactly, for one argument that may be left out.
func atMost(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= 1 {
			return nil
		}
		return fmt.Errorf("%s takes one %s, got %d; see `%s --help`", cmd.CommandPath(), name,
			len(args), cmd.CommandPath())
	}
}

func dirOf(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
