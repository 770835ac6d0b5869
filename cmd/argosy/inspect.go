package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/fleet/view"
)

// inspectCommands show the resources of an Application, which its engine is asked for.
func inspectCommands(a *app) []*cobra.Command {
	return []*cobra.Command{treeCommand(a), diffCommand(a), logsCommand(a), eventsCommand(a)}
}

// inspected is the Application that a command names, and the resource of --resource.
type inspected struct {
	*client.Client
	id       fleet.ApplicationID
	resource string
}

func (a *app) inspected(name, resource string) (i inspected, err error) {
	if i.id, err = applicationID(name); err != nil {
		return i, err
	}
	i.resource = resource
	if resource != "" {
		if _, err := parseResource(resource); err != nil {
			return i, err
		}
	}
	i.Client, err = a.connect()
	return i, err
}

// ref returns the resource of --resource as the tree has it; nil without the flag.
func (i inspected) ref(ctx context.Context) (*view.ResourceRef, error) {
	if i.resource == "" {
		return nil, nil
	}
	t, err := i.Tree(ctx, i.id)
	if err != nil {
		return nil, err
	}
	want, err := parseResource(i.resource)
	if err != nil {
		return nil, err
	}
	at, err := findNode(t, want)
	if err != nil {
		return nil, err
	}
	return &t.Nodes[at].ResourceRef, nil
}

func resourceFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "resource", "", "only this one: "+resourceHelp)
}

func treeCommand(a *app) *cobra.Command {
	var resource string
	cmd := &cobra.Command{
		Use: "tree APP", Short: "Show the resources of an Application down to its Pods",
		Long: "The tree comes from the engine that serves the Application, as it has compared it\n" +
			"last. With --resource it shows the live manifest of one resource; the values of\n" +
			"Secrets are masked.",
		Example: "  argosy tree acme/checkout@prod-eu\n" +
			"  argosy tree acme/checkout@prod-eu --resource Deployment/checkout",
		Args: exactly("APP"),
	}
	a.completeOne(cmd, "applications")
	resourceFlag(cmd, &resource)
	out := addFormat(cmd, "table", "wide", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		i, err := a.inspected(args[0], resource)
		if err != nil {
			return err
		}
		if resource != "" {
			return a.showResource(cmd.Context(), i, out)
		}
		t, err := i.Tree(cmd.Context(), i.id)
		if err != nil {
			return err
		}
		if done, err := a.structured(out, t); done {
			return err
		}
		return a.drawTree(i.id, t, out.value == "wide", time.Now())
	}
	return cmd
}

func (a *app) showResource(ctx context.Context, i inspected, out *format) error {
	ref, err := i.ref(ctx)
	if err != nil {
		return err
	}
	d, err := i.Resource(ctx, i.id, *ref)
	if err != nil {
		return err
	}
	if done, err := a.structured(out, d); done {
		return err
	}
	for _, c := range d.Containers {
		line := fmt.Sprintf("# container %s: %s %s, %s", c.Name, c.State, c.Reason,
			plural(c.Restarts, "restart"))
		if c.Last != "" {
			line += ", before that " + c.Last
		}
		if err := a.printLine("%s", line); err != nil {
			return err
		}
	}
	if d.Note != "" {
		a.hint("%s", d.Note)
	}
	_, err = fmt.Fprint(a.out, printable.Text(d.Live))
	return err
}

// width is that of the terminal, and 80 elsewhere.
func (a *app) width() int {
	if f, ok := a.out.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 80 {
			return w
		}
	}
	return 80
}

// fit bounds printable text to a number of characters.
func fit(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	runes := []rune(s)
	return string(runes[:max(most-1, 0)]) + "…"
}

