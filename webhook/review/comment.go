package review

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/report"
)

// Marker begins our comment, so that it is found again.
const Marker = "<!-- argosy:pull -->"

// MostComment is the budget of a comment in bytes, and so in characters of any counting: GitHub
// takes 65,536 characters.
const MostComment = 60_000

var symbols = map[forge.CheckState]string{
	forge.CheckSuccess: "✅",
	forge.CheckPending: "⏳",
	forge.CheckNeutral: "⏸️",
	forge.CheckFailure: "❌",
}

// comment renders the report on one pull request.
type comment struct {
	f       Facts
	v       Verdict
	rows    []change
	diffs   []int // of rows: those with fields that change, the longest first
	tenants []report.Tenant
}

func newComment(f Facts, v Verdict) *comment {
	c := &comment{f: f, v: v}
	if f.Plan != nil && f.Plan.RevisionHold == nil {
		c.tenants = f.Plan.Tenants
		c.rows = changes(f, v)
	}
	if len(c.rows) <= mostRows {
		c.diffs = longest(c.rows)
	}
	return c
}

// mostRows is how many rows could be listed: of more not even the shortest would fit.
const mostRows = MostComment / leastRow

// Comment is the text of the one comment of a pull request that is open or was closed without a
// merge: Markdown of at most budget bytes (12,000 at least), beginning with Marker and a line with
// the verdict. Result is its text after the merge.
func Comment(f Facts, v Verdict, budget int) string {
	c := newComment(f, v)
	return fit(budget, len(c.rows), len(c.diffs), c.render)
}

func (c *comment) render(d detail) string {
	p := &page{}
	p.para(Marker)
	switch {
	case c.f.Record.State == forge.PullClosed:
		p.para("Closed without a merge: nothing of it takes effect.")
		return p.String()
	case !c.f.Ours():
		p.para("Nothing that Argosy manages changes.")
		p.answers(c.f.Record.Replies, d)
		return p.String()
	}
	p.para("### " + symbols[c.v.State] + " " + prose(c.f.headline(c.v)))
	p.obstacles(c.v.Obstacles, "", d)
	own, others := c.f.problems()
	p.problems(own, others, d.list)
	c.warnings(p, d)
	c.lead(p)
	c.changes(p, d)
	c.after(p)
	p.answers(c.f.Record.Replies, d)
	p.para(c.smallPrint())
	return p.String()
}

// lead is how much changes, for whom else, and who has agreed.
func (c *comment) lead(p *page) {
	var parts []string
	if c.f.Plan != nil && c.f.Plan.RevisionHold == nil {
		if c.v.State != forge.CheckSuccess {
			parts = append(parts, upper(prose(c.f.tally(c.v)))+".")
		}
		parts = append(parts,
			"Other tenants: "+
				prose(
					series(each(c.f.Plan.Radius, func(t fleet.TenantName) string {
						return tick(string(t))
					}), 10))+".")
	}
	for _, w := range c.v.Ownership {
		if w.Met() {
			parts = append(parts,
				"Approved for "+prose(tenant(w.Tenant)+" by "+series(each(w.Approved, login), 3))+
					".")
		}
	}
	if by := c.clearedBy(); by != "" {
		parts = append(parts, prose(by))
	}
	if most := 8; len(parts) > most {
		parts = append(parts[:most], fmt.Sprintf("…and %d more.", len(parts)-most))
	}
	if len(parts) > 0 {
		p.para(strings.Join(parts, " "))
	}
}

func (c *comment) clearedBy() string {
	if len(c.v.Cleared) == 0 {
		return ""
	}
	var by []string
	for _, r := range c.f.records() {
		if r.Cleared != nil {
			by = append(by, login(r.Cleared.By))
		}
	}
	return report.Count(len(c.v.Cleared), "deletion") + " beyond the guards approved by " +
		series(by, 3) +
		"."
}

// obstacles lists the obstacles of one check or of all. The headline already shows a single one.
func (p *page) obstacles(obstacles []Obstacle, check string, d detail) {
	var list []string
	for _, o := range obstacles {
		if o.of(check) {
			list = append(list, "**"+prose(upper(o.What))+".** "+prose(o.Todo))
		}
	}
	switch {
	case len(list) == 1 && check == "":
		p.para(prose(obstacles[0].Todo))
	case len(list) > 0:
		p.para("**Before the merge**")
		p.items(list, min(d.list, 20))
	}
}

