package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-git/go-git/v5/plumbing"
)

// Merged is the result of merging one commit into another, file by file.
type Merged struct {
	Base Hash // the merge base
	// from Base to head, including changes that the target already has; in Git's order
	Shown   []Change
	Changes []Change // from the target commit to the tree of the merge
	// paths that both sides changed differently; sorted. They keep the target's content and are not
	// in Changes
	Conflicts []string
}

// Merge returns what merging head into a commit changes below fleet/ and tenants/: head's changes
// since the merge base, except those that the commit already has; Merged.Shown includes these. It
// compares whole files: it merges no lines and follows no renames, so a path that both sides
// changed is a conflict, even if git could merge it. It opens only directories that both sides
// changed, or that head changed, so its cost is proportional to the changes.
//
// Errors: those of MergeBases and Diff, ErrManyBases, and ErrOverBudget (pull files). ErrNotFound
// means that an object of head is missing: fetch its ref again.
func (m *Mirror) Merge(ctx context.Context, into, head Hash) (Merged, error) {
	merged, err := m.merge(ctx, into, head)
	if errors.Is(err, ErrNotFound) && m.pulls != nil {
		m.pulls.drop() // otherwise every retry would treat the server's omissions as complete
	}
	return merged, err
}

func (m *Mirror) merge(ctx context.Context, into, head Hash) (Merged, error) {
	base, err := m.onlyBase(ctx, into, head)
	if err != nil {
		return Merged{}, err
	}
	shown, err := m.shown(ctx, base, head)
	if err != nil {
		return Merged{}, err
	}
	g := &merger{out: Merged{Base: base, Shown: shown}}
	g.walker = walker{ctx: ctx, m: m, objects: m.objects, since: unwatched, left: m.budget.Files,
		visit: g.change}
	var roots [3]plumbing.Hash
	for i, commit := range []Hash{base, into, head} {
		g.commit = "commit " + string(commit)
		if roots[i], err = g.root(commit); err != nil {
			return Merged{}, err
		}
	}
	if _, err := g.directories("", 0, roots); err != nil {
		return Merged{}, err
	}
	for i := range g.out.Changes {
		m.blame(ctx, head, &g.out.Changes[i].New)
	}
	slices.Sort(g.out.Conflicts)
	return g.out, nil
}

// shown lists the changes of a pull request. It counts all changes, and keeps at most as many as
// one pull request may have.
func (m *Mirror) shown(ctx context.Context, base, head Hash) ([]Change, error) {
	var changes []Change
	n, most := 0, m.budget.PullFiles
	w := &walker{ctx: ctx, m: m, objects: m.objects, since: unwatched, left: m.budget.Files,
		visit: func(c Change) error {
			if n++; n <= most {
				changes = append(changes, c)
			}
			return nil
		}}
	err := w.between(base, head)
	var over *Error
	switch {
	case errors.As(err, &over) && over.Budget == "files":
		return nil, tooManyFiles(head, "more than "+strconv.Itoa(n), most)
	case err != nil:
		return nil, err
	case n > most:
		return nil, tooManyFiles(head, strconv.Itoa(n), most)
	}
	return changes, nil
}

func tooManyFiles(head Hash, n string, most int) *Error {
	return &Error{Kind: ErrOverBudget, Subject: "commit " + head.Short(), Budget: "pull files",
		Limit: int64(most), Detail: fmt.Sprintf(
			"it changes %s files below fleet/ and tenants/, and one pull request may change %d; "+
				"split it into several", n, most)}
}

// merger compares three trees.
type merger struct {
	walker
	out Merged
}

// Indexes of the three sides of a merge.
const (
	sideBase = iota
	sideInto
	sideHead
)

func (g *merger) change(c Change) error {
	g.out.Changes = append(g.out.Changes, c)
	return nil
}

// directories merges the directory at path, which may be missing on any side (the zero hash), and
// reports whether anything of it remains.
func (g *merger) directories(path string, depth int, ids [3]plumbing.Hash) (bool, error) {
	if err := g.spend(); err != nil {
		return false, err
	}
	var at [3]*cursor
	for i, id := range ids {
		var err error
		if at[i], err = g.open(path, id); err != nil {
			return false, err
		}
	}
	here := &level{g: g, path: path, depth: depth}
	for {
		first := foremost(at)
		if first == nil {
			return here.remains, nil
		}
		var sides [3]*treeEntry
		for i, c := range at {
			if c.ok && compareEntries(&c.entry, first) == 0 {
				e := c.entry
				sides[i] = &e
			}
		}
		for i, c := range at {
			if sides[i] == nil {
				continue
			}
			if err := c.advance(); err != nil {
				return false, g.malformed(path, err)
			}
		}
		if err := here.take(sides); err != nil {
			return false, err
		}
	}
}

