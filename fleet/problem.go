package fleet

import "fmt"

// Severity of a Problem.
type Severity string

// Severities. Only an error quarantines its declaration.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityNote    Severity = "note" // nothing is wrong: it tells of a change
)

// Problem is one thing that is wrong in the config repo, told to the person who can mend it. Line and Column count from 1; 0 means the
// file as a whole. Message never repeats the value of a secret.
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
