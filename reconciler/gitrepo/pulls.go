package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"argosy.dev/argosy/fleet/mirror"
	"github.com/go-git/go-git/v5/plumbing"
)

// pulls stores the objects of pull requests and merge groups beyond the branch. They are apart from
// the branch's objects, so that no object pushed to a pull request counts as part of the branch.
// They may be lost at any time: a reader that misses an object fetches it again.
//
// It has two generations, each a store of its own. When the young one is full it becomes the old
// one, and the previous old one is dropped. So it never holds more than twice the pull bytes budget
// and two packs, and the objects of a recent fetch stay readable.
type pulls struct {
	dir       string
	baseLimit int64
	full      int64
	fetching  chan struct{} // a semaphore of one

	mu         sync.RWMutex
	young, old *store
	made       int // generations so far
	// resets of the branch's store: a pack sent after one reset omits the objects that the branch
	// had then
	since int64
}

// openPulls starts empty: a new process fetches the objects it needs again.
func openPulls(dir string, b Budget) (*pulls, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, storageError(dir, err)
	}
	return &pulls{dir: dir, baseLimit: b.ObjectBytes, full: b.PullBytes,
		fetching: make(chan struct {
		}, 1)}, nil
}

// generation returns the store for the next pack.
func (p *pulls) generation(resets int64) (*store, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since != resets {
		p.discard()
		p.since = resets
	}
	if p.young != nil && p.young.bytes() < p.full {
		return p.young, nil
	}
	p.made++
	next := &store{dir: filepath.Join(p.dir, strconv.Itoa(p.made)), baseLimit: p.baseLimit,
		create: createScratch}
	err := os.MkdirAll(next.dir, 0o700)
	if err == nil {
		err = next.reset(record{URL: "pull requests"})
	}
	if err != nil {
		return nil, storageError(next.dir, err)
	}
	remove(p.old)
	p.young, p.old = next, p.young
	return next, nil
}

// drop discards everything, because an object is damaged or was never sent.
func (p *pulls) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.discard()
}

func (p *pulls) discard() {
	remove(p.young)
	remove(p.old)
	p.young, p.old = nil, nil
}

func remove(s *store) {
	if s != nil {
		_ = s.close()
		_ = os.RemoveAll(s.dir) // the next Open removes leftovers
	}
}

// read finds an object in either generation. Damage needs no report: the object is missing, and
// read drops both generations.
func (p *pulls) read(id plumbing.Hash, want plumbing.ObjectType, limit int64) ([]byte, error) {
	return p.find(id, want, func(s *store) ([]byte, error) { return s.read(id, want, limit) })
}

func (p *pulls) prefix(id plumbing.Hash, want plumbing.ObjectType, n int64) ([]byte, error) {
	return p.find(id, want, func(s *store) ([]byte, error) { return s.prefix(id, want, n) })
}

func (p *pulls) find(id plumbing.Hash, want plumbing.ObjectType,
	read func(*store) ([]byte, error)) ([]byte, error) {
	p.mu.RLock()
	stores := []*store{p.young, p.old}
	p.mu.RUnlock()
	for _, s := range stores {
		if s == nil {
			continue
		}
		data, err := read(s)
		switch {
		case errors.Is(err, ErrCorrupt):
			p.drop()
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrStorage): // it was dropped meanwhile
		default:
			return data, err
		}
	}
	return nil, missing(want.String(), id)
}

// all reads the branch's objects first, and then those of pull requests.
type all struct {
	branch *store
	pulls  *pulls
}

func (a all) read(id plumbing.Hash, want plumbing.ObjectType, limit int64) ([]byte, error) {
	data, err := a.branch.read(id, want, limit)
	if !errors.Is(err, ErrNotFound) {
		return data, err
	}
	return a.pulls.read(id, want, limit)
}

func (a all) prefix(id plumbing.Hash, want plumbing.ObjectType, n int64) ([]byte, error) {
	data, err := a.branch.prefix(id, want, n)
	if !errors.Is(err, ErrNotFound) {
		return data, err
	}
	return a.pulls.prefix(id, want, n)
}

