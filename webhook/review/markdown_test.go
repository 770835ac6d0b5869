package review

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/placement"
	"argosy.dev/argosy/reconciler/plan/report"
)

// blocks is how lists, rules, underlines of headings, quotes and indented code begin.
var blocks = regexp.MustCompile(`^([-+*] |[-=_*][-=_* ]*$|[0-9]+[.)]( |$)|>|~~~|\s)`)

var foldBegins = regexp.MustCompile(
	`^<details><summary>(Which fields change|[0-9]+ (more )?rows)</summary>$`)

var reference = regexp.MustCompile(`#[0-9]+ changes `)

// inspect parses a text as a Git host does. It refuses unclosed Markdown and anything that could
// act: outside of fences and code spans only text of this package is allowed.
func inspect(t testing.TB, link, text string) {
	t.Helper()
	if bad := misread(link, text); bad != "" {
		t.Fatalf("%s\n%s", bad, clip(text, 5000))
	}
}

func misread(link, text string) string {
	if !utf8.ValidString(text) {
		return "it is no UTF-8"
	}
	fence, folded, columns := "", false, 0
	for n, line := range strings.Split(text, "\n") {
		bad := func(what string) string {
			return fmt.Sprintf("line %d: %s: %q", n+1, what, clip(line, 400))
		}
		if strings.ContainsFunc(line, func(r rune) bool {
			return !unicode.IsPrint(r) &&
				r != '\ufe0f'
		}) {
			return bad("a character that does not show")
		}
		if ticks := line[:len(line)-len(strings.TrimLeft(line, "`"))]; fence != "" {
			if line == fence {
				fence = ""
			} else if len(ticks) >= len(fence) && strings.Trim(line, "` ") == "" {
				return bad("the fence ends early")
			}
			continue
		} else if len(ticks) >= 3 {
			fence, columns = ticks, 0
			continue
		}
		switch {
		case line == Marker && n == 0:
			continue
		case foldBegins.MatchString(line) && !folded:
			folded = true
			continue
		case line == "</details>" && folded:
			folded = false
			continue
		}
		if strings.TrimSpace(line) == "-" ||
			blocks.MatchString(strings.TrimPrefix(strings.TrimPrefix(line, "  "), "- ")) {
			return bad("it begins another block")
		}
		if strings.Contains(line, "``") {
			return bad("code spans that touch each other")
		}
		rest, ok := outside(line)
		if !ok {
			return bad("a code span is not closed")
		}
		if strings.HasPrefix(rest, "<sub>") && strings.HasSuffix(rest, "</sub>") {
			rest = strings.TrimSuffix(strings.TrimPrefix(rest, "<sub>"), "</sub>")
		}
		for _, words := range []string{"the whole plan", "The whole plan", "the reviewed plan"} {
			rest = strings.ReplaceAll(rest, "["+words+"]("+link+")", "")
		}
		rest = reference.ReplaceAllString(rest, "")
		rest = strings.TrimPrefix(strings.TrimPrefix(rest, "#### "), "### ")
		if strings.Count(rest, "**")%2 != 0 {
			return bad("bold is not closed")
		}
		rest = strings.ReplaceAll(rest, "**", "")
		if columns = tableColumns(rest, columns); columns < 0 {
			return bad("a row does not fit its table")
		} else if columns > 0 {
			rest = strings.ReplaceAll(rest, "|", "")
		}
		if strings.ContainsAny(rest, "`<>[]{}#@*_\\|~$&!^") || acts.MatchString(rest) {
			return bad("something that could act: " + rest)
		}
	}
	switch {
	case fence != "":
		return "a fence is not closed"
	case folded:
		return "a fold is not closed"
	}
	return ""
}

// tableColumns is how many columns the table has that the line belongs to: 0 outside of tables, -1
// for a row that does not fit.
func tableColumns(rest string, before int) int {
	n := strings.Count(rest, "|")
	switch {
	case n == 0:
		return 0
	case !strings.HasPrefix(rest, "| ") && !strings.HasPrefix(rest, "|-") ||
		!strings.HasSuffix(rest, "|"), before > 0 && n != before:
		return -1
	}
	return n
}

