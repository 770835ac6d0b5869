// Package gitrepo holds a bare mirror of one branch of the config repository and answers three
// questions from it: where the branch stands, how that commit relates to the one that is applied,
// and which files under fleet/ and tenants/ differ. Beside the branch it looks at pull requests:
// what one would change, merged file by file onto a commit of the branch.
//
// Rules of the room:
//   - Read from the object database only. There is no worktree, checkout, submodule, LFS filter or attribute: bytes are blob bytes,
//     and a symbolic link or submodule is reported as what it is and never followed.
//   - Absence is proven. A fetch moves the head only after every tree and blob below fleet/ and tenants/ of the new commit is known to be
//     in the mirror. Whatever fails before that leaves the last head in place.
//   - The server is not trusted. Bytes, objects, inflated sizes, files and time have budgets, and the connection is closed when one is
//     spent. Objects are checked against their id when they come in (with collision detection) and again whenever they are read.
//   - What a pull request brings lies apart from the branch's objects, within budgets of its own, and proves nothing about the branch.
//   - The mirror is a cache. Damage is found, never repaired: the mirror is thrown away and cloned anew.
//   - Credentials come from a function at each fetch, and appear in no error, URL, log line or file.
//
// This is the only importer of go-git. It uses go-git's pack scanner, delta and index formats and
// repository storage, and none of its transports: those live in a process-wide registry, follow
// redirects, and dial SSH without a context.
package gitrepo

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// Hash is the id of a commit, tree or blob: 40 lower-case hexadecimal digits of SHA-1.
type Hash string

// Short is the first twelve digits, for people to read.
func (h Hash) Short() string {
	if len(h) > 12 {
		return string(h[:12])
	}
	return string(h)
}

// Head is where the branch stands after a fetch.
type Head struct {
	Commit      Hash
	Tree        Hash
	FirstParent Hash      // empty for the first commit of a history
	Time        time.Time // when it was committed, by the committer's clock
	// the branch stood elsewhere after the fetch before this one, or there was none
	Moved bool
	// why the mirror was thrown away since the last fetch that succeeded, and cloned anew; empty
	// when it was not
	Recloned string
}

// Option changes how a mirror is opened.
type Option func(*config)

type config struct {
	budget     Budget
	identity   string
	plainHTTP  bool
	localPaths bool
	roots      *x509.CertPool
}

// WithBudget sets limits. A zero field keeps its default.
func WithBudget(b Budget) Option { return func(c *config) { c.budget = b } }

// WithIdentity pins the forge's own id of the repository (GitHub's numeric id). A mirror made under
// another id is not used again, so that a stranger who registers the name of a renamed repository
// starts from nothing.
func WithIdentity(id string) Option { return func(c *config) { c.identity = id } }

// AllowPlainHTTP accepts http:// sources. Credentials still travel over it to loopback addresses
// only.
func AllowPlainHTTP() Option { return func(c *config) { c.plainHTTP = true } }

// AllowLocalPath accepts an absolute path or a file:// URL as the source. It is the operator's to
// give, never a tenant's. It runs `git upload-pack`, so it needs git on PATH.
func AllowLocalPath() Option { return func(c *config) { c.localPaths = true } }

// WithRootCAs replaces the system's certificate authorities for https sources.
func WithRootCAs(roots *x509.CertPool) Option { return func(c *config) { c.roots = roots } }

// Mirror is a bare copy of one branch. Its methods may be called from several goroutines; fetches
// run one at a time.
type Mirror struct {
	source  location
	branch  string
	auth    Credentials
	budget  Budget
	objects objects
	remote  *remote    // nil for a local repository
	store   *store     // nil for a local repository
	pulls   *pulls     // nil for a local repository
	local   *localRepo // nil for a mirror
	record  record
	unlock  func()

	fetching sync.Mutex
	// why the mirror was thrown away, until a fetch succeeds; for whoever holds fetching
	discarded string
	// why the mirror must be thrown away; found by any reader, acted on by the next fetch
	damage atomic.Pointer[string]

	mu   sync.Mutex
	head Head
	memo *diffMemo
}

// objects reads what a mirror or a local repository holds. The data is shared: callers do not
// change it.
type objects interface {
	read(id plumbing.Hash, want plumbing.ObjectType, limit int64) ([]byte, error)
}

