package reconciler_test

import (
	"errors"
	"fmt"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// A person returns an Application to a revision with which it was Healthy. Its automation stays off
// until Git asks for another one, also after the database is lost.
func TestARollbackHoldsAnApplicationUntilGitAsksForAnotherRevision(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	syncs := &asking{}
	a := h.start("a", options{engine: syncs.record})
	h.eventually("the fleet is in sync", h.converged)
	key := keyOf(h.engineOf("acme", "prod"), "acme", "web", "prod")
	at := h.engines[key.Engine].server
	at.Merge(key, `{"status":{"sync":{"status":"Synced","revision":"r1"},"health":{"status":"Healthy"}}}`)
	ask := mirror.Action{Kind: mirror.ActionRollback, Request: "request-1", Tenant: "acme",
		Deployment: "web", Environment: "prod", By: "token:ann",
		Options: mirror.ActionOptions{Revision: "r1"}}
	var made mirror.Action
	h.eventually("the revision is a healthy one", func() (err error) {
		made, err = h.store.Decisions.RequestAction(t.Context(), view.Scope{Tenant: "acme"}, ask)
		return err
	})
	h.eventually("the sync is asked for", func() error {
		return asked(syncs, []fleet.ObjectKey{key}, 1)
	})
	held := func(want bool) func() error {
		return func() error {
			apps, _, err := h.store.Views.Applications(t.Context(), view.Scope{}, view.Filter{
				Tenant: "acme", Environment: "prod"}, view.Page{Limit: 1})
			if err == nil && (len(apps) != 1 ||
				(mirror.RollbackOf(apps[0].Hold) == made.ID) != want) {
				err = errors.New("another hold")
			}
			return err
		}
	}
	h.eventually("automation is paused", held(true))
	h.eventually("the engine has the hold", h.converged)
	at.Merge(key, fmt.Sprintf(
		`{"operation":null,"status":{"operationState":{"phase":"Succeeded","operation":%s}}}`,
		at.Field(key, "operation")))
	h.eventually("the operation has succeeded", func() error {
		all, _, err := h.store.Views.Operations(t.Context(), view.Scope{}, view.Filter{
			Name: made.ID}, view.Page{Limit: 1})
		if err == nil && (len(all) != 1 || all[0].State != mirror.OperationSucceeded) {
			err = errors.New("it has not ended")
		}
		return err
	})
	a.stop()

	h.newDatabase()
	b := h.start("b", options{engine: syncs.record})
	h.eventually("the fleet is in sync again", h.converged)
	h.eventually("the engine's hold is kept", held(true))
	h.commit("the fix", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
	h.eventually("automation goes on", held(false))
	h.eventually("the fix is applied", h.converged)
	h.passes(b, 2)
	if n := syncs.times(key); n != 1 {
		t.Errorf("%d syncs were asked for", n)
	}
}
