package hub

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"argosy.dev/argosy/fleet/agent"
)

// seen remembers the proofs of this replica for as long as one may hold, in two halves of that
// length, of which the older is dropped whole. Only what was proven by a key is remembered, and
// only so many of one agent, so that its size is bounded by the agents. What another replica saw is
// not known here: proofs that begin sessions are kept by the store besides, and other requests
// change nothing when they come again.
type seen struct {
	now func() time.Time

	mu         sync.Mutex
	turned     time.Time
	young, old map[[16]byte]struct{}
	count      map[string]int // of young, by agent
}

const (
	seenFor  = 2*agent.Window + 5*time.Second
	mostSeen = 5000 // proofs of one agent within seenFor: forty in a second
)

func newSeen(now func() time.Time) *seen {
	return &seen{now: now, young: map[[16]byte]struct{}{}, count: map[string]int{}, turned: now()}
}

// first remembers a proof, and refuses one that was seen before.
func (s *seen) first(agentID, proof string) error {
	var key [16]byte
	sum := sha256.Sum256([]byte(agentID + "\x00" + proof))
	copy(key[:], sum[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn()
	_, young := s.young[key]
	_, old := s.old[key]
	switch {
	case young || old:
		return seenBefore()
	case s.count[agentID] >= mostSeen:
		r := refused(http.StatusTooManyRequests, agent.CodeBusy, "this agent asks too often",
			"wait for as long as Retry-After says")
		r.after = seenFor
		return r
	}
	s.young[key] = struct{}{}
	s.count[agentID]++
	return nil
}

func seenBefore() *refusal {
	return refused(http.StatusUnauthorized, agent.CodeReplay, "this request was seen before",
		"make a new proof for each request")
}

func (s *seen) turn() {
	now := s.now()
	switch age := now.Sub(s.turned); {
	case age >= 2*seenFor:
		s.old = nil
	case age >= seenFor || age < 0:
		s.old = s.young
	default:
		return
	}
	s.young, s.count, s.turned = map[[16]byte]struct{}{}, map[string]int{}, now
}
