package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// maxTreeDepth is the maximum depth of a walk. Declarations are three directories deep; the walk
// reports a deeper directory as an entry, which the loader rejects by name, and does not open it.
const maxTreeDepth = 16

// Kind is the kind of a tree entry.
type Kind string

// Argosy reads the content of File only. The others are reported so that the loader can name the
// path.
const (
	File      Kind = "file"      // mode 100644 or 100755
	Symlink   Kind = "symlink"   // mode 120000; never followed
	Submodule Kind = "submodule" // mode 160000; never fetched
	// deeper than 16 directories; never opened; its path ends in a slash
	Directory Kind = "directory"
	Other     Kind = "other" // a mode that Git does not write today

	// Unreadable is fleet/, tenants/ or a tenant's folder with unreadable content; its path ends in
	// a slash.
	Unreadable Kind = "unreadable"
)

// Entry is one path of a commit.
type Entry struct {
	Path string // from the root of the repository, with slashes; bytes as the tree has them
	Blob Hash   // the object that the entry names: a blob, but for a submodule or directory
	Kind Kind
	Mode uint32 // as in the tree, such as 0o100644
	Why  string // of an Unreadable folder: the reason and the fix
}

// Change is one path that differs between two commits; no path occurs twice. A moved file is a
// removal and an addition.
//
// A folder that is unreadable at the head is one Change whose New is Unreadable; its content is
// unknown. A folder that became readable is a Change whose Old is Unreadable and whose New is the
// directory or nothing, followed by one Change for each file at the head: all other files of the
// folder are deleted.
type Change struct {
	Path string
	Old  Entry // Kind is empty if the path is new
	New  Entry // Kind is empty if the path was deleted
}

// Walk visits everything below fleet/ and tenants/ of a commit, in Git's order. An error from visit
// ends the walk and is returned.
//
// Errors: ErrNotFound, ErrMalformed, ErrOverBudget (files), ErrCorrupt. After an error the caller
// must conclude nothing from entries that were not visited.
func (m *Mirror) Walk(ctx context.Context, commit Hash, visit func(Entry) error) error {
	return m.compare(ctx, "", commit, func(c Change) error { return visit(c.New) })
}

// Diff lists the differences below fleet/ and tenants/ from base to head, in Git's order. It opens
// only directories whose hash differs, so its cost is proportional to the changes. An empty base
// means that everything is new. Errors are those of Walk.
func (m *Mirror) Diff(ctx context.Context, base, head Hash) ([]Change, error) {
	m.mu.Lock()
	memo := m.memo
	m.mu.Unlock()
	if memo != nil && !memo.over && memo.base == base && memo.head == head {
		return slices.Clone(memo.changes), nil
	}
	return m.diff(ctx, base, head)
}

// DiffWhole is Diff for a caller that does not trust the base for some folders ("fleet/",
// "tenants/acme/"): it compares these with nothing, like a folder that was unreadable at the base.
// The id is the folder's own when it was last found unreadable; while the head has the same id,
// DiffWhole reports nothing for the folder. An empty id matches none.
func (m *Mirror) DiffWhole(ctx context.Context, base, head Hash, folders map[string]Hash) ([]Change,
	error) {
	if len(folders) == 0 {
		return m.Diff(ctx, base, head)
	}
	var changes []Change
	err := m.compareIn(ctx, m.objects, base, head, folders, func(c Change) error {
		changes = append(changes, c)
		return nil
	})
	return changes, err
}

// diffMemo caches the diff that a fetch computed to prove the new head complete: the caller
// requests the same next.
type diffMemo struct {
	base, head Hash
	changes    []Change
	over       bool // too large to cache
}

func (d *diffMemo) add(c Change) {
	if d.over = d.over || len(d.changes) == 10_000; d.over {
		d.changes = nil
		return
	}
	d.changes = append(d.changes, c)
}

func (m *Mirror) diff(ctx context.Context, base, head Hash) ([]Change, error) {
	var changes []Change
	err := m.compare(ctx, base, head, func(c Change) error {
		changes = append(changes, c)
		return nil
	})
	return changes, err
}

func (m *Mirror) compare(ctx context.Context, base, head Hash, visit func(Change) error) error {
	return m.compareIn(ctx, m.objects, base, head, nil, visit)
}

// compareIn compares within the given objects.
func (m *Mirror) compareIn(ctx context.Context, in objects, base, head Hash,
	folders map[string]Hash, visit func(Change) error) error {
	w := &walker{ctx: ctx, m: m, objects: in, since: m.resets(), left: m.budget.Files, visit: visit,
		distrusted: folders}
	w.visit = func(c Change) error {
		m.blame(ctx, head, &c.New)
		return visit(c)
	}
	return w.between(base, head)
}

