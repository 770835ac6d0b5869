package gitrepo

import (
	"bytes"
	"context"
	"maps"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// Folder returns the files below a folder of a commit, such as "argocd/3.5.7", by their paths below
// it. It is for folders outside of fleet/ and tenants/.
//
// Errors: ErrNotFound (the folder, or the commit), ErrMalformed (a symlink, a submodule or another
// entry that is no file), ErrOverBudget (more than files, or a file that is too large), ErrCorrupt.
func (m *Mirror) Folder(ctx context.Context, commit Hash, folder string, files int) (
	map[string][]byte, error) {
	c, err := m.Commit(ctx, commit)
	if err != nil {
		return nil, err
	}
	id := folderID(m.objects, m.budget.ObjectBytes, c.Tree, folder)
	if id == "" {
		return nil, &Error{Kind: ErrNotFound, Subject: "folder " + folder, Detail: "commit " +
			commit.Short() + " does not have it"}
	}
	all := map[string][]byte{}
	return all, m.folder(ctx, id, folder, "", files, all)
}

func (m *Mirror) folder(ctx context.Context, tree Hash, folder, below string, files int,
	all map[string][]byte) error {
	data, err := m.objects.read(plumbing.NewHash(string(tree)), plumbing.TreeObject,
		m.budget.ObjectBytes)
	if err != nil {
		return m.readFailure(m.resets(), "folder "+folder, err)
	}
	for entries := readTree(data); ; {
		e, ok, err := entries.next()
		if err != nil || !ok {
			return err
		}
		path, id := below+string(e.name), publicHash(e.id)
		switch {
		case e.isDirectory() && strings.Count(path, "/") >= maxTreeDepth:
			err = &Error{Kind: ErrMalformed, Subject: "folder " + folder, Detail: path +
				" is too deep"}
		case e.isDirectory():
			err = m.folder(ctx, id, folder, path+"/", files, all)
		case e.mode != modeFile && e.mode != modeExecutable:
			err = &Error{Kind: ErrMalformed, Subject: "folder " + folder, Detail: path +
				" is no regular file"}
		case len(all) >= files:
			err = overBudget("folder "+folder, "files", int64(files), "remove files")
		default:
			all[path], err = m.Blob(ctx, id)
		}
		if err != nil {
			return err
		}
	}
}

// MergedFolder returns the files of a folder in the merge of head into a commit, and whether head
// changes it; base is Merged.Base. Without always, it reads no files of a folder that head does not
// change. A missing folder has no files. Of a file that both sides have changed, it returns that of
// head: the merge itself is a conflict.
//
// Errors: those of Folder but the missing folder.
func (m *Mirror) MergedFolder(ctx context.Context, base, into, head Hash, folder string, files int,
	always bool) (content map[string][]byte, changed bool, err error) {
	var ids [3]Hash
	for i, commit := range []Hash{base, into, head} {
		c, err := m.Commit(ctx, commit)
		if err != nil {
			return nil, false, err
		}
		ids[i] = folderID(m.objects, m.budget.ObjectBytes, c.Tree, folder)
	}
	changed = ids[sideHead] != ids[sideBase] && ids[sideHead] != ids[sideInto]
	if !changed && !always {
		return nil, false, nil
	}
	var sides [3]map[string][]byte
	for i, id := range ids {
		sides[i] = map[string][]byte{}
		if id != "" {
			if err := m.folder(ctx, id, folder, "", files, sides[i]); err != nil {
				return nil, changed, err
			}
		}
	}
	return mergeFiles(sides), changed, nil
}

// mergeFiles returns the files of into with the changes of head.
func mergeFiles(sides [3]map[string][]byte) map[string][]byte {
	out := maps.Clone(sides[sideInto])
	for path, text := range sides[sideHead] {
		if before, had := sides[sideBase][path]; !had || !bytes.Equal(before, text) {
			out[path] = text
		}
	}
	for path := range sides[sideBase] {
		if _, has := sides[sideHead][path]; !has {
			delete(out, path)
		}
	}
	return out
}

// File returns a regular file of a commit and its blob.
//
// Errors: ErrNotFound (the file, or the commit), those of Blob.
func (m *Mirror) File(ctx context.Context, commit Hash, path string) (blob Hash, data []byte,
	err error) {
	c, err := m.Commit(ctx, commit)
	if err != nil {
		return "", nil, err
	}
	missing := &Error{Kind: ErrNotFound, Subject: "file " + path, Detail: "commit " +
		commit.Short() + " does not have it"}
	tree, name := c.Tree, path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		tree, name = folderID(m.objects, m.budget.ObjectBytes, c.Tree, path[:i]), path[i+1:]
	}
	if tree == "" {
		return "", nil, missing
	}
	since := m.resets()
	entries, err := m.objects.read(plumbing.NewHash(string(tree)), plumbing.TreeObject,
		m.budget.ObjectBytes)
	if err != nil {
		return "", nil, m.readFailure(since, "file "+path, err)
	}
	for list := readTree(entries); ; {
		e, ok, err := list.next()
		switch {
		case err != nil:
			return "", nil, err
		case !ok:
			return "", nil, missing
		case string(e.name) == name && (e.mode == modeFile || e.mode == modeExecutable):
			blob = publicHash(e.id)
			data, err = m.Blob(ctx, blob)
			return blob, data, err
		}
	}
}
