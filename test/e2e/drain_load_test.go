package e2e

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

var applicationsToDrain = flag.Int("drain.applications", 0,
	"how many Applications, beside the example's, leave an engine that drains; one of them cannot "+
		"leave before it is repaired")

// drained is how many environments these Applications are in.
const drained = 8

// A real Argo CD 2.14 with many Applications drains to one of 3.5, four environments at once. One
// Application is OutOfSync, so its environment stays, with the reason, while the others leave. It
// leaves as well when the Application is repaired. The test prints how long the drain takes.
func TestAnEngineWithManyApplicationsDrainsWhileOneCannotLeave(t *testing.T) {
	if *applicationsToDrain == 0 {
		t.Skip("make load-drain runs it: 200 Applications take 15 minutes")
	}
	f := platform.use(t)
	f.allHealthy(t)
	const engine, guards = "fleet/engines/eu-1.yaml", guardsFile
	before := map[string]string{engine: f.exampleFile(t, engine),
		guards: looserGuards(guards, f.exampleFile(t, guards))}
	for _, path := range []string{"fleet/tenants/acme.yaml",
		"tenants/acme/environments/staging.yaml", "tenants/acme/environments/prod-eu.yaml",
		"tenants/globex/environments/prod-eu.yaml"} {
		before[path] = f.exampleFile(t, path)
	}
	widened := strings.NewReplacer("regions: [eu]", "regions: [eu, us]", "deployments: 200",
		"deployments: 500", "region: eu", "region: us")
	files := map[string]string{guards: before[guards] +
		"  placement: {churn: {atOnce: 4, perHour: 100}}\n"}
	for path, content := range before {
		if path != engine && path != guards {
			files[path] = widened.Replace(content)
		}
	}
	staging := before["tenants/acme/environments/staging.yaml"]
	checkout := f.exampleFile(t, "tenants/acme/deployments/checkout-staging.yaml")
	namespaces := []string{"acme-staging", "acme-checkout", "acme-storefront"}
	var late, paths, ids []string
	elsewhere := map[string]string{}
	for i := range drained {
		name := fmt.Sprintf("load-%d", i)
		namespace := "acme-" + name
		namespaces = append(namespaces, namespace)
		token, err := f.Place("eu-1").Cluster.TenantToken(t.Context(), "acme", namespace)
		check(t, err)
		check(t, f.WriteSecret("acme", name, "token", token))
		path := "tenants/acme/environments/" + name + ".yaml"
		files[path] = strings.NewReplacer("name: staging", "name: "+name, "acme-staging",
			namespace, "{tier: staging}", "{tier: dev}").Replace(staging)
		elsewhere[path] = widened.Replace(files[path])
		late = append(late, path)
	}
	for i := range *applicationsToDrain {
		name, environment := fmt.Sprintf("load-%d", i), fmt.Sprintf("load-%d", i%drained)
		path := "tenants/acme/deployments/" + name + ".yaml"
		files[path] = strings.NewReplacer("name: checkout-staging", "name: "+name, "kustomize:",
			fmt.Sprintf("kustomize:\n      nameSuffix: \"-%d\"", i), "[staging]",
			"["+environment+"]", "namespace: acme-staging", "namespace: acme-"+environment).
			Replace(checkout)
		paths, ids = append(paths, path), append(ids, "acme/"+name+"@"+environment)
	}
	broken := paths[0]
	files[broken] += "  sync: {mode: automated, prune: true, selfHeal: false}\n"
	f.commit(t, "many workloads on eu-1", files)
	f.awaitsHealthy(t, ids...)
	f.commit(t, "they may be served from the US", elsewhere)

	f.scale(t, "acme-load-0", "-0", 3)
	f.awaits(t, "one Application is OutOfSync", func(view.Engine) bool {
		return slices.ContainsFunc(list[view.Application](t, f, "applications"),
			func(a view.Application) bool {
				return a.Deployment == "load-0" && a.Sync == mirror.SyncOutOfSync
			})
	})
	workloads := f.workloadsIn(t, "eu-1", namespaces...)
	audited := len(f.auditedIn(t, "eu-1", namespaces...))
	began := time.Now()
	f.commit(t, "eu-1 drains", map[string]string{
		engine: strings.Replace(before[engine], "state: Active", "state: Draining", 1)})
	f.awaits(t, "everything else has left", func(view.Engine) bool {
		moved := 0
		for _, m := range list[view.Move](t, f, "moves") {
			if m.State == mirror.OperationSucceeded && m.From == "eu-1" {
				moved++
			}
		}
		return moved == drained-1+3
	})
	took := time.Since(began)
	moved := *applicationsToDrain - (*applicationsToDrain+drained-1)/drained + 6
	t.Logf("%d Applications left in %s: %.1f a minute", moved, took.Round(time.Second),
		float64(moved)/took.Minutes())
	f.awaits(t, "the drain waits for the last one", func(view.Engine) bool {
		return f.drainIs(t, mirror.DrainWaiting)
	})
	described := f.must(t, "describe", "engine", "eu-1")
	t.Log(described)
	if !strings.Contains(described, "acme/load-0") || !strings.Contains(described, "OutOfSync") {
		t.Error("the engine does not state why acme/load-0 stays")
	}
	if now := f.workloadsIn(t, "eu-1", namespaces...); !slices.Equal(workloads, now) {
		t.Error("the workloads have changed")
	}

	repaired := time.Now()
	f.scale(t, "acme-load-0", "-0", 1)
	f.awaits(t, "the engine is empty", func(view.Engine) bool {
		return f.drainIs(t, mirror.DrainEmpty)
	})
	t.Logf("the engine is empty %s after the repair", time.Since(repaired).Round(time.Second))
	for _, e := range f.auditedIn(t, "eu-1", namespaces...)[audited:] {
		// of the repair, which removes two Pods
		if !strings.HasPrefix(e, "delete ") || !strings.Contains(e, "/acme-load-0/pods/") {
			t.Errorf("during the drain: %s", e)
		}
	}

	f.commit(t, "eu-1 takes environments", before)
	for _, id := range []string{"acme/staging", "acme/prod-eu", "globex/prod-eu"} {
		f.must(t, "move", "environment", id, "--to", "eu-1", "--watch")
	}
	f.must(t, "release", string(f.remove(t, "no more workloads", paths...)))
	f.allHealthy(t)
	f.remove(t, "nor environments", late...)
	f.allHealthy(t)
}

