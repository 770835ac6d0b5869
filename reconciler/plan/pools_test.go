package plan

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// After a rebuild, an environment that an instance of an unread pool may have waits, and so does
// one that was being moved. The others are placed.
func TestOnlyWhatAnUnreadPoolMayHaveWaits(t *testing.T) {
	ring := "  rings: [{name: stable, version: 3.5.7, manifests: {directory: argocd, digest: " +
		"\"sha256:" + strings.Repeat("1", 64) + "\"}}]\n"
	pool := "apiVersion: argosy.dev/v1alpha1\nkind: EnginePool\nmetadata: {name: burst}\nspec:\n" +
		"  template: {region: us, capacity: {applications: 10, environments: 10}}\n" +
		"  clusters: [{name: home, kubeconfigRef: {name: home}}]\n  min: 0\n  max: 3\n"
	files := small().with("fleet/fleet.yaml", fleetFile(ring)).
		with("fleet/pools/burst.yaml", pool).
		with("fleet/tenants/acme.yaml", tenantFile("acme", "  placement: {regions: [eu, us]}\n")).
		with("tenants/acme/environments/far.yaml", environmentFile("far", "us", "", "web"))
	reason := func(h *house, env fleet.EnvironmentName) string {
		return h.w.state.Placements.Base()[fleet.SliceID{Tenant: "acme", Environment: env}].Reason
	}
	const waits = "it may exist on an instance of pool burst"
	staging := fleet.EnvironmentID{Tenant: "acme", Name: "staging"}

	h := newHouse(t)
	h.apply(files, func(r *Request) {
		r.UnreadPools, r.Undecided = []string{"burst"}, []fleet.EnvironmentID{staging}
	})
	if h.engineOf("acme", "prod") == "" {
		t.Errorf("prod, which no instance may have, waits: %s", reason(h, "prod"))
	}
	for _, env := range []fleet.EnvironmentName{"far", "staging"} {
		if on := h.engineOf("acme", env); on != "" || !strings.Contains(reason(h, env), waits) {
			t.Errorf("%s is on %q: %s", env, on, reason(h, env))
		}
	}
	if !h.w.Blocked() {
		t.Error("nothing is blocked")
	}
	h.apply(h.files)
	if h.engineOf("acme", "staging") == "" || strings.Contains(reason(h, "far"), waits) ||
		h.w.Blocked() {
		t.Errorf("they wait although the pool is read: %s, %s", reason(h, "staging"),
			reason(h, "far"))
	}

	h = newHouse(t)
	h.apply(files.with("fleet/fleet.yaml", fleetFile("")), func(r *Request) {
		r.UnreadPools = []string{"burst"}
	})
	if on := h.engineOf("acme", "prod"); on != "" {
		t.Errorf("the pool is rejected, so that any may be there, and prod is on %s", on)
	}
}
