package webhook

import (
	"errors"
	"time"

	"argosy.dev/argosy/fleet/forge"
)

const (
	// A look that is put off comes back after a quarter of the time that it has waited, within
	// these bounds: the branch is mostly applied in a second, and each look asks the forge.
	soonest = time.Second
	latest  = 30 * time.Second

	// abandoned is how long a commit of the merge queue is waited for whose ref stands elsewhere:
	// the queue may have dropped it.
	abandoned = 10 * time.Minute

	mostWaiting = 10_000 // looks of which it is known since when they wait
)

// errTwice says that a pull request is being looked at for another reason: two looks at once would
// each say what there is to say.
var errTwice = errors.New("the pull request is being looked at already")

// later makes an error that says "not now" one that says when. Nothing of it has failed, however
// long it takes.
func (r *Reviewer) later(l forge.Recheck, err error) error {
	now, key := r.Now(), l.Key()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !notNow(err) {
		delete(r.waiting, key)
		return err
	}
	since, waits := r.waiting[key]
	if !waits {
		if len(r.waiting) >= mostWaiting {
			clear(r.waiting)
		}
		since, r.waiting[key] = now, now
	}
	if l.Kind == forge.RecheckGroup && errors.Is(err, ErrMoved) && now.Sub(since) > abandoned {
		delete(r.waiting, key)
		r.Log.Info("a commit of the merge queue is not judged: the queue has let go of it", "ref",
			l.Ref, "head", l.Head)
		return nil
	}
	return &forge.Busy{Until: now.Add(min(max(now.Sub(since)/4, soonest), latest)), Err: err}
}

func notNow(err error) bool {
	for _, e := range []error{ErrNotLeading, ErrUnsettled, ErrMoved, errTwice} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// enter begins the look at a pull request; false: somebody else is at it.
func (r *Reviewer) enter(number int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looking[number] {
		return false
	}
	r.looking[number] = true
	return true
}

func (r *Reviewer) leave(number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.looking, number)
}
