package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/printable"
)

// app is what every command works with.
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

// findings ends a command with exit code 1. What was found is on stdout; text, if any, sums it up.
type findings struct{ text string }

func (f findings) Error() string { return f.text }

// notAllowed ends a command with exit code 4.
type notAllowed struct{ error }

// run runs one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return exitFine // Ctrl-C ends what has no other end
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

// hint tells a person something that is no data.
func (a *app) hint(format string, args ...any) {
	for _, line := range strings.Split(fmt.Sprintf(format, args...), "\n") {
		fmt.Fprintln(a.err, printable.Line(line))
	}
}

// say writes a line of data, with names in it that others have made.
func (a *app) say(format string, args ...any) error {
	_, err := fmt.Fprintln(a.out, printable.Name(fmt.Sprintf(format, args...)))
	return err
}

// colour reports whether data may be coloured: on a terminal, unless the person asked for none
// (https://no-color.org).
func (a *app) colour() bool {
	return a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb" && isTerminal(a.out)
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// exactly is cobra.ExactArgs that says which arguments are wanted.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want := strings.Join(names, " ")
		if want == "" {
			want = "no argument"
		}
		return fmt.Errorf("%s takes %s, and %d were given; see `%s --help`", cmd.CommandPath(),
			want, len(args), cmd.CommandPath())
	}
}
