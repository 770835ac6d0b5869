package configschema

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/fleet/printable"
)

// WriteDocument returns a declaration as the canonical text of its file: see Format.
func WriteDocument(document map[string]any) ([]byte, error) {
	text, err := YAML(document)
	if err != nil {
		return nil, err
	}
	return Format(text)
}

// quoter hides texts from the YAML encoder, which writes invisible characters raw: it replaces each
// by a word that occurs nowhere else.
type quoter struct {
	mark  string
	texts []string
}

// YAML converts the value's JSON. It puts a text with an invisible character in double quotes and
// escapes the character: no other form of YAML has escapes.
func YAML(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var tree any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	q := quoter{mark: "quoted"}
	for bytes.Contains(b, []byte(q.mark)) {
		q.mark += "q"
	}
	tree = q.hide(tree)
	if b, err = json.Marshal(tree); err != nil {
		return nil, err
	}
	if b, err = yaml.JSONToYAML(b); err != nil {
		return nil, err
	}
	return q.show(b), nil
}

func (q *quoter) hide(v any) any {
	switch v := v.(type) {
	case string:
		return q.word(v)
	case []any:
		for i := range v {
			v[i] = q.hide(v[i])
		}
	case map[string]any:
		hidden := make(map[string]any, len(v))
		for name, value := range v {
			hidden[q.word(name)] = q.hide(value)
		}
		return hidden
	}
	return v
}

func (q *quoter) word(s string) string {
	if printable.Text(s) == s && !strings.Contains(s, "\t") {
		return s
	}
	q.texts = append(q.texts, s)
	return q.mark + strconv.Itoa(len(q.texts)) + "x"
}

func (q *quoter) show(b []byte) []byte {
	var pairs []string
	for i, s := range q.texts {
		pairs = append(pairs, q.mark+strconv.Itoa(i+1)+"x", doubleQuoted(s))
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(b)))
}

// doubleQuoted is the text as YAML reads it in double quotes.
func doubleQuoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case printable.Is(r):
			b.WriteRune(r)
		default:
			b.WriteString(printable.Escape(r))
		}
	}
	b.WriteByte('"')
	return b.String()
}
