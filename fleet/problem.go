package fleet

import (
	"cmp"
	"fmt"
	"strings"
)

// CodeMoreProblems is the code of a problem that counts the problems of a file that are not shown.
const CodeMoreProblems = "too-many-problems"

// Severity of a Problem.
type Severity string

// Severities. Only an error quarantines its declaration.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityNote    Severity = "note" // no error: a notice about a change
)

// Problem is one error, warning or note about the config repo, for the person who can fix it. Line
// and Column count from 1; 0 means the file as a whole. Message never contains the value of a
// secret.
type Problem struct {
	Key      Key      `json:"key"`
	Path     string   `json:"path"`
	Line     int      `json:"line,omitempty"`
	Column   int      `json:"column,omitempty"`
	Field    string   `json:"field,omitempty"` // e.g. spec.destination.environments[1]
	Severity Severity `json:"severity"`
	Code     string   `json:"code"`          // stable, e.g. unknown-environment
	Message  string   `json:"message"`       // what is wrong
	Fix      string   `json:"fix,omitempty"` // what to write instead
}

// String is file:line:col: severity[code]: message (fix).
func (p Problem) String() string {
	s := p.Path
	if p.Line > 0 {
		s = fmt.Sprintf("%s:%d:%d", s, p.Line, p.Column)
	}
	s = fmt.Sprintf("%s: %s[%s]: %s", s, p.Severity, p.Code, p.Message)
	if p.Fix != "" {
		s += "\n    fix: " + p.Fix
	}
	return s
}

// CompareProblems orders problems by path, then by position. The count of problems that are not
// shown comes last.
func CompareProblems(a, b Problem) int {
	return cmp.Or(strings.Compare(a.Path, b.Path), counts(a)-counts(b), cmp.Compare(a.Line, b.Line),
		cmp.Compare(a.Column, b.Column),
		strings.Compare(a.Field, b.Field), strings.Compare(a.Code, b.Code),
		strings.Compare(a.Message, b.Message))
}

func counts(p Problem) int {
	if p.Code == CodeMoreProblems {
		return 1
	}
	return 0
}
