package reconciler

import (
	"context"
	"log/slog"
	"time"
)

// bell says "look" once, a while after it was rung first, however often it is rung meanwhile. It is
// a hint: what it does not say is found by the next poll.
type bell struct {
	pause time.Duration
	rung  chan struct{}
	say   func(context.Context) error
}

func newBell(pause time.Duration, say func(context.Context) error) *bell {
	return &bell{pause: pause, rung: make(chan struct{}, 1), say: say}
}

// ring never waits.
func (b *bell) ring() {
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// run speaks until ctx ends. What rings while it speaks is said the next time.
func (b *bell) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.rung:
		}
		if !wait(ctx, b.pause) {
			return nil
		}
		select {
		case <-b.rung:
		default:
		}
		if err := b.say(ctx); err != nil && ctx.Err() == nil {
			slog.Debug("no notification; the loop polls", "error", err)
		}
	}
}
