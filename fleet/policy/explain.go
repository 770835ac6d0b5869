package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"argosy.dev/argosy/fleet"
)

// mistakes of one expression: most later ones follow from the first
const maxMistakes = 5

// explain rewrites the compiler's errors into messages with a fix.
func (x expression) explain(errs []*common.Error) []mistake {
	var explained []mistake
	misses := x.misses()
	for _, e := range errs {
		if len(explained) == maxMistakes {
			break
		}
		m := mistake{}
		m.line, m.column = place(e.Location)
		if undefined.MatchString(e.Message) {
			m.column += x.toName(m)
		}
		m.message, m.fix = x.words(e.Message, &misses)
		if !slices.Contains(explained, m) {
			explained = append(explained, m)
		}
	}
	return explained
}

// toName returns the distance of a field's name from the dot at the compiler's position.
func (x expression) toName(at mistake) int {
	lines := strings.Split(x.text, "\n")
	if at.line < 1 || at.line > len(lines) {
		return 0
	}
	rest := []rune(lines[at.line-1])[min(max(at.column-1, 0),
		utf8.RuneCountInString(lines[at.line-1])):]
	n := slices.IndexFunc(rest, func(r rune) bool { return !strings.ContainsRune(".? \t", r) })
	return max(n, 0)
}

// misses compiles once more to record the unknown fields and where they were looked up.
func (x expression) misses() []miss {
	var misses []miss
	if e, err := newEnv(x.kind, &misses); err == nil {
		e.Compile(x.text)
	}
	return misses
}

// The compiler's errors (checker/errors.go, parser/errors.go) for which explain adds more detail.
var (
	undeclared = regexp.MustCompile(`^undeclared reference to '([^']*)'`)
	undefined  = regexp.MustCompile(`^undefined field '([^']*)'`)
	noOverload = regexp.MustCompile(
		`^found no matching overload for '([^']*)' applied to '([^']*)'`)
	nested    = regexp.MustCompile(`^comprehension exceeds nesting limit`)
	selection = regexp.MustCompile(`^type '([^']*)' does not support field selection`)
)

func (x expression) words(text string, misses *[]miss) (message, fix string) {
	if m := undefined.FindStringSubmatch(text); m != nil {
		return noField(m[1], misses)
	}
	if m := undeclared.FindStringSubmatch(text); m != nil {
		return "there is no variable or function " + quoted(m[1]),
			nearest(m[1], append(slices.Clone(variableNames), functions...),
				"variables: "+strings.Join(variableNames, ", "))
	}
	if m := noOverload.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("%s cannot be applied to %s", operatorName(m[1]), m[2]),
			"fix the types: texts are in quotes, numbers and booleans are not"
	}
	if m := selection.FindStringSubmatch(text); m != nil {
		return "a " + m[1] + " has no fields",
			"use a function on it, or exists() and all() on a list's entries"
	}
	if nested.MatchString(text) {
		return fmt.Sprintf("loops are nested deeper than %d", mostNesting),
			"nest fewer loops"
	}
	if syntax, ok := strings.CutPrefix(text, "Syntax error: "); ok {
		return "the expression is not CEL: " + atSign(syntax),
			"see https://cel.dev; combine with && and ||, put texts into quotes"
	}
	return oneLine(text), "see https://cel.dev"
}

// noField explains the first unknown field of this name.
func noField(name string, misses *[]miss) (message, fix string) {
	i := slices.IndexFunc(*misses, func(m miss) bool { return m.field == name })
	if i < 0 {
		return "there is no field " + quoted(name) + " here", "see the config reference"
	}
	s := (*misses)[i].shape
	return fmt.Sprintf("there is no field %s in %s", quoted(name), s.name),
		nearest(name, s.names(), "fields here: "+strings.Join(s.names(), ", "))
}

func nearest(written string, names []string, otherwise string) string {
	if meant := fleet.Closest(written, names); meant != "" {
		return "did you mean " + meant + "?"
	}
	return otherwise
}

func operatorName(function string) string {
	if sign, ok := operators.FindReverse(function); ok && sign != "" {
		return sign
	}
	return strings.Trim(function, "@")
}

// atSign removes the parser's long list of accepted tokens.
func atSign(text string) string {
	text, _, _ = strings.Cut(oneLine(text), " expecting ")
	return strings.ReplaceAll(text, "'<EOF>'", "the end")
}

// typeName returns a type's common name, with its article.
func typeName(t *cel.Type) string {
	switch t.Kind() {
	case types.BoolKind:
		return "a boolean"
	case types.StringKind:
		return "a text"
	case types.IntKind, types.UintKind, types.DoubleKind:
		return "a number"
	case types.ListKind:
		return "a list"
	case types.MapKind:
		return "a map"
	case types.StructKind:
		return "an object"
	}
	return "a " + cel.FormatCELType(t)
}

// oneLine shortens a foreign text to one line.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > mostMessage {
		return string(r[:mostMessage]) + "…"
	}
	return s
}

func quoted(s string) string { return fmt.Sprintf("%q", oneLine(s)) }
