package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const frostyFile = "tenants/acme/deployments/frosty.yaml"

// A freeze of staging begins while its Application follows a branch. The branch moves, and commits
// change the Application: nothing reaches staging before an owner of the tenant releases one
// commit, and the rest at the end of the freeze, which no commit brings about.
func TestAFreezeHoldsAnEnvironmentUntilItEnds(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	const grant = "fleet/tenants/acme.yaml"
	before := f.exampleFile(t, grant)
	repo := f.Apps["acme/storefront"]
	push := func(text string) {
		t.Helper()
		_, err := repo.Commit(t.Context(), text, map[string]string{"frosty/config.yaml": "api" +
			"Version: v1\nkind: ConfigMap\nmetadata: {name: frosty}\ndata: {text: " + text + "}\n"})
		check(t, err)
	}
	declare := func(limit int) string {
		return strings.NewReplacer("v2.0.1", "main", "path: deploy", "path: frosty").Replace(
			f.deployment("frosty", "staging", "acme-staging", fmt.Sprintf(
				"  revisionHistoryLimit: %d\n", limit)))
	}
	push("warm")
	f.commit(t, "frosty follows a branch", map[string]string{frostyFile: declare(3)})
	f.allHealthy(t, "acme/frosty@staging")
	f.text(t, "warm")

	now := time.Now().UTC()
	end := now.Truncate(time.Minute).Add(2 * time.Minute)
	if now.Second() > 20 {
		end = end.Add(time.Minute)
	}
	freeze := fmt.Sprintf("  freezes:\n    - {name: test, schedule: \"%d %d * * *\", duration: %s, "+
		"environmentSelector: {matchLabels: {tier: staging}}, reason: a test}\n", now.Minute(),
		now.Hour(), end.Sub(now.Truncate(time.Minute)))
	f.commit(t, "staging is frozen", map[string]string{grant: before + freeze})
	eventually(t, "get freezes shows when it ends", func() string {
		out := f.must(t, "get", "freezes")
		if !strings.Contains(out, "until "+end.Format("Mon 2006-01-02 15:04 UTC")) {
			return out
		}
		return ""
	})
	eventually(t, "the AppProject has the window", func() string {
		p := f.Place("eu-1")
		found, err := p.Cluster.Dynamic().Resource(projects).Namespace(p.ArgoCD.Namespace).
			List(t.Context(), metav1.ListOptions{LabelSelector: "argosy.dev/tenant=acme"})
		check(t, err)
		for _, o := range found.Items {
			if spec, _ := o.Object["spec"].(map[string]any); spec["syncWindows"] != nil {
				return ""
			}
		}
		return "not yet"
	})

	held := f.commit(t, "a change in the freeze", map[string]string{frostyFile: declare(4)})
	waits := func(revision fleet.Revision) {
		t.Helper()
		eventually(t, "the change waits, with its reason", func() string {
			for _, h := range list[mirror.Hold](t, f, "holds", "--tenant", "acme") {
				if h.Revision == revision && h.Reason == mirror.HoldFrozen && len(h.Items) == 1 &&
					strings.Contains(h.Message, end.Format("2006-01-02 15:04 UTC")+" (a test)") {
					return ""
				}
			}
			return f.must(t, "get", "holds")
		})
		for _, a := range list[view.Application](t, f, "applications", "--deployment", "frosty") {
			if a.Apply != mirror.ApplyHeld {
				t.Errorf("the Application is %s", a.Apply)
			}
		}
	}
	waits(held)
	push("cold")
	f.refresh(t, "frosty")
	eventually(t, "Argo CD sees the branch", func() string {
		status, _, _ := nestedString(f.live(t, "eu-1", "acme", "frosty", "staging"), "status",
			"sync", "status")
		if status != "OutOfSync" {
			return status
		}
		return ""
	})
	f.text(t, "warm")
	if got := f.historyLimit(t); got != 3 {
		t.Errorf("the Application has the limit %d in the freeze", got)
	}

	ofAcme := func(name string, flags ...string) (token string) {
		t.Helper()
		return strings.TrimSpace(f.must(t, append([]string{"token", "create", name, "--tenant",
			"acme", "--write"}, flags...)...))
	}
	if _, errs, code := f.argosyAs(t, ofAcme("frosty-ci"), "release", held.Short()); code != 4 ||
		!strings.Contains(errs, "of no owner") {
		t.Errorf("a token of no owner: exit code %d\n%s", code, errs)
	}
	owner := ofAcme("frosty-lead", "--owner", "github:example/acme-leads")
	if _, errs, code := f.argosyAs(t, owner, "release", held.Short(), "--note",
		"an urgent fix"); code != 0 {
		t.Fatalf("an owner of acme: exit code %d\n%s", code, errs)
	}
	eventually(t, "the released change is synced in the freeze", func() string {
		if got := f.historyLimit(t); got != 4 {
			return fmt.Sprintf("the limit is %d", got)
		}
		return f.textIs(t, "cold")
	})
	later := f.commit(t, "another change in the freeze", map[string]string{frostyFile: declare(5)})
	waits(later)
	push("thawed")
	f.refresh(t, "frosty")
	if time.Now().Before(end.Add(-2*time.Second)) && f.historyLimit(t) != 4 {
		t.Error("a later commit passes the freeze")
	}
	eventually(t, "the freeze ends by itself", func() string {
		if got := f.historyLimit(t); got != 5 {
			return fmt.Sprintf("the limit is %d", got)
		}
		return ""
	})
	if time.Now().Before(end) {
		t.Errorf("it has ended before %s", end)
	}
	f.refresh(t, "frosty")
	eventually(t, "the branch is synced", func() string { return f.textIs(t, "thawed") })
	f.commit(t, "as before", map[string]string{grant: before})
	f.remove(t, "no more frosty", frostyFile)
	f.allHealthy(t)
	if h := list[mirror.Hold](t, f, "holds"); len(h) > 0 {
		t.Errorf("at the end: %+v", h)
	}
}

// refresh has Argo CD read the branch of a deployment of staging.
func (f *system) refresh(t *testing.T, deployment string) {
	t.Helper()
	o := f.live(t, "eu-1", "acme", deployment, "staging")
	_, err := f.onEngine("eu-1").Patch(t.Context(), o.GetName(), types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"hard"}}}`),
		metav1.PatchOptions{})
	check(t, err)
}

func (f *system) historyLimit(t *testing.T) int64 {
	t.Helper()
	spec, _ := f.live(t, "eu-1", "acme", "frosty", "staging").Object["spec"].(map[string]any)
	n, _ := spec["revisionHistoryLimit"].(int64)
	return n
}

// textIs reports how the workload of frosty differs.
func (f *system) textIs(t *testing.T, want string) string {
	t.Helper()
	c, err := f.Place("eu-1").Cluster.Client().CoreV1().ConfigMaps("acme-staging").Get(t.Context(),
		"frosty", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	if c.Data["text"] != want {
		return "the workload is " + c.Data["text"]
	}
	return ""
}

func (f *system) text(t *testing.T, want string) {
	t.Helper()
	if why := f.textIs(t, want); why != "" {
		t.Error(why)
	}
}
