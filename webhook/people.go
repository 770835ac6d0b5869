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

// remembered is how long an account or team is taken to be what it was.
const remembered = time.Minute

// people looks owners up on the forge, and remembers them for a short while: hundreds of pull
// requests ask for the same few. A name counts for the account or team that it is pinned to, and
// for nobody who has taken it since.
type people struct {
	forge People
	host  string
	pins  interface {
		PinOwner(ctx context.Context, host, name string, id int64) (view.Owner, error)
	}
	log *slog.Logger
	now func() time.Time

	mu    sync.Mutex
	known map[string]lookedUp
}

type lookedUp struct {
	people  []forge.Person
	unknown bool
	changed *review.Changed
	until   time.Time
}

// owners looks up each entry of spec.owners. Who is in a group of the sign-in is not the forge's to
// know.
func (p *people) owners(ctx context.Context, declared []string) ([]review.Owner, error) {
	var out []review.Owner
	for _, name := range declared {
		owner := review.Owner{Name: name}
		if account, ok := strings.CutPrefix(name, "github:"); ok {
			a, err := p.ask(ctx, account)
			if err != nil {
				return nil, err
			}
			owner.People, owner.Unknown, owner.Changed = a.people, a.unknown, a.changed
		}
		out = append(out, owner)
	}
	return out, nil
}

func (p *people) ask(ctx context.Context, account string) (lookedUp, error) {
	p.mu.Lock()
	a, ok := p.known[account]
	p.mu.Unlock()
	if ok && p.now().Before(a.until) {
		return a, nil
	}
	a, err := p.lookUp(ctx, account)
	if err != nil {
		return lookedUp{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= 10_000 {
		clear(p.known)
	}
	p.known[account] = a
	return a, nil
}

// lookUp asks the forge. By a name that another account or team has now nobody counts, neither
// those who had it nor those who have it, until it is released. A name that nobody has keeps its
// pin.
func (p *people) lookUp(ctx context.Context, account string) (lookedUp, error) {
	a := lookedUp{until: p.now().Add(remembered)}
	found, err := p.forge.Owner(ctx, account)
	if errors.Is(err, forge.ErrNoSuchOwner) {
		a.unknown = true
		return a, nil
	}
	if err != nil {
		return lookedUp{}, err
	}
	pin, err := p.pins.PinOwner(ctx, p.host, account, found.ID)
	if err != nil {
		return lookedUp{}, err
	}
	if pin.ID == found.ID {
		a.people = found.People
		return a, nil
	}
	p.log.Warn(
		"the name of an owner is another account's or team's now, which does not count until it "+
			"is released",
		"owner", account, "pinned", pin.ID, "now", found.ID)
	a.changed = &review.Changed{Was: pin.ID, Is: found.ID}
	return a, nil
}
