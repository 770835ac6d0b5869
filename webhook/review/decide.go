package review

import (
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/report"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

// Obstacle is one reason against the merge of a pull request. Both texts are prose: one line, names
// in backticks.
type Obstacle struct {
	Check string           // the check that reports it; empty: each of the three
	State forge.CheckState // of that check: failure, pending or neutral
	What  string           // the fault
	Todo  string           // the fix
}

// of reports whether a check reports the obstacle; every obstacle is one of "".
func (o Obstacle) of(check string) bool { return check == "" || o.Check == "" || o.Check == check }

// Verdict is what the Facts come to.
type Verdict struct {
	State     forge.CheckState   // the worst of the checks
	Line      string             // one line without markup, at most 140 characters
	Tenants   []fleet.TenantName // whose files the pull request changes, sorted; "" is the platform
	Ownership []Ownership        // of each of Tenants
	Obstacles []Obstacle         // check by check
	// deletions beyond the guards without an approval that counts; Items lists them
	Held    []mirror.Hold
	Cleared []fleet.ObjectKey // deletions beyond the guards that somebody who may has approved
	Checks  []forge.Check     // validate, plan, owners: always all three
}

// Consented reports whether an owner of everything that it touches has approved this head. Of a
// commit of the merge queue nothing is known.
func (v Verdict) Consented() bool {
	return len(v.Ownership) == len(v.Tenants) && !slices.ContainsFunc(v.Ownership,
		func(o Ownership) bool { return !o.Met() })
}

// Agreed is those of the files whose own owners have approved this head.
func (v Verdict) Agreed(files map[string]string) map[string]string {
	out := map[string]string{}
	for path, blob := range files {
		owner := reviews.TenantOf(path)
		if slices.ContainsFunc(v.Ownership, func(o Ownership) bool {
			return o.Tenant == owner &&
				o.Met()
		}) {
			out[path] = blob
		}
	}
	return out
}

// Decide judges a pull request, or a commit of the merge queue.
func Decide(f Facts) Verdict {
	v := Verdict{Tenants: f.touched()}
	v.Held, v.Cleared = f.deletions()
	v.Obstacles = slices.Concat(f.unmergeable(), f.invalid(), f.unplanned(), f.stopped(v.Held),
		f.beyondQuota())
	if !f.queued() { // each was approved before it came into the queue
		v.Ownership = f.ownership()
		v.Obstacles = append(v.Obstacles, f.unowned(v.Ownership)...)
	} else if n := len(f.Unapproved); n > 0 {
		v.Obstacles = append(v.Obstacles, Obstacle{forge.CheckOwners, forge.CheckFailure,
			report.Count(n, "file") + " that no owner approved",
			"No approved pull request has " + series(each(f.Unapproved, tick), 5) +
				" as this commit of the merge queue does. Take the pull " +
				"request out of the queue, bring " + tick(f.branch()) +
				" into its branch, and have it approved again."})
	}
	v.State = worst(v.Obstacles, "")
	v.Line = plain(f.headline(v), mostTitle)
	v.Checks = f.checks(v)
	return v
}

// gravity orders states, the worst last.
var gravity = []forge.CheckState{forge.CheckSuccess, forge.CheckNeutral, forge.CheckPending,
	forge.CheckFailure}

// worst is the gravest state among the obstacles of one check, or of all.
func worst(obstacles []Obstacle, check string) forge.CheckState {
	state := forge.CheckSuccess
	for _, o := range obstacles {
		if o.of(check) && slices.Index(gravity, o.State) > slices.Index(gravity, state) {
			state = o.State
		}
	}
	return state
}

// unmergeable fails all three checks: the files that a merge would change are unknown, so no check
// can succeed.
func (f Facts) unmergeable() []Obstacle {
	if f.Unmergeable == "" {
		return nil
	}
	return []Obstacle{{"", forge.CheckFailure, "cannot be merged as it is", reason(f.Unmergeable)}}
}

// invalid returns the errors in the files that the pull request changes. Warnings, and errors that
// it causes in other files, are shown and block nothing.
func (f Facts) invalid() []Obstacle {
	own, _ := f.problems()
	n := errorsOf(own)
	if n == 0 {
		return nil
	}
	o := Obstacle{Check: forge.CheckValidate, State: forge.CheckFailure,
		What: report.Count(n, "error") +
			" in the files that this changes",
		Todo: "Fix the errors below. Merged as it is, a file with an error has no effect: " +
			"its last valid state stays in effect."}
	if n == 1 {
		o.What = "1 error in " + tick(own[0].Path)
	}
	return []Obstacle{o}
}

func (f Facts) unplanned() []Obstacle {
	at := func(state forge.CheckState, what, todo string) []Obstacle {
		return []Obstacle{{forge.CheckPlan, state, what, todo}}
	}
	switch {
	case !f.Ours(), f.Unmergeable != "":
		return nil
	case len(f.Conflicts) > 0:
		return at(forge.CheckFailure, "conflicts with "+tick(f.branch()),
			"Both sides have changed "+series(each(f.Conflicts, tick), 5)+": bring "+
				tick(f.branch())+" into the pull request's branch.")
	case f.untested():
		return at(forge.CheckNeutral, "a fork: nothing is planned yet",
			"Its files were read and checked, no more. Somebody with write permission, or an "+
				"owner of the platform, reads them and comments "+
				tick("/argosy ok-to-test "+string(f.Record.Head))+".")
	case f.Plan == nil:
		return at(forge.CheckPending, f.wait(), "It is planned then, without anybody asking. "+
			tick("argosy get revisions")+" shows what is applied.")
	case f.Plan.RevisionHold != nil:
		return at(forge.CheckFailure, "as a whole this would wait for an approval",
			reason(f.Plan.RevisionHold.Message))
	case f.Behind:
		return at(forge.CheckPending, tick(f.branch())+" has commits that are not applied yet",
			"They are being applied, or wait for an approval. It is planned again then.")
	}
	return nil
}

// wait is what a plan that there is none of waits for.
func (f Facts) wait() string {
	if f.Unplanned == "" {
		return "not planned yet"
	}
	return "waits until " + f.Unplanned
}

func (f Facts) branch() string {
	if f.Record.Pull.Base == "" {
		return "the branch"
	}
	return f.Record.Pull.Base
}

// reason is a sentence that was made elsewhere.
func reason(why string) string {
	if why == "" {
		return ""
	}
	return upper(why) + "."
}

// stopped is what people have to let through: a lock by command, deletions beyond the guards.
func (f Facts) stopped(held []mirror.Hold) []Obstacle {
	var out []Obstacle
	for _, r := range f.records() {
		if r.Held != nil {
			out = append(out, Obstacle{forge.CheckPlan, forge.CheckFailure,
				"locked by " + login(r.Held.By), "Comment " + tick("/argosy unlock") +
					" to end the lock."})
		}
	}
	for _, h := range held {
		n := len(h.Items)
		todo := upper(h.Message) + ". " + clearers(h) + " may let them go: comment " +
			tick("/argosy approve-deletions "+string(f.Record.Head)) + "."
		out = append(
			out, Obstacle{forge.CheckPlan, forge.CheckFailure, report.Count(n, "deletion") +
				" beyond the guards of " + scope(h.Tenant), todo})
	}
	return out
}

func scope(t fleet.TenantName) string {
	if t == "" {
		return "the fleet"
	}
	return tenant(t)
}

// beyondQuota compares the usage of tenants with the quota of the base: a pull request cannot raise
// the quota that it is judged by. A tenant that the base does not have is judged by the quota that
// it declares, which the platform approves.
func (f Facts) beyondQuota() []Obstacle {
	if f.Plan == nil {
		return nil
	}
	var out []Obstacle
	for _, t := range f.Plan.Tenants {
		quota := t.Quota.Quota
		if base := f.owned(t.Name).Quota; base != nil {
			quota = *base
		}
		if over := exceeded(t.Quota, quota); len(over) > 0 {
			out = append(out, Obstacle{forge.CheckPlan, forge.CheckFailure, "beyond the quota of " +
				tenant(t.Name),
				upper(series(over, 3)) +
					". The platform can raise the quota in a pull request of its own that is " +
					"merged before."})
		}
	}
	return out
}

// exceeded is what grows beyond its quota, as prose.
func exceeded(u report.QuotaUse, quota fleet.Quota) []string {
	var over []string
	add := func(what string, before, after, limit int) {
		if after > limit && after > before {
			over = append(over, fmt.Sprintf("%d %s where %d are allowed", after, what, limit))
		}
	}
	add("environments", u.Before.Environments, u.After.Environments, quota.Environments)
	add("deployments", u.Before.Deployments, u.After.Deployments, quota.Deployments)
	add("Applications", u.Before.Applications, u.After.Applications, quota.Applications)
	return over
}

// unowned is the approvals that are missing. An owner's objection is a failure as long as no other
// owner approves.
func (f Facts) unowned(ownership []Ownership) []Obstacle {
	var out []Obstacle
	changed := Touched(slices.Concat(f.Files, f.Conflicts))
	for _, w := range ownership {
		if w.Met() {
			continue
		}
		o := Obstacle{Check: forge.CheckOwners, State: forge.CheckPending,
			What: "needs an approval for " + tenant(w.Tenant), Todo: missing(w, f.Record.Head)}
		if !slices.Contains(changed, w.Tenant) {
			o.Todo += fmt.Sprintf(
				" The commits of this pull request change %s, which %s has in the same way by "+
					"now: without them, after a rebase onto %s, "+
					"no approval is needed.", series(each(of(f.Kept, w.Tenant), tick), 3),
				tick(f.branch()), tick(f.branch()))
		}
		if len(w.TookBack) > 0 {
			o.State, o.What = forge.CheckFailure, series(each(w.TookBack, login), 3)+
				" asked for changes for "+tenant(w.Tenant)
		}
		out = append(out, o)
	}
	return out
}

// of picks the paths of one tenant.
func of(paths []string, t fleet.TenantName) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		return Touched([]string{path})[0] != t
	})
}

