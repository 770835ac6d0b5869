package e2e

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/test/stack"
)

// TestPullRequests is what people do with pull requests, on one forge and one control plane. Each
// journey leaves the fleet with the example's Applications Healthy and nothing held.
func TestPullRequests(t *testing.T) {
	w := startForged(t)
	w.startControlPlane(t)
	w.allHealthy(t)
	for _, journey := range []struct {
		name string
		take func(*testing.T, *forged)
	}{
		{"from a typo to its result", fromATypoToItsResult},
		{"a set follows a private repository", aSetThatFollowsItsRepository},
		{"Applications are adopted in batches and given back", adoptionInBatches},
		{"commands are for those who may, as they were posted", commandsInComments},
		{"only an owner's approval of the very head counts", approvals},
		{"a pull request does not name those who approve it", ownersOfTheBase},
		{"a fork is planned head by head, when a member approves it", aFork},
		{"two that change the same name each other", twoThatCollide},
		{"a status that a stranger sets is set right", aForgedStatus},
		{"criss-crossed histories are not merged", crissCross},
		{"an unreviewed deletion waits, a reviewed one does not", deletions},
		{"what is merged beside the reviewed change waits", anotherTreeThanReviewed},
		{"deletions beyond the guards are let go in the pull request", guardedDeletions},
		{"crossed merge bases bring nothing into force", crossedMergeBases},
		{"forged statuses and a merge bring nothing into force", forgedStatusesAndAMerge},
		{"a rebase that replays what was undone brings nothing into force",
			aRebaseThatReplaysWhatWasUndone},
		{"an approval of one of two tenants is for its files alone", consentOfOneOfTwoTenants},
		{"a rebase of two reviewed commits is applied", aRebaseOfTwoReviewedCommits},
		{"a rollback is made lasting by the pull request that it opens", aRollbackInGit},
		{"a team is notified, and its commits have statuses", aTeamIsNotified},
		{"a push refreshes what deploys from it, and nothing else", aPushOfAnApplication},
		{"a person signs in on a terminal", aPersonOnATerminal},
		{"the doctor compares the rules of the branch", theDoctorOnTheBranch},
	} {
		t.Run(journey.name, func(t *testing.T) { journey.take(t, w) })
	}
}

func fromATypoToItsResult(t *testing.T, w *forged) {
	path := "tenants/acme/deployments/promo.yaml"
	good := w.deployment("promo", "staging", "acme-staging", "")
	number, head := w.propose(t, "alice", "promo", map[string]string{
		path: strings.Replace(good, "targetRevision", "targetRevison", 1)})
	if text := w.await(t, head, forge.CheckValidate, "failure").Description; !strings.Contains(text,
		"promo.yaml:5") || !strings.Contains(text, "targetRevison") {
		t.Errorf("the check does not name the typo at its line: %s", text)
	}
	w.awaitComment(t, number, "promo.yaml", "targetRevison")

	head = w.revise(t, "alice", "promo", map[string]string{path: good})
	w.await(t, head, forge.CheckValidate, "success")
	w.await(t, head, forge.CheckPlan, "success")
	w.await(t, head, forge.CheckOwners, "pending")
	eventually(t, "the comment shows the plan", func() string {
		if text := w.comment(t, number); !strings.Contains(text, "promo") ||
			strings.Contains(text, "targetRevison") {
			return "it reads " + text
		}
		return ""
	})

	w.review(t, "amir", number, stack.Approve, head)
	w.await(t, head, forge.CheckOwners, "success")
	w.merge(t, number)
	w.allHealthy(t, "acme/promo@staging")
	w.awaitComment(t, number, "1 Application Synced and Healthy")

	number, head = w.propose(t, "alice", "no-promo", nil, path)
	w.await(t, head, forge.CheckPlan, "success")
	w.review(t, "amir", number, stack.Approve, head)
	w.await(t, head, forge.CheckOwners, "success")
	w.merge(t, number)
	w.awaitComment(t, number, "Merged: 1 Application deleted")
	w.allHealthy(t)
}
