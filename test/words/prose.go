package words

import (
	"path"
	"regexp"
	"strings"
)

const openingInstead = "actor, verb, object: only a question opens with this word"

var (
	opening  = regexp.MustCompile(`^(?:What|Who|Whose|Whoever|That|How|One that|Those that)\b`)
	sentence = regexp.MustCompile(`[.!?:][)"*_]*\s+`)
	codeSpan = regexp.MustCompile("`[^`\n]*`")
	number   = regexp.MustCompile(`\b[Cc]ases? [0-9]+\b`)
)

// prose checks the text of a comment or document whose first line is the given one of the file.
// lines are the file's, for the findings' context.
func (g *Glossary) prose(file string, first int, text string, lines []string) []Finding {
	var found []Finding
	at := func(offset int) int { return first + strings.Count(text[:offset], "\n") }
	add := func(offset int, word, instead string) {
		line := at(offset)
		found = append(found, Finding{file, line, word, instead, context(lines, line)})
	}
	plain := codeSpan.ReplaceAllStringFunc(text, func(code string) string {
		return "`" + strings.Repeat(" ", len(code)-2) + "`"
	})
	for _, m := range g.inText(plain) {
		word := plain[m[0]:m[1]]
		add(m[0], strings.Join(strings.Fields(word), " "), g.replacement(word))
	}
	for _, m := range number.FindAllStringIndex(plain, -1) {
		add(m[0], plain[m[0]:m[1]],
			"the rule itself: a catalogue's number means nothing to a reader")
	}
	for offset, s := range sentences(plain) {
		if word := opening.FindString(s); word != "" &&
			!strings.HasSuffix(strings.TrimSpace(s), "?") {
			add(offset, word, openingInstead)
		}
	}
	return found
}

// sentences yields the sentences of a text with their offsets. A blank line, a list item and a
// table's cell start a new one.
func sentences(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		for offset, block := range blocks(text) {
			start := 0
			ends := sentence.FindAllStringIndex(block, -1)
			for _, end := range append(ends, []int{len(block), len(block)}) {
				if s := strings.TrimSpace(block[start:end[1]]); s != "" {
					skipped := strings.Index(block[start:], s)
					if !yield(offset+start+skipped, s) {
						return
					}
				}
				start = end[1]
			}
		}
	}
}

var item = regexp.MustCompile(`^\s*(?:[-*+]|[0-9]+[.)])\s+`)

// blocks yields the paragraphs and list items of a text with their offsets, without headings.
func blocks(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		offset, start, end := 0, -1, 0
		flush := func() bool {
			if start < 0 {
				return true
			}
			from := start
			start = -1
			return yield(from, text[from:end])
		}
		for line := range strings.SplitAfterSeq(text, "\n") {
			trimmed := strings.TrimSpace(line)
			lead := 0
			switch {
			case trimmed == "" || strings.HasPrefix(trimmed, "#") ||
				strings.HasPrefix(trimmed, "|") ||
				strings.HasPrefix(trimmed, "```"):
				if !flush() {
					return
				}
				offset += len(line)
				continue
			case item.MatchString(line):
				if !flush() {
					return
				}
				lead = len(item.FindString(line))
			}
			if start < 0 {
				start = offset + lead
			}
			offset += len(line)
			end = offset
		}
		flush()
	}
}

// Document checks a text that is no Go: a Markdown page, a template, a script, a Makefile.
func (g *Glossary) Document(file, text string) []Finding {
	lines := strings.Split(text, "\n")
	found := g.fileName(file)
	if path.Ext(file) == ".md" {
		return append(found, g.prose(file, 1, text, lines)...)
	}
	// Code and comments are mixed: a comment's sentences end with the comment.
	for _, block := range hashComments(lines) {
		found = append(found, g.openings(file, block.first, block.text, lines)...)
	}
	for _, f := range g.prose(file, 1, text, lines) {
		if f.Instead != openingInstead {
			found = append(found, f)
		}
	}
	return found
}

func (g *Glossary) openings(file string, first int, text string, lines []string) []Finding {
	var found []Finding
	for _, f := range g.prose(file, first, text, lines) {
		if f.Instead == openingInstead {
			found = append(found, f)
		}
	}
	return found
}

type comment struct {
	first int
	text  string
}

// hashComments returns the blocks of whole lines that start with #.
func hashComments(lines []string) []comment {
	var all []comment
	open := false
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		text, isComment := strings.CutPrefix(trimmed, "#")
		if !isComment || strings.HasPrefix(text, "!") {
			open = false
			continue
		}
		text = strings.TrimPrefix(strings.TrimLeft(text, "#- "), " ")
		if open {
			all[len(all)-1].text += "\n" + text
		} else {
			all, open = append(all, comment{i + 1, text}), true
		}
	}
	return all
}

// fileName checks the name of a file as a name that is visible outside a function.
func (g *Glossary) fileName(file string) []Finding {
	var found []Finding
	for _, word := range camelWords(strings.TrimSuffix(path.Base(file), path.Ext(file))) {
		if instead, banned := g.decl[word]; banned {
			found = append(found, Finding{file, 1, word, instead, path.Base(file)})
		}
	}
	return found
}

func context(lines []string, line int) string {
	if line < 1 || line > len(lines) {
		return ""
	}
	return strings.TrimSpace(lines[line-1])
}