// outside is the line without its code spans, read by CommonMark's rule: a run of backticks ends at
// the next run of the same length.
func outside(line string) (string, bool) {
	var b strings.Builder
	for line != "" {
		i := strings.IndexByte(line, '`')
		if i < 0 {
			b.WriteString(line)
			break
		}
		b.WriteString(line[:i])
		line = line[i:]
		n := len(line) - len(strings.TrimLeft(line, "`"))
		end := closing(line[n:], n)
		if end < 0 {
			return "", false
		}
		if strings.Contains(line[n:n+end], "|") {
			return "", false // it would end a cell even here
		}
		line = line[n+end+n:]
	}
	return b.String(), true
}

func closing(s string, n int) int {
	for i := 0; i < len(s); {
		if s[i] != '`' {
			i++
			continue
		}
		run := len(s[i:]) - len(strings.TrimLeft(s[i:], "`"))
		if run == n {
			return i
		}
		i += run
	}
	return -1
}

func TestTheReaderOfTheTestsFindsWhatIsBroken(t *testing.T) {
	for _, text := range []string{
		"```text\nopen", "<details><summary>Which fields change</summary>\n", "a `span",
		"| a | b |\n| --- | --- |\n| 1 | 2 | 3 |", "**bold",
		"hello @alice", "see #12", "<b>", "[x](https://evil.example)", "www.evil.example",
		"a\u202eb", "a\x00b", "\xff", "`a|b`", "````\n`````\n````x",
		"<details><summary>x</summary>", "a_b", "a\n---", "- - x", "1. x", "- =", "    code",
		"`` a ``", "- a\n  - \n", "> quote", "https://evil.example",
	} {
		if misread("https://argosy.example.com", text) == "" {
			t.Errorf("%q passes", text)
		}
	}
	if bad := misread("l",
		"### a `b` `c` d\n\n```x\n| @alice <b>\n```\n\n| a |\n| --- |\n| `@x` |\n"); bad != "" {
		t.Error(bad)
	}
}

var pieces = []string{"`", "``", "```", "~~~", "|", "\n", "\r\n", "<script>alert(1)</script>",
	"</details>", "<details>", "<!--", "-->", Marker, "@alice", "@acme/leads",
	"#12", "GH-7", "https://evil.example/x", "www.evil.example", "[x](javascript:1)",
	"![i](http://e)", "\u202e", "\u2066", "\u200b", "\x00", "\x1b[31m", "\xff", "**", "_", "~~",
	"$x$", "\\", "&lt;", ":tada:", "| --- |", "- [x] ", "# h", "> q", "    code", "é", "𝕏",
	"\U000e0001", "1a2b3c4d", "name", " ", "acme", "evil@example.com", "%", "'", "\"", "=", "---",
	"* * *"}

// dice gives random facts in which whatever anybody writes is hostile.
type dice struct{ *rand.Rand }

func (d dice) text() string {
	var b strings.Builder
	for range d.IntN(6) {
		b.WriteString(pieces[d.IntN(len(pieces))])
	}
	switch d.IntN(60) {
	case 0:
		b.WriteString(strings.Repeat("W", 100_000))
	case 1:
		b.WriteString(strings.Repeat("`", 1+d.IntN(500)))
	case 2:
		b.WriteString(strings.Repeat("\U000e0001", 500))
	}
	return b.String()
}

func (d dice) some(most int) int { return d.IntN(most + 1) }

func (d dice) texts(most int) []string {
	out := make([]string, d.some(most))
	for i := range out {
		out[i] = d.text()
	}
	return out
}

func (d dice) person() forge.Person { return forge.Person{ID: int64(d.IntN(12)), Login: d.text()} }

func (d dice) revision() fleet.Revision {
	return []fleet.Revision{head, base, older, merge}[d.IntN(4)]
}

func (d dice) clearance() *forge.Clearance {
	if d.IntN(2) == 0 {
		return nil
	}
	return &forge.Clearance{By: d.person(), Head: d.revision(), At: d.time()}
}

