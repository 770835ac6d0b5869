package pacing

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestDebouncerCallsOnceForTriggersThatComeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, calls := time.Now(), []time.Duration{}
		d := NewDebouncer(time.Second, slog.New(slog.DiscardHandler), func(context.Context) error {
			calls = append(calls, time.Since(began))
			return errors.New("no connection")
		})
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(calls) != 0 {
			t.Fatalf("called at %v without a trigger", calls)
		}
		for range 100 { // within 10 s
			d.Trigger()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(calls) < 5 || len(calls) > 10 || calls[0] != time.Hour+time.Second {
			t.Errorf("100 triggers in 10 s lead to calls at %v", calls)
		}
		d.Trigger()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(calls); calls[n-1] < 2*time.Hour {
			t.Errorf("the last trigger led to no call: %v", calls)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
