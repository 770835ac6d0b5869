// Package configschema turns the files of a config repo into declarations, and into problems that a
// person can fix.
//
// One declarative description per kind (kindFleet and so on) gives the meaning, type, bounds and
// rule of each field. The strict decoder, the JSON Schemas, the reference page and the templates
// all derive from it, so that they cannot disagree.
//
// Rules of this package:
//   - bytes in, values out: no I/O, and no result depends on anything but the arguments;
//   - one decode feeds every reader: validate, plan, the reconciler and the database read the
//     result of Decode and nothing else;
//   - the path is the identity; the content of a file must agree with its path;
//   - strict: an unknown field, a blank, a coerced type or a hidden feature of YAML (anchors,
//     merges, tags) is an error;
//   - a file's problems are reported together, each with line, column, code, message and fix;
//   - no message repeats a value that may be a secret;
//   - no input makes it panic, and the caps below bound its cost.
package configschema

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/policy"
)

//go:generate go run ./generate

// Caps of one file. They bound what a hostile file can cost: the parser never sees more than
// maxFile bytes, no alias is ever expanded, and no walk goes deeper than maxDepth.
const (
	maxFile     = 256 << 10 // bytes
	maxDepth    = 32        // nested maps and lists; the deepest declaration needs 8
	maxText     = 256       // bytes of a text whose description has no limit of its own
	maxItems    = 1000      // entries of a list whose description has no limit of its own
	maxLabels   = 32        // entries of a map of labels
	maxProblems = 50        // reported per file; the others are counted
	maxQuoted   = 48        // characters of a value that a message repeats
)

// File is one entry of the config repo's tree, as the object database has it.
type File struct {
	Path  string // slashes, relative to the repository's root
	Blob  string // git blob id of Bytes
	Bytes []byte
	// "symlink", "submodule", "mode 0120000": why it cannot be read; empty for a regular file
	Irregular string
	Size      int64 // of a file that is too large to be read, without Bytes; -1: unknown

	// Unreadable is why nothing of a whole folder can be read; Path ends in a slash.
	Unreadable string

	// Listings are those of the repositories that a set asks for; nil: none was read.
	Listings fleet.Listings
}

// Document is the result of decoding one file: a declaration, or the problems that prevent one.
// Declaration is nil if a Problem is an error.
type Document struct {
	Key         fleet.Key
	Path        string
	Blob        string
	Declaration *fleet.Declaration
	Problems    []fleet.Problem
}

// decoder decodes the tree of one file.
type decoder struct {
	findings
	key      fleet.Key
	bytes    []byte // of the file
	steps    []step // from the root to the current node
	optional bool   // whether the current field is optional
	listings fleet.Listings
}

// step is a field's name, an entry's place in a list, or a label's key.
type step struct {
	name  string
	index int // -1: name counts
}

// Check reads a whole config repo offline, as its first commit, and returns every problem in the
// order of paths and lines: of each file, of paths that differ only in case, and of references
// between files. It ignores files outside `fleet/` and `tenants/`.
func Check(files []File) (problems []fleet.Problem) {
	texts := make(map[string][]byte, len(files))
	for _, f := range files {
		texts[f.Path] = f.Bytes
	}
	problems = catalog.New().Judging(policy.New().Judge).Prepare(Inputs(files)).Problems()
	Place(problems, func(path string) []byte { return texts[path] })
	sortProblems(problems)
	return problems
}

// Inputs decodes files as the changes of one commit. It refuses paths that differ only in case
// together, and leaves out files outside `fleet/` and `tenants/`.
func Inputs(files []File) []catalog.Input {
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = f.Path
	}
	duplicates := map[string][]fleet.Problem{}
	for _, p := range DuplicatePaths(paths) {
		duplicates[p.Path] = append(duplicates[p.Path], p)
	}
	inputs := make([]catalog.Input, 0, len(files))
	for _, d := range DecodeAll(files) {
		if d.Key.Kind == "" {
			continue
		}
		in := catalog.Input{Key: d.Key, Path: d.Path, Blob: d.Blob, Declaration: d.Declaration,
			Problems: append(d.Problems, duplicates[d.Path]...)}
		if len(duplicates[d.Path]) > 0 {
			in.Declaration = nil
		}
		inputs = append(inputs, in)
	}
	return inputs
}