func (d dice) time() time.Time { return noon.Add(time.Duration(d.IntN(100)) * time.Minute) }

func (d dice) problem() fleet.Problem {
	return fleet.Problem{Path: d.text(), Line: d.IntN(9), Severity: []fleet.Severity{
		fleet.SeverityError, fleet.SeverityWarning, fleet.SeverityNote}[d.IntN(3)], Code: d.text(),
		Message: d.text(), Fix: d.text()}
}

func (d dice) change() report.Change {
	c := report.Change{
		Action: []report.Action{report.Create, report.Update, report.Update, report.Delete,
			report.Hold}[d.IntN(5)],
		Kind: []fleet.ObjectKind{fleet.ObjectApplication, fleet.ObjectApplication,
			fleet.ObjectCluster, fleet.ObjectRepository, fleet.ObjectProject}[d.IntN(5)],
		Subject: d.text() + "@" + d.text(), Object: fmt.Sprint("o", d.IntN(1000)), Note: d.text()}
	for range d.some(4) {
		c.Fields = append(c.Fields, report.Field{Path: d.text(), Before: d.text(), After: d.text()})
	}
	return c
}

func (d dice) tenant(rows int) report.Tenant {
	t := report.Tenant{Name: fleet.TenantName(d.text()), Quota: report.QuotaUse{
		After: fleet.Quota{Applications: d.IntN(5)}}, Unplaced: d.texts(3)}
	for range d.some(3) {
		e := report.Engine{Name: fleet.EngineName(d.text())}
		for range d.some(rows) {
			e.Changes = append(e.Changes, d.change())
		}
		t.Engines = append(t.Engines, e)
	}
	for range d.some(3) {
		t.Placements = append(t.Placements, fleet.Placement{Environment: fleet.EnvironmentID{
			Name: fleet.EnvironmentName(d.text())}, Engine: fleet.EngineName(d.text()),
			Reason: d.text(), Misplaced: d.text()})
		t.Moves = append(t.Moves, report.Move{Environment: fleet.EnvironmentName(d.text()),
			From: fleet.EngineName(d.text()), To: fleet.EngineName(d.text()),
			Applications: d.IntN(3)})
		t.Syncs = append(t.Syncs, report.Sync{SyncRun: fleet.SyncRunName(d.text()),
			Application: d.text(), Engine: fleet.EngineName(d.text()), Revision: d.text()})
	}
	return t
}

func (d dice) report() *report.Report {
	r := &report.Report{Base: base, Head: head, Hash: d.text(), Summary: d.text(),
		Platform: d.texts(40), Counts: report.Counts{Created: d.IntN(9), Changed: d.IntN(9),
			Deleted: d.IntN(3), Held: d.IntN(3)}}
	for _, t := range d.texts(30) {
		r.Radius = append(r.Radius, fleet.TenantName(t))
	}
	for range d.some(2) {
		drain := report.Drain{Engine: fleet.EngineName(d.text())}
		for _, reason := range d.texts(30) {
			environment := fleet.EnvironmentID{Tenant: fleet.TenantName(d.text()),
				Name: fleet.EnvironmentName(d.text())}
			drain.Moves = append(drain.Moves, placement.Move{Environment: environment,
				To: fleet.EngineName(d.text()), Applications: d.IntN(9), Unready: d.IntN(2)})
			drain.Left = append(drain.Left, placement.Left{Environment: environment,
				Reason: reason})
		}
		r.Drains = append(r.Drains, drain)
	}
	tenants, rows := d.some(3), d.some(20)
	switch d.IntN(12) {
	case 0:
		tenants, rows = 150, 8
	case 1:
		rows = 500
	}
	for range tenants {
		r.Tenants = append(r.Tenants, d.tenant(rows))
	}
	for range d.some(3) {
		h := mirror.Hold{Revision: head, Reason: mirror.HoldDeletions,
			Tenant: fleet.TenantName(d.text()), Message: d.text()}
		for range d.some(5) {
			h.Items = append(h.Items, d.key())
		}
		r.Holds = append(r.Holds, h)
	}
	if d.IntN(20) == 0 {
		r.RevisionHold = &mirror.Hold{Message: d.text()}
	}
	return r
}

