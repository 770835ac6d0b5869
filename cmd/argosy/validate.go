package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/checkout"
	"argosy.dev/argosy/cmd/argosy/settings"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/policy"
	"argosy.dev/argosy/reconciler/plan"
)

func validateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate [DIR]",
		Short: "List every problem of a config repo, as file:line:col",
		Long: "Reads fleet/ and tenants/ below DIR (default: the current folder) and prints\n" +
			"every problem with its fix. It needs no network. Exit code 1: there are errors.\n" +
			"Warnings alone do not change it. " + listingHelp,
		Example: "  argosy validate\n" +
			"  argosy validate --listing https://git.example.com/acme/services.git=../services\n" +
			"  argosy validate path/to/config-repo -o github\n" +
			"  argosy validate -o sarif > argosy.sarif",
		Args: atMost("DIR"),
	}
	listings := addListings(cmd)
	out := addFormat(cmd, "text", "json", "sarif", "github")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		files, err := readFiles(dirOf(args), *listings)
		if err != nil {
			return err
		}
		problems := configschema.Check(files)
		for i := range problems {
			if problems[i].Code == configschema.CodeNotExpanded {
				problems[i].Severity = fleet.SeverityWarning
			}
		}
		shared, err := sharedClones(files)
		if err != nil {
			return err
		}
		ofRings, unread := ringProblems(dirOf(args), files)
		problems = append(append(problems, shared...), ofRings...)
		for _, source := range unread {
			a.hint("%s is not read: `argosy doctor` and the control plane do", source)
		}
		if err := a.writeProblems(problems, out.value); err != nil {
			return err
		}
		return a.verdict(problems, len(files))
	}
	return cmd
}

// sharedClones returns the problems of environments that no engine can serve, even if none were
// placed yet, because tenants with a credential of their own read a repository of theirs.
func sharedClones(files []configschema.File) ([]fleet.Problem, error) {
	inputs := configschema.Inputs(files)
	if !slices.ContainsFunc(inputs, func(i catalog.Input) bool {
		return i.Key.Kind == fleet.KindRepositoryCredential
	}) {
		return nil, nil
	}
	p, err := plan.Offline(inputs, "", policy.New().Judge, argocd.Renderer{})
	if err != nil {
		return nil, err
	}
	problems := slices.DeleteFunc(p.Problems, func(p fleet.Problem) bool {
		return p.Code != catalog.CodeSharedClone
	})
	texts := map[string][]byte{}
	for _, f := range files {
		texts[f.Path] = f.Bytes
	}
	configschema.Place(problems, func(path string) []byte { return texts[path] })
	return problems, nil
}

// listingHelp explains --listing.
const listingHelp = "A set with directories: or files: is expanded\n" +
	"with the folders that --listing names; without one, it is reported as not expanded."

func addListings(cmd *cobra.Command) *[]string {
	return cmd.Flags().StringArray("listing", nil, "<repository>=<folder>: a clone of a repository "+
		"that sets read; may repeat")
}

// readFiles reads a config repo with the listings of its sets.
func readFiles(dir string, folders []string) ([]configschema.File, error) {
	listings, err := checkout.Listings(folders)
	if err != nil {
		return nil, err
	}
	files, err := checkout.Read(dir)
	for i := range files {
		files[i].Listings = listings
	}
	return files, err
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

func schemaCommand(a *app) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "schema [KIND|settings]",
		Short: "Print the JSON Schema (draft-07) of a kind, of all kinds, or of argosy.yaml",
		Long: "For editors: yaml-language-server reads these. With --dir it writes every schema\n" +
			"into a folder, one file per kind.",
		Example: "  argosy schema GitOpsDeployment\n  argosy schema --dir .vscode/schema",
		Args:    atMost("KIND"),
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write all schemas into this folder")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		switch {
		case dir != "" && len(args) > 0:
			return fmt.Errorf("--dir writes every schema: remove %s", args[0])
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
			return fmt.Errorf("%w, and settings for argosy.yaml", err)
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

func newCommand(a *app) *cobra.Command {
	var tenant, dir string
	var write bool
	cmd := &cobra.Command{
		Use:   "new KIND NAME",
		Short: "Print a first file of a kind, with every field explained",
		Long: "With --write it writes the file to its path in the config repo. It never\n" +
			"overwrites a file. A GitOpsDeployment names the environments that the config repo\n" +
			"in --dir declares for the tenant.",
		Example: "  argosy new GitOpsDeployment checkout --tenant acme\n" +
			"  argosy new Engine eu-2 --write --dir path/to/config-repo",
		Args: exactly("KIND", "NAME"),
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "tenant, for the kinds that belong to one")
	cmd.Flags().BoolVar(&write, "write", false, "write the file to its path")
	cmd.Flags().StringVar(&dir, "dir", ".", "folder of the config repo")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		kind, err := findKind(args[0])
		if err != nil {
			return err
		}
		where, err := pathOf(kind, fleet.TenantName(tenant), args[1])
		if err != nil {
			return err
		}
		given := map[string]string{}
		if kind == fleet.KindGitOpsDeployment {
			environments, err := environmentsIn(dir, fleet.TenantName(tenant))
			if err != nil {
				return err
			}
			given = destinationIn(environments, args[1])
		}
		content := configschema.NewWith(kind, fleet.TenantName(tenant), args[1], given)
		if !write {
			a.hint("its path is %s; --write writes it there", where)
			_, err := a.out.Write(content)
			return err
		}
		return a.create(filepath.Join(dir, filepath.FromSlash(where)), content)
	}
	return cmd
}

