package review

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan/report"
)

// changes writes what the merge changes: tables, what serves, quotas and placements, fields.
func (c *comment) changes(p *page, d detail) {
	if c.f.Plan == nil || c.f.Plan.Waiting != nil {
		return
	}
	if len(c.f.Plan.Platform) > 0 {
		p.para("**What changes in the platform**")
		p.items(each(c.f.Plan.Platform, platform), d.list)
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
		p.para("What changes is too much to be listed here. " + c.elsewhere())
	}
}

// elsewhere is where all of it can be read.
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
	p.table("tenant", "added", "changed", "moved", "deleted", "deletion held")
	for _, t := range c.tenants[:min(len(c.tenants), d.list)] {
		n := t.Counts()
		p.row(code(string(t.Name)), digits(n.Created), digits(n.Changed),
			digits(moved([]report.Tenant{t})), digits(n.Deleted), digits(n.Held))
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

// without leaves out the column of the agents where there are none.
func without(agents bool, cell ...string) []string {
	if !agents {
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
		return count(a.n, "Application")
	case fleet.ObjectRepository:
		return count(a.n, "credential")
	case fleet.ObjectProject:
		return count(a.n, "project")
	}
	return count(a.n, "environment")
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

// seen is when the agent of the row's engine was heard of last, or "" where there is none. What is
// lately is not dated: the text would change with every look.
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

// also tells of what only serves the rows of the table, a line for each engine.
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
		out = append(out, fmt.Sprintf("Also on %s.", count(n, "more engine")))
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
		p.para("The fields of " + count(dropped, "changed object") + " are left out here. " +
			c.elsewhere())
	}
}
