package configschema

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/printable"
)

// The writers keep the order of the problems. They print each on its own line and escape control
// characters: paths and messages may contain a tenant's text.

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

type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version,omitempty"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		PhysicalLocation sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		ArtifactLocation sarifArtifact `json:"artifactLocation"`
		Region           *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI       string `json:"uri"`
		URIBaseID string `json:"uriBaseId"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
	}
)

// WriteSARIF writes SARIF 2.1.0, for code scanning. version is Argosy's own; empty leaves it out.
func WriteSARIF(w io.Writer, problems []fleet.Problem, version string) error {
	rules, index := sarifRules(problems)
	results := make([]sarifResult, 0, len(problems))
	for _, p := range problems {
		results = append(results, sarifResultOf(p, index[p.Code]))
	}
	log := sarifLog{
		Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0",
		Runs: []sarifRun{{
			Tool: sarifTool{
				sarifDriver{Name: "argosy", Version: version, InformationURI: "https://argosy.dev",
					Rules: rules}},
			ColumnKind: "unicodeCodePoints", Results: results,
		}},
	}
	e := json.NewEncoder(printable.JSONWriter(w))
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(log)
}

// sarifRules are the codes that occur, sorted, and the place of each.
func sarifRules(problems []fleet.Problem) ([]sarifRule, map[string]int) {
	var codes []string
	for _, p := range problems {
		codes = append(codes, p.Code)
	}
	slices.Sort(codes)
	codes = slices.Compact(codes)
	known, rules, index := AllCodes(), make([]sarifRule, 0, len(codes)),
		make(map[string]int, len(codes))
	for i, c := range codes {
		text := known[c]
		if text == "" {
			text = strings.ReplaceAll(c, "-", " ")
		}
		rules, index[c] = append(rules, sarifRule{c, sarifText{text}}), i
	}
	return rules, index
}

func sarifResultOf(p fleet.Problem, rule int) sarifResult {
	level := "error"
	if p.Severity == fleet.SeverityWarning || p.Severity == fleet.SeverityNote {
		level = string(p.Severity)
	}
	text := p.Message
	if p.Fix != "" {
		text += "\nfix: " + p.Fix
	}
	parts := strings.Split(p.Path, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	at := sarifPhysical{ArtifactLocation: sarifArtifact{strings.Join(parts, "/"), "%SRCROOT%"}}
	if p.Line > 0 {
		at.Region = &sarifRegion{p.Line, max(p.Column, 1)}
	}
	return sarifResult{p.Code, rule, level, sarifText{text}, []sarifLocation{{at}}}
}
