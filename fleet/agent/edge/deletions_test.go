package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/edge/edgetest"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/engine/enginetest"
	"argosy.dev/argosy/fleet/mirror"
)

var quiet = slog.New(slog.DiscardHandler)

func TestADeletionLimiterPassesTheConformanceSuite(t *testing.T) {
	open := func(*testing.T) *enginetest.Fixture {
		return enginetest.NewFixture(enginetest.NewServer())
	}
	enginetest.Run(t, edgetest.Around(open, func(_ *testing.T, inner engine.Engine) engine.Engine {
		return NewDeletionLimiter(inner, DeletionLimiterConfig{
			Ledger: newObjectStore(), Log: quiet})
	}))
}

// limiterRig is a cluster with Applications and a limit on their deletion.
type limiterRig struct {
	*testing.T
	server  *enginetest.Server
	store   *edgetest.ObjectStore
	now     time.Time
	pending []fleet.ObjectKey
	rows    []mirror.Row
	lease   mirror.Lease
	limiter *DeletionLimiter
	woken   chan []fleet.ObjectKey
}

func newLimiterRig(t *testing.T, applications int) *limiterRig {
	r := &limiterRig{T: t, server: enginetest.NewServer(), store: newObjectStore(),
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), lease: mirror.Lease{Epoch: 1},
		woken: make(chan []fleet.ObjectKey, 100)}
	for i := range applications {
		id := fleet.ApplicationID{
			Tenant: "acme", Deployment: fleet.DeploymentName(fmt.Sprintf("app-%03d", i)),
			Environment: "prod"}
		o := fleet.Object{Key: fleet.ObjectKey{Engine: "eu-1", Kind: fleet.ObjectApplication,
			Name: fleet.ApplicationName(id)}, Application: &fleet.Application{
			ID: id, Name: fleet.ApplicationName(id),
			Sources: []fleet.Source{{TargetRevision: "v1"}}}}
		m, err := enginetest.PlainRenderer{}.Render(fleet.EngineSpec{}, o)
		if err != nil {
			t.Fatal(err)
		}
		r.rows = append(r.rows, mirror.Row{Key: o.Key, Tenant: "acme", Environment: "prod",
			Deployment: id.Deployment, Manifest: m, Deletion: fleet.DeletionOrphan})
	}
	return r
}

// start connects the limiter, like a process that has just started.
func (r *limiterRig) start() {
	r.Helper()
	r.limiter = NewDeletionLimiter(r.server.Connect("eu-1"), DeletionLimiterConfig{
		Ledger: r.store, MaxPerHour: 20, Log: quiet,
		Now:     func() time.Time { return r.now },
		Pending: func() ([]fleet.ObjectKey, error) { return r.pending, nil }})
	if _, err := r.limiter.Preflight(r.Context()); err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	inner := r.limiter
	go func() {
		done <- inner.Watch(ctx, engine.Sink{Wake: func(keys []fleet.ObjectKey) {
			r.woken <- keys
		}})
	}()
	r.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
}

func (r *limiterRig) applyAll() {
	r.Helper()
	for _, row := range r.rows {
		if _, err := r.limiter.Apply(r.Context(), row, fleet.Secret{}, r.lease); err != nil {
			r.Fatal(err)
		}
	}
	time.Sleep(time.Second) // of the bubble's clock: the watch has delivered them
}

func (r *limiterRig) ask(rows ...mirror.Row) {
	for _, row := range rows {
		r.pending = append(r.pending, row.Key)
	}
}

// delete tries each deletion twice, like a worker, and counts the deleted and held ones.
func (r *limiterRig) delete(rows ...mirror.Row) (deleted, held int) {
	r.Helper()
	for _, row := range rows {
		row.Unwanted = true
		for range 2 {
			if _, err := r.limiter.Delete(r.Context(), row, r.lease); err != nil &&
				!errors.Is(err, ErrHeld) {
				r.Fatal(err)
			}
		}
		if !r.server.Exists(row.Key) {
			deleted++
			r.pending = slices.DeleteFunc(r.pending, func(k fleet.ObjectKey) bool {
				return k == row.Key
			})
		} else if _, waits := r.limiter.HeldReason(row.Key); waits {
			held++
		}
	}
	return deleted, held
}

