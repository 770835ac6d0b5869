package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/fleet/printable"
)

const (
	completionTime = 3 * time.Second // a shell waits for it
	completionMost = 200             // names
)

// completeNames completes the names of a kind from the control plane. Without an answer there is no
// completion, and no error on the person's command line.
func (a *app) completeNames(r resource) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string,
		cobra.ShellCompDirective) {
		return slices.DeleteFunc(a.namesOf(cmd.Context(), r, begun), func(name string) bool {
			return slices.Contains(args, name)
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeOne completes the only argument of a command with a name of a kind.
func (a *app) completeOne(cmd *cobra.Command, kind string) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string,
		cobra.ShellCompDirective) {
		r, err := findResource(kind)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.namesOf(cmd.Context(), r, begun), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeKinds completes the kind and then its names, for commands with both as arguments.
func (a *app) completeKinds(kinds func(resource) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string,
		cobra.ShellCompDirective) {
		if len(args) == 1 {
			if r, err := findResource(args[0]); err == nil {
				return a.namesOf(cmd.Context(), r, begun), cobra.ShellCompDirectiveNoFileComp
			}
		}
		var names []string
		for _, r := range resources {
			if len(args) == 0 && kinds(r) && strings.HasPrefix(r.singular(), begun) {
				names = append(names, r.singular())
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag completes the values of a filter flag: its fixed words, or names of its kind.
func (a *app) completeFlag(cmd *cobra.Command, flag string) {
	_, words, _ := strings.Cut(helpOf(cmd.Name(), flag), ": ")
	fixed := strings.Contains(words, "|") // otherwise it is running text
	complete := cobra.FixedCompletions(strings.Split(words, "|"),
		cobra.ShellCompDirectiveNoFileComp)
	if !fixed {
		complete = func(cmd *cobra.Command, _ []string, begun string) ([]string,
			cobra.ShellCompDirective) {
			r, err := findResource(flag)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			names := a.namesOf(cmd.Context(), r, "")
			for i, name := range names {
				names[i] = name[strings.LastIndex(name, "/")+1:] // without its tenant
			}
			slices.Sort(names)
			return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
				return !strings.HasPrefix(name, begun)
			}), cobra.ShellCompDirectiveNoFileComp
		}
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, complete) // fails on a flag that is not there
}

// namesOf lists names of a kind that begin so. A name that a shell would not take as it is stays
// out.
func (a *app) namesOf(ctx context.Context, r resource, begun string) []string {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	c, err := a.connect()
	if err != nil {
		return nil
	}
	var q query
	if tenant, _, ok := strings.Cut(begun, "/"); ok && slices.Contains(r.filters, "tenant") {
		q.tenant = tenant
	}
	found, err := r.list(ctx, c, q.filter(), completionMost)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range found.entries {
		if strings.HasPrefix(e.name, begun) && printable.Name(e.name) == e.name &&
			!strings.ContainsAny(e.name, " '\"$`\\") {
			names = append(names, e.name)
		}
	}
	return names
}
