package stack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// scratchPrefix begins the names of the folders that hold what this package
// writes when the caller names no folder.
const scratchPrefix = "argosy-stack-"

// folder is a part's folder. A folder that this package made is locked as long as this process
// lives, and remove deletes it; a folder that the caller named stays.
type folder struct {
	path string
	lock *os.File // nil when the caller named it
}

// openFolder returns dir as an absolute path, made if need be, or a new
// temporary folder when dir is empty.
func openFolder(dir, name string) (folder, error) {
	if dir == "" {
		return scratch(name)
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return folder{}, err
	}
	return folder{path: path}, os.MkdirAll(path, 0o755)
}

// scratch makes a temporary folder, and first removes those whose process is
// gone, so that a killed run leaves nothing for long.
func scratch(name string) (folder, error) {
	sweep(os.TempDir())
	path, err := os.MkdirTemp("", scratchPrefix+name+"-")
	if err != nil {
		return folder{}, err
	}
	// Another user, PostgreSQL's, must be able to walk through.
	if err := os.Chmod(path, 0o711); err != nil {
		return folder{}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return folder{}, err
	}
	return folder{path: path, lock: f}, syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
}

func (f folder) remove() error {
	if f.lock == nil {
		return nil
	}
	defer f.lock.Close()
	return os.RemoveAll(f.path)
}

// sweep removes temporary folders without a lock. A young one may be about to be locked, so it
// stays.
func sweep(tmp string) {
	found, _ := filepath.Glob(filepath.Join(tmp, scratchPrefix+"*"))
	for _, dir := range found {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		f, err := os.Open(dir)
		if err != nil {
			continue
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		f.Close()
	}
}

// partsDir is where scripts/parts.sh puts what it builds: $ARGOSY_PARTS, or
// .cache at the top of the checkout that holds the working folder.
func partsDir() (string, error) {
	if dir := os.Getenv("ARGOSY_PARTS"); dir != "" {
		return dir, nil
	}
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module argosy.dev/argosy\n") {
			return filepath.Join(dir, ".cache"), nil
		}
		if dir == filepath.Dir(dir) {
			return "",
				fmt.Errorf(
					"%s is not inside a checkout of argosy: set ARGOSY_PARTS to the folder with "+
						"the parts", start)
		}
	}
}

// part returns the path of something that scripts/parts.sh makes: name is the
// script's word for the part, file is relative to partsDir.
func part(name, file string) (string, error) {
	dir, err := partsDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, file)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s is not there (%s): run scripts/parts.sh %s", name, path, name)
	} else if err != nil {
		return "", err
	}
	return path, nil
}
