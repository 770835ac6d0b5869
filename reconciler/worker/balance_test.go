package worker

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// replicas makes a view in which replica i holds the leases that held[i] counts.
func replicas(held ...int) (mirror.Replicas, int) {
	v := mirror.Replicas{Preparing: map[string]int{}, Holders: map[string]string{}}
	n := 0
	for i, count := range held {
		replica := fmt.Sprintf("replica-%d", i)
		v.Preparing[replica] = 0
		for range count {
			v.Holders[fmt.Sprintf("engine/e-%02d", n)] = replica
			n++
		}
	}
	return v, n
}

func counts(v mirror.Replicas) (least, most int) {
	held := map[string]int{}
	for replica := range v.Preparing {
		held[replica] = 0
	}
	for _, replica := range v.Holders {
		held[replica]++
	}
	return slices.Min(slices.Collect(maps.Values(held))),
		slices.Max(slices.Collect(maps.Values(held)))
}

func TestHandoversEndWithEqualSharesAndMoveNoMoreThanThat(t *testing.T) {
	for _, held := range [][]int{{7, 0}, {6, 0, 0}, {4, 4, 0}, {2, 2, 0}, {9, 1, 1}, {1, 0}, {3, 2},
		{2, 1, 1}, {50, 0}, {13, 13, 13, 0}} {
		v, leases := replicas(held...)
		need := 0
		for _, n := range held {
			need += max(0, n-(leases+len(held)-1)/len(held))
		}
		moved := 0
		for round := 0; ; round++ {
			plan := handovers(v, leases, handoversMost)
			if len(plan) > handoversMost {
				t.Fatalf("%v: %d handovers at a time", held, len(plan))
			}
			if len(plan) == 0 {
				break
			}
			for _, h := range plan {
				if v.Holders[h.lease] != h.from || h.from == h.to {
					t.Fatalf("%v: %+v of what %s holds", held, h, v.Holders[h.lease])
				}
				v.Holders[h.lease] = h.to
				moved++
			}
		}
		if least, most := counts(v); most-least > 1 {
			t.Errorf("%v: one replica holds %d, another %d", held, most, least)
		}
		if moved > need+len(held) {
			t.Errorf("%v: %d handovers for %d too many", held, moved, need)
		}
	}
}

func TestNothingIsHandedOverDuringATakeover(t *testing.T) {
	free, leases := replicas(6, 0)
	delete(free.Holders, "engine/e-03")
	prepares, _ := replicas(6, 0)
	prepares.Preparing["replica-1"] = 1
	alone, _ := replicas(6)
	alone.Holders["engine/e-00"] = "a replica of the version before, which does not beat"
	for what, v := range map[string]mirror.Replicas{"a lease is free": free,
		"a session prepares": prepares, "no other replica works": alone} {
		if plan := handovers(v, leases, handoversMost); plan != nil {
			t.Errorf("%s: %v", what, plan)
		}
	}
}

func TestAReplicaThatComesAndGoesMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := balance{me: "replica-0", beat: beatEvery}
		alone, leases := replicas(6)
		both, _ := replicas(6, 0)
		for range 20 {
			for _, v := range []mirror.Replicas{alone, both, both, both} {
				if plan := b.decide(v, leases, time.Now()); plan != nil {
					t.Fatalf("%v", plan)
				}
				pacing.Sleep(t.Context(), beatEvery)
			}
		}
		for range calmBeats {
			pacing.Sleep(t.Context(), beatEvery)
		}
		if plan := b.decide(both, leases, time.Now()); len(plan) != 3 {
			t.Fatalf("two replicas are there to stay: %v", plan)
		}
	})
}

// A replica that does not take what it is offered is offered less and less often.
func TestHandoversThatComeToNothingAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := balance{me: "replica-0", beat: beatEvery}
		v, leases := replicas(6, 0)
		offers := 0
		for start := time.Now(); time.Since(start) < time.Hour; pacing.Sleep(
			t.Context(), beatEvery) {
			if len(b.decide(v, leases, time.Now())) > 0 {
				offers++
			}
		}
		if offers == 0 || offers > 12 {
			t.Errorf("%d offers in an hour", offers)
		}
	})
}

func TestSessionsWaitForASlotInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		semaphores, order, frees := newSemaphores(), make(chan int, 100), []func(){}
		for range semaphoreSize {
			free, _ := semaphores.acquire(t.Context(), false)
			frees = append(frees, free)
		}
		for i := range 3 {
			go func() {
				_, _ = semaphores.acquire(t.Context(), false)
				order <- i
			}()
			synctest.Wait()
		}
		if free, err := semaphores.acquire(t.Context(), true); err != nil || len(order) > 0 {
			t.Fatalf("%d entered beyond the bound; after a failure: %v", len(order), err)
		} else {
			free()
		}
		for i := range 3 {
			frees[i]()
			frees[i]()
			synctest.Wait()
			if got := <-order; got != i || len(order) > 0 {
				t.Fatalf("slot %d was given to %d; %d others entered", i, got, len(order))
			}
		}
	})
}
