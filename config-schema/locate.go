package configschema

import (
	"bytes"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Locate is where a field of a declaration stands in its file, both counting from 1: the value of a
// scalar, the first line of a map or list. For a field that is not there it is the nearest that is
// above it; 1, 1 for a file that does not parse. Field is written as Problem.Field is:
// spec.destination.environments[1], metadata.labels["example.com/team"].
func Locate(text []byte, field string) (line, column int) {
	root := tree(text)
	if root == nil {
		return 1, 1
	}
	return locate(root, field)
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

// tree is the root of a file's first document, or nil when there is none that can be walked.
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

func below(n node, s step) node {
	if s.index < 0 {
		return child(n, s.name)
	}
	if n.Kind == yaml.SequenceNode && s.index < len(n.Content) {
		return n.Content[s.index]
	}
	return nil
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
