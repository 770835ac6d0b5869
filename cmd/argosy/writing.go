package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/checkout"
	"argosy.dev/argosy/cmd/argosy/settings"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
)

// writing are the commands that need no control plane.
func (a *app) writing() []*cobra.Command {
	return []*cobra.Command{a.validateCommand(), a.renderCommand(), a.planCommand(), a.newCommand(),
		a.fmtCommand(), a.encryptCommand(), a.schemaCommand()}
}

func (a *app) validateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate [DIR]",
		Short: "Every problem in a config repo, as file:line:col",
		Long: "Reads fleet/ and tenants/ below DIR (here, if it is left out) and says every " +
			"problem with its fix. Nothing is asked of the network.\n" +
			"Exit code 1: there are errors. Warnings alone are fine.",
		Example: "  argosy validate\n  argosy validate path/to/config-repo -o github\n  argosy " +
			"validate -o sarif > argosy.sarif",
		Args: atMost("DIR"),
	}
	out := addFormat(cmd, "text", "json", "sarif", "github")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		files, err := checkout.Read(dirOf(args))
		if err != nil {
			return err
		}
		problems := configschema.Check(files)
		if err := a.writeProblems(problems, out.value); err != nil {
			return err
		}
		return a.verdict(problems, len(files))
	}
	return cmd
}

func dirOf(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}

// atMost is exactly, for one argument that may be left out.
func atMost(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= 1 {
			return nil
		}
		return fmt.Errorf("%s takes one %s, and %d were given; see `%s --help`", cmd.CommandPath(),
			name, len(args), cmd.CommandPath())
	}
}

func (a *app) writeProblems(problems []fleet.Problem, format string) error {
	switch format {
	case "json":
		return configschema.WriteJSON(a.out, problems)
	case "sarif":
		return configschema.WriteSARIF(a.out, problems, versionText())
	case "github":
		return configschema.WriteGitHub(a.out, problems)
	}
	return configschema.WriteText(a.out, problems, a.colour())
}

// verdict sums the problems up; errors are findings.
func (a *app) verdict(problems []fleet.Problem, files int) error {
	errs := 0
	for _, p := range problems {
		if p.Severity == fleet.SeverityError {
			errs++
		}
	}
	sum := fmt.Sprintf("%s: %s, %s", plural(files, "file"), plural(errs, "error"),
		plural(len(problems)-errs, "warning"))
	if errs > 0 {
		return findings{sum}
	}
	a.hint("%s", sum)
	return nil
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (a *app) schemaCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "schema [KIND|settings]",
		Short: "The JSON Schema (draft-07) of a kind, of all kinds, or of argosy.yaml",
		Long: "For editors: yaml-language-server reads these. With --dir every schema is " +
			"written into a folder, one file for each kind.",
		Example: "  argosy schema GitOpsDeployment\n  argosy schema --dir .vscode/schema",
		Args:    atMost("KIND"),
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write all schemas into this folder")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		switch {
		case dir != "" && len(args) > 0:
			return fmt.Errorf("--dir writes every schema: leave out %s", args[0])
		case dir != "":
			return a.writeSchemas(dir)
		case len(args) == 0:
			_, err := a.out.Write(configschema.CombinedSchema())
			return err
		}
		if args[0] == "settings" {
			_, err := a.out.Write(settings.Schema())
			return err
		}
		kind, err := findKind(args[0])
		if err != nil {
			return fmt.Errorf("%w, and settings, which is argosy.yaml", err)
		}
		_, err = a.out.Write(configschema.Schemas()[kind])
		return err
	}
	return cmd
}

func (a *app) writeSchemas(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files := configschema.SchemaFiles()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	a.hint("wrote %s into %s", plural(len(files), "schema"), dir)
	return nil
}

// findKind is the kind that a person means, however it is capitalised.
func findKind(word string) (fleet.Kind, error) {
	var names []string
	for _, k := range configschema.Kinds() {
		if strings.EqualFold(string(k), word) {
			return k, nil
		}
		names = append(names, string(k))
	}
	return "", fmt.Errorf("there is no kind %q; there are %s", word, strings.Join(names, ", "))
}
