package configschema

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// Format returns a declaration in its canonical form, for `argosy fmt`: fields in the order of the
// reference, two blanks of indentation, LF. It keeps comments, single blank lines, quotes and the
// choice of block or flow; a comment moves with the field below it. It refuses a file that does not
// parse, and one that it cannot rewrite without changing its meaning. Formatting twice has the
// result of formatting once. An encrypted file is returned unchanged.
func Format(text []byte) (formatted []byte, err error) {
	defer func() {
		// a panic of the parser, which is third-party code: the file stays unchanged
		if recover() != nil {
			formatted, err = nil, errors.New("the file cannot be formatted")
		}
	}()
	if found := checkText(File{Bytes: text}); found.any() {
		return nil, firstProblem(found)
	}
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	root, found := parse(text, false)
	if root == nil {
		return nil, firstProblem(found)
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

func firstProblem(found findings) error {
	p := found.report(fleet.Key{}, "")[0]
	if p.Line == 0 {
		return fmt.Errorf("%s: %s", p.Code, p.Message)
	}
	return fmt.Errorf("line %d: %s: %s", p.Line, p.Code, p.Message)
}

// source is a text as lines. Format moves and indents lines but otherwise keeps them: an emitter of
// YAML would lose blank lines and misplace comments. Lines and columns count from 0 here.
type source struct {
	lines []string
}

// rewrite writes the root in the order of its description.
func rewrite(text string, root node, v *value) string {
	s := source{strings.Split(text, "\n")}
	if root.Kind != yaml.MappingNode || root.Style&yaml.FlowStyle != 0 {
		return strings.TrimRight(text, " \n") + "\n"
	}
	parts, trail := s.parts(root, 0, len(s.lines))
	// the comments at the top belong to the file, whichever field comes first
	out := tidy(without(parts[0].lead, "---"), 0)
	parts[0].lead = nil
	out = append(out, s.mapping(parts, v, 0)...)
	out = append(out, tidy(without(trail, "..."), 0)...)
	return strings.Trim(strings.Join(out, "\n"), "\n") + "\n"
}

// without drops the marks of a document's begin and end.
func without(lines []string, mark string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool {
		return strings.TrimRight(l, " \t") == mark
	})
}

// part is an entry of a block map or list with the comments above it.
type part struct {
	lead       []string // comments and blank lines above it
	first, end int      // its own lines, up to end
	key, value node     // key is nil in a list
	rank       int      // its place among the fields of the description
}

func (s source) mapping(parts []part, v *value, indent int) (out []string) {
	for i := range parts {
		parts[i].rank = len(v.fields)
		if at := slices.IndexFunc(v.fields, func(f field) bool {
			return f.name == parts[i].key.Value
		}); at >= 0 {
			parts[i].rank = at
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return a.rank - b.rank })
	for _, p := range parts {
		below := &value{}
		if p.rank < len(v.fields) {
			below = &v.fields[p.rank].value
		}
		out = append(out, tidy(p.lead, indent)...)
		out = append(out, s.entry(p, below, indent)...)
	}
	return out
}

// entry writes "key: value", the value's own entries below it when it is a block.
func (s source) entry(p part, v *value, indent int) []string {
	at := p.key.Column - 1
	head := s.from(p.first, at)
	if !block(p.value) || p.value.Line-1 == p.first {
		if written := p.value.Value != "" || p.value.Style != 0 ||
			p.value.Kind != yaml.ScalarNode; written && p.value.Line-1 == p.first &&
			p.value.Column > p.key.Column {
			name := strings.TrimRight(s.between(p.first, at, p.value.Column-1), " \t")
			if strings.HasSuffix(name, ":") {
				head = name + " " + s.from(p.first, p.value.Column-1)
			}
		}
		return s.shifted(pad(indent)+head, p, indent-at)
	}
	out := []string{pad(indent) + strings.TrimRight(head, " \t")}
	return append(out, s.collection(p.value, v, p.first+1, p.end, indent+2)...)
}

func (s source) between(line, column, end int) string {
	return s.lines[line][s.offset(line, column):s.offset(line, end)]
}

func (s source) collection(n node, v *value, from, end, indent int) (out []string) {
	parts, trail := s.parts(n, from, end)
	if n.Kind == yaml.MappingNode {
		out = s.mapping(parts, v, indent)
	} else {
		below := &value{}
		if v.item != nil {
			below = v.item
		}
		for _, p := range parts {
			out = append(out, tidy(p.lead, indent)...)
			out = append(out, s.item(p, below, n.Column-1, indent)...)
		}
	}
	for len(out) > 0 && out[0] == "" {
		out = out[1:]
	}
	return append(out, tidy(trail, indent)...)
}

// parts cuts the lines from..end of a block collection into its entries. A comment above an entry
// that is not indented deeper belongs to that entry; comments below the last entry are returned as
// trail.
func (s source) parts(n node, from, end int) (parts []part, trail []string) {
	every, column := 1, n.Column-1
	if n.Kind == yaml.MappingNode {
		every = 2
	}
	for i := 0; i < len(n.Content); i += every {
		p := part{value: n.Content[i+every-1], first: n.Content[i].Line - 1}
		if every == 2 {
			p.key = n.Content[i]
		} else {
			p.first = s.dash(p.first, column, from)
		}
		parts = append(parts, p)
	}
	for i := range parts {
		if i == 0 {
			parts[i].lead = s.lines[from:max(from, parts[i].first)]
		}
		next := end
		if i+1 < len(parts) {
			next = parts[i+1].first
		}
		above := next
		for above > parts[i].first+1 && s.remark(above-1, column) {
			above--
		}
		parts[i].end = above
		if i+1 < len(parts) {
			parts[i+1].lead = s.lines[above:next]
		} else {
			trail = s.lines[above:next]
		}
	}
	return parts, trail
}

// dash is the line of the '-' whose entry begins at a line or, with comments between, below it.
func (s source) dash(line, column, from int) int {
	for at := line; at >= from; at-- {
		if l := s.lines[at]; len(l) > column && l[column] == '-' &&
			strings.TrimSpace(l[:column]) == "" {
			return at
		}
	}
	return line
}

// remark reports whether a line is blank, a mark of the document's end, or a comment that is not
// indented deeper than column.
func (s source) remark(line, column int) bool {
	l := strings.TrimLeft(s.lines[line], " \t")
	return l == "" || column == 0 && strings.TrimRight(s.lines[line], " ") == "..." ||
		l[0] == '#' && len(s.lines[line])-len(l) <= column
}

// tidy indents comments and reduces consecutive blank lines to one.
func tidy(lines []string, indent int) (out []string) {
	for _, l := range lines {
		l = strings.TrimSpace(l)
		switch {
		case l != "":
			out = append(out, pad(indent)+l)
		case len(out) == 0 || out[len(out)-1] != "":
			out = append(out, "")
		}
	}
	return out
}

// item writes one entry of a list. Comments on its first field go above the '-'.
func (s source) item(p part, v *value, dash, indent int) []string {
	if !block(p.value) || p.value.Kind != yaml.MappingNode || p.value.Line-1 != p.first {
		at := p.value.Column - 1
		if p.value.Line-1 != p.first {
			return s.shifted(pad(indent)+s.from(p.first, dash), p, indent-dash)
		}
		return s.shifted(pad(indent)+"- "+s.from(p.first, at), p, indent+2-at)
	}
	lines := s.collection(p.value, v, p.first, p.end, indent+2)
	for i, l := range lines {
		if bare := strings.TrimLeft(l, " "); bare != "" && bare[0] != '#' {
			lines[i] = pad(indent) + "- " + l[indent+2:]
			for j := range i {
				lines[j] = strings.TrimPrefix(lines[j], "  ")
			}
			break
		}
	}
	return lines
}

func block(n node) bool {
	return n.Kind != yaml.ScalarNode && n.Style&yaml.FlowStyle == 0 && len(n.Content) > 0
}

// shifted returns an unchanged entry: the given first line, and the others moved with it.
func (s source) shifted(first string, p part, by int) []string {
	out := []string{first}
	if p.value.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 || p.end == p.first+1 {
		out[0] = strings.TrimRight(first, " \t")
	}
	for _, l := range s.lines[p.first+1 : p.end] {
		switch bare := strings.TrimLeft(l, " "); {
		case by >= 0 && l != "":
			l = pad(by) + l
		case by < 0:
			l = l[min(-by, len(l)-len(bare)):]
		}
		out = append(out, l)
	}
	return out
}

func pad(n int) string { return strings.Repeat(" ", n) }

// from is a line from a column on. Columns count characters, not bytes.
func (s source) from(line, column int) string { return s.lines[line][s.offset(line, column):] }

func (s source) offset(line, column int) int {
	for i := range s.lines[line] {
		if column == 0 {
			return i
		}
		column--
	}
	return len(s.lines[line])
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