// hasGaps reports whether either store received objects that could not be built.
func (a all) hasGaps() bool {
	a.pulls.mu.RLock()
	defer a.pulls.mu.RUnlock()
	return slices.ContainsFunc([]*store{a.branch, a.pulls.young, a.pulls.old}, func(s *store) bool {
		return s != nil && s.hasGaps()
	})
}

func (s *store) bytes() (n int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range s.packs {
		n += p.size
	}
	return n
}

// FetchRef fetches the commit of a ref of the source, such as refs/pull/7/head: the head of the
// mirror and the proof of the branch's completeness do not change. ref is a full name. With want,
// it fetches only that commit: mirror.ErrMoved means that the ref points elsewhere by now. It
// always asks the source, which sends the objects that the branch lacks, within the budgets and
// Budget.PullBytes.
//
// Commits of refs are kept for a while: a Commit, Diff, Merge or Blob that misses an object returns
// ErrNotFound, and the caller fetches the ref again.
//
// Errors: ErrRefused (not a full ref name, or a local repository), ErrNotFound (the source has no
// such ref), mirror.ErrMoved, and those of Fetch.
func (m *Mirror) FetchRef(ctx context.Context, ref string, want Hash) (Hash, error) {
	if m.store == nil {
		return "", &Error{Kind: ErrRefused, Subject: m.source.display,
			Detail: "a local repository is read as it is; it has no source to fetch from"}
	}
	if err := checkRef(ref); err != nil {
		return "", err
	}
	if want != "" {
		if _, err := parseHash(want); err != nil {
			return "", err
		}
	}
	select { // fetches of the branch and of refs do not block each other
	case m.pulls.fetching <- struct{}{}:
		defer func() { <-m.pulls.fetching }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if err := m.store.usable(); err != nil {
		return "", err
	}
	budget := m.budget
	budget.Bytes = min(budget.Bytes, budget.PullBytes)
	t, stop, err := m.transfer(ctx, budget)
	defer stop()
	if err != nil {
		return "", t.explain(err)
	}
	tip, err := t.ref(ref, want)
	if err != nil {
		return "", t.explain(err)
	}
	return publicHash(tip), nil
}

// checkRef accepts full ref names that cannot leave their folder or be parsed as an option or a
// pattern.
func checkRef(ref string) error {
	name, ok := strings.CutPrefix(ref, "refs/")
	if !ok || len(ref) > 250 || !validRefPath(name) {
		return &Error{Kind: ErrRefused, Subject: fmt.Sprintf("ref %q", printable(ref)),
			Detail: "give a full ref name, such as refs/pull/7/head"}
	}
	return nil
}

// ref finds the commit of ref and ensures that it is in the store of pull requests.
func (t *transfer) ref(ref string, want Hash) (plumbing.Hash, error) {
	m := t.m
	talk, tip, err := m.remote.find(t.ctx, t.auth, t.meter, ref)
	if err != nil {
		return tip, err
	}
	defer talk.Close()
	switch {
	case tip.IsZero():
		return tip, &Error{Kind: ErrNotFound, Detail: fmt.Sprintf("the source has no %s", ref)}
	case want != "" && publicHash(tip) != want:
		return tip,
			&Error{Kind: mirror.ErrMoved, Detail: fmt.Sprintf("%s points to %s, not to %s", ref,
				publicHash(tip).Short(), want.Short())}
	}
	resets := m.store.resets.Load()
	into, err := m.pulls.generation(resets)
	if err != nil || m.store.contains(tip) || into.contains(tip) {
		return tip, err
	}
	if err := t.into(into, talk, tip); err != nil {
		return tip, err
	}
	return tip, m.verifyArrival(into, tip, resets)
}

// verifyArrival proves that the server sent the commit, and that the branch's objects, which the
// server omitted, are still those that the request named.
func (m *Mirror) verifyArrival(into *store, tip plumbing.Hash, resets int64) error {
	switch {
	case m.store.resets.Load() != resets:
		m.pulls.drop()
		return unavailable("the mirror was cloned again meanwhile; fetch the ref again")
	case !into.contains(tip):
		m.pulls.drop()
		return unavailable("the server sent a pack without commit %s", tip)
	}
	_, err := into.read(tip, plumbing.CommitObject, maxCommitBytes)
	return err
}
