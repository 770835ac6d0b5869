package reconciler

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

const (
	// reviewTimeout bounds one request for reviews. A file or deletion that the answer lacks is
	// held, and the request is repeated.
	reviewTimeout = 10 * time.Second
	// reviewPatience bounds a request in the background: a span of many commits takes many
	// requests.
	reviewPatience = 2 * time.Minute
	// reviewFirst is the pause before the reviews of a span are requested again. It doubles up to
	// reviewLast, because a Git host counts requests.
	reviewFirst = time.Second
	reviewLast  = 10 * time.Minute
	// reviewHasty is how often an event hastens the request for a span: a late delivery counts at
	// once, and a change that stays unreviewed for long keeps its own rhythm.
	reviewHasty = 8
)

// asker requests the reviews of spans of the branch, each in its own rhythm, and in the background
// of other commits.
type asker struct {
	reviews Reviews
	first   time.Duration
	log     *slog.Logger
	wake    func() // called when an answer has changed

	mu    sync.Mutex
	spans map[reviews.Span]*question
	until time.Time // no request before, because the last one failed
	away  error
	kick  pacing.Signal
}

// question is one span with held changes.
type question struct {
	tries  int
	asked  time.Time
	next   time.Time
	answer *reviews.Reviewed // the last complete one
	news   bool              // the loop has not planned with the answer
}

func newAsker(r Reviews, poll time.Duration, log *slog.Logger, wake func()) *asker {
	return &asker{
		reviews: r, first: min(poll, reviewFirst), log: log, wake: wake,
		spans: map[reviews.Span]*question{}, kick: pacing.NewSignal(),
	}
}

// ask requests the reviews of a commit that is planned now. After a recent failure it returns that
// failure at once.
func (a *asker) ask(ctx context.Context, span reviews.Span) (reviews.Reviewed, error) {
	a.mu.Lock()
	until, away := a.until, a.away
	a.mu.Unlock()
	if away != nil && time.Now().Before(until) {
		return reviews.Reviewed{}, away
	}
	seen, err := a.question(ctx, span, reviewTimeout)
	a.mu.Lock()
	defer a.mu.Unlock()
	q := &question{asked: time.Now(), next: time.Now().Add(a.first)}
	if err == nil {
		q.answer = &seen
	}
	a.spans[span] = q
	return seen, err
}

func (a *asker) question(ctx context.Context, span reviews.Span,
	most time.Duration) (reviews.Reviewed,
	error) {
	asked, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	seen, err := a.reviews.Reviewed(asked, span.Base, span.Head)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return seen, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.away, a.until = nil, time.Time{}
	case a.away == nil:
		a.away, a.until = err, time.Now().Add(a.first)
	default:
		a.away = err
	}
	return seen, err
}

// follow sets the spans with held changes, and forgets the answers for other spans.
func (a *asker) follow(spans []reviews.Span) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := map[reviews.Span]*question{}
	for _, s := range spans {
		if held[s] = a.spans[s]; held[s] == nil {
			held[s] = &question{next: time.Now()}
		}
	}
	a.spans = held
	a.kick.Set()
}

// forget drops all answers: another replica may have led in the meantime.
func (a *asker) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spans, a.away, a.until = map[reviews.Span]*question{}, nil, time.Time{}
}

// hasten requests the reviews of recently held spans now, because an event has arrived.
func (a *asker) hasten() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.spans {
		if soon := q.asked.Add(a.first); q.tries <= reviewHasty && soon.Before(q.next) {
			q.next = soon
		}
	}
	a.kick.Set()
}

// news are the answers that the loop has not planned with.
func (a *asker) news() map[reviews.Span]reviews.Reviewed {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[reviews.Span]reviews.Reviewed{}
	for s, q := range a.spans {
		if q.news {
			out[s] = *q.answer
		}
	}
	return out
}

// taken marks answers that the loop has planned with.
func (a *asker) taken(answers map[reviews.Span]reviews.Reviewed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s, seen := range answers {
		if q := a.spans[s]; q != nil && q.news && reflect.DeepEqual(*q.answer, seen) {
			q.news = false
		}
	}
}

// run sends requests until ctx ends.
func (a *asker) run(ctx context.Context) {
	for ctx.Err() == nil {
		span, pause, due := a.due()
		if !due {
			timer := time.NewTimer(pause)
			select {
			case <-ctx.Done():
			case <-a.kick:
			case <-timer.C:
			}
			timer.Stop()
			continue
		}
		seen, err := a.question(ctx, span, reviewPatience)
		if ctx.Err() == nil {
			a.keep(span, seen, err)
		}
	}
}

// due is the next span, or the time until its request is due.
func (a *asker) due() (span reviews.Span, pause time.Duration, due bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pause = reviewLast
	for s, q := range a.spans {
		if left := time.Until(q.next); left < pause {
			span, pause = s, left
		}
	}
	return span, pause, pause <= 0
}

func (a *asker) keep(span reviews.Span, seen reviews.Reviewed, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.spans[span]
	if q == nil {
		return
	}
	q.tries++
	pause := min(a.first<<min(q.tries, 30), reviewLast)
	q.asked = time.Now()
	q.next = q.asked.Add(pause)
	if err != nil {
		a.until = q.next
		a.log.Debug("whether a revision was reviewed is still not known", "revision",
			span.Head.Short(), "error", err)
		return
	}
	if q.answer == nil || !reflect.DeepEqual(*q.answer, seen) {
		q.answer, q.news = &seen, true
		a.wake()
	}
}
