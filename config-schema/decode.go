package configschema

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet"
)

// File is one entry of the config repo's tree, as the object database has it.
type File struct {
	Path  string // slashes, relative to the repository's root
	Blob  string // git blob id of Bytes
	Bytes []byte
	// "symlink", "submodule", "mode 0120000": why it cannot be read; empty for a regular file
	Irregular string
	Size      int64 // of a file that is too large to be read, without Bytes; -1: it is not known

	// Unreadable is why nothing of a whole folder can be read; Path ends in a slash.
	Unreadable string
}

// Document is what one file says: a declaration, or the problems that keep it from being one.
// Declaration is nil when a Problem is an error.
type Document struct {
	Key         fleet.Key
	Path        string
	Blob        string
	Declaration *fleet.Declaration
	Problems    []fleet.Problem
}

// Decode reads one file below `fleet/` or `tenants/`. It is pure and never panics: should the code
// fail, the file alone gets a Problem with code "internal". For a path that is not ours it returns
// a Document without a declaration and without problems.
func Decode(f File) (doc Document) {
	key, ours, problem := Classify(f.Path)
	doc = Document{Key: key, Path: f.Path, Blob: f.Blob}
	if !ours {
		return doc
	}
	if f.Unreadable != "" {
		doc.Problems = []fleet.Problem{{Key: doc.Key, Path: f.Path, Severity: fleet.SeverityError,
			Code:    codeUnreadable,
			Message: "the folder cannot be read, and what was applied of it stays: " + f.Unreadable,
			Fix:     "revert that commit, or remove what is wrong in another one"}}
		return doc
	}
	if problem != nil {
		doc.Problems = []fleet.Problem{atFolder(f, *problem)}
		return doc
	}
	d := decoder{key: key, path: f.Path, bytes: f.Bytes}
	defer func() {
		if failure := recover(); failure != nil {
			// What failed may hold a part of the file, which may be a secret: it is not repeated.
			d.problems = nil
			d.fileProblem(codeInternal, "argosy could not read this file",
				"please report it, with the file if it holds nothing confidential")
			doc.Declaration, doc.Problems = nil, d.problems
		}
	}()
	declaration := &fleet.Declaration{Key: key, Path: f.Path, Blob: f.Blob}
	d.file(f, declaration)
	doc.Problems = d.sorted()
	if !slices.ContainsFunc(doc.Problems, func(p fleet.Problem) bool {
		return p.Severity == fleet.SeverityError
	}) {
		doc.Declaration = declaration
	}
	return doc
}

// decoder decodes one file. steps is the path from the root to where it is.
type decoder struct {
	key      fleet.Key
	path     string
	bytes    []byte // of the file
	bangs    map[position]bool
	steps    []step
	optional bool // whether the field that is decoded may be left out
	inValues bool // the bytes are the text of a chart's values
	problems []fleet.Problem
	untold   int
}

// step is a field's name, an entry's place in a list, or a label's key.
type step struct {
	name  string
	index int // -1: name counts
}

func (d *decoder) file(f File, into *fleet.Declaration) {
	if !d.readable(f) {
		return
	}
	// What is found here may stand in any other message too: then nothing else is said of the file
	// until it is mended.
	if d.secrets(f.Bytes); len(d.problems) > 0 {
		return
	}
	root := d.parse(f.Bytes)
	if root == nil {
		return
	}
	if d.key.Kind == fleet.KindSealedSecret {
		d.sealed(root, into)
		return
	}
	d.declaration(root, into)
}

// declaration decodes the document of a kind. A file of another kind is told so and no more: its
// spec would only raise noise.
func (d *decoder) declaration(root node, into *fleet.Declaration) {
	k := kinds[d.key.Kind]
	if !d.expectedKind(root) {
		return
	}
	target := k.begin(into)
	d.value(&k.document, root, target)
	into.Labels = k.labels(target)
	if name := child(child(root, "metadata"), "name"); name != nil && name.Value != d.key.Name &&
		len(d.problems) == 0 {
		d.at("metadata", func() {
			d.at("name", func() {
				d.problem(name, codeWrongName,
					fmt.Sprintf("the name is %s, the file is named for %q", quoted(name.Value),
						d.key.Name), "write name: "+asText(d.key.Name)+", or rename the file")
			})
		})
	}
}

