package configschema

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/printable"
)

// The writers print problems in the order in which they are given. Everything in them is printed on
// its own line and without control characters: paths and messages may carry what a tenant wrote.

// WriteText writes `file:line:col: severity[code]: message`, with the fix on a line below. colour
// adds ANSI colours.
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
		place := printable.Name(p.Path)
		if p.Line > 0 {
			place += fmt.Sprintf(":%d:%d", p.Line, max(p.Column, 1))
		}
		s := fmt.Sprintf("%s: %s: %s\n", paint("1", place),
			paint(hue, fmt.Sprintf("%s[%s]", p.Severity, printable.Name(p.Code))),
			printable.Name(p.Message))
		if p.Fix != "" {
			s += "    " + paint("36", "fix:") + " " + printable.Name(p.Fix) + "\n"
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
	e := json.NewEncoder(printable.JSONWriter(w))
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

// WriteGitHub writes workflow commands, which GitHub shows as annotations of the changed lines.
func WriteGitHub(w io.Writer, problems []fleet.Problem) error {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C",
		"\t", `\t`)
	for _, p := range problems {
		command := "error"
		if p.Severity == fleet.SeverityWarning {
			command = "warning"
		}
		place := "file=" + property.Replace(printable.Text(p.Path))
		if p.Line > 0 {
			place += ",line=" + strconv.Itoa(p.Line) + ",col=" + strconv.Itoa(max(p.Column, 1))
		}
		text := printable.Name(p.Message)
		if p.Fix != "" {
			text += "\nfix: " + printable.Name(p.Fix)
		}
		if _, err := fmt.Fprintf(w, "::%s %s,title=%s::%s\n", command, place,
			property.Replace(printable.Name(p.Code)), data.Replace(text)); err != nil {
			return err
		}
	}
	return nil
}
