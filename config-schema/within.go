package configschema

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
)

// within is where a place of a text stands in the file that the text was read from: line and column
// of the text and of the file, all from 1. The text and the file have the same characters in the
// same order but for blanks, line ends and escapes, whatever the style of the scalar; so the place
// is found by counting those that are seen. Where that fails it is the scalar's own place.
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

// seenBefore are the characters of a text that are seen and stand before a place of it; more tells
// that others follow.
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

const blanks = " \t\r\n"

// walk goes over the characters of a scalar in its file.
type walk struct {
	lines [][]byte
	runes []rune // of the line at
	at    position
	style yaml.Style
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

func (w *walk) read() {
	w.runes = nil
	if w.at.line <= len(w.lines) {
		w.runes = []rune(string(w.lines[w.at.line-1]))
	}
}

// skip goes over what is not seen.
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

// next is the next character that is seen. An escape that stands for a character of its own counts
// as that one; others end the walk.
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
		case w.style&yaml.DoubleQuotedStyle != 0 && r == '\\' && strings.ContainsRune(`"\/`,
			follows):
			w.at.column++
			return follows, true
		}
	}
	return r, w.style&yaml.DoubleQuotedStyle == 0 || r != '\\'
}
