package gitrepo

import (
	"context"
	"errors"
	"strconv"

	"github.com/go-git/go-git/v5/plumbing"
)

// walker compares two trees.
type walker struct {
	ctx     context.Context
	m       *Mirror
	objects objects
	since   int64
	commit  string // for errors
	left    int    // of the files budget
	visit   func(Change) error
}

// root gives the tree of a commit; the zero hash for none.
func (w *walker) root(commit Hash) (plumbing.Hash, error) {
	if commit == "" {
		return plumbing.ZeroHash, nil
	}
	c, err := w.m.Commit(w.ctx, commit)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	return parseHash(c.Tree)
}

// between compares two commits.
func (w *walker) between(base, head Hash) error {
	from, err := w.root(base)
	if err != nil {
		return err
	}
	w.commit = "commit " + string(head)
	to, err := w.root(head)
	if err != nil {
		return err
	}
	return w.directories("", 0, from, to)
}

// directories compares the directory at path, which either side may lack (the zero hash).
func (w *walker) directories(path string, depth int, base, head plumbing.Hash) error {
	if base == head {
		return nil
	}
	if err := w.spend(); err != nil {
		return err
	}
	old, err := w.open(path, base)
	if err != nil {
		return err
	}
	new, err := w.open(path, head)
	if err != nil {
		return err
	}
	for old.ok || new.ok {
		order := 0
		switch {
		case !old.ok:
			order = 1
		case !new.ok:
			order = -1
		default:
			order = compareEntries(&old.entry, &new.entry)
		}
		var before, after *treeEntry
		if order <= 0 {
			before = &old.entry
		}
		if order >= 0 {
			after = &new.entry
		}
		if err := w.entries(path, depth, before, after); err != nil {
			return err
		}
		if order <= 0 {
			if err := old.advance(); err != nil {
				return w.malformed(path, err)
			}
		}
		if order >= 0 {
			if err := new.advance(); err != nil {
				return w.malformed(path, err)
			}
		}
	}
	return nil
}

// entries compares what one name is on both sides; nil where it is not. Both are directories, or neither is.
func (w *walker) entries(parent string, depth int, before, after *treeEntry) error {
	if before != nil && after != nil && before.id == after.id && before.mode == after.mode {
		return nil
	}
	some := before
	if some == nil {
		some = after
	}
	if depth == 0 && !watched(some.name) {
		return nil
	}
	path := pathOfEntry(parent, some)
	if some.isDirectory() {
		if depth < maxTreeDepth {
			return w.directories(path, depth+1, idOf(before), idOf(after))
		}
		path += "/" // a file may have the same name in the other commit: one path has one change
	}
	if err := w.spend(); err != nil {
		return err
	}
	return w.visit(Change{Path: path, Old: entryAt(path, before), New: entryAt(path, after)})
}

func pathOfEntry(parent string, e *treeEntry) string {
	if parent == "" {
		return string(e.name)
	}
	return parent + "/" + string(e.name)
}

// watched are the two folders that Argosy reads; the rest of the repository is not its business.
func watched(name []byte) bool { return string(name) == "fleet" || string(name) == "tenants" }

func idOf(e *treeEntry) plumbing.Hash {
	if e == nil {
		return plumbing.ZeroHash
	}
	return e.id
}

func entryAt(path string, e *treeEntry) Entry {
	if e == nil {
		return Entry{}
	}
	return Entry{Path: path, Blob: publicHash(e.id), Kind: kindOf(e.mode), Mode: e.mode}
}

func kindOf(mode uint32) Kind {
	switch {
	case mode == modeFile, mode == modeExecutable:
		return File
	case mode == modeSymlink:
		return Symlink
	case mode == modeSubmodule:
		return Submodule
	case mode&modeTypeMask == modeDirectory:
		return Directory
	}
	return Other
}

// spend counts a directory opened or an entry visited. Directories count so that a small set of trees that name each other a
// thousandfold ends like any other crowd.
func (w *walker) spend() error {
	if w.left--; w.left < 0 {
		return overBudget(w.commit, "files", int64(w.m.budget.Files), "raise the files budget if fleet/ and tenants/ are that large")
	}
	return w.ctx.Err()
}

// cursor stands at one entry of a tree.
type cursor struct {
	tree  *treeReader
	entry treeEntry
	ok    bool
}

func (c *cursor) advance() (err error) {
	c.entry, c.ok, err = c.tree.next()
	return err
}

func (w *walker) open(path string, id plumbing.Hash) (*cursor, error) {
	if id.IsZero() {
		return &cursor{}, nil
	}
	data, err := w.objects.read(id, plumbing.TreeObject, w.m.budget.ObjectBytes)
	if errors.Is(err, ErrNotFound) {
		return nil, w.m.incompleteTree(w.since, w.commit, path, id)
	}
	if err != nil {
		return nil, w.m.readFailure(w.since, w.commit+": directory "+strconv.Quote(path), err)
	}
	c := &cursor{tree: readTree(data)}
	if err := c.advance(); err != nil {
		return nil, w.malformed(path, err)
	}
	return c, nil
}

func (w *walker) malformed(path string, err error) error {
	return malformed(w.commit, "directory %q: %v; repair it with git fsck where it was made", "/"+path, err)
}
