// Package configschema turns the files of a config repo into declarations, and into problems that a
// person can fix.
//
// One declarative description per kind (kinds.go) gives the meaning, type, bounds and rule of each
// field. The strict decoder, the JSON Schemas, the reference page and the templates all derive from
// it, so that they cannot disagree.
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
	"strconv"
	"strings"
	"sync"
	"time"

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

func (d *decoder) object(v *value, n node, into reflect.Value) bool {
	if n.Kind != yaml.MappingNode {
		d.wrongType(v, n)
		return false
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(v.bound))
		into = into.Elem()
	}
	// seen is the line of each field, or of a probable misspelling of it. An object with a field
	// that belongs elsewhere gets no error for missing fields: its author meant another object.
	var seen [32]int32
	ok, excused := !d.repeatsKeys(n), false
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, at := n.Content[i], -1
		for j := range v.fields {
			if v.fields[j].name == key.Value {
				at = j
				break
			}
		}
		d.steps = append(d.steps, step{key.Value, -1})
		if at < 0 {
			meant := d.unknown(v, key)
			if meant >= 0 {
				seen[meant] = int32(key.Line)
			}
			ok, excused = false, excused || meant < 0
		} else {
			f := &v.fields[at]
			d.optional = !f.required
			if f.raw {
				ok = !d.blank(&f.value, n.Content[i+1]) && ok
			} else {
				ok = d.value(&f.value, n.Content[i+1], into.Field(f.index)) && ok
			}
			seen[at] = int32(key.Line)
		}
		d.steps = d.steps[:len(d.steps)-1]
	}
	for i := range v.fields {
		if f := &v.fields[i]; f.required && seen[i] == 0 && !excused {
			d.missing(n, f)
			ok = false
		}
	}
	for _, g := range v.groups {
		ok = d.group(v, g, n, excused) && ok
	}
	for _, p := range v.pairs {
		if child(n, p[0]) != nil && child(n, p[1]) == nil {
			d.missing(n, v.fieldNamed(p[1]))
			ok = false
		}
	}
	return ok
}

// unknown reports an unknown field and returns the index of the closest known field. It returns -1
// if the field belongs elsewhere or none is close.
func (d *decoder) unknown(v *value, key node) (meant int) {
	w, ok := v.never[key.Value]
	if !ok {
		w, ok = neverAnywhere[key.Value]
	}
	if ok {
		message := w.message
		if !strings.Contains(message, key.Value) {
			message = fieldPath(d.steps) + ": " + message
		}
		d.problem(key, w.code, message, w.fix)
		return -1
	}
	fix, near := "fields here: "+strings.Join(v.names(), ", "), fleet.Closest(key.Value, v.names())
	if near != "" {
		fix = "did you mean " + near + "?"
	}
	d.problem(key, codeUnknownField, "there is no field "+quoted(key.Value)+" here", fix)
	return slices.Index(v.names(), near)
}

func (d *decoder) missing(n node, f *field) {
	d.at(f.name, func() {
		fix := "add " + f.name + ": " + f.example
		if f.example == "" {
			fix = "add " + f.name + ":"
		}
		d.problem(n, codeMissingField, f.name+" is required", fix)
	})
}

func (d *decoder) group(v *value, g group, n node, excused bool) bool {
	var set []string
	var second node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if name := n.Content[i].Value; slices.Contains(g.names, name) &&
			!slices.Contains(set, name) {
			if set = append(set, name); len(set) == 2 {
				second = n.Content[i]
			}
		}
	}
	switch {
	case len(set) > 1:
		d.problem(second, codeExclusive, strings.Join(set, " and ")+" exclude one another",
			"keep one of them"+g.when)
		return false
	case len(set) == 0 && g.exactly && !excused:
		example := ""
		if f := v.fieldNamed(g.names[0]); f.example != "" {
			example = ", e.g. " + f.name + ": " + f.example
		}
		d.problem(n, codeExclusive, "one of "+strings.Join(g.names, ", ")+" is required",
			"set exactly one"+example+g.when)
		return false
	}
	return true
}

func (v *value) fieldNamed(name string) *field {
	for i := range v.fields {
		if v.fields[i].name == name {
			return &v.fields[i]
		}
	}
	return nil
}

