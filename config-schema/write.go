package configschema

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"argosy.dev/argosy/fleet"
)

// The writers print problems in the order in which they are given. Everything in them is printed on its own line and without control
// characters: paths and messages may carry what a tenant wrote.

// WriteText writes `file:line:col: severity[code]: message`, with the fix on a line below. colour adds ANSI colours.
func WriteText(w io.Writer, problems []fleet.Problem, colour bool) error {
	paint := func(code, s string) string {
		if !colour {
			return s
		}
		return "\x1b[" + code + "m" + s + "\x1b[0m"
	}
	for _, p := range problems {
		hue := "31"
		if p.Severity == fleet.SeverityWarning {
			hue = "33"
		}
		place := printable(p.Path)
		if p.Line > 0 {
			place += fmt.Sprintf(":%d:%d", p.Line, max(p.Column, 1))
		}
		s := fmt.Sprintf("%s: %s: %s\n", paint("1", place), paint(hue, fmt.Sprintf("%s[%s]", p.Severity, printable(p.Code))), printable(p.Message))
		if p.Fix != "" {
			s += "    " + paint("36", "fix:") + " " + printable(p.Fix) + "\n"
		}
		if _, err := io.WriteString(w, s); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes {"problems": [...], "errors": n, "warnings": n}; the entries are fleet.Problem.
func WriteJSON(w io.Writer, problems []fleet.Problem) error {
	report := struct {
		Problems []fleet.Problem `json:"problems"`
		Errors   int             `json:"errors"`
		Warnings int             `json:"warnings"`
	}{Problems: problems}
	if report.Problems == nil {
		report.Problems = []fleet.Problem{}
	}
	for _, p := range problems {
		if p.Severity == fleet.SeverityWarning {
			report.Warnings++
		} else {
			report.Errors++
		}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

// WriteGitHub writes workflow commands, which GitHub shows as annotations of the changed lines.
func WriteGitHub(w io.Writer, problems []fleet.Problem) error {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	for _, p := range problems {
		command := "error"
		if p.Severity == fleet.SeverityWarning {
			command = "warning"
		}
		place := "file=" + property.Replace(p.Path)
		if p.Line > 0 {
			place += ",line=" + strconv.Itoa(p.Line) + ",col=" + strconv.Itoa(max(p.Column, 1))
		}
		text := printable(p.Message)
		if p.Fix != "" {
			text += "\nfix: " + printable(p.Fix)
		}
		if _, err := fmt.Fprintf(w, "::%s %s,title=%s::%s\n", command, place, property.Replace(printable(p.Code)), data.Replace(text)); err != nil {
			return err
		}
	}
	return nil
}

// printable is s on one line: what would move a cursor, end a line or not be seen is written as an escape.
func printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	q := strconv.QuoteToGraphic(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
