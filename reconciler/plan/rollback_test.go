package plan

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func TestARollbackPausesAutomationUntilGitAsksForAnotherRevision(t *testing.T) {
	prod := fleet.ApplicationID{Tenant: "acme", Deployment: "checkout", Environment: "prod"}
	ask := func(id string, options mirror.ActionOptions) (mirror.Action, func(*Request)) {
		a := mirror.Action{ID: id, Kind: mirror.ActionRollback, Tenant: prod.Tenant,
			Deployment: prod.Deployment, Environment: prod.Environment, Options: options}
		return a, func(r *Request) {
			r.Rollbacks = map[fleet.ApplicationID]mirror.Action{prod: a}
		}
	}
	to := mirror.ActionOptions{Revision: "v0"}
	start := func(t *testing.T) *house {
		h := newHouse(t)
		h.apply(small())
		a, rollback := ask("op-1", to)
		if why := h.w.RollbackRefusal(a); why != "" {
			t.Fatal(why)
		}
		p := h.again(rollback)
		wantActions(t, p, "update Application checkout@prod")
		r := p.Record()
		if len(r.Syncs) != 1 || r.Syncs[0].Revision != "v0" || r.Syncs[0].Operation != "op-1" ||
			!r.Syncs[0].Prune || r.Syncs[0].Key != p.Rows[0].Row.Key ||
			len(r.Rollbacks) != 1 || r.Rollbacks[0] != "op-1" {
			t.Fatalf("%+v %+v", r.Syncs, r.Rollbacks)
		}
		return h
	}
	paused := func(t *testing.T, h *house, by string) {
		t.Helper()
		app := h.applications()["checkout@prod"]
		if mirror.RollbackOf(app.Hold) != by || app.Sync.Automated != (by == "") {
			t.Errorf("%+v", app)
		}
		if other := h.applications()["checkout@staging"]; !other.Sync.Automated {
			t.Errorf("another environment: %+v", other)
		}
	}
	t.Run("it lasts through other changes and a restart", func(t *testing.T) {
		h := start(t)
		h.restart()
		h.apply(h.files.edit("tenants/acme/deployments/checkout.yaml", "path: deploy",
			"path: other"))
		paused(t, h, "op-1")
	})
	t.Run("it ends with another target revision", func(t *testing.T) {
		h := start(t)
		p := h.apply(h.files.edit("tenants/acme/deployments/checkout.yaml", "targetRevision: v1",
			"targetRevision: v2"))
		paused(t, h, "")
		if len(p.Syncs) != 0 {
			t.Errorf("%+v", p.Syncs)
		}
	})
	t.Run("a person ends it, and then there is none to end", func(t *testing.T) {
		h := start(t)
		a, end := ask("op-2", mirror.ActionOptions{End: true})
		if why := h.w.RollbackRefusal(a); why != "" {
			t.Fatal(why)
		}
		p := h.again(end)
		wantActions(t, p, "update Application checkout@prod")
		paused(t, h, "")
		if r := p.Record(); len(r.Syncs) != 0 || len(r.EndedSyncHolds) != 1 {
			t.Errorf("%+v", r)
		}
		if why := h.w.RollbackRefusal(a); why != mirror.ErrNotRolledBack.Error() {
			t.Errorf("refused with %q", why)
		}
	})
	t.Run("the newest one counts, and each plan is recorded", func(t *testing.T) {
		h := start(t)
		_, again := ask("op-2", mirror.ActionOptions{Revision: "v00"})
		p := h.again(again)
		paused(t, h, "op-2")
		if len(p.Syncs) != 1 || p.Syncs[0].Revision != "v00" {
			t.Errorf("%+v", p.Syncs)
		}
	})
	t.Run("a SyncRun's hold gives way", func(t *testing.T) {
		h := newHouse(t)
		h.apply(small())
		h.apply(h.files.with("tenants/acme/syncs/once.yaml", syncFile("once",
			"deployment: checkout, environments: [prod], revision: v00, hold: true")))
		_, rollback := ask("op-1", to)
		h.again(rollback)
		paused(t, h, "op-1")
		h.apply(h.files.without("tenants/acme/syncs/once.yaml"))
		paused(t, h, "op-1")
	})
	t.Run("a freeze does not hold it", func(t *testing.T) {
		h := frozenHouse(t)
		_, rollback := ask("op-1", to)
		h.again(rollback)
		paused(t, h, "op-1")
	})
}

func TestARollbackIsRefusedWhereAnotherDecisionIsPending(t *testing.T) {
	h := newHouse(t)
	h.apply(small())
	of := mirror.Action{ID: "op", Kind: mirror.ActionRollback, Tenant: "acme",
		Deployment: "checkout", Environment: "prod", Options: mirror.ActionOptions{Revision: "v0"}}
	missing := of
	missing.Environment = "nowhere"
	if why := h.w.RollbackRefusal(missing); why != "no engine has it" {
		t.Errorf("an Application that is not there: %q", why)
	}
	end := of
	end.Options = mirror.ActionOptions{End: true}
	if why := h.w.RollbackRefusal(end); why != mirror.ErrNotRolledBack.Error() {
		t.Errorf("nothing to end: %q", why)
	}
	frozen := frozenHouse(t)
	frozen.apply(frozen.files.edit(checkoutFile, "v1}", "v2}"))
	if why := frozen.w.RollbackRefusal(of); !strings.HasPrefix(why, "a change of it waits: ") {
		t.Errorf("a freeze holds a change: %q", why)
	}
	h.apply(h.files.without("tenants/acme/deployments/checkout.yaml"))
	if why := h.w.RollbackRefusal(of); why != "no engine has it" {
		t.Errorf("an Application that is being deleted: %q", why)
	}
}
