package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/view"
)

// Limits of one token at one replica. Decisions, such as a stop, never count, and never wait for
// reads with the same token.
const (
	readsAtOnce  = 4
	readsWaiting = 32
	readsWait    = 10 * time.Second
)

// readLimits bounds the concurrent reads of one token, so that a client with many requests waits for
// itself and does not delay others.
type readLimits struct {
	mu sync.Mutex
	of map[string]*tokenReads
}

type tokenReads struct {
	semaphore chan struct{}
	users     int // in progress or waiting
}

// enter waits for the token's semaphore; leave releases it. It returns false if too many reads wait
// already, or if the wait times out.
func (s *readLimits) enter(ctx context.Context, token string) (leave func(), ok bool) {
	s.mu.Lock()
	if s.of == nil {
		s.of = map[string]*tokenReads{}
	}
	mine := s.of[token]
	if mine == nil {
		mine = &tokenReads{semaphore: make(chan struct{}, readsAtOnce)}
		s.of[token] = mine
	}
	if mine.users == readsAtOnce+readsWaiting {
		s.mu.Unlock()
		return nil, false
	}
	mine.users++
	s.mu.Unlock()
	gone := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(s.of, token)
		}
	}
	timer := time.NewTimer(readsWait)
	defer timer.Stop()
	select {
	case mine.semaphore <- struct{}{}:
		return func() { <-mine.semaphore; gone() }, true
	case <-ctx.Done():
	case <-timer.C:
	}
	gone()
	return nil, false
}

// admitRead admits the token's read, or returns the refusal. Decisions, and streams, which mostly
// wait, do not count.
func (s *Server) admitRead(r *http.Request, token view.Token) (leave func(), refusal *wire.Refusal) {
	if r.Method != http.MethodGet || isStream(r) {
		return func() {}, nil
	}
	leave, ok := s.readLimits.enter(r.Context(), token.ID)
	if !ok {
		return nil, problem(http.StatusTooManyRequests, "",
			"this token has 4 reads in progress at this replica, and the others have waited too "+
				"long or are too many",
			"ask again after Retry-After seconds, fewer at a time, or give each program a token "+
				"of its own")
	}
	return leave, nil
}

// limitReads is shared for the routes of the API.
func (s *Server) limitReads(ctx huma.Context, token view.Token, next func(huma.Context)) {
	r, w := unwrap(ctx)
	leave, refusal := s.admitRead(r, token)
	if refusal != nil {
		w.Header().Set("Retry-After", "1")
		writeProblem(w, refusal)
		return
	}
	defer leave()
	next(huma.WithValue(ctx, callerKey{}, token))
}
