// Package table writes what people read in a terminal: tables and facts.
//
// Rules of this package:
//   - the text of a cell is escaped first (package printable);
//   - colour says nothing that the word beside it does not say;
//   - columns are as wide as their widest cell; the last one is never padded.
package table

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"argosy.dev/argosy/fleet/printable"
)

// Tone is the colour of a cell.
type Tone int

// Tones.
const (
	Plain Tone = iota
	Good
	Busy
	Bad
	Faint
)

var codes = map[Tone]string{Good: "\x1b[32m", Busy: "\x1b[33m", Bad: "\x1b[31m", Faint: "\x1b[2m"}

// Cell is one field of a table.
type Cell struct {
	Text string
	Tone Tone
}

// Text is a plain cell; what is empty is shown as a dash.
func Text[T ~string](s T) Cell { return Cell{Text: string(s)} }

// Number is a plain cell.
func Number(n int) Cell { return Cell{Text: fmt.Sprint(n)} }

// State is a state's word in its colour.
func State[T ~string](s T) Cell { return Cell{Text: string(s), Tone: ToneOf(string(s))} }

// ToneOf is the colour of a state's word.
func ToneOf(state string) Tone {
	switch state {
	case "Synced", "Healthy", "Applied", "Succeeded", "Active", "yes":
		return Good
	case "Progressing", "Pending", "Running", "OutOfSync", "Deleting", "Cordoned", "Draining",
		"Suspended", "Terminating", "warning":
		return Busy
	case "Degraded", "Missing", "Failed", "Conflict", "Held", "Error", "error", "no", "stopped",
		"unplaced", "Unreachable", "DeletionBlocked":
		return Bad
	}
	return Plain
}

// Table is rows under heads.
type Table struct {
	Heads []string
	Rows  [][]Cell
}

// Write writes the table.
func (t Table) Write(w io.Writer, colour bool) error {
	widths := make([]int, len(t.Heads))
	for i, h := range t.Heads {
		widths[i] = utf8.RuneCountInString(h)
	}
	rows := make([][]Cell, len(t.Rows))
	for r, row := range t.Rows {
		rows[r] = make([]Cell, len(row))
		for i, c := range row {
			c.Text = printable.Line(c.Text)
			if c.Text == "" {
				c = Cell{Text: "-", Tone: Faint}
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
			rows[r][i] = c
		}
	}
	var out strings.Builder
	heads := make([]Cell, len(t.Heads))
	for i, h := range t.Heads {
		heads[i] = Cell{Text: h, Tone: Faint}
	}
	line(&out, heads, widths, colour)
	for _, row := range rows {
		line(&out, row, widths, colour)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func line(out *strings.Builder, cells []Cell, widths []int, colour bool) {
	for i, c := range cells {
		paint(out, c, colour)
		if i < len(cells)-1 {
			out.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.Text)+2))
		}
	}
	out.WriteByte('\n')
}

func paint(out *strings.Builder, c Cell, colour bool) {
	code := codes[c.Tone]
	if !colour || code == "" {
		out.WriteString(c.Text)
		return
	}
	out.WriteString(code + c.Text + "\x1b[0m")
}

// Fact is one thing that is so.
type Fact struct {
	Name  string
	Value Cell
}

// Facts writes names and values in two columns; a value of several lines is indented under its
// first. Facts without a value are left out.
func Facts(w io.Writer, colour bool, facts []Fact) error {
	width := 0
	for _, f := range facts {
		if f.Value.Text != "" {
			width = max(width, len(f.Name))
		}
	}
	var out strings.Builder
	for _, f := range facts {
		if f.Value.Text == "" {
			continue
		}
		for i, text := range strings.Split(strings.TrimRight(f.Value.Text, "\n"), "\n") {
			name := ""
			if i == 0 {
				name = f.Name + ":"
			}
			fmt.Fprintf(&out, "%-*s  ", width+1, name)
			paint(&out, Cell{printable.Line(text), f.Value.Tone}, colour)
			out.WriteByte('\n')
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}
