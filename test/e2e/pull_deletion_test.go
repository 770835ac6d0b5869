package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

// bring pushes to main as petra, whose direct pushes count as reviewed, and waits until it is
// recorded.
func (w *forged) bring(t *testing.T, message string, files map[string]string,
	remove ...string) fleet.Revision {
	t.Helper()
	return w.bringAs(t, "petra", message, files, remove...)
}

// bringAs does so as anybody.
func (w *forged) bringAs(t *testing.T, login, message string, files map[string]string,
	remove ...string) fleet.Revision {
	t.Helper()
	id, err := w.config.Push(t.Context(), w.person[login], stack.Change{
		Message: message, Write: files, Remove: remove})
	check(t, err)
	w.seen(t, id)
	return fleet.Revision(id)
}

// unreviewed waits for the hold of exactly these files of a revision, and for the command line to
// name them and the reason.
func (f *system) unreviewed(t *testing.T, revision fleet.Revision, paths ...string) {
	t.Helper()
	eventually(t, "the files are held", func() string {
		holds := list[mirror.Hold](t, f, "holds")
		if len(holds) != 1 || holds[0].Revision != revision ||
			holds[0].Reason != mirror.HoldUnreviewed || !slices.Equal(holds[0].Paths, paths) {
			return fmt.Sprintf("holds: %+v", holds)
		}
		if out := f.must(t, "get", "holds"); !strings.Contains(out, "not reviewed") ||
			!strings.Contains(out, paths[0]) {
			return "`get holds` prints " + out
		}
		return ""
	})
}

// nothingHeld waits until that is so.
func (f *system) nothingHeld(t *testing.T) {
	t.Helper()
	eventually(t, "no hold is left", func() string {
		if h := list[mirror.Hold](t, f, "holds"); len(h) > 0 {
			return h[0].Message
		}
		return ""
	})
}

func deletions(t *testing.T, w *forged) {
	files, paths, ids := w.many(2)
	w.bring(t, "two to go", files)
	eventually(t, "both on the engine", w.there(t, ids...))

	revision := w.bringAs(t, "alice", "one goes past everybody", nil, paths[0])
	w.unreviewed(t, revision, paths[0])
	w.allHealthyButManual(t, ids...)
	w.must(t, "release", string(revision), "--note", "test")
	w.allHealthyButManual(t, ids[1])
	w.nothingHeld(t)

	// Merged without an approval.
	number, head := w.propose(t, "alice", "nobody", nil, paths[1])
	w.await(t, head, forge.CheckOwners, "pending")
	w.awaitComment(t, number, "1 Application deleted")
	revision = w.merge(t, number)
	w.unreviewed(t, revision, paths[1])
	w.awaitComment(t, number, "Held until somebody lets it go", "`argosy release "+string(revision)+
		"`")
	w.must(t, "release", string(revision), "--note", "test")
	w.awaitComment(t, number, "Merged: 1 Application deleted")
	w.nothingHeld(t)
	w.allHealthy(t)
}

// allHealthyButManual waits until the example's Applications are Healthy, and those with manual
// sync are applied: they are never synced.
func (f *system) allHealthyButManual(t *testing.T, manual ...string) {
	t.Helper()
	eventually(t, "the Applications are those", func() string {
		var have []string
		for _, a := range example.Near(list[view.Application](t, f, "applications")) {
			have = append(have, fleet.ApplicationID{Tenant: a.Tenant, Deployment: a.Deployment,
				Environment: a.Environment}.String())
		}
		want := slices.Concat(exampleApplications, manual)
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			return fmt.Sprintf("they are %v", have)
		}
		return ""
	})
}

// A merge commit that somebody made by hand has the reviewed change in it, and more.
func anotherTreeThanReviewed(t *testing.T, w *forged) {
	files, paths, ids := w.many(2)
	w.bring(t, "two to go", files)
	eventually(t, "both on the engine", w.there(t, ids...))
	number, head := w.propose(t, "alice", "one-goes", nil, paths[0])
	w.await(t, head, forge.CheckPlan, "success")
	w.review(t, "amir", number, stack.Approve, head)
	w.await(t, head, forge.CheckOwners, "success")

	merge := w.mergeByHand(t, number, head, paths...)
	w.unreviewed(t, merge, paths[1])
	w.allHealthyButManual(t, ids[1]) // the reviewed one goes
	w.must(t, "release", string(merge), "--note", "test")
	w.nothingHeld(t)
	w.allHealthy(t)
	w.awaitComment(t, number, "Merged: 1 Application deleted")
}

// mergeByHand makes a merge commit of main and the head without these files, pushes it to main, and
// registers it with the forge as the merge.
func (w *forged) mergeByHand(t *testing.T, number int, head string,
	without ...string) fleet.Revision {
	t.Helper()
	petra, ctx := w.person["petra"], t.Context()
	tree := w.revise(t, "petra", "by-hand", nil, without...)
	commit, err := w.config.Git(ctx, petra, "-c", "user.name=petra", "-c",
		"user.email=petra@example.com",
		"commit-tree", "-m", "merged by hand", "-p", "main", "-p", head, tree+"^{tree}")
	check(t, err)
	commit = strings.TrimSpace(commit)
	check(t, w.config.SetBranch(ctx, petra, "main", commit))
	check(t, w.forge.Call(ctx, petra, "PATCH", "repos/"+w.config.Name, map[string]any{
		"allow_manual_merge": true, "has_pull_requests": true}, nil))
	eventually(t, "the forge takes it as the merge", func() string {
		err := w.forge.Call(ctx, petra, "POST", fmt.Sprintf("repos/%s/pulls/%d/merge",
			w.config.Name, number), map[string]any{"do": "manually-merged",
			"MergeCommitID": commit}, nil)
		if err != nil {
			return err.Error()
		}
		return ""
	})
	check(t, w.config.SetBranch(ctx, petra, "by-hand", ""))
	w.seen(t, commit)
	return fleet.Revision(commit)
}

func guardedDeletions(t *testing.T, w *forged) {
	files, paths, ids := w.many(guarded)
	w.bring(t, "many", files)
	eventually(t, "all of them on the engine", w.there(t, ids...))
	number, head := w.propose(t, "alice", "clean-up", nil, paths...)
	w.await(t, head, forge.CheckPlan, "failure")
	w.awaitComment(t, number, "`/argosy approve-deletions "+head+"`")

	w.ask(t, "gus", number, "/argosy approve-deletions "+head)
	w.awaitComment(t, number, "`gus` may not approve these deletions")
	w.expect(t, head, forge.CheckPlan, "failure")
	w.ask(t, "petra", number, "/argosy approve-deletions "+head)
	w.awaitComment(
		t, number, fmt.Sprintf("`petra` approves the deletion of %d Applications", guarded))
	w.expect(t, head, forge.CheckPlan, "success")
	w.review(t, "amir", number, stack.Approve, head)
	w.await(t, head, forge.CheckOwners, "success")
	w.merge(t, number)
	w.allHealthy(t)
	w.awaitComment(t, number, fmt.Sprintf("Merged: %d Applications deleted", guarded))
	w.nothingHeld(t)
}
