package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
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
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // fails on a flag that is not there
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
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func writeYAML(w io.Writer, v any) error {
	b, err := yaml.Marshal(v)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}