func (d dice) key() fleet.ObjectKey {
	return fleet.ObjectKey{Engine: fleet.EngineName(d.text()), Kind: fleet.ObjectApplication,
		Name: d.text()}
}

func (d dice) facts() Facts {
	f := Facts{Now: noon, Base: base, Files: d.texts(40), Conflicts: nil, Behind: d.IntN(5) == 0,
		Plan: d.report(), Unplanned: d.text(), Link: "https://argosy.example.com/pulls/7",
		Permissions: map[int64]forge.Permission{}, Engines: map[fleet.EngineName]Engine{},
		Outcomes: map[fleet.ObjectKey]forge.Outcome{}}
	f.Record = forge.PullRecord{Pull: forge.Pull{Number: 7, Title: d.text(), Author: d.person(),
		State: forge.PullOpen, Base: d.text(), Head: head, Fork: d.IntN(8) == 0},
		Held: d.clearance(), Tested: d.clearance(), Cleared: d.clearance(), Replies: d.texts(5)}
	if d.IntN(6) == 0 {
		f.Conflicts = d.texts(30)
	}
	if d.IntN(6) == 0 {
		f.Plan = nil
	}
	if d.IntN(10) == 0 {
		f.Queue = []forge.PullRecord{{Held: d.clearance(), Cleared: d.clearance()},
			{Held: d.clearance()}}
	}
	for range d.some(80) {
		f.Problems = append(f.Problems, d.problem())
	}
	for i := range f.Problems {
		if len(f.Files) > 0 && d.IntN(2) == 0 {
			f.Problems[i].Path = f.Files[d.IntN(len(f.Files))]
		}
	}
	for range d.some(20) {
		f.Reviews = append(f.Reviews, forge.Review{Author: d.person(), State: []forge.ReviewState{
			forge.ReviewApproved, forge.ReviewChanges, forge.ReviewDismissed}[d.IntN(3)],
			Head: d.revision(), At: d.time()})
		f.Permissions[int64(d.IntN(12))] = forge.PermissionAdmin
		f.Collisions = append(f.Collisions, forge.Collision{Number: d.IntN(100),
			Touches: d.texts(4)})
		f.Stops = append(f.Stops, mirror.Stop{
			Scope: []mirror.StopScope{mirror.StopFleet, mirror.StopEngine,
				mirror.StopTenant}[d.IntN(3)], Name: d.text(), By: d.text(), Reason: d.text(),
			At: noon})
	}
	for _, t := range append(f.touched(), "") {
		o := Owned{Tenant: t}
		for range d.some(12) {
			o.Owners = append(o.Owners, Owner{Name: d.text(), Unknown: d.IntN(3) == 0})
			if d.IntN(2) == 0 {
				o.Owners[len(o.Owners)-1].People = []forge.Person{d.person()}
			}
		}
		f.Owned = append(f.Owned, o)
	}
	d.surround(&f)
	return f
}

func (d dice) surround(f *Facts) {
	if f.Plan == nil {
		return
	}
	for _, t := range f.Plan.Tenants {
		for _, e := range t.Engines {
			seen := d.time()
			f.Engines[e.Name] = Engine{
				State: []fleet.EngineState{fleet.EngineActive, fleet.EngineCordoned,
					fleet.EngineDraining}[d.IntN(3)], Reachable: d.IntN(2) == 0, Since: &seen}
			if d.IntN(2) == 0 {
				f.Engines[e.Name] = Engine{
					Agent: &Agent{Joined: d.IntN(3) > 0, Over: d.IntN(3) == 0,
						Connected: d.IntN(2) == 0, LastSeen: &seen}}
			}
			for _, c := range e.Changes {
				k := fleet.ObjectKey{Engine: e.Name, Kind: c.Kind, Name: c.Object}
				f.Outcomes[k] = d.outcome(k)
			}
		}
	}
}