// DecodeAll decodes files in parallel on every core. The documents have the order of the files.
func DecodeAll(files []File) []Document {
	docs := make([]Document, len(files))
	const batch = 64 // files a worker takes at a time
	next := make(chan int, len(files)/batch+1)
	for i := 0; i < len(files); i += batch {
		next <- i
	}
	close(next)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for from := range next {
				for i := from; i < min(from+batch, len(files)); i++ {
					docs[i] = Decode(files[i])
				}
			}
		})
	}
	workers.Wait()
	return docs
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
		doc.Problems = []fleet.Problem{
			{Key: doc.Key, Path: f.Path, Severity: fleet.SeverityError, Code: codeUnreadable,
				Message: "the folder cannot be read; its applied declarations stay in effect: " +
					f.Unreadable,
				Fix: "revert that commit, or remove the broken entries in another one"}}
		return doc
	}
	if problem != nil {
		doc.Problems = []fleet.Problem{atFolder(f, *problem)}
		return doc
	}
	defer func() {
		if failure := recover(); failure != nil {
			// The failure may hold a part of the file, and that part a secret: never repeat it.
			var found findings
			found.add(0, 0, codeInternal, "argosy could not read this file",
				"please report it, with the file if it holds nothing confidential")
			doc.Declaration, doc.Problems = nil, found.report(key, f.Path)
		}
	}()
	declaration := &fleet.Declaration{Key: key, Path: f.Path, Blob: f.Blob}
	found := decodeFile(f, declaration)
	doc.Problems = found.report(key, f.Path)
	if !slices.ContainsFunc(doc.Problems, func(p fleet.Problem) bool {
		return p.Severity == fleet.SeverityError
	}) {
		doc.Declaration = declaration
	}
	return doc
}

// decodeFile checks the text, parses it, and decodes the tree into the declaration. A phase that
// finds a problem ends it. In particular, a plaintext secret suppresses every later message, since
// each could repeat it.
func decodeFile(f File, into *fleet.Declaration) findings {
	if found := checkText(f); found.any() {
		return found
	}
	if found := findSecrets(f.Bytes); found.any() {
		return found
	}
	root, found := parse(f.Bytes, false)
	switch {
	case root == nil:
		return found
	case into.Key.Kind == fleet.KindSealedSecret:
		folder, _, _ := strings.Cut(into.Key.Name, "/")
		into.Sealed = &fleet.SealedSpec{Folder: folder}
		return checkSealed(root, f.Path)
	}
	d := decoder{key: into.Key, bytes: f.Bytes, listings: f.Listings}
	d.declaration(root, into)
	return d.findings
}

// declaration decodes the document of a kind. For a file of another kind it reports that alone,
// since every field of its spec would be an error.
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

// value decodes a node as described into a value of the domain, and reports whether it is complete.
// It reports every mistake below the node.
func (d *decoder) value(v *value, n node, into reflect.Value) bool {
	if d.blank(v, n) || !d.shaped(v, n, into) {
		return false
	}
	for _, c := range v.checks {
		c(d, reflect.Indirect(into), n)
	}
	return true
}

func (d *decoder) shaped(v *value, n node, into reflect.Value) bool {
	switch v.shape {
	case shapeObject:
		return d.object(v, n, into)
	case shapeList:
		return d.list(v, n, into)
	case shapeLabels:
		return d.labels(v, n, into)
	case shapeMap:
		return d.valuesMap(n, into)
	}
	if v.orMap && n.Kind == yaml.MappingNode {
		return d.valuesMap(n, into)
	}
	if n.Kind != yaml.ScalarNode {
		d.wrongType(v, n)
		return false
	}
	switch v.shape {
	case shapeInteger:
		return d.integer(v, n, into)
	case shapeBoolean:
		return d.boolean(v, n, into)
	case shapeDuration:
		return d.duration(v, n, into)
	default:
		return d.text(v, n, into)
	}
}

// at runs f one step deeper.
func (d *decoder) at(name string, f func()) {
	d.steps = append(d.steps, step{name, -1})
	f()
	d.steps = d.steps[:len(d.steps)-1]
}

// child is the value of a key, or nil.
func child(n node, key string) node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
