package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/view"
)

// getCommand is `get KIND`, with a subcommand for each kind, so that each shows and accepts its own
// filters only.
func getCommand(a *app) *cobra.Command {
	get := &cobra.Command{
		Use:   "get KIND",
		Short: "List objects of a kind",
		Example: "  argosy get applications --tenant acme --health Degraded\n" +
			"  argosy get engines -o wide\n" +
			"  argosy get problems\n" +
			"  argosy get applications --watch",
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("missing KIND: one of " + plurals())
			}
			_, err := findResource(args[0])
			return err
		},
	}
	for _, r := range resources {
		get.AddCommand(getOne(a, r))
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

// resource is a kind of object that `get` lists.
type resource struct {
	plural  string
	aliases []string // the singular first
	filters []string // flags that narrow it
	about   string   // meaning of an empty list, or the next step
	example string   // further arguments
	list    func(context.Context, *client.Client, view.Filter, int) (listing, error)
	// narrows the filter to the object of a name; nil: the list is short, and read whole
	named func(*view.Filter, string) error
}

// singular is the word for one object.
func (r resource) singular() string {
	if len(r.aliases) > 0 {
		return r.aliases[0]
	}
	return r.plural
}

// listing is a list in all its forms.
type listing struct {
	heads   func(wide bool) []string
	entries []entry
}

// entry is one object of a listing.
type entry struct {
	name   string
	item   any // for JSON, YAML and expressions
	labels map[string]string
	row    func(wide bool, now time.Time) []table.Value
}

func (l listing) items() any {
	items := make([]any, len(l.entries))
	for i, e := range l.entries {
		items[i] = e.item
	}
	return map[string]any{"items": items}
}

func (l listing) table(wide bool, now time.Time) table.Table {
	t := table.Table{Heads: l.heads(wide)}
	for _, e := range l.entries {
		t.Rows = append(t.Rows, e.row(wide, now))
	}
	return t
}

// findResource is the resource that a person means by the word.
func findResource(word string) (resource, error) {
	if strings.TrimSuffix(word, "s") == "stray" {
		return resource{}, errors.New("`get " + word + "` is now `get orphans`")
	}
	var plurals []string
	for _, r := range resources {
		if r.plural == word || slices.Contains(r.aliases, word) {
			return r, nil
		}
		plurals = append(plurals, r.plural)
	}
	return resource{},
		fmt.Errorf("unknown kind %q; kinds are %s", word, strings.Join(plurals, ", "))
}

// resources are the kinds that `get` lists.
var resources = []resource{
	{plural: "applications", aliases: []string{"application", "apps", "app"},
		filters: []string{"tenant", "environment", "deployment", "engine", "revision", "sync",
			"health", "apply", "image", "text"},
		list:    lister(shownApplications, shownApplication.name, shownColumns()),
		named:   namedApplication,
		example: "acme/checkout@prod-eu -o jsonpath='{.targetRevision}'"},
	{plural: "environments", aliases: []string{"environment", "envs", "env"}, filters: []string{
		"tenant", "environment", "engine"},
		list: lister((*client.Client).Environments, func(e view.Environment) string {
			return string(e.Tenant) + "/" + string(e.Name)
		}, environmentColumns), named: namedEnvironment, example: "-l tier=prod"},
	{plural: "deployments", aliases: []string{"deployment"}, filters: []string{
		"tenant", "environment", "deployment"},
		list: lister((*client.Client).Deployments, func(d view.Deployment) string {
			return string(d.Tenant) + "/" + string(d.Name)
		}, deploymentColumns), named: namedDeployment, example: "--sort-by .counts.failed"},
	{plural: "sets", aliases: []string{"set"}, filters: []string{"tenant"},
		about: "no set is in effect; `argosy get problems` lists refused ones",
		list: lister((*client.Client).Sets, func(v view.Set) string {
			return string(v.Tenant) + "/" + v.Name
		}, setColumns), named: namedSet},
	{plural: "tenants", aliases: []string{"tenant"},
		list: lister((*client.Client).Tenants, func(t view.Tenant) string {
			return string(t.Name)
		}, tenantColumns)},
	{plural: "engines", aliases: []string{"engine"},
		list: lister((*client.Client).Engines, func(e view.Engine) string {
			return string(e.Name)
		}, engineColumns)},
	{plural: "agents", aliases: []string{"agent"}, filters: []string{
		"tenant", "environment", "engine"},
		about: "no environment has spec.agent and no engine connection.agent",
		list:  lister((*client.Client).Agents, agentName, agentColumns)},
	{plural: "orphans", aliases: []string{"orphan"}, filters: []string{"tenant", "engine"},
		about: "every live object is declared",
		list:  lister((*client.Client).Orphans, orphanName, orphanColumns)},
	{plural: "rollouts", aliases: []string{"rollout"}, filters: []string{"tenant", "deployment"},
		about: "no change of a deployment with spec.rollout has gone in waves",
		list: lister((*client.Client).Rollouts, func(r mirror.Rollout) string {
			return r.Of().String()
		}, rolloutColumns), named: namedDeployment},
	{plural: "notifications", aliases: []string{"notification"}, filters: []string{"tenant"},
		about: "no message was sent in the last 14 days; `docs/notifications.md` shows how to " +
			"subscribe",
		list: lister((*client.Client).Notifications, func(n mirror.Notification) string {
			return n.ID
		}, notificationColumns)},
	{plural: "commit-statuses", aliases: []string{"commit-status"}, filters: []string{"tenant",
		"environment", "deployment"},
		about: "no commit was reported; `docs/commit-statuses.md` shows how to declare it",
		list: lister((*client.Client).CommitStatuses, func(c mirror.CommitStatus) string {
			return c.Of().String() + " " + c.Commit
		}, commitStatusColumns)},
	{plural: "credentials", aliases: []string{"credential"}, filters: []string{"tenant"},
		about: "no tenant declares access to a private repository",
		list: lister((*client.Client).Credentials, func(c view.Credential) string {
			return c.ID().String()
		}, credentialColumns)},
	{plural: "policies", aliases: []string{"policy"},
		about: "fleet/policies has no policy for these declarations",
		list: lister((*client.Client).Policies, func(p view.Policy) string { return p.Name },
			policyColumns)},
	{plural: "freezes", aliases: []string{"freeze"}, filters: []string{"tenant"},
		about: "neither the Fleet nor a Tenant declares freezes",
		list: lister((*client.Client).Freezes, func(v view.Freeze) string {
			return freezeOwner(v) + "/" + v.Name
		}, freezeColumns)},
	{plural: "unproven", filters: []string{"tenant", "environment", "engine"},
		about: "no engine or cluster is forgotten, or all its objects are proven gone",
		list: lister((*client.Client).Unproven, func(v view.Unproven) string {
			return strconv.FormatInt(v.ID, 10)
		}, unprovenColumns)},
	{
		plural: "owners", aliases: []string{"owner"},
		about: "no owner has been looked up on the Git host yet",
		list: lister((*client.Client).Owners, func(v view.Owner) string { return v.Name },
			ownerColumns)},
	{plural: "operations", aliases: []string{"operation", "ops", "op"}, filters: []string{
		"tenant", "engine", "revision", "kind", "state"},
		list: lister((*client.Client).Operations, func(o mirror.Operation) string { return o.ID },
			operationColumns)},
	{plural: "audit", filters: []string{"tenant", "engine", "revision", "actor", "action",
		"subject", "pull", "operation", "since", "until", "text"},
		about:   "nothing has been decided or recorded",
		list:    lister((*client.Client).Audit, entryNumber, auditColumns),
		example: "--actor 'token:acme/*' --since 24h --limit 50"},
	{plural: "moves", aliases: []string{"move"}, filters: []string{"tenant", "environment"},
		about: "no environment has moved; `argosy get operations` shows requested and refused moves",
		list: lister((*client.Client).Moves, func(m view.Move) string {
			return string(m.Tenant) + "/" + string(m.Environment)
		}, moveColumns), named: namedEnvironment},
	{plural: "rebalances", aliases: []string{"rebalance"},
		about: "no engine had a high measured load: `argosy simulate rebalance` shows the loads",
		list: lister((*client.Client).Rebalances, func(r mirror.Rebalance) string { return r.ID },
			rebalanceColumns)},
	{plural: "remedies", aliases: []string{"remedy"}, filters: []string{"engine"},
		about: "Argosy has restarted no component of an engine",
		list: lister((*client.Client).Remedies, func(r mirror.Remedy) string { return r.ID },
			remedyColumns)},
	{plural: "differences", aliases: []string{"difference"},
		filters: []string{"tenant", "environment", "deployment", "engine"},
		about:   "the next version of no ring renders anything differently",
		list: lister((*client.Client).Differences, func(d mirror.Difference) string {
			return applicationOf(d)
		}, differenceColumns)},
	{plural: "rings", aliases: []string{"ring"},
		about: "the Fleet declares no rings, or has not been applied yet",
		list: lister((*client.Client).Rings, func(r mirror.Ring) string { return r.Name },
			ringColumns)},
	{plural: "bulletins", aliases: []string{"bulletin"},
		about: "the Fleet declares no bulletins, or has not been applied yet",
		list: lister((*client.Client).Bulletins, func(b view.Bulletin) string { return b.Name },
			bulletinColumns)},
	{plural: "pools", aliases: []string{"pool"},
		about: "fleet/pools/ declares no pools, or has not been applied yet",
		list: lister((*client.Client).Pools, func(p mirror.Pool) string { return p.Name },
			poolColumns)},
	{plural: "revisions", aliases: []string{"revision", "revs", "rev"},
		list: lister((*client.Client).Revisions, func(r view.Revision) string {
			return string(r.Revision)
		}, revisionColumns)},
	{plural: "source", about: "the config repo has not been read yet",
		list: lister(source, func(v view.Source) string { return v.URL }, sourceColumns)},
	{plural: "pulls", aliases: []string{"pull", "prs", "pr"}, filters: []string{"tenant", "state"},
		list: lister((*client.Client).Pulls, func(p view.Pull) string {
			return strconv.Itoa(p.Number)
		}, pullColumns)},
	{plural: "problems", aliases: []string{"problem"}, filters: []string{"tenant"},
		about: "no declaration has a problem",
		list:  lister((*client.Client).Problems, where, problemColumns)},
	{plural: "holds", aliases: []string{"hold"}, filters: []string{"tenant", "revision"},
		about: "no change is held",
		list: lister((*client.Client).Holds, func(h mirror.Hold) string {
			return string(h.Revision)
		}, holdColumns)},
	{plural: "stops", aliases: []string{"stop"}, about: "nothing is stopped",
		list: lister(stops, func(s mirror.Stop) string {
			return strings.TrimSuffix(string(s.Scope)+"/"+s.Name, "/")
		}, stopColumns)},
}

// lister returns the list function of a resource from its request, its names and its columns.
func lister[T any](ask func(*client.Client, context.Context, view.Filter, int) ([]T, error),
	name func(T) string, columns []column[T],
) func(context.Context, *client.Client, view.Filter, int) (listing, error) {
	return func(ctx context.Context, c *client.Client, f view.Filter, limit int) (listing, error) {
		items, err := ask(c, ctx, f, limit)
		if err != nil {
			return listing{}, err
		}
		found := listing{entries: make([]entry, len(items)), heads: func(wide bool) []string {
			return headsOf(columns, wide)
		}}
		for i, item := range items {
			found.entries[i] = entry{name: name(item), item: item, labels: labelsOf(item),
				row: func(wide bool, now time.Time) []table.Value {
					return rowOf(item, columns, wide, now)
				}}
		}
		return found, nil
	}
}

var filterHelp = map[string]string{
	"tenant": "only of this tenant", "environment": "only of this environment",
	"deployment": "only of this deployment", "engine": "only on this engine",
	"revision": "only of this revision of the config repo (full id)",
	"sync":     "only with this sync state: Synced|OutOfSync|Unknown",
	"health":   "only with this health: Healthy|Progressing|Degraded|Suspended|Missing|Unknown",
	"apply":    "only in this apply state: Pending|Applied|Failed|Conflict|Deleting|Held",
	"state":    "only in this state: open|merged|closed",
	"image":    "only running this image, a repository with or without a tag",
	"text":     "only with this part of tenant/deployment@environment",
	"kind":     "only of this kind, such as Sync or Move",

	"actor":   "only by this actor, or by those that begin with it if it ends in *",
	"action":  "only this action, or those that begin with it if it ends in *",
	"subject": "only about this subject, or those that begin with it if it ends in *",
	"pull":    "only of this pull request: its number",
	"since": "only from then on: a time such as 2026-11-20T12:00:00Z, a date, or " +
		"an age such as 24h or 30d",
	"until":     "only before: a time, a date or an age",
	"operation": "only of this operation",

	"audit.text":       "only with this text in actor, subject or detail",
	"operations.state": "only in this state: Pending|Running|Succeeded|Failed|Held",
}

// helpOf is the help of a filter flag of a kind.
func helpOf(kind, flag string) string {
	return cmp.Or(filterHelp[kind+"."+flag], filterHelp[flag])
}

// listView prints one list, once or at each change.
type listView struct {
	app      *app
	client   *client.Client
	resource resource
	query    query
	chosen   selection
	format   *format
}

// query holds the filter flags of a command.
type query struct {
	tenant, environment, deployment, engine, revision, sync, health, apply, state string
	image, text, kind                                                             string
	actor, action, subject, pull, operation, since, until                         string
	limit                                                                         int

	entry  view.EntryFilter // by parse
	number int              // of the pull request
}

func getOne(a *app, r resource) *cobra.Command {
	var q query
	var chosen selection
	var watch, all bool
	example := "  argosy get " + r.plural
	if slices.Contains(r.filters, "tenant") {
		example += "\n  argosy get " + r.plural + " --tenant acme -o json"
	}
	if r.example != "" {
		example += "\n  argosy get " + r.plural + " " + r.example
	}
	cmd := &cobra.Command{Use: r.plural + " [NAME...]", Aliases: r.aliases,
		Short: "List " + r.plural, Example: example, ValidArgsFunction: a.completeNames(r)}
	out := addFormat(cmd, "table", "wide", "json", "yaml", "name")
	for _, name := range r.filters {
		cmd.Flags().StringVar(q.flag(name), name, "", helpOf(r.plural, name))
		a.completeFlag(cmd, name)
	}
	if slices.Contains(r.filters, "tenant") {
		cmd.Flags().BoolVarP(&all, "all-tenants", "A", false,
			"of all tenants, although the context has a tenant")
	}
	cmd.Flags().IntVar(&q.limit, "limit", 0, "maximum number (0: all)")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "keep running and show changes, until Ctrl-C")
	chosen.addFlags(cmd, r)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if q.limit < 0 {
			return errors.New("--limit must be above 0, or 0 for all")
		}
		if err := errors.Join(chosen.parse(r, args), q.parse(time.Now())); err != nil {
			return err
		}
		c, target, err := a.connectTo()
		if err != nil {
			return err
		}
		if slices.Contains(r.filters, "tenant") && q.tenant == "" && !all && len(args) == 0 {
			q.tenant = target.Tenant
		}
		show := listView{app: a, client: c, resource: r, query: q, chosen: chosen, format: out}
		if watch {
			return show.watch(cmd.Context())
		}
		found, err := show.list(cmd.Context())
		if err != nil {
			return err
		}
		return errors.Join(show.print(found), chosen.missing(r, found))
	}
	return cmd
}