func (d *decoder) list(v *value, n node, into reflect.Value) bool {
	if n.Kind != yaml.SequenceNode {
		d.wrongType(v, n)
		return false
	}
	most := int(v.most)
	if most == 0 {
		most = maxItems
	}
	if len(n.Content) > most {
		d.problem(n, codeOutOfRange,
			fmt.Sprintf("%s has %d entries; at most %d are allowed", d.subject(), len(n.Content),
				most), "name fewer")
		return false
	}
	if len(n.Content) == 0 {
		return true
	}
	into.Set(reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content)))
	ok := true
	for i, item := range n.Content {
		d.steps, d.optional = append(d.steps, step{"", i}), false
		ok = d.value(v.item, item, into.Index(i)) && ok
		d.steps = d.steps[:len(d.steps)-1]
	}
	return d.uniqueEntries(v, n) && ok
}

// uniqueEntries refuses a repeated entry of a list: an equal text, or an object with an equal key
// field.
func (d *decoder) uniqueEntries(v *value, n node) bool {
	if len(n.Content) < 2 || v.repeats {
		return true
	}
	first, ok := make(map[string]int, len(n.Content)), true
	for i, item := range n.Content {
		id := item
		if v.unique != "" {
			id = child(item, v.unique)
		}
		if id == nil || id.Kind != yaml.ScalarNode {
			continue
		}
		if before, twice := first[id.Value]; twice {
			d.steps = append(d.steps, step{"", i})
			d.problem(id, codeDuplicateEntry,
				fmt.Sprintf("%s is named twice; first on line %d", quoted(id.Value), before),
				"remove one of them")
			d.steps = d.steps[:len(d.steps)-1]
			ok = false
			continue
		}
		first[id.Value] = id.Line
	}
	return ok
}

var labelValue = value{format: formatLabel}

// labels decodes a map of text. Its entries are called labels unless the description has a key and
// a value of its own.
func (d *decoder) labels(v *value, n node, into reflect.Value) bool {
	if n.Kind != yaml.MappingNode {
		d.wrongType(v, n)
		return false
	}
	if len(n.Content)/2 > maxLabels {
		d.problem(n, codeOutOfRange,
			fmt.Sprintf("%s has %d %s; at most %d are allowed", d.subject(), len(n.Content)/2,
				v.entries(), maxLabels), "keep fewer")
		return false
	}
	labels, ok := make(map[string]string, len(n.Content)/2), !d.repeatsKeys(n)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		d.steps, d.optional = append(d.steps, step{key.Value, -1}), false
		if text, good := d.entry(v, key, val); good {
			labels[key.Value] = text
		} else {
			ok = false
		}
		d.steps = d.steps[:len(d.steps)-1]
	}
	into.Set(reflect.ValueOf(labels))
	return ok
}

// entry decodes one entry of a map of text.
func (d *decoder) entry(v *value, key, val node) (string, bool) {
	if v.item != nil {
		var text string
		if !d.plainString(key, "the key") || !d.label(v.key, key) ||
			!d.value(v.item, val, reflect.ValueOf(&text).Elem()) {
			return "", false
		}
		return text, true
	}
	if !d.plainString(key, "the key of a label") || !d.label(formatLabelKey, key) ||
		d.blank(&labelValue, val) {
		return "", false
	}
	if val.Kind != yaml.ScalarNode {
		d.wrongType(&labelValue, val)
		return "", false
	}
	return val.Value, d.plainString(val, "the value of a label") && d.label(formatLabel, val)
}

// entries names the entries of a map of text.
func (v *value) entries() string {
	if v.item != nil {
		return "entries"
	}
	return "labels"
}

// repeatsKeys reports the keys that a map has twice.
func (d *decoder) repeatsKeys(n node) bool {
	repeated := repeatedKeys(n)
	for _, r := range repeated {
		d.at(
			r.second.Value,
			func() { d.problem(r.second, codeDuplicateKey, r.message(), "keep one of them") })
	}
	return len(repeated) > 0
}

func (d *decoder) label(f *format, n node) bool {
	if err := f.check(n.Value); err != nil {
		d.problem(n, f.code, quoted(n.Value)+": "+err.Error(), "write "+f.what)
		return false
	}
	return true
}

// blank refuses null, "" and empty collections, except where an empty one has a meaning.
func (d *decoder) blank(v *value, n node) bool {
	null := n.Tag == "!!null"
	if !null && (n.Kind == yaml.ScalarNode && strings.TrimSpace(n.Value) != "" ||
		n.Kind != yaml.ScalarNode && len(n.Content) > 0) {
		return false
	}
	if v.empty && !null && (n.Kind == yaml.ScalarNode) == (v.shape == shapeText) {
		return false
	}
	written := map[bool]string{true: "null", false: `""`}[null]
	switch n.Kind {
	case yaml.SequenceNode:
		written = "[]"
	case yaml.MappingNode:
		written = "{}"
	}
	fix := "write " + v.kindOfValue() + "; a blank never means a default"
	if d.optional {
		fix = "leave the field out, or write " + v.kindOfValue() + "; a blank never means a default"
	}
	d.problem(n, codeBlank, d.subject()+" is blank ("+written+")", fix)
	return true
}

