package configschema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// Reference is docs/config-reference.md: every kind and field, made from the descriptions that the
// decoder follows.
func Reference() []byte {
	var b strings.Builder
	b.WriteString(`# The config repo: every kind and field

<!-- Made by go generate ./config-schema from the descriptions that the decoder follows. Do not edit. -->

One declaration per file; the path is its identity. ` + "`argosy validate`" + ` names each mistake at its line, ` + "`argosy new KIND`" + ` writes a first file.
Files are UTF-8 of at most 256 KiB. Anchors, aliases, merges, tags and several documents in one file are refused, and so is a blank
(` + "`\"\"`, `null`, `[]`, `{}`" + `): leave the field out. Texts that YAML may read as something else (` + "`no`, `1.10`, `0777`" + `) are written in quotes.

| kind | file |
|---|---|
`)
	for _, k := range kindOrder {
		fmt.Fprintf(&b, "| [%s](#%s) | `%s` |\n", k.name, strings.ToLower(string(k.name)), k.place)
	}
	b.WriteString(
		"\nAn age-encrypted `<name>.sops.yaml` is in `environments/` or `credentials/` beside " +
			"the declaration whose `credentialsRef` names it. `argosy encrypt` writes it: it " +
			"holds its own path, encrypted, under the key `argosy.dev/for`, and opens for that " +
			"path alone.\n")
	for _, k := range kindOrder {
		fmt.Fprintf(
			&b, "\n## %s\n\n`%s`. %s\n\n```yaml\n%s```\n\n| field | | meaning |\n|---|---|---|\n",
			k.name, k.place, k.doc, New(k.name, "", exampleName(k.name)))
		rows(&b, "", &k.document)
	}
	b.WriteString("\n## Problems and their codes\n\n| code | meaning |\n|---|---|\n")
	codes := AllCodes()
	for _, c := range slices.Sorted(maps.Keys(codes)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", c, escaped(codes[c]))
	}
	return []byte(b.String())
}

// template writes examples of fields, each with its meaning when it is optional.
type template struct {
	b     *strings.Builder
	name  string
	brief bool // without optional fields
	given map[string]string
	// indentation of the field that is commented out, which its own fields share
	base string
}

// New returns a first file of a kind, for `argosy new`. Required and common fields have example
// values; all others are commented out with their meaning. The file decodes without changes. tenant
// may be empty if the kind has none or the caller does not care.
func New(k fleet.Kind, tenant fleet.TenantName, name string) []byte {
	return NewWith(k, tenant, name, nil)
}

// NewWith is New with values, by field name, in place of the examples.
func NewWith(k fleet.Kind, tenant fleet.TenantName, name string, given map[string]string) []byte {
	d, ok := kinds[k]
	if !ok {
		return nil
	}
	var b strings.Builder
	path := strings.NewReplacer("<tenant>", string(tenant), "<name>", name).Replace(d.place)
	if tenant != "" || !strings.Contains(d.place, "<tenant>") {
		fmt.Fprintf(&b, "# %s\n", path)
	}
	fmt.Fprintf(&b, "# %s\n# yaml-language-server: $schema=%s%s\n", d.doc, SchemaBase,
		schemaFile(k))
	w := template{b: &b, name: name, given: given}
	w.object(&d.document, "", false)
	return []byte(b.String())
}

func (t template) object(v *value, indent string, off bool) {
	chosen := chosenOf(v)
	for i := range v.fields {
		f := &v.fields[i]
		out := t
		optional := !f.required && !f.first && !chosen[f.name]
		if !off && optional {
			out.base = indent
		}
		if off := off || optional; !off || !t.brief {
			out.field(f, indent, off)
		}
	}
}

// chosenOf is the first field of each group of which one is needed.
func chosenOf(v *value) map[string]bool {
	chosen := map[string]bool{}
	for _, g := range v.groups {
		if g.exactly {
			chosen[g.names[0]] = true
		}
	}
	return chosen
}