// answers are those to the last commands.
func (p *page) answers(replies []string, d detail) {
	if len(replies) == 0 {
		return
	}
	p.para("**Answers**")
	if most := min(d.list, mostReplies); len(replies) > most {
		replies = replies[len(replies)-most:]
	}
	for _, r := range replies {
		lines := each(strings.Split(r, "\n"), prose)
		p.item(strings.Join(slices.DeleteFunc(lines, func(l string) bool { return l == "" }), "\n"))
	}
}

// smallPrint is what the verdict rests on.
func (c *comment) smallPrint() string {
	var parts []string
	if c.f.Base != "" {
		parts = append(parts, "base "+code(c.f.Base.Short()))
	}
	parts = append(parts, "head "+code(c.f.Record.Head.Short()))
	if c.f.Plan != nil {
		parts = append(parts, "plan "+code(fleet.Revision(c.f.Plan.Hash).Short()))
	}
	if link := c.f.link(); link != "" && c.f.Plan != nil {
		parts = append(parts, "[the whole plan]("+link+")")
	}
	return "<sub>" + strings.Join(append(parts, "commands: `/argosy help`"), " · ") +
		"</sub>"
}

// link is Facts.Link as long as it is one that cannot end the Markdown around it.
func (f Facts) link() string {
	if !strings.HasPrefix(f.Link, "https://") && !strings.HasPrefix(f.Link, "http://") ||
		len(f.Link) > 1000 {
		return ""
	}
	for _, r := range f.Link {
		if r <= ' ' || r > '~' || strings.ContainsRune("()<>[]\"'`|\\", r) {
			return ""
		}
	}
	return f.Link
}

// changes writes what the merge changes: tables, what serves, quotas and placements, fields.
func (c *comment) changes(p *page, d detail) {
	if c.f.Plan == nil || c.f.Plan.RevisionHold != nil {
		return
	}
	if len(c.f.Plan.Platform) > 0 {
		p.para("**Changes of the platform**")
		p.items(each(c.f.Plan.Platform, platform), d.list)
	}
	c.rings(p, d)
	for _, drain := range c.f.Plan.Drains {
		p.para("**Drain of engine " + code(string(drain.Engine)) + "**: " + prose(drain.Summary()))
		var lines []string
		for _, l := range drain.Lines() {
			lines = append(lines, clean(l, mostLine))
		}
		p.code("text", lines[:min(len(lines), d.list)])
		p.rest(len(lines)-d.list, "environments more")
	}
	switch d.rows {
	case noRows:
	case perTenant:
		c.perTenant(p, d)
	default:
		c.perObject(p, d)
	}
	c.fields(p, d)
	if d.rows != eachRow {
		p.para("There are too many changes to list them here. " + c.elsewhere())
	}
}

// rings writes what the rings do after the merge, and what is known of their versions already.
func (c *comment) rings(p *page, d detail) {
	shown := map[string]bool{} // by digest
	for _, ring := range c.f.Plan.Rings {
		p.para("**Ring " + code(ring.Name) + "**: " + prose(ring.Summary()) + ".")
		lines := ring.Lines()
		for i := range lines {
			lines[i] = clean(lines[i], mostLine)
		}
		p.code("text", lines[:min(len(lines), d.list)])
		p.rest(len(lines)-d.list, "engines more")
		if approval := ring.Approval(); approval != "" {
			p.para(prose(approval) + ".")
		}
		if !shown[ring.Digest] {
			c.rendered(p, ring)
		}
		shown[ring.Digest] = true
	}
}

// rendered writes what comparisons with the version of a ring have found, those of other rings
// included.
func (c *comment) rendered(p *page, ring report.Ring) {
	for _, r := range c.f.Rendered {
		if r.Digest != ring.Digest || r.Applications == 0 {
			continue
		}
		known := "Version " + tick(ring.Version) + " has rendered " +
			report.Count(r.Applications, "Application") + " of ring " + tick(r.Ring) + " so far: "
		if r.Differences == 0 {
			known += "none differs."
		} else {
			known += fmt.Sprintf("%d %s, %d of them without an approval. List them with %s.",
				r.Differences, report.Plural(r.Differences, "differs", "differ"), r.Pending,
				tick("argosy rings differences "+r.Ring))
		}
		p.para(prose(known))
	}
}

