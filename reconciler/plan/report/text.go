package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/printable"
)

const columns = 80

// WriteText writes the report for a terminal, grouped by tenant and engine, with at most 80 columns
// unless a single word is longer.
func (r Report) WriteText(w io.Writer) error {
	t := &textWriter{w: bufio.NewWriter(w)}
	t.plan(r)
	return t.w.Flush()
}

type textWriter struct{ w *bufio.Writer }

func (t *textWriter) plan(r Report) {
	t.line(0, "Plan "+revisions(r))
	t.line(0, r.Summary)
	if r.RevisionHold != nil {
		t.line(2, "approve it with: argosy release "+string(r.Head))
		if n := len(r.RevisionHold.Items); n > 0 {
			t.line(2, fmt.Sprintf("it would delete %s:", Count(n, "Application")))
			for _, k := range r.RevisionHold.Items {
				t.line(4, "- "+k.Name+" on "+string(k.Engine))
			}
		}
		return
	}
	for _, d := range r.Platform {
		t.line(2, "platform: "+d)
	}
	for _, ring := range r.Rings {
		t.blank()
		t.line(0, "ring "+ring.Name+": "+ring.Summary())
		for _, l := range ring.Lines() {
			t.line(2, l)
		}
		if a := ring.Approval(); a != "" {
			t.line(2, a)
		}
	}
	for _, d := range r.Drains {
		t.blank()
		t.line(0, strings.ToLower(d.Title())+" "+string(d.Engine)+": "+d.Summary())
		for _, l := range d.Lines() {
			t.line(2, l)
		}
	}
	for _, tenant := range r.Tenants {
		t.tenant(tenant)
	}
	if len(r.Tenants) > 0 {
		t.blank()
		t.line(0, "other tenants: "+radius(r))
	}
	for _, h := range r.Holds {
		t.blank()
		t.line(0, holdLine(h))
		t.line(2, "approve with: argosy release "+string(h.Revision))
	}
	if len(r.Problems) > 0 {
		t.blank()
		for _, problem := range r.Problems {
			for _, l := range problemLines(problem) {
				t.line(0, l)
			}
		}
	}
}

func revisions(r Report) string {
	if r.Base == "" {
		return "of " + r.Head.Short() + ", the first revision"
	}
	return r.Base.Short() + " → " + r.Head.Short()
}

