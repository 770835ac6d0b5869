package api

import (
	"regexp"
	"strconv"
	"strings"
)

// A unified diff side by side: removed and added lines that follow each other are one row, with the
// words that differ marked. The lines are a workload's and untrusted.

type (
	diffRow struct {
		Kind        string // same, changed, removed, added or gap
		Old, New    int    // numbers of the lines; 0: none
		Left, Right []diffSpan
		Skipped     int // of a gap: the unchanged lines that the diff leaves out
	}
	diffSpan struct {
		Text string
		Mark bool
	}
)

const (
	maxDiffRows   = 4000 // of one resource
	maxMarkTokens = 240  // of a line; longer ones differ as a whole
)

var (
	hunkHeader = regexp.MustCompile(`^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@`)
	diffToken  = regexp.MustCompile(`\w+|\s+|[^\w\s]`)
)

// sideBySide returns the rows of a unified diff; cut is true if there are more than maxDiffRows.
func sideBySide(unified string) (rows []diffRow, cut bool) {
	d := differ{}
	for line := range strings.Lines(unified) {
		if len(d.rows) >= maxDiffRows {
			return d.rows, true
		}
		d.line(strings.TrimSuffix(line, "\n"))
	}
	d.flush()
	return d.rows, false
}

type differ struct {
	rows           []diffRow
	old, new       int // numbers of the next lines
	begun          bool
	removed, added []string
}

func (d *differ) line(line string) {
	if m := hunkHeader.FindStringSubmatch(line); m != nil {
		d.flush()
		at, err := strconv.Atoi(m[1])
		to, err2 := strconv.Atoi(m[2])
		if err != nil || err2 != nil {
			return // a number beyond any file's
		}
		if skipped := at - max(d.old, 1); skipped > 0 {
			d.rows = append(d.rows, diffRow{Kind: "gap", Skipped: skipped})
		}
		d.old, d.new, d.begun = at, to, true
		return
	}
	if !d.begun || line == "" {
		if d.begun {
			d.same("")
		}
		return // the names of the files
	}
	switch line[0] {
	case '-':
		if len(d.added) > 0 {
			d.flush()
		}
		d.removed = append(d.removed, line[1:])
	case '+':
		d.added = append(d.added, line[1:])
	case '\\': // no newline at the end of the file
	default:
		d.same(strings.TrimPrefix(line, " "))
	}
}

func (d *differ) same(text string) {
	d.flush()
	span := []diffSpan{{Text: text}}
	d.rows = append(d.rows, diffRow{Kind: "same", Old: d.old, New: d.new, Left: span, Right: span})
	d.old++
	d.new++
}

// flush pairs the collected lines.
func (d *differ) flush() {
	for i := range max(len(d.removed), len(d.added)) {
		row := diffRow{}
		switch {
		case i < len(d.removed) && i < len(d.added):
			row.Kind = "changed"
			row.Left, row.Right = marks(d.removed[i], d.added[i])
		case i < len(d.removed):
			row.Kind, row.Left = "removed", []diffSpan{{Text: d.removed[i]}}
		default:
			row.Kind, row.Right = "added", []diffSpan{{Text: d.added[i]}}
		}
		if i < len(d.removed) {
			row.Old = d.old
			d.old++
		}
		if i < len(d.added) {
			row.New = d.new
			d.new++
		}
		d.rows = append(d.rows, row)
	}
	d.removed, d.added = nil, nil
}

// marks returns both lines with the words marked that the other one lacks.
func marks(before, after string) (left, right []diffSpan) {
	a, b := diffToken.FindAllString(before, -1), diffToken.FindAllString(after, -1)
	if len(a) > maxMarkTokens || len(b) > maxMarkTokens || strings.Join(a, "") != before ||
		strings.Join(b, "") != after {
		return []diffSpan{{before, true}}, []diffSpan{{after, true}}
	}
	common := longestCommon(a, b)
	i, j := 0, 0
	for _, pair := range common {
		left = appendMarked(left, a[i:pair[0]])
		right = appendMarked(right, b[j:pair[1]])
		left, right = appendSpan(left, a[pair[0]], false), appendSpan(right, b[pair[1]], false)
		i, j = pair[0]+1, pair[1]+1
	}
	return appendMarked(left, a[i:]), appendMarked(right, b[j:])
}

func appendMarked(spans []diffSpan, tokens []string) []diffSpan {
	if len(tokens) == 0 {
		return spans
	}
	return appendSpan(spans, strings.Join(tokens, ""), true)
}

func appendSpan(spans []diffSpan, text string, mark bool) []diffSpan {
	if n := len(spans); n > 0 && spans[n-1].Mark == mark {
		spans[n-1].Text += text
		return spans
	}
	return append(spans, diffSpan{text, mark})
}

// longestCommon returns the places of a longest common subsequence in both.
func longestCommon(a, b []string) (pairs [][2]int) {
	lengths := make([][]int, len(a)+1)
	for i := range lengths {
		lengths[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				lengths[i][j] = lengths[i+1][j+1] + 1
			} else {
				lengths[i][j] = max(lengths[i+1][j], lengths[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			pairs = append(pairs, [2]int{i, j})
			i++
			j++
		case lengths[i+1][j] >= lengths[i][j+1]:
			i++
		default:
			j++
		}
	}
	return pairs
}
