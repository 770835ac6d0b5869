package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	kubejson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet/printable"
)

// format is the value of -o.
type format struct {
	value string
	may   []string
	print func(w io.Writer, generic any) error // of an expression
}

// The formats with an expression after "=". Commands that print tables support them too.
var expressions = []string{"jsonpath", "go-template"}

// String implements pflag.Value, as do Set and Type.
func (f *format) String() string { return f.value }

// Set refuses formats that the command does not support, and expressions that do not parse.
func (f *format) Set(s string) error {
	name, text, isExpression := strings.Cut(s, "=")
	known := slices.Contains(f.may, name)
	switch {
	case known && slices.Contains(expressions, name):
		if text == "" {
			return fmt.Errorf("needs an expression, such as -o %s", exampleOf(name))
		}
		print, err := expression(name, text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		f.value, f.print = name, print
		return nil
	case !known || isExpression:
		return fmt.Errorf("must be one of %s", strings.Join(f.may, ", "))
	}
	f.value, f.print = s, nil
	return nil
}

func exampleOf(name string) string {
	if name == "jsonpath" {
		return `jsonpath='{.items[*].name}'`
	}
	return `go-template='{{range .items}}{{.name}}{{"\n"}}{{end}}'`
}

// Type names the value in help.
func (f *format) Type() string { return "format" }

// expression returns what prints a value by a JSONPath or a template, as kubectl does: a missing
// field prints nothing.
func expression(name, text string) (func(io.Writer, any) error, error) {
	if name == "jsonpath" {
		path := jsonpath.New("output").AllowMissingKeys(true)
		if err := path.Parse(braced(text)); err != nil {
			return nil, err
		}
		return path.Execute, nil
	}
	t, err := template.New("output").Parse(text)
	if err != nil {
		return nil, err
	}
	return func(w io.Writer, v any) error { return t.Execute(w, v) }, nil
}

// braced accepts the short forms of a JSONPath: .a.b and a.b for {.a.b}.
func braced(path string) string {
	if strings.Contains(path, "{") {
		return path
	}
	return "{." + strings.TrimPrefix(path, ".") + "}"
}

// addFormat gives the command -o with the first of the formats as its default.
func addFormat(cmd *cobra.Command, formats ...string) *format {
	if formats[0] == "table" {
		formats = append(slices.Clip(formats), expressions...)
	}
	f := &format{value: formats[0], may: formats}
	cmd.Flags().VarP(f, "output", "o", "one of "+strings.Join(formats, "|"))
	// fails on a flag that is not there
	_ = cmd.RegisterFlagCompletionFunc(
		"output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return f
}

// structured prints the value if the format is one for programs, and reports whether it is.
func (a *app) structured(f *format, v any) (bool, error) {
	switch f.value {
	case "json":
		return true, writeJSON(a.out, v)
	case "yaml":
		return true, writeYAML(a.out, v)
	}
	if f.print == nil {
		return false, nil
	}
	generic, err := genericOf(v)
	if err != nil {
		return true, err
	}
	var text bytes.Buffer
	if err := f.print(&text, generic); err != nil {
		return true, fmt.Errorf("-o %s: %w", f.value, err)
	}
	if text.Len() > 0 && !bytes.HasSuffix(text.Bytes(), []byte("\n")) {
		text.WriteByte('\n')
	}
	_, err = io.WriteString(a.out, printable.Text(text.String()))
	return true, err
}

// genericOf returns the value as its JSON has it, with the names of JSON.
func genericOf(v any) (any, error) {
	content, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var generic any
	err = kubejson.Unmarshal(content, &generic) // whole numbers stay whole
	return generic, err
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(printable.JSONWriter(w))
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func writeYAML(w io.Writer, v any) error {
	b, err := configschema.YAML(v)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}