// drawTree draws the tree with box characters. A line is no wider than the terminal.
func (a *app) drawTree(id fleet.ApplicationID, t view.Tree, wide bool, now time.Time) error {
	out := &strings.Builder{}
	fmt.Fprintln(out, printable.Name(id.String()))
	prefixes, bars := treePrefixes(t.Nodes)
	names, left := make([]string, len(t.Nodes)), 0
	for i, n := range t.Nodes {
		names[i] = prefixes[i] + nodeName(t, n)
		left = max(left, utf8.RuneCountInString(names[i]))
	}
	left = min(left, a.width()-36)
	colour := a.colour()
	for i, n := range t.Nodes {
		name := fit(names[i], left)
		health := table.State(n.Health)
		facts := fit(nodeFacts(n, now), a.width()-left-14)
		line := name + strings.Repeat(" ", left-utf8.RuneCountInString(name)+2) +
			table.Paint(health, colour) +
			strings.Repeat(" ", max(12-len(health.Text), 1)) + facts
		fmt.Fprintln(out, strings.TrimRight(line, " "))
		for _, more := range nodeLines(n, wide) {
			fmt.Fprintln(out, fit(bars[i]+more, a.width()))
		}
	}
	if t.More > 0 {
		fmt.Fprintf(out, "and %d more\n", t.More)
	}
	if _, err := fmt.Fprint(a.out, out.String()); err != nil {
		return err
	}
	if t.ComparedAt != nil {
		a.hint("as the engine compared it %s ago", fleet.Age(now.Sub(*t.ComparedAt)))
	}
	return nil
}

// treePrefixes returns the box characters before each node, and those before further lines of it.
func treePrefixes(nodes []view.TreeNode) (prefixes, bars []string) {
	last := make([]bool, len(nodes)) // it is the last child of its parent
	seen := map[int]bool{}
	for i, n := range slices.Backward(nodes) {
		last[i] = !seen[n.Parent]
		seen[n.Parent] = true
	}
	prefixes, bars = make([]string, len(nodes)), make([]string, len(nodes))
	for i, n := range nodes {
		before := ""
		if n.Parent >= 0 && n.Parent < i {
			before = bars[n.Parent]
		}
		if utf8.RuneCountInString(before) > 24 { // a tree may be thousands of levels deep
			before = "… "
		}
		if last[i] {
			prefixes[i], bars[i] = before+"└─ ", before+"   "
		} else {
			prefixes[i], bars[i] = before+"├─ ", before+"│  "
		}
	}
	return prefixes, bars
}

func nodeName(t view.Tree, n view.TreeNode) string {
	name := printable.Name(n.Kind + "/" + n.Name)
	if n.Parent < 0 && n.Namespace != "" && n.Namespace != t.Nodes[0].Namespace {
		name += " (" + printable.Name(n.Namespace) + ")"
	}
	return name
}

func nodeFacts(n view.TreeNode, now time.Time) string {
	var facts []string
	add := func(text string, is bool) {
		if is && text != "" {
			facts = append(facts, text)
		}
	}
	add(string(n.Sync), true)
	add("prune", n.Prune)
	add("hook", n.Hook)
	add(n.Ready, true)
	add(plural(n.Restarts, "restart"), n.Restarts > 0)
	add("rev "+n.Revision, n.Revision != "")
	if n.CreatedAt != nil {
		add(fleet.Age(now.Sub(*n.CreatedAt)), true)
	}
	return printable.Name(strings.Join(facts, "  "))
}

// nodeLines are the reason of a failure, and with wide the images.
func nodeLines(n view.TreeNode, wide bool) []string {
	var lines []string
	failing := n.Health == mirror.HealthDegraded || n.Health == mirror.HealthProgressing ||
		n.Health == mirror.HealthUnknown
	why := strings.TrimPrefix(n.Reason+": "+n.Message, ": ")
	if why = strings.TrimSuffix(why, ": "); failing && why != "" {
		lines = append(lines, printable.Line(why))
	}
	if wide {
		for _, image := range n.Images {
			lines = append(lines, printable.Line(image))
		}
	}
	return lines
}

func diffCommand(a *app) *cobra.Command {
	var resource string
	cmd := &cobra.Command{
		Use: "diff APP", Short: "Show what the next sync of an Application would change",
		Long: "It prints a unified diff from the live to the desired state of each resource that\n" +
			"differs, without what the engine ignores and with the values of Secrets masked.\n" +
			"The exit code is 1 if there is a difference.",
		Example: "  argosy diff acme/checkout@prod-eu\n" +
			"  argosy diff acme/checkout@prod-eu --resource Deployment/checkout",
		Args: exactly("APP"),
	}
	a.completeOne(cmd, "applications")
	resourceFlag(cmd, &resource)
	out := addFormat(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		i, err := a.inspected(args[0], resource)
		if err != nil {
			return err
		}
		ref, err := i.ref(cmd.Context())
		if err != nil {
			return err
		}
		d, err := i.ApplicationDiff(cmd.Context(), i.id)
		if err != nil {
			return err
		}
		if ref != nil {
			d.Resources = slices.DeleteFunc(d.Resources, func(r view.ResourceDiff) bool {
				return !r.SameObject(*ref)
			})
			d.Same, d.More = 0, 0
		}
		if done, err := a.structured(out, d); done {
			return err
		}
		return a.printDiff(i.id, d)
	}
	return cmd
}