// missing is how an approval is given, and by whom.
func missing(w Ownership, head fleet.Revision) string {
	s := upper(w.who(5)) + " has to approve this head: by a review, or with the comment " +
		tick("/argosy approve "+string(head)) + "."
	if len(w.Early) > 0 {
		s += " " + upper(series(each(w.Early, login), 3)) +
			" approved before this head was first reviewed, which does not count."
	}
	if len(w.Earlier) > 0 {
		s += " " + upper(series(each(w.Earlier, login), 3)) + " approved an earlier head."
	}
	if changed := w.changed(3); changed != "" {
		s += " " + upper(changed) + "."
	}
	if silent := w.silent(5); silent != "" && (w.Platform || w.Admins) {
		s += " Not counted: " + silent + "."
	}
	return s
}

// records is the pull requests that are judged: one, or those of a commit of the merge queue.
func (f Facts) records() []forge.PullRecord {
	if f.queued() {
		return f.Queue
	}
	return []forge.PullRecord{f.Record}
}

// deletions splits the deletions beyond the guards into held and cleared ones: cleared at the head
// that the approver saw. The approver's right is checked each time, and only listed deletions are
// cleared.
func (f Facts) deletions() (held []mirror.Hold, cleared []fleet.ObjectKey) {
	for _, h := range f.holds() {
		passed := map[fleet.ObjectKey]bool{}
		for _, r := range f.records() {
			if r.Cleared == nil || r.Cleared.Head != r.Head || !f.mayClear(r.Cleared.By, h) {
				continue
			}
			for _, k := range r.Cleared.Deletions {
				passed[k] = true
			}
		}
		var left []fleet.ObjectKey
		for _, k := range h.Items {
			if passed[k] {
				cleared = append(cleared, k)
			} else {
				left = append(left, k)
			}
		}
		if h.Items = left; len(left) > 0 {
			held = append(held, h)
		}
	}
	return held, cleared
}

