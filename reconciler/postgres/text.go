package postgres

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"argosy.dev/argosy/fleet/printable"
)

const (
	maxMessage = 1024 // length in bytes of a message from outside
	// prefix in bytes by which problems are ordered: an index accepts 2704 for a whole key, and
	// fails the transaction beyond
	maxPath = 1024
)

// text makes s valid for the database, which accepts no NUL and no invalid UTF-8: one such byte
// from a tenant or an engine would fail the transaction of all others. It escapes invalid bytes
// rather than dropping them, so that two names stay different.
func text(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	var b strings.Builder
	for i, w := 0, 0; i < len(s); i += w {
		r, width := utf8.DecodeRuneInString(s[i:])
		w = width
		if r == 0 || r == utf8.RuneError && width == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[i])
			continue
		}
		b.WriteString(s[i : i+w])
	}
	return b.String()
}

// message is text, cut to at most maxMessage bytes.
func message(s string) string { return cut(text(s), maxMessage) }

// cut shortens a text to at most so many bytes, at the end of a character, and marks the cut with
// "…".
func cut(s string, most int) string { return printable.Cut(s, most, "…") }

// encoded returns each item as JSON that jsonb accepts: it has no NUL either.
func encoded[T any](items []T) ([]string, error) {
	texts := make([]string, len(items))
	for i := range items {
		raw, err := json.Marshal(&items[i])
		if err != nil {
			return nil, fmt.Errorf("encode %T: %w", items[i], err)
		}
		texts[i] = string(withoutNUL(raw))
	}
	return texts, nil
}

// withoutNUL replaces each \u0000 of JSON text by \ufffd, and leaves \\u0000, a backslash and five
// characters, alone.
func withoutNUL(raw []byte) []byte {
	if !bytes.Contains(raw, []byte(`\u0000`)) {
		return raw
	}
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if bytes.HasPrefix(raw[i:], []byte(`\u0000`)) {
			copy(raw[i:], `\ufffd`)
		}
		i++ // the character after a backslash does not start an escape
	}
	return raw
}