// elsewhere links the page with the whole report.
func (c *comment) elsewhere() string {
	if link := c.f.link(); link != "" {
		return "[The whole plan](" + link + ") has it."
	}
	return "`argosy plan` shows it."
}

// platform is "new Tenant acme" with its name as one.
func platform(s string) string {
	verb, rest, _ := strings.Cut(s, " ")
	return prose(verb + " " + tick(rest))
}

func (c *comment) perTenant(p *page, d detail) {
	if len(c.tenants) == 0 {
		return
	}
	frozen := slices.ContainsFunc(c.tenants, func(t report.Tenant) bool {
		return t.Counts().Frozen > 0
	})
	p.table(without(frozen, "tenant", "added", "changed", "moved", "waits", "deleted",
		"deletion held")...)
	for _, t := range c.tenants[:min(len(c.tenants), d.list)] {
		n := t.Counts()
		p.row(without(frozen, code(string(t.Name)), digits(n.Created), digits(n.Changed+n.Waves),
			digits(moved([]report.Tenant{t})), digits(n.Frozen), digits(n.Deleted),
			digits(n.Held))...)
	}
	p.rest(len(c.tenants)-d.list, "tenants more")
}

func digits(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func (c *comment) perObject(p *page, d detail) {
	rows := c.rows
	for _, t := range c.tenants {
		n := 0
		for n < len(rows) && rows[n].tenant == t.Name {
			n++
		}
		if len(c.tenants) > 1 {
			p.para("#### " + upper(prose(tenant(t.Name))))
		}
		c.table(p, rows[:n], d)
		rows = rows[n:]
		context(p, t, d)
	}
}

// table writes the rows of one tenant, and what only serves them below it.
func (c *comment) table(p *page, rows []change, d detail) {
	var serving []change
	if d.rows == eachRow {
		listed := slices.Clone(rows)
		serving = slices.DeleteFunc(slices.Clone(rows), func(r change) bool { return !r.serves() })
		rows = slices.DeleteFunc(listed, change.serves)
	}
	switch rows, counted := listed(rows, d); {
	case len(rows) > manyRows:
		n := min(dangerous(rows), manyRows)
		what := "rows"
		if n > 0 {
			c.lines(p, rows[:n], nil)
			what = "more rows"
		}
		p.fold(fmt.Sprintf("%d %s", len(rows)-n, what), func() { c.lines(p, rows[n:], counted) })
	case len(rows)+len(counted) > 0:
		c.lines(p, rows, counted)
	}
	for _, line := range also(serving, d) {
		p.para(line)
	}
}

// manyRows is how long a table may be before it is folded, all but its deletions.
const manyRows = 40

// dangerous is how many rows, which come first, delete something.
func dangerous(rows []change) int {
	n := slices.IndexFunc(rows, func(r change) bool { return r.verb > held })
	if n < 0 {
		return len(rows)
	}
	return n
}

func (c *comment) lines(p *page, rows []change, counted []alike) {
	seen := func(r change) bool { return c.seen(r) != "" }
	agents := slices.ContainsFunc(rows, seen) || slices.ContainsFunc(counted, func(a alike) bool {
		return seen(a.change)
	})
	p.table(without(agents, "", "what", "environment", "engine", "agent last seen", "")...)
	for _, r := range rows {
		p.row(without(agents, verbs[r.verb], prose(r.what()), environment(r), engines(r), c.seen(r),
			prose(r.note))...)
	}
	for _, n := range counted {
		p.row(without(agents, verbs[n.verb], n.what(), "", engines(n.change), c.seen(n.change),
			"")...)
	}
}

// without leaves out the fifth cell of each row of a table where no row has one.
func without(fifth bool, cell ...string) []string {
	if !fifth {
		return slices.Delete(cell, 4, 5)
	}
	return cell
}

// alike is rows of one kind that have the same done to them on the same engine.
type alike struct {
	change
	n int
}

func (a alike) what() string {
	switch a.kind {
	case fleet.ObjectApplication:
		return report.Count(a.n, "Application")
	case fleet.ObjectRepository:
		return report.Count(a.n, "credential")
	case fleet.ObjectProject:
		return report.Count(a.n, "project")
	}
	return report.Count(a.n, "environment")
}

// listed parts the rows that are listed from those that are only counted: none, or from perEngine
// on all but the first deletions.
func listed(rows []change, d detail) ([]change, []alike) {
	if d.rows == eachRow {
		return rows, nil
	}
	type key struct {
		verb   verb
		kind   fleet.ObjectKind
		engine string
	}
	var kept []change
	var order []key
	counted := map[key]*alike{}
	for _, r := range rows {
		if (r.verb == deleted || r.verb == held) && len(kept) < d.list {
			kept = append(kept, r)
			continue
		}
		k := key{r.verb, r.kind, engines(r)}
		if counted[k] == nil {
			counted[k] = &alike{change: r}
			order = append(order, k)
		}
		counted[k].n++
	}
	slices.SortStableFunc(order, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.verb, b.verb), cmp.Compare(a.engine, b.engine))
	})
	return kept, each(order, func(k key) alike { return *counted[k] })
}

