package configschema

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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
		"\nAn age-encrypted `<name>.sops.yaml` stands in `environments/` or `credentials/` " +
			"beside the declaration whose `credentialsRef` names it. `argosy encrypt` writes " +
			"it: under the key `argosy.dev/for` it holds its own path, encrypted, and opens for " +
			"that path alone.\n")
	for _, k := range kindOrder {
		fmt.Fprintf(&b,
			"\n## %s\n\n`%s`. %s\n\n```yaml\n%s```\n\n| field | | meaning |\n|---|---|---|\n",
			k.name, k.place, k.doc, New(k.name, "", exampleName(k.name)))
		rows(&b, "", &k.document)
	}
	b.WriteString("\n## Problems and their codes\n\n| code | meaning |\n|---|---|\n")
	codes := AllCodes()
	for _, c := range slices.Sorted(maps.Keys(codes)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", c, cell(codes[c]))
	}
	return []byte(b.String())
}

func rows(b *strings.Builder, above string, v *value) {
	for i := range v.fields {
		f := &v.fields[i]
		must := "optional"
		if f.required {
			must = "required"
		}
		fmt.Fprintf(b, "| `%s` | %s, %s | %s |\n", above+f.name, typeName(&f.value), must,
			cell(meaning(f)))
		item, at := &f.value, above+f.name
		if item.shape == shapeList {
			item, at = item.item, at+"[]"
		}
		if item.shape == shapeObject {
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

func meaning(f *field) string {
	s, form := f.doc, f.format
	if f.shape == shapeList && f.item.format != nil {
		form = f.item.format
	}
	if form != nil && form != formatAny {
		s += " Form: " + form.what + "."
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

func typeName(v *value) string {
	switch v.shape {
	case shapeInteger:
		return "integer"
	case shapeBoolean:
		return "boolean"
	case shapeDuration:
		return "duration"
	case shapeObject:
		return "map"
	case shapeLabels:
		return "map of text"
	case shapeList:
		return "list of " + map[bool]string{
			true: "maps", false: "texts"}[v.item.shape == shapeObject]
	}
	if len(v.words) > 0 {
		return "`" + strings.Join(v.words, "` or `") + "`"
	}
	return "text"
}

// cell keeps a text within its cell of a Markdown table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
