package webhook

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/webhook/review"
)

const (
	accountTTL  = time.Minute // of a cached account or team
	maxAccounts = 10_000      // in the cache
)

// Accounts resolves accounts and teams of the Git host.
type Accounts interface {
	// Owner resolves "alice" (a user) or "acme/leads" (a team with the members of its child teams)
	// to its people and its number, which stays when the name moves to another account or team. It
	// returns forge.ErrNoSuchOwner if the Git host surely has no such account or team.
	Owner(ctx context.Context, name string) (forge.Account, error)
}

// Pins stores which account or team a name is pinned to.
type Pins interface {
	// PinOwner records that the name belongs to the account or team id now, and returns its pin.
	PinOwner(ctx context.Context, host, name string, id int64) (view.Owner, error)
}

// people resolves owners on the Git host and caches them: hundreds of pull requests ask for the
// same few. A name counts only for the account or team that it is pinned to.
type people struct {
	accounts Accounts
	host     string
	pins     Pins
	log      *slog.Logger
	now      func() time.Time

	mu    sync.Mutex
	cache map[string]account
}

// account is a cached account or team.
type account struct {
	people  []forge.Person
	unknown bool
	changed *review.Changed
	until   time.Time
}

func newPeople(a Accounts, host string, pins Pins, log *slog.Logger, now func() time.Time) people {
	return people{accounts: a, host: host, pins: pins, log: log, now: now,
		cache: map[string]account{}}
}

// owners resolves each entry of spec.owners. The members of a group of the identity provider are
// unknown to the Git host.
func (p *people) owners(ctx context.Context, declared []string) ([]review.Owner, error) {
	var out []review.Owner
	for _, name := range declared {
		owner := review.Owner{Name: name}
		if login, ok := strings.CutPrefix(name, "github:"); ok {
			a, err := p.account(ctx, login)
			if err != nil {
				return nil, err
			}
			owner.People, owner.Unknown, owner.Changed = a.people, a.unknown, a.changed
		}
		out = append(out, owner)
	}
	return out, nil
}

func (p *people) account(ctx context.Context, name string) (account, error) {
	p.mu.Lock()
	a, ok := p.cache[name]
	p.mu.Unlock()
	if ok && p.now().Before(a.until) {
		return a, nil
	}
	a, err := p.resolve(ctx, name)
	if err != nil {
		return account{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.cache) >= maxAccounts {
		clear(p.cache)
	}
	p.cache[name] = a
	return a, nil
}

// resolve asks the Git host. While a name is pinned to another account or team than the one that
// has it now, neither counts. A name that no account has keeps its pin.
func (p *people) resolve(ctx context.Context, name string) (account, error) {
	a := account{until: p.now().Add(accountTTL)}
	found, err := p.accounts.Owner(ctx, name)
	if errors.Is(err, forge.ErrNoSuchOwner) {
		a.unknown = true
		return a, nil
	}
	if err != nil {
		return account{}, err
	}
	pin, err := p.pins.PinOwner(ctx, p.host, name, found.ID)
	if err != nil {
		return account{}, err
	}
	if pin.ID == found.ID {
		a.people = found.People
		return a, nil
	}
	p.log.Warn(
		"the name of an owner passed to another account or team, which does not count until it "+
			"is released",
		"owner", name, "pinned", pin.ID, "now", found.ID)
	a.changed = &review.Changed{Was: pin.ID, Is: found.ID}
	return a, nil
}
