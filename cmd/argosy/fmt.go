package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/checkout"
	configschema "argosy.dev/argosy/config-schema"
)

func fmtCommand(a *app) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "fmt [FILE|DIR]...",
		Short: "Format declarations canonically",
		Long: "Orders the fields as in the reference and indents uniformly; comments stay. For\n" +
			"a DIR (default: the current folder) it rewrites everything under fleet/ and\n" +
			"tenants/. With --check it writes nothing, lists the files that would change, and\n" +
			"exits with 1 if there are any.",
		Example: "  argosy fmt\n" +
			"  argosy fmt tenants/acme/deployments/checkout.yaml\n" +
			"  argosy fmt --check",
	}
	cmd.Flags().BoolVar(&check, "check", false, "write nothing; list the files that would change")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			args = []string{"."}
		}
		var files []string
		for _, arg := range args {
			found, err := declarationsIn(arg)
			if err != nil {
				return err
			}
			files = append(files, found...)
		}
		return a.format(files, check)
	}
	return cmd
}

// declarationsIn is the file itself, or every declaration of the config repo in the folder. Links
// are left alone: they are no declarations.
func declarationsIn(arg string) ([]string, error) {
	info, err := os.Stat(arg)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{arg}, nil
	}
	files, err := checkout.Read(arg)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files {
		if _, ours, problem := configschema.Classify(f.Path); ours && problem == nil &&
			f.Irregular == "" {
			names = append(names, filepath.Join(arg, filepath.FromSlash(f.Path)))
		}
	}
	return names, nil
}

// format formats each file. An error in one does not stop the others.
func (a *app) format(files []string, check bool) error {
	changed, failed := 0, 0
	for _, name := range files {
		done, err := formatFile(name, check)
		if err != nil {
			failed++
			a.hint("%s: %s", name, err)
		}
		if done {
			changed++
			if err := a.printLine("%s", name); err != nil {
				return err
			}
		}
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%s could not be formatted and stay unchanged; see `argosy validate`",
			plural(failed, "file"))
	case check && changed > 0:
		return findings{fmt.Sprintf("%s would change: run `argosy fmt`", plural(changed, "file"))}
	}
	return nil
}

func formatFile(name string, check bool) (changed bool, err error) {
	before, err := os.ReadFile(name)
	if err != nil {
		return false, reason(err)
	}
	after, err := configschema.Format(before)
	if err != nil || bytes.Equal(before, after) {
		return false, err
	}
	if check {
		return true, nil
	}
	return true, reason(replace(name, after))
}

// reason returns an error of the file system without the path, which the message has already.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// replace rewrites the whole file or nothing.
func replace(name string, content []byte) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(name), ".argosy-fmt-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // already renamed on success
	if _, err := temp.Write(content); err != nil {
		return errors.Join(err, temp.Close())
	}
	if err := errors.Join(temp.Chmod(info.Mode().Perm()), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), name)
}
