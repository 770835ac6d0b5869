package e2e

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

const rollingFile = "tenants/acme/deployments/rolling.yaml"

// rollingPods is a Deployment whose Pods may run, or are refused by the API server.
func rollingPods(version, selector string) string {
	return `apiVersion: apps/v1
kind: Deployment
metadata: {name: rolling, labels: {version: "` + version + `"}}
spec:
  replicas: 1
  progressDeadlineSeconds: 10
  selector: {matchLabels: {app: rolling}}
  template:
    metadata: {labels: {app: rolling, version: "` + version + `"}}
    spec:
      ` + selector + `
      containers: [{name: pause, image: registry.k8s.io/pause:3.9}]
`
}

// pushRolling commits a version whose Pods run in rolling/base, and have the selector prod in
// rolling/prod.
func (f *system) pushRolling(t *testing.T, version, prod string) (commit string) {
	t.Helper()
	commit, err := f.Apps["acme/storefront"].Commit(t.Context(), "rolling "+version,
		map[string]string{
			"rolling/base/app.yaml": rollingPods(version, "restartPolicy: Always"),
			"rolling/prod/app.yaml": rollingPods(version, prod)})
	check(t, err)
	return commit
}

// A change goes to staging, which gets Healthy, and to prod-eu, which gets Degraded: late never
// sees it, and both are back. The next change passes all three waves.
func TestAChangeThatGetsDegradedInAWaveReturns(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	const late = "tenants/acme/environments/late.yaml"
	f.grantNamespace(t, "acme-staging", "acme-late")
	declare := func(commit string) map[string]string {
		return map[string]string{rollingFile: strings.NewReplacer("v2.0.1", commit, "path: deploy",
			"path: rolling/base").Replace(f.deployment("rolling", "staging, prod-eu, late",
			"acme-staging", `  overrides:
    - {environment: prod-eu, namespace: acme-storefront, source: {path: rolling/prod}}
    - {environment: late, namespace: acme-late}
  rollout:
    patience: 1s
    timeout: 3m
    waves:
      - {name: canary, environments: [staging], soak: 2s}
      - {name: prod, environmentSelector: {matchLabels: {tier: prod}}, soak: 2s}
`))}
	}
	all := []string{"acme/rolling@staging", "acme/rolling@prod-eu", "acme/rolling@late"}
	staging := f.exampleFile(t, "tenants/acme/environments/staging.yaml")
	f.commit(t, "an environment more", map[string]string{late: strings.NewReplacer(
		"name: staging\n", "name: late\n", "tier: staging", "tier: dev", "[acme-staging]",
		"[acme-late]").Replace(staging)})
	good := f.pushRolling(t, "one", "restartPolicy: Always")
	f.commit(t, "rolling comes in waves too", declare(good))
	f.allHealthy(t, all...)
	f.rollout(t, mirror.RolloutDone)

	bad := f.pushRolling(t, "two", `priorityClassName: none-of-this-name`)
	f.commit(t, "a change that prod does not run", declare(bad))
	r := f.rollout(t, mirror.RolloutReturned)
	for _, want := range []string{"wave 2 (prod) failed: prod-eu (Degraded",
		"argosy rollouts resume acme/rolling"} {
		if !strings.Contains(r.Message, want) {
			t.Errorf("the message has no %q: %s", want, r.Message)
		}
	}
	for _, m := range r.Members {
		want := mirror.MemberReturned
		if m.Environment == "late" {
			want = mirror.MemberWaiting
		}
		if m.State != want {
			t.Errorf("%s is %s: %s", m.Environment, m.State, m.Message)
		}
	}
	f.allHealthy(t, all...)
	for _, env := range []fleet.EnvironmentName{"staging", "prod-eu", "late"} {
		o := f.live(t, "eu-1", "acme", "rolling", string(env))
		seen := fmt.Sprint(o.Object) // its history included
		if at, _, _ := nestedString(o, "spec", "source", "targetRevision"); at != good {
			t.Errorf("%s has revision %s, not the last good one", env, at)
		}
		if env == "late" && strings.Contains(seen, bad) {
			t.Error("late has seen the change")
		}
		if env != "late" && !strings.Contains(seen, bad) {
			t.Errorf("%s has never had the change", env)
		}
	}
	out := f.must(t, "describe", "rollout", "acme/rolling")
	for _, want := range []string{"Returned", "1 canary", "2 prod", "3 rest"} {
		if !strings.Contains(out, want) {
			t.Errorf("describe rollout has no %q:\n%s", want, out)
		}
	}

	better := f.pushRolling(t, "three", "restartPolicy: Always")
	f.commit(t, "a change that runs everywhere", declare(better))
	r = f.rollout(t, mirror.RolloutDone)
	for i := 1; i < len(r.Members); i++ {
		if r.Members[i].Since.Before(r.Members[i-1].Since) {
			t.Errorf("%s was Healthy before %s", r.Members[i].Environment,
				r.Members[i-1].Environment)
		}
	}
	f.allHealthy(t, all...)
	f.remove(t, "rolling goes", rollingFile)
	f.allHealthy(t)
	f.remove(t, "late goes", late)
	f.allHealthy(t)
}

// rollout waits until the newest rollout of rolling has a state.
func (f *system) rollout(t *testing.T, state mirror.RolloutState) (r mirror.Rollout) {
	t.Helper()
	eventually(t, "the rollout is "+string(state), func() string {
		all := list[mirror.Rollout](t, f, "rollouts", "--deployment", "rolling")
		if len(all) == 0 {
			return "there is none"
		}
		if r = all[0]; r.State != state {
			return fmt.Sprintf("%s %s %+v", r.State, r.Message, r.Members)
		}
		return ""
	})
	return r
}

// grantNamespace creates a namespace on eu-1 in which the accounts have the rights of another one.
func (f *system) grantNamespace(t *testing.T, from, namespace string) {
	t.Helper()
	client := f.Place("eu-1").Cluster.Client()
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	check(t, err)
	roles, err := client.RbacV1().Roles(from).List(t.Context(), metav1.ListOptions{})
	check(t, err)
	for _, r := range roles.Items {
		r.ObjectMeta = metav1.ObjectMeta{Name: r.Name}
		_, err := client.RbacV1().Roles(namespace).Create(t.Context(), &r, metav1.CreateOptions{})
		check(t, err)
	}
	bindings, err := client.RbacV1().RoleBindings(from).List(t.Context(), metav1.ListOptions{})
	check(t, err)
	for _, b := range bindings.Items {
		b.ObjectMeta = metav1.ObjectMeta{Name: b.Name}
		_, err := client.RbacV1().RoleBindings(namespace).Create(t.Context(), &b,
			metav1.CreateOptions{})
		check(t, err)
	}
}