// rowDetail is how much of what changes is listed.
type rowDetail int

const (
	eachRow rowDetail = iota
	// similar rows are counted per engine; deletions are still listed, as many as fit
	perEngine
	perTenant // counts
	noRows    // the verdict has the counts
)

// detail is one step of the ladder that a text goes down until it fits its budget.
type detail struct {
	dropped int // changes whose fields are left out, the longest first
	rows    rowDetail
	list    int // most entries of any other list
}

const allDiffs = 1 << 30

// steps are those after everything. Each is rendered as a whole, so that nothing is ever cut off in
// the middle of its markup.
var steps = []detail{
	{dropped: allDiffs, rows: eachRow, list: 25},
	{dropped: allDiffs, rows: perEngine, list: 15},
	{dropped: allDiffs, rows: perTenant, list: 10},
	{dropped: allDiffs, rows: noRows, list: 3},
}

// leastBudget is what the last step needs, whatever it is about. A smaller budget is taken for this
// one.
const leastBudget = 12_000

// leastRow is the fewest bytes that a row of a table takes.
const leastRow = 30

// fit renders with as much detail as the budget (bytes, so also characters) takes: it leaves out
// the changed fields, the longest first, then all of them, and then shortens the lists step by
// step. Its cost is bounded by the budget, however many rows there are.
func fit(budget, rows, diffs int, render func(detail) string) string {
	budget = max(budget, leastBudget)
	if rows*leastRow <= budget {
		if text := whole(budget, diffs, render); len(text) <= budget {
			return text
		}
	}
	text := ""
	for _, step := range steps {
		if step.rows == eachRow && rows*leastRow > budget {
			continue
		}
		if text = render(step); len(text) <= budget {
			break
		}
	}
	return text
}

