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
// Comments, quotes and the choice of block or flow are kept; blank lines are not. What does not parse is refused, and so is a file that
// cannot be written anew without losing a comment or changing its meaning. Formatting twice gives what formatting once does. An encrypted
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
	doc, root := parseWhole(&d, text)
	if root == nil {
		return nil, firstProblem(d)
	}
	if child(root, "sops") != nil {
		return text, nil
	}
	if name := child(root, "kind"); name != nil {
		if k, ok := kinds[fleet.Kind(name.Value)]; ok {
			reorder(&k.document, root)
		}
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(doc); err != nil {
		return nil, fmt.Errorf("write the file: %w", err)
	}
	after := tree(out.Bytes())
	if after == nil || !sameContent(root, after) {
		return nil, errors.New("the file cannot be formatted without changing its meaning")
	}
	if !maps.Equal(comments(text), comments(out.Bytes())) {
		return nil, errors.New("the file cannot be formatted without losing a comment; write comments on lines of their own, above the field that they speak of")
	}
	return out.Bytes(), nil
}

// parseWhole parses for formatting: the document node holds the comments around the root.
func parseWhole(d *decoder, text []byte) (doc, root node) {
	if root = d.parse(text); root == nil {
		return nil, nil
	}
	doc = new(yaml.Node)
	if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(doc); err != nil {
		return nil, nil
	}
	return doc, doc.Content[0]
}

func firstProblem(d decoder) error {
	p := d.sorted()[0]
	if p.Line == 0 {
		return fmt.Errorf("%s: %s", p.Code, p.Message)
	}
	return fmt.Errorf("line %d: %s: %s", p.Line, p.Code, p.Message)
}

// reorder puts the keys of described objects into the order of the description. Unknown keys stay behind them, in their own order.
func reorder(v *value, n node) {
	switch {
	case v.shape == shapeList && n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			reorder(v.item, item)
		}
	case v.shape == shapeObject && n.Kind == yaml.MappingNode:
		type pair struct {
			key, value node
			rank       int
		}
		pairs := make([]pair, 0, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			p := pair{n.Content[i], n.Content[i+1], len(v.fields)}
			if at := slices.IndexFunc(v.fields, func(f field) bool { return f.name == p.key.Value }); at >= 0 {
				p.rank = at
				reorder(&v.fields[at].value, p.value)
			}
			pairs = append(pairs, p)
		}
		slices.SortStableFunc(pairs, func(a, b pair) int { return a.rank - b.rank })
		for i, p := range pairs {
			n.Content[2*i], n.Content[2*i+1] = p.key, p.value
		}
	}
}

func sameContent(a, b node) bool {
	if a.Kind != b.Kind || a.Tag != b.Tag || a.Value != b.Value || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !sameContent(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
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
