// Command generate makes values.schema.json and README.md of each chart from the comments of its
// values.yaml.
//
//	# -- Description of the value in Markdown; may continue on the next lines.
//	# @schema WORDS
//	key: default
//
// The type is that of the default. @schema adds to it: a JSON object is merged into the key's
// schema; `open` is any object, `strings` an object of strings; `list open`, `list strings` and
// `list names` are lists of objects, strings and DNS labels; `settings` is argosy.yaml without the
// settings that the chart sets. An empty object or list without @schema, and a key without a
// description, are errors: the schema would accept anything, and the page would be incomplete.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

func main() {
	if err := run("."); err != nil { // go generate runs it in charts
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// run generates the files of every chart in a folder.
func run(dir string) error {
	found, err := filepath.Glob(filepath.Join(dir, "*", "values.yaml"))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("no charts in %s", dir)
	}
	for _, file := range found {
		if err := chart(filepath.Dir(file)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func chart(dir string) error {
	values, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err != nil {
		return err
	}
	schema, rows, err := describe(values)
	if err != nil {
		return err
	}
	about, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return err
	}
	intro, err := os.ReadFile(filepath.Join(dir, "README.intro.md"))
	if err != nil {
		return err
	}
	text, err := page(about, intro, rows)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "README.md"), text, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "values.schema.json"), schema, 0o644)
}

// describe parses values.yaml and returns its schema and the rows of the page.
func describe(values []byte) ([]byte, []row, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(values, &doc); err != nil {
		return nil, nil, err
	}
	root, rows, err := object("", doc.Content[0])
	if err != nil {
		return nil, nil, err
	}
	root["$schema"], root["title"] = "http://json-schema.org/draft-07/schema#", "values.yaml"
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err = enc.Encode(root)
	return out.Bytes(), rows, err
}

// row is a line of the page's table.
type row struct{ path, fallback, text string }

// page returns README.md: the chart's purpose, its installation, and every value.
func page(about, intro []byte, rows []row) ([]byte, error) {
	var c struct{ Name, Description, Version, AppVersion string }
	if err := yaml.Unmarshal(about, &c); err != nil {
		return nil, fmt.Errorf("in Chart.yaml: %w", err)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %s\n\n%s\n\n%s\n\n## Values\n\n", c.Name, c.Description,
		strings.TrimSpace(string(intro)))
	fmt.Fprint(&out,
		"A key that is not listed here is refused. Made from values.yaml by `make "+
			"generate`.\n\n| value | default | |\n|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", r.path, codeSpan(r.fallback),
			strings.ReplaceAll(r.text, "|", "\\|"))
	}
	return out.Bytes(), nil
}

func codeSpan(fallback string) string {
	if fallback == "" || fallback == `""` {
		return ""
	}
	return "`" + strings.ReplaceAll(fallback, "|", "\\|") + "`"
}
