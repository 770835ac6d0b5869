// Command generate writes schema/*.json and docs/config-reference.md from the kinds' descriptions.
// go generate runs it in config-schema/.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	configschema "argosy.dev/argosy/config-schema"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func write() error {
	if err := os.MkdirAll("schema", 0o755); err != nil {
		return err
	}
	for name, content := range configschema.SchemaFiles() {
		if err := os.WriteFile(filepath.Join("schema", name), content, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join("..", "docs", "config-reference.md"),
		configschema.Reference(), 0o644)
}
