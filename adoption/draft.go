package adoption

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
)

// draft is a declaration that the import proposes. It proposes a counterpart for every field of the
// original; the decoder of the config repo decides which of them exist and which values they take.
// A refused value is replaced by its next spelling, or removed: the comparison with the rendered
// object reports the loss. A field that a later version adds needs no change here but its proposal.
type draft struct {
	key      fleet.Key
	document map[string]any
	// other spellings of a value, by field, in the order in which they are tried
	spellings map[string][]any
	removed   []removal
	refusal   string   // why there is no declaration
	comment   []string // texts at the head of the file

	text []byte // of the file; nil: the document changed
}

// removal is a proposed field that the decoder refused.
type removal struct {
	field, reason string
}

func newDraft(key fleet.Key) *draft {
	return &draft{key: key, spellings: map[string][]any{}, document: map[string]any{
		"apiVersion": fleet.APIVersion, "kind": string(key.Kind),
		"metadata": map[string]any{"name": key.Name},
	}}
}

// set proposes a value, and other spellings of it. Empty values are not proposed.
func (d *draft) set(field string, value any, spellings ...any) {
	if absent(value) {
		return
	}
	put(d.document, steps(field), value)
	if len(spellings) > 0 {
		d.spellings[field] = spellings
	}
}

func absent(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case []string:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// put changes a field of the document.
func (d *draft) put(field string, value any) {
	if old, ok := get(d.document, steps(field)); !ok || !same(old, value) {
		put(d.document, steps(field), value)
		d.text = nil
	}
}

// file is the draft as a file of the config repo.
func (d *draft) file() (f configschema.File, err error) {
	if d.text == nil {
		d.text, err = configschema.WriteDocument(d.document)
		d.text = append([]byte(comment(d.comment)), d.text...)
	}
	return configschema.File{Path: configschema.PathOf(d.key), Bytes: d.text}, err
}

// comment is the lines of texts as comments of YAML.
func comment(texts []string) string {
	var b strings.Builder
	for _, text := range texts {
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(strings.Map(func(r rune) rune {
				if unicode.IsPrint(r) {
					return r
				}
				return ' '
			}, line))
			if line != "" {
				b.WriteString("# " + line + "\n")
			}
		}
	}
	return b.String()
}

// fit changes the draft until it decodes, or sets its refusal. Each round removes at least one
// field or spelling, so it ends.
func (d *draft) fit() {
	for d.refusal == "" {
		f, err := d.file()
		if err != nil {
			d.refusal = err.Error()
			return
		}
		doc := configschema.Decode(f)
		if doc.Declaration != nil {
			return
		}
		d.drop(doc.Problems)
		d.text = nil
	}
}

// plaintext is the schema's code of a secret in clear.
const plaintext = "plaintext-secret"

// drop removes the fields of problems.
func (d *draft) drop(problems []fleet.Problem) {
	progress := false
	for _, p := range slices.Backward(problems) { // the last entries of lists first
		if p.Severity != fleet.SeverityError {
			continue
		}
		if p.Code == plaintext { // the report must not repeat the value as a difference
			d.refusal = d.explained(p)
			return
		}
		if next := d.spellings[p.Field]; len(next) > 0 {
			put(d.document, steps(p.Field), next[0])
			d.spellings[p.Field] = next[1:]
			progress = true
			continue
		}
		field := p.Field
		if !d.has(field) { // a part of an optional object is missing: the object is no use
			field = above(field)
		}
		if essential(field) || !remove(d.document, steps(field)) {
			continue
		}
		d.removed = append(d.removed, removal{field, d.explained(p)})
		progress = true
	}
	if !progress {
		d.refusal = d.why(problems)
	}
}

// explained is explained for a problem of the draft.
func (d *draft) explained(p fleet.Problem) string {
	p.Key.Kind = d.key.Kind
	return explained(p)
}

const (
	seeAlso   = "; see "
	reference = "https://argosy.dev/docs/config-reference.md#"
)

// explained returns the message of a problem, its fix if there is one, and the page that describes
// the fields of the declaration.
func explained(p fleet.Problem) string {
	text := p.Message
	if p.Fix != "" {
		text += "; " + p.Fix
	}
	return text + seeAlso + reference + strings.ToLower(string(p.Key.Kind))
}

// above is the field of the object that has a field.
func above(field string) string {
	if i := strings.LastIndexAny(field, ".["); i > 0 {
		return field[:i]
	}
	return ""
}