func radius(r Report) string {
	if len(r.Radius) == 0 {
		return "none"
	}
	const most = 20
	names := make([]string, 0, most+1)
	for _, n := range r.Radius[:min(most, len(r.Radius))] {
		names = append(names, string(n))
	}
	if more := len(r.Radius) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

func holdLine(h mirror.Hold) string {
	scope := "tenant " + string(h.Tenant)
	if h.Tenant == "" {
		scope = "the fleet"
	}
	if h.Reason == mirror.HoldFrozen {
		return fmt.Sprintf("%s held by a freeze of %s, as %s has %s: %s",
			Count(len(h.Items), "Application"), scope, h.Revision.Short(),
			Plural(len(h.Items), "it", "them"), h.Message)
	}
	if len(h.Paths) == 0 {
		return fmt.Sprintf("deletions held for %s, asked for by %s: %s (%s)", scope,
			h.Revision.Short(), Count(len(h.Items), "Application"), h.Message)
	}
	what := Count(len(h.Paths), "file") + " held for " + scope
	if len(h.Items) > 0 {
		what += ", and the deletion of " + Count(len(h.Items), "Application")
	}
	return fmt.Sprintf("%s, as %s has them: %s (%s)", what, h.Revision.Short(), some(h.Paths, 5),
		h.Message)
}

// Summary counts the environments that leave, and names the budget.
func (d Drain) Summary() string {
	if len(d.Moves)+len(d.Left) == 0 {
		return "it serves no environment"
	}
	return fmt.Sprintf("after the merge %s %s it, at most %d at once and %d in an hour, in this "+
		"order", Count(len(d.Moves), "environment"), Plural(len(d.Moves), "leaves", "leave"),
		d.Churn.AtOnce, d.Churn.PerHour)
}

// Title precedes the engine's name.
func (d Drain) Title() string {
	if d.Misplaced {
		return "Misplaced environments of engine"
	}
	return "Drain of engine"
}

// Lines returns the moves of a drain in their order, then the environments that stay.
func (d Drain) Lines() (lines []string) {
	for i, m := range d.Moves {
		of := Count(m.Applications, "Application")
		if m.Unready > 0 {
			of += fmt.Sprintf(", %d of them not Synced and Healthy", m.Unready)
		}
		lines = append(lines, OneLine(fmt.Sprintf("%d. %s to engine %s (%s)", i+1, m.Environment,
			m.To, of)))
	}
	for _, l := range d.Left {
		lines = append(lines, OneLine(fmt.Sprintf("%s stays: %s", l.Environment, l.Reason)))
	}
	return lines
}

// some returns a list of at most so many names.
func some(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// problemLines returns a problem on one line and its fix on another.
func problemLines(p fleet.Problem) []string {
	fix := p.Fix
	p.Fix = ""
	lines := []string{OneLine(p.String())}
	if fix != "" {
		lines = append(lines, "  fix: "+OneLine(fix))
	}
	return lines
}

func (t *textWriter) tenant(r Tenant) {
	t.blank()
	t.line(0, "tenant "+string(r.Name))
	t.line(2, quota(r.Quota))
	for _, pl := range r.Placements {
		t.placement(pl)
	}
	for _, name := range r.Unplaced {
		t.line(2, "environment "+name+" leaves its engine: it is removed")
	}
	for _, e := range r.Engines {
		t.line(2, engineWords(e.Name)+" "+string(e.Name))
		for _, c := range e.Changes {
			t.change(c)
		}
	}
	for _, s := range r.Syncs {
		t.line(2, fmt.Sprintf("sync %s at %s on %s (%s)", s.Application, OneLine(s.Revision),
			s.Engine, s.SyncRun))
	}
}

func (t *textWriter) placement(pl fleet.Placement) {
	name := string(pl.Environment.Name)
	switch {
	case pl.Engine == "":
		t.line(2, "environment "+name+" has no engine: "+pl.Reason)
	case pl.Engine.OfEnvironment():
		t.line(2, "environment "+name+" on "+pl.Reason)
	case pl.Misplaced != "":
		t.line(2, "environment "+name+" is misplaced on "+string(pl.Engine)+": "+
			pl.Misplaced)
	case pl.Outgrown() != "":
		t.line(2, "environment "+name+" stays on "+string(pl.Engine)+": "+pl.Outgrown())
	default:
		t.line(2, "environment "+name+" on engine "+string(pl.Engine)+": "+pl.Reason)
	}
}

// engineWords returns the words before an engine's name.
func engineWords(name fleet.EngineName) string {
	if name.OfEnvironment() {
		return "own cluster (agent)"
	}
	return "engine"
}

func quota(u QuotaUse) string {
	part := func(what string, before, after, limit int) string {
		if before == after {
			return fmt.Sprintf("%s %d of %d", what, after, limit)
		}
		return fmt.Sprintf("%s %d → %d of %d", what, before, after, limit)
	}
	return strings.Join([]string{
		part("environments", u.Before.Environments, u.After.Environments, u.Quota.Environments),
		part("deployments", u.Before.Deployments, u.After.Deployments, u.Quota.Deployments),
		part("applications", u.Before.Applications, u.After.Applications, u.Quota.Applications),
	}, ", ")
}

var marks = map[Action]string{Create: "+", Update: "~", Delete: "-", Hold: "!", Depart: ">",
	Freeze: "=", Wave: "="}

func (t *textWriter) change(c Change) {
	s := fmt.Sprintf("%s %-11s %s", marks[c.Action], c.Kind, c.Subject)
	switch c.Action {
	case Hold:
		s += "  held"
	case Freeze:
		s += "  waits"
	case Wave:
		s += "  in a wave"
	}
	t.line(4, s)
	if c.Note != "" {
		t.line(8, c.Note)
	}
	for _, f := range c.Fields {
		t.field(f)
	}
}

func (t *textWriter) field(f Field) {
	switch {
	case f.Before == "":
		t.line(8, f.Path+": + "+f.After)
	case f.After == "":
		t.line(8, f.Path+": - "+f.Before)
	default:
		t.line(8, f.Path+": "+f.Before+" → "+f.After)
	}
}

func (t *textWriter) blank() { _, _ = t.w.WriteString("\n") }

// line writes text at an indentation. Further lines are indented more. A word that is wider than
// the line is not broken.
func (t *textWriter) line(indent int, s string) {
	at := 0
	for i, word := range strings.Split(printable.Name(s), " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
			_, _ = t.w.WriteString(strings.Repeat(" ", indent))
			at = indent
		case at+1+n > columns && word != "":
			_, _ = t.w.WriteString("\n" + strings.Repeat(" ", indent+4))
			at = indent + 4
		default:
			_ = t.w.WriteByte(' ')
			at++
		}
		_, _ = t.w.WriteString(word)
		at += n
	}
	_ = t.w.WriteByte('\n')
}