func (a *app) printDiff(id fleet.ApplicationID, d view.ApplicationDiff) error {
	for _, r := range d.Resources {
		kind := strings.TrimSuffix(r.Kind+"."+r.Group, ".")
		path := strings.ReplaceAll(kind+"/"+r.Namespace+"/"+r.Name, "//", "/")
		head := fmt.Sprintf("--- live/%s\n+++ desired/%s  %s\n", printable.Name(path),
			printable.Name(path), r.Change)
		if _, err := fmt.Fprint(a.out, a.colouredDiff(head+printable.Text(r.Diff))); err != nil {
			return err
		}
	}
	switch {
	case d.More > 0:
		a.hint("and %d more resources differ", d.More)
	case len(d.Resources) == 0:
		a.hint("%s: no difference in %s", id, plural(d.Same, "resource"))
		return nil
	}
	return findings{fmt.Sprintf("%s differ; `argosy sync` makes them as desired",
		plural(len(d.Resources)+d.More, "resource"))}
}

// colouredDiff colours the lines of a unified diff, which are escaped already.
func (a *app) colouredDiff(text string) string {
	if !a.colour() {
		return text
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		body := strings.TrimSuffix(line, "\n")
		tone := table.Plain
		switch {
		case strings.HasPrefix(body, "+"):
			tone = table.Good
		case strings.HasPrefix(body, "-"):
			tone = table.Bad
		case strings.HasPrefix(body, "@@"):
			tone = table.Faint
		}
		out.WriteString(table.Paint(table.Value{Text: body, Tone: tone}, true) + "\n")
	}
	return out.String()
}

func eventsCommand(a *app) *cobra.Command {
	var resource string
	cmd := &cobra.Command{
		Use: "events APP", Short: "Show the Kubernetes Events of an Application's resources",
		Long: "The newest event comes first. They are read from the cluster with the\n" +
			"environment's own credential.",
		Example: "  argosy events acme/checkout@prod-eu\n" +
			"  argosy events acme/checkout@prod-eu --resource Pod/checkout-7d9c5b8f6-x2x4z",
		Args: exactly("APP"),
	}
	a.completeOne(cmd, "applications")
	resourceFlag(cmd, &resource)
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		i, err := a.inspected(args[0], resource)
		if err != nil {
			return err
		}
		ref, err := i.ref(cmd.Context())
		if err != nil {
			return err
		}
		all, err := i.ResourceEvents(cmd.Context(), i.id, ref)
		if err != nil {
			return err
		}
		if done, err := a.structured(out, all); done {
			return err
		}
		if len(all) == 0 {
			a.hint("no event is known; a cluster keeps them for an hour by default")
			return nil
		}
		return a.printEvents(all, time.Now())
	}
	return cmd
}

func (a *app) printEvents(all []view.ResourceEvent, now time.Time) error {
	t := table.Table{Heads: []string{"LAST", "TYPE", "REASON", "RESOURCE", "COUNT", "MESSAGE"}}
	for _, e := range all {
		kind := table.Text(e.Type)
		if e.Type == "Warning" {
			kind.Tone = table.Bad
		}
		t.Rows = append(t.Rows, []table.Value{agePtr(e.LastAt, now), kind, table.Text(e.Reason),
			table.Text(e.Resource.String()), table.Number(e.Count), table.Text(e.Message)})
	}
	return t.Write(a.out, a.colour())
}

// logOptions are the flags of logs.
type logOptions struct {
	view.LogRequest
	resource   string
	timestamps bool
}