// prefixes reads the beginning of an object that is too large for read.
type prefixes interface {
	prefix(id plumbing.Hash, want plumbing.ObjectType, n int64) ([]byte, error)
}

// Open prepares the mirror of source in dir, which is made if it is missing. It does not touch the
// network. A directory that holds the mirror of another URL or identity, or a damaged one, is
// emptied; one that holds anything else is refused. One process at a time may have a mirror open.
func Open(ctx context.Context, dir string, source Source, options ...Option) (*Mirror, error) {
	var cfg config
	for _, o := range options {
		o(&cfg)
	}
	loc, err := parseLocation(source.URL, cfg.plainHTTP, cfg.localPaths)
	if err != nil {
		return nil, err
	}
	branch, err := branchName(source.Branch)
	if err != nil {
		return nil, err
	}
	budget, err := cfg.budget.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Mirror{source: loc, branch: branch, auth: source.Auth, budget: budget,
		record: record{URL: loc.identity, ID: cfg.identity}, remote: newRemote(loc, cfg.roots)}
	if err := m.openStore(ctx, dir); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Mirror) openStore(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return storageError(dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return storageError(dir, err)
	}
	if m.unlock, err = lockDir(dir); err != nil {
		return storageError(dir, err)
	}
	if m.store, err = openStore(ctx, dir, m.record, m.budget.ObjectBytes); err != nil {
		return err
	}
	if m.pulls, err = openPulls(filepath.Join(dir, "pulls"), m.budget); err != nil {
		return err
	}
	m.objects = all{m.store, m.pulls}
	return m.recall()
}

// recall reads the head that an earlier process left, so that a restart can plan before the network
// answers.
func (m *Mirror) recall() error {
	id, err := m.store.ref(m.branch)
	if err != nil {
		return err
	}
	if id.IsZero() {
		return nil
	}
	head, err := m.headAt(id)
	if err != nil {
		m.damaged(m.store.resets.Load(), "the recorded head "+id.String()+" cannot be read")
		return nil
	}
	m.head = head
	return nil
}

// Head is where the branch stood after the last successful fetch, also one of an earlier process;
// false if there was none.
func (m *Mirror) Head() (Head, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.head, m.head.Commit != ""
}

// Source is the URL of the mirror without anything secret, or the path of a local repository.
func (m *Mirror) Source() string { return m.source.display }

// Close releases the files and the directory. A fetch that is running fails.
func (m *Mirror) Close() error {
	var err error
	if m.store != nil {
		err = m.store.close()
	}
	if m.pulls != nil {
		m.pulls.drop()
	}
	if m.local != nil {
		err = m.local.storage.Close()
	}
	if m.remote != nil {
		m.remote.close()
	}
	if m.unlock != nil {
		m.unlock()
		m.unlock = nil
	}
	return err
}

func (m *Mirror) headAt(id plumbing.Hash) (Head, error) {
	c, err := m.commitAt(id)
	if err != nil {
		return Head{}, err
	}
	h := Head{Commit: c.ID, Tree: c.Tree, Time: c.Committer.When}
	if len(c.Parents) > 0 {
		h.FirstParent = c.Parents[0]
	}
	return h, nil
}

// damaged notes that the mirror cannot be trusted any more; the next fetch throws it away. since is
// the count of resets when the reader began: what a reader misses because the mirror was emptied
// meanwhile is no damage.
func (m *Mirror) damaged(since int64, why string) {
	if m.store != nil && m.store.resets.Load() == since {
		m.damage.CompareAndSwap(nil, &why)
	}
}

func publicHash(id plumbing.Hash) Hash { return Hash(id.String()) }

// parseHash accepts full ids only: a prefix or a name that happens to look like one is Resolve's
// business.
func parseHash(h Hash) (plumbing.Hash, error) {
	if !isFullHash(string(h)) {
		return plumbing.ZeroHash, &Error{Kind: ErrNotFound, Subject: fmt.Sprintf("%q", string(h)),
			Detail: "not an object id: give all 40 hexadecimal digits in lower case"}
	}
	return plumbing.NewHash(string(h)), nil
}

func isFullHash(s string) bool {
	if len(s) != 40 {
		return false
	}
	return isLowerHex(s)
}

func isLowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
