package review

import (
	"fmt"
	"sort"
	"strings"

	"argosy.dev/argosy/fleet"
)

// rowDetail is how much of what changes is listed.
type rowDetail int

const (
	eachRow rowDetail = iota
	// what is alike is counted, engine by engine; deletions are still listed, as many as fit
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

// fit renders with as much detail as the budget (bytes, and so characters too) takes: the fields
// that change are left out from the longest on, then all of them, and then step by step what is
// listed. It costs no more for more rows than the budget could ever take.
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
	cells
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

// item writes an entry of a list. Lines after the first are entries of a list within it. None is
// empty: a dash alone would underline what stands above it.
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

// items writes a list, at most most of it.
func (p *page) items(list []string, most int) {
	for _, s := range list[:min(len(list), most)] {
		p.item(s)
	}
	if n := len(list) - most; n > 0 {
		p.item(fmt.Sprintf("…and %d more", n))
	}
}

func (p *page) table(header ...string) {
	p.begin(cells)
	p.b.WriteString("| " + strings.Join(header, " | ") + " |\n|" + strings.Repeat(" --- |",
		len(header)) + "\n")
}

func (p *page) row(cell ...string) {
	p.begin(cells)
	p.b.WriteString("| " + strings.Join(cell, " | ") + " |\n")
}

// rest tells of what was not listed.
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

// problems lists what is wrong as a compiler would.
func (p *page) problems(own, others []fleet.Problem, most int) {
	for _, part := range []struct {
		title    string
		problems []fleet.Problem
	}{{"**Problems in these files**", own}, {"**What it makes of other files**", others}} {
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