// whole renders everything, but for as few of the fields that change as need be.
func whole(budget, diffs int, render func(detail) string) string {
	full := detail{rows: eachRow, list: 50}
	text := render(full)
	if len(text) <= budget {
		return text
	}
	full.dropped = diffs
	if text = render(full); diffs == 0 || len(text) > budget {
		return text
	}
	full.dropped = sort.Search(diffs, func(n int) bool {
		d := full
		d.dropped = n
		return len(render(d)) <= budget
	})
	return render(full)
}

// page is a text in Markdown, block by block.
type page struct {
	b    strings.Builder
	last block
}

type block int

const (
	nothing block = iota
	paragraph
	item
	tableRow
	fence
)

func (p *page) String() string { return p.b.String() }

// begin parts blocks by an empty line. Items and rows follow each other without one.
func (p *page) begin(k block) {
	if p.last != nothing && (p.last != k || k == paragraph || k == fence) {
		p.b.WriteByte('\n')
	}
	p.last = k
}

// para writes a paragraph, or a heading: Markdown that is complete.
func (p *page) para(text string) {
	p.begin(paragraph)
	p.b.WriteString(text + "\n")
}

// item writes an entry of a list. Lines after the first are entries of a list within it. An empty
// entry is skipped: a dash alone would underline the line above.
func (p *page) item(text string) {
	if text == "" {
		return
	}
	p.begin(item)
	lines := strings.Split(text, "\n")
	p.b.WriteString("- " + lines[0] + "\n")
	for _, l := range lines[1:] {
		p.b.WriteString("  - " + l + "\n")
	}
}

// items writes a list with at most most entries.
func (p *page) items(list []string, most int) {
	for _, s := range list[:min(len(list), most)] {
		p.item(s)
	}
	if n := len(list) - most; n > 0 {
		p.item(fmt.Sprintf("…and %d more", n))
	}
}

func (p *page) table(header ...string) {
	p.begin(tableRow)
	p.b.WriteString("| " + strings.Join(header, " | ") + " |\n|" + strings.Repeat(" --- |",
		len(header)) + "\n")
}

func (p *page) row(cell ...string) {
	p.begin(tableRow)
	p.b.WriteString("| " + strings.Join(cell, " | ") + " |\n")
}

// rest counts the entries that were not listed.
func (p *page) rest(n int, what string) {
	if n > 0 {
		p.para(fmt.Sprintf("…and %d %s.", n, what))
	}
}

// code writes lines in a fence, which none of them can end.
func (p *page) code(language string, lines []string) {
	if len(lines) == 0 {
		return
	}
	const ticks = "```"
	p.begin(fence)
	p.b.WriteString(ticks + language + "\n")
	for _, l := range lines {
		p.b.WriteString(strings.ReplaceAll(l, ticks, "'''") + "\n")
	}
	p.b.WriteString(ticks + "\n")
}

// fold writes blocks that are opened by a click on the summary, which has nothing of a stranger's
// in it.
func (p *page) fold(summary string, inside func()) {
	p.para("<details><summary>" + summary + "</summary>")
	inside()
	p.para("</details>")
}

