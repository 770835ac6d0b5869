package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// walker compares two trees.
type walker struct {
	ctx     context.Context
	m       *Mirror
	objects objects
	since   int64
	commit  string // for errors
	left    int    // remaining of the files budget
	visit   func(Change) error

	distrusted map[string]Hash // see DiffWhole
}

// root returns the tree of a commit; the zero hash for none.
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
	return w.folders(from, to)
}

// folders compares fleet/ and each tenant's folder of two commits, each on its own. An unreadable
// folder, with content that Git would not have written or that exceeds the budget, is one Change of
// kind Unreadable, and does not affect the others.
func (w *walker) folders(base, head plumbing.Hash) error {
	if base == head && !w.recheck() {
		return nil
	}
	old, err := w.list(w.commit, "", base)
	if err != nil {
		return err
	}
	new, err := w.list(w.commit, "", head)
	if err != nil {
		return err
	}
	for _, name := range []string{"fleet", "tenants"} {
		before, after := old.named(name), new.named(name)
		if name == "tenants" && before.folderOrNone() && after.folderOrNone() &&
			!w.isDistrusted("tenants/") {
			done, err := w.tenants(before, after)
			if err != nil {
				return err
			}
			if done {
				continue
			}
		}
		if err := w.side(name, before, after); err != nil {
			return err
		}
	}
	return nil
}