// essential reports whether a field is the declaration itself rather than a part of it.
func essential(field string) bool {
	switch field {
	case "", "apiVersion", "kind", "metadata", "metadata.name", "spec", "spec.source",
		"spec.sources", "spec.destination":
		return true
	}
	last := steps(field)
	return len(last) == 3 && last[1] == "sources" // one whole source
}

// why is the reason of a refusal: that of the removal which left a required field missing, or the
// first problem.
func (d *draft) why(problems []fleet.Problem) string {
	for _, p := range problems {
		for _, r := range d.removed {
			if r.field == p.Field || strings.HasPrefix(p.Field, r.field+".") ||
				strings.HasPrefix(r.field, p.Field+".") && p.Field != "spec" && p.Field != "" {
				return r.field + ": " + r.reason
			}
		}
	}
	for _, p := range problems {
		if p.Severity == fleet.SeverityError {
			if p.Field == "" {
				return d.explained(p)
			}
			return p.Field + ": " + d.explained(p)
		}
	}
	return "it cannot be declared"
}

// reason is the reason why a field or a part of it was removed, or "".
func (d *draft) reason(field string) string {
	for _, r := range d.removed {
		if r.field == field || strings.HasPrefix(field, r.field+".") ||
			strings.HasPrefix(r.field, field+".") || strings.HasPrefix(r.field, field+"[") ||
			strings.HasPrefix(field, r.field+"[") {
			return r.reason
		}
	}
	return ""
}

func (d *draft) has(field string) bool {
	_, ok := get(d.document, steps(field))
	return ok
}

// steps are the parts of a field's path: names, and places of lists as "[3]". Keys in quotes keep
// their dots: metadata.labels["example.com/team"].
func steps(field string) (parts []string) {
	for field != "" {
		switch {
		case field[0] == '.':
			field = field[1:]
		case strings.HasPrefix(field, `["`):
			end := strings.Index(field, `"]`)
			if end < 0 {
				return append(parts, field)
			}
			parts, field = append(parts, field[2:end]), field[end+2:]
		case field[0] == '[':
			end := strings.IndexByte(field, ']')
			if end < 0 {
				return append(parts, field)
			}
			parts, field = append(parts, field[:end+1]), field[end+1:]
		default:
			end := strings.IndexAny(field, ".[")
			if end < 0 {
				end = len(field)
			}
			parts, field = append(parts, field[:end]), field[end:]
		}
	}
	return parts
}

func place(step string) (int, bool) {
	if len(step) < 3 || step[0] != '[' {
		return 0, false
	}
	i, err := strconv.Atoi(step[1 : len(step)-1])
	return i, err == nil
}

func get(tree any, path []string) (any, bool) {
	for _, p := range path {
		if i, ok := place(p); ok {
			l, _ := tree.([]any)
			if i >= len(l) {
				return nil, false
			}
			tree = l[i]
			continue
		}
		m, _ := tree.(map[string]any)
		v, ok := m[p]
		if !ok {
			return nil, false
		}
		tree = v
	}
	return tree, true
}

// put sets a value and makes the maps above it.
func put(tree map[string]any, path []string, value any) {
	var at any = tree
	for n, p := range path {
		last := n == len(path)-1
		if i, ok := place(p); ok {
			l, _ := at.([]any)
			if i >= len(l) {
				return
			}
			if last {
				l[i] = value
				return
			}
			at = l[i]
			continue
		}
		m, _ := at.(map[string]any)
		if m == nil {
			return
		}
		if last {
			m[p] = value
			return
		}
		if _, ok := m[p]; !ok {
			m[p] = map[string]any{}
		}
		at = m[p]
	}
}

// remove deletes a field, and the maps above it that it leaves empty below the spec. It reports
// whether the field was there.
func remove(tree map[string]any, path []string) bool {
	if len(path) == 0 {
		return false
	}
	above, ok := get(tree, path[:len(path)-1])
	if !ok {
		return false
	}
	last := path[len(path)-1]
	switch m := above.(type) {
	case map[string]any:
		if _, ok := m[last]; !ok {
			return false
		}
		delete(m, last)
		if len(m) == 0 && len(path) > 2 {
			remove(tree, path[:len(path)-1])
		}
		return true
	case []any:
		i, ok := place(last)
		if !ok || i >= len(m) {
			return false
		}
		if len(m) == 1 {
			return remove(tree, path[:len(path)-1])
		}
		put(tree, path[:len(path)-1], slices.Delete(slices.Clone(m), i, i+1))
		return true
	}
	return false
}

// clone is a deep copy of a tree of maps and lists.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = clone(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = clone(e)
		}
		return out
	}
	return v
}

// keys are the keys of a map, sorted.
func keys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
