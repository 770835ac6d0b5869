package configschema

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// Format writes a declaration in its canonical form, for `argosy fmt`: fields in the order of the
// reference, two blanks of indentation, LF. Comments, single blank lines, quotes and the choice of
// block or flow are kept; a comment goes where the field below it goes. What does not parse is
// refused, and so is a file that cannot be written anew without changing its meaning. Formatting
// twice gives what formatting once does. An encrypted file is returned as it is.
func Format(text []byte) (formatted []byte, err error) {
	defer func() {
		if recover() != nil { // of the parser, which is not ours; the file stays as it is
			formatted, err = nil, errors.New("the file cannot be formatted")
		}
	}()
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
	if a.Kind != b.Kind || a.Tag != b.Tag || a.Value != b.Value ||
		len(a.Content) != len(b.Content) {
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