func inBubble(t *testing.T, applications int, test func(r *limiterRig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newLimiterRig(t, applications)
		r.start()
		r.applyAll()
		test(r)
	})
}

func TestABurstAboveTheLimitIsHeldAsAWhole(t *testing.T) {
	inBubble(t, 30, func(r *limiterRig) {
		r.ask(r.rows...)
		if deleted, held := r.delete(r.rows...); deleted != 0 || held != 30 {
			r.Fatalf("%d deleted, %d held", deleted, held)
		}
		why, _ := r.limiter.HeldReason(r.rows[0].Key)
		if !strings.Contains(why, "argosy agent release-deletions") ||
			!strings.Contains(why, "30 deletions") {
			r.Errorf("the text is %q", why)
		}
		for range 48 {
			r.now = r.now.Add(time.Hour)
			if deleted, _ := r.delete(r.rows...); deleted != 0 {
				r.Fatalf("%d were deleted as time passed", deleted)
			}
		}
	})
}

func TestDeletionsWithinTheLimitProceed(t *testing.T) {
	inBubble(t, 41, func(r *limiterRig) {
		r.ask(r.rows[:20]...)
		if deleted, held := r.delete(r.rows[:20]...); deleted != 20 || held != 0 {
			r.Fatalf("%d deleted, %d held", deleted, held)
		}
		r.now = r.now.Add(59 * time.Minute)
		r.ask(r.rows[20])
		if deleted, held := r.delete(r.rows[20]); deleted != 0 || held != 1 {
			r.Fatalf("the 21st within the hour: %d deleted, %d held", deleted, held)
		}
	})
	inBubble(t, 40, func(r *limiterRig) {
		for range 2 {
			next := r.rows[:20]
			r.rows = r.rows[20:]
			r.ask(next...)
			if deleted, _ := r.delete(next...); deleted != 20 {
				r.Fatalf("%d deleted", deleted)
			}
			r.now = r.now.Add(time.Hour)
		}
	})
}

func TestTheLedgerSurvivesARestart(t *testing.T) {
	inBubble(t, 25, func(r *limiterRig) {
		r.ask(r.rows[:20]...)
		r.delete(r.rows[:20]...)
		r.start()
		r.ask(r.rows[20:]...)
		if deleted, held := r.delete(r.rows[20:]...); deleted != 0 || held != 5 {
			r.Fatalf("after a restart %d deleted, %d held", deleted, held)
		}
		r.start()
		r.now = r.now.Add(2 * time.Hour)
		if deleted, held := r.delete(r.rows[20:]...); deleted != 0 || held != 5 {
			r.Fatalf("a restart and two hours later %d deleted, %d held", deleted, held)
		}
	})
}

func TestTheLedgerIsStoredBeforeTheDeletion(t *testing.T) {
	inBubble(t, 1, func(r *limiterRig) {
		r.ask(r.rows...)
		r.store.Fail = func(step string) error {
			if step == "save" {
				return errors.New("the API server refuses")
			}
			return nil
		}
		row := r.rows[0]
		row.Unwanted = true
		if _, err := r.limiter.Delete(r.Context(), row, r.lease); err == nil {
			r.Error("deleted without a count")
		}
		if !r.server.Exists(row.Key) {
			r.Error("the Application is deleted")
		}
	})
}

