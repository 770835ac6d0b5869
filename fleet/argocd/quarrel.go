package argocd

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// fieldConflict is an object with a field that another manager keeps changing. We overwrite the
// first change at once. A second change within the window is a conflict: it is reported, and
// overwritten after pauses that double, so that two writers do not chase each other.
type fieldConflict struct {
	last  time.Time // our last overwrite
	pause time.Duration
}

const maxConflictPause = 30 * time.Minute

// mayOverwrite returns 0 if a drift of the object may be overwritten now, and otherwise the
// remaining pause.
func (q *fieldConflicts) mayOverwrite(key fleet.ObjectKey, now time.Time,
	window time.Duration) (wait time.Duration, again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	known, quarrelling := q.of[key]
	switch {
	case !quarrelling || now.Sub(known.last) > known.pause+window:
		q.of[key] = fieldConflict{last: now, pause: window}
		return 0, false
	case now.Sub(known.last) < known.pause:
		return known.pause - now.Sub(known.last), true
	}
	q.of[key] = fieldConflict{last: now, pause: min(2*known.pause, maxConflictPause)}
	return 0, true
}

// forget drops the history of an object after its deletion or a change of its row.
func (q *fieldConflicts) forget(key fleet.ObjectKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.of, key)
}
