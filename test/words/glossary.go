package words

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// Rule is one line of the glossary.
type Rule struct {
	Words   []string
	Instead string
	Text    bool // comments, messages and documents
	Name    bool // every declared name
	Decl    bool // declared names that are visible outside a function
}

// Glossary finds banned words.
type Glossary struct {
	text *regexp.Regexp
	// instead, name and decl map a banned word to its replacement.
	instead, name, decl map[string]string
}

// ParseGlossary reads lines of the form "words -> instead [where]". The words of a phrase are
// joined by underscores.
func ParseGlossary(text string) (*Glossary, error) {
	g := &Glossary{
		instead: map[string]string{}, name: map[string]string{}, decl: map[string]string{},
	}
	var patterns []string
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		rule, err := parseRule(line)
		if err != nil {
			return nil, fmt.Errorf("glossary.txt:%d: %w", i+1, err)
		}
		for _, word := range rule.Words {
			if rule.Text {
				g.instead[word] = rule.Instead
				patterns = append(patterns, strings.ReplaceAll(regexp.QuoteMeta(word), " ", `\s+`))
			}
			if rule.Name {
				g.name[word] = rule.Instead
			}
			if rule.Name || rule.Decl {
				g.decl[word] = rule.Instead
			}
		}
	}
	var err error
	g.text, err = regexp.Compile(`(?i)\b(?:` + strings.Join(patterns, "|") + `)\b`)
	return g, err
}

func parseRule(line string) (Rule, error) {
	banned, rest, found := strings.Cut(line, "->")
	instead, where, found2 := strings.Cut(rest, "[")
	if !found || !found2 || !strings.HasSuffix(where, "]") {
		return Rule{}, fmt.Errorf("%q has not the form: words -> instead [where]", line)
	}
	r := Rule{Instead: strings.TrimSpace(instead)}
	for word := range strings.FieldsSeq(banned) {
		r.Words = append(r.Words, strings.ReplaceAll(word, "_", " "))
	}
	for place := range strings.FieldsSeq(strings.TrimSuffix(where, "]")) {
		switch place {
		case "text":
			r.Text = true
		case "name":
			r.Name = true
		case "decl":
			r.Decl = true
		default:
			return Rule{}, fmt.Errorf("%q is not text, name or decl", place)
		}
	}
	return r, nil
}

// inText returns the banned words of a text with their offsets.
func (g *Glossary) inText(text string) [][]int { return g.text.FindAllStringIndex(text, -1) }

// replacement returns what the glossary offers for a match of inText.
func (g *Glossary) replacement(match string) string {
	return g.instead[strings.ToLower(strings.Join(strings.Fields(match), " "))]
}

// camelWords returns the words of a name in lower case: "StopBoard_test" has stop, board and test.
func camelWords(name string) []string {
	var words []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
			word = nil
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			end()
			continue
		case unicode.IsUpper(r) && i > 0:
			afterLower := unicode.IsLower(runes[i-1])
			beforeLower := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if afterLower || beforeLower {
				end()
			}
		}
		word = append(word, r)
	}
	end()
	return words
}
