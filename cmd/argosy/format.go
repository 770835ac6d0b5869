package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/fleet/printable"
)

// format is the value of -o.
type format struct {
	value string
	may   []string
}

// addFormat gives the command -o with the first of the formats as its default.
func addFormat(cmd *cobra.Command, formats ...string) *format {
	f := &format{value: formats[0], may: formats}
	cmd.Flags().VarP(f, "output", "o", "one of "+strings.Join(formats, "|"))
	// fails on a flag that is not there
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats,
		cobra.ShellCompDirectiveNoFileComp))
	return f
}

// String implements pflag.Value, as do Set and Type.
func (f *format) String() string { return f.value }

// Set refuses what the command cannot write.
func (f *format) Set(s string) error {
	if !slices.Contains(f.may, s) {
		return fmt.Errorf("write it as %s", strings.Join(f.may, ", "))
	}
	f.value = s
	return nil
}

// Type names the value in help.
func (f *format) Type() string { return "format" }

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(printable.JSONWriter(w))
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func writeYAML(w io.Writer, v any) error {
	b, err := toYAML(v)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// toYAML is the value as its JSON says. A text with a character that is not shown stands in double
// quotes, with the character escaped: no other form of YAML has escapes.
func toYAML(v any) ([]byte, error) {
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

// quoter keeps texts from the YAML encoder, which writes characters raw that are not shown: a word
// that is nowhere else stands for each.
type quoter struct {
	mark  string
	texts []string
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
