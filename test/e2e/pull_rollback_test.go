package e2e

import (
	"fmt"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

func aRollbackInGit(t *testing.T, w *forged) {
	const path, app = "tenants/acme/deployments/returned.yaml", "acme/returned@staging"
	storefront, err := w.forge.Repo(t.Context(), "acme/storefront")
	check(t, err)
	declare := func(text string) {
		t.Helper()
		_, err := w.config.Push(t.Context(), w.person["petra"], stack.Change{
			Message: "a release", Write: map[string]string{path: text}})
		check(t, err)
	}
	first := w.deployment("returned", "staging", "acme-staging", "")
	first = "# as tested\n" + first
	declare(first)
	w.allHealthy(t, app)
	old := w.application(t, app).SyncedRevision
	newer, err := storefront.Push(t.Context(), w.forge.Admin, stack.Change{Message: "a faulty one",
		Write: map[string]string{"deploy/config.yaml": motd("faulty")}})
	check(t, err)
	declare(strings.Replace(first, "v2.0.1", newer, 1))
	eventually(t, "synced to the faulty one", w.syncedTo(t, "returned", newer))

	w.must(t, "rollback", app, "--to", old, "--yes", "--wait", "--note", "it is faulty")
	var pull *view.RollbackPull
	eventually(t, "its pull request is open", func() string {
		pull = w.application(t, app).RollbackPull
		if pull == nil || pull.State != forge.LastingOpen {
			return fmt.Sprintf("%+v", pull)
		}
		return ""
	})
	if out := w.must(t, "describe", "application", app); !strings.Contains(out,
		fmt.Sprintf("open #%d http", pull.Number)) {
		t.Errorf("describe:\n%s", out)
	}
	shown, err := w.config.Pull(t.Context(), pull.Number)
	check(t, err)
	if shown.Title != "Keep acme/returned in staging at "+old[:7] {
		t.Errorf("its title is %q", shown.Title)
	}
	w.await(t, shown.Head.SHA, forge.CheckPlan, "success")
	w.await(t, shown.Head.SHA, forge.CheckOwners, "pending")
	w.review(t, "amir", pull.Number, stack.Approve, shown.Head.SHA)
	w.await(t, shown.Head.SHA, forge.CheckOwners, "success")
	w.merge(t, pull.Number)
	eventually(t, "the rollback is declared, and has ended", func() string {
		a := w.application(t, app)
		if a.Hold != "" || a.TargetRevision != old || a.SyncedRevision != old ||
			a.Sync != "Synced" {
			return fmt.Sprintf("hold %q, target %s, synced to %s, %s", a.Hold, a.TargetRevision,
				a.SyncedRevision, a.Sync)
		}
		return ""
	})
	if !w.automated(t, "returned") {
		t.Error("automation does not go on")
	}
	text, err := w.config.Git(t.Context(), w.person["petra"], "show", "main:"+path)
	check(t, err)
	if want := strings.Replace(first, "v2.0.1", old, 1); text != strings.TrimSpace(want) &&
		text != want {
		t.Errorf("the file:\n%s", text)
	}
	_, err = w.config.Push(t.Context(), w.person["petra"], stack.Change{Message: "no longer",
		Remove: []string{path}})
	check(t, err)
	w.allHealthy(t)
}

// application is one Application as the API shows it.
func (f *system) application(t *testing.T, id string) view.Application {
	t.Helper()
	name, environment, _ := strings.Cut(id, "@")
	tenant, deployment, _ := strings.Cut(name, "/")
	found := list[view.Application](t, f, "applications", "--tenant", tenant, "--deployment",
		deployment, "--environment", environment)
	if len(found) != 1 {
		t.Fatalf("there are %d Applications %s", len(found), id)
	}
	return found[0]
}
