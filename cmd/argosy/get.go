package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// query is what the filter flags of a command say.
type query struct {
	tenant, environment, deployment, engine, revision, sync, health, apply, state string
	limit                                                                         int
}

func (q *query) flag(name string) *string {
	return map[string]*string{"tenant": &q.tenant, "environment": &q.environment,
		"deployment": &q.deployment, "engine": &q.engine,
		"revision": &q.revision, "sync": &q.sync, "health": &q.health, "apply": &q.apply,
		"state": &q.state}[name]
}

func (q *query) filter() view.Filter {
	return view.Filter{Tenant: fleet.TenantName(q.tenant),
		Environment: fleet.EnvironmentName(q.environment),
		Deployment:  fleet.DeploymentName(q.deployment), Engine: fleet.EngineName(q.engine),
		Revision: fleet.Revision(q.revision),
		Sync:     mirror.SyncState(q.sync), Health: mirror.HealthState(q.health),
		Apply: mirror.ApplyState(q.apply), State: forge.PullState(q.state)}
}

// getCommand is `get KIND`, with a subcommand for each kind, so that each shows and accepts its own
// filters only.
func (a *app) getCommand() *cobra.Command {
	get := &cobra.Command{
		Use:   "get KIND",
		Short: "List what the mirror knows",
		Example: "  argosy get applications --tenant acme --health Degraded\n  argosy get " +
			"engines -o wide\n  argosy get problems\n  argosy get applications --watch",
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("say what to get: " + plurals())
			}
			_, err := findResource(args[0])
			return err
		},
	}
	for _, r := range resources {
		get.AddCommand(a.getOne(r))
	}
	return get
}

func plurals() string {
	var names []string
	for _, r := range resources {
		names = append(names, r.plural)
	}
	return strings.Join(names, ", ")
}

var filterHelp = map[string]string{
	"tenant": "only this tenant's", "environment": "only of this environment",
	"deployment": "only of this deployment", "engine": "only on this engine",
	"revision": "only of this revision of the config repo (in full)",
	"sync":     "only with this sync state: Synced|OutOfSync|Unknown",
	"health":   "only with this health: Healthy|Progressing|Degraded|Suspended|Missing|Unknown",
	"apply":    "only in this apply state: Pending|Applied|Failed|Conflict|Deleting|Held",
	"state":    "only in this state: open|merged|closed",
}

func (a *app) getOne(r resource) *cobra.Command {
	var q query
	var watch bool
	example := "  argosy get " + r.plural
	if slices.Contains(r.filters, "tenant") {
		example += "\n  argosy get " + r.plural + " --tenant acme -o json"
	}
	cmd := &cobra.Command{Use: r.plural, Aliases: r.aliases, Short: "List " + r.plural,
		Example: example, Args: exactly()}
	out := addFormat(cmd, "table", "wide", "json", "yaml", "name")
	for _, name := range r.filters {
		cmd.Flags().StringVar(q.flag(name), name, "", filterHelp[name])
	}
	cmd.Flags().IntVar(&q.limit, "limit", 0, "at most so many (0: all)")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on and show what changes, until Ctrl-C")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if q.limit < 0 {
			return errors.New("--limit: give a number above 0, or 0 for all")
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		show := lookout{app: a, client: c, resource: r, query: q, format: out.value}
		if watch {
			return show.watch(cmd.Context())
		}
		found, err := show.list(cmd.Context())
		if err != nil {
			return err
		}
		return show.print(found)
	}
	return cmd
}

// lookout shows one list, once or as it changes.
type lookout struct {
	app      *app
	client   *client.Client
	resource resource
	query    query
	format   string
}

func (l lookout) list(ctx context.Context) (listing, error) {
	return l.resource.list(ctx, l.client, l.query.filter(), l.query.limit)
}

func (l lookout) print(found listing) error {
	switch l.format {
	case "json":
		return writeJSON(l.app.out, found.items)
	case "yaml":
		return writeYAML(l.app.out, found.items)
	case "name":
		for _, name := range found.names {
			if err := l.app.say("%s", name); err != nil {
				return err
			}
		}
		return nil
	}
	if len(found.names) == 0 {
		l.app.hint("%s", l.nothing())
		return nil
	}
	return found.table(l.format == "wide", time.Now()).Write(l.app.out, l.app.colour())
}

func (l lookout) nothing() string {
	text := "no " + l.resource.plural
	var narrowed []string
	for _, name := range l.resource.filters {
		if value := *l.query.flag(name); value != "" {
			narrowed = append(narrowed, "--"+name+" "+value)
		}
	}
	if len(narrowed) > 0 {
		return text + " match " + strings.Join(narrowed, " ")
	}
	if l.resource.about != "" {
		return text + ": " + l.resource.about
	}
	return text + " yet"
}
