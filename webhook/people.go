package webhook

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/webhook/review"
)

// remembered is how long an account or team is taken to be what it was.
const remembered = time.Minute

// people looks owners up on the forge, and remembers them for a short while: hundreds of pull requests ask for the same few.
type people struct {
	forge People
	now   func() time.Time

	mu    sync.Mutex
	known map[string]lookedUp
}

type lookedUp struct {
	people  []fleet.Person
	unknown bool
	until   time.Time
}

// owners looks up each entry of spec.owners. Who is in a group of the sign-in is not the forge's to know.
func (p *people) owners(ctx context.Context, declared []string) ([]review.Owner, error) {
	var out []review.Owner
	for _, name := range declared {
		owner := review.Owner{Name: name}
		if account, ok := strings.CutPrefix(name, "github:"); ok {
			a, err := p.ask(ctx, account)
			if err != nil {
				return nil, err
			}
			owner.People, owner.Unknown = a.people, a.unknown
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
	found, err := p.forge.Owner(ctx, account)
	a = lookedUp{people: found, unknown: errors.Is(err, fleet.ErrNoSuchOwner), until: p.now().Add(remembered)}
	if err != nil && !a.unknown {
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