func (f *system) drainIs(t *testing.T, state mirror.DrainState) bool {
	t.Helper()
	return slices.ContainsFunc(list[view.Engine](t, f, "engines"), func(e view.Engine) bool {
		return e.Name == "eu-1" && e.Drain != nil && e.Drain.State == state
	})
}

// awaitsHealthy waits longer than allHealthy, for many Applications.
func (f *system) awaitsHealthy(t *testing.T, ids ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	if missing := stack.Until(ctx, f.unhealthy(t, append(slices.Clone(exampleApplications),
		ids...)...)); missing != "" {
		t.Fatalf("%s\n%s", missing, f.must(t, "get", "problems"))
	}
}

// scale changes the replicas of the only Deployment of a namespace with the suffix.
func (f *system) scale(t *testing.T, namespace, suffix string, replicas int) {
	t.Helper()
	deployments := f.Place("eu-1").Cluster.Client().AppsV1().Deployments(namespace)
	all, err := deployments.List(t.Context(), metav1.ListOptions{})
	check(t, err)
	for _, d := range all.Items {
		if strings.HasSuffix(d.Name, suffix) {
			_, err := deployments.Patch(t.Context(), d.Name, types.MergePatchType,
				fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
			check(t, err)
			return
		}
	}
	t.Fatalf("no Deployment of %s ends with %s", namespace, suffix)
}
