package edge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/edge/edgetest"
)

const testHub = "https://hub.example.com"

// registrar is a hub that exchanges tokens like the store: a token succeeds with exactly one pair
// of keys.
type registrar struct {
	mu     sync.Mutex
	thumbs map[string]string // token -> keys
	lose   bool              // lose the responses
}

func (r *registrar) Join(_ context.Context, keys agent.PrivateKeys, join agent.Join) (agent.Joined,
	error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	thumb := keys.Public().Thumb()
	if r.thumbs == nil {
		r.thumbs = map[string]string{}
	}
	if have, ok := r.thumbs[join.Token]; ok && have != thumb {
		return agent.Joined{}, errors.New("used by other keys")
	}
	r.thumbs[join.Token] = thumb
	if r.lose {
		return agent.Joined{}, errors.New("the answer is lost")
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return agent.Joined{Agent: "agent-" + thumb[:6], Engine: "acme.prod", Time: now,
		ExpiresAt: now.Add(90 * 24 * time.Hour)}, nil
}

func newObjectStore() *edgetest.ObjectStore { return &edgetest.ObjectStore{Conflict: ErrConflict} }

func join(k *IdentityStore, hub Registrar, token string) (Identity, error) {
	return k.Join(context.Background(), testHub, hub, token, "uid-1", "v1")
}

func TestJoinEndsInOneIdentityAfterACrashAtAnyStep(t *testing.T) {
	errCrash := errors.New("crash")
	died := 0
	for step := 1; ; step++ {
		cell, hub := newObjectStore(), &registrar{}
		n := 0
		cell.Fail = func(string) error {
			if n++; n >= step {
				return errCrash
			}
			return nil
		}
		_, err := join(NewIdentityStore(cell), hub, "token-1")
		cell.Fail = nil
		first := hub.thumbs["token-1"]
		id, again := join(NewIdentityStore(cell), hub, "token-1")
		if again != nil {
			t.Fatalf("step %d: after the crash: %v", step, again)
		}
		if first != "" && id.Keys.Public().Thumb() != first {
			t.Fatalf("step %d: the hub knows other keys than the cluster", step)
		}
		if third, _ := join(NewIdentityStore(cell), hub, "token-1"); third.Agent != id.Agent {
			t.Fatalf("step %d: joining again makes %s of %s", step, third.Agent, id.Agent)
		}
		if err == nil {
			break
		}
		died++
	}
	if died < 6 {
		t.Fatalf("only %d steps", died)
	}
}

func TestKeysAreStoredBeforeTheTokenIsExchanged(t *testing.T) {
	cell, hub := newObjectStore(), &registrar{lose: true}
	if _, err := join(NewIdentityStore(cell), hub, "token-1"); err == nil {
		t.Fatal("a lost answer is no identity")
	}
	if _, err := NewIdentityStore(cell).Load(context.Background()); !errors.Is(err, ErrNotJoined) {
		t.Fatalf("before the answer: %v", err)
	}
	hub.lose = false
	id, err := join(NewIdentityStore(cell), hub, "token-1")
	if err != nil || id.Keys.Public().Thumb() != hub.thumbs["token-1"] {
		t.Fatalf("%v; the keys of the first try are not used", err)
	}
}

func TestConcurrentJoinsEndInOneIdentity(t *testing.T) {
	cell, hub := newObjectStore(), &registrar{}
	var all sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		all.Go(func() {
			for range 20 { // the store has more contention than from two real processes
				if id, err := join(NewIdentityStore(cell), hub, "token-1"); err == nil {
					ids[i] = id.Agent
					return
				}
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("identities %v", ids)
		}
	}
}

func TestANewTokenCreatesKeysAndKeepsTheOldIdentityUntilTheJoin(t *testing.T) {
	cell, hub := newObjectStore(), &registrar{}
	first, err := join(NewIdentityStore(cell), hub, "token-1")
	if err != nil {
		t.Fatal(err)
	}
	hub.lose = true
	if _, err := join(NewIdentityStore(cell), hub, "token-2"); err == nil {
		t.Fatal("joined without an answer")
	}
	if now, err := NewIdentityStore(cell).Load(context.Background()); err != nil ||
		now.Agent != first.Agent {
		t.Fatalf("the old identity is deleted: %v", err)
	}
	hub.lose = false
	second, err := join(NewIdentityStore(cell), hub, "token-2")
	if err != nil {
		t.Fatal(err)
	}
	if second.Agent == first.Agent || second.Keys.Public().Thumb() == first.Keys.Public().Thumb() {
		t.Fatal("a stolen key outlives joining again")
	}
}

func TestRegistrationTokenInTheSecretJoins(t *testing.T) {
	cell, hub := newObjectStore(), &registrar{}
	ctx := context.Background()
	if _, err := NewIdentityStore(cell).Ensure(ctx, testHub, hub, "uid-1", "v1"); !errors.Is(err,
		ErrNotJoined) {
		t.Fatalf("without a token: %v", err)
	}
	cell.Set(map[string][]byte{RegistrationToken: []byte("token-1\n")})
	id, err := NewIdentityStore(cell).Ensure(ctx, testHub, hub, "uid-1", "v1")
	if err != nil {
		t.Fatal(err)
	}
	if cell.Value(keyAgent) != id.Agent || cell.Value(keyHub) != testHub {
		t.Fatal("the identity is not stored")
	}
	if cell.Value(RegistrationToken) != "" {
		t.Fatal("the token stays in the Secret")
	}
	again, err := NewIdentityStore(cell).Ensure(ctx, testHub, hub, "uid-1", "v1")
	if err != nil || again.Agent != id.Agent || len(hub.thumbs) != 1 {
		t.Fatalf("a second start joins again: %v", err)
	}
	cell.Set(map[string][]byte{RegistrationToken: []byte("token-2")})
	if again, err := NewIdentityStore(cell).Ensure(ctx, testHub, hub, "uid-1", "v1"); err != nil ||
		again.Agent == id.Agent {
		t.Fatalf("a new token in the Secret does not join again: %v", err)
	}
}

func TestRotationIsDueAfterAThirdOfTheLife(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	id := Identity{IssuedAt: at, ExpiresAt: at.Add(90 * 24 * time.Hour)}
	if got := id.RotateAt(); !got.Equal(at.Add(30 * 24 * time.Hour)) {
		t.Fatalf("due at %s", got)
	}
}

func TestAnIdentityDoesNotPrintItsKeys(t *testing.T) {
	cell := newObjectStore()
	id, err := join(NewIdentityStore(cell), &registrar{}, "token-1")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%v %+v %#v", id, id, id)
	for _, name := range id.Keys.Marshal().Keys() {
		for _, form := range []string{"%s", "%x", "%v"} {
			if strings.Contains(text, fmt.Sprintf(form, id.Keys.Marshal().Value(name))) {
				t.Fatalf("%s is printed", name)
			}
		}
	}
}
