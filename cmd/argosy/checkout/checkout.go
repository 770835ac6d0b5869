// Package checkout reads a config repo from a folder of the file system, for the offline commands.
//
// It returns the entries that Git would have for the same content: slashes in paths, blob ids, and
// links as links, never followed. It reports as irregular any entry that Git cannot hold (a socket,
// a device).
package checkout

import (
	"crypto/sha1" //nolint:gosec // git's blob ids are SHA-1; nothing is trusted because of it
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	configschema "argosy.dev/argosy/config-schema"
)

// enough bytes of a file to detect that it is too long
const enough = 1 << 20

// Roots are the folders of a config repo that hold declarations.
var Roots = []string{"fleet", "tenants"}

// Read is every file below dir/fleet and dir/tenants, sorted by path.
func Read(dir string) ([]configschema.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var files []configschema.File
	found := false
	for _, top := range Roots {
		if _, err := root.Lstat(top); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		found = true
		err := fs.WalkDir(root.FS(), top, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			f, err := read(root, name, entry)
			if err == nil {
				files = append(files, f)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if !found {
		return nil,
			fmt.Errorf(
				"%s: there is neither fleet/ nor tenants/ in it; name the folder of the config repo", dir)
	}
	slices.SortFunc(files, func(a, b configschema.File) int {
		if a.Path < b.Path {
			return -1
		}
		return 1
	})
	return files, nil
}

// Folder returns the files below a folder of dir, by their paths below it, as Git would have them.
func Folder(dir, folder string) (map[string][]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	all := map[string][]byte{}
	err = fs.WalkDir(root.FS(), folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		f, err := read(root, name, entry)
		switch {
		case err != nil:
			return err
		case f.Irregular != "" || f.Size > 0:
			return fmt.Errorf("%s is no regular file, or has more than %d bytes", name, enough)
		}
		below, err := filepath.Rel(filepath.FromSlash(folder), filepath.FromSlash(name))
		all[filepath.ToSlash(below)] = f.Bytes
		return err
	})
	return all, err
}

func read(root *os.Root, name string, entry fs.DirEntry) (configschema.File, error) {
	f := configschema.File{Path: path.Clean(filepath.ToSlash(name))}
	switch {
	case entry.Type()&fs.ModeSymlink != 0:
		f.Irregular = "symlink"
		return f, nil
	case !entry.Type().IsRegular():
		f.Irregular = entry.Type().String()
		return f, nil
	}
	file, err := root.Open(name)
	if err != nil {
		return f, err
	}
	defer file.Close()
	if f.Bytes, err = io.ReadAll(io.LimitReader(file, enough+1)); err != nil {
		return f, fmt.Errorf("%s: %w", name, err)
	}
	if len(f.Bytes) > enough {
		info, err := file.Stat()
		if err != nil {
			return f, fmt.Errorf("%s: %w", name, err)
		}
		f.Bytes, f.Size = nil, max(info.Size(), enough+1)
		return f, nil
	}
	f.Blob = BlobID(f.Bytes)
	return f, nil
}

// BlobID is the id that Git gives to a file of that content.
func BlobID(content []byte) string {
	h := sha1.New() //nolint:gosec // as above
	fmt.Fprintf(h, "blob %d\x00", len(content))
	h.Write(content)
	return hex.EncodeToString(h.Sum(nil))
}
