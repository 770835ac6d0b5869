// Package table writes tables and facts for a terminal.
//
// Rules of this package:
//   - the text of a cell is escaped first (package printable);
//   - colour only repeats the meaning of the word beside it;
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

// Value is one field of a table.
type Value struct {
	Text string
	Tone Tone
}

// Text returns a plain cell; an empty text is a dash.
func Text[T ~string](s T) Value { return Value{Text: string(s)} }

// Number is a plain cell.
func Number(n int) Value { return Value{Text: fmt.Sprint(n)} }

// State is a state's word in its colour.
func State[T ~string](s T) Value { return Value{Text: string(s), Tone: ToneOf(string(s))} }

// ToneOf is the colour of a state's word.
func ToneOf(state string) Tone {
	switch state {
	case "Synced", "Healthy", "Applied", "Succeeded", "Active", "Empty", "yes":
		return Good
	case "Progressing", "Pending", "Running", "OutOfSync", "Deleting", "Cordoned", "Draining",
		"Moving", "Waiting", "Paused", "Proposed",
		"Suspended", "Terminating", "warning":
		return Busy
	case "Degraded", "Missing", "Failed", "Conflict", "Held", "Error", "error", "no", "stopped",
		"Stopped", "unplaced", "Unreachable", "DeletionBlocked", "Evacuated":
		return Bad
	}
	return Plain
}

// Table is rows under heads.
type Table struct {
	Heads   []string
	Rows    [][]Value
	NoHeads bool // the heads are not printed, and do not widen a column
}

// Write writes the table.
func (t Table) Write(w io.Writer, colour bool) error {
	widths := make([]int, len(t.Heads))
	for i, h := range t.Heads {
		if !t.NoHeads {
			widths[i] = utf8.RuneCountInString(h)
		}
	}
	rows := make([][]Value, len(t.Rows))
	for r, row := range t.Rows {
		rows[r] = make([]Value, len(row))
		for i, c := range row {
			c.Text = printable.Line(c.Text)
			if c.Text == "" {
				c = Value{Text: "-", Tone: Faint}
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
			rows[r][i] = c
		}
	}
	var out strings.Builder
	heads := make([]Value, len(t.Heads))
	for i, h := range t.Heads {
		heads[i] = Value{Text: h, Tone: Faint}
	}
	if !t.NoHeads {
		line(&out, heads, widths, colour)
	}
	for _, row := range rows {
		line(&out, row, widths, colour)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func line(out *strings.Builder, cells []Value, widths []int, colour bool) {
	for i, c := range cells {
		paint(out, c, colour)
		if i < len(cells)-1 {
			out.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.Text)+2))
		}
	}
	out.WriteByte('\n')
}

// Paint returns the text of a value in its colour. The text is escaped already.
func Paint(v Value, colour bool) string {
	var out strings.Builder
	paint(&out, v, colour)
	return out.String()
}

func paint(out *strings.Builder, c Value, colour bool) {
	code := codes[c.Tone]
	if !colour || code == "" {
		out.WriteString(c.Text)
		return
	}
	out.WriteString(code + c.Text + "\x1b[0m")
}

// Fact is a name with a value.
type Fact struct {
	Name  string
	Value Value
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
			paint(&out, Value{printable.Line(text), f.Value.Tone}, colour)
			out.WriteByte('\n')
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}
