package configschema

import (
	"bytes"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Locate returns the position of a field in its file, counted from 1: of the value of a scalar, of
// the first line of a map or list. For a missing field it returns the nearest parent, for a file
// that does not parse 1, 1. Field has the form of Problem.Field: spec.destination.environments[1],
// metadata.labels["example.com/team"].
func Locate(text []byte, field string) (line, column int) {
	root := tree(text)
	if root == nil {
		return 1, 1
	}
	return locate(root, field)
}

// tree returns the root of a file's first document, or nil if there is none.
func tree(text []byte) (root node) {
	if len(text) > maxFile {
		return nil
	}
	defer func() {
		if recover() != nil { // the parser is not ours; a position is not worth a crash
			root = nil
		}
	}()
	var doc yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&doc); err != nil ||
		len(doc.Content) == 0 {
		return nil
	}
	return doc.Content[0]
}

func locate(n node, field string) (line, column int) {
	at := position{1, 1}
	for rest := field; n != nil; {
		if n.Line > 0 {
			at = position{n.Line, n.Column}
		}
		var s step
		var ok bool
		if s, rest, ok = nextStep(rest); !ok {
			break
		}
		n = below(n, s)
	}
	return at.line, at.column
}

// nextStep takes the first step off a field's path.
func nextStep(field string) (s step, rest string, ok bool) {
	field = strings.TrimPrefix(field, ".")
	if field == "" {
		return step{}, "", false
	}
	if field[0] != '[' {
		end := strings.IndexAny(field, ".[")
		if end < 0 {
			end = len(field)
		}
		return step{field[:end], -1}, field[end:], end > 0
	}
	if quotedKey, err := strconv.QuotedPrefix(field[1:]); err == nil {
		name, err := strconv.Unquote(quotedKey)
		rest, closed := strings.CutPrefix(field[1+len(quotedKey):], "]")
		return step{name, -1}, rest, err == nil && closed
	}
	number, rest, closed := strings.Cut(field[1:], "]")
	index, err := strconv.Atoi(number)
	return step{"", index}, rest, closed && err == nil && index >= 0
}

func below(n node, s step) node {
	if s.index < 0 {
		return child(n, s.name)
	}
	if n.Kind == yaml.SequenceNode && s.index < len(n.Content) {
		return n.Content[s.index]
	}
	return nil
}

// walk goes over the characters of a scalar in its file.
type walk struct {
	lines [][]byte
	runes []rune // of the line at
	at    position
	style yaml.Style
}

// within maps a position in a text to a position in the file that contains the text; lines and
// columns count from 1. Apart from blanks, line ends and escapes, the text and the file have the
// same characters in the same order, whatever the style of the scalar, so it counts visible
// characters. If that fails, it returns the position of the scalar.
func within(file []byte, n node, line, column int) (int, int) {
	before, more, found := seenBefore(n.Value, line, column)
	if line < 1 || column < 1 || !found {
		return n.Line, n.Column
	}
	w := walk{lines: bytes.Split(file, []byte("\n")), at: position{n.Line, n.Column},
		style: n.Style}
	if !w.begin() {
		return n.Line, n.Column
	}
	for _, want := range before {
		if got, ok := w.next(); !ok || got != want {
			return n.Line, n.Column
		}
	}
	if more {
		w.skip()
	}
	return w.at.line, w.at.column
}

const blanks = " \t\r\n"

// seenBefore returns the visible characters of a text before a position; more reports whether
// others follow.
func seenBefore(text string, line, column int) (seen []rune, more, found bool) {
	l, c := 1, 1
	for i, r := range text {
		if l == line && c == column {
			return seen, strings.Trim(text[i:], blanks) != "", true
		}
		if c++; r == '\n' {
			l, c = l+1, 1
		}
		if !strings.ContainsRune(blanks, r) {
			seen = append(seen, r)
		}
	}
	return seen, false, l == line && c == column
}

// begin goes to the scalar's first character: behind its quote, or below its '|' or '>'.
func (w *walk) begin() bool {
	if w.at.line < 1 || w.at.line > len(w.lines) {
		return false
	}
	switch {
	case w.style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		w.at = position{w.at.line + 1, 1}
	case w.style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		w.at.column++
	}
	w.read()
	return true
}

// next returns the next visible character. An escape for one printable character counts as that
// character; any other escape ends the walk.
func (w *walk) next() (rune, bool) {
	w.skip()
	i := w.at.column - 1
	if i >= len(w.runes) {
		return 0, false
	}
	r := w.runes[i]
	w.at.column++
	if i+1 < len(w.runes) {
		switch follows := w.runes[i+1]; {
		case w.style&yaml.SingleQuotedStyle != 0 && r == '\'' && follows == '\'':
			w.at.column++
		case w.style&yaml.DoubleQuotedStyle != 0 && r == '\\' &&
			strings.ContainsRune(`"\/`, follows):
			w.at.column++
			return follows, true
		}
	}
	return r, w.style&yaml.DoubleQuotedStyle == 0 || r != '\\'
}

// skip skips invisible characters.
func (w *walk) skip() {
	for w.at.line <= len(w.lines) {
		switch i := w.at.column - 1; {
		case i >= len(w.runes) && w.at.line == len(w.lines):
			return
		case i >= len(w.runes):
			w.at = position{w.at.line + 1, 1}
			w.read()
		case strings.ContainsRune(blanks, w.runes[i]):
			w.at.column++
		case w.style&yaml.DoubleQuotedStyle != 0 && w.runes[i] == '\\' &&
			(i+1 == len(w.runes) || strings.ContainsRune("ntr \t\r", w.runes[i+1])):
			w.at.column += 2
		default:
			return
		}
	}
}

func (w *walk) read() {
	w.runes = nil
	if w.at.line <= len(w.lines) {
		w.runes = []rune(string(w.lines[w.at.line-1]))
	}
}