func (d dice) outcome(k fleet.ObjectKey) forge.Outcome {
	return forge.Outcome{Key: k, Present: d.IntN(3) > 0, Unwanted: d.IntN(6) == 0,
		Held: d.IntN(6) == 0, Revision: d.revision(), Hash: fmt.Sprint("h", d.IntN(2)),
		Apply: []mirror.ApplyState{mirror.ApplyApplied, mirror.ApplyApplied, mirror.ApplyFailed,
			mirror.ApplyConflict, mirror.ApplyPending}[d.IntN(5)],
		ApplyMessage: d.text(), Sync: []mirror.SyncState{mirror.SyncSynced, mirror.SyncOutOfSync,
			""}[d.IntN(3)], Health: []mirror.HealthState{
			mirror.HealthHealthy, mirror.HealthDegraded,
			""}[d.IntN(3)],
		Message: d.text(), SyncedRevision: d.text(), Stale: d.IntN(4) == 0}
}

func (d dice) merged() (*Merge, []forge.Outcome) {
	m := &Merge{Over: d.IntN(4) == 0}
	if d.IntN(4) > 0 {
		m.Applied = merge
	}
	var outcomes []forge.Outcome
	n := d.some(30)
	if d.IntN(10) == 0 {
		n = 700
	}
	m.Reviewed = &forge.ReviewedPlan{Hash: d.text(), Touches: d.texts(3)}
	for range n {
		e := mirror.Effect{Key: d.key(), Tenant: fleet.TenantName(d.text()),
			Environment: fleet.EnvironmentName(d.text()),
			Deployment:  fleet.DeploymentName(d.text()), Deletes: d.IntN(3) == 0,
			Hash: fmt.Sprint("h", d.IntN(2))}
		if d.IntN(5) == 0 {
			e.Key.Kind = fleet.ObjectRepository
		}
		if d.IntN(8) > 0 {
			m.Reviewed.Effects = append(m.Reviewed.Effects, e)
		}
		if e.Hash = fmt.Sprint("h", d.IntN(2)); d.IntN(8) > 0 {
			m.Effects = append(m.Effects, e)
		}
		outcomes = append(outcomes, d.outcome(e.Key))
	}
	if d.IntN(3) == 0 {
		m.Effects = nil
	}
	for range d.some(5) {
		m.Holds = append(m.Holds, mirror.Hold{Revision: merge, Message: d.text()})
	}
	return m, outcomes
}

// TestWhateverStrangersWriteStaysText renders hostile facts of every size. The text fits, is closed
// and acts as nothing.
func TestWhateverStrangersWriteStaysText(t *testing.T) {
	for seed := range uint64(100) {
		d := dice{rand.New(rand.NewPCG(seed, 7))}
		f := d.facts()
		v := Decide(f)
		if len(v.Line) == 0 || len(v.Line) > mostTitle || strings.ContainsFunc(v.Line,
			func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("seed %d: verdict %q", seed, v.Line)
		}
		for _, c := range v.Checks {
			fits(t, seed, f, c.Summary, mostSummary)
			if utf8.RuneCountInString(c.Title) > 140 || c.Title == "" ||
				strings.ContainsFunc(c.Title, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("seed %d: title %q", seed, c.Title)
			}
		}
		for _, budget := range []int{leastBudget, 20_000, MostComment} {
			text := Comment(f, v, budget)
			fits(t, seed, f, text, budget)
			if lines := strings.SplitN(text, "\n", 4); lines[0] != Marker || f.Ours() &&
				!strings.HasPrefix(lines[2], "### ") {
				t.Fatalf("seed %d: it begins with %q", seed, lines)
			}
		}
		var outcomes []forge.Outcome
		f.Merge, outcomes = d.merged()
		for _, budget := range []int{leastBudget, MostComment} {
			r := Result(f, outcomes, budget)
			fits(t, seed, f, r.Text, budget)
			if len(r.Line) == 0 || len(r.Line) > mostTitle {
				t.Errorf("seed %d: line %q", seed, r.Line)
			}
		}
	}
}

func fits(t *testing.T, seed uint64, f Facts, text string, budget int) {
	t.Helper()
	if len(text) > budget {
		t.Fatalf("seed %d: %d bytes of %d", seed, len(text), budget)
	}
	if bad := misread(f.Link, text); bad != "" {
		t.Fatalf("seed %d: %s\n%s", seed, bad, clip(text, 3000))
	}
}

