package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/test/stack"
)

const (
	grantOfAcme = "fleet/tenants/acme.yaml"
	webOfGlobex = "tenants/globex/deployments/web.yaml"
	fileOfAcme  = "tenants/acme/deployments/beside.yaml"
	manualApp   = "acme/beside@staging"
)

// commitTree makes a commit of a tree-ish with these parents, which no branch has.
func (w *forged) commitTree(t *testing.T, tree string, parents ...string) string {
	t.Helper()
	args := []string{"-c", "user.name=alice", "-c", "user.email=alice@example.com", "commit-tree",
		"-m", "crossed"}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	out, err := w.config.Git(t.Context(), w.person["alice"], append(args, tree+"^{tree}")...)
	check(t, err)
	return strings.TrimSpace(out)
}

// branch points a branch at a commit and asks to merge it into main.
func (w *forged) branch(t *testing.T, name, commit string) (number int) {
	t.Helper()
	check(t, w.config.SetBranch(t.Context(), w.person["alice"], name, commit))
	number, err := w.config.OpenPull(t.Context(), w.person["alice"], name, name, "main")
	check(t, err)
	return number
}

// mergeAs merges in a style despite the checks, and waits until it is recorded.
func (w *forged) mergeAs(t *testing.T, number int, style string) fleet.Revision {
	t.Helper()
	commit, err := w.config.Merge(t.Context(), w.person["petra"], number, style)
	check(t, err)
	w.seen(t, commit)
	return fleet.Revision(commit)
}

// restored pushes the first content of these files and removes the others, after which nothing is
// held.
func (w *forged) restored(t *testing.T, paths ...string) {
	t.Helper()
	all, files := w.files(t), map[string]string{}
	var remove []string
	for _, path := range paths {
		if content, ok := all[path]; ok {
			files[path] = content
		} else {
			remove = append(remove, path)
		}
	}
	w.bring(t, "restored", files, remove...)
	w.nothingHeld(t)
	w.allHealthy(t)
}

func (f *system) manualPromo() map[string]string {
	return map[string]string{fileOfAcme: f.deployment("beside", "staging", "acme-staging",
		"  sync: {mode: manual}\n")}
}

// grown is the file with a change that only an owner of it may make.
func (w *forged) grown(t *testing.T, path, old, with string) map[string]string {
	t.Helper()
	content := w.files(t)[path]
	if !strings.Contains(content, old) {
		t.Fatalf("%s has no %q:\n%s", path, old, content)
	}
	return map[string]string{path: strings.Replace(content, old, with, 1)}
}

// Two pull requests with crossed merge bases: the second brings a grant that no comparison with
// main shows.
func crossedMergeBases(t *testing.T, w *forged) {
	before := w.files(t)[grantOfAcme]
	grant := w.grown(t, grantOfAcme, "applications: ", "applications: 9")
	evil := w.revise(t, "alice", "crossed-evil", grant)
	check(t, w.config.SetBranch(t.Context(), w.person["alice"], "crossed-own", evil))
	own := w.revise(t, "alice", "crossed-own", w.manualPromo())
	check(t, w.config.SetBranch(t.Context(), w.person["alice"], "crossed-back", evil))
	back := w.revise(t, "alice", "crossed-back", map[string]string{grantOfAcme: before})
	clean := w.revise(t, "alice", "crossed-clean", w.manualPromo())

	first := w.commitTree(t, clean, own, back)
	number := w.branch(t, "crossed-1", first)
	w.await(t, first, forge.CheckPlan, "success")
	w.review(t, "amir", number, stack.Approve, first)
	w.await(t, first, forge.CheckOwners, "success")
	w.mergeAs(t, number, "merge")
	w.allHealthyButManual(t, manualApp)
	w.nothingHeld(t)

	second := w.commitTree(t, own, own, back)
	number = w.branch(t, "crossed-2", second)
	w.await(t, second, forge.CheckOwners, "failure")
	merged := w.mergeAs(t, number, "merge")
	w.unreviewed(t, merged, grantOfAcme)
	w.restored(t, grantOfAcme, fileOfAcme)
}

// Statuses that their author may set are no review, however fast the merge.
func forgedStatusesAndAMerge(t *testing.T, w *forged) {
	number, head := w.propose(t, "alice", "forged-all", w.grown(t, webOfGlobex, "targetRevision: ",
		"targetRevision: feature-"))
	for _, name := range []string{forge.CheckValidate, forge.CheckPlan, forge.CheckOwners} {
		check(t, w.config.SetStatus(t.Context(), w.person["alice"], head, stack.ForgeStatus{
			Context: name, State: "success", Description: "fine"}))
	}
	merged := w.mergeAs(t, number, "squash")
	w.unreviewed(t, merged, webOfGlobex)
	w.allHealthy(t)
	w.restored(t, webOfGlobex)
}

