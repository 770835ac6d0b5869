package hub

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

// replayCache remembers the proofs that this replica has verified, for as long as they are valid.
// It has two generations of that length and drops the older one as a whole. It remembers only
// verified proofs, and a bounded number per agent, so that the number of agents bounds its size.
// Other replicas do not share it: the store remembers the proofs that open sessions, and other
// requests are idempotent.
type replayCache struct {
	now func() time.Time

	mu         sync.Mutex
	rotatedAt  time.Time
	young, old map[[16]byte]struct{}
	count      map[string]int // entries of young, by agent
}

const (
	replayWindow = 2*agent.Window + 5*time.Second
	maxProofs    = 5000 // proofs of one agent within replayWindow: forty per second
)

func newReplayCache(now func() time.Time) *replayCache {
	return &replayCache{now: now, young: map[[16]byte]struct{}{}, count: map[string]int{},
		rotatedAt: now()}
}

// add remembers a proof, and rejects one that was used before.
func (s *replayCache) add(agentID, proof string) error {
	var key [16]byte
	sum := sha256.Sum256([]byte(agentID + "\x00" + proof))
	copy(key[:], sum[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rotate()
	_, young := s.young[key]
	_, old := s.old[key]
	switch {
	case young || old:
		return replayedRequest()
	case s.count[agentID] >= maxProofs:
		r := refused(http.StatusTooManyRequests, agent.CodeBusy,
			"this agent sends too many requests",
			"wait for the time in Retry-After")
		r.after = replayWindow
		return r
	}
	s.young[key] = struct{}{}
	s.count[agentID]++
	return nil
}

func replayedRequest() *refusal {
	return refused(http.StatusUnauthorized, agent.CodeReplay, "this request was received before",
		"make a new proof for each request")
}

func (s *replayCache) rotate() {
	now := s.now()
	switch age := now.Sub(s.rotatedAt); {
	case age >= 2*replayWindow:
		s.old = nil
	case age >= replayWindow || age < 0:
		s.old = s.young
	default:
		return
	}
	s.young, s.count, s.rotatedAt = map[[16]byte]struct{}{}, map[string]int{}, now
}
