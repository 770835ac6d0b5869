// Package contexts keeps which control planes a person has signed in to:
// $XDG_CONFIG_HOME/argosy/config.yaml, readable by that person only, for it holds tokens.
package contexts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// Context is one control plane and the token to speak to it with.
type Context struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	Token  string `json:"token,omitempty"`  // "": signed out
	Tenant string `json:"tenant,omitempty"` // that lists show by default; "": all
}

// File is the whole file.
type File struct {
	Current  string    `json:"current,omitempty"`
	Contexts []Context `json:"contexts,omitempty"`
}

// Path is where the file is, by the environment.
func Path(getenv func(string) string) (string, error) {
	if dir := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "argosy", "config.yaml"), nil
	}
	home := getenv("HOME")
	if home == "" {
		return "",
			errors.New(
				"neither XDG_CONFIG_HOME nor HOME is set: there is no place for the contexts; " +
					"set --server and --token")
	}
	return filepath.Join(home, ".config", "argosy", "config.yaml"), nil
}

// Load reads the file; a missing file is empty. Errors never repeat its content.
func Load(path string) (File, error) {
	var f File
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return f,
			fmt.Errorf(
				"%s: others may read it (mode %04o), and it holds tokens; run chmod 600 on it, "+
					"or log in again", path, info.Mode().Perm())
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	if yaml.UnmarshalStrict(content, &f) != nil {
		return File{},
			fmt.Errorf("%s: it is not a file of contexts; remove it and run `argosy login` again",
				path)
	}
	return f, nil
}

// Find is the context of that name, or the current one for "".
func (f File) Find(name string) (Context, bool) {
	if name == "" {
		name = f.Current
	}
	i := slices.IndexFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if i < 0 {
		return Context{}, false
	}
	return f.Contexts[i], true
}

// Put adds the context or replaces one with its name, and makes it current.
func (f *File) Put(c Context) {
	f.Contexts = slices.DeleteFunc(f.Contexts, func(there Context) bool {
		return there.Name == c.Name
	})
	f.Contexts = append(f.Contexts, c)
	f.Current = c.Name
}

// Delete removes the context of that name. If it was current, none is.
func (f *File) Delete(name string) {
	f.Contexts = slices.DeleteFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if f.Current == name {
		f.Current = ""
	}
}

// Save writes the file as a whole or not at all, with mode 0600 from its first byte on.
func Save(path string, f File) error {
	content, err := yaml.Marshal(f)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, "config-*.yaml") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // already renamed on success
	if _, err := temp.Write(content); err != nil {
		return errors.Join(err, temp.Close())
	}
	if err := errors.Join(temp.Sync(), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