// A rebase drops the merge by which the head undid another tenant's change, and replays that
// change.
func aRebaseThatReplaysWhatWasUndone(t *testing.T, w *forged) {
	bad := w.revise(t, "alice", "replay-bad", w.grown(t, webOfGlobex, "targetRevision: ",
		"targetRevision: feature-"))
	own := w.revise(t, "alice", "replay-own", w.manualPromo())
	head := w.commitTree(t, own, own, bad)
	number := w.branch(t, "replay", head)
	w.await(t, head, forge.CheckPlan, "success")
	w.review(t, "amir", number, stack.Approve, head)
	w.await(t, head, forge.CheckOwners, "success")
	merged := w.mergeAs(t, number, "rebase")
	changed, err := w.config.Git(t.Context(), w.person["petra"], "diff", "--name-only", "main~2",
		"main")
	check(t, err)
	if !slices.Contains(strings.Fields(changed), webOfGlobex) {
		t.Fatalf("the forge's rebase replays nothing: %s", changed)
	}
	w.unreviewed(t, merged, webOfGlobex)
	w.allHealthyButManual(t, manualApp)
	w.restored(t, webOfGlobex, fileOfAcme)
}

// A pull request of two tenants and two commits, squashed by force with the approval of one owner:
// the files of that tenant are applied.
func consentOfOneOfTwoTenants(t *testing.T, w *forged) {
	number, _ := w.propose(t, "alice", "two-tenants", w.manualPromo())
	head := w.revise(t, "alice", "two-tenants", w.grown(t, webOfGlobex, "targetRevision: ",
		"targetRevision: feature-"))
	w.await(t, head, forge.CheckPlan, "success")
	w.review(t, "amir", number, stack.Approve, head)
	w.awaitComment(t, number, "Approved for tenant `acme` by `amir`",
		"Needs an approval for tenant `globex`")
	w.expect(t, head, forge.CheckOwners, "pending")
	merged := w.mergeAs(t, number, "squash")
	w.unreviewed(t, merged, webOfGlobex)
	w.allHealthyButManual(t, manualApp)
	w.restored(t, webOfGlobex, fileOfAcme)
}

// The commits of a rebase are judged by what the pull request showed at its head, whatever the
// first of them brought.
func aRebaseOfTwoReviewedCommits(t *testing.T, w *forged) {
	first := w.manualPromo()
	first[fileOfAcme] += "# not yet\n"
	number, _ := w.propose(t, "alice", "two-commits", first)
	head := w.revise(t, "alice", "two-commits", w.manualPromo())
	w.await(t, head, forge.CheckPlan, "success")
	w.review(t, "amir", number, stack.Approve, head)
	w.await(t, head, forge.CheckOwners, "success")
	w.mergeAs(t, number, "rebase")
	w.nothingHeld(t)
	w.allHealthyButManual(t, manualApp)
	w.restored(t, fileOfAcme)
}

// The doctor names what the forge does not enforce on the branch, and finds nothing once it is set.
func theDoctorOnTheBranch(t *testing.T, w *forged) {
	rules := func() map[string]string {
		out, errs, _ := w.argosy(t, "doctor", "-f", w.plane.Config, "-o", "json")
		var checks []struct{ Subject, State, Text string }
		if err := json.Unmarshal([]byte(out), &checks); err != nil {
			t.Fatalf("%v\n%s%s", err, out, errs)
		}
		states := map[string]string{}
		for _, c := range checks {
			if rule, ok := strings.CutPrefix(c.Subject, "branch main: "); ok {
				states[rule] = c.State + ": " + c.Text
			}
		}
		return states
	}
	before := rules()
	for rule, want := range map[string]string{
		"required checks": `blocking: argosy/validate, argosy/plan, argosy/owners not required`,
		"direct pushes":   "blocking: every account with write access may push",
		"merge styles":    `"Rebase then create merge commit"`,
		"force pushes":    `"Disable Force Push"`,
		"deletion":        "ok",
	} {
		if !strings.Contains(before[rule], want) {
			t.Errorf("%s is reported as %q, without %q", rule, before[rule], want)
		}
	}
	check(t, w.config.Protect(t.Context(), "main", stack.BranchRule{
		Contexts:  []string{forge.CheckValidate, forge.CheckPlan, forge.CheckOwners},
		PushTeams: []string{"platform"}, DismissStale: true, BindAdmins: true,
	}))
	check(t, w.config.AllowRebase(t.Context(), false))
	after := rules()
	for rule, state := range after {
		if !strings.HasPrefix(state, "ok: ") {
			t.Errorf("%s is reported as %q", rule, state)
		}
	}
	if len(after) < 9 || !strings.Contains(after["direct pushes"], "the team example/platform") {
		t.Errorf("the rules are %v", after)
	}
}
