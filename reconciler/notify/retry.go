package notify

import (
	"time"

	"argosy.dev/argosy/fleet/mirror"
)

// Attempts of one message. A receiver that refuses gets fewer: the next attempt helps only if
// somebody has changed a setting meanwhile.
const (
	Attempts        = 12 // over some nine hours
	AttemptsRefused = 3
)

const (
	firstPause = 10 * time.Second
	lastPause  = 2 * time.Hour
)

// Outcome is the outcome of a failed attempt, the n-th of at most so many. The pauses double, and
// are at least as long as the receiver asks.
func Outcome(n int, why string, most int, atLeast time.Duration) mirror.NotifyOutcome {
	if n >= most {
		return mirror.NotifyOutcome{State: mirror.NotificationFailed, Answer: why}
	}
	pause := min(firstPause<<min(max(n-1, 0), 20), lastPause)
	return mirror.NotifyOutcome{State: mirror.NotificationPending, Answer: why,
		Again: max(pause, atLeast)}
}