// environmentsIn returns the environments of a tenant that decode, by name. The folder need not be
// a config repo yet.
func environmentsIn(dir string, tenant fleet.TenantName) (found []*fleet.Declaration, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "tenants", string(tenant), "environments",
		"*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return nil, err
		}
		d := configschema.Decode(configschema.File{Path: filepath.ToSlash(name), Bytes: text})
		if d.Declaration != nil && d.Declaration.Environment != nil {
			found = append(found, d.Declaration)
		}
	}
	return found, nil
}

// destinationIn returns the fields of a deployment's destination for a tenant's environments: a
// namespace, the one of the deployment's name where an environment has it, and the environments
// that have the namespace. It is nil if there is none.
func destinationIn(environments []*fleet.Declaration, name string) map[string]string {
	names := []string{name}
	for _, d := range environments {
		for _, entry := range d.Environment.Namespaces {
			if strings.HasSuffix(entry, "-") {
				entry += name
			}
			names = append(names, entry)
		}
	}
	for _, namespace := range names {
		var having []string
		for _, d := range environments {
			if d.Environment.Lists(namespace) {
				having = append(having, d.Key.Name)
			}
		}
		if len(having) > 0 {
			return map[string]string{"namespace": namespace,
				"environments": "[" + strings.Join(having, ", ") + "]"}
		}
	}
	return nil
}

// findKind finds a kind by name, ignoring case.
func findKind(word string) (fleet.Kind, error) {
	var names []string
	for _, k := range configschema.Kinds() {
		if strings.EqualFold(string(k), word) {
			return k, nil
		}
		names = append(names, string(k))
	}
	return "", fmt.Errorf("unknown kind %q; kinds are %s", word, strings.Join(names, ", "))
}

// pathOf returns the path in the config repo that gives a declaration this identity.
func pathOf(kind fleet.Kind, tenant fleet.TenantName, name string) (string, error) {
	if err := fleet.ValidateName(name); err != nil {
		return "", fmt.Errorf("%s %q: %w", kind, name, err)
	}
	whose := fleet.TenantName(first(string(tenant), "acme"))
	if err := fleet.ValidateName(string(whose)); err != nil {
		return "", fmt.Errorf("--tenant: %w", err)
	}
	path := configschema.PathOf(fleet.Key{Kind: kind, Tenant: whose, Name: name})
	switch key, _, problem := configschema.Classify(path); {
	case problem != nil || key.Kind != kind:
		return "", fmt.Errorf("a %s has no path of its own in a config repo", kind)
	case key.Tenant != "" && tenant == "":
		return "", fmt.Errorf("a %s belongs to a tenant: name it with --tenant", kind)
	case key.Tenant == "" && tenant != "":
		return "", fmt.Errorf("a %s belongs to the platform: remove --tenant", kind)
	case key.Name != name:
		return "", fmt.Errorf("there is only one %s, named %q", kind, key.Name)
	}
	return path, nil
}

func (a *app) create(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s already exists and stays unchanged", file)
	}
	if err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	return a.printLine("%s", file)
}
