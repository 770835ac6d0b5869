package hub

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTenThousandOpeningsHaveABoundedRateAndNoneStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents, rate = 10000, 100
		a := newRateLimiter(rate, 20*time.Second)
		began := time.Now()
		var mu sync.Mutex
		var in []time.Duration
		tries := 0
		var all sync.WaitGroup
		for range agents {
			all.Go(func() {
				for {
					asked := time.Now()
					err := a.wait(context.Background())
					mu.Lock()
					tries++
					if waited := time.Since(asked); waited > 20*time.Second ||
						(err != nil && waited > 0) {
						t.Errorf("waited %v for %v", waited, err)
					}
					if err == nil {
						in = append(in, time.Since(began))
						mu.Unlock()
						return
					}
					mu.Unlock()
					var over *busyError
					if !errors.As(err, &over) || over.after <= 0 || over.after > maxRetryAfter {
						t.Errorf("sent away with %v", err)
						return
					}
					time.Sleep(over.after)
				}
			})
		}
		all.Wait()
		slices.Sort(in)
		for i := range in {
			if i+rate+rate/10+1 < len(in) && in[i+rate+rate/10+1]-in[i] < time.Second {
				t.Fatalf("more than %d within a second from %v on", rate+rate/10, in[i])
			}
		}
		ideal := time.Duration(agents/rate) * time.Second
		if last := in[len(in)-1]; len(in) != agents || last > 3*ideal {
			t.Errorf("%d of %d are in after %v", len(in), agents, last)
		}
		if tries > 4*agents {
			t.Errorf("%d tries for %d agents", tries, agents)
		}
		t.Logf("10,000 at %d/s: the last after %v (at best %v), %d tries", rate, in[len(in)-1],
			ideal, tries)
	})
}

func TestCallersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRateLimiter(10, time.Minute)
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				if a.wait(context.Background()) == nil {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
				}
			})
			synctest.Wait()
		}
		if a.waiting() == 0 {
			t.Error("no caller waits")
		}
		all.Wait()
		if !slices.IsSorted(order) || len(order) != 100 || a.waiting() != 0 {
			t.Errorf("order %v", order)
		}
	})
}

func TestACanceledCallerReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRateLimiter(1, time.Hour)
		for range 3 {
			go func() { _ = a.wait(t.Context()) }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		if err := a.wait(ctx); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		time.Sleep(time.Minute)
	})
}
