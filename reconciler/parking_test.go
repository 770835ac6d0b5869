package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/reach"
)

const parkedMark = "metadata.annotations|argosy.dev/parked"

// soon is reach.Defaults for tests.
var soon = reach.Limits{
	Patience: 300 * time.Millisecond, Relapse: time.Hour, ProbeFirst: time.Second,
	ProbeMost: time.Second, ProbeTime: 30 * time.Second,
	ProbeSoon: time.Millisecond, OfTenant: 2, OfEngine: 8, Grace: 2, Share: 1, Least: 20,
}

// quietCluster has the engines compare their Applications, and the cluster of one of acme's
// environments, which shares its engine with another environment, answer or not.
func (h *house) quietCluster() (env fleet.EnvironmentID, at *site, silent *atomic.Bool) {
	h.t.Helper()
	on := map[*site]int{}
	all := []fleet.EnvironmentID{{Tenant: "acme", Name: "prod"}, {Tenant: "acme", Name: "staging"},
		{Tenant: "globex", Name: "prod"}}
	for _, id := range all {
		on[h.engineOf(id.Tenant, id.Name)]++
	}
	for _, id := range all {
		if e := h.engineOf(id.Tenant, id.Name); id.Tenant == "acme" && on[e] > 1 {
			env, at = id, e
		}
	}
	silent = &atomic.Bool{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			for e := range on {
				e.server.Compare(time.Now(), func(id fleet.EnvironmentID) mirror.UnreachableReason {
					if id == env && silent.Load() {
						return mirror.UnreachableTimeout
					}
					return ""
				})
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	h.t.Cleanup(func() { cancel(); <-ended })
	return env, at, silent
}

// shownAs reports whether people are shown that an environment is unreachable, with so many parked.
func (h *house) shownAs(env fleet.EnvironmentID, unreachable bool, parked int) func() error {
	return func() error {
		all, _, err := h.store.Views.Environments(context.Background(), view.Scope{
			Tenant: env.Tenant},
			view.Filter{}, view.Page{Limit: 10})
		if err != nil {
			return err
		}
		for _, e := range all {
			u, want := e.Unreachable, unreachable && e.Name == env.Name
			if (u != nil) != want || want && (u.Reason != mirror.UnreachableTimeout ||
				u.Parked != parked || time.Since(u.Since) > limit) {
				return fmt.Errorf("%s is shown as %+v", e.Name, u)
			}
			a := h.application("acme/web@" + string(e.Name))
			if a.Name != "" && (a.Unreachable != nil) != want {
				return fmt.Errorf("its Application is shown as %+v", a.Unreachable)
			}
		}
		return nil
	}
}

func TestAnEnvironmentThatDoesNotAnswerIsParkedAndComesBack(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	a := h.start("a", options{reach: soon})
	h.eventually("the fleet is in sync", h.converged)
	env, at, silent := h.quietCluster()
	key := keyOf(at, "acme", "web", string(env.Name))
	silent.Store(true)
	h.eventually("it is parked and shown", h.shownAs(env, true, 1))
	h.eventually("the Application is parked", func() error {
		if at.server.Field(key, parkedMark) == "" {
			return errors.New("it is not marked")
		}
		return nil
	})
	h.commit("a change meanwhile", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
	h.eventually("it is written", h.converged)
	a.stop()
	dials := h.dials()
	h.start("b", options{reach: soon})
	h.eventually("another replica has taken over", func() error {
		if h.dials() == dials {
			return errors.New("not yet")
		}
		return h.converged()
	})
	h.eventually("it is parked as before", h.shownAs(env, true, 1))
	silent.Store(false)
	h.eventually("it comes back by itself", h.shownAs(env, false, 0))
	h.eventually("and goes on", func() error {
		if since := at.server.Field(key, parkedMark); since != "" {
			return fmt.Errorf("parked since %s", since)
		}
		return nil
	})
	h.eventually("the fleet is in sync", h.converged)
}

func TestARotatedCredentialUnparksAtOnce(t *testing.T) {
	t.Parallel()
	slow := soon
	slow.ProbeFirst, slow.ProbeMost = time.Hour, time.Hour
	h := newHouse(t, small())
	r := h.start("a", options{reach: slow})
	h.eventually("the fleet is in sync", h.converged)
	env, _, silent := h.quietCluster()
	silent.Store(true)
	h.eventually("it is parked", h.shownAs(env, true, 1))
	silent.Store(false)
	h.secrets.rotate("2")
	r.manager.Rotated(env.Tenant, string(env.Name))
	h.eventually("it goes on without a probe", h.shownAs(env, false, 0))
}

func TestADeletionThatIsBlockedIsReleasedByADecisionAlone(t *testing.T) {
	t.Parallel()
	slow := soon
	slow.ProbeFirst, slow.ProbeMost = time.Hour, time.Hour
	h := newHouse(t, small())
	h.start("a", options{reach: slow})
	h.eventually("the fleet is in sync", h.converged)
	env, at, silent := h.quietCluster()
	id := fleet.ApplicationID{Tenant: env.Tenant, Deployment: "web", Environment: env.Name}
	key := keyOf(at, "acme", "web", string(env.Name))
	silent.Store(true)
	h.eventually("it is parked", h.shownAs(env, true, 1))
	left := "prod"
	if env.Name == "prod" {
		left = "staging"
	}
	h.commit("it goes", deployment("acme", "web", "v1", "Delete", left))
	h.eventually("its deletion waits", func() error {
		if a := h.application(id.String()); a.Apply != mirror.ApplyDeleting || a.UID == "" ||
			a.DeletionBlocked {
			return fmt.Errorf("shown as %+v", a)
		}
		if at.server.Field(key, "metadata.deletionTimestamp") == "" {
			return errors.New("not asked of the engine yet")
		}
		return nil
	})
	o := mirror.Orphaning{Application: id, UID: h.application(id.String()).UID, By: "token:test",
		Note: "the cluster is scrapped"}
	if err := h.store.Decisions.Abandon(t.Context(), o); !errors.Is(err, mirror.ErrNotBlocked) {
		t.Errorf("before the time is over: %v", err)
	}
	h.exec(`UPDATE argosy.reach SET since = now() - interval '2 hours'`)
	if a := h.application(id.String()); !a.DeletionBlocked {
		t.Errorf("after two hours: %+v", a)
	}
	other := o
	other.UID = "another"
	if err := h.store.Decisions.Abandon(t.Context(), other); !errors.Is(err, mirror.ErrNotFound) {
		t.Errorf("of another UID: %v", err)
	}
	if !at.server.Exists(key) {
		t.Fatal("it is gone without a decision")
	}
	if err := h.store.Decisions.Abandon(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	h.eventually("it is gone, and its row with it", func() error {
		if at.server.Exists(key) || h.application(id.String()).Name != "" {
			return errors.New("not yet")
		}
		return nil
	})
	h.eventually("the fleet is in sync", h.converged)
}
