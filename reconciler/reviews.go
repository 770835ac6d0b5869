package reconciler

import (
	"context"
	"reflect"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan"
)

// Reviews says which deletions people saw before they were merged.
type Reviews interface {
	// Reviewed are the deletions that the reviewed plans show of the pull requests that were merged between base and head. It is complete or an
	// error.
	Reviewed(ctx context.Context, base, head fleet.Revision) (map[fleet.ObjectKey]fleet.ReviewedDeletion, error)
}

const (
	// reviewTimeout bounds how long a pass waits for the reviews. What they do not say in time is held, and asked for again.
	reviewTimeout = 10 * time.Second
	// reviewEvery is how often that is at most, however often the loop is woken: a forge counts requests.
	reviewEvery = 15 * time.Second
)

// reviewed asks who saw the deletions of a plan. Without any, and without anybody to ask, it costs nothing.
func (l *Loop) reviewed(ctx context.Context, r *plan.Request, p *plan.Plan) {
	if l.Reviews == nil || r.Review != nil || p.Waiting != nil || p.Counts.Deleted+p.Counts.Held == len(p.Approved) {
		return
	}
	asked, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	seen, err := l.Reviews.Reviewed(asked, p.Base, r.Revision)
	l.askedAt = time.Now()
	if err != nil && ctx.Err() == nil {
		l.Log.Warn("whether the deletions were reviewed is not known; they are held until it is", "revision", r.Revision.Short(), "error", err)
	}
	r.Review = &plan.Review{Deletions: seen, Unknown: err}
}

// askAgain asks once more about deletions that are held because nobody is known to have reviewed them, and plans anew when the answer is
// another one. It comes after what a pass is for: commits do not wait for the reviewers of earlier ones.
func (l *Loop) askAgain(ctx context.Context, lease fleet.Lease) error {
	if l.Reviews == nil || len(l.spans) == 0 || l.unread() || time.Since(l.askedAt) < min(l.Poll, reviewEvery) {
		return nil
	}
	earlier := l.earlier(ctx)
	l.askedAt = time.Now()
	if reflect.DeepEqual(earlier, l.answered) {
		return nil
	}
	r := &plan.Request{Revision: l.world.Revision(), Relation: plan.RelationSame, Review: &plan.Review{Earlier: earlier}, Unheard: l.unheard(), Stands: l.stands()}
	if err := l.lately(ctx, r); err != nil {
		return err
	}
	if _, err := l.step(ctx, lease, Head{Revision: r.Revision}, r); err != nil {
		return err
	}
	l.answered = earlier
	return nil
}

// earlier is the answers that could be had.
func (l *Loop) earlier(ctx context.Context) map[plan.Span]map[fleet.ObjectKey]fleet.ReviewedDeletion {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	out := map[plan.Span]map[fleet.ObjectKey]fleet.ReviewedDeletion{}
	for _, s := range l.spans {
		seen, err := l.Reviews.Reviewed(ctx, s.Base, s.Head)
		if err != nil {
			l.Log.Debug("whether deletions were reviewed is still not known", "revision", s.Head.Short(), "error", err)
			continue
		}
		out[s] = seen
	}
	return out
}

// beside runs what is to run while this replica leads, from when it knows what is applied.
type beside struct {
	run     func(context.Context)
	cancel  context.CancelFunc
	stopped chan struct{}
}

func (b *beside) start(ctx context.Context) {
	if b.run == nil || b.stopped != nil {
		return
	}
	ctx, b.cancel = context.WithCancel(ctx)
	b.stopped = make(chan struct{})
	go func() {
		defer close(b.stopped)
		b.run(ctx)
	}()
}

// stop ends it and waits for its end.
func (b *beside) stop() {
	if b.stopped != nil {
		b.cancel()
		<-b.stopped
	}
}
