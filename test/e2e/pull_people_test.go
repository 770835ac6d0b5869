package e2e

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/test/stack"
)

func commandsInComments(t *testing.T, w *forged) {
	number, head := w.propose(t, "alice", "asked", map[string]string{
		"tenants/acme/deployments/asked.yaml": w.deployment("asked", "staging", "acme-staging",
			"")})
	w.await(t, head, forge.CheckPlan, "success")

	w.ask(t, "eve", number, "/argosy help")
	w.awaitComment(t, number, "`/argosy ok-to-test <sha>`", "`/argosy unlock`: end a lock")
	w.ask(t, "eve", number, "/argosy lock")
	w.awaitComment(t, number,
		"`eve` may not lock this: that takes an owner of what it changes, or write permission.")
	w.expect(t, head, forge.CheckPlan, "success")

	w.ask(t, "gus", number, "/argosy lock")
	w.awaitComment(t, number, "`gus` locks this pull request")
	w.expect(t, head, forge.CheckPlan, "failure")
	w.ask(t, "eve", number, "/argosy unlock")
	w.awaitComment(t, number, "`eve` may not unlock this")
	w.expect(t, head, forge.CheckPlan, "failure")

	w.editInto(t, "amir", number, "/argosy unlock")
	w.ask(t, "amir", number, "Fine with me.\n/argosy unlock") // not its first line
	w.ask(t, "amir", number, "/argosy plan")
	w.awaitComment(t, number, "`amir` asked for a new review")
	w.expect(t, head, forge.CheckPlan, "failure")
	if strings.Contains(w.comment(t, number), "ends the lock") {
		t.Error("an edited comment was obeyed, or one that begins otherwise")
	}

	w.ask(t, "alice", number, "/argosy unlock")
	w.awaitComment(t, number, "`alice` ends the lock")
	w.expect(t, head, forge.CheckPlan, "success")
	w.ask(t, "alice", number, "/argosy aprove "+head)
	w.awaitComment(t, number, "Did you mean `/argosy approve`?")
	w.ask(t, "alice", number, "/argosy approve "+strings.Repeat("0", 12))
	w.awaitComment(t, number, "is not the head, which is `"+fleet.Revision(head).Short()+"`")
	w.expect(t, head, forge.CheckOwners, "pending")
	w.ask(t, "alice", number, "/argosy approve "+head[:12])
	w.awaitComment(t, number, "is too short", "Write all 40: `/argosy approve "+head+"`")
	w.expect(t, head, forge.CheckOwners, "pending")
	// the forge lets no author approve by a review
	w.ask(t, "alice", number, "/argosy approve "+head)
	w.awaitComment(t, number, "`alice` approves `"+fleet.Revision(head).Short()+
		"` for tenant `acme`")
	w.expect(t, head, forge.CheckOwners, "success")
	w.close(t, number)
}

// editInto posts a harmless comment as a person and makes it into another, so that the forge shows
// that it was edited: it does by whole seconds.
func (w *forged) editInto(t *testing.T, login string, number int, text string) {
	t.Helper()
	id := w.ask(t, login, number, "I will look at this.")
	eventually(t, "an edit that shows", func() string {
		check(t, w.config.EditComment(t.Context(), w.person[login], id, "I have looked at this."))
		check(t, w.config.EditComment(t.Context(), w.person[login], id, "I will look at this."))
		comments, err := w.config.Comments(t.Context(), number)
		check(t, err)
		for _, c := range comments {
			if c.ID == id && c.Updated.After(c.Created) {
				return ""
			}
		}
		return "not yet"
	})
	check(t, w.config.EditComment(t.Context(), w.person[login], id, text))
}

func approvals(t *testing.T, w *forged) {
	acme := map[string]string{
		"tenants/acme/deployments/owned.yaml": w.deployment("owned", "staging",
			"acme-staging", "")}
	globex := map[string]string{
		"tenants/globex/deployments/owned.yaml": strings.Replace(w.deployment("owned", "prod-eu",
			"globex-web", ""), "acme/storefront", "globex/web", 1)}
	number, head := w.propose(t, "alice", "approvals", acme)
	w.await(t, head, forge.CheckOwners, "pending")

	// A review of no owner leaves everything as it was; the answer to the command shows that both
	// were processed.
	w.review(t, "gus", number, stack.Approve, head)
	w.ask(t, "gus", number, "/argosy approve "+head)
	w.awaitComment(
		t, number, "`gus` owns nothing of what this changes: the approval does not count.")
	w.expect(t, head, forge.CheckOwners, "pending")

	w.review(t, "amir", number, stack.Approve, head)
	w.await(t, head, forge.CheckOwners, "success")
	head = w.revise(t, "alice", "approvals", globex)
	w.await(t, head, forge.CheckOwners, "pending")
	w.awaitComment(t, number, "`amir` approved an earlier head")

	w.review(t, "amir", number, stack.Approve, head)
	w.awaitComment(t, number, "Needs an approval for tenant `globex`",
		"Approved for tenant `acme` by `amir`")
	w.expect(t, head, forge.CheckOwners, "pending")
	w.review(t, "gus", number, stack.Approve, head)
	w.await(t, head, forge.CheckOwners, "success")
	w.review(t, "gus", number, stack.RequestChanges, head)
	w.await(t, head, forge.CheckOwners, "failure")
	w.awaitComment(t, number, "`gus` asked for changes for tenant `globex`")
	w.close(t, number)
}

func ownersOfTheBase(t *testing.T, w *forged) {
	path := "fleet/tenants/globex.yaml"
	mine := strings.Replace(w.files(t)[path], "github:example/globex-leads", "github:alice", 1)
	number, head := w.propose(t, "alice", "mine", map[string]string{path: mine})
	w.await(t, head, forge.CheckOwners, "pending")
	w.ask(t, "alice", number, "/argosy approve "+head)
	w.awaitComment(t, number, "`alice` owns nothing of what this changes")
	w.expect(t, head, forge.CheckOwners, "pending")
	w.review(t, "petra", number, stack.Approve, head)
	w.await(t, head, forge.CheckOwners, "success")
	w.close(t, number)
}
