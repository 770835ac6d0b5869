package reconciler

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBellSaysOnceWhatIsRungOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, said := time.Now(), []time.Duration{}
		b := newBell(time.Second, func(context.Context) error {
			said = append(said, time.Since(began))
			return errors.New("nobody hears it")
		})
		ended := make(chan error, 1)
		go func() { ended <- b.run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(said) != 0 {
			t.Fatalf("said at %v without a ring", said)
		}
		for range 100 { // within 10 s
			b.ring()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(said) < 5 || len(said) > 10 || said[0] != time.Hour+time.Second {
			t.Errorf("100 rings in 10 s are said at %v", said)
		}
		b.ring()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(said); said[n-1] < 2*time.Hour {
			t.Errorf("the last ring is not said: %v", said)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