func environment(r change) string {
	if r.environment == "" {
		return ""
	}
	return code(string(r.environment))
}

func engines(r change) string {
	return strings.Join(each(r.engines, func(e fleet.EngineName) string {
		if e.OfEnvironment() {
			return "own cluster " + code(string(e)) + " (agent)"
		}
		return code(string(e))
	}), " → ")
}

// seen returns when the agent of the row's engine last reported, or "" without an agent. A recent
// report has no date: the text would change with every review.
func (c *comment) seen(r change) string {
	a := c.f.Engines[r.engines[len(r.engines)-1]].Agent
	switch {
	case a == nil:
		return ""
	case !a.away(c.f.Now):
		return "connected"
	case a.LastSeen == nil:
		return "never"
	}
	return utc(*a.LastSeen)
}

// also returns a line for each engine with the objects that only serve rows of the table.
func also(serving []change, d detail) []string {
	by := map[string][]string{}
	var order []string
	for _, r := range serving {
		at := engines(r)
		if by[at] == nil {
			order = append(order, at)
		}
		by[at] = append(by[at], r.what()+" "+strings.Trim(verbs[r.verb], "*"))
	}
	slices.Sort(order)
	var out []string
	for _, at := range order[:min(len(order), d.list)] {
		out = append(out, "Also on "+at+": "+prose(series(by[at], d.list))+".")
	}
	if n := len(order) - d.list; n > 0 {
		out = append(out, fmt.Sprintf("Also on %s.", report.Count(n, "more engine")))
	}
	return out
}

// fields folds what changes within the objects.
func (c *comment) fields(p *page, d detail) {
	if len(c.diffs) == 0 || d.rows != eachRow {
		return
	}
	dropped := min(d.dropped, len(c.diffs))
	left := map[int]bool{}
	for _, i := range c.diffs[:dropped] {
		left[i] = true
	}
	var lines []string
	for i, r := range c.rows {
		if len(r.fields) > 0 && !left[i] {
			lines = append(lines, r.lines...)
		}
	}
	if len(lines) > 0 {
		p.fold("Which fields change", func() { p.code("diff", lines) })
	}
	if dropped > 0 {
		p.para("The fields of " + report.Count(dropped, "changed object") + " are left out here. " +
			c.elsewhere())
	}
}

// verb is what happens to an object; the changes that are hardest to undo come first.
type verb int

const (
	deleted verb = iota
	held
	frozen
	inWave
	movedTo
	changed
	added
	synced
)

var verbs = map[verb]string{deleted: "**deleted**", held: "**deletion held**",
	frozen: "**waits**", inWave: "in a wave", movedTo: "moved",
	changed: "changed", added: "added", synced: "synced"}

// change is one row of the table: an object, an environment that moves, or a sync.
type change struct {
	verb        verb
	key         fleet.ObjectKey // of an object
	tenant      fleet.TenantName
	kind        fleet.ObjectKind // empty: an environment that moves
	name        string           // of the deployment, or of the credential
	environment fleet.EnvironmentName
	engines     []fleet.EngineName // one; of a move from where and to where
	note        string             // prose
	fields      []report.Field
	lines       []string // of fields, in the form that a Git host colors
	kept        bool     // of a deletion: its workload stays
}

