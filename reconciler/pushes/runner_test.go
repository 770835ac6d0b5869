package pushes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet/mirror"
)

// shelf is a Store in memory that fails as often as it should.
type shelf struct {
	mu       sync.Mutex
	objects  []mirror.WatchedObject
	watches  []mirror.SourceWatch
	at       int64
	waiting  []mirror.SourcePush
	handled  []int64
	failures int
	broken   int64 // a push that is never handled
}

func (s *shelf) fails() error {
	if s.failures--; s.failures >= 0 {
		return errors.New("the database is away")
	}
	return nil
}

func (s *shelf) SourcePushes(_ context.Context, limit int) ([]mirror.SourcePush, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.waiting[:min(limit, len(s.waiting))]), s.fails()
}

func (s *shelf) UnwatchedObjects(_ context.Context, limit int) (int64, []mirror.WatchedObject,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []mirror.WatchedObject
	for _, o := range s.objects {
		if o.Seq > s.at && len(all) < limit {
			all = append(all, o)
		}
	}
	return s.at, all, nil
}

func (s *shelf) Watch(_ context.Context, from, to int64, _ []mirror.WatchedObject,
	watches []mirror.SourceWatch) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from != s.at {
		return false, nil
	}
	s.at, s.watches = to, append(s.watches, watches...)
	return true, nil
}

func (s *shelf) RequestRefreshes(_ context.Context, p mirror.SourcePush, _, _ []string) (int,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.ID == s.broken && s.broken > 0 {
		return 0, errors.New("this push is broken")
	}
	if last := s.objects[len(s.objects)-1].Seq; s.at < last {
		return 0, fmt.Errorf("the index is at %d of %d", s.at, last)
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(w mirror.SourcePush) bool { return w.ID == p.ID })
	s.handled = append(s.handled, p.ID)
	return 2, nil
}

func (s *shelf) ExpireSourcePushes(context.Context) error { return nil }

func TestPushesAreHandledInTheirOrderAfterTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{failures: 1}
		for i := range 2*objectsAtOnce + 1 {
			o := mirror.WatchedObject{Seq: int64(i + 1), Body: []byte(
				`{"spec":{"source":{"repoURL":"https://git.example.com/a","path":"p"}}}`)}
			switch i {
			case 7:
				o.Body = []byte("no JSON")
			case 8:
				o.Body, o.Gone = nil, true
			}
			s.objects = append(s.objects, o)
		}
		for i := range 3 * pushesAtOnce {
			s.waiting = append(s.waiting, mirror.SourcePush{ID: int64(i + 1)})
		}
		var refreshes atomic.Int64
		r := NewRunner(s, slog.New(slog.DiscardHandler), func(n int) { refreshes.Add(int64(n)) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { r.Run(ctx); close(done) }()
		synctest.Wait()
		s.mu.Lock()
		if len(s.handled) != 0 {
			t.Errorf("the database was away, and %d were handled", len(s.handled))
		}
		s.mu.Unlock()
		time.Sleep(poll)
		synctest.Wait()
		s.mu.Lock()
		if len(s.handled) != 3*pushesAtOnce || refreshes.Load() != 6*pushesAtOnce ||
			len(s.watches) != 2*objectsAtOnce-1 {
			t.Errorf("%d handled, %d refreshes, %d watches", len(s.handled), refreshes.Load(),
				len(s.watches))
		}
		if !slices.IsSorted(s.handled) {
			t.Errorf("handled in the order %v", s.handled)
		}
		s.waiting = []mirror.SourcePush{{ID: 1000}}
		s.mu.Unlock()
		r.Wake()
		synctest.Wait()
		s.mu.Lock()
		if len(s.waiting) > 0 {
			t.Error("a push waits though the runner was woken")
		}
		s.broken, s.waiting = 2000, []mirror.SourcePush{{ID: 2000}, {ID: 2001}}
		s.mu.Unlock()
		r.Wake()
		synctest.Wait()
		s.mu.Lock()
		if len(s.waiting) != 1 || s.waiting[0].ID != 2000 {
			t.Errorf("beside a push that fails: %+v wait", s.waiting)
		}
		s.mu.Unlock()
		cancel()
		<-done
	})
}
