package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Line is one measurement. Floor is the minimum from the same run; nil for a line of its own.
type Line struct {
	Name  string `json:"name"`
	Unit  string `json:"unit,omitempty"`
	Ours  Sample `json:"ours"`
	Floor Sample `json:"floor,omitempty"`
	Ratio Sample `json:"ratio,omitempty"` // pair by pair
	// the upper limit of the ratio, or without a floor of the value
	Goal  float64 `json:"goal,omitempty"`
	Exact bool    `json:"exact,omitempty"` // the goal is the value itself: 0 too
}

// Against is a line with a floor.
func Against(name, unit string, ours, floor Sample, goal float64) Line {
	return Line{Name: name, Unit: unit, Ours: ours, Floor: floor, Ratio: Ratios(ours, floor),
		Goal: goal}
}

// Met reports whether the goal holds for the median; true when there is none.
func (l Line) Met() bool {
	switch {
	case l.Exact:
		least, greatest := l.Ours.Range()
		return least == l.Goal && greatest == l.Goal
	case l.Goal == 0:
		return true
	case l.Ratio != nil:
		return l.Ratio.Median() <= l.Goal
	default:
		return l.Ours.Median() <= l.Goal
	}
}

// Figure is one table.
type Figure struct {
	Name  string   `json:"name"` // of the JSON file
	Title string   `json:"title"`
	Lines []Line   `json:"lines"`
	Notes []string `json:"notes,omitempty"`
}

// Add appends a line.
func (f *Figure) Add(l Line) { f.Lines = append(f.Lines, l) }

// Note appends a sentence.
func (f *Figure) Note(format string, args ...any) {
	f.Notes = append(f.Notes, fmt.Sprintf(format, args...))
}

const layout = "  %-30s %10s %9s  %-16s %s\n"

// Print writes the table.
func (f *Figure) Print(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n", f.Title)
	fmt.Fprintf(w, layout, "", "argosy", "floor", "ratio (spread)", "goal")
	for _, l := range f.Lines {
		floor, ratio := "", ""
		if l.Floor != nil {
			least, greatest := l.Ratio.Range()
			floor = number(l.Floor.Median(), l.Unit)
			ratio = fmt.Sprintf("%.2f (%.2f-%.2f)", l.Ratio.Median(), least, greatest)
		} else if least, greatest := l.Ours.Range(); len(l.Ours) > 1 && least != greatest {
			ratio = "(" + number(least, "") + "-" + number(greatest, "") + ")"
		}
		fmt.Fprintf(w, layout, l.Name, number(l.Ours.Median(), l.Unit), floor, ratio, l.goal())
	}
	for _, n := range f.Notes {
		fmt.Fprintln(w, wrap(n, 76))
	}
}

func (l Line) goal() string {
	if !l.Exact && l.Goal == 0 {
		return ""
	}
	sign, word := "<=", "ok"
	if l.Exact {
		sign = "="
	}
	if !l.Met() {
		word = "MISSED"
	}
	return sign + strconv.FormatFloat(l.Goal, 'g', -1, 64) + " " + word
}

// number keeps three significant digits.
func number(v float64, unit string) string {
	digits := 0
	switch a := math.Abs(v); {
	case v == math.Trunc(v) || a >= 100:
	case a >= 10:
		digits = 1
	case a >= 1:
		digits = 2
	default:
		digits = 3
	}
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if unit != "" {
		s += " " + unit
	}
	return s
}

func wrap(text string, width int) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
			b.WriteString("  - ")
			at = 4
		case at+1+len(word) > width:
			b.WriteString("\n    ")
			at = 4
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	return b.String()
}

// Write puts the figure with all its samples into dir.
func (f *Figure) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	content, err := json.MarshalIndent(struct {
		*Figure
		At time.Time `json:"at"`
	}{f, time.Now().UTC()}, "", "  ")
	if err != nil {
		return fmt.Errorf("figure %s: %w", f.Name, err)
	}
	return os.WriteFile(filepath.Join(dir, f.Name+".json"), append(content, '\n'), 0o644)
}
