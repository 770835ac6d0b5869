package configschema

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// editor changes parts of lines of a file, and adds lines. Everything else stays as it is written.
type editor struct{ source }

func edit(text []byte) editor { return editor{source{strings.Split(string(text), "\n")}} }

func (e *editor) text() []byte { return []byte(strings.Join(e.lines, "\n")) }

func flow(n node) bool { return n.Style&yaml.FlowStyle != 0 }

// scalar replaces a scalar on one line.
func (e *editor) scalar(n node, text string) error {
	length, err := e.length(n)
	if err != nil {
		return err
	}
	return e.splice(n, 0, length, scalarOf(text))
}

// length returns how many bytes a scalar on one line has there.
func (e *editor) length(n node) (int, error) {
	if n == nil || n.Kind != yaml.ScalarNode || n.Line < 1 || n.Line > len(e.lines) {
		return 0, errByHand
	}
	rest := e.from(n.Line-1, n.Column-1)
	for _, written := range []string{`"` + n.Value + `"`,
		"'" + strings.ReplaceAll(n.Value, "'", "''") + "'", n.Value} {
		quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0
		if (quoted == (written != n.Value)) && strings.HasPrefix(rest, written) {
			return len(written), nil
		}
	}
	return 0, errByHand
}

// splice replaces length bytes, offset bytes behind the beginning of a node.
func (e *editor) splice(n node, offset, length int, text string) error {
	at := n.Line - 1
	line := e.lines[at]
	begin := e.offset(at, n.Column-1) + offset
	if begin+length > len(line) {
		return errByHand
	}
	e.lines[at] = line[:begin] + text + line[begin+length:]
	return nil
}

// above adds a line above that of a key, as deep.
func (e *editor) above(key node, text string) {
	e.below(key.Line-1, pad(key.Column-1)+text)
}

// below adds lines below so many.
func (e *editor) below(n int, lines ...string) {
	if n > 0 && strings.HasSuffix(e.lines[n-1], "\r") {
		for i := range lines {
			lines[i] += "\r"
		}
	}
	e.lines = slices.Insert(e.lines, n, lines...)
}

// scalarOf writes a text as YAML reads it as a text everywhere: plain, or in quotes.
func scalarOf(text string) string {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err == nil && len(n.Content) == 1 {
		if c := n.Content[0]; c.Kind == yaml.ScalarNode && c.Tag == "!!str" && c.Style == 0 &&
			c.Value == text && !strings.ContainsAny(text, ",[]{}#:") {
			return text
		}
	}
	return doubleQuoted(text)
}
