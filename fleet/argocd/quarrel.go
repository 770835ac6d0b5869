package argocd

import (
	"time"

	"argosy.dev/argosy/fleet"
)

// quarrel is a field of ours that somebody else keeps changing. The first change is overwritten at
// once. One that comes back within the window is a conflict: it is told, and overwritten again only
// after pauses that double, so that two writers never chase each other.
type quarrel struct {
	last  time.Time // we overwrote
	pause time.Duration
}

const longestPause = 30 * time.Minute

// enter asks whether a drift of the object may be overwritten now; if not, how long it is to wait.
func (q *quarrels) enter(key fleet.ObjectKey, now time.Time,
	window time.Duration) (wait time.Duration, again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	known, quarrelling := q.of[key]
	switch {
	case !quarrelling || now.Sub(known.last) > known.pause+window:
		q.of[key] = quarrel{last: now, pause: window}
		return 0, false
	case now.Sub(known.last) < known.pause:
		return known.pause - now.Sub(known.last), true
	}
	q.of[key] = quarrel{last: now, pause: min(2*known.pause, longestPause)}
	return 0, true
}

// forget ends what was known of an object, when it is gone or its row has changed the field itself.
func (q *quarrels) forget(key fleet.ObjectKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.of, key)
}
