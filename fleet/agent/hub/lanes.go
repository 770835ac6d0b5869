package hub

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/peer"
)

// Known agents have a lane of their own: an assertion that a key proves which this replica has seen
// before waits for nobody. All others are strangers until the store has been asked, and wait: first
// for their address's turn, then for one in the strangers' lane. So nobody without a key keeps an
// agent from its access token, and one address does not take all of the strangers' lane.
const (
	maxKnown      = 20_000 // agents whose keys are kept, twice over
	maxAddresses  = 20_000 // likewise of addresses
	addressShare  = 4      // the part of the strangers' rate that one address has: 1/4
	knownInterval = time.Second
	knownBurst    = 10 // access tokens that one agent may be given at once
)

// recent keeps the latest values, two generations of them: the older one goes when the younger is
// full.
type recent[V any] struct {
	mu         sync.Mutex
	size       int
	young, old map[string]V
}

func (r *recent[V]) get(key string) (V, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.find(key)
}

func (r *recent[V]) find(key string) (V, bool) {
	v, ok := r.young[key]
	if !ok {
		if v, ok = r.old[key]; ok {
			r.put(key, v)
		}
	}
	return v, ok
}

func (r *recent[V]) put(key string, v V) {
	if _, ok := r.young[key]; !ok && len(r.young) >= r.size || r.young == nil {
		r.old, r.young = r.young, map[string]V{}
	}
	r.young[key] = v
}

// known is an agent whose keys were the store's lately.
type known struct {
	keys fleet.AgentKeys
	lane *admission
}

// remember keeps the keys of an agent that has proven itself.
func (h *Hub) remember(a fleet.Agent) {
	h.known.mu.Lock()
	defer h.known.mu.Unlock()
	k, ok := h.known.find(a.ID)
	if !ok {
		k = known{lane: &admission{every: knownInterval, burst: knownBurst * knownInterval,
			queue: 0}}
	}
	k.keys = a.Keys
	h.known.put(a.ID, k)
}

// admit waits for the turn of whoever shows an assertion, and says by which slots it asks the
// store.
func (h *Hub) admit(r *http.Request, assertion, id string) (slots, error) {
	if k, ok := h.known.get(id); ok {
		if _, err := agent.CheckAssertion(assertion, k.keys, id, h.audience, h.now()); err == nil {
			return h.knownAsks, k.lane.wait(r.Context())
		}
	}
	return h.asks, h.stranger(r, h.tokens, h.tokensOf, h.limits.TokenRate)
}

// askFactor is how many access tokens that this replica has not seen are looked up for each one
// that it gives out.
const askFactor = 4

// admitAccess is the same for whoever shows an access token: one that this replica gave out, or
// that came with a proof before, is an agent's. A stranger makes up as many as it likes.
func (h *Hub) admitAccess(r *http.Request, token [sha256.Size]byte) (slots, error) {
	if _, ok := h.accesses.get(string(token[:])); ok {
		return h.knownAsks, nil
	}
	return h.asks, h.stranger(r, h.lookups, h.lookupsOf, askFactor*h.limits.TokenRate)
}

// accepted remembers an access token that is an agent's.
func (h *Hub) accepted(token string) {
	sum := sha256.Sum256([]byte(token))
	h.accesses.mu.Lock()
	defer h.accesses.mu.Unlock()
	h.accesses.put(string(sum[:]), struct{}{})
}

// stranger waits for the turn of an address, and then for one in the lane of all.
func (h *Hub) stranger(r *http.Request, all *admission, by *recent[*admission], rate int) error {
	address := peer.Address(r, h.limits.Proxies)
	by.mu.Lock()
	lane, ok := by.find(address)
	if !ok {
		lane = newAdmission(max(rate/addressShare, 1), h.limits.Queue/2)
		by.put(address, lane)
	}
	by.mu.Unlock()
	if err := lane.wait(r.Context()); err != nil {
		return err
	}
	return all.wait(r.Context())
}
