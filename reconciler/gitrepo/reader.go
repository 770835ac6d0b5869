package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// Reader reads trees and single files of repositories that are not mirrored. It keeps nothing: each
// read fetches one commit without its history, and without blobs where the server supports that.
type Reader struct {
	dir string // of packs while they are read
	cfg config
}

// readTime is how long a read may take before its bytes must earn more, up to twice as long.
const readTime = time.Minute

// maxReadPath limits the bytes of a path, and so the depth. A longer path is an error: without it,
// a Tree would lack entries.
const maxReadPath = 4096

// NewReader returns a reader with its scratch files in dir, which it empties. A zero field of the
// budget means the default of a reader, which is far below that of a mirror.
func NewReader(dir string, options ...Option) (*Reader, error) {
	var cfg config
	for _, o := range options {
		o(&cfg)
	}
	setDefault(&cfg.budget.Bytes, 64<<20)
	setDefault(&cfg.budget.Objects, 500_000)
	setDefault(&cfg.budget.ObjectBytes, 8<<20)
	setDefault(&cfg.budget.Time, readTime)
	setDefault(&cfg.budget.Idle, readTime/3)
	var err error
	if cfg.budget, err = cfg.budget.withDefaults(); err != nil {
		return nil, err
	}
	err = os.RemoveAll(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, storageError(dir, err)
	}
	return &Reader{dir: dir, cfg: cfg}, nil
}

// Remote is a repository of a tenant.
type Remote struct {
	URL  string
	Auth Credentials // nil: none
	// HEAD, a full commit id, a full ref name, or the name of a branch or, if there is no such
	// branch, of a tag
	Revision string
}

// Selection is what Read reads of a commit. The functions are pure.
type Selection struct {
	Enters func(dir string) bool             // whether anything below a directory may be wanted
	Wants  func(path string, kind Kind) bool // of a Directory or File
	// whether the content of wanted files is read
	Contents bool
	Most     int // entries that may be wanted
}

// Tree is what a commit has of a selection, completely.
type Tree struct {
	Commit  Hash
	Entries []Entry // in Git's order; the path of a directory has no slash at its end
	// of the wanted files; nil for a file with more than Budget.FileBytes
	Contents map[Hash][]byte
}

// Read returns what the commit of a revision has of a selection. If that commit is known, Read
// returns a nil Tree after the server named the commit, and fetches nothing. After an error the
// caller must conclude nothing about the repository's content.
//
// Errors: those of Mirror.Fetch but ErrCorrupt. ErrBranchGone: the server answered, and has no such
// branch or tag.
func (r *Reader) Read(ctx context.Context, from Remote, known Hash, s Selection) (*Tree, error) {
	loc, err := parseLocation(from.URL, r.cfg.plainHTTP, r.cfg.localPaths)
	if err != nil {
		return nil, err
	}
	refs, err := refsOf(from.Revision)
	if err != nil {
		return nil, err
	}
	m := &Mirror{source: loc, auth: from.Auth, budget: r.cfg.budget,
		remote: newRemote(loc, r.cfg.roots)}
	defer m.remote.close()
	// the earned time of a mirror's fetch would let a slow server hold a slot for long
	limited, cancel := context.WithTimeoutCause(ctx, 2*r.cfg.budget.Time, errWall)
	defer cancel()
	t, stop, err := m.transfer(limited, r.cfg.budget)
	defer stop()
	if err != nil {
		return nil, t.explain(err)
	}
	tree, err := r.read(t, from, refs, known, s)
	if err != nil {
		return nil, readable(t.explain(err))
	}
	return tree, nil
}

// readable names the limits of a reader, which no setting changes.
func readable(err error) error {
	var over *Error
	if errors.As(err, &over) && errors.Is(over, ErrOverBudget) {
		out := *over
		out.Detail = fmt.Sprintf("one commit of it has more than %d %s; narrow the patterns, or use "+
			"a smaller repository", over.Limit, over.Budget)
		return &out
	}
	return err
}

// refsOf returns the full names that a revision may have, the preferred one first; none for a
// commit.
func refsOf(revision string) ([]string, error) {
	refs := []string{"refs/heads/" + revision, "refs/tags/" + revision}
	switch {
	case revision == "HEAD":
		return []string{revision}, nil
	case isFullHash(revision):
		return nil, nil
	case strings.HasPrefix(revision, "refs/"):
		refs = []string{revision}
	}
	if err := checkRef(refs[0]); err != nil {
		return nil, &Error{Kind: ErrRefused,
			Subject: fmt.Sprintf("revision %q", printable(revision)),
			Detail:  "write a branch, a tag, HEAD or a full commit id"}
	}
	return refs, nil
}

