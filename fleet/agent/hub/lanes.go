package hub

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
)

// Known agents have a lane of their own: an assertion that a key proves which this replica has seen
// before waits for nobody. All others are strangers until the store has been asked, and wait: first for
// their address's turn, then for one in the strangers' lane. So nobody without a key keeps an agent from
// its access token, and one address does not take all of the strangers' lane.
const (
	maxKnown      = 20_000 // agents whose keys are kept, twice over
	maxAddresses  = 20_000 // likewise of addresses
	addressShare  = 4      // the part of the strangers' rate that one address has: 1/4
	knownInterval = time.Second
	knownBurst    = 10 // access tokens that one agent may be given at once
)

// recent keeps the latest values, two generations of them: the older one goes when the younger is full.
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
		k = known{lane: &admission{every: knownInterval, burst: knownBurst * knownInterval, queue: 0}}
	}
	k.keys = a.Keys
	h.known.put(a.ID, k)
}

// admit waits for the turn of whoever shows an assertion.
func (h *Hub) admit(r *http.Request, assertion, id string) error {
	if k, ok := h.known.get(id); ok {
		if _, err := agent.CheckAssertion(assertion, k.keys, id, h.audience, h.now()); err == nil {
			return k.lane.wait(r.Context())
		}
	}
	return h.stranger(r, h.tokens, h.tokensOf, h.limits.TokenRate)
}

// stranger waits for the turn of an address, and then for one in the lane of all.
func (h *Hub) stranger(r *http.Request, all *admission, by *recent[*admission], rate int) error {
	address := h.address(r)
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

// address is who asks: the peer, or, when that is a proxy which the operator trusts, the last address in
// X-Forwarded-For that is none. An IPv6 client has its network of 64 bits.
func (h *Hub) address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	at, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		if !h.trusted(at) {
			break
		}
		next, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			break
		}
		at = next
	}
	at = at.Unmap().WithZone("")
	if at.Is6() {
		if network, err := at.Prefix(64); err == nil {
			return network.String()
		}
	}
	return at.String()
}

func (h *Hub) trusted(at netip.Addr) bool {
	return slices.ContainsFunc(h.limits.Proxies, func(p netip.Prefix) bool { return p.Contains(at.Unmap()) })
}
