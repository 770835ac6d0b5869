package gitrepo

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// ref returns the commit of a branch of the mirror; the zero hash if it does not exist.
func (s *store) ref(name string) (plumbing.Hash, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return plumbing.ZeroHash, nil
	}
	if err != nil {
		return plumbing.ZeroHash, storageError(s.dir, err)
	}
	id := strings.TrimSpace(string(text))
	if !isFullHash(id) {
		// as after a crash of the machine: the next fetch writes it again
		return plumbing.ZeroHash, nil
	}
	return plumbing.NewHash(id), nil
}

// setRef moves a branch, and makes it git's default.
func (s *store) setRef(name string, id plumbing.Hash) error {
	err := os.MkdirAll(filepath.Dir(filepath.Join(s.dir, filepath.FromSlash(name))), 0o700)
	if err == nil {
		err = s.write(name, []byte(id.String()+"\n"))
	}
	head := []byte("ref: " + name + "\n")
	if have, _ := os.ReadFile(filepath.Join(s.dir, "HEAD")); err == nil &&
		!bytes.Equal(have, head) {
		err = s.write("HEAD", head)
	}
	if err != nil {
		return storageError(s.dir, err)
	}
	return nil
}

// write replaces a small file.
func (s *store) write(name string, text []byte) error {
	f, err := os.CreateTemp(s.incomingDir(), "file-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := closeSynced(f, err); err != nil {
		os.Remove(f.Name())
		return err
	}
	return os.Rename(f.Name(), filepath.Join(s.dir, filepath.FromSlash(name)))
}

type syncCloser interface {
	Sync() error
	Close() error
}

// closeSynced syncs and closes a file, and returns the first error.
func closeSynced(f syncCloser, err error) error {
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
