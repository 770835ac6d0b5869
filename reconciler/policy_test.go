package reconciler_test

import (
	"errors"
	"fmt"
	"testing"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// A policy in effect keeps what breaks it from the engines, also for the replica that comes
// after, until it is removed.
func TestAPolicyKeepsACommitsFileFromTheEngines(t *testing.T) {
	t.Parallel()
	noHead := map[string]string{"fleet/policies/no-head.yaml": document("Policy", "no-head",
		"kinds: [GitOpsDeployment]\n  rule: '!applications.exists(a, a.source.targetRevision == "+
			"\"HEAD\")'\n  message: name a revision\n  field: spec.source.targetRevision")}
	h := newHouse(t, together(small(), noHead))
	first := h.start("a", options{})
	h.eventually("the fleet is in sync", h.converged)
	head := h.commit("HEAD, and another file",
		together(deployment("acme", "web", "HEAD", "Delete", "prod", "staging"),
			deployment("globex", "shop", "v2", "Orphan", "prod")))
	applied := func(web, shop string) func() error {
		return func() error {
			if s, err := h.store.Views.Source(t.Context()); err != nil || s.Applied != h.head() {
				return errors.Join(fmt.Errorf("revision %s is applied", s.Applied.Short()), err)
			}
			for id, want := range map[string]string{"acme/web@prod": web,
				"globex/shop@prod": shop} {
				if a := h.application(id); a.TargetRevision != want ||
					a.Apply != mirror.ApplyApplied {
					return fmt.Errorf("%s is at %s, %s", id, a.TargetRevision, a.Apply)
				}
			}
			return nil
		}
	}
	h.eventually("the other file of the commit is applied", applied("v1", "v2"))
	problems, _, err := h.store.Views.Problems(t.Context(), view.Scope{Tenant: "acme"},
		view.Filter{},
		view.Page{Limit: 10})
	if err != nil || len(problems) != 1 || problems[0].Code != "policy" ||
		problems[0].Message != "no-head: name a revision" || problems[0].Line == 0 {
		t.Fatalf("at %s, the problems of acme are %v (%v)", head.Short(), problems, err)
	}
	first.stop()
	h.start("b", options{})
	h.commit("the same again, by another replica", deployment("globex", "shop", "v3", "Orphan",
		"prod"))
	h.eventually("it goes on", applied("v1", "v3"))
	h.commit("the policy goes", gone(noHead))
	h.eventually("what it held back is applied", applied("HEAD", "v3"))
}
