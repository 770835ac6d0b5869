package e2e

import (
	"testing"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/test/stack"
)

// crissCross smuggles a change of globex's file through two pull requests of acme's, each of which
// shows no file of globex. The first brings both sides of a change that was withdrawn, the second
// has the two as its merge bases: git's merge writes the file of globex.
func crissCross(t *testing.T, w *forged) {
	const mine, theirs = "tenants/acme/deployments/checkout.yaml",
		"tenants/globex/deployments/web.yaml"
	files := w.files(t)
	tidy, smuggled := map[string]string{theirs: files[theirs]}, map[string]string{
		theirs: files[theirs] + "# smuggled\n"}
	start := w.revise(t, "alice", "cross", smuggled)
	w.point(t, "alice", "cross-withdrawn", start)
	withdrawn := w.revise(t, "alice", "cross-withdrawn", tidy)
	own := w.revise(t, "alice", "cross", map[string]string{mine: files[mine] + "# crossed\n"})
	both := w.revise(t, "alice", "cross", tidy)
	first := w.craft(t, "alice", both, own, withdrawn)
	w.point(t, "alice", "cross", first)

	number, err := w.config.OpenPull(t.Context(), w.person["alice"], "crossed", "cross", "main")
	check(t, err)
	w.await(t, first, forge.CheckOwners, "pending")
	w.review(t, "amir", number, stack.Approve, first)
	w.await(t, first, forge.CheckOwners, "success")
	_, err = w.config.Merge(t.Context(), w.person["petra"], number, "merge")
	check(t, err)
	w.awaitComment(t, number, "Merged")

	second := w.craft(t, "alice", own, own, withdrawn)
	w.point(t, "alice", "cross-again", second)
	number, err = w.config.OpenPull(t.Context(), w.person["alice"], "crossed again", "cross-again",
		"main")
	check(t, err)
	for _, name := range []string{forge.CheckValidate, forge.CheckPlan, forge.CheckOwners} {
		w.await(t, second, name, "failure")
	}
	w.awaitComment(t, number, "More than one merge base: rebase onto main and push again")
	w.close(t, number)
	w.allHealthy(t)
}