func TestAnApprovalReleasesOnlyTheHeldDeletions(t *testing.T) {
	inBubble(t, 60, func(r *limiterRig) {
		r.ask(r.rows[:30]...)
		r.delete(r.rows[:30]...)
		seen, err := ReadHeld(r.Context(), r.store)
		if err != nil || len(seen.Names) != 30 {
			r.Fatalf("%d wait, %v", len(seen.Names), err)
		}
		r.ask(r.rows[30])
		r.delete(r.rows[30])
		if err := ApproveHeld(r.Context(), r.store, seen.Digest, "ada"); !errors.Is(err,
			ErrHeldChanged) {
			r.Fatalf("an approval of what was shown before: %v", err)
		}
		seen, _ = ReadHeld(r.Context(), r.store)
		for len(r.woken) > 0 {
			<-r.woken
		}
		if err := ApproveHeld(r.Context(), r.store, seen.Digest, "ada"); err != nil {
			r.Fatal(err)
		}
		if woken := <-r.woken; len(woken) != 31 || woken[0].Engine != "eu-1" {
			r.Fatalf("woken for %d objects: %v", len(woken), woken[0])
		}
		if deleted, _ := r.delete(r.rows[:31]...); deleted != 31 {
			r.Fatalf("%d deleted after the approval", deleted)
		}
		r.ask(r.rows[31:]...)
		if deleted, held := r.delete(r.rows[31:]...); deleted != 0 || held != 29 {
			r.Fatalf("the approval still applies: %d deleted, %d held", deleted, held)
		}
	})
}

func TestAnObjectThatIsWantedAgainIsNotHeld(t *testing.T) {
	inBubble(t, 30, func(r *limiterRig) {
		r.ask(r.rows...)
		r.delete(r.rows...)
		r.pending = nil
		for _, row := range r.rows {
			if _, err := r.limiter.Apply(r.Context(), row, fleet.Secret{}, r.lease); err != nil {
				r.Fatal(err)
			}
		}
		if n := r.limiter.Held(); n != 0 {
			r.Fatalf("%d wait still", n)
		}
		if h, _ := ReadHeld(r.Context(), r.store); len(h.Names) != 0 ||
			r.store.Value(noteKey) != "" {
			r.Fatalf("the cluster remembers %d", len(h.Names))
		}
		r.ask(r.rows[:3]...)
		if deleted, _ := r.delete(r.rows[:3]...); deleted != 3 {
			r.Fatalf("%d deleted", deleted)
		}
	})
}

func TestAClockThatGoesBackAllowsNoMoreDeletions(t *testing.T) {
	inBubble(t, 21, func(r *limiterRig) {
		r.ask(r.rows[:20]...)
		r.delete(r.rows[:20]...)
		r.now = r.now.Add(-3 * time.Hour)
		r.ask(r.rows[20])
		if deleted, _ := r.delete(r.rows[20]); deleted != 0 {
			r.Fatal("the 21st is deleted")
		}
	})
}

func TestADamagedLedgerDeletesNothing(t *testing.T) {
	inBubble(t, 1, func(r *limiterRig) {
		r.store.Set(map[string][]byte{ledgerKey: []byte("nonsense")})
		r.start()
		r.ask(r.rows...)
		row := r.rows[0]
		row.Unwanted = true
		_, err := r.limiter.Delete(r.Context(), row, r.lease)
		if err == nil || !strings.Contains(err.Error(), ledgerKey) || !r.server.Exists(row.Key) {
			r.Fatalf("%v", err)
		}
	})
}

func TestNoDeletionProceedsWhileOthersAreHeld(t *testing.T) {
	inBubble(t, 22, func(r *limiterRig) {
		r.ask(r.rows[:20]...)
		r.delete(r.rows[:20]...)
		r.ask(r.rows[20])
		r.delete(r.rows[20])
		r.now = r.now.Add(2 * time.Hour)
		r.ask(r.rows[21])
		if deleted, held := r.delete(r.rows[20:]...); deleted != 0 || held != 2 {
			r.Fatalf("%d deleted, %d held", deleted, held)
		}
	})
}