// expectedKind checks `kind:` against the folder before anything else.
func (d *decoder) expectedKind(root node) bool {
	n := child(root, "kind")
	if n == nil || n.Kind != scalarNode || n.Value == string(d.key.Kind) ||
		strings.TrimSpace(n.Value) == "" {
		return true
	}
	d.steps = append(d.steps[:0], step{"kind", -1})
	defer func() { d.steps = d.steps[:0] }()
	fix := "write kind: " + string(d.key.Kind) + ", or move the file"
	switch k, known := kinds[fleet.Kind(n.Value)]; {
	case known:
		d.problem(n, codeWrongKind, fmt.Sprintf("this folder holds declarations of kind %s, not %s",
			d.key.Kind, k.name), fix)
	case laterKinds[n.Value]:
		d.problem(n, codeUnsupported, n.Value+" is not supported by this version of Argosy",
			"remove the file until the version that supports it")
	default:
		if meant := fleet.Closest(n.Value, kindNames); meant != "" {
			fix = "did you mean " + meant + "?"
		}
		d.problem(n, codeUnknownKind, "there is no kind "+quoted(n.Value), fix)
	}
	return false
}

// at runs f one step deeper.
func (d *decoder) at(name string, f func()) {
	d.steps = append(d.steps, step{name, -1})
	f()
	d.steps = d.steps[:len(d.steps)-1]
}

// problem reports what is wrong at a node, under the current path.
func (d *decoder) problem(n node, code, message, fix string) {
	if len(d.problems) >= maxProblems {
		d.untold++
		return
	}
	p := fleet.Problem{Key: d.key, Path: d.path, Field: d.field(), Severity: fleet.SeverityError,
		Code: code, Message: message, Fix: fix}
	if n != nil {
		p.Line, p.Column = n.Line, n.Column
	}
	d.problems = append(d.problems, p)
}

// fileProblem reports what is wrong with the file as a whole.
func (d *decoder) fileProblem(code, message, fix string) {
	d.steps = d.steps[:0]
	d.problem(nil, code, message, fix)
}

// lineProblem reports what is wrong at a place of the text. Both count from 1.
func (d *decoder) lineProblem(line, column int, code, message, fix string) {
	d.fileProblem(code, message, fix)
	if last := len(d.problems) - 1; d.untold == 0 {
		d.problems[last].Line, d.problems[last].Column = line, column
	}
}

// field writes the current path as people write it: spec.destination.environments[1],
// metadata.labels["example.com/team"].
func (d *decoder) field() string {
	if len(d.steps) == 0 {
		return ""
	}
	var b strings.Builder
	for i, s := range d.steps {
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

// sorted is the problems in the order of the file.
func (d *decoder) sorted() []fleet.Problem {
	slices.SortStableFunc(d.problems, func(a, b fleet.Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Code, b.Code))
	})
	d.problems = slices.Compact(d.problems)
	if d.untold > 0 {
		d.problems = append(d.problems, fleet.Problem{Key: d.key, Path: d.path,
			Severity: fleet.SeverityError, Code: codeTooManyProblems,
			Message: fmt.Sprintf("%d more problems of this file are not shown", d.untold),
			Fix:     "fix the problems above first"})
	}
	return d.problems
}

// quoted is a value as a message repeats it: on one line, in ASCII, and not long.
func quoted(s string) string {
	runes := []rune(s)
	if len(runes) > maxQuoted {
		return strconv.QuoteToASCII(string(runes[:maxQuoted])) + "…"
	}
	return strconv.QuoteToASCII(s)
}
