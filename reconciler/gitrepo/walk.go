package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// maxTreeDepth is how many directories deep a walk goes. Declarations lie three deep; a directory
// below this is reported as an entry of its own, for the loader to refuse by name, and is not
// opened.
const maxTreeDepth = 16

// Kind says what an entry of a tree is.
type Kind string

// Only File has content that Argosy reads. The others are reported so that the loader can name the
// path.
const (
	File      Kind = "file"      // mode 100644 or 100755
	Symlink   Kind = "symlink"   // mode 120000; never followed
	Submodule Kind = "submodule" // mode 160000; never fetched
	// deeper than 16 directories; never opened; its path ends in a slash
	Directory Kind = "directory"
	Other     Kind = "other" // a mode that Git does not write today

	// Unreadable is fleet/, tenants/ or a tenant's folder whose content is not to be had; its path
	// ends in a slash.
	Unreadable Kind = "unreadable"
)

// Entry is one path of a commit.
type Entry struct {
	Path string // from the root of the repository, with slashes; bytes as the tree has them
	Blob Hash   // the object that the entry names: a blob, but for a submodule or directory
	Kind Kind
	Mode uint32 // as in the tree, such as 0o100644
	Why  string // of an Unreadable folder: what is wrong with it and what to do
}

// Change is one path that two commits have differently; no path comes twice. A file that was moved
// is a removal and an addition.
//
// A folder that cannot be read at the head is one Change whose New is Unreadable; nothing of it is
// known. A folder that can be read, but could not be at the base, is a Change whose Old is
// Unreadable and whose New is the directory or nothing, and then one for each file that the head
// has there: what else was there before is gone.
type Change struct {
	Path string
	Old  Entry // Kind is empty if the path is new
	New  Entry // Kind is empty if the path is gone
}

// Walk visits everything below fleet/ and tenants/ of a commit, in Git's order. An error from visit
// ends the walk and is returned.
//
// Errors: ErrNotFound, ErrMalformed, ErrOverBudget (files), ErrCorrupt. After an error nothing may
// be concluded from what was not visited.
func (m *Mirror) Walk(ctx context.Context, commit Hash, visit func(Entry) error) error {
	return m.compare(ctx, "", commit, func(c Change) error { return visit(c.New) })
}

// Diff lists what differs below fleet/ and tenants/ from base to head, in Git's order. It opens
// only directories whose hash differs, so it costs what changed. An empty base means nothing:
// everything is new. Errors are those of Walk.
func (m *Mirror) Diff(ctx context.Context, base, head Hash) ([]Change, error) {
	m.mu.Lock()
	memo := m.memo
	m.mu.Unlock()
	if memo != nil && !memo.over && memo.base == base && memo.head == head {
		return slices.Clone(memo.changes), nil
	}
	return m.diff(ctx, base, head)
}

// DiffWhole is Diff for a caller who knows better than the base what is in effect of some folders
// ("fleet/", "tenants/acme/"): these are compared with nothing, as one that could not be read at
// the base. The id is the folder's own when it was last found unreadable; while the head has the
// same, nothing is said of the folder. An empty id matches none.
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

// diffMemo keeps what a fetch found when it proved the new head complete: the caller's next
// question is the same.
type diffMemo struct {
	base, head Hash
	changes    []Change
	over       bool // too much to keep
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

// compareIn compares what some objects alone hold.
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

// blameDepth is how many commits back the one is looked for that made a folder unreadable.
const blameDepth = 100

// blame says of an unreadable folder since which commit it is as it is, and whose.
func (m *Mirror) blame(ctx context.Context, head Hash, e *Entry) {
	if e.Kind != Unreadable {
		return
	}
	since, err := m.Commit(ctx, head)
	for i := 0; err == nil && i < blameDepth && len(since.Parents) > 0; i++ {
		parent, perr := m.Commit(ctx, since.Parents[0])
		if perr != nil || m.folderID(parent.Tree, e.Path) != e.Blob {
			break
		}
		since = parent
	}
	if err == nil {
		e.Why += fmt.Sprintf(" (commit %s by %s <%s>)", since.ID.Short(), since.Author.Name,
			since.Author.Email)
	}
}

// folderID is the tree that "fleet/" or "tenants/acme/" names below a root; empty when it is none.
func (m *Mirror) folderID(root Hash, folder string) Hash {
	id := plumbing.NewHash(string(root))
	for name := range strings.SplitSeq(strings.TrimSuffix(folder, "/"), "/") {
		data, err := m.objects.read(id, plumbing.TreeObject, m.budget.ObjectBytes)
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

// Blob reads a file's bytes as they were committed. A blob larger than the file bytes budget gives
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

// incompleteTree is for a directory that a commit names and the repository lacks.
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
		"directory /%s is missing from the mirror; the next fetch clones it anew", path)
}

// readFailure gives an error of the object database its subject, and notes damage.
func (m *Mirror) readFailure(since int64, subject string, err error) error {
	switch {
	case errors.Is(err, errTooLarge):
		return overBudget(subject, "object bytes", m.budget.ObjectBytes,
			"raise source.maxObjectBytes")
	case errors.Is(err, ErrCorrupt):
		if since == unwatched {
			since = m.resets() // what is damaged is the branch's all the same
		}
		m.damaged(since, err.Error())
	}
	return err
}

// unwatched stands for a count of resets when what is read need not be complete: nothing that is
// missing is damage.
const unwatched = -1

func (m *Mirror) resets() int64 {
	if m.store == nil {
		return 0
	}
	return m.store.resets.Load()
}

// endsAt reports whether history was cut off at a commit, as in a shallow local clone.
func (m *Mirror) endsAt(id Hash) bool { return m.local != nil && m.local.shallow[id] }
