package e2e

import (
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

// discoveringSet gives a deployment for each folder below services/ of acme's private repository.
const discoveringSet = `apiVersion: argosy.dev/v1alpha1
kind: GitOpsDeploymentSet
metadata: {name: services}
spec:
  directories:
    repoURL: https://git.example.com/acme/checkout
    targetRevision: main
    paths: ["services/*"]
  template:
    metadata: {name: "${item.name}"}
    spec:
      source:
        repoURL: https://git.example.com/acme/checkout
        path: ${item.path}
        targetRevision: main
      destination: {environments: [staging], namespace: acme-staging}
`

// aSetThatFollowsItsRepository pushes folders to a private repository on the Git host, which
// delivers each push.
func aSetThatFollowsItsRepository(t *testing.T, w *forged) {
	repo, err := w.forge.Repo(t.Context(), "acme/checkout")
	check(t, err)
	check(t, repo.CreateHook(t.Context(), w.plane.URL+"/webhook/github", w.secret, "push"))
	push := func(c stack.Change) {
		t.Helper()
		c.Branch, c.Message = "main", "services"
		_, err := repo.Push(t.Context(), w.forge.Admin, c)
		check(t, err)
	}
	service := func(name string) map[string]string {
		return map[string]string{"services/" + name + "/config.yaml": waveConfig(name)}
	}
	push(stack.Change{Write: service("svc-one")})

	path := "tenants/acme/sets/services.yaml"
	number, head := w.propose(t, "alice", "services", map[string]string{
		path: w.Rewrite(discoveringSet)})
	w.awaitComment(t, number, "an owner of tenant acme has approved the newest commit")
	w.review(t, "amir", number, stack.Approve, head)
	w.await(t, head, forge.CheckOwners, "success")
	w.await(t, head, forge.CheckValidate, "success")
	w.await(t, head, forge.CheckPlan, "success")
	w.awaitComment(t, number, "svc-one")
	w.merge(t, number)
	w.allHealthy(t, "acme/svc-one@staging")

	pushed := time.Now()
	push(stack.Change{Write: service("svc-two")})
	eventually(t, "the pushed folder is an Application", func() string {
		if found := list[view.Application](t, w.system, "applications", "--deployment",
			"svc-two"); len(found) != 1 {
			return "not there"
		}
		return ""
	})
	known := time.Since(pushed)
	w.allHealthy(t, "acme/svc-one@staging", "acme/svc-two@staging")
	t.Logf("from the push to the Application: recorded after %s, Synced and Healthy after %s",
		known.Round(time.Millisecond), time.Since(pushed).Round(time.Millisecond))

	push(stack.Change{Remove: []string{"services/svc-two/config.yaml"}})
	w.allHealthy(t, "acme/svc-one@staging")

	// without any folder nothing is deleted
	push(stack.Change{Remove: []string{"services/svc-one/config.yaml"}})
	eventually(t, "the empty listing is reported", func() string {
		if out := w.must(t, "get", "problems"); !strings.Contains(out, "nothing matches") {
			return out
		}
		return ""
	})
	w.allHealthy(t, "acme/svc-one@staging")

	number, head = w.propose(t, "alice", "no-services", nil, path)
	w.await(t, head, forge.CheckPlan, "success")
	w.review(t, "amir", number, stack.Approve, head)
	w.await(t, head, forge.CheckOwners, "success")
	w.merge(t, number)
	w.allHealthy(t)
}