// blameDepth is how many commits back blame searches for the commit that made a folder unreadable.
const blameDepth = 100

// blame adds to an unreadable folder the commit that made it unreadable, and its author.
func (m *Mirror) blame(ctx context.Context, head Hash, e *Entry) {
	if e.Kind != Unreadable {
		return
	}
	since, err := m.Commit(ctx, head)
	for i := 0; err == nil && i < blameDepth && len(since.Parents) > 0; i++ {
		parent, perr := m.Commit(ctx, since.Parents[0])
		if perr != nil || folderID(m.objects, m.budget.ObjectBytes, parent.Tree, e.Path) != e.Blob {
			break
		}
		since = parent
	}
	if err == nil {
		e.Why += fmt.Sprintf(" (commit %s by %s <%s>)", since.ID.Short(), since.Author.Name,
			since.Author.Email)
	}
}

// folderID returns the tree of "fleet/" or "tenants/acme/" below a root; empty if there is none.
func folderID(in objects, limit int64, root Hash, folder string) Hash {
	id := plumbing.NewHash(string(root))
	for name := range strings.SplitSeq(strings.TrimSuffix(folder, "/"), "/") {
		data, err := in.read(id, plumbing.TreeObject, limit)
		found := false
		for err == nil && !found && len(data) > 0 {
			var e treeEntry
			e, data, err = cutEntry(data)
			if found = err == nil && string(e.name) == name && e.isDirectory(); found {
				id = e.id
			}
		}
		if !found {
			return ""
		}
	}
	return publicHash(id)
}

// Blob returns a file's bytes as committed. A blob larger than the file bytes budget gives
// ErrOverBudget before it is inflated. Other errors: ErrNotFound, ErrMalformed (not a blob),
// ErrCorrupt.
func (m *Mirror) Blob(ctx context.Context, id Hash) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	hash, err := parseHash(id)
	if err != nil {
		return nil, err
	}
	since := m.resets()
	data, err := m.objects.read(hash, plumbing.BlobObject, m.budget.FileBytes)
	var large tooLarge
	switch gaps, ok := m.objects.(interface{ hasGaps() bool }); {
	case errors.As(err, &large):
		over := overBudget("blob "+string(id), "file bytes", m.budget.FileBytes,
			"make the file smaller")
		over.Size = large.size
		return nil, over
	case errors.Is(err, ErrNotFound) && ok && gaps.hasGaps():
		return nil, overBudget("blob "+string(id), "file bytes", m.budget.FileBytes,
			"make the file smaller")
	}
	if err != nil {
		return nil, m.readFailure(since, "blob "+string(id), err)
	}
	return slices.Clone(data), nil
}

// incompleteTree is the error for a directory that a commit names and the repository lacks.
func (m *Mirror) incompleteTree(since int64, commit, path string, id plumbing.Hash) error {
	if m.store == nil {
		return &Error{Kind: ErrCorrupt, Subject: commit, Detail: "directory /" + path +
			" is not in this repository; is it a partial clone?"}
	}
	if since == unwatched {
		return missing("directory /"+path+" of "+commit+": tree", id)
	}
	m.damaged(since, "tree "+id.String()+" is missing")
	return corrupt(commit,
		"directory /%s is missing from the mirror; the next fetch clones it again", path)
}

// readFailure adds the subject to an error of the object database, and records damage.
func (m *Mirror) readFailure(since int64, subject string, err error) error {
	switch {
	case errors.Is(err, errTooLarge):
		return overBudget(subject, "object bytes", m.budget.ObjectBytes,
			"raise source.maxObjectBytes")
	case errors.Is(err, ErrCorrupt):
		if since == unwatched {
			since = m.resets() // damage is still the branch's
		}
		m.damaged(since, err.Error())
	}
	return err
}

// unwatched replaces a count of resets where objects may be incomplete: a missing one is no damage.
const unwatched = -1

func (m *Mirror) resets() int64 {
	if m.store == nil {
		return 0
	}
	return m.store.resets.Load()
}

// endsAt reports whether history is truncated at a commit, as in a shallow local clone.
func (l *localRepo) endsAt(id Hash) bool { return l != nil && l.shallow[id] }

// Modes that Git writes into trees.
const (
	modeDirectory  = 0o040000
	modeFile       = 0o100644
	modeExecutable = 0o100755
	modeSymlink    = 0o120000
	modeSubmodule  = 0o160000
	modeTypeMask   = 0o170000
)

