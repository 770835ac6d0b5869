package configschema

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// Format writes a declaration in its canonical form, for `argosy fmt`: fields in the order of the reference, two blanks of indentation, LF.
// Comments, single blank lines, quotes and the choice of block or flow are kept; a comment goes where the field below it goes. What does
// not parse is refused, and so is a file that cannot be written anew without losing a comment or changing its meaning. Formatting twice gives what formatting once does. An encrypted
// file is returned as it is.
func Format(text []byte) (formatted []byte, err error) {
	defer func() {
		if recover() != nil { // of the emitter; the file stays as it is
			formatted, err = nil, errors.New("the file cannot be formatted")
		}
	}()
	formatted, err = formatOnce(text)
	for range 3 {
		if err != nil || bytes.Equal(formatted, text) {
			return formatted, err
		}
		text = formatted
		formatted, err = formatOnce(text)
	}
	return nil, errors.New("the file has no stable form; write its comments above the fields that they speak of")
}

func formatOnce(text []byte) ([]byte, error) {
	d := decoder{}
	if !d.readable(File{Bytes: text}) {
		return nil, firstProblem(d)
	}
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	root := d.parse(text)
	if root == nil {
		return nil, firstProblem(d)
	}
	if child(root, "sops") != nil {
		return text, nil
	}
	describedBy := &value{}
	if name := child(root, "kind"); name != nil && kinds[fleet.Kind(name.Value)] != nil {
		describedBy = &kinds[fleet.Kind(name.Value)].document
	}
	out := []byte(rewrite(string(text), root, describedBy))
	after := tree(out)
	if after == nil || !sameContent(root, after) {
		return nil, errors.New("the file cannot be formatted without changing its meaning")
	}
	if !maps.Equal(comments(text), comments(out)) {
		return nil, errors.New("the file cannot be formatted without losing a comment; write comments on lines of their own, above the field that they speak of")
	}
	return out, nil
}

func firstProblem(d decoder) error {
	p := d.sorted()[0]
	if p.Line == 0 {
		return fmt.Errorf("%s: %s", p.Code, p.Message)
	}
	return fmt.Errorf("line %d: %s: %s", p.Line, p.Code, p.Message)
}

// sameContent compares two trees; the order of a map's keys has no meaning.
func sameContent(a, b node) bool {
	if a.Kind != b.Kind || a.Tag != b.Tag || a.Value != b.Value || len(a.Content) != len(b.Content) {
		return false
	}
	if a.Kind != yaml.MappingNode {
		return slices.EqualFunc(a.Content, b.Content, sameContent)
	}
	values := make(map[string]node, len(b.Content)/2)
	for i := 0; i+1 < len(b.Content); i += 2 {
		values[b.Content[i].Tag+b.Content[i].Value] = b.Content[i+1]
	}
	for i := 0; i+1 < len(a.Content); i += 2 {
		other := values[a.Content[i].Tag+a.Content[i].Value]
		if other == nil || !sameContent(a.Content[i+1], other) {
			return false
		}
	}
	return len(values) == len(a.Content)/2
}

// comments counts what stands behind a '#' on any line. A '#' within a text counts too: it is there before and after.
func comments(text []byte) map[string]int {
	count := map[string]int{}
	for line := range strings.Lines(string(text)) {
		before := byte(' ')
		for i := range len(line) {
			if line[i] == '#' && (before == ' ' || before == '\t') {
				count[strings.TrimSpace(line[i:])]++
				break
			}
			before = line[i]
		}
	}
	return count
}
