package e2e

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/test/stack"
)

func twoThatCollide(t *testing.T, w *forged) {
	path := "tenants/acme/deployments/storefront.yaml"
	before := w.files(t)[path]
	first, head := w.propose(t, "alice", "first", map[string]string{path: "# one\n" + before})
	w.await(t, head, forge.CheckPlan, "success")
	second, head := w.propose(t, "amir", "second", map[string]string{path: "# two\n" + before})
	w.await(t, head, forge.CheckPlan, "success")
	meets := func(number int) string { return fmt.Sprintf("#%d changes `%s` too", number, path) }
	w.awaitComment(t, second, meets(first))
	w.awaitComment(t, first, meets(second))

	w.close(t, second)
	eventually(t, "the other one is no longer named", func() string {
		if text := w.comment(t, first); strings.Contains(text, meets(second)) {
			return text
		}
		return ""
	})
	w.close(t, first)
}

func aForgedStatus(t *testing.T, w *forged) {
	number, head := w.propose(t, "alice", "forged", map[string]string{
		"tenants/acme/deployments/forged.yaml": w.deployment("forged", "staging", "acme-staging",
			"")})
	w.await(t, head, forge.CheckPlan, "success")
	w.ask(t, "alice", number, "/argosy lock")
	w.await(t, head, forge.CheckPlan, "failure")
	check(t, w.config.CreateHook(t.Context(), w.plane.URL+"/webhook/github", w.secret, "status"))
	check(t, w.config.SetStatus(t.Context(), w.person["gus"], head, stack.ForgeStatus{
		Context: forge.CheckPlan, State: "success", Description: "all is well"}))
	s := w.await(t, head, forge.CheckPlan, "failure")
	if s.Creator.ID != w.bot.ID || !strings.Contains(s.Description, "Locked by alice") {
		t.Errorf("the status is now %+v", s)
	}
	all, err := w.config.Statuses(t.Context(), head)
	check(t, err)
	if len(all) < 2 || all[1].Creator.ID != w.person["gus"].ID {
		t.Errorf("the forged status was not there before: %+v", all)
	}
	w.close(t, number)
}