const (
	watchDelay = 300 * time.Millisecond // changes that come together are shown together
	clear      = "\x1b[H\x1b[2J\x1b[3J"
)

// watch prints the list whenever it changes: the whole list on a terminal, otherwise the changed
// rows only. Events carry no data; each one triggers a new read.
func (l listView) watch(ctx context.Context) error {
	if !slices.Contains([]string{"table", "wide", "name"}, l.format.value) {
		return errors.New("--watch prints tables: use it with -o table, wide or name")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := pacing.NewSignal()
	ended := make(chan error, 1)
	go func() {
		ended <- l.client.Events(ctx, func(view.Event) error {
			changed.Set()
			return nil
		}, func(err error) { l.app.hint("the event stream broke; reconnecting: %s", err) })
	}()
	shown := map[string]string{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case <-changed: // also sent by the stream's first message
		}
		found, err := l.list(ctx)
		if err != nil {
			return err
		}
		if err := l.update(found, shown); err != nil {
			return err
		}
		if !pacing.Sleep(ctx, watchDelay) {
			return ctx.Err()
		}
	}
}

// update prints the rows that differ from the last output, and remembers them.
func (l listView) update(found listing, shown map[string]string) error {
	if isTerminal(l.app.out) {
		if _, err := fmt.Fprint(l.app.out, clear); err != nil {
			return err
		}
		return l.print(found)
	}
	rows := found.table(true, time.Time{}) // ages are no change
	seen := make(map[string]bool, len(found.entries))
	var changed []entry
	for i, e := range found.entries {
		name := e.name
		for seen[name] { // two holds of one revision, two problems of one line
			name += "'"
		}
		text := fmt.Sprint(rows.Rows[i])
		if shown[name] != text {
			changed = append(changed, e)
		}
		shown[name], seen[name] = text, true
	}
	for name := range shown {
		if !seen[name] {
			delete(shown, name)
			l.app.hint("%s is no longer listed", name)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return l.printRows(listing{heads: found.heads, entries: changed})
}

func (l listView) list(ctx context.Context) (listing, error) {
	found, err := l.chosen.list(ctx, l.client, l.resource, l.query.filter(), l.query.limit)
	return found, withFlags(err)
}

func (q *query) filter() view.Filter {
	return view.Filter{
		Tenant: fleet.TenantName(q.tenant), Environment: fleet.EnvironmentName(q.environment),
		Deployment: fleet.DeploymentName(q.deployment), Engine: fleet.EngineName(q.engine),
		Revision: fleet.Revision(q.revision),
		Sync:     mirror.SyncState(q.sync), Health: mirror.HealthState(q.health),
		Apply: mirror.ApplyState(q.apply), State: forge.PullState(q.state),
		Image: q.image, Text: q.text, OperationKind: mirror.OperationKind(q.kind),
		OperationState: mirror.OperationState(q.state),
		Pull:           q.number, Entry: q.entry}
}

// parse reads the flags of the audit log. A time is relative to now.
func (q *query) parse(now time.Time) (err error) {
	q.entry = view.EntryFilter{Actor: q.actor, Action: q.action, Subject: q.subject,
		Operation: q.operation, Text: q.text}
	if q.entry.Since, err = moment(q.since, now); err != nil {
		return fmt.Errorf("--since: %w", err)
	}
	if q.entry.Until, err = moment(q.until, now); err != nil {
		return fmt.Errorf("--until: %w", err)
	}
	if q.pull == "" {
		return nil
	}
	if q.number, err = strconv.Atoi(strings.TrimPrefix(q.pull, "#")); err != nil || q.number < 1 {
		return fmt.Errorf("--pull: %q is no number of a pull request", q.pull)
	}
	return nil
}

func (l listView) print(found listing) error {
	all := found.items()
	if len(l.chosen.names) == 1 && len(found.entries) == 1 {
		all = found.entries[0].item
	}
	if done, err := l.app.structured(l.format, all); done {
		return err
	}
	if len(found.entries) == 0 && l.format.value != "name" && len(l.chosen.names) == 0 {
		l.app.hint("%s", l.nothing())
		return nil
	}
	return l.printRows(found)
}

func (l listView) printRows(found listing) error {
	if len(found.entries) == 0 {
		return nil
	}
	if l.format.value == "name" {
		for _, e := range found.entries {
			if err := l.app.printLine("%s", e.name); err != nil {
				return err
			}
		}
		return nil
	}
	t := found.table(l.format.value == "wide", time.Now())
	t.NoHeads = l.chosen.noHeaders
	return t.Write(l.app.out, l.app.colour())
}

func (l listView) nothing() string {
	text := "no " + l.resource.plural
	var narrowed []string
	for _, name := range l.resource.filters {
		if value := *l.query.flag(name); value != "" {
			narrowed = append(narrowed, "--"+name+" "+value)
		}
	}
	if l.chosen.labels != "" {
		narrowed = append(narrowed, "-l "+l.chosen.labels)
	}
	if len(narrowed) > 0 {
		return text + " match " + strings.Join(narrowed, " ")
	}
	if l.resource.about != "" {
		return text + ": " + l.resource.about
	}
	return text + " yet"
}

func (q *query) flag(name string) *string {
	return map[string]*string{"tenant": &q.tenant, "environment": &q.environment,
		"deployment": &q.deployment, "engine": &q.engine,
		"revision": &q.revision, "sync": &q.sync, "health": &q.health, "apply": &q.apply,
		"state": &q.state, "image": &q.image, "text": &q.text, "kind": &q.kind, "actor": &q.actor,
		"action": &q.action, "subject": &q.subject, "pull": &q.pull, "operation": &q.operation,
		"since": &q.since, "until": &q.until}[name]
}
