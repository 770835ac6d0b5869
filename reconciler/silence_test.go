package reconciler_test

import (
	"net/url"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

// Every established connection to the database falls silent, as after a fail-over behind an address
// or in a network that has forgotten them: neither side notices, and new connections work. The
// loop, the workers and the stop board go on by themselves.
func TestReplicaGoesOnWhenItsDatabaseConnectionsFallSilent(t *testing.T) {
	t.Parallel()
	h := newHouse(t, small())
	direct, err := url.Parse(h.url)
	if err != nil {
		t.Fatal(err)
	}
	between, err := (*stack.Firewall)(nil).Outlet("127.0.0.1:0", nil, direct.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(between.Close)
	through := *direct
	through.Host = between.Address
	r := h.start("a", options{url: through.String()})
	h.eventually("the fleet is in sync", h.converged)

	if _, err := h.store.Decisions.SetStop(
		t.Context(), mirror.Stop{Scope: mirror.StopEngine, Name: "eu-1",
			By: "test", Reason: "test"}, true); err != nil {
		t.Fatal(err)
	}
	h.eventually("the stop is read", func() error { return h.marked("eu-1", 1) })
	h.passes(r, 1)
	between.Strand()
	head := h.commit("the next", deployment("acme", "web", "v2", "Delete", "prod", "staging"))
	h.eventually("the loop records the next commit", func() error { return h.recorded(head) })
	if _, err := h.store.Decisions.ClearStop(t.Context(), mirror.StopEngine, "eu-1", "",
		"test"); err != nil {
		t.Fatal(err)
	}
	h.eventually("the stop's end is read and the workers apply the commit", h.converged)
}
