package webhook

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet/peer"
)

const (
	maxBody     = 25 << 20         // bytes; GitHub sends no larger body
	smallBody   = 1 << 20          // bytes; up to smallBodies of them are read in parallel
	bodyTime    = 20 * time.Second // to read the largest body
	minBodyTime = 3 * time.Second  // to read an empty body; each byte adds to it
	bodyRate    = 1 << 20          // bytes per second that a sender must reach
	smallBodies = 64
	largeBodies = 2
	// before another body from the same address may take the place of one being read
	admissionTime = time.Second
)

// bodies bounds the memory that unauthenticated senders can use.
type bodies struct {
	small, large admission
	proxies      []netip.Prefix // whose X-Forwarded-For names the sender's address
}

func newBodies(proxies []netip.Prefix) *bodies {
	return &bodies{small: admission{size: smallBodies}, large: admission{size: largeBodies},
		proxies: proxies}
}

// read reads the body into memory: small bodies in parallel, large ones a few at a time. leave
// frees their slots.
func (v *bodies) read(w http.ResponseWriter, r *http.Request) (body []byte, leave func(),
	err error) {
	control := http.NewResponseController(w)
	// This deadline ends a body that trickles in. A ResponseWriter without one keeps the server's
	// deadline of the connection.
	_ = control.SetReadDeadline(time.Now().Add(timeFor(r.ContentLength)))
	cut := func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }
	address, full := peer.Address(r, v.proxies),
		refuse(http.StatusServiceUnavailable, "too many deliveries at once")
	small, ok := v.small.enter(address, time.Now(), cut)
	if !ok {
		return nil, nil, full
	}
	leave, complete := small.leave, small.complete
	body, err = io.ReadAll(io.LimitReader(r.Body, smallBody+1))
	if err == nil && len(body) > smallBody {
		more, ok := v.large.enter(address, time.Now(), cut)
		if !ok {
			small.leave()
			return nil, nil, full
		}
		leave = func() { more.leave(); small.leave() }
		complete = func() bool { return more.complete() && small.complete() }
		var rest []byte
		rest, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody-int64(len(body))))
		body = append(body, rest...)
	}
	if !complete() {
		leave()
		return nil, nil, full // another body took its place
	}
	if err == nil {
		return body, leave, nil
	}
	leave()
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, nil, refuse(http.StatusRequestEntityTooLarge, "a delivery has at most 25 MiB")
	}
	return nil, nil, refuse(http.StatusRequestTimeout, "the body did not arrive")
}

// timeFor returns the time allowed for a body of size bytes; a negative size is unknown.
func timeFor(size int64) time.Duration {
	if size < 0 {
		return bodyTime
	}
	return min(minBodyTime+time.Duration(size)*time.Second/bodyRate, bodyTime)
}

// admission is a semaphore for bodies in memory. Its slots are taken before a signature proves the
// sender. If all are taken, it cancels the oldest body still being read from the address with the
// most slots: a Git host's body arrives within milliseconds, a slow sender's does not.
type admission struct {
	size int

	mu    sync.Mutex
	taken []*slot // oldest first
}

// slot is the place of one body.
type slot struct {
	of      *admission
	address string
	since   time.Time
	cancel  func() // ends the read; nil once the body is complete
}

// enter takes a slot; false if none is free. cancel ends the read of the body: it is called at most
// once, and never after complete or leave.
func (a *admission) enter(address string, now time.Time, cancel func()) (*slot, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.taken) >= a.size && !a.evict(address, now) {
		return nil, false
	}
	s := &slot{of: a, address: address, since: now, cancel: cancel}
	a.taken = append(a.taken, s)
	return s, true
}

// evict cancels the read of one body. An address with more slots than the newcomer's loses one at
// once; among addresses with as many slots, such as those behind one proxy, a body has
// admissionTime.
func (a *admission) evict(address string, now time.Time) bool {
	of := map[string]int{}
	for _, s := range a.taken {
		of[s.address]++
	}
	var victim *slot
	for _, s := range a.taken {
		if s.cancel != nil && (of[s.address] > of[address] || now.Sub(s.since) >= admissionTime) &&
			(victim == nil || of[s.address] > of[victim.address]) {
			victim = s
		}
	}
	if victim == nil {
		return false
	}
	cancel := victim.cancel
	a.drop(victim)
	cancel()
	return true
}

// complete ends the chance of being evicted; false if the slot was evicted before.
func (s *slot) complete() bool {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.cancel = nil
	return slices.Contains(s.of.taken, s)
}

func (s *slot) leave() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.drop(s)
}

func (a *admission) drop(gone *slot) {
	gone.cancel = nil
	a.taken = slices.DeleteFunc(a.taken, func(s *slot) bool { return s == gone })
}
