// Package printable decides which characters of untrusted text are printed as they are.
//
// Names, paths and messages come from repositories, clusters and people. A terminal obeys control
// characters, bidirectional controls change how a line reads, and characters without a glyph are
// invisible. None of them is printed raw, in any format:
//   - text for people has an escape instead of the character: Line, Name, Text;
//   - JSON has the same value with the character as \u, so that programs read the original: JSON;
//   - the lines of a program keep their line breaks: Lines.
package printable

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Is reports whether a character is printed as it is. U+FFFD is: it replaces invalid bytes.
func Is(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= ' ' && r != 0x7f
	}
	return unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point,
		unicode.Variation_Selector)
}

// Escape is the character's escape in a Go string literal: \n, \x1b, \u202e, \U000e0001.
func Escape(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case r < utf8.RuneSelf:
		return fmt.Sprintf(`\x%02x`, r)
	case r > 0xffff:
		return fmt.Sprintf(`\U%08x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// Name escapes every character that is not printed, line breaks and tabs included.
func Name(s string) string { return escaped(s, "") }

// Line returns text on one line: line breaks and tabs become blanks.
func Line(s string) string {
	if strings.ContainsAny(s, "\n\r\t") {
		s = blanks.Replace(s)
	}
	return Name(s)
}

var blanks = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ", "\t", " ")

// Text returns text of several lines: line breaks and tabs stay.
func Text(s string) string { return escaped(s, "\n\t") }

func escaped(s, kept string) string {
	is := func(r rune) bool { return Is(r) || strings.ContainsRune(kept, r) }
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case is(r):
			b.WriteRune(r)
		default:
			b.WriteString(Escape(r))
		}
	}
	return b.String()
}

// JSON returns the same JSON with every unprinted character as \u. It is for the output of
// encoding/json, which escapes control characters below U+0020 itself.
func JSON(b []byte) []byte {
	return rewritten(b, func(out *strings.Builder, r rune) {
		if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
			fmt.Fprintf(out, `\u%04x\u%04x`, high, low)
			return
		}
		fmt.Fprintf(out, `\u%04x`, r)
	})
}

// Lines returns a program's lines, such as those of a log: their line breaks and tabs stay.
func Lines(b []byte) []byte {
	return rewritten(b, func(out *strings.Builder, r rune) { out.WriteString(Escape(r)) })
}

func rewritten(b []byte, escape func(*strings.Builder, rune)) []byte {
	shown := func(r rune) bool { return Is(r) || r == '\n' || r == '\t' }
	first := 0
	for first < len(b) {
		if c := b[first]; c < utf8.RuneSelf { // most of a page is
			if c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
				break
			}
			first++
			continue
		}
		r, size := utf8.DecodeRune(b[first:])
		if !shown(r) || r == utf8.RuneError && size == 1 {
			break
		}
		first += size
	}
	if first == len(b) {
		return b
	}
	var out strings.Builder
	out.Write(b[:first])
	for _, r := range string(b[first:]) {
		if shown(r) {
			out.WriteRune(r)
		} else {
			escape(&out, r)
		}
	}
	return []byte(out.String())
}

// JSONWriter escapes each Write with JSON. Each Write is whole characters, as those of json.Encoder
// are.
func JSONWriter(w io.Writer) io.Writer { return writer{w, JSON} }

// LinesWriter escapes each Write with Lines. Each Write is whole characters, as those of a log
// handler are.
func LinesWriter(w io.Writer) io.Writer { return writer{w, Lines} }

type writer struct {
	to io.Writer
	as func([]byte) []byte
}

func (w writer) Write(b []byte) (int, error) {
	if _, err := w.to.Write(w.as(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Truncate bounds text to so many bytes. It cuts between characters and marks the cut with "...".
func Truncate(s string, bytes int) string { return Cut(s, bytes, "...") }

// Cut is Truncate with another mark, which counts towards the bytes.
func Cut(s string, bytes int, mark string) string {
	if len(s) <= bytes {
		return s
	}
	end := max(bytes-len(mark), 0)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}
