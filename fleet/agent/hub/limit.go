package hub

import (
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"net/http"
	"net/netip"
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

// admission decides how long requests wait before they cost the database.
type admission struct {
	audience string
	now      func() time.Time
	proxies  []netip.Prefix
	maxWait  time.Duration

	openings *rateLimiter
	joins    callerLimit
	tokens   callerLimit
	lookups  callerLimit

	agents       generationCache[knownAgent]
	accessTokens generationCache[struct{}] // by SHA-256
	unknownReads semaphore                 // reads for unknown clients
	knownReads   semaphore                 // reads for known agents
}

// callerLimit limits unknown callers, in total and by address.
type callerLimit struct {
	rate      int
	all       *rateLimiter
	byAddress *generationCache[*rateLimiter]
}

func newAdmission(l Limits, audience string, now func() time.Time) *admission {
	limit := func(rate int) callerLimit {
		return callerLimit{rate: rate, all: newRateLimiter(rate, l.Queue),
			byAddress: &generationCache[*rateLimiter]{size: maxAddresses}}
	}
	a := &admission{audience: audience, now: now, proxies: l.Proxies, maxWait: l.Queue,
		openings: newRateLimiter(l.OpenRate, l.Queue), joins: limit(l.JoinRate),
		tokens: limit(l.TokenRate), lookups: limit(lookupsPerToken * l.TokenRate),
		unknownReads: make(semaphore, l.Asks), knownReads: make(semaphore, l.Asks)}
	a.agents.size, a.accessTokens.size = maxKnown, maxKnown
	return a
}

// rememberAgent caches the keys of an agent with a verified proof.
func (a *admission) rememberAgent(known registry.Agent) {
	a.agents.mu.Lock()
	defer a.agents.mu.Unlock()
	k, ok := a.agents.find(known.ID)
	if !ok {
		k = knownAgent{
			limiter: &rateLimiter{interval: knownInterval, burst: knownBurst * knownInterval,
				maxWait: 0}}
	}
	k.keys = known.Keys
	a.agents.put(known.ID, k)
}

// admitAssertion waits for the rate limit that applies to an assertion, and returns the semaphore
// for its query.
func (a *admission) admitAssertion(r *http.Request, assertion, id string) (semaphore, error) {
	if k, ok := a.agents.get(id); ok {
		if _, err := agent.CheckAssertion(assertion, k.keys, id, a.audience, a.now()); err == nil {
			return a.knownReads, k.limiter.wait(r.Context())
		}
	}
	return a.unknownReads, a.admitUnknown(r, a.tokens)
}

// lookupsPerToken is the number of token lookups for unknown callers per granted access token.
const lookupsPerToken = 4

// admitToken does the same for an access token. A token that this replica granted, or saw with a
// valid proof, belongs to an agent. Other clients may invent any number of tokens.
func (a *admission) admitToken(r *http.Request, token [sha256.Size]byte) (semaphore, error) {
	if _, ok := a.accessTokens.get(string(token[:])); ok {
		return a.knownReads, nil
	}
	return a.unknownReads, a.admitUnknown(r, a.lookups)
}

// rememberToken caches the access token of an agent.
func (a *admission) rememberToken(token string) {
	sum := sha256.Sum256([]byte(token))
	a.accessTokens.mu.Lock()
	defer a.accessTokens.mu.Unlock()
	a.accessTokens.put(string(sum[:]), struct{}{})
}

// admitUnknown waits for the limit of the caller's address and then for the limit of all unknown
// callers.
func (a *admission) admitUnknown(r *http.Request, limit callerLimit) error {
	address := peer.Address(r, a.proxies)
	limit.byAddress.mu.Lock()
	own, ok := limit.byAddress.find(address)
	if !ok {
		own = newRateLimiter(max(limit.rate/addressShare, 1), a.maxWait/2)
		limit.byAddress.put(address, own)
	}
	limit.byAddress.mu.Unlock()
	if err := own.wait(r.Context()); err != nil {
		return err
	}
	return limit.all.wait(r.Context())
}

// rateLimiter admits callers at a bounded rate, first come, first served. Each caller gets its slot
// when it arrives, so that no later one overtakes it. A caller that would wait longer than maxWait
// is rejected with a retry time; retry times are spread at the same rate. A caller that leaves
// early wastes its slot: the rate stays bounded.
type rateLimiter struct {
	interval time.Duration // between two callers
	burst    time.Duration // admitted at once after an idle period, as a duration
	maxWait  time.Duration // longer waits are rejected

	mu        sync.Mutex
	next      time.Time // the first free slot
	nextRetry time.Time // the first free retry time of rejected callers
	waiters   int       // callers that wait now
}

// maxRetryAfter bounds the retry time of a rejected caller.
const maxRetryAfter = 2 * time.Minute

func newRateLimiter(rate int, queue time.Duration) *rateLimiter {
	every := time.Second / time.Duration(rate)
	return &rateLimiter{interval: every, burst: time.Second / 10, maxWait: queue}
}

// busyError rejects a caller.
type busyError struct{ after time.Duration }

func (*busyError) Error() string { return "too many at once" }

// wait returns when the caller's slot begins. It returns a busyError at once if that is too late.
func (a *rateLimiter) wait(ctx context.Context) error {
	moment, err := a.reserve(time.Now())
	if err != nil {
		return err
	}
	defer a.done()
	pause := time.Until(moment)
	if pause <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reserve assigns the caller's slot.
func (a *rateLimiter) reserve(now time.Time) (time.Time, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	moment := latest(a.next, now.Add(-a.burst))
	if moment.Sub(now) > a.maxWait {
		return time.Time{}, &busyError{a.retryAfter(now)}
	}
	a.next = moment.Add(a.interval)
	a.waiters++
	return moment, nil
}

// retryAfter returns the pause of a rejected caller. By then the queue is empty and all callers
// rejected before have come back.
func (a *rateLimiter) retryAfter(now time.Time) time.Duration {
	a.nextRetry = latest(a.nextRetry, now.Add(a.maxWait)).Add(a.interval)
	if after := a.nextRetry.Sub(now); after <= maxRetryAfter {
		return after
	}
	a.nextRetry = now.Add(maxRetryAfter)
	return a.maxWait + rand.N(maxRetryAfter-a.maxWait+1)
}

func (a *rateLimiter) done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiters--
}

func (a *rateLimiter) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.waiters
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// semaphore bounds concurrency.
type semaphore chan struct{}

func (s semaphore) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s semaphore) release() { <-s }

// run calls f while it holds a slot.
func (s semaphore) run(ctx context.Context, f func() error) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release()
	return f()
}