// what names the object in the table; subject names it in a sentence.
func (c change) what() string {
	switch c.kind {
	case fleet.ObjectApplication:
		return tick(c.name)
	case fleet.ObjectRepository:
		return "credential " + tick(c.name)
	case fleet.ObjectProject:
		return "project"
	}
	return "environment"
}

func (c change) subject() string {
	if c.kind == fleet.ObjectApplication {
		return tick(c.name) + " in " + tick(string(c.environment))
	}
	if c.environment != "" {
		return "environment " + tick(string(c.environment))
	}
	return c.what()
}

// changes is the plan as rows: tenant by tenant, Applications and environments before what serves
// them.
func changes(f Facts, v Verdict) []change {
	cleared := map[fleet.ObjectKey]bool{}
	for _, k := range v.Cleared {
		cleared[k] = true
	}
	var out []change
	for _, t := range f.Plan.Tenants {
		rows := tenantChanges(t, cleared)
		slices.SortStableFunc(rows, func(a, b change) int {
			return cmp.Or(int(a.verb-b.verb), cmp.Compare(b.kind.Rank(), a.kind.Rank()),
				cmp.Compare(a.name, b.name), cmp.Compare(a.environment, b.environment))
		})
		out = append(out, rows...)
	}
	return out
}

func tenantChanges(t report.Tenant, cleared map[fleet.ObjectKey]bool) []change {
	moves := map[fleet.EnvironmentName]report.Move{}
	var out []change
	for _, m := range t.Moves {
		moves[m.Environment] = m
		out = append(out, change{verb: movedTo, tenant: t.Name, environment: m.Environment,
			engines: []fleet.EngineName{m.From, m.To},
			note: "with " + report.Count(m.Applications, "Application") +
				"; the workloads stay as they are"})
	}
	for _, e := range t.Engines {
		for _, c := range e.Changes {
			row := object(t.Name, e.Name, c)
			if m, moves := moves[row.environment]; moves &&
				(e.Name == m.From && c.Action == report.Delete || e.Name == m.To &&
					c.Action == report.Create) {
				continue // the move covers it
			}
			if row.verb == held && cleared[row.key] {
				row.verb = deleted
			}
			out = append(out, row)
		}
	}
	for _, s := range t.Syncs {
		name, environment, _ := strings.Cut(s.Application, "@")
		out = append(out, change{verb: synced, tenant: t.Name, kind: fleet.ObjectApplication,
			name: name, environment: fleet.EnvironmentName(environment),
			engines: []fleet.EngineName{s.Engine}, note: "at " + tick(s.Revision) + ", by " +
				tick(string(s.SyncRun))})
	}
	return out
}

func object(t fleet.TenantName, engine fleet.EngineName, c report.Change) change {
	row := change{key: fleet.ObjectKey{Engine: engine, Kind: c.Kind, Name: c.Object}, tenant: t,
		kind: c.Kind, name: c.Subject, engines: []fleet.EngineName{engine}, note: c.Note,
		fields: c.Fields}
	switch c.Kind {
	case fleet.ObjectApplication:
		name, environment, _ := strings.Cut(c.Subject, "@")
		row.name, row.environment = name, fleet.EnvironmentName(environment)
	case fleet.ObjectCluster:
		row.environment = fleet.EnvironmentName(c.Subject)
	}
	switch c.Action {
	case report.Create:
		row.verb = added
	case report.Delete:
		row.verb = deleted
	case report.Hold:
		row.verb = held
	case report.Freeze:
		row.verb = frozen
	case report.Wave:
		row.verb, row.note = inWave, c.Note
	default:
		row.verb = changed
		if len(c.Fields) > 0 {
			row.note = fieldsNote(c.Fields)
		}
	}
	if (row.verb == deleted || row.verb == held) && c.Kind == fleet.ObjectApplication {
		row.note = "its workload is deleted"
		if row.kept = c.Keeps; row.kept {
			row.note = "its workload stays (deletionPolicy Orphan)"
		}
	}
	return row
}