func logsCommand(a *app) *cobra.Command {
	var o logOptions
	cmd := &cobra.Command{
		Use: "logs APP", Short: "Show the log of a container of an Application",
		Long: "Without --resource the Application must have one Pod. A Deployment, or any other\n" +
			"resource above one Pod, names that Pod. Control characters in the log are escaped.\n" +
			"A stream ends after 15 minutes or 8 MiB.",
		Example: "  argosy logs acme/checkout@prod-eu -f --tail 100\n" +
			"  argosy logs acme/checkout@prod-eu --resource Deployment/checkout --previous\n" +
			"  argosy logs acme/checkout@prod-eu --since 10m -c app",
		Args: exactly("APP"),
	}
	a.completeOne(cmd, "applications")
	flags := cmd.Flags()
	flags.StringVar(&o.resource, "resource", "", "a Pod, or a resource above one: "+resourceHelp)
	flags.StringVarP(&o.Container, "container", "c", "", "container; default: the Pod's first")
	flags.BoolVarP(&o.Follow, "follow", "f", false, "go on as the container writes")
	flags.BoolVar(&o.Previous, "previous", false, "of the container before its last restart")
	flags.DurationVar(&o.Since, "since", 0, "only lines of so long ago, such as 10m")
	flags.IntVar(&o.Tail, "tail", 0, "only so many last lines; 0: at most 10,000")
	flags.BoolVar(&o.timestamps, "timestamps", false, "print the time of each line")
	out := addFormat(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.Tail < 0 || o.Tail > mirror.MaxLogTail || o.Since < 0 {
			return fmt.Errorf("--tail is at most %d, and neither it nor --since is negative",
				mirror.MaxLogTail)
		}
		i, err := a.inspected(args[0], o.resource)
		if err != nil {
			return err
		}
		return a.logs(cmd.Context(), i, o, out)
	}
	return cmd
}

func (a *app) logs(ctx context.Context, i inspected, o logOptions, out *format) error {
	t, err := i.Tree(ctx, i.id)
	if err != nil {
		return err
	}
	if o.Pod, err = podOf(t, o.resource); err != nil {
		return err
	}
	end, err := i.Logs(ctx, i.id, o.LogRequest, func(lines []view.LogLine) error {
		for _, line := range lines {
			if err := a.printLog(line, o.timestamps, out.value == "json"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	switch end {
	case mirror.LogTooLong:
		a.hint("the stream has ended after 8 MiB; ask for less with --tail or --since")
	case mirror.LogTimedOut:
		a.hint("the stream has ended after 15 minutes; run the command again with --since")
	case mirror.LogCut:
		return errors.New("the cluster has ended the stream; run the command again with --since")
	}
	return nil
}

func (a *app) printLog(line view.LogLine, timestamps, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(printable.JSONWriter(a.out))
		enc.SetEscapeHTML(false)
		return enc.Encode(line)
	}
	text := printable.Text(line.Text)
	if line.Truncated {
		text += "…"
	}
	if timestamps && line.At != nil {
		text = line.At.Format(time.RFC3339Nano) + " " + text
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}

// podOf returns the only Pod of the tree, or the only one at and below a resource.
func podOf(t view.Tree, resource string) (view.ResourceRef, error) {
	from, depth := 0, -1
	if resource != "" {
		want, err := parseResource(resource)
		if err != nil {
			return view.ResourceRef{}, err
		}
		if from, err = findNode(t, want); err != nil {
			return view.ResourceRef{}, err
		}
		depth = t.Nodes[from].Depth
	}
	var pods []view.ResourceRef
	for i, n := range t.Nodes[min(from, len(t.Nodes)):] {
		if i > 0 && n.Depth <= depth {
			break // the subtree has ended
		}
		if n.Kind == "Pod" && n.Group == "" {
			pods = append(pods, n.ResourceRef)
		}
	}
	switch len(pods) {
	case 0:
		return view.ResourceRef{}, fmt.Errorf("%s has no Pod; `argosy tree` shows why",
			cmp.Or(resource, "the Application"))
	case 1:
		return pods[0], nil
	}
	var names []string
	for _, p := range pods[:min(len(pods), 10)] {
		names = append(names, p.String())
	}
	return view.ResourceRef{}, fmt.Errorf("%s has %d Pods; name one with --resource: %s",
		cmp.Or(resource, "the Application"), len(pods), strings.Join(names, ", "))
}