// field writes one field; off: commented out, in a form that one may uncomment line by line and
// that `argosy fmt` keeps.
func (t template) field(f *field, indent string, off bool) {
	mark := indent
	t.brief = t.brief || f.raw
	if off {
		mark = t.base + "# " + strings.TrimPrefix(indent, t.base)
		if f.doc != "" && f.name != "labels" {
			fmt.Fprintf(t.b, "%s# %s\n", mark, plainDoc(f.doc))
		}
	}
	switch {
	case f.name == "name" && indent == "  " && !off:
		fmt.Fprintf(t.b, "%sname: %s\n", mark, asText(t.name))
	case f.shape == shapeObject && f.example == "":
		fmt.Fprintf(t.b, "%s%s:\n", mark, f.name)
		t.object(&f.value, indent+"  ", off)
	case f.shape == shapeList && f.item.shape == shapeObject && f.example == "":
		t.item(f, mark, indent, off)
	default:
		comment := ""
		if !off && f.doc != "" && len(f.words) != 1 {
			comment = "   # " + plainDoc(firstSentence(f.doc))
		}
		example := f.example
		if v, ok := t.given[f.name]; ok && !off {
			example = v
		}
		fmt.Fprintf(t.b, "%s%s: %s%s\n", mark, f.name, example, comment)
	}
}

func plainDoc(s string) string { return strings.ReplaceAll(s, "`", "") }

// item writes a list of one object, in flow style.
func (t template) item(f *field, mark, indent string, off bool) {
	var parts []string
	for i := range f.item.fields {
		if g := &f.item.fields[i]; g.required {
			parts = append(parts, g.name+": "+inline(g))
		}
	}
	fmt.Fprintf(t.b, "%s%s:\n%s  - {%s}\n", mark, f.name, mark, strings.Join(parts, ", "))
}

func inline(f *field) string {
	if f.example != "" {
		return f.example
	}
	for i := range f.fields {
		if g := &f.fields[i]; g.example != "" && g.name == "targetRevision" {
			return "{" + g.name + ": " + g.example + "}"
		}
	}
	return "{}"
}

func firstSentence(s string) string {
	if i := strings.Index(s, ". "); i >= 0 {
		return s[:i]
	}
	return strings.TrimSuffix(s, ".")
}

func rows(b *strings.Builder, above string, v *value) {
	for i := range v.fields {
		f := &v.fields[i]
		must := "optional"
		if f.required {
			must = "required"
		}
		fmt.Fprintf(b, "| `%s` | %s, %s | %s |\n", above+f.name, typeName(&f.value), must,
			escaped(meaning(f)))
		item, at := &f.value, above+f.name
		if item.shape == shapeList {
			item, at = item.item, at+"[]"
		}
		if item.shape == shapeObject && !f.raw {
			rows(b, at+".", item)
		}
	}
	for _, g := range v.groups {
		how := "at most one of"
		if g.exactly {
			how = "exactly one of"
		}
		fmt.Fprintf(b, "| | | %s: %s `%s` |\n", strings.TrimSuffix(above, "."), how,
			strings.Join(g.names, "`, `"))
	}
}

func typeName(v *value) string {
	switch v.shape {
	case shapeInteger:
		return "integer"
	case shapeBoolean:
		return "boolean"
	case shapeDuration:
		return "duration"
	case shapeObject, shapeMap:
		return "map"
	case shapeLabels:
		return "map of text"
	case shapeList:
		return "list of " + map[bool]string{
			true: "maps", false: "texts"}[v.item.shape != shapeText]
	}
	if len(v.words) > 0 {
		return "`" + strings.Join(v.words, "` or `") + "`"
	}
	if v.orMap {
		return "map or text"
	}
	return "text"
}

func meaning(f *field) string {
	s, form := f.doc, f.format
	if f.shape == shapeList && f.item.format != nil {
		form = f.item.format
	}
	if form != nil && form != formatAny {
		s += " Form: " + form.what + "."
	}
	if f.holdsVariables() {
		s += " May hold [variables](deployments.md#variables)."
	}
	if f.shape == shapeInteger {
		s += fmt.Sprintf(" From %d to %d.", f.least, f.most)
	}
	if f.fallback != "" {
		s += " Default: " + f.fallback + "."
	}
	if f.example != "" && len(f.words) != 1 {
		s += " Example: `" + f.example + "`"
	}
	return s
}

// escaped keeps a text within its column of a Markdown table.
func escaped(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