// tenants compares tenants/, folder by folder. It returns false if tenants/ itself is unreadable on
// one side.
func (w *walker) tenants(before, after *listed) (bool, error) {
	if before.id == after.id && !w.recheck() {
		return true, nil
	}
	old, oldErr := w.list(w.commit, "tenants", before.id)
	new, newErr := w.list(w.commit, "tenants", after.id)
	for _, err := range []error{oldErr, newErr} {
		if _, bad := w.reason(err); err != nil && !bad {
			return true, err
		}
	}
	if oldErr != nil || newErr != nil {
		return false, nil
	}
	seen := map[string]bool{}
	var names []string
	for _, l := range []*listing{old, new} {
		for name := range l.entries {
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	for _, name := range names {
		path := "tenants/" + name
		if checkName([]byte(name)) != nil {
			// escaped, so that the path is neither a folder's name nor below another folder
			path = "tenants/" + strconv.QuoteToASCII(name)
		}
		if err := w.side(path, old.named(name), new.named(name)); err != nil {
			return true, err
		}
	}
	return true, nil
}

// listed is the entry of a name in a listing; the id is zero if there is none.
type listed struct {
	entry *treeEntry // the first of that name
	id    plumbing.Hash
	why   error // the name is invalid: it occurs twice, or Git does not allow it
}

// folder reports whether the entry is a directory.
func (l *listed) folder() bool {
	return l.why != nil || l.entry != nil && l.entry.isDirectory()
}
func (l *listed) folderOrNone() bool { return l.entry == nil || l.why == nil && l.folder() }

// listing is a directory whose entries are checked one by one: a name that Git does not allow, or
// the wrong order, affects no other entry.
type listing struct{ entries map[string]*listed }

func (l *listing) named(name string) *listed {
	if e := l.entries[name]; e != nil {
		return e
	}
	return &listed{}
}

// list reads the root (only its two watched names) or tenants/.
func (w *walker) list(commit, path string, id plumbing.Hash) (*listing, error) {
	l := &listing{entries: map[string]*listed{}}
	if id.IsZero() {
		return l, nil
	}
	data, err := w.tree(path, id)
	if err != nil {
		return nil, err
	}
	for len(data) > 0 {
		e, rest, err := cutEntry(data)
		if err != nil {
			return nil, w.malformed(path, err)
		}
		data = rest
		if path == "" && !watched(e.name) {
			continue
		}
		if err := w.spend(); err != nil {
			return nil, err
		}
		key := string(e.name)
		at := l.entries[key]
		if at == nil {
			at = &listed{entry: &e, id: e.id}
			l.entries[key] = at
		} else {
			// the id changes with either entry
			at.id, at.why = id, errors.New("two entries have the same name")
		}
		if err := checkName(e.name); err != nil {
			at.why = err
		}
	}
	return l, nil
}

// side compares one name of the root or of tenants/, of any kind on either side.
func (w *walker) side(path string, before, after *listed) error {
	known, distrusted := w.distrusted[path+"/"]
	if distrusted && after.folder() && known != "" && known == publicHash(after.id) {
		return nil // unchanged since it was found unreadable
	}
	if before.entry != nil && after.entry != nil && !distrusted && before.id == after.id &&
		before.why == nil && after.why == nil &&
		before.entry.mode == after.entry.mode {
		return nil
	}
	for _, end := range []*listed{before, after} {
		if end.entry == nil || end.folder() {
			continue
		}
		old, new := end.entry, (*treeEntry)(nil)
		if end == after {
			old, new = nil, end.entry
		}
		if end == before && after.entry != nil && !after.folder() {
			continue // one change for both, below
		}
		if end == after && before.entry != nil && !before.folder() {
			old = before.entry
		}
		if err := w.visit(Change{Path: path, Old: entryAt(path, old),
			New: entryAt(path, new)}); err != nil {
			return err
		}
	}
	if !before.folder() && !after.folder() && !distrusted {
		return nil
	}
	return w.folder(path, before, after, distrusted)
}

// folder compares one folder. It visits no entry before it has read all entries.
func (w *walker) folder(path string, before, after *listed, distrusted bool) error {
	var changes []Change
	f := &walker{ctx: w.ctx, m: w.m, objects: w.objects, since: w.since, commit: w.commit,
		left:  w.m.budget.Files,
		visit: func(c Change) error { changes = append(changes, c); return nil }}
	depth := 1 + strings.Count(path, "/")
	old, new := plumbing.ZeroHash, plumbing.ZeroHash
	if before.folder() {
		old = before.id
	}
	if after.folder() {
		new = after.id
	}
	whole := Change{Path: path + "/", Old: Entry{Path: path + "/", Kind: Unreadable}}
	if !new.IsZero() {
		whole.New = Entry{Path: path + "/", Blob: publicHash(new), Kind: Directory,
			Mode: modeDirectory}
	}
	err := before.why
	if err == nil && after.why == nil && !distrusted {
		err = f.directories(path, depth, old, new)
	}
	if err != nil || after.why != nil || distrusted {
		// Only the head determines whether the folder is readable, not the base.
		changes, f.left, err = []Change{whole}, w.m.budget.Files, after.why
		if err == nil {
			err = f.directories(path, depth, plumbing.ZeroHash, new)
		}
	}
	if err != nil {
		why, bad := w.reason(err)
		if !bad && after.why == nil {
			return err
		}
		if after.why != nil {
			why = malformedReason(path, after.why)
		}
		whole.New.Kind, whole.New.Why = Unreadable, why
		changes = []Change{whole}
	}
	for _, c := range changes {
		if err := w.visit(c); err != nil {
			return err
		}
	}
	return w.ctx.Err()
}

// recheck reports whether to read a folder although no id has changed.
func (w *walker) recheck() bool {
	for _, known := range w.distrusted {
		if known == "" {
			return true
		}
	}
	return false
}

func (w *walker) isDistrusted(folder string) bool {
	_, is := w.distrusted[folder]
	return is
}

// reason returns why a folder is unreadable; false for an error without a cause in the pushed
// content.
func (w *walker) reason(err error) (string, bool) {
	var known *Error
	if !errors.As(err, &known) || !errors.Is(err, ErrOverBudget) && !errors.Is(err, ErrMalformed) &&
		!errors.Is(err, errGap) {
		return "", false
	}
	return known.Detail, true
}

// directories compares the directory at path, which may be missing on either side (the zero hash).
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

// entries compares one name on both sides; nil where it is missing. Both are directories, or
// neither is.
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

// watched names the two folders that Argosy reads; it ignores the rest of the repository.
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

// spend counts an opened directory or a visited entry. Directories count so that a small set of
// trees with thousands of references to each other exceeds the budget too.
func (w *walker) spend() error {
	if w.left--; w.left < 0 {
		return overBudget(w.commit, "files", int64(w.m.budget.Files),
			"remove what does not belong there, or raise source.maxFiles")
	}
	return w.ctx.Err()
}

// cursor is a position in a tree.
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
	data, err := w.tree(path, id)
	if err != nil {
		return nil, err
	}
	c := &cursor{tree: readTree(data)}
	if err := c.advance(); err != nil {
		return nil, w.malformed(path, err)
	}
	return c, nil
}

// tree reads a directory.
func (w *walker) tree(path string, id plumbing.Hash) ([]byte, error) {
	data, err := w.objects.read(id, plumbing.TreeObject, w.m.budget.ObjectBytes)
	var large tooLarge
	switch {
	case errors.Is(err, ErrNotFound) && w.gaps():
		return nil, &Error{Kind: errGap, Subject: w.commit,
			Detail: fmt.Sprintf("directory %q is too large to be read; remove it", "/"+path)}
	case errors.Is(err, ErrNotFound):
		return nil, w.m.incompleteTree(w.since, w.commit, path, id)
	case errors.As(err, &large):
		return nil, overBudget(w.commit, "object bytes", w.m.budget.ObjectBytes,
			fmt.Sprintf(
				"directory %q is an object of %d bytes; remove it, or raise source.maxObjectBytes",
				"/"+path, large.size))
	case err != nil:
		return nil, w.m.readFailure(w.since, w.commit+": directory "+strconv.Quote(path), err)
	}
	return data, nil
}

func (w *walker) gaps() bool {
	g, ok := w.objects.(interface{ hasGaps() bool })
	return ok && g.hasGaps()
}

// errGap: an object is missing from a mirror with gaps.
var errGap = errors.New("object too large to be built")

func malformedReason(path string, err error) string {
	return fmt.Sprintf("directory %q: %v", "/"+path, err)
}

func (w *walker) malformed(path string, err error) error {
	return malformed(w.commit, "%s", malformedReason(path, err))
}
