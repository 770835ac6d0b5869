package e2e

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// many is deployments in one environment that deploy nothing.
func (f *system) many(n int) (files map[string]string, paths, ids []string) {
	files = map[string]string{}
	for i := range n {
		name := fmt.Sprintf("many-%d", i)
		path := "tenants/acme/deployments/" + name + ".yaml"
		files[path] = f.deployment(name, "staging", "acme-staging", "  sync: {mode: manual}\n")
		paths = append(paths, path)
		ids = append(ids, "acme/"+name+"@staging")
	}
	return files, paths, ids
}

func TestDeletionsBeyondTheGuardWaitForAnApproval(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	files, paths, ids := f.many(guarded)
	f.commit(t, "many", files)
	eventually(t, "all of them on the engine", f.there(t, ids...))
	revision := f.remove(t, "all of them at once", paths...)
	holds := list[mirror.Hold](t, f, "holds")
	if len(holds) != 1 || holds[0].Revision != revision || len(holds[0].Items) != len(ids) {
		t.Fatalf("holds: %+v", holds)
	}
	if out := f.must(t, "get", "holds"); !strings.Contains(out, revision.Short()) {
		t.Errorf("`get holds` does not name the revision:\n%s", out)
	}
	// Another commit proceeds beside the hold.
	f.commit(t, "something else", map[string]string{
		"tenants/globex/deployments/extra.yaml": strings.NewReplacer("acme/storefront",
			"globex/web", "path: deploy", "path: manifests/app", "v2.0.1", "main").
			Replace(f.deployment("extra", "prod-us", "globex-billing", ""))})
	eventually(t, "the other tenant's commit is applied, the held objects exist",
		f.there(t, append(ids, "globex/extra@prod-us")...))
	if _, errs, code := f.argosy(t, "release", strings.Repeat("0", 40)); code == 0 {
		t.Errorf("a revision that holds nothing was approved: %s", errs)
	}
	f.must(t, "release", string(revision), "--note", "test")
	eventually(t, "the approved deletions are done", func() string {
		for _, a := range list[view.Application](t, f, "applications") {
			if strings.HasPrefix(string(a.Deployment), "many-") {
				return string(a.Deployment) + " is still there"
			}
		}
		if h := list[mirror.Hold](t, f, "holds"); len(h) > 0 {
			return fmt.Sprintf("%d holds are left", len(h))
		}
		return ""
	})
	approved := false
	for _, o := range list[mirror.Operation](t, f, "operations") {
		approved = approved || o.Kind == mirror.OperationApprove && o.Revision == revision &&
			o.RequestedBy != ""
	}
	if !approved {
		t.Error("no approver is recorded")
	}
	f.remove(t, "no extra", "tenants/globex/deployments/extra.yaml")
	f.allHealthy(t)
}

// there returns which Applications are not applied yet.
func (f *system) there(t *testing.T, ids ...string) func() string {
	return func() string {
		applied := map[string]bool{}
		for _, a := range list[view.Application](t, f, "applications") {
			if a.Apply == mirror.ApplyApplied || a.Apply == mirror.ApplyHeld {
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
	f := platform.use(t)
	f.allHealthy(t)
	ctx := t.Context()
	applied, err := f.Config.Head(ctx, "main")
	if err != nil {
		t.Fatal(err)
	}
	// A commit of the same tree with no parent: nothing of the history is left.
	orphan, err := f.Config.Git(ctx, "-c", "user.name=stranger", "-c",
		"user.email=stranger@example.com", "commit-tree", "-m", "rewritten", applied+"^{tree}")
	if err != nil {
		t.Fatal(err)
	}
	orphan = strings.TrimSpace(orphan)
	if _, err := f.Config.Git(ctx, "update-ref", "refs/heads/main", orphan); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rewritten history is held", func() string {
		for _, h := range list[mirror.Hold](t, f, "holds") {
			if string(h.Revision) == orphan {
				return ""
			}
		}
		return "no hold"
	})
	var source view.Source
	for _, r := range list[view.Revision](t, f, "revisions") {
		if string(r.Revision) == orphan {
			source.Applied = r.Revision
		}
	}
	if source.Applied != "" {
		t.Error("it was recorded as applied")
	}
	f.must(t, "release", orphan)
	f.seen(t, orphan)
	f.allHealthy(t)
}

func TestAnEmptyConfigRepoDeletesNothing(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	ctx := t.Context()
	before, err := f.Config.Head(ctx, "main")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := f.Config.Git(ctx, "mktree", "--missing")
	if err != nil {
		t.Fatal(err)
	}
	empty, err := f.Config.Git(ctx, "-c", "user.name=x", "-c", "user.email=x@example.com",
		"commit-tree", "-m", "empty", "-p", before, strings.TrimSpace(tree))
	if err != nil {
		t.Fatal(err)
	}
	empty = strings.TrimSpace(empty)
	if _, err := f.Config.Git(ctx, "update-ref", "refs/heads/main", empty); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the empty revision is held", func() string {
		for _, h := range list[mirror.Hold](t, f, "holds") {
			if string(h.Revision) == empty && h.Reason == mirror.HoldEmpty {
				return ""
			}
		}
		return "no hold"
	})
	f.allHealthy(t)
	// Putting the files back needs no approval.
	again, err := f.Config.Git(ctx, "-c", "user.name=x", "-c", "user.email=x@example.com",
		"commit-tree", "-m", "again", "-p", empty, before+"^{tree}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Config.Git(ctx, "update-ref", "refs/heads/main",
		strings.TrimSpace(again)); err != nil {
		t.Fatal(err)
	}
	f.seen(t, strings.TrimSpace(again))
	eventually(t, "no hold is left", func() string {
		if h := list[mirror.Hold](t, f, "holds"); len(h) > 0 {
			return h[0].Message
		}
		return ""
	})
	f.allHealthy(t)
}
