package reconciler_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// engineOf is where an environment is placed.
func (h *house) engineOf(tenant fleet.TenantName, environment fleet.EnvironmentName) *site {
	h.t.Helper()
	for key, row := range h.rows() {
		if key.Kind == fleet.ObjectCluster && row.Tenant == tenant &&
			row.Environment == environment {
			return h.engines[key.Engine]
		}
	}
	h.t.Fatalf("%s/%s is not placed", tenant, environment)
	return nil
}

func keyOf(s *site, tenant, name, environment string) fleet.ObjectKey {
	id := fleet.ApplicationID{Tenant: fleet.TenantName(tenant),
		Deployment: fleet.DeploymentName(name), Environment: fleet.EnvironmentName(environment)}
	return fleet.ObjectKey{Engine: s.name, Kind: fleet.ObjectApplication,
		Name: fleet.ApplicationName(id)}
}

func (h *house) dials() int64 {
	return h.engines["eu-1"].dials.Load() + h.engines["eu-2"].dials.Load()
}

func TestAQueryThatFailsEndsNoSessionAndForgetsNothing(t *testing.T) {
	t.Parallel()
	var failing atomic.Bool
	h := newHouse(t, small())
	r := h.start("a", options{fail: failFor(&failing, "changed", "lookup", "credentialrows",
		"acknowledge", "observe")})
	h.eventually("the fleet is in sync", h.converged)
	dials := h.dials()

	at := h.engineOf("acme", "prod")
	key := keyOf(at, "acme", "web", "prod")
	failing.Store(true)
	rows := r.store.asked("lookup")
	// a wake whose row cannot be read
	at.server.Merge(key, `{"spec":{"source":{"targetRevision":"meddled"}}}`)
	h.secrets.rotate("2")
	r.manager.Rotated("acme", "prod") // a rotation whose rows cannot be read
	h.commit("while the database is away", deployment("globex", "shop", "v2", "Orphan", "prod"))
	h.eventually("the worker has tried", func() error {
		if r.store.asked("lookup") < rows+3 {
			return errors.New("not yet")
		}
		return nil
	})
	secret := at.writes()
	failing.Store(false)
	h.eventually("the hand edit is put right", func() error {
		if got := at.server.Field(key, "spec.source.targetRevision"); got != "v1" {
			return fmt.Errorf("targetRevision is %q", got)
		}
		return nil
	})
	h.eventually("the rotated credential is written", func() error {
		if at.writes() < secret+2 {
			return errors.New("only the hand edit was written")
		}
		return nil
	})
	h.eventually("the commit arrives", h.converged)
	if n := h.dials() - dials; n != 0 {
		t.Errorf("%d sessions began again for failed queries", n)
	}
}

func TestAMissingCredentialIsReportedAndHeals(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	h.secrets.lose("staging", true)
	r := h.start("a", options{})
	h.eventually("the others are in sync", func() error {
		for _, id := range []string{"acme/web@prod", "globex/shop@prod"} {
			if a := h.application(id); a.Apply != mirror.ApplyApplied {
				return fmt.Errorf("%s is %s", id, a.Apply)
			}
		}
		return nil
	})
	at := h.engineOf("acme", "staging")
	if at.server.Exists(keyOf(at, "acme", "web", "staging")) {
		t.Error(
			"an Application was written whose cluster is not there: Argo CD would strip its " +
				"finalizers")
	}
	h.eventually("its dependency is reported", func() error {
		if m := h.application("acme/web@staging").ApplyMessage; !strings.Contains(m,
			"waits for Cluster") {
			return fmt.Errorf("message %q", m)
		}
		return nil
	})
	h.secrets.lose("staging", false)
	r.manager.Rotated("acme", "staging")
	h.eventually("it heals", h.converged)
}

func TestAPoisonedObjectKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	var poisoned atomic.Pointer[fleet.ObjectKey]
	h := newHouse(t, small())
	h.start("a", options{flight: 1, engine: func(call string, key fleet.ObjectKey) error {
		if p := poisoned.Load(); p != nil && call == "apply" && key == *p {
			return errors.New("spec.source is too strange")
		}
		return nil
	}})
	h.eventually("the fleet is in sync", h.converged)
	key := keyOf(h.engineOf("acme", "prod"), "acme", "web", "prod")
	poisoned.Store(&key)
	h.commit("one of them fails",
		together(deployment("acme", "web", "v2", "Delete", "prod", "staging"),
			deployment("globex", "shop", "v2", "Orphan", "prod")))
	h.eventually("the others arrive, and its error is recorded", func() error {
		bad := h.application("acme/web@prod")
		for _, id := range []string{"acme/web@staging", "globex/shop@prod"} {
			if a := h.application(id); a.Apply != mirror.ApplyApplied || a.TargetRevision != "v2" {
				return fmt.Errorf("%s: %s at %s", id, a.Apply, a.TargetRevision)
			}
		}
		if bad.Apply != mirror.ApplyFailed || !strings.Contains(bad.ApplyMessage, "too strange") {
			return fmt.Errorf("the bad one is %s: %s", bad.Apply, bad.ApplyMessage)
		}
		return nil
	})
	poisoned.Store(nil)
	h.eventually("it is tried again", h.converged)
}

func TestAnEpochThatNoLeaseGaveCostsItsOwnObjectOnly(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	at := h.engineOf("acme", "prod")
	key := keyOf(at, "acme", "web", "prod")
	at.server.Merge(key, `{"metadata":{"annotations":{"argosy.dev/epoch":"9223372036854775807"}}}`)
	r.stop()
	h.start("b", options{})
	h.commit("all change", together(deployment("acme", "web", "v2", "Delete", "prod", "staging"),
		deployment("globex", "shop", "v2", "Orphan", "prod")))
	h.eventually("the others arrive", func() error {
		for _, id := range []string{"acme/web@staging", "globex/shop@prod"} {
			if a := h.application(id); a.Apply != mirror.ApplyApplied || a.TargetRevision != "v2" {
				return fmt.Errorf("%s: %s at %s", id, a.Apply, a.TargetRevision)
			}
		}
		if a := h.application("acme/web@prod"); a.Apply != mirror.ApplyFailed {
			return fmt.Errorf("the forged one is %s", a.Apply)
		}
		return nil
	})
	at.server.Merge(key, `{"metadata":{"annotations":{"argosy.dev/epoch":null}}}`)
	h.eventually("it heals when the annotation is gone", h.converged)
}

func TestApplicationsGoBeforeTheirClusterAndTheirProject(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	at := h.engineOf("globex", "prod")
	h.commit("globex leaves",
		gone(together(tenant("globex", "prod"), deployment("globex", "shop", "v1", "Orphan",
			"prod"))))
	h.eventually("all of it is gone", func() error {
		for _, row := range h.rows() {
			if row.Tenant == "globex" {
				return fmt.Errorf("%s stands", row.Key.Name)
			}
		}
		return h.converged()
	})
	at.mu.Lock()
	defer at.mu.Unlock()
	var kinds []fleet.ObjectKind
	for _, key := range at.deleted {
		kinds = append(kinds, key.Kind)
	}
	if !slices.Equal(kinds, []fleet.ObjectKind{fleet.ObjectApplication, fleet.ObjectCluster,
		fleet.ObjectProject}) {
		t.Errorf("deleted in the order %v", kinds)
	}
}