func TestNoLineEndsItsFence(t *testing.T) {
	p := &page{}
	p.code("text", []string{"```", "````", "``` x", "</details>"})
	p.para("after")
	inspect(t, "", p.String())
}

// TestTheLadderDropsTheLongestFirst renders with shrinking budgets: lists never grow, and the
// verdict stays.
func TestTheLadderDropsTheLongestFirst(t *testing.T) {
	f, _ := bump(t)
	e := &f.Plan.Tenants[0].Engines[0]
	for i := range 60 {
		c := report.Change{Action: report.Update, Kind: fleet.ObjectApplication,
			Subject: fmt.Sprintf("app-%02d@prod", i), Object: fmt.Sprint(i)}
		for j := range 1 + i%5*10 {
			c.Fields = append(c.Fields, report.Field{Path: fmt.Sprint("spec.f", j), Before: "\"1\"",
				After: "\"" + strings.Repeat("x", 20) + "\""})
		}
		e.Changes = append(e.Changes, c)
	}
	v := Decide(f)
	whole := Comment(f, v, 1<<20)
	diffs := func(text string) []string {
		return slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool {
			return !strings.HasPrefix(l, "! app-")
		})
	}
	if len(diffs(whole)) != 60 || strings.Contains(whole, "left out") {
		t.Fatalf("not everything is there: %d", len(diffs(whole)))
	}
	some := Comment(f, v, len(whole)-5000)
	if n := len(diffs(some)); n == 0 || n >= 60 || !strings.Contains(some, "The fields of ") ||
		strings.Contains(some, "! app-04 in prod") || !strings.Contains(some, "! app-00 in prod") {
		t.Errorf("the longest are to go first: %d are left", n)
	}
	if !strings.Contains(some, "| changed | `app-59` |") {
		t.Error("rows go after fields")
	}
	last := whole
	for budget := len(whole); budget >= leastBudget; budget -= 500 {
		text := Comment(f, v, budget)
		if len(diffs(text)) > len(diffs(last)) || !strings.Contains(text, "### "+symbols[v.State]+
			" "+prose(f.headline(v))) {
			t.Fatalf("budget %d: %d fields after %d", budget, len(diffs(text)), len(diffs(last)))
		}
		last = text
	}
}

func FuzzComment(f *testing.F) {
	for i := range 8 {
		f.Add(uint64(i), strings.Join(pieces[i*5:i*5+5], ""), uint16(i*1000))
	}
	f.Fuzz(func(t *testing.T, seed uint64, word string, budget uint16) {
		d := dice{rand.New(rand.NewPCG(seed, 9))}
		facts := d.facts()
		facts.Record.Replies = append(facts.Record.Replies, word)
		facts.Unplanned, facts.Link = word, "https://argosy.example.com/pulls/7"
		facts.Files = append(facts.Files, "tenants/acme/"+word)
		facts.Problems = append(facts.Problems, fleet.Problem{Path: word, Message: word, Fix: word,
			Code: word}, fleet.Problem{Path: "tenants/acme/" + word, Message: word})
		facts.Collisions = []forge.Collision{{Number: 3, Touches: []string{word}}}
		facts.Stops = []mirror.Stop{{Scope: mirror.StopFleet, Reason: word}}
		if facts.Plan != nil {
			row := report.Change{Action: report.Update, Kind: fleet.ObjectApplication,
				Subject: word, Note: word, Fields: []report.Field{
					{Path: word, Before: word, After: word}}}
			facts.Plan.Tenants = append(facts.Plan.Tenants, report.Tenant{
				Name: fleet.TenantName(word), Engines: []report.Engine{
					{Name: fleet.EngineName(word), Changes: []report.Change{row}}}})
		}
		most := max(int(budget), leastBudget)
		text := Comment(facts, Decide(facts), most)
		if bad := misread(facts.Link, text); bad != "" || len(text) > most {
			t.Fatalf("%d bytes of %d: %s", len(text), most, bad)
		}
	})
}
