package report

import (
	"fmt"
	"strings"

	"argosy.dev/argosy/fleet/printable"
)

// Count returns a number with its noun, in the plural unless it is 1.
func Count(n int, what string) string {
	return fmt.Sprintf("%d %s", n, Plural(n, what, what+"s"))
}

// Plural returns the word for a number: one for 1, many otherwise.
func Plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// OneLine keeps text that may come from a repository from ending its line or controlling the
// terminal. Newlines of Problem itself become spaces.
func OneLine(s string) string {
	return printable.Name(strings.Join(strings.Fields(strings.ReplaceAll(s, "\n", " ")), " "))
}

const mostClipped = 200 // runes of a value

// Clip returns at most mostClipped runes of a text, with its length if it is cut.
func Clip(s string) string {
	r := []rune(s)
	if len(r) <= mostClipped {
		return s
	}
	return string(r[:mostClipped]) + fmt.Sprintf("… (%d characters)", len(r))
}
