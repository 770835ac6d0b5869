package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/adoption"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/policy"
	"argosy.dev/argosy/reconciler/plan"
)

func exportCommand(a *app) *cobra.Command {
	var into string
	cmd := &cobra.Command{
		Use:   "export [DIR] --into OUT",
		Short: "Write plain manifests of Argo CD for every object of a config repo",
		Long: "Reads fleet/ and tenants/ below DIR (default: the current folder) and writes one\n" +
			"file for each AppProject, Application, cluster and repository Secret into a folder\n" +
			"for each engine. Names and specs are those that the engines have. Labels and\n" +
			"annotations of Argosy are left out; an Application whose workload is deleted with\n" +
			"it gets Argo CD's finalizer. Secrets have no credential: the live ones keep theirs.\n" +
			"A token that Argosy renews ends within a day; the file of its Secret names it.\n" +
			"It places environments as if none were placed yet. OUT must be new or empty.\n" +
			"Declarations with problems are skipped; then the exit code is 1.\n" + listingHelp,
		Example: "  argosy export --into manifests\n" +
			"  argosy export path/to/config-repo --into manifests",
		Args: atMost("DIR"),
	}
	cmd.Flags().StringVar(&into, "into", "", "folder of the manifests")
	listings := addListings(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if into == "" {
			return errors.New("name where to write with --into")
		}
		entries, err := os.ReadDir(into)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if len(entries) > 0 {
			return fmt.Errorf("%s is not empty; name a new folder", into)
		}
		files, err := readFiles(dirOf(args), *listings)
		if err != nil {
			return err
		}
		return a.export(files, into)
	}
	return cmd
}

func (a *app) export(files []configschema.File, into string) error {
	inputs := configschema.Inputs(files)
	p, err := plan.Offline(inputs, "", policy.New().Judge, argocd.Renderer{})
	if err != nil {
		return err
	}
	namespace := namespaces(inputs)
	for _, r := range p.Rows {
		dec := json.NewDecoder(bytes.NewReader(r.Row.Manifest.Body))
		dec.UseNumber()
		var object map[string]any
		if err := dec.Decode(&object); err != nil {
			return err
		}
		key := r.Row.Key
		text, err := configschema.YAML(adoption.Plain(object, namespace[key.Engine],
			r.Row.Deletion))
		if err != nil {
			return fmt.Errorf("%s %s: %w", key.Kind, key.Name, err)
		}
		if r.Row.Credential != nil {
			text = append([]byte(adoption.CredentialNote(object)), text...)
		}
		file := filepath.Join(into, string(key.Engine), folderOf(key.Kind), key.Name+".yaml")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	a.hint("wrote %s into %s", plural(len(p.Rows), "manifest"), into)
	texts := map[string][]byte{}
	for _, f := range files {
		texts[f.Path] = f.Bytes
	}
	configschema.Place(p.Problems, func(path string) []byte { return texts[path] })
	return a.leftOut(p)
}

// folderOf is the folder of the manifests of a kind.
func folderOf(kind fleet.ObjectKind) string {
	if kind == fleet.ObjectRepository {
		return "repositories"
	}
	return strings.ToLower(string(kind)) + "s"
}
