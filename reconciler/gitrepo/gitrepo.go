// Package gitrepo keeps a bare mirror of one branch of the config repository and answers three
// questions from it: the branch's head, how that commit relates to the applied one, and which files
// under fleet/ and tenants/ differ. It also reads pull requests: the changes that one would make,
// merged file by file onto a commit of the branch.
//
// Rules of the package:
//   - It reads the object database only. There is no worktree, checkout, submodule, LFS filter or
//     attribute: bytes are blob bytes, and a symbolic link or submodule is reported as such and
//     never followed.
//   - Absence is proven. A fetch moves the head only after every tree and blob below fleet/ and
//     tenants/ of the new commit is known to be in the mirror. A failure before that leaves the
//     last head in place.
//   - The server is not trusted. Bytes, objects, inflated sizes, files and time have budgets, and
//     the package closes the connection when one is spent. Objects are checked against their id
//     when they arrive (with collision detection) and again at every read.
//   - Objects of a pull request are stored apart from the branch's objects, within budgets of their
//     own, and prove nothing about the branch.
//   - The mirror is a cache. Damage is detected, never repaired: the mirror is discarded and cloned
//     again.
//   - A function supplies credentials at each fetch. No error, URL, log line or file contains them.
//
// This is the only importer of go-git. It uses go-git's pack scanner, delta and index formats and
// repository storage, and none of its transports: those are in a process-wide registry, follow
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

// Short returns the first twelve digits, for people.
func (h Hash) Short() string {
	if len(h) > 12 {
		return string(h[:12])
	}
	return string(h)
}

// Head is the branch's tip after a fetch.
type Head struct {
	Commit      Hash
	Tree        Hash
	FirstParent Hash      // empty for the first commit of a history
	Time        time.Time // commit time, by the committer's clock
	// the branch had another tip after the previous fetch, or there was none
	Moved bool
	// why the mirror was discarded and cloned again since the last successful fetch; empty if it
	// was not
	Recloned string
}

// Option configures Open.
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

// WithIdentity pins the Git host's own id of the repository (GitHub's numeric id). A mirror with
// another id is not reused, so that an attacker who registers the name of a renamed repository
// starts from an empty mirror.
func WithIdentity(id string) Option { return func(c *config) { c.identity = id } }

// AllowPlainHTTP accepts http:// sources. Credentials are still sent over it to loopback addresses
// only.
func AllowPlainHTTP() Option { return func(c *config) { c.plainHTTP = true } }

// AllowLocalPath accepts an absolute path or a file:// URL as the source. Only the operator may
// enable it, never a tenant. It runs `git upload-pack`, so it needs git on PATH.
func AllowLocalPath() Option { return func(c *config) { c.localPaths = true } }

// WithRootCAs replaces the system's certificate authorities for https sources.
func WithRootCAs(roots *x509.CertPool) Option { return func(c *config) { c.roots = roots } }

// Mirror is a bare copy of one branch. Its methods may be called concurrently; fetches run one at a
// time.
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
	// why the mirror was discarded, until a fetch succeeds; guarded by fetching
	discarded string
	// why the next fetch must discard the mirror; set by any reader
	damage atomic.Pointer[string]

	mu   sync.Mutex
	head Head
	memo *diffMemo
}

// objects reads a mirror or a local repository. The returned data is shared: callers must not
// change it.
type objects interface {
	read(id plumbing.Hash, want plumbing.ObjectType, limit int64) ([]byte, error)
}

// prefixes reads the beginning of an object that is too large for read.
type prefixes interface {
	prefix(id plumbing.Hash, want plumbing.ObjectType, n int64) ([]byte, error)
}

// Open prepares the mirror of source in dir, which it creates if missing. It does not use the
// network. It empties a directory with the mirror of another URL or identity, or with a damaged
// one, and refuses a directory with any other content. Only one process at a time may open a
// mirror.
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
	return m.loadHead()
}

// loadHead reads the head that an earlier process stored, so that a restart can plan before the
// network answers.
func (m *Mirror) loadHead() error {
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

// Head returns the branch's tip after the last successful fetch, also by an earlier process; false
// if there was none.
func (m *Mirror) Head() (Head, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.head, m.head.Commit != ""
}

// Source returns the URL of the mirror without secrets, or the path of a local repository.
func (m *Mirror) Source() string { return m.source.display }

// Close releases the files and the directory. A running fetch fails.
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

// damaged marks the mirror as damaged; the next fetch discards it. since is the count of resets
// when the reader began: an object that a reader misses because the mirror was emptied meanwhile is
// no damage.
func (m *Mirror) damaged(since int64, why string) {
	if m.store != nil && m.store.resets.Load() == since {
		m.damage.CompareAndSwap(nil, &why)
	}
}

func publicHash(id plumbing.Hash) Hash { return Hash(id.String()) }

// parseHash accepts full ids only: Resolve handles prefixes, and names that resemble an id.
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
