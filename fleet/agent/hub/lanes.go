package hub

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/peer"
)

// Known agents have their own limits: an assertion that matches a key in this replica's cache does
// not wait. Every other caller is unknown until the store has been queried. It waits for the limit
// of its address and then for the limit of all unknown callers. So a client without a key cannot
// delay an agent, and one address cannot use up the limit of all.
const (
	maxKnown      = 20_000 // cached agents, in each of two generations
	maxAddresses  = 20_000 // cached addresses, in each of two generations
	addressShare  = 4      // one address gets 1/4 of the rate of unknown callers
	knownInterval = time.Second
	knownBurst    = 10 // access tokens granted to one agent at once
)

// generationCache keeps recent values in two generations. When the young one is full, it becomes
// the old one, and the old one is dropped.
type generationCache[V any] struct {
	mu         sync.Mutex
	size       int
	young, old map[string]V
}

func (r *generationCache[V]) get(key string) (V, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.find(key)
}

func (r *generationCache[V]) find(key string) (V, bool) {
	v, ok := r.young[key]
	if !ok {
		if v, ok = r.old[key]; ok {
			r.put(key, v)
		}
	}
	return v, ok
}

func (r *generationCache[V]) put(key string, v V) {
	if _, ok := r.young[key]; !ok && len(r.young) >= r.size || r.young == nil {
		r.old, r.young = r.young, map[string]V{}
	}
	r.young[key] = v
}

// knownAgent is an agent whose keys were read from the store recently.
type knownAgent struct {
	keys    registry.Keys
	limiter *rateLimiter
}

// rememberAgent caches the keys of an agent with a verified proof.
func (h *Hub) rememberAgent(a registry.Agent) {
	h.knownAgents.mu.Lock()
	defer h.knownAgents.mu.Unlock()
	k, ok := h.knownAgents.find(a.ID)
	if !ok {
		k = knownAgent{
			limiter: &rateLimiter{interval: knownInterval, burst: knownBurst * knownInterval,
				maxWait: 0}}
	}
	k.keys = a.Keys
	h.knownAgents.put(a.ID, k)
}

// admitAssertion waits for the rate limit that applies to an assertion, and returns the semaphore
// for its query.
func (h *Hub) admitAssertion(r *http.Request, assertion, id string) (semaphore, error) {
	if k, ok := h.knownAgents.get(id); ok {
		if _, err := agent.CheckAssertion(assertion, k.keys, id, h.audience, h.now()); err == nil {
			return h.knownReads, k.limiter.wait(r.Context())
		}
	}
	return h.unknownReads, h.admitUnknown(r, h.tokens, h.tokensOf, h.limits.TokenRate)
}

// lookupFactor is the number of token lookups for unknown callers per granted access token.
const lookupFactor = 4

// admitToken does the same for an access token. A token that this replica granted, or saw with a
// valid proof, belongs to an agent. Other clients may invent any number of tokens.
func (h *Hub) admitToken(r *http.Request, token [sha256.Size]byte) (semaphore, error) {
	if _, ok := h.accesses.get(string(token[:])); ok {
		return h.knownReads, nil
	}
	return h.unknownReads,
		h.admitUnknown(r, h.lookups, h.lookupsOf, lookupFactor*h.limits.TokenRate)
}

// rememberToken caches the access token of an agent.
func (h *Hub) rememberToken(token string) {
	sum := sha256.Sum256([]byte(token))
	h.accesses.mu.Lock()
	defer h.accesses.mu.Unlock()
	h.accesses.put(string(sum[:]), struct{}{})
}

// admitUnknown waits for the limit of the caller's address and then for the limit of all unknown
// callers.
func (h *Hub) admitUnknown(r *http.Request, all *rateLimiter, by *generationCache[*rateLimiter],
	rate int) error {
	address := peer.Address(r, h.limits.Proxies)
	by.mu.Lock()
	lane, ok := by.find(address)
	if !ok {
		lane = newRateLimiter(max(rate/addressShare, 1), h.limits.Queue/2)
		by.put(address, lane)
	}
	by.mu.Unlock()
	if err := lane.wait(r.Context()); err != nil {
		return err
	}
	return all.wait(r.Context())
}