// read finds the commit, fetches its trees, and then the wanted files.
func (r *Reader) read(t *transfer, from Remote, refs []string, known Hash, s Selection) (*Tree,
	error) {
	talk, err := t.m.remote.dial(t.ctx, t.auth, t.meter, nil)
	if err != nil {
		return nil, err
	}
	defer talk.Close()
	tip, err := tipOf(t.ctx, talk, from.Revision, refs)
	if err != nil {
		return nil, err
	}
	if publicHash(tip) == known {
		return nil, nil
	}
	dir, err := os.MkdirTemp(r.dir, "read-")
	if err != nil {
		return nil, storageError(r.dir, err)
	}
	defer os.RemoveAll(dir)
	t.m.store = &store{dir: dir, baseLimit: t.budget.ObjectBytes, create: createScratch}
	defer t.m.store.close()
	t.m.objects = t.m.store
	if err := t.m.store.reset(record{URL: "one commit"}); err != nil {
		return nil, err
	}
	// Without version 2, a server may refuse to send single files afterwards.
	trees := packRequest{wants: []plumbing.Hash{tip}, shallow: talk.can("shallow"),
		noBlobs: talk.can("filter") && (talk.v2 || !s.Contents)}
	if err := t.receive(t.m.store, talk, trees); err != nil {
		return nil, err
	}
	w := &selecting{t: t, s: s, tree: &Tree{Commit: publicHash(tip), Contents: map[Hash][]byte{}}}
	if err := w.commit(tip); err != nil {
		return nil, err
	}
	if !s.Contents {
		return w.tree, nil
	}
	return w.tree, w.contents(talk, trees.noBlobs)
}

// tipOf returns the commit of a revision.
func tipOf(ctx context.Context, talk *conversation, revision string,
	refs []string) (plumbing.Hash, error) {
	// a commit needs no ref, but the conversation begins with their list
	tips, err := talk.tips(ctx, append([]string{"HEAD"}, refs...), false)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	if isFullHash(revision) {
		return plumbing.NewHash(revision), nil
	}
	for _, ref := range refs {
		if id, ok := tips[ref]; ok {
			return id, nil
		}
	}
	return plumbing.ZeroHash, &Error{Kind: ErrBranchGone, Detail: fmt.Sprintf(
		"the repository has no branch or tag %q; was it deleted or renamed?", printable(revision))}
}

// selecting walks the trees of one commit.
type selecting struct {
	t    *transfer
	s    Selection
	tree *Tree
	seen int // entries of all trees
}

func (w *selecting) commit(tip plumbing.Hash) error {
	if !w.t.m.store.contains(tip) {
		return unavailable("the server sent a pack without commit %s", tip)
	}
	head, err := w.t.m.headAt(tip)
	if err != nil {
		return err
	}
	return w.folder(plumbing.NewHash(string(head.Tree)), "")
}

// folder reads one directory, and those below that the selection enters.
func (w *selecting) folder(id plumbing.Hash, dir string) error {
	subject := "directory /" + dir
	if err := w.t.ctx.Err(); err != nil {
		return err
	}
	data, err := w.t.m.store.read(id, plumbing.TreeObject, w.t.budget.ObjectBytes)
	switch {
	case errors.Is(err, errTooLarge):
		return overBudget(subject, "object bytes", w.t.budget.ObjectBytes, "")
	case errors.Is(err, ErrNotFound):
		return unavailable("the server sent a pack without %s", subject)
	case err != nil:
		return err
	}
	for r := readTree(data); ; {
		e, more, err := r.next()
		switch {
		case err != nil:
			return malformed(subject, "%v", err)
		case !more:
			return nil
		}
		if w.seen++; w.seen > w.t.budget.Files {
			return overBudget("", "files", int64(w.t.budget.Files), "")
		}
		path := string(e.name)
		if dir != "" {
			path = dir + "/" + path
		}
		if len(path) > maxReadPath {
			return overBudget("", "bytes in a path", maxReadPath, "")
		}
		if err := w.entry(e, path); err != nil {
			return err
		}
	}
}

func (w *selecting) entry(e treeEntry, path string) error {
	if err := w.t.ctx.Err(); err != nil { // a selection of many patterns takes long
		return err
	}
	kind := kindOf(e.mode)
	if (kind == File || kind == Directory) && w.s.Wants(path, kind) {
		if len(w.tree.Entries) == w.s.Most {
			return overBudget("", "entries", int64(w.s.Most), "")
		}
		w.tree.Entries = append(w.tree.Entries, Entry{Path: path, Blob: publicHash(e.id),
			Kind: kind, Mode: e.mode})
	}
	if kind != Directory || !w.s.Enters(path) {
		return nil
	}
	return w.folder(e.id, path)
}

// contents reads the wanted files. Without the files in the first pack it fetches another.
func (w *selecting) contents(talk *conversation, missing bool) error {
	var wants []plumbing.Hash
	for _, e := range w.tree.Entries {
		if _, known := w.tree.Contents[e.Blob]; e.Kind == File && !known {
			w.tree.Contents[e.Blob] = nil
			wants = append(wants, plumbing.NewHash(string(e.Blob)))
		}
	}
	if missing && len(wants) > 0 {
		if err := w.t.receive(w.t.m.store, talk, packRequest{wants: wants}); err != nil {
			return err
		}
	}
	for _, id := range wants {
		data, err := w.t.m.store.read(id, plumbing.BlobObject, w.t.budget.FileBytes)
		switch {
		case errors.Is(err, errTooLarge):
			continue
		case errors.Is(err, ErrNotFound):
			return unavailable("the server sent a pack without file %s", id)
		case err != nil:
			return err
		}
		w.tree.Contents[publicHash(id)] = slices.Clone(data)
	}
	return nil
}