// fieldsNote is the field itself, if it is one and short: that is what most pull requests are
// about.
func fieldsNote(fields []report.Field) string {
	f := fields[0]
	if len(fields) > 1 || f.Before == "" || f.After == "" || len(f.Path)+len(f.Before)+
		len(f.After) > 160 {
		return report.Count(len(fields), "field")
	}
	name := f.Path[strings.LastIndexByte(f.Path, '.')+1:]
	return tick(name) + " " + tick(unquoted(f.Before)) + " → " + tick(unquoted(f.After))
}

func unquoted(s string) string {
	if len(s) > 2 && s[0] == '"' && s[len(s)-1] == '"' && !strings.Contains(s, `\`) {
		return s[1 : len(s)-1]
	}
	return s
}

// serves reports whether an object only serves others: it is listed beside the table.
func (c change) serves() bool {
	return c.kind == fleet.ObjectProject || c.kind == fleet.ObjectRepository
}

// longest is the rows with fields that change, those first that take the most room. It writes their
// lines.
func longest(rows []change) []int {
	size := map[int]int{}
	var out []int
	for i, r := range rows {
		if len(r.fields) == 0 {
			continue
		}
		rows[i].lines = r.diff()
		for _, l := range rows[i].lines {
			size[i] += len(l) + 1
		}
		out = append(out, i)
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(size[b], size[a]) })
	return out
}

// diff returns the fields of a row in the form that a Git host colors.
func (c change) diff() []string {
	subject := c.subject()
	if c.kind == fleet.ObjectProject {
		subject = "project of " + string(c.tenant)
	}
	lines := []string{clean("! "+strings.ReplaceAll(subject, "`", "")+" on "+string(c.engines[0]),
		mostLine)}
	for _, f := range c.fields {
		if f.Before != "" {
			lines = append(lines, "-   "+clean(f.Path+": "+f.Before, mostLine))
		}
		if f.After != "" {
			lines = append(lines, "+   "+clean(f.Path+": "+f.After, mostLine))
		}
	}
	return lines
}

// warnings lists facts that do not block the merge but may spoil it.
func (c *comment) warnings(p *page, d detail) {
	engines := engineNames(c.rows)
	list := slices.Concat(c.f.stopsOf(each(c.tenants, func(t report.Tenant) fleet.TenantName {
		return t.Name
	}), engines),
		c.f.away(engines), c.f.closing(engines), c.unplaced(), c.unhealthyBefore(), c.collisions())
	if len(list) == 0 {
		return
	}
	p.para("**⚠️ Worth knowing before the merge**")
	p.items(list, min(d.list, 20))
}

// stopsOf is the emergency stops that are about any of these.
func (f Facts) stopsOf(tenants []fleet.TenantName, engines []fleet.EngineName) []string {
	var list []string
	for _, s := range f.Stops {
		what := "an emergency stop of the fleet"
		switch s.Scope {
		case mirror.StopTenant:
			if !slices.Contains(tenants, fleet.TenantName(s.Name)) {
				continue
			}
			what = "an emergency stop of " + tenant(fleet.TenantName(s.Name))
		case mirror.StopEngine:
			if !slices.Contains(engines, fleet.EngineName(s.Name)) {
				continue
			}
			what = "an emergency stop of engine " + tick(s.Name)
		}
		text := prose(upper(what)) + " is in force since " + utc(s.At) +
			": nothing is written until it is resumed"
		if s.Reason != "" {
			text += ". Its reason: " + words(s.Reason)
		}
		list = append(list, text)
	}
	return list
}