const (
	lower   = "abcdefghijklmnopqrstuvwxyz"
	upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
	alnum   = lower + upper + digits
	pathSet = alnum + "._@+=,/-"
)

func (d *decoder) integer(v *value, n node, into reflect.Value) bool {
	i, err := strconv.ParseInt(n.Value, 10, 64)
	if n.Style != 0 || err != nil || strconv.FormatInt(i, 10) != n.Value {
		if n.Style == 0 && only(n.Value, digits) && n.Value[0] != '0' {
			d.problem(n, codeOutOfRange, d.subject()+" is too large",
				fmt.Sprintf("write a number from %d to %d", v.least, v.most))
			return false
		}
		d.wrongType(v, n)
		return false
	}
	if i < v.least || i > v.most {
		d.problem(n, codeOutOfRange, fmt.Sprintf("%s is %d; %d to %d are allowed", d.subject(), i,
			v.least, v.most), fmt.Sprintf("write a number from %d to %d", v.least, v.most))
		return false
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	into.SetInt(i)
	return true
}

func (d *decoder) boolean(v *value, n node, into reflect.Value) bool {
	if n.Style != 0 || n.Value != "true" && n.Value != "false" {
		d.wrongType(v, n)
		return false
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	into.SetBool(n.Value == "true")
	return true
}

func (d *decoder) wrongType(v *value, n node) {
	got := "a list"
	switch {
	case n.Kind == yaml.MappingNode:
		got = "a map"
	case n.Kind == yaml.ScalarNode:
		got = quoted(n.Value)
	}
	d.problem(n, codeWrongType, d.subject()+" is "+v.kindOfValue()+", not "+got, v.howToWrite())
}

// kindOfValue names the shape for people.
func (v *value) kindOfValue() string {
	switch v.shape {
	case shapeInteger:
		return "a whole number"
	case shapeBoolean:
		return "a boolean"
	case shapeDuration:
		return "a duration"
	case shapeObject, shapeMap:
		return "a map"
	case shapeList:
		return "a list"
	case shapeLabels:
		return "a map of " + v.entries()
	}
	return "a text"
}

func (v *value) howToWrite() string {
	switch v.shape {
	case shapeInteger:
		return fmt.Sprintf(
			"write a number from %d to %d in decimal, without quotes, leading zeros or exponent",
			v.least, v.most)
	case shapeBoolean:
		return "write true or false, without quotes"
	case shapeDuration:
		return "write it as 90s, 15m or 1h"
	case shapeObject:
		if len(v.fields) == 0 {
			return "write {}"
		}
		return "write its fields below it: " + strings.Join(v.names(), ", ")
	case shapeList:
		return "write one entry per line after '- ', or [a, b]"
	case shapeLabels, shapeMap:
		return "write {key: value}"
	}
	return "write one value"
}

func (v *value) names() []string {
	names := make([]string, len(v.fields))
	for i := range v.fields {
		names[i] = v.fields[i].name
	}
	return names
}

func (d *decoder) duration(v *value, n node, into reflect.Value) bool {
	if !d.plainString(n, d.subject()) {
		return false
	}
	t, err := time.ParseDuration(n.Value)
	if err != nil {
		d.problem(n, codeWrongType, quoted(n.Value)+" is no duration", "write it as 90s, 15m or 1h")
		return false
	}
	if least, most := time.Duration(v.least), time.Duration(v.most); t < least || t > most {
		d.problem(n, codeOutOfRange, fmt.Sprintf("%s is %s; %s to %s are allowed", d.subject(), t,
			least, most), "write a duration from "+least.String()+" to "+most.String())
		return false
	}
	into.SetInt(int64(t))
	return true
}

func (d *decoder) text(v *value, n node, into reflect.Value) bool {
	if !d.plainString(n, d.subject()) {
		return false
	}
	s := n.Value
	most := int(v.most)
	if most == 0 {
		most = maxText
	}
	if len(s) > most {
		d.problem(n, codeOutOfRange, fmt.Sprintf("%s is %d bytes long; at most %d are allowed",
			d.subject(), len(s), most), "shorten it")
		return false
	}
	if d.hides(n) {
		return false
	}
	switch {
	case v.words != nil:
		return d.word(v, n, into)
	case v.format != nil && s != "":
		checked := s
		if v.format.variables {
			if !d.knownVariables(n) {
				return false
			}
			checked = fleet.SampleVariables(s)
		}
		if err := v.format.check(checked); err != nil {
			d.problem(n, v.format.code, d.subject()+": "+err.Error(), "write "+v.format.what)
			return false
		}
	}
	into.SetString(s)
	return true
}

// knownVariables refuses a "${" that begins no variable, at its own column.
func (d *decoder) knownVariables(n node) bool {
	offset, found := fleet.CheckVariables(n.Value)
	if found == "" {
		return true
	}
	at := *n
	switch {
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		at.Column += len([]rune(n.Value[:offset])) + 1
	case n.Style == 0:
		at.Column += len([]rune(n.Value[:offset]))
	}
	d.problem(&at, codeUnknownVariable, d.subject()+": there is no variable "+quoted(found),
		"use one of "+fleet.VariableNames)
	return false
}

// hides reports a text in double quotes with an escape for a character that is not seen.
func (d *decoder) hides(n node) bool {
	if n.Style&yaml.DoubleQuotedStyle == 0 || !unseen(n.Value) {
		return false
	}
	d.problem(n, codeHiddenCharacter,
		d.subject()+" holds an escaped character that is not seen", "remove it")
	return true
}

// plainString refuses a text that some parser of YAML reads as another type: it is written in
// quotes.
func (d *decoder) plainString(n node, subject string) bool {
	if n.Style != 0 || n.Tag == "!!str" && !ambiguous(n.Value) {
		return true
	}
	what := map[string]string{"!!int": "a number", "!!float": "a number", "!!bool": "a boolean",
		"!!timestamp": "a date"}[n.Tag]
	if what == "" {
		what = "a boolean to some parsers"
	}
	d.problem(n, codeWrongType, fmt.Sprintf("%s is text, and %s without quotes is %s", subject,
		quoted(n.Value), what), "put it in quotes: "+quoted(n.Value))
	return false
}

func (d *decoder) word(v *value, n node, into reflect.Value) bool {
	for _, w := range v.words {
		if w == n.Value {
			into.SetString(w)
			return true
		}
	}
	code, fix := codeUnknownValue, "write "+strings.Join(v.words, " or ")
	if meant := fleet.Closest(n.Value, v.words); meant != "" && len(v.words) > 1 {
		fix = "did you mean " + meant + "?"
	}
	if fieldPath(d.steps) == "apiVersion" {
		code = codeWrongVersion
	}
	d.problem(n, code, d.subject()+" cannot be "+quoted(n.Value), fix)
	return false
}

// subject names the current node for a message: the last field of the path, with its index in a
// list.
func (d *decoder) subject() string {
	if len(d.steps) == 0 {
		return "the file"
	}
	s := d.steps[len(d.steps)-1]
	if s.index < 0 {
		return plainName(s.name)
	}
	if len(d.steps) > 1 {
		return fmt.Sprintf("entry %d of %s", s.index+1, plainName(d.steps[len(d.steps)-2].name))
	}
	return fmt.Sprintf("entry %d", s.index+1)
}

// plainName returns a key for a message: unchanged if it is a plain word, otherwise quoted.
func plainName(s string) string {
	if s != "" && len(s) <= maxQuoted && only(s, alnum+"-_./") {
		return s
	}
	return quoted(s)
}

// at runs f one step deeper.
func (d *decoder) at(name string, f func()) {
	d.steps = append(d.steps, step{name, -1})
	f()
	d.steps = d.steps[:len(d.steps)-1]
}

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

// quoted is a value as a message repeats it: on one line, in ASCII, and not long.
func quoted(s string) string {
	runes := []rune(s)
	if len(runes) > maxQuoted {
		return strconv.QuoteToASCII(string(runes[:maxQuoted])) + "…"
	}
	return strconv.QuoteToASCII(s)
}

// asText writes a text so that every parser of YAML reads a text: in quotes where it could be a
// number, a boolean or a date.
func asText(s string) string {
	var n yaml.Node
	if !only(s, alnum+"-_./") || yaml.Unmarshal([]byte(s), &n) != nil || len(n.Content) != 1 ||
		n.Content[0].Tag != "!!str" || ambiguous(s) {
		return strconv.Quote(s)
	}
	return s
}

// only reports whether a text holds no other bytes than those of the set.
func only(s, set string) bool {
	for i := range len(s) {
		if strings.IndexByte(set, s[i]) < 0 {
			return false
		}
	}
	return true
}

// ambiguous reports whether YAML 1.1 reads the word as a boolean and YAML 1.2 as text.
func ambiguous(s string) bool {
	if len(s) > 3 {
		return false
	}
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off":
		return true
	}
	return false
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
