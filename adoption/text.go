package adoption

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet/printable"
)

// Change is one difference of changed objects: a field with one reason.
type Change struct {
	Kind, Path, Reason string
	Objects            []string
	one                Difference // of the first object
}

// Changes groups the differences of the changed objects, most frequent first.
func (r *Report) Changes() []Change {
	type id struct{ kind, path, reason string }
	groups := map[id]*Change{}
	for _, o := range r.Objects {
		if o.Status != Changed {
			continue
		}
		seen := map[id]bool{}
		for _, d := range o.Differences {
			k := id{o.Kind, general(d.Path), d.Reason}
			if seen[k] {
				continue
			}
			seen[k] = true
			c := groups[k]
			if c == nil {
				c = &Change{Kind: o.Kind, Path: k.path, Reason: d.Reason, one: d}
				groups[k] = c
			}
			c.Objects = append(c.Objects, o.Name)
		}
	}
	var all []Change
	for _, c := range groups {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Change) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), len(b.Objects)-len(a.Objects),
			strings.Compare(a.Path, b.Path), strings.Compare(a.Reason, b.Reason))
	})
	return all
}

const (
	textWidth = 80
	maxNamed  = 4 // objects of one change, and characters of a value
	maxValue  = 50
)

// WriteText writes the refused objects, the changes, the commands and the notes in lines of at most
// 80 columns. Commands and names are never broken.
func (r *Report) WriteText(w io.Writer) error {
	out := &lines{w: w}
	out.section("Not read:", len(r.Unread), func(i int) { out.wrap(2, r.Unread[i]) })
	var refused []Result
	for _, o := range r.Objects {
		if o.Status == Refused {
			refused = append(refused, o)
		}
	}
	out.section("Refused:", len(refused), func(i int) {
		o := refused[i]
		name := o.Kind + " " + path.Join(o.Namespace, o.Name)
		if o.Source != "" {
			name += " (" + o.Source + ")"
		}
		out.wrap(2, name)
		out.wrap(6, o.Reason)
	})
	changes := r.Changes()
	out.section("Changed:", len(changes), func(i int) { out.change(changes[i]) })
	out.section("Run these commands:", len(r.Commands), func(i int) {
		out.line(2, r.Commands[i])
	})
	out.section("Notes:", len(r.Notes), func(i int) { out.wrap(2, r.Notes[i]) })
	return out.err
}

// lines writes until the first error.
type lines struct {
	w   io.Writer
	err error
}

func (l *lines) line(indent int, text string) {
	if l.err == nil {
		_, l.err = fmt.Fprintln(l.w, strings.Repeat(" ", indent)+printable.Name(text))
	}
}

// wrap writes a text; its further lines are indented by two more.
func (l *lines) wrap(indent int, text string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case indent+len(line)+1+len(word) > textWidth:
			l.line(indent, line)
			line = "  " + word
		default:
			line += " " + word
		}
	}
	if line != "" {
		l.line(indent, line)
	}
}

func (l *lines) section(head string, n int, each func(i int)) {
	if n == 0 {
		return
	}
	l.line(0, "")
	l.line(0, head)
	for i := range n {
		each(i)
	}
}

func (l *lines) change(c Change) {
	l.wrap(2, fmt.Sprintf("%s %s", c.Kind, c.Path))
	if len(c.Objects) == 1 {
		l.wrap(6, shownValue(c.one.From)+" -> "+shownValue(c.one.To))
	}
	if c.Reason != "" {
		l.wrap(6, c.Reason)
	}
	named := c.Objects[:min(maxNamed, len(c.Objects))]
	text := strings.Join(named, ", ")
	if more := len(c.Objects) - len(named); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	l.wrap(6, fmt.Sprintf("%s: %s", plural(len(c.Objects), "object"), text))
}

// shownValue is a value of a difference in a few characters.
func shownValue(v any) string {
	if v == nil {
		return "(none)"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "(not shown)"
	}
	if text := []rune(string(b)); len(text) > maxValue {
		return string(text[:maxValue]) + "…"
	}
	return string(b)
}
