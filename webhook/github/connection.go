package github

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	api "github.com/google/go-github/v60/github"
)

// connection is the authorized access to one repository of a Git host.
type connection struct {
	base    *url.URL
	gitea   bool
	name    string       // owner/name as it is configured
	pin     atomic.Int64 // the repository's id; 0 as long as it is not known
	appID   int64        // 0: with a token
	hookURL string
	writes  bool // to branches

	client *api.Client   // with the token, or the installation's
	app    *api.Client   // signs as the App; nil with a token
	grant  *installation // nil with a token

	mu       sync.Mutex
	us       map[[32]byte]account // our own account, by credential
	pageSize int                  // Gitea's largest page; 0 as long as it is not known
}

// KnownID is the repository's id: as it was configured, or as the repository first answered; 0 as
// long as neither is known.
func (f *connection) KnownID() int64 { return f.pin.Load() }

func newConnection(c Config, base *url.URL, next http.RoundTripper) *connection {
	f := &connection{base: base, gitea: isGitea(base), name: c.Repository,
		hookURL: c.HookURL, writes: c.Proposals,
		us: map[[32]byte]account{}}
	f.pin.Store(c.RepositoryID)
	through := &wire{base: base, next: next, kept: newCache(cacheBytes, entryBytes)}
	if c.Auth.App == nil {
		f.client = newClient(c, base, &authorized{token: c.Auth.Token, next: through})
		return f
	}
	f.appID = c.Auth.App.ID
	f.app = newClient(c, base, &signed{app: *c.Auth.App, next: &wire{base: base, next: next}})
	f.grant = &installation{conn: f, id: c.Auth.App.InstallationID, lock: make(chan struct{}, 1)}
	f.client = newClient(c, base, &authorized{token: f.grant.token, next: through})
	return f
}

// Repository implements webhook.Reader.
func (f *connection) Repository(ctx context.Context) (int64, string, error) {
	r, err := f.here(ctx)
	return r.ID, r.FullName, err
}

// here reads the repository: the id that it always had, under the name that it has now.
func (f *connection) here(ctx context.Context) (repository, error) {
	a, err := f.get(ctx, in(f.name), nil)
	if isGone(err) {
		return repository{},
			fmt.Errorf("the repository %s is gone, or our account may no longer read it: %w",
				f.name, err)
	}
	if err != nil {
		return repository{}, err
	}
	r, err := read[repository](a)
	if err != nil {
		return repository{}, err
	}
	if !f.pin.CompareAndSwap(0, r.ID) {
		if err := f.ours(r.ID); err != nil {
			return repository{}, err
		}
	}
	return r, nil
}

// ours is an error when the id is not that of the repository. Its name may have been given up, and
// taken by a stranger.
func (f *connection) ours(id int64) error {
	if pin := f.pin.Load(); id != pin {
		return fmt.Errorf(
			"repository %s is now another one (id %d, it was %d): nothing is believed", f.name, id,
			pin)
	}
	return nil
}