// problems lists problems in the form of a compiler.
func (p *page) problems(own, others []fleet.Problem, most int) {
	for _, part := range []struct {
		title    string
		problems []fleet.Problem
	}{{"**Problems in these files**", own}, {"**Effects on other files**", others}} {
		if len(part.problems) == 0 {
			continue
		}
		var lines []string
		for _, problem := range part.problems[:min(len(part.problems), most)] {
			lines = append(lines, problemLines(problem)...)
		}
		p.para(part.title)
		p.code("text", lines)
		p.rest(len(part.problems)-most, "more")
	}
}

func problemLines(p fleet.Problem) []string {
	fix := p.Fix
	p.Fix = ""
	lines := []string{clean(p.String(), mostSentence)}
	if fix != "" {
		lines = append(lines, "    fix: "+clean(fix, mostSentence))
	}
	return lines
}

const (
	// characters of a check's title, and of the commit status that replaces it
	mostTitle       = 140
	mostSummary     = 60_000 // bytes of a check's summary
	mostAnnotations = 500    // of a check; the Git host takes 50 per request
)

// headline is the verdict in one line of prose: the gravest obstacle, or what the merge changes.
func (f Facts) headline(v Verdict) string {
	if !f.Ours() {
		return "Nothing that Argosy manages changes"
	}
	// An unplanned fork is more important to report than a missing approval.
	for _, state := range []forge.CheckState{forge.CheckFailure, forge.CheckNeutral,
		forge.CheckPending} {
		if first, n := first(v.Obstacles, state); n > 0 {
			return upper(first.What) + more(n-1)
		}
	}
	return "Ready to merge: " + f.tally(v)
}

func first(obstacles []Obstacle, state forge.CheckState) (Obstacle, int) {
	i := slices.IndexFunc(obstacles, func(o Obstacle) bool { return o.State == state })
	if i < 0 {
		return Obstacle{}, 0
	}
	n := 0
	for _, o := range obstacles {
		if o.State == state {
			n++
		}
	}
	return obstacles[i], n
}

func more(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d more", n)
}

// tally is what the plan comes to, in Applications.
func (f Facts) tally(v Verdict) string {
	if f.Plan == nil {
		return "nothing is planned"
	}
	counts, cleared := f.Plan.Counts, min(len(v.Cleared), f.Plan.Counts.Held)
	counts.Held, counts.Deleted = counts.Held-cleared, counts.Deleted+cleared
	text := tally(counts, moved(f.Plan.Tenants))
	if n := f.upgraded(); n > 0 {
		text += ", " + report.Count(n, "engine") + report.Plural(n, " changes", " change") +
			" with " + report.Plural(n, "its ring", "their rings")
	}
	return text
}

// upgraded counts the engines that get another Argo CD or another agent.
func (f Facts) upgraded() (n int) {
	for _, r := range f.Plan.Rings {
		n += len(r.Engines)
	}
	return n
}

func moved(tenants []report.Tenant) (n int) {
	for _, t := range tenants {
		for _, m := range t.Moves {
			n += m.Applications
		}
	}
	return n
}

