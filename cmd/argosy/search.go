package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet/view"
)

func searchCommand(a *app) *cobra.Command {
	limit := 0
	cmd := &cobra.Command{
		Use:   "search TEXT...",
		Short: "Find objects by name, commit, image or pull request",
		Long: "TEXT is the beginning of a word of a name, of a commit of the config repo or of an\n" +
			"application's repository, of an image, its last part or its tag, or of the ID of an\n" +
			"operation, or the number or a part of the title of a pull request. With several words,\n" +
			"an object matches all of them.",
		Example: "  argosy search checkout\n" +
			"  argosy search acme/checkout@prod\n" +
			"  argosy search 4f1c9e2a\n" +
			"  argosy search checkout:v1.4.2 -o json",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	out := addFormat(cmd, "table", "json", "yaml", "name")
	cmd.Flags().IntVar(&limit, "limit", 20, "maximum number, up to "+strconv.Itoa(view.MaxHits))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if limit < 1 || limit > view.MaxHits {
			return errors.New("--limit must be 1 to " + strconv.Itoa(view.MaxHits))
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		text := strings.Join(args, " ")
		found, err := c.Search(cmd.Context(), text, limit)
		if err != nil {
			return err
		}
		if done, err := a.structured(out, found); done {
			return err
		}
		if len(found.Hits) == 0 {
			a.hint("nothing matches %q: write the beginning of a word of the name", text)
			return nil
		}
		if out.value == "name" {
			for _, h := range found.Hits {
				if err := a.printLine("%s", hitName(h)); err != nil {
					return err
				}
			}
			return nil
		}
		t := tabulate(found.Hits, hitColumns, false, time.Now())
		if err := t.Write(a.out, a.colour()); err != nil {
			return err
		}
		if found.More {
			a.hint("there are more: write more of the name, or --limit %d", view.MaxHits)
		}
		return nil
	}
	return cmd
}

var hitColumns = []column[view.Hit]{
	{head: "KIND", of: func(h view.Hit, _ time.Time) table.Value { return table.Text(h.Kind) }},
	{head: "NAME", of: func(h view.Hit, _ time.Time) table.Value { return table.Text(hitName(h)) }},
	{head: "ABOUT", of: func(h view.Hit, _ time.Time) table.Value {
		return table.Text(hitAbout(h))
	}},
}

// hitName is the name by which the other commands take the object.
func hitName(h view.Hit) string {
	switch h.Kind {
	case view.HitDeployment, view.HitEnvironment, view.HitSet:
		return string(h.Tenant) + "/" + h.Name
	}
	return h.Name
}

func hitAbout(h view.Hit) string {
	switch h.Kind {
	case view.HitEnvironment:
		if h.Title != "" {
			return "on engine " + h.Title
		}
	case view.HitImage, view.HitCommit:
		if h.Applications == 1 {
			return "runs in 1 Application"
		}
		return "runs in " + strconv.Itoa(h.Applications) + " Applications"
	case view.HitAgent:
		if h.Environment != "" {
			return "of environment " + string(h.Tenant) + "/" + string(h.Environment)
		}
	}
	return h.Title
}
