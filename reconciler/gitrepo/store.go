package gitrepo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing"
)

// store is the mirror's directory: a bare repository that git itself can read, with a record of its
// source. Files are synced first and then renamed into it, so that a process killed at any
// instruction leaves the old state or the new one. Checksums detect the damage of a machine crash
// or a failing disk, and the mirror is cloned again.
type store struct {
	dir       string
	baseLimit int64
	bases     baseCache
	create    func(dir string) (scratch, error)

	mu     sync.RWMutex
	packs  []*pack // largest first
	closed bool
	// number of resets, so that a reader detects that an object is missing after a reset
	resets atomic.Int64
}

// record identifies the source of a directory. A directory without one is never emptied.
type record struct {
	URL string `json:"url"`
	ID  string `json:"id,omitempty"`
}

const (
	recordFile = "argosy-mirror.json"
	// some received objects could not be built: a missing object is no damage
	gapsFile = "argosy-mirror.gaps"
	lockFile = "argosy-mirror.lock"
)

func (s *store) packDir() string     { return filepath.Join(s.dir, "objects", "pack") }
func (s *store) incomingDir() string { return filepath.Join(s.dir, "incoming") }

// openStore opens the mirror in dir, or starts a new one if dir is empty, mirrors another source or
// is damaged.
func openStore(ctx context.Context, dir string, want record, baseLimit int64) (*store, error) {
	s := &store{dir: dir, baseLimit: baseLimit, create: createScratch}
	text, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		if err := mustBeEmpty(dir); err != nil {
			return nil, err
		}
		return s, s.reset(want)
	}
	if err != nil {
		return nil, storageError(dir, err)
	}
	var have record
	if json.Unmarshal(text, &have) != nil || have != want {
		return s, s.reset(want)
	}
	if err := s.layout(); err != nil {
		return nil, storageError(dir, err)
	}
	if err := s.load(ctx); errors.Is(err, ErrCorrupt) {
		return s, s.reset(want)
	} else if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func mustBeEmpty(dir string) error {
	names, err := os.ReadDir(dir)
	if err != nil {
		return storageError(dir, err)
	}
	for _, n := range names {
		if n.Name() != lockFile {
			return &Error{Kind: ErrRefused, Subject: dir,
				Detail: fmt.Sprintf("the directory holds %q and is not a mirror; give an empty one",
					n.Name())}
		}
	}
	return nil
}

// reset empties the mirror and records its source. It writes the record after it has removed refs
// and objects, and the record is never missing in between.
func (s *store) reset(want record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resets.Add(1)
	err := s.release()
	for _, name := range []string{"refs", "objects", "incoming", gapsFile} {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.dir, name)))
	}
	if err == nil {
		err = s.layout()
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(want)
	}
	if err == nil {
		err = s.write(recordFile, text)
	}
	if err == nil {
		err = s.write("config", []byte("[core]\n\trepositoryformatversion = 0\n\tbare = true\n"))
	}
	if err != nil {
		return storageError(s.dir, err)
	}
	return nil
}

func (s *store) layout() error {
	if err := os.RemoveAll(s.incomingDir()); err != nil { // leftovers of a killed process
		return err
	}
	for _, d := range []string{s.incomingDir(), s.packDir(),
		filepath.Join(s.dir, "refs", "heads")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// load opens every pack with an index and deletes those without, the leftovers of an incomplete
// installation.
func (s *store) load(ctx context.Context) error {
	files, err := os.ReadDir(s.packDir())
	if err != nil {
		return storageError(s.packDir(), err)
	}
	for _, f := range files {
		base, isPack := strings.CutSuffix(f.Name(), ".pack")
		if !isPack {
			continue
		}
		path := filepath.Join(s.packDir(), base)
		if _, err := os.Stat(path + ".idx"); errors.Is(err, fs.ErrNotExist) {
			os.Remove(path + ".pack")
			continue
		}
		p, err := openPack(ctx, path)
		if err != nil {
			return err
		}
		s.packs = append(s.packs, p)
	}
	s.sort()
	return nil
}

func (s *store) sort() {
	slices.SortStableFunc(s.packs, func(a, b *pack) int {
		return int(min(max(b.size-a.size, -1), 1))
	})
}

func (s *store) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.release()
}

func (s *store) release() error {
	var err error
	for _, p := range s.packs {
		err = errors.Join(err, p.close())
	}
	s.packs = nil
	s.bases.clear()
	return err
}

// hasGaps reports whether a pack contained objects that could not be built.
func (s *store) hasGaps() bool {
	_, err := os.Stat(filepath.Join(s.dir, gapsFile))
	return err == nil
}

func (s *store) contains(id plumbing.Hash) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range s.packs {
		if _, ok := find(p.index, id); ok {
			return true
		}
	}
	return false
}

// read returns an object's content, verified against its id. Errors: ErrNotFound, ErrMalformed
// (another kind), errTooLarge, ErrCorrupt.
func (s *store) read(id plumbing.Hash, want plumbing.ObjectType, limit int64) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, errClosed(s.dir)
	}
	for _, p := range s.packs {
		offset, ok := find(p.index, id)
		if !ok {
			continue
		}
		kind, data, err := p.read(offset, limit, s.baseLimit, &s.bases)
		if errors.Is(err, errLargeBase) {
			kind, data, err = p.readLarge(s.spool(), offset, limit)
		}
		switch {
		case errors.Is(err, errTooLarge):
			return nil, err
		case err != nil || !sameHash(id, kind, data):
			return nil, corrupt(filepath.Base(p.path), "object %s cannot be read from the pack", id)
		case kind != want:
			return nil, malformed(id.String(), "is a %s where a %s must be", kind, want)
		}
		return data, nil
	}
	return nil, missing(want.String(), id)
}

func errClosed(dir string) error {
	return &Error{Kind: ErrStorage, Subject: dir, Detail: "the mirror was closed"}
}

func (s *store) usable() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return errClosed(s.dir)
	}
	return nil
}

func missing(what string, id plumbing.Hash) error {
	return &Error{Kind: ErrNotFound, Subject: what + " " + id.String(),
		Detail: "not in this repository"}
}
