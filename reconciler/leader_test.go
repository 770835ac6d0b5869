package reconciler

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestAThousandPushesInTenSecondsAreFewEventsAndOneAfterTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var passed []time.Duration
		begun := time.Now()
		th := &throttle{
			burst: pushBurst, period: pushPeriod, pass: func() {
				passed = append(passed, time.Since(begun))
			}}
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			th.event()
		}
		last := time.Since(begun)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(passed) > 20 || passed[len(passed)-1] < last || passed[len(passed)-1] > last+
			pushPeriod {
			t.Errorf("%d events, the last %s after the begin; the last push came after %s",
				len(passed), passed[len(passed)-1], last)
		}
	})
}

func TestPushesOfPeopleAreNotDelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		th := &throttle{burst: pushBurst, period: pushPeriod, pass: func() { n++ }}
		for i := range 100 {
			th.event()
			if n != i+1 {
				t.Fatalf("push %d waits", i)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestTasksRunDuringTermsAndEndBeforeTheLeaseIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &Loop{terms: newTerms()}
		var events []string
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			l.WhileLeading(ctx, func(ctx context.Context) {
				events = append(events, "begins")
				<-ctx.Done()
				time.Sleep(time.Second)
				events = append(events, "ends")
			})
			close(ended)
		}()
		for range 2 {
			synctest.Wait()
			l.terms.begin(t.Context())
			l.terms.begin(t.Context()) // the next reconcile of the same term
			synctest.Wait()
			l.terms.end()
			events = append(events, "released")
		}
		l.terms.end() // without a term
		cancel()
		<-ended
		if want := slices.Repeat([]string{"begins", "ends", "released"}, 2); !slices.Equal(
			events, want) {
			t.Errorf("%q", events)
		}
	})
}
