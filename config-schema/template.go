package configschema

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// New is a first file of a kind, for `argosy new`: what is required, or needed by nearly everyone,
// with example values, everything else commented out with its meaning. It decodes as it is. tenant
// may be empty where the kind has none or the caller does not care.
func New(k fleet.Kind, tenant fleet.TenantName, name string) []byte {
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
	w := template{b: &b, name: name}
	w.object(&d.document, "", false)
	return []byte(b.String())
}

// template writes examples of fields, each with its meaning when it is optional.
type template struct {
	b    *strings.Builder
	name string
}

func (t template) object(v *value, indent string, off bool) {
	chosen := chosenOf(v)
	for i := range v.fields {
		f := &v.fields[i]
		t.field(f, indent, off || !f.required && !f.first && !chosen[f.name])
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

// field writes one field; off: commented out, in a form that one may uncomment line by line.
func (t template) field(f *field, indent string, off bool) {
	mark := indent
	if off {
		mark = "# " + indent
		if f.doc != "" && f.name != "labels" {
			fmt.Fprintf(t.b, "# %s# %s\n", indent, plainDoc(f.doc))
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
		fmt.Fprintf(t.b, "%s%s: %s%s\n", mark, f.name, f.example, comment)
	}
}

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

func plainDoc(s string) string { return strings.ReplaceAll(s, "`", "") }

func firstSentence(s string) string {
	if i := strings.Index(s, ". "); i >= 0 {
		return s[:i]
	}
	return strings.TrimSuffix(s, ".")
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
