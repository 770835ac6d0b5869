package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

// manyEngines is a fleet with so many engines, and a deployment on each.
func manyEngines(t *testing.T, engines int) *house {
	h := newHouse(t, nil)
	files := together(platform())
	for i := range engines {
		name := fmt.Sprintf("eu-%d", i+1)
		h.engines[fleet.EngineName(name)] = newSite(fleet.EngineName(name))
		files["fleet/engines/"+name+".yaml"] = document("Engine", name, fmt.Sprintf(
			"argocd: {namespace: argocd-%s, installationID: %s}\n  connection: {kubeconfigRef: "+
				"{name: engine-%s}}\n  region: eu\n  capacity: {applications: 500, environments: 1}", name, name, name))
		tenantName := fmt.Sprintf("t-%d", i+1)
		files = together(files, tenant(tenantName, "prod"), deployment(tenantName, "web", "v1",
			"Delete", "prod"))
	}
	h.commit("begin", files)
	return h
}

// shares returns an error unless exactly these replicas serve so many engines.
func (h *house) shares(want map[string]int) error {
	h.t.Helper()
	engines, _, err := h.store.Views.Engines(context.Background(), view.Scope{}, view.Filter{},
		view.Page{Limit: 100})
	if err != nil {
		return err
	}
	got := map[string]int{}
	for _, e := range engines {
		got[e.Holder]++
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("engines by holder: %v, want %v", got, want)
	}
	return nil
}

// Replicas share the engines however they come and go, and every change arrives.
func TestReplicasShareTheEngines(t *testing.T) {
	t.Parallel()
	h := manyEngines(t, 6)
	quick := options{beat: 100 * time.Millisecond}
	version := 1
	change := func(when string) {
		version++
		files := map[string]string{}
		for i := range len(h.engines) {
			maps.Copy(files, deployment(fmt.Sprintf("t-%d", i+1), "web",
				fmt.Sprintf("v%d", version), "Delete", "prod"))
		}
		h.commit(when, files)
		h.eventually("a change arrives: "+when, h.converged)
	}
	replicas := map[string]*replica{}
	share := func(when string, want map[string]int) {
		h.eventually(when, func() error { return h.shares(want) })
		change(when)
	}
	replicas["a"] = h.start("a", quick)
	share("one replica", map[string]int{"a": 6})
	replicas["b"] = h.start("b", quick)
	share("a second one came", map[string]int{"a": 3, "b": 3})
	replicas["c"] = h.start("c", quick)
	share("a third one came", map[string]int{"a": 2, "b": 2, "c": 2})
	h.kill(replicas["a"])
	share("one was killed", map[string]int{"b": 3, "c": 3})
	replicas["a2"] = h.start("a2", quick)
	share("one returned", map[string]int{"a2": 2, "b": 2, "c": 2})
	replicas["b"].stop()
	share("one was stopped", map[string]int{"a2": 3, "c": 3})
	epochs := h.epochs()
	change("nothing else moves")
	if now := h.epochs(); !slices.Equal(now, epochs) {
		t.Errorf("leases passed on while shares were equal: epochs %v, then %v", epochs, now)
	}
}

func (h *house) epochs() []int64 {
	h.t.Helper()
	engines, _, err := h.store.Views.Engines(context.Background(), view.Scope{}, view.Filter{},
		view.Page{Limit: 100})
	if err != nil {
		h.t.Fatal(err)
	}
	var all []int64
	for _, e := range engines {
		all = append(all, e.Epoch)
	}
	return all
}

// A replica that does not lead has the config repo before it takes over.
func TestAStandbyReplicaKeepsItsCopyOfTheConfigRepoWarm(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	leader := h.start("a", options{})
	h.eventually("the first replica leads", h.converged)
	other := h.start("b", options{standby: 100 * time.Millisecond})
	fetched := func() error {
		if head, ok := other.source.Head(); !ok || fleet.Revision(head.Commit) != h.head() {
			return fmt.Errorf("its copy is at %q", head.Commit)
		}
		return nil
	}
	h.eventually("the other replica clones", fetched)
	h.commit("a change", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
	h.eventually("the other replica fetches the change", fetched)
	if lease, ok := leader.store.lease("reconciler"); !ok || lease.Holder != "a" {
		t.Errorf("the lease: %+v", lease)
	}
	if _, leads := other.store.lease("reconciler"); leads {
		t.Error("the other replica has led meanwhile")
	}
}

// A verifying pass compares hashes. It reads the bodies of rows that differ, and of those whose
// secrets only the engine can compare.
func TestVerificationReadsNoBodyOfRowsInSync(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	r := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	r.stop()
	rows, secrets := h.rows(), 0
	for _, row := range rows {
		if row.Credential != nil {
			secrets++
		}
	}
	at := h.engineOf("acme", "prod")
	web := fleet.ObjectKey{Engine: at.name, Kind: fleet.ObjectApplication,
		Name: fleet.ApplicationName(fleet.ApplicationID{Tenant: "acme", Deployment: "web",
			Environment: "prod"})}
	at.server.Remove(web)
	b := h.start("b", options{})
	h.eventually("what differs is applied again", func() error {
		if !at.server.Exists(web) || b.store.bodies() < secrets+1 {
			return errors.New("not yet")
		}
		return h.converged()
	})
	if got := b.store.bodies(); got >= len(rows) {
		t.Errorf("the bodies of %d rows were read, of %d; %d have a secret and one differs", got,
			len(rows), secrets)
	}
}
