package pacing

import (
	"context"
	"log/slog"
	"time"
)

// Debouncer calls a function once, a pause after the first of several triggers.
type Debouncer struct {
	pause     time.Duration
	do        func(context.Context) error
	log       *slog.Logger
	triggered Signal
}

// NewDebouncer returns a debouncer of do. A failed call is logged at level debug and not repeated:
// do is a hint, and its receiver polls as well.
func NewDebouncer(pause time.Duration, log *slog.Logger,
	do func(context.Context) error) *Debouncer {
	return &Debouncer{pause: pause, do: do, log: log, triggered: NewSignal()}
}

// Trigger asks for a call. It never blocks.
func (d *Debouncer) Trigger() { d.triggered.Set() }

// Run calls do until ctx ends. A trigger during a call leads to another call.
func (d *Debouncer) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.triggered:
		}
		if !Sleep(ctx, d.pause) {
			return nil
		}
		d.triggered.Clear()
		if err := d.do(ctx); err != nil && ctx.Err() == nil {
			d.log.Debug("no notification; the loop polls", "error", err)
		}
	}
}
