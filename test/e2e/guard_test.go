package e2e

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// many is deployments in one environment that deploy nothing.
func many(n int) (files map[string]string, paths, ids []string) {
	files = map[string]string{}
	for i := range n {
		name := fmt.Sprintf("many-%d", i)
		path := "tenants/acme/deployments/" + name + ".yaml"
		files[path] = deployment(name, "staging", "acme-staging", "  sync: {mode: manual}\n")
		paths = append(paths, path)
		ids = append(ids, "acme/"+name+"@staging")
	}
	return files, paths, ids
}

func TestDeletionsBeyondTheGuardWaitForAnApproval(t *testing.T) {
	allHealthy(t)
	files, paths, ids := many(guarded)
	commit(t, "many", files)
	eventually(t, "all of them on the engine", there(t, ids...))
	revision := remove(t, "all of them at once", paths...)
	holds := list[fleet.Hold](t, "holds")
	if len(holds) != 1 || holds[0].Revision != revision || len(holds[0].Items) != len(ids) {
		t.Fatalf("holds: %+v", holds)
	}
	if out := must(t, "get", "holds"); !strings.Contains(out, revision.Short()) {
		t.Errorf("`get holds` does not name the revision:\n%s", out)
	}
	// Another commit proceeds beside the hold.
	commit(t, "something else", map[string]string{
		"tenants/globex/deployments/extra.yaml": strings.NewReplacer("acme/storefront",
			"globex/web", "path: deploy", "path: manifests/app", "v2.0.1", "main").
			Replace(deployment("extra", "prod-us", "globex-billing", ""))})
	eventually(t, "the other tenant's commit is applied, the held ones stand",
		there(t, append(ids, "globex/extra@prod-us")...))
	if _, errs, code := argosy(t, "approve", strings.Repeat("0", 40)); code == 0 {
		t.Errorf("a revision that holds nothing was approved: %s", errs)
	}
	must(t, "approve", string(revision), "--note", "test")
	eventually(t, "the approved deletions are done", func() string {
		for _, a := range list[fleet.ApplicationView](t, "applications") {
			if strings.HasPrefix(string(a.Deployment), "many-") {
				return string(a.Deployment) + " is still there"
			}
		}
		if h := list[fleet.Hold](t, "holds"); len(h) > 0 {
			return fmt.Sprintf("%d holds are left", len(h))
		}
		return ""
	})
	approved := false
	for _, o := range list[fleet.Operation](t, "operations") {
		approved = approved || o.Kind == fleet.OperationApprove && o.Revision == revision &&
			o.RequestedBy != ""
	}
	if !approved {
		t.Error("nobody is recorded to have approved it")
	}
	remove(t, "no extra", "tenants/globex/deployments/extra.yaml")
	allHealthy(t)
}

// there says which Applications are not applied yet.
func there(t *testing.T, ids ...string) func() string {
	return func() string {
		applied := map[string]bool{}
		for _, a := range list[fleet.ApplicationView](t, "applications") {
			if a.Apply == fleet.ApplyApplied || a.Apply == fleet.ApplyHeld {
				applied[fleet.ApplicationID{Tenant: a.Tenant, Deployment: a.Deployment,
					Environment: a.Environment}.String()] = true
			}
		}
		for _, id := range ids {
			if !applied[id] {
				return id + " is not applied"
			}
		}
		return ""
	}
}

func TestARewrittenHistoryWaitsForAnApproval(t *testing.T) {
	allHealthy(t)
	ctx := t.Context()
	applied, err := world.Config.Head(ctx, "main")
	if err != nil {
		t.Fatal(err)
	}
	// A commit of the same tree with no parent: nothing of the history is left.
	orphan, err := world.Config.Git(ctx, "-c", "user.name=stranger", "-c",
		"user.email=stranger@example.com", "commit-tree", "-m", "rewritten", applied+"^{tree}")
	if err != nil {
		t.Fatal(err)
	}
	orphan = strings.TrimSpace(orphan)
	if _, err := world.Config.Git(ctx, "update-ref", "refs/heads/main", orphan); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rewritten history is held", func() string {
		for _, h := range list[fleet.Hold](t, "holds") {
			if string(h.Revision) == orphan {
				return ""
			}
		}
		return "no hold"
	})
	var source fleet.SourceView
	for _, r := range list[fleet.RevisionView](t, "revisions") {
		if string(r.Revision) == orphan {
			source.Applied = r.Revision
		}
	}
	if source.Applied != "" {
		t.Error("it was recorded as applied")
	}
	must(t, "approve", orphan)
	seen(t, orphan)
	allHealthy(t)
}

func TestAnEmptyConfigRepoDeletesNothing(t *testing.T) {
	allHealthy(t)
	ctx := t.Context()
	before, err := world.Config.Head(ctx, "main")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := world.Config.Git(ctx, "mktree", "--missing")
	if err != nil {
		t.Fatal(err)
	}
	empty, err := world.Config.Git(ctx, "-c", "user.name=x", "-c", "user.email=x@example.com",
		"commit-tree", "-m", "empty", "-p", before, strings.TrimSpace(tree))
	if err != nil {
		t.Fatal(err)
	}
	empty = strings.TrimSpace(empty)
	if _, err := world.Config.Git(ctx, "update-ref", "refs/heads/main", empty); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the empty revision is held", func() string {
		for _, h := range list[fleet.Hold](t, "holds") {
			if string(h.Revision) == empty && h.Reason == fleet.HoldEmpty {
				return ""
			}
		}
		return "no hold"
	})
	allHealthy(t)
	// Putting the files back needs no approval.
	again, err := world.Config.Git(ctx, "-c", "user.name=x", "-c", "user.email=x@example.com",
		"commit-tree", "-m", "again", "-p", empty, before+"^{tree}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := world.Config.Git(ctx, "update-ref", "refs/heads/main",
		strings.TrimSpace(again)); err != nil {
		t.Fatal(err)
	}
	seen(t, strings.TrimSpace(again))
	eventually(t, "no hold is left", func() string {
		if h := list[fleet.Hold](t, "holds"); len(h) > 0 {
			return h[0].Message
		}
		return ""
	})
	allHealthy(t)
}
