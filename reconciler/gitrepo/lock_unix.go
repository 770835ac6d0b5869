//go:build unix

package gitrepo

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// lockDir keeps other processes out of a mirror. The kernel releases the lock when the process
// ends.
func lockDir(dir string) (func(), error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, errors.New("another process has the mirror open; give each its own directory")
	}
	return func() { f.Close() }, nil
}
