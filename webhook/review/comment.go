package review

import (
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
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

// comment is what there is to say of one pull request.
type comment struct {
	f       Facts
	v       Verdict
	rows    []change
	diffs   []int // of rows: those with fields that change, the longest first
	tenants []report.Tenant
}

func newComment(f Facts, v Verdict) *comment {
	c := &comment{f: f, v: v}
	if f.Plan != nil && f.Plan.Waiting == nil {
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
	if c.f.Plan != nil && c.f.Plan.Waiting == nil {
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
	return count(len(c.v.Cleared), "deletion") + " beyond the guards approved by " + series(by, 3) +
		"."
}

// obstacles lists what stands in the way, of one check or of all. Of a single one the headline has
// told already.
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
	return "<sub>" + strings.Join(append(parts, "what you can ask for: `/argosy help`"), " · ") +
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
