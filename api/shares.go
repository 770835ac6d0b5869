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

// Limits of one token at one replica. Decisions, such as a stop, are never counted, nor kept
// waiting by those who read with the same token.
const (
	readsAtOnce  = 4
	readsWaiting = 32
	readsWait    = 10 * time.Second
)

// shares bounds the reads that one token has under way, so that whoever asks much at a time waits
// for itself rather than keeps others waiting.
type shares struct {
	mu sync.Mutex
	of map[string]*share
}

type share struct {
	slots chan struct{}
	users int // under way or waiting
}

// enter waits for the token's turn to read; leave ends the read. It reports false when too many
// wait already, or when the turn does not come in time.
func (s *shares) enter(ctx context.Context, token string) (leave func(), ok bool) {
	s.mu.Lock()
	if s.of == nil {
		s.of = map[string]*share{}
	}
	mine := s.of[token]
	if mine == nil {
		mine = &share{slots: make(chan struct{}, readsAtOnce)}
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
	case mine.slots <- struct{}{}:
		return func() { <-mine.slots; gone() }, true
	case <-ctx.Done():
	case <-timer.C:
	}
	gone()
	return nil, false
}

// shared lets the token's read in, or says why not. What is no read, and streams, which mostly
// wait, pass.
func (s *Server) shared(r *http.Request, token view.Token) (leave func(), refusal *wire.Refusal) {
	if r.Method != http.MethodGet || isStream(r) {
		return func() {}, nil
	}
	leave, ok := s.shares.enter(r.Context(), token.ID)
	if !ok {
		return nil, problem(http.StatusTooManyRequests, "",
			"this token has 4 reads under way at this replica, and the others have waited too "+
				"long or are too many",
			"ask again after Retry-After seconds, fewer at a time, or give each program a token "+
				"of its own")
	}
	return leave, nil
}

// share is shared for the routes of the API.
func (s *Server) share(ctx huma.Context, token view.Token, next func(huma.Context)) {
	r, w := unwrap(ctx)
	leave, refusal := s.shared(r, token)
	if refusal != nil {
		w.Header().Set("Retry-After", "1")
		writeProblem(w, refusal)
		return
	}
	defer leave()
	next(huma.WithValue(ctx, callerKey{}, token))
}
