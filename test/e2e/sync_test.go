package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
)

func TestASyncRunWithHoldRollsBackAndStaysUntilTheTargetChanges(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	repo := f.Apps["acme/storefront"]
	old, err := repo.Git(t.Context(), "rev-parse", "v2.0.1^{commit}")
	if err != nil {
		t.Fatal(err)
	}
	old = strings.TrimSpace(old)
	newer, err := repo.Commit(t.Context(), "another message", map[string]string{
		"deploy/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " +
			"storefront}\ndata: {motd: newer}\n"})
	if err != nil {
		t.Fatal(err)
	}
	path := "tenants/acme/deployments/rolled.yaml"
	following := strings.Replace(f.deployment("rolled", "staging", "acme-staging", ""), "v2.0.1",
		"main", 1)
	f.commit(t, "follow main", map[string]string{path: following})
	eventually(t, "synced to the newer commit", f.syncedTo(t, "rolled", newer))

	f.commit(t, "roll back", map[string]string{
		"tenants/acme/syncs/rollback.yaml": "apiVersion: argosy.dev/v1alpha1\nkind: " +
			"SyncRun\nmetadata: {name: rollback}\n" +
			"spec: {deployment: rolled, environments: [staging], revision: " + old +
			", hold: true}\n"})
	eventually(t, "the SyncRun has succeeded", func() string {
		for _, o := range list[mirror.Operation](t, f, "operations") {
			if o.Kind == mirror.OperationSync && strings.Contains(o.Subject, "rolled") {
				if o.State == mirror.OperationSucceeded {
					return ""
				}
				return string(o.State) + ": " + o.Message
			}
		}
		return "no operation"
	})
	if got := f.stagingMotd(t); got != "welcome" {
		t.Errorf("rolled back, and the workload has %q", got)
	}
	if f.automated(t, "rolled") {
		t.Error("automation is on while the SyncRun holds it")
	}
	f.commit(t, "on again", map[string]string{
		path: strings.Replace(following, "targetRevision: main",
			"targetRevision: "+newer, 1)})
	eventually(t, "automation is back, at the new target", func() string {
		if !f.automated(t, "rolled") {
			return "automation is off"
		}
		if got := f.stagingMotd(t); got != "newer" {
			return "the workload has " + got
		}
		return ""
	})
	f.remove(t, "no longer", path, "tenants/acme/syncs/rollback.yaml")
	f.allHealthy(t)
}

// A person returns an Application to the revision with which it was Healthy before, by one command,
// and lets automation go on.
func TestAPersonRollsAnApplicationBackWithoutACommit(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	repo := f.Apps["acme/storefront"]
	old, err := repo.Git(t.Context(), "rev-parse", "v2.0.1^{commit}")
	check(t, err)
	old = strings.TrimSpace(old)
	newer, err := repo.Commit(t.Context(), "a faulty message", map[string]string{
		"deploy/config.yaml": motd("faulty")})
	check(t, err)
	const path, app = "tenants/acme/deployments/returned.yaml", "acme/returned@staging"
	first := f.deployment("returned", "staging", "acme-staging", "")
	f.commit(t, "a release", map[string]string{path: first})
	eventually(t, "synced to the release", f.syncedTo(t, "returned", old))
	f.commit(t, "the next one", map[string]string{path: strings.Replace(first, "v2.0.1", newer, 1)})
	eventually(t, "synced to the next one", f.syncedTo(t, "returned", newer))

	shown := f.must(t, "rollback", app, "--list")
	if !strings.Contains(shown, old) || !strings.Contains(shown, newer) {
		t.Errorf("the healthy revisions:\n%s", shown)
	}
	f.must(t, "rollback", app, "--yes", "--wait", "--note", "it is faulty")
	if got := f.stagingMotd(t); got != "welcome" || f.automated(t, "returned") {
		t.Errorf("rolled back, the workload has %q, automation %v", got, f.automated(t, "returned"))
	}
	if out := f.must(t, "describe", "application", app); !strings.Contains(out,
		"paused by rollback") {
		t.Errorf("describe:\n%s", out)
	}
	f.recordsWhatWasDone(t, app)
	f.must(t, "rollback", app, "--end", "--yes", "--wait")
	eventually(t, "automation goes on", func() string {
		if got := f.stagingMotd(t); got != "faulty" || !f.automated(t, "returned") {
			return "the workload has " + got
		}
		return ""
	})
	f.remove(t, "no longer", path)
	f.allHealthy(t)
}

