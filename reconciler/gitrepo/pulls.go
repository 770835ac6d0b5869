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

	"github.com/go-git/go-git/v5/plumbing"
)

// pulls holds what pull requests and merge groups have beyond the branch. It lies apart from the
// branch's objects, so that nothing that a stranger pushed can be taken for a part of the branch,
// and it may be lost at any time: whoever misses something fetches it again.
//
// It has two generations, each a store of its own. When the young one is full it becomes the old
// one, which goes. So it never holds more than twice the pull bytes budget and two packs, and what
// a reader has just fetched is not taken away from under it.
type pulls struct {
	dir       string
	baseLimit int64
	full      int64
	fetching  chan struct{} // full while one is under way

	mu         sync.RWMutex
	young, old *store
	made       int // generations so far
	// resets of the branch's store: what was sent after one leaves out what the branch had then
	since int64
}

// openPulls starts with nothing: what an earlier process fetched is of no use until somebody asks
// for it again.
func openPulls(dir string, b Budget) (*pulls, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, storageError(dir, err)
	}
	return &pulls{dir: dir, baseLimit: b.ObjectBytes, full: b.PullBytes,
		fetching: make(chan struct {
		}, 1)}, nil
}

// generation gives the store that takes the next pack.
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

// drop forgets everything: something in it is damaged or was never sent.
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
		_ = os.RemoveAll(s.dir) // what stays is removed by whoever opens the mirror next
	}
}

// read finds an object in either generation. Damage is no news to anybody: the object is missing,
// and with it everything goes.
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

// all reads the branch's objects, and then those of pull requests.
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

// hasGaps reports whether either store was sent objects that could not be built.
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

// FetchRef brings the commit that a ref of the source stands at into the mirror, such as
// refs/pull/7/head: the head of the mirror and what is proven of the branch stay as they are. ref
// is a full name. With want, only that commit is brought in: ErrMoved says that the ref stands
// elsewhere by now. The source is always asked, and sends what the branch does not have, within the
// budgets and Budget.PullBytes.
//
// Commits of refs stay for a while: a Commit, Diff, Merge or Blob that misses something of one says
// ErrNotFound, and it is to be fetched again.
//
// Errors: ErrRefused (not a full ref name, or a local repository), ErrNotFound (the source has no
// such ref), ErrMoved, and those of Fetch.
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
	select { // fetches of the branch do not wait for these, nor these for them
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
	ctx, meter, stop := budget.start(ctx)
	defer stop()
	auth, err := m.credential(ctx)
	if err != nil {
		return "", m.explain(ctx, auth, err)
	}
	tip, err := m.visit(ctx, auth, meter, budget, ref, want)
	if err != nil {
		return "", m.explain(ctx, auth, err)
	}
	return publicHash(tip), nil
}

// checkRef accepts full names of refs that cannot leave their folder or be taken for an option or a
// pattern.
func checkRef(ref string) error {
	name, ok := strings.CutPrefix(ref, "refs/")
	if !ok || len(ref) > 250 || !validRefPath(name) {
		return &Error{Kind: ErrRefused, Subject: fmt.Sprintf("ref %q", printable(ref)),
			Detail: "give a full ref name, such as refs/pull/7/head"}
	}
	return nil
}

// visit finds where ref stands and makes sure that its commit is here.
func (m *Mirror) visit(ctx context.Context, auth Auth, meter *meter, budget Budget, ref string,
	want Hash) (plumbing.Hash, error) {
	talk, tip, err := m.remote.find(ctx, auth, meter, ref)
	if err != nil {
		return tip, err
	}
	defer talk.Close()
	switch {
	case tip.IsZero():
		return tip, &Error{Kind: ErrNotFound, Detail: fmt.Sprintf("the source has no %s", ref)}
	case want != "" && publicHash(tip) != want:
		return tip, &Error{Kind: ErrMoved, Detail: fmt.Sprintf("%s stands at %s, not at %s", ref,
			publicHash(tip).Short(), want.Short())}
	}
	resets := m.store.resets.Load()
	into, err := m.pulls.generation(resets)
	if err != nil || m.store.contains(tip) || into.contains(tip) {
		return tip, err
	}
	stream, err := talk.pack(ctx, tip, m.haves())
	if err != nil {
		return tip, err
	}
	in, err := receive(ctx, stream, budget, func() (scratch, error) {
		return into.create(into.incomingDir())
	})
	if err != nil {
		return tip, err
	}
	meter.rest()
	if err := in.resolve(); err != nil {
		return tip, err
	}
	if err := into.install(in); err != nil {
		return tip, err
	}
	return tip, m.arrived(into, tip, resets)
}

// arrived proves that the server sent the commit, and that the branch's objects, which it left out,
// are still those that it was told of.
func (m *Mirror) arrived(into *store, tip plumbing.Hash, resets int64) error {
	switch {
	case m.store.resets.Load() != resets:
		m.pulls.drop()
		return unavailable("the mirror was cloned anew meanwhile; fetch the ref again")
	case !into.contains(tip):
		m.pulls.drop()
		return unavailable("the server sent a pack without commit %s", tip)
	}
	_, err := into.read(tip, plumbing.CommitObject, maxCommitBytes)
	return err
}