// foremost returns the next entry of any side; nil at the end of all.
func foremost(at [3]*cursor) *treeEntry {
	var first *treeEntry
	for _, c := range at {
		if c.ok && (first == nil || compareEntries(&c.entry, first) < 0) {
			e := c.entry
			first = &e
		}
	}
	return first
}

// level is the state of merging one directory. A name that remains as a file on one side and as a
// directory on the other is a conflict: Git sorts the file first, and only names with it as a
// prefix sort between the two.
type level struct {
	g       *merger
	path    string
	depth   int
	files   [][]byte // remaining files whose name a later directory could still have
	remains bool
}

func (l *level) take(sides [3]*treeEntry) error {
	some := anyOf(sides)
	for len(l.files) > 0 && !bytes.HasPrefix(some.name, l.files[len(l.files)-1]) {
		l.files = l.files[:len(l.files)-1]
	}
	changes, conflicts := len(l.g.out.Changes), len(l.g.out.Conflicts)
	remains, err := l.g.entry(l.path, l.depth, sides)
	if err != nil || !remains {
		return err
	}
	l.remains = true
	switch {
	case !some.isDirectory():
		l.files = append(l.files, some.name)
	case slices.ContainsFunc(l.files, func(name []byte) bool {
		return bytes.Equal(name, some.name)
	}):
		l.g.out.Changes, l.g.out.Conflicts = l.g.out.Changes[:changes],
			l.g.out.Conflicts[:conflicts]
		l.g.collide(pathOfEntry(l.path, some))
	}
	return nil
}

// collide makes a path a conflict, and drops its changes.
func (g *merger) collide(path string) {
	g.out.Changes = slices.DeleteFunc(g.out.Changes, func(c Change) bool { return c.Path == path })
	if !slices.Contains(g.out.Conflicts, path) {
		g.out.Conflicts = append(g.out.Conflicts, path)
	}
}

// entry merges one name on the three sides; nil where it is missing. All are directories, or none
// is. It reports whether the name remains.
func (g *merger) entry(parent string, depth int, sides [3]*treeEntry) (bool, error) {
	base, into, head := sides[sideBase], sides[sideInto], sides[sideHead]
	some := anyOf(sides)
	switch {
	case depth == 0 && !watched(some.name):
		return true, nil
	case alike(head, into), alike(head, base):
		return into != nil, nil
	case some.isDirectory() && folder(parent, depth, some):
		return g.folder(parent, depth, sides)
	case some.isDirectory() && depth == 0: // tenants/, whose folders are merged separately
		return g.directories(pathOfEntry(parent, some), depth+1, [3]plumbing.Hash{
			idOf(base), idOf(into), idOf(head)})
	case alike(into, base):
		return head != nil, g.entries(parent, depth, into, head)
	}
	path := pathOfEntry(parent, some)
	if some.isDirectory() {
		if depth < maxTreeDepth {
			return g.directories(path, depth+1, [3]plumbing.Hash{idOf(base), idOf(into),
				idOf(head)})
		}
		path += "/"
	}
	if err := g.spend(); err != nil {
		return false, err
	}
	g.out.Conflicts = append(g.out.Conflicts, path)
	return true, nil
}

// folder reports whether an entry is merged separately: fleet/, or a tenant's folder.
func folder(parent string, depth int, e *treeEntry) bool {
	return depth == 0 && string(e.name) == "fleet" || depth == 1 && parent == "tenants"
}

// folder merges one folder. An unreadable folder is a single change of kind Unreadable.
func (g *merger) folder(parent string, depth int, sides [3]*treeEntry) (bool, error) {
	base, into, head := sides[sideBase], sides[sideInto], sides[sideHead]
	path := pathOfEntry(parent, anyOf(sides))
	if alike(into, base) {
		return head != nil, g.walker.folder(path, listedAs(into), listedAs(head), false)
	}
	changes, conflicts, left := len(g.out.Changes), len(g.out.Conflicts), g.left
	g.left = g.m.budget.Files
	remains, err := g.directories(path, depth+1, [3]plumbing.Hash{idOf(base), idOf(into),
		idOf(head)})
	g.left = left
	why, bad := g.reason(err)
	if err == nil || !bad {
		return remains, err
	}
	g.out.Changes, g.out.Conflicts = g.out.Changes[:changes], g.out.Conflicts[:conflicts]
	path += "/"
	return true,
		g.change(Change{Path: path, New: Entry{Path: path, Blob: publicHash(idOf(head)),
			Kind: Unreadable, Why: why}})
}

func listedAs(e *treeEntry) *listed {
	if e == nil {
		return &listed{}
	}
	return &listed{entry: e, id: e.id}
}

func anyOf(sides [3]*treeEntry) *treeEntry {
	for _, e := range sides {
		if e != nil {
			return e
		}
	}
	return nil
}

// alike reports whether two sides have the same entry under a name. The exact mode of a directory
// does not matter.
func alike(a, b *treeEntry) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.id == b.id && (a.mode == b.mode || a.isDirectory())
}