// recordsWhatWasDone expects the last rollback in the audit log and its chain, the way of the
// applied commit, and the declared credentials and policies.
func (f *system) recordsWhatWasDone(t *testing.T, app string) {
	t.Helper()
	eventually(t, "the rollback is in the audit log", func() string {
		out := f.must(t, "get", "audit", "--tenant", "acme", "--text", "it is faulty", "-o", "json")
		if !strings.Contains(out, app) || !strings.Contains(out, "ollback") {
			return out
		}
		return ""
	})
	if out, problem, code := f.argosy(t, "audit", "verify"); code != 0 {
		t.Errorf("the chain of the audit log: %s%s", out, problem)
	}
	head, err := f.Config.Git(t.Context(), "rev-parse", "HEAD")
	check(t, err)
	out := f.must(t, "trace", strings.TrimSpace(head))
	if !strings.Contains(out, "acme/returned") || !strings.Contains(out, "ecorded") {
		t.Errorf("the way of commit %s:\n%s", head, out)
	}
	if out := f.must(t, "get", "credentials", "--tenant", "acme"); !strings.Contains(out,
		"acme/checkout") {
		t.Errorf("credentials:\n%s", out)
	}
	f.must(t, "get", "policies")
}

func (f *system) stagingMotd(t *testing.T) string {
	t.Helper()
	return storefrontMotd(t, f.Place("eu-1").Cluster, "acme-staging")
}

func (f *system) syncedTo(t *testing.T, deployment, revision string) func() string {
	return func() string {
		found := list[view.Application](t, f, "applications", "--deployment", deployment)
		switch {
		case len(found) != 1:
			return "not there"
		case found[0].SyncedRevision != revision || !example.Healthy(found[0]):
			return fmt.Sprintf("%s at %s", found[0].Sync, found[0].SyncedRevision)
		}
		return ""
	}
}

func (f *system) automated(t *testing.T, deployment string) bool {
	t.Helper()
	spec, _ := f.live(t, "eu-1", "acme", deployment, "staging").Object["spec"].(map[string]any)
	policy, _ := spec["syncPolicy"].(map[string]any)
	_, on := policy["automated"]
	return on
}

func TestASealedSecretAndAKubernetesSecretAreRotatedWithoutARestart(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	const password = "another-password"
	repo := f.Apps["acme/checkout"]
	file, err := f.Encrypt("acme", "credentials", "checkout-git", map[string]string{
		"username": example.GitUser, "password": password})
	if err != nil {
		t.Fatal(err)
	}
	repo.RequireAuth(example.GitUser, password)
	f.commit(t, "a new password", map[string]string{
		"tenants/acme/credentials/checkout-git.sops.yaml": string(file)})
	eventually(t, "the repository Secret has the new password", func() string {
		if got := f.secretOn(t, "eu-1", "repository", "acme")["password"]; string(got) != password {
			return "it has another one"
		}
		return ""
	})

	us := f.Place("us-1").Cluster
	token, err := us.TenantToken(t.Context(), "initech-rotated", "initech-portal")
	if err != nil {
		t.Fatal(err)
	}
	secrets := f.Place("eu-1").Cluster.Client().CoreV1().Secrets("argosy-tenant-initech")
	if _, err := secrets.Update(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "prod-us"}, Data: map[string][]byte{
			"token": []byte(token)}}, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cluster Secret has the new token", func() string {
		if !strings.Contains(string(f.secretOn(t, "us-1", "cluster", "initech")["config"]), token) {
			return "it has another one"
		}
		return ""
	})
	f.allHealthy(t)
}

// secretOn is the data of a tenant's one Secret of a type on an engine.
func (f *system) secretOn(t *testing.T, engine, kind, tenant string) map[string][]byte {
	t.Helper()
	p := f.Place(engine)
	found, err := p.Cluster.Client().CoreV1().Secrets(p.ArgoCD.Namespace).List(t.Context(),
		metav1.ListOptions{
			LabelSelector: "argocd.argoproj.io/secret-type=" + kind + ",argosy.dev/tenant=" +
				tenant})
	if err != nil || len(found.Items) != 1 {
		t.Fatalf("%s Secret of %s on %s: %d, %v", kind, tenant, engine, len(found.Items), err)
	}
	return found.Items[0].Data
}
