package e2e

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/test/stack"
)

func aFork(t *testing.T, w *forged) {
	eve, path := w.person["eve"], "tenants/globex/deployments/gift.yaml"
	good := strings.NewReplacer("acme/storefront", "globex/web", "path: deploy",
		"path: manifests").Replace(w.deployment("gift", "prod-eu", "globex-web", ""))
	fork, err := w.config.Fork(t.Context(), eve)
	check(t, err)
	push := func(content string) string {
		head, err := fork.Push(t.Context(), eve, stack.Change{Branch: "gift", Message: "a gift",
			Write: map[string]string{path: content}})
		check(t, err)
		return head
	}
	head := push(strings.Replace(good, "namespace", "namespase", 1))
	number, err := w.config.OpenPull(t.Context(), eve, "gift", "eve:gift", "main")
	check(t, err)
	if text := w.await(t, head, forge.CheckValidate, "failure").Description; !strings.Contains(text,
		"gift.yaml:6") {
		t.Errorf("a fork's typo is not named at its line: %s", text)
	}

	head = push(good)
	w.await(t, head, forge.CheckValidate, "success")
	w.unplanned(t, number, head)
	w.ask(t, "eve", number, "/argosy ok-to-test "+head)
	w.awaitComment(t, number,
		"`eve` may not allow that: it takes write permission or an owner of the platform.")
	w.unplanned(t, number, head)

	w.ask(t, "gus", number, "/argosy ok-to-test "+head)
	w.awaitComment(t, number, "`gus` lets `"+fleet.Revision(head).Short()+"` be planned",
		"1 Application added")
	if text := w.await(t, head, forge.CheckPlan,
		"success").Description; text != "1 Application added" {
		t.Errorf("the plan of the fork is reported as %q", text)
	}

	tested := head
	head = push(good + "# one line more\n")
	w.await(t, head, forge.CheckValidate, "success")
	w.unplanned(t, number, head)
	w.ask(t, "gus", number, "/argosy ok-to-test "+tested)
	w.awaitComment(t, number, "is not the head, which is `"+fleet.Revision(head).Short()+"`")
	w.unplanned(t, number, head)
	w.ask(t, "petra", number, "/argosy ok-to-test "+head)
	w.awaitComment(t, number, "`petra` lets `"+fleet.Revision(head).Short()+"` be planned",
		"1 Application added")
	w.close(t, number)
}

// unplanned waits until the head is reported as an untested head of a fork, and fails if anything
// of a plan is shown.
func (w *forged) unplanned(t *testing.T, number int, head string) {
	t.Helper()
	w.awaitComment(t, number, "A fork: nothing is planned yet", "`/argosy ok-to-test "+head+"`")
	if text := w.comment(t, number); strings.Contains(text, "added") ||
		strings.Contains(text, "Quota") {
		t.Fatalf("a plan of the fork is shown:\n%s", text)
	}
	if text := w.checks(t, head)[forge.CheckPlan].Description; !strings.HasPrefix(text,
		"A fork: nothing is planned yet") {
		t.Fatalf("%s of the fork has %q", forge.CheckPlan, text)
	}
}