func tally(c report.Counts, moved int) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{c.Created, "added"}, {c.Changed, "changed"}, {moved, "moved"}, {c.Deleted, "deleted"},
		{c.Frozen, "held by a freeze"}, {c.Waves, "in waves"},
		{c.Held, "held back from deletion"}} {
		switch {
		case p.n > 0 && len(parts) == 0:
			parts = append(parts, report.Count(p.n, "Application")+" "+p.what)
		case p.n > 0:
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if len(parts) == 0 {
		return "no Application changes"
	}
	return strings.Join(parts, ", ")
}

// upper begins a sentence.
func upper(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[n:]
}

func (f Facts) checks(v Verdict) []forge.Check {
	out := make([]forge.Check, 0, 3)
	for _, c := range []struct {
		name           string
		title, summary func(Verdict) string
	}{
		{forge.CheckValidate, f.valid, f.problemsSummary},
		{forge.CheckPlan, f.planned, f.planSummary},
		{forge.CheckOwners, f.approved, f.ownersSummary},
	} {
		check := forge.Check{Name: c.name, State: worst(v.Obstacles, c.name), URL: f.link()}
		check.Title = plain(title(v.Obstacles, c.name, check.State, c.title(v)), mostTitle)
		if own, _ := f.problems(); c.name == forge.CheckValidate && errorsOf(own) > 0 &&
			f.Unmergeable == "" {
			check.Title = plain(firstError(own), mostTitle)
		}
		switch {
		case f.Unmergeable != "":
			// a commit status shows no more than the title
			check.Title = plain(upper(f.Unmergeable), mostTitle)
			check.Summary = prose(reason(f.Unmergeable))
		case f.Ours():
			check.Summary = c.summary(v)
		}
		out = append(out, check)
	}
	own, _ := f.problems()
	out[0].Annotations = annotations(own)
	return out
}

// title is the first obstacle of a check, or its success message.
func title(obstacles []Obstacle, check string, state forge.CheckState, good string) string {
	if state == forge.CheckSuccess {
		return good
	}
	own := slices.DeleteFunc(slices.Clone(obstacles), func(o Obstacle) bool { return !o.of(check) })
	o, n := first(own, state)
	return upper(o.What) + more(n-1)
}

// firstError names the line of the first error, for a Git host that shows only the title of a
// check.
func firstError(own []fleet.Problem) string {
	p := own[0]
	place := path.Base(p.Path)
	if p.Line > 0 {
		place += fmt.Sprintf(":%d", p.Line)
	}
	return place + ": " + p.Message + more(errorsOf(own)-1)
}

func (f Facts) valid(Verdict) string {
	own, _ := f.problems()
	switch warnings := len(own); {
	case !f.Ours():
		return "Nothing that Argosy manages changes"
	case warnings > 0:
		return upper(report.Count(len(f.Files), "file")) + " valid, with " +
			report.Count(warnings, "warning")
	}
	return upper(report.Count(len(f.Files), "file")) + " valid"
}

func (f Facts) planned(v Verdict) string {
	if !f.Ours() {
		return "Nothing that Argosy manages changes"
	}
	return upper(f.tally(v))
}

func (f Facts) approved(v Verdict) string {
	switch {
	case !f.Ours():
		return "Nothing that Argosy manages changes"
	case f.queued():
		return "Each pull request was approved before it came into the queue"
	}
	var parts []string
	for _, w := range v.Ownership {
		parts = append(parts, tenant(w.Tenant)+" by "+series(each(w.Approved, login), 2))
	}
	return "Approved for " + strings.Join(parts, ", ")
}

// annotations are the problems of the files that it changes: no other file can be annotated in this
// pull request.
func annotations(own []fleet.Problem) []fleet.Problem {
	var out []fleet.Problem
	for _, p := range own[:min(len(own), mostAnnotations)] {
		p.Message, p.Fix, p.Field = clean(p.Message, 4*mostSentence), clean(p.Fix, mostSentence),
			clean(p.Field, mostSentence)
		out = append(out, p)
	}
	return out
}

func (f Facts) problemsSummary(v Verdict) string {
	own, others := f.problems()
	if len(own)+len(others) == 0 {
		return report.Count(len(f.Files), "file") + " of this pull request: no problem found."
	}
	return fit(mostSummary, 0, 0, func(d detail) string {
		p := &page{}
		p.problems(own, others, d.list*4)
		return p.String()
	})
}

func (f Facts) planSummary(v Verdict) string {
	c := newComment(f, v)
	return fit(mostSummary, len(c.rows), len(c.diffs), func(d detail) string {
		p := &page{}
		p.obstacles(v.Obstacles, forge.CheckPlan, d)
		c.warnings(p, d)
		c.changes(p, d)
		c.after(p)
		return p.String()
	})
}

func (f Facts) ownersSummary(v Verdict) string {
	return fit(mostSummary, 0, 0, func(d detail) string {
		p := &page{}
		p.table("", "who may approve", "approved this head", "")
		for _, w := range v.Ownership[:min(len(v.Ownership), d.list)] {
			note := ""
			if len(w.TookBack) > 0 {
				note = series(each(w.TookBack, login), 3) + " asked for changes"
			} else if !w.Met() {
				note = "missing"
			}
			who := w.who(5)
			if silent := w.silent(5); silent != "" {
				who += "; not counted: " + silent
			}
			p.row(prose(tenant(w.Tenant)), prose(who), prose(series(each(w.Approved, login), 5)),
				prose(note))
		}
		p.rest(len(v.Ownership)-d.list, "more")
		if f.queued() {
			return "Each pull request was approved before it came into the queue."
		}
		return p.String()
	})
}
