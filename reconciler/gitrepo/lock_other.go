//go:build !unix

package gitrepo

import (
	"errors"
	"os"
	"path/filepath"
)

// lockDir keeps other processes out of a mirror by an exclusively created file. A killed process
// leaves it behind.
func lockDir(dir string) (func(), error) {
	name := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil,
			errors.New(
				"another process has the mirror open, or one was killed: give each its own " +
					"directory, or delete " + name)
	}
	return func() {
		f.Close()
		os.Remove(name)
	}, nil
}
