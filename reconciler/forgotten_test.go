package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func (e *evacuees) forget() error {
	return e.store.Decisions.ForgetEngine(e.t.Context(), mirror.EngineForgetting{
		Engine: e.dead.name, ConfirmGone: e.dead.name, By: "token:ann", Reason: "it burned"})
}

// declared reports whether the dead engine is declared.
func (e *evacuees) declared() bool {
	e.t.Helper()
	all, _, err := e.store.Views.Engines(context.Background(), view.Scope{},
		view.Filter{Engine: e.dead.name}, view.Page{Limit: 1})
	if err != nil {
		e.t.Fatal(err)
	}
	return len(all) > 0
}

func (e *evacuees) unproven() []view.Unproven {
	e.t.Helper()
	all, _, err := e.store.Views.Unproven(context.Background(), view.Scope{},
		view.Filter{Engine: e.dead.name}, view.Page{Limit: 100})
	if err != nil {
		e.t.Fatal(err)
	}
	return all
}

// The engine never returns, so its file is removed. It returns in spite of that, without a
// declaration: it is frozen before anything else, and every object is proven gone.
func TestAForgottenEngineLeavesGitAndSyncsNothingWhenItReturns(t *testing.T) {
	t.Parallel()
	e := newEvacuees(t, func(e *evacuees) *replica { return e.start("a", options{}) })
	e.dies()
	if err := e.forget(); !errors.Is(err, mirror.ErrNotEvacuated) {
		t.Fatalf("an engine that is not evacuated is forgotten: %v", err)
	}
	if err := e.evacuate(false); err != nil {
		t.Fatal(err)
	}
	e.eventually("its environments are elsewhere", e.elsewhere)
	e.commit("without the dead engine",
		map[string]string{"fleet/engines/" + string(e.dead.name) + ".yaml": ""})
	e.eventually("its file cannot go yet", func() error {
		problems, _, err := e.store.Views.Problems(context.Background(), view.Scope{},
			view.Filter{}, view.Page{Limit: 10})
		if err != nil || len(problems) != 1 || problems[0].Code != "engine-in-use" {
			return fmt.Errorf("%v, %w", problems, err)
		}
		return nil
	})
	e.eventually("a person forgets it", e.forget)
	e.eventually("its file is gone", func() error {
		if e.declared() {
			return errors.New("it is declared")
		}
		return e.elsewhere()
	})
	apps := 0
	for _, u := range e.unproven() {
		if u.Kind == fleet.ObjectApplication && u.UID != "" && u.Server != "" && u.SeenAt != nil {
			apps++
		}
	}
	if apps < 2 {
		t.Errorf("unproven are %+v", e.unproven())
	}
	e.dead.away.Store(false)
	e.eventually("it is emptied, and all is proven", func() error {
		for _, name := range []string{"web", "api"} {
			if e.dead.server.Exists(keyOf(e.dead, "acme", name, "prod")) {
				return fmt.Errorf("%s is on it", name)
			}
		}
		if left := e.unproven(); len(left) > 0 {
			return fmt.Errorf("%+v", left)
		}
		return nil
	})
	e.check()
	if err := e.elsewhere(); err != nil {
		t.Error(err)
	}
}

// The cluster of an environment never answers again: its Applications are removed by the decision
// of a person alone, once the environment is removed, and what they need follows.
func TestAForgottenClusterKeepsNoApplication(t *testing.T) {
	t.Parallel()
	slow := soon
	slow.ProbeFirst, slow.ProbeMost = time.Hour, time.Hour
	h := newHouse(t, small())
	h.start("a", options{reach: slow})
	h.eventually("the fleet is in sync", h.converged)
	env, at, silent := h.quietCluster()
	key := keyOf(at, "acme", "web", string(env.Name))
	silent.Store(true)
	h.eventually("it is parked", h.shownAs(env, true, 1))
	forget := func() error {
		_, err := h.store.Decisions.ForgetCluster(t.Context(), mirror.ClusterForgetting{
			Tenant: env.Tenant, Environment: env.Name, ConfirmGone: env.String(),
			By: "token:ann", Reason: "it is scrapped"})
		return err
	}
	if err := forget(); !errors.Is(err, mirror.ErrDeclared) {
		t.Errorf("while it is declared: %v", err)
	}
	left := "prod"
	if env.Name == "prod" {
		left = "staging"
	}
	files := deployment("acme", "web", "v1", "Delete", left)
	files["tenants/acme/environments/"+string(env.Name)+".yaml"] = ""
	h.commit("it goes", files)
	h.eventually("its deletion waits for the cluster", func() error {
		if a := h.application("acme/web@" + string(env.Name)); a.Unreachable == nil {
			return fmt.Errorf("shown as %+v", a)
		}
		if at.server.Field(key, "metadata.deletionTimestamp") == "" {
			return errors.New("not asked of the engine yet")
		}
		return nil
	})
	if !at.server.Exists(key) {
		t.Fatal("it is gone without a decision")
	}
	h.eventually("a person forgets the cluster", forget)
	h.eventually("nothing of the environment is left on the engine", func() error {
		cluster := fleet.ObjectKey{Engine: at.name, Kind: fleet.ObjectCluster,
			Name: fleet.ClusterName(env)}
		if at.server.Exists(key) || at.server.Exists(cluster) {
			return errors.New("not yet")
		}
		return h.converged()
	})
	all, _, err := h.store.Views.Unproven(t.Context(), view.Scope{}, view.Filter{
		Tenant: env.Tenant, Environment: env.Name}, view.Page{Limit: 10})
	if err != nil || len(all) != 1 || all[0].Lost != mirror.LostCluster || all[0].UID == "" ||
		all[0].Server == "" {
		t.Errorf("unproven are %+v, %v", all, err)
	}
}