// engineNames is every engine of the rows, sorted.
func engineNames(rows []change) []fleet.EngineName {
	var names []fleet.EngineName
	for _, r := range rows {
		names = append(names, r.engines...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// away is the engines that cannot be written to now.
func (f Facts) away(engines []fleet.EngineName) []string {
	var list []string
	for _, name := range engines {
		e, known := f.Engines[name]
		switch {
		case !known:
		case e.Agent.away(f.Now):
			list = append(list, prose(upper(place(name)))+": "+e.Agent.absence())
		case !e.Reachable:
			text := prose(upper(place(name))) + " is not reachable"
			if e.Since != nil {
				text += " since " + utc(*e.Since)
			}
			list = append(list, text+": changes there wait until it is")
		}
	}
	return list
}

// absence is why nothing reaches the cluster of an agent that is away, and when it will.
func (a *Agent) absence() string {
	switch {
	case !a.Joined:
		return "no agent has joined yet; changes there are applied once one has"
	case a.Over:
		return "its agent is no longer admitted; changes there are applied once one has " +
			"joined again"
	case a.LastSeen == nil:
		return "its agent has joined and never connected; changes there are applied once it does"
	}
	return "its agent was last seen " + utc(*a.LastSeen) +
		"; changes there are applied when it is back"
}

// place is an engine as a sentence goes on with it.
func place(name fleet.EngineName) string {
	if name.OfEnvironment() {
		return "own cluster " + tick(string(name))
	}
	return "engine " + tick(string(name))
}

// closing is the engines that take nothing new.
func (f Facts) closing(engines []fleet.EngineName) []string {
	var list []string
	for _, name := range engines {
		at := prose("Engine " + tick(string(name)))
		switch f.Engines[name].State {
		case fleet.EngineCordoned:
			list = append(list,
				at+" is cordoned: it takes no new environment; its environments stay")
		case fleet.EngineDraining:
			list = append(list, at+" is draining: its environments move to other engines")
		}
	}
	return list
}

func (c *comment) unplaced() []string {
	var list []string
	for _, t := range c.tenants {
		for _, pl := range t.Placements {
			if pl.Engine == "" {
				list = append(list, prose("Environment "+tick(string(pl.Environment.Name)))+
					" has no engine, and nothing is deployed there: "+words(pl.Reason))
			} else if pl.Misplaced != "" {
				list = append(list, prose("Environment "+tick(string(pl.Environment.Name)))+
					" is misplaced, and this change alone does not move it: "+words(pl.Misplaced))
			} else if why := pl.Outgrown(); why != "" {
				list = append(list, prose("Environment "+tick(string(pl.Environment.Name)))+
					" stays where it is, but "+words(why))
			}
		}
	}
	return list
}

// unhealthyBefore returns the Applications that were unhealthy before the merge: their later state
// is not the fault of this change alone. It skips Applications that the change deletes.
func (c *comment) unhealthyBefore() []string {
	var list []string
	for _, r := range c.rows {
		o, known := c.f.Outcomes[r.key]
		if !known || !o.Present || r.verb == added || r.verb == deleted || r.verb == held ||
			r.verb == frozen {
			continue
		}
		var bad []string
		if o.LastSeenAt != nil {
			bad = append(bad, "Unknown")
		}
		if o.Sync == mirror.SyncOutOfSync {
			bad = append(bad, string(o.Sync))
		}
		if o.Health == mirror.HealthDegraded || o.Health == mirror.HealthMissing {
			bad = append(bad, string(o.Health))
		}
		if o.Apply == mirror.ApplyFailed || o.Apply == mirror.ApplyConflict {
			bad = append(bad, "rejected by its engine")
		}
		if len(bad) == 0 {
			continue
		}
		text := prose(r.subject()) + " is " + strings.Join(bad, " and ") + " already"
		if message := cmp.Or(o.Message, o.ApplyMessage); message != "" {
			text += ": " + words(message)
		}
		list = append(list, text)
	}
	return list
}

func (c *comment) collisions() []string {
	var list []string
	sorted := slices.Clone(c.f.Collisions)
	slices.SortFunc(sorted, func(a, b forge.Collision) int { return a.Number - b.Number })
	for _, x := range sorted {
		list = append(list,
			fmt.Sprintf(
				"#%d changes %s too: whichever is merged second has to be brought up to date",
				x.Number, prose(series(each(x.Touches, tick), 3))))
	}
	return list
}

// utc formats a time so that it stays true: an "ago" would change with every review.
func utc(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// context is what a tenant's rows lead to: quotas that are used otherwise, and where environments
// go and why.
func context(p *page, t report.Tenant, d detail) {
	if used := quota(t.Quota); used != "" {
		p.para("Quota of " + prose(tenant(t.Name)) + ": " + used + ".")
	}
	var list []string
	for _, pl := range t.Placements {
		if pl.Engine.OfEnvironment() {
			list = append(list, prose("Environment "+tick(string(pl.Environment.Name)))+" is on "+
				words(pl.Reason))
			continue
		}
		if pl.Engine != "" && pl.Misplaced == "" && pl.Outgrown() == "" {
			list = append(list, prose("Environment "+tick(string(pl.Environment.Name))+
				" goes to engine "+tick(string(pl.Engine)))+": "+words(pl.Reason))
		}
	}
	for _, name := range t.Unplaced {
		list = append(list, prose("Environment "+tick(name)+" leaves its engine: it is gone"))
	}
	p.items(list, d.list)
}

// quota returns the usage that changes.
func quota(u report.QuotaUse) string {
	var parts []string
	add := func(what string, before, after, limit int) {
		if before != after {
			parts = append(parts, fmt.Sprintf("%s %d → %d of %d", what, before, after, limit))
		}
	}
	add("environments", u.Before.Environments, u.After.Environments, u.Quota.Environments)
	add("deployments", u.Before.Deployments, u.After.Deployments, u.Quota.Deployments)
	add("Applications", u.Before.Applications, u.After.Applications, u.Quota.Applications)
	return strings.Join(parts, ", ")
}

// after is what happens once it is merged.
func (c *comment) after(p *page) {
	if c.f.Plan == nil || c.f.Plan.RevisionHold != nil || len(c.f.Conflicts) > 0 {
		return
	}
	parts := append(c.arrival(), c.workloads()...)
	if len(c.v.Held) > 0 {
		parts = append(parts, "Deletions that are held stay held until they are approved.")
	}
	for _, h := range c.f.Plan.Holds {
		if h.Reason == mirror.HoldFrozen {
			parts = append(parts, prose(upper(h.Message)+": the changes that wait follow then, or after")+" "+
				tick("argosy release")+" of the merge commit.")
		}
	}
	follows := "This comment then shows the state of each Application."
	if len(c.rows) == 0 && len(c.f.Plan.Rings) > 0 {
		follows = tick("argosy get rings") + " shows how far they are."
	}
	p.para("**After the merge** " + strings.Join(append(parts, follows), " "))
}

// arrival is when which engine has it.
func (c *comment) arrival() []string {
	var now, later []string
	for _, name := range c.written() {
		if e, known := c.f.Engines[name]; known && (!e.Reachable || e.Agent.away(c.f.Now)) ||
			c.f.stops(name) {
			later = append(later, tick(string(name)))
		} else {
			now = append(now, tick(string(name)))
		}
	}
	var parts []string
	if len(now)+len(later) == 0 && len(c.f.Plan.Rings) > 0 {
		parts = append(parts, "no object of a tenant changes, and the rings begin within seconds.")
	} else if len(now)+len(later) == 0 {
		parts = append(parts, "nothing changes on any engine.")
	}
	if len(now) > 0 {
		parts = append(parts, prose(series(now, 5))+report.Plural(len(now), " has", " have")+
			" it within seconds.")
	}
	if len(later) > 0 {
		parts = append(parts, prose(series(later, 5))+report.Plural(len(later), " has", " have")+
			" it once "+report.Plural(len(later), "it", "they")+" can be written to.")
	}
	return parts
}

// written returns every engine that the change writes to, sorted: held changes write nothing.
func (c *comment) written() []fleet.EngineName {
	return engineNames(slices.DeleteFunc(slices.Clone(c.rows), func(r change) bool {
		return r.verb == held || r.verb == frozen
	}))
}

// stops reports whether an engine, or the whole fleet, may not be written to.
func (f Facts) stops(name fleet.EngineName) bool {
	return slices.ContainsFunc(f.Stops, func(s mirror.Stop) bool {
		return s.Scope == mirror.StopFleet || s.Scope == mirror.StopEngine && s.Name == string(name)
	})
}

// workloads is what becomes of those of the Applications that are deleted.
func (c *comment) workloads() []string {
	var parts []string
	gone, kept := 0, 0
	for _, r := range c.rows {
		switch {
		case r.verb != deleted || r.kind != fleet.ObjectApplication:
		case r.kept:
			kept++
		default:
			gone++
		}
	}
	if gone > 0 {
		parts = append(parts, report.Plural(gone, "The workload of 1 Application is deleted.",
			fmt.Sprintf("The workloads of %d Applications are deleted.", gone)))
	}
	if kept > 0 {
		parts = append(parts,
			report.Plural(
				kept, "The workload of 1 Application that goes stays (deletionPolicy Orphan).",
				fmt.Sprintf(
					"The workloads of %d Applications that go stay (deletionPolicy Orphan).",
					kept)))
	}
	return parts
}
