// Command argosy turns a Git repository into a fleet of Argo CD instances. See `argosy help`.
//
// Only wiring stands here: flags to values, values to components, components to an answer. Data
// goes to stdout, hints and errors to stderr; the exit code is 0 for fine, 1 for findings or
// changes, 2 for an error and 4 for what the caller may not do.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(mainCode()) }

func mainCode() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv}
	return a.run(ctx, os.Args[1:])
}
