package review

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/printable"
)

const (
	mostWord     = 120 // bytes of a name, a path, a login
	mostSentence = 400 // bytes of a message
	mostLine     = 300 // bytes of a line in a fence
)

// clean puts text on one line of at most most bytes. Characters that do not print (control
// characters, bidirectional overrides, broken UTF-8) become escapes.
func clean(s string, most int) string {
	var b strings.Builder
	space := false
	for i, r := range s {
		if b.Len() > most {
			break
		}
		if unicode.IsSpace(r) {
			space = b.Len() > 0
			continue
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteString(printed(r, s[i:]))
	}
	return clip(b.String(), most)
}

func printed(r rune, rest string) string {
	switch {
	case r == utf8.RuneError && !strings.HasPrefix(rest, string(utf8.RuneError)):
		return fmt.Sprintf(`\x%02x`, rest[0])
	case printable.Is(r):
		return string(r)
	}
	return printable.Escape(r)
}

// clip cuts text to most bytes, between two characters.
func clip(s string, most int) string { return printable.Cut(s, most, "…") }

// code is a code span: within it no markup, mention, reference or link acts. Backticks would end it
// (cmark-gfm reads no span with more than 80 on each side), and a bar would end the cell of a table
// even there: other characters replace them.
func code(s string) string { return span(clean(s, mostWord)) }

var inert = strings.NewReplacer("`", "'", "|", "¦")

func span(s string) string {
	if s == "" {
		return "—"
	}
	return "`" + inert.Replace(s) + "`"
}

// acts matches text that a Git host turns into a link although every character is harmless.
var acts = regexp.MustCompile(`(?i)://|www\.|\bgh-[0-9]|mailto:|xmpp:`)

// words is a sentence that may contain a stranger's words. It is plain text if nothing in it could
// act as markup, else a code span. It is never the beginning of a line.
func words(s string) string { return sentence(clean(s, mostSentence)) }

func sentence(s string) string {
	for _, r := range s {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) &&
			!strings.ContainsRune(` .,;:?()%/'"-+=→…·—`, r) {
			return span(s)
		}
	}
	if strings.ContainsAny(s, ":.-") && acts.MatchString(s) {
		return span(s)
	}
	return s
}

// prose is a line of this package with names in backticks: they become code spans, and the text
// between them sentences.
func prose(s string) string {
	parts := strings.Split(s, "`")
	if len(parts)%2 == 0 {
		return words(s)
	}
	out := ""
	for i, part := range parts {
		if i%2 == 1 {
			out = join(out, code(part))
			continue
		}
		text := clean(part, 2*mostSentence)
		if text == "" {
			if part != "" {
				out += " "
			}
			continue
		}
		if strings.HasPrefix(part, " ") {
			out += " "
		}
		out = join(out, sentence(text))
		if strings.HasSuffix(part, " ") {
			out += " "
		}
	}
	if out != "" && !opens.MatchString(out) {
		return code(s)
	}
	return out
}

// opens matches the beginning of a line of plain text: no list, rule, quote or heading.
var opens = regexp.MustCompile("^([\\pL`…—]|[0-9]+([^0-9.)]|$))")

// join keeps two code spans apart: without a blank their backticks would be one run, which ends
// neither.
func join(a, b string) string {
	if strings.HasSuffix(a, "`") && strings.HasPrefix(b, "`") {
		return a + " " + b
	}
	return a + b
}

// plain is prose without its backticks, for places that know no Markdown.
func plain(s string, most int) string { return clean(strings.ReplaceAll(s, "`", ""), most) }

// tick puts a name into prose: in backticks, without any of its own.
func tick(s string) string { return "`" + strings.ReplaceAll(clean(s, mostWord), "`", "'") + "`" }

// login shows a person in the comment without a mention: a mention of each owner at each push would
// fill their mail.
func login(p forge.Person) string {
	if p.Login == "" {
		return tick(fmt.Sprint("account ", p.ID))
	}
	return tick(p.Login)
}

func tenant(t fleet.TenantName) string {
	if t == "" {
		return "the platform"
	}
	return "tenant " + tick(string(t))
}

// series lists at most most items in a sentence, and counts the rest.
func series(items []string, most int) string { return list(items, most, " and ") }

// choice is the same where one of them is enough.
func choice(items []string, most int) string { return list(items, most, " or ") }

func list(items []string, most int, last string) string {
	n := len(items)
	if n > most {
		items = append(items[:most:most], fmt.Sprintf("%d more", n-most))
	}
	switch len(items) {
	case 0:
		return "none"
	case 1:
		return items[0]
	}
	return strings.Join(items[:len(items)-1], ", ") + last + items[len(items)-1]
}

func each[T, R any](list []T, of func(T) R) []R {
	out := make([]R, 0, len(list))
	for _, x := range list {
		out = append(out, of(x))
	}
	return out
}
