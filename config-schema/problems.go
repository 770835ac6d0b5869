package configschema

import (
	"slices"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet"
)

// problem reports an error at a node, under the current path.
func (d *decoder) problem(n node, code, message, fix string) {
	d.addAt(fieldPath(d.steps), n.Line, n.Column, code, message, fix)
}

// fieldPath returns a path as people write it: spec.destination.environments[1],
// metadata.labels["example.com/team"].
func fieldPath(steps []step) string {
	var b strings.Builder
	for i, s := range steps {
		switch {
		case s.index >= 0:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case !only(s.name, alnum+"-_") || s.name == "" || len(s.name) > maxQuoted:
			b.WriteString("[" + quoted(s.name) + "]")
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.name)
		}
	}
	return b.String()
}

// Place fills in the line and column of problems that name a field only. text returns the file at a
// path, or nil when it is not known.
func Place(problems []fleet.Problem, text func(path string) []byte) {
	parsed := map[string]node{}
	for i := range problems {
		p := &problems[i]
		if p.Line > 0 || p.Field == "" {
			continue
		}
		root, ok := parsed[p.Path]
		if !ok {
			root = tree(text(p.Path))
			parsed[p.Path] = root
		}
		if root != nil {
			p.Line, p.Column = locate(root, p.Field)
		}
	}
}

// sortProblems puts problems into the order in which people read them: by path, then by place.
func sortProblems(problems []fleet.Problem) {
	slices.SortStableFunc(problems, fleet.CompareProblems)
}