// treeEntry is one line of a tree object. The name is a slice of the tree's own bytes.
type treeEntry struct {
	name []byte
	mode uint32
	id   plumbing.Hash
}

// isDirectory checks the mode's type alone, as Git does.
func (e *treeEntry) isDirectory() bool { return e.mode&modeTypeMask == modeDirectory }

// treeReader lists a tree and rejects a tree that Git would not have written: such a tree makes two
// programs read different content (GHSA-w5pp-99ch-qj29, CVE-2026-45022).
type treeReader struct {
	rest  []byte
	last  treeEntry
	files [][]byte // names of files that a later directory could still have
}

func readTree(data []byte) *treeReader { return &treeReader{rest: data} }

// next returns the next entry; false at the end.
func (t *treeReader) next() (treeEntry, bool, error) {
	if len(t.rest) == 0 {
		return treeEntry{}, false, nil
	}
	e, rest, err := cutEntry(t.rest)
	if err == nil {
		err = checkName(e.name)
	}
	if err != nil {
		return treeEntry{}, false, err
	}
	if err := t.inOrder(&e); err != nil {
		return treeEntry{}, false, err
	}
	t.rest, t.last = rest, e
	return e, true, nil
}

func cutEntry(b []byte) (treeEntry, []byte, error) {
	var e treeEntry
	space := bytes.IndexByte(b[:min(len(b), 8)], ' ')
	if space < 1 {
		return e, nil, errors.New("an entry has no mode")
	}
	for _, c := range b[:space] {
		if c < '0' || c > '7' {
			return e, nil, errors.New("an entry's mode is not an octal number")
		}
		e.mode = e.mode<<3 | uint32(c-'0')
	}
	b = b[space+1:]
	end := bytes.IndexByte(b, 0)
	if end < 0 || len(b) < end+1+len(e.id) {
		return e, nil, errors.New("the last entry is cut off")
	}
	e.name = b[:end]
	copy(e.id[:], b[end+1:])
	return e, b[end+1+len(e.id):], nil
}

func checkName(name []byte) error {
	switch {
	case len(name) == 0:
		return errors.New("an entry has an empty name")
	case bytes.IndexByte(name, '/') >= 0:
		return errors.New("an entry's name contains a slash")
	case name[0] != '.' && name[0] != 'g' && name[0] != 'G' && name[0] < 0x80:
		return nil
	case string(name) == "." || string(name) == "..":
		return errors.New("an entry is named " + string(name))
	case meansDotGit(string(name)):
		return errors.New("an entry's name means .git on some file system")
	}
	return nil
}

// meansDotGit reports whether some file system treats the name as .git: in any case, with trailing
// dots, spaces or a stream name (NTFS), in its short form git~1, or with characters that HFS+
// ignores. Argosy never checks anything out; a commit with such a name is an attack on clients that
// do.
func meansDotGit(name string) bool {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f,
			r == 0xfeff:
			return -1
		}
		return r
	}, name)
	name, _, _ = strings.Cut(name, ":")
	name = strings.TrimRight(name, ". ")
	return strings.EqualFold(name, ".git") || strings.EqualFold(name, "git~1")
}

// inOrder checks that e sorts after the previous entry, and that no file has the name of a
// directory. Git sorts a directory as if its name ended in a slash, so that other names may come
// between a file and a directory of one name; all of them start with that name.
func (t *treeReader) inOrder(e *treeEntry) error {
	if t.last.name != nil && compareEntries(&t.last, e) >= 0 {
		if bytes.Equal(t.last.name, e.name) {
			return errors.New("two entries have the same name")
		}
		return errors.New("the entries are not in order")
	}
	for len(t.files) > 0 && !bytes.HasPrefix(e.name, t.files[len(t.files)-1]) {
		t.files = t.files[:len(t.files)-1]
	}
	if !e.isDirectory() {
		t.files = append(t.files, e.name)
		return nil
	}
	for i := len(t.files) - 1; i >= 0; i-- {
		if bytes.Equal(t.files[i], e.name) {
			return errors.New("two entries have the same name")
		}
	}
	return nil
}

// compareEntries orders like Git.
func compareEntries(a, b *treeEntry) int {
	n := min(len(a.name), len(b.name))
	if c := bytes.Compare(a.name[:n], b.name[:n]); c != 0 {
		return c
	}
	return int(charAfter(a, n)) - int(charAfter(b, n))
}

func charAfter(e *treeEntry, n int) byte {
	switch {
	case n < len(e.name):
		return e.name[n]
	case e.isDirectory():
		return '/'
	}
	return 0
}
