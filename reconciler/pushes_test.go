package reconciler_test

import (
	"fmt"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
)

// Another replica stores the deliveries and dies before it wakes any loop: its notices are enough.
func TestAThousandPushesCauseAtMostTwentyReconcilesAndTheLastCommitIsApplied(t *testing.T) {
	t.Parallel()
	const pushes, over = 1000, 10 * time.Second
	h := newHouse(t, small())
	r := h.start("leads", options{poll: time.Hour})
	h.eventually("the fleet is applied", h.converged)
	fetches := r.source.fetches.Load()
	begun := time.Now()
	for i := range pushes {
		if i%100 == 99 {
			h.commit("a release", deployment("acme", "web", fmt.Sprint("v", 2+i), "Delete", "prod"))
		}
		d := forge.Delivery{
			ID: fmt.Sprint("push-", i), Event: "push", Notice: mirror.NoticePushed("takes")}
		if fresh, err := h.store.Pulls.Accept(t.Context(), d, nil); err != nil || !fresh {
			t.Fatalf("push %d: fresh %t, %v", i, fresh, err)
		}
		time.Sleep(time.Until(begun.Add(over * time.Duration(i+1) / pushes)))
	}
	head := h.head()
	h.eventually("the last commit is applied", func() error {
		if m, err := h.store.Mirror(t.Context()); err != nil || m.Applied != head {
			return fmt.Errorf("%s, not %s (%w)", m.Applied, head, err)
		}
		return nil
	})
	most := int64(2*time.Since(begun)/time.Second) + 1 // 20 if the machine keeps up
	if n := r.source.fetches.Load() - fetches; n > max(20, most) {
		t.Errorf("%d reconciles", n)
	}
}

func TestALoopIgnoresTheNoticeOfItsOwnPushes(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{poll: time.Hour})
	h.eventually("the fleet is applied", h.converged)
	h.commit("a release", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
	fetches := r.source.fetches.Load()
	for range 10 {
		r.Notified(mirror.NoticePushed("a"))
	}
	r.Pushed()
	h.eventually("its own push is applied", h.converged)
	if n := r.source.fetches.Load() - fetches; n != 1 {
		t.Errorf("%d reconciles", n)
	}
}
