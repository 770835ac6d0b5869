package webhook

import (
	"slices"
	"sync"
	"time"
)

// rooms bound how many bodies are in memory at once. Whoever sends a body holds a room, also before
// anything proves who that is. So a full house makes room: of the addresses with the most rooms the
// oldest body that still comes in is cut. A body of an honest sender comes in within milliseconds,
// so that strangers who send slowly are the ones who go.
type rooms struct {
	size int

	mu    sync.Mutex
	taken []*room // the oldest first
}

// room is one body's.
type room struct {
	of      *rooms
	address string
	since   time.Time
	cut     func() // ends the reading; nil once the body is there
}

// patience is how long a body comes in before another one of the same address may take its room.
const patience = time.Second

// enter takes a room for an address, or reports that none can be had. cut ends the reading of its
// body: it is called at most once, and not after arrived or leave.
func (s *rooms) enter(address string, now time.Time, cut func()) (*room, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.taken) >= s.size && !s.makeRoom(address, now) {
		return nil, false
	}
	r := &room{of: s, address: address, since: now, cut: cut}
	s.taken = append(s.taken, r)
	return r, true
}

// makeRoom cuts one body that comes in. An address that has more rooms than the newcomer's gives
// one up at once; among those that have as many, as behind one proxy, a body has patience's time.
func (s *rooms) makeRoom(address string, now time.Time) bool {
	of := map[string]int{}
	for _, r := range s.taken {
		of[r.address]++
	}
	var victim *room
	for _, r := range s.taken {
		if r.cut != nil && (of[r.address] > of[address] || now.Sub(r.since) >= patience) &&
			(victim == nil || of[r.address] > of[victim.address]) {
			victim = r
		}
	}
	if victim == nil {
		return false
	}
	cut := victim.cut
	s.drop(victim)
	cut()
	return true
}

// arrived says that the body is there, or comes no more: it is not cut from now on. It reports
// whether it kept its room.
func (r *room) arrived() bool {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.cut = nil
	return slices.Contains(r.of.taken, r)
}

// leave gives the room up.
func (r *room) leave() {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.of.drop(r)
}

func (s *rooms) drop(gone *room) {
	gone.cut = nil
	s.taken = slices.DeleteFunc(s.taken, func(r *room) bool { return r == gone })
}
