package report

import (
	"fmt"
	"io"
	"strings"

	"argosy.dev/argosy/fleet/printable"
)

// mostMarkdown keeps a plan below GitHub's limit for a comment (65,536 characters), with room for
// the text around it.
const mostMarkdown = 55_000

// WriteMarkdown writes the report for a comment on GitHub. Text that may come from a repository is
// in fenced blocks or code spans that its own backticks cannot end, where neither markup nor
// mentions nor links work. Lines that do not fit into one comment are counted.
func (r Report) WriteMarkdown(w io.Writer) error {
	m := &markdown{}
	m.plan(r)
	if m.left > 0 {
		fmt.Fprintf(&m.b, "\n…and %s more. `argosy plan` shows all of it.\n", Count(m.left, "line"))
	}
	_, err := io.WriteString(w, m.b.String())
	return err
}

type markdown struct {
	b    strings.Builder
	left int // lines that did not fit
}

func (m *markdown) plan(r Report) {
	m.add("### Plan %s\n\n%s\n", code(revisions(r)), plain(r.Summary))
	if r.RevisionHold != nil {
		lines := []string{}
		for _, k := range r.RevisionHold.Items {
			lines = append(lines, "- "+k.Name+" on "+string(k.Engine))
		}
		fmt.Fprintf(&m.b, "\nApprove it with %s.\n", code("argosy release "+string(r.Head)))
		m.block("diff", lines)
		return
	}
	if len(r.Platform) > 0 {
		m.add("\n**Platform**\n")
		m.block("text", r.Platform)
	}
	for _, ring := range r.Rings {
		m.add("\n> **Ring %s:** %s.\n", code(ring.Name), plain(ring.Summary()))
		m.block("text", ring.Lines())
		if a := ring.Approval(); a != "" {
			m.add("\n%s.\n", plain(a))
		}
	}
	for _, d := range r.Drains {
		m.add("\n> **%s %s:** %s.\n", d.Title(), code(string(d.Engine)), plain(d.Summary()))
		m.block("text", d.Lines())
	}
	if len(r.Tenants) > 0 {
		m.add("\nOther tenants: %s\n", code(radius(r)))
	}
	for _, h := range r.Holds {
		m.add("\n> **Held.** %s. Approve with %s.\n", plain(holdLine(h)),
			code("argosy release "+string(h.Revision)))
	}
	if len(r.Problems) > 0 {
		lines := []string{}
		for _, p := range r.Problems {
			lines = append(lines, problemLines(p)...)
		}
		m.add("\n**Problems**\n")
		m.block("text", lines)
	}
	for _, t := range r.Tenants {
		m.tenant(t)
	}
}

// add writes a piece of text if there is room for it.
func (m *markdown) add(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	if m.b.Len()+len(s) > mostMarkdown {
		m.left += strings.Count(strings.TrimSpace(s), "\n") + 1
		return
	}
	m.b.WriteString(s)
}

func (m *markdown) tenant(t Tenant) {
	m.add("\n#### Tenant %s\n\n%s\n", code(string(t.Name)), plain(quota(t.Quota)))
	for _, pl := range t.Placements {
		engine := "no engine"
		if pl.Engine != "" {
			engine = "engine " + code(string(pl.Engine))
		}
		if pl.Engine.OfEnvironment() {
			m.add("- environment %s on %s\n", code(string(pl.Environment.Name)), plain(pl.Reason))
			continue
		}
		why := pl.Reason
		if pl.Misplaced != "" {
			why = "misplaced: " + pl.Misplaced
		} else if pl.Outgrown() != "" {
			why = pl.Outgrown()
		}
		m.add("- environment %s on %s: %s\n", code(string(pl.Environment.Name)), engine, code(why))
	}
	for _, name := range t.Unplaced {
		m.add("- environment %s leaves its engine\n", code(name))
	}
	for _, s := range t.Syncs {
		m.add("- sync %s at %s on %s (%s)\n", code(s.Application), code(s.Revision),
			code(string(s.Engine)), code(string(s.SyncRun)))
	}
	for _, e := range t.Engines {
		words := engineWords(e.Name)
		m.add("\n%s %s\n", strings.ToUpper(words[:1])+words[1:], code(string(e.Name)))
		lines := []string{}
		for _, c := range e.Changes {
			lines = append(lines, changeLines(c)...)
		}
		m.block("diff", lines)
	}
}

// changeLines returns a change as lines of a diff, which GitHub colours by their first character.
func changeLines(c Change) []string {
	mark := marks[c.Action]
	if c.Action == Update {
		mark = "!"
	}
	head := mark + " " + string(c.Kind) + " " + c.Subject
	switch c.Action {
	case Hold:
		head = "# " + string(c.Kind) + " " + c.Subject + " held"
	case Wave:
		head = "# " + string(c.Kind) + " " + c.Subject + " in a wave"
	case Freeze:
		head = "# " + string(c.Kind) + " " + c.Subject + " waits"
	}
	lines := []string{head}
	if c.Note != "" {
		lines = append(lines, "#   "+c.Note)
	}
	for _, f := range c.Fields {
		if f.Before != "" {
			lines = append(lines, "-     "+f.Path+": "+f.Before)
		}
		if f.After != "" {
			lines = append(lines, "+     "+f.Path+": "+f.After)
		}
	}
	return lines
}

// block writes lines, as far as there is room, in a fence that is longer than any run of backticks
// within them.
func (m *markdown) block(language string, lines []string) {
	fence, kept := "```", []string{}
	room := mostMarkdown - m.b.Len() - len(language) - 20
	for i, l := range lines {
		l = printable.Name(l)
		if room -= len(l) + 1; room < 0 {
			m.left += len(lines) - i
			break
		}
		kept = append(kept, l)
		for strings.Contains(l, fence) {
			fence += "`"
			room -= 2
		}
	}
	if len(kept) == 0 {
		return
	}
	fmt.Fprintf(&m.b, "\n%s%s\n%s\n%s\n", fence, language, strings.Join(kept, "\n"), fence)
}

// mostTicks is the longest run of backticks that cmark-gfm, GitHub's renderer, accepts as the end
// of a code span (MAXBACKTICKS in its inlines.c).
const mostTicks = 80

// code returns a code span for text with any backticks: it uses the shortest run of backticks that
// the text does not have. If the text has runs of every accepted length, quotes replace its
// backticks.
func code(s string) string {
	s = OneLine(s)
	if s == "" {
		return ""
	}
	runs := map[int]bool{}
	for _, run := range strings.FieldsFunc(s, func(r rune) bool { return r != '`' }) {
		runs[len(run)] = true
	}
	n := 1
	for runs[n] {
		n++
	}
	if n > mostTicks {
		return "`" + strings.ReplaceAll(s, "`", "'") + "`"
	}
	ticks := strings.Repeat("`", n)
	if len(runs) > 0 {
		return ticks + " " + s + " " + ticks
	}
	return ticks + s + ticks
}

// unseen follows every character that GitHub makes a mention or a reference of. GitHub searches for
// these after it has read the Markdown: neither a backslash nor an entity for the character
// prevents it (github/cmark-gfm issues 181 and 389).
const unseen = "&#8203;"

// plain returns text outside of code spans: sentences of this package with names and numbers in
// them. It escapes every character that Markdown or HTML could read as markup, and prevents
// mentions.
func plain(s string) string {
	var b strings.Builder
	for _, r := range OneLine(s) {
		if strings.ContainsRune("\\`*_{}[]<>()#+!|~@&", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
		if r == '@' || r == '#' {
			b.WriteString(unseen)
		}
	}
	return b.String()
}