func TestAnEngineIsRemovedOnceItsObjectsAreDeleted(t *testing.T) {
	t.Parallel()
	globex := together(tenant("globex", "prod"), deployment("globex", "shop", "v1", "Orphan",
		"prod"))
	h := newHouse(t, together(platform(), tenant("acme", "prod"), deployment("acme", "web", "v1",
		"Delete", "prod"), globex))
	r := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	name := h.engineOf("globex", "prod").name
	if h.engineOf("acme", "prod").name == name {
		t.Fatalf("engine %s serves both tenants", name)
	}
	h.commit("globex leaves", gone(globex))
	h.eventually("its objects are deleted", func() error {
		for key := range h.rows() {
			if key.Engine == name {
				return fmt.Errorf("%s %s exists", key.Kind, key.Name)
			}
		}
		return h.converged()
	})
	h.passes(r, 3)
	h.commit("the engine leaves", map[string]string{"fleet/engines/" + string(name) + ".yaml": ""})
	h.eventually("its declaration is removed", func() error {
		all, _, err := h.store.Views.Engines(t.Context(), view.Scope{}, view.Filter{Engine: name},
			view.Page{Limit: 1})
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("engine %s is declared", name)
		}
		return err
	})
}

func TestAnEngineThatIsAwayIsReportedAndHealsAlone(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	h.engines["eu-1"].away.Store(true)
	reached := func(name fleet.EngineName, want bool) error {
		all, _, err := h.store.Views.Engines(t.Context(), view.Scope{}, view.Filter{}, view.Page{
			Limit: 10})
		if err != nil {
			return err
		}
		for _, e := range all {
			if e.Name == name && (e.Reachable != want || !want && !strings.Contains(e.Message,
				"away")) {
				return fmt.Errorf("%+v", e)
			}
		}
		return nil
	}
	h.eventually("it is reported", func() error { return reached("eu-1", false) })
	if err := reached("eu-2", true); err != nil {
		t.Error(err)
	}
	h.commit("meanwhile", together(deployment("acme", "web", "v2", "Delete", "prod", "staging"),
		deployment("globex", "shop", "v2", "Orphan", "prod")))
	h.eventually("the other engine goes on", func() error {
		for key, row := range h.rows() {
			if key.Engine == "eu-2" && row.Apply != mirror.ApplyApplied {
				return fmt.Errorf("%s is %s", key.Name, row.Apply)
			}
		}
		if s, _ := h.store.Views.Source(t.Context()); s.Applied != h.head() {
			return errors.New("not recorded")
		}
		return nil
	})
	h.engines["eu-1"].away.Store(false)
	h.eventually("it heals", h.converged)
	h.eventually("that is reported", func() error { return reached("eu-1", true) })
}

func TestAnEngineThatHangsOnASyncDelaysNoRow(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	hang, hung := make(chan struct{}), make(chan struct{}, 100)
	h.start("a", options{engine: func(call string, _ fleet.ObjectKey) error {
		if call == "sync" {
			hung <- struct{}{}
			<-hang
		}
		return nil
	}})
	t.Cleanup(func() { close(hang) }) // before the replica stops
	h.eventually("the fleet is in sync", h.converged)
	h.commit("a sync of every environment", syncRun("rollback", "v0", "prod, staging"))
	for range 2 {
		<-hung
	}
	h.commit("the neighbour's change", deployment("globex", "shop", "v2", "Orphan", "prod"))
	h.commit("the tenant's own change", deployment("acme", "web", "v2", "Delete", "prod",
		"staging"))
	h.eventually("the changes arrive while the engine hangs", h.converged)
}

func TestAPanicOnOneObjectFailsThatObjectAlone(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	h.secrets.panicOn("staging")
	r := h.start("a", options{})
	h.eventually("the others arrive", func() error {
		for _, id := range []string{"acme/web@prod", "globex/shop@prod"} {
			if a := h.application(id); a.Apply != mirror.ApplyApplied {
				return fmt.Errorf("%s is %s", id, a.Apply)
			}
		}
		return nil
	})
	h.eventually("the status of the object has the error", func() error {
		for key, row := range h.rows() {
			if key.Kind == fleet.ObjectCluster && row.Environment == "staging" &&
				row.Apply != mirror.ApplyFailed {
				return fmt.Errorf("the cluster Secret is %s", row.Apply)
			}
		}
		return nil
	})
	h.secrets.panicOn("")
	r.manager.Rotated("acme", "staging")
	h.eventually("it heals", h.converged)
}
