package e2e

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

var applicationsOfPool = flag.Int("pool.applications", 0,
	"how many Applications make a pool of engines grow from 1 to 3; make load-pool sets it")

const poolFile = "fleet/pools/burst.yaml"

// A pool makes a second real Argo CD when an environment waits for an engine, and drains and
// removes it when its load is low. No object of a workload is created or deleted meanwhile.
func TestAPoolGrowsAndShrinksWithItsLoad(t *testing.T) {
	poolOf{environments: 3, applications: 6, capacity: 4, instances: 2, sizes: true}.run(t)
}

// The same with many Applications and three engines.
func TestAPoolGrowsToThreeEnginesUnderManyApplications(t *testing.T) {
	n := *applicationsOfPool
	if n == 0 {
		t.Skip("make load-pool runs it: 600 Applications take 25 minutes")
	}
	poolOf{environments: 12, applications: n, capacity: n * 5 / 12, instances: 3}.run(t)
}

// sizes makes an instance get a second application-controller before the pool makes another
// instance.
type poolOf struct {
	environments, applications, capacity, instances int
	sizes                                           bool
}

func (p poolOf) file(capacity, most int) string {
	sizes := ""
	if p.sizes {
		sizes = fmt.Sprintf(`
    sizes:
      - {name: small, capacity: {applications: %d, environments: 100}}
      - {name: large, shards: 2, repoServer: {memory: 256Mi}}`, capacity/2)
	}
	return fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: EnginePool
metadata: {name: burst}
spec:
  template:
    region: burst
    labels: {tier: shared}
    capacity: {applications: %d, environments: 100}%s
  clusters: [{name: us, kubeconfigRef: {name: engine-us-1}}]
  min: 1
  max: %d
  targetLoad: 90
  grow: {after: 3s}
  shrink: {below: 60, after: 10s}
  cooldown: 1s
`, capacity, sizes, most)
}

func (p poolOf) run(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	us := f.Place("us-1")
	installRights(t, us)
	refresh := 3 * time.Second
	if p.applications > 100 { // as Argo CD does by itself: else it does nothing but that
		refresh = 3 * time.Minute
	}
	runInstances(t, us.Cluster, "burst", 3, refresh)
	version, manifests, err := stack.ArgoManifests("3.5")
	check(t, err)
	files := map[string]string{}
	for path, text := range manifests {
		files["argocd/"+version+"/"+path] = string(text)
	}
	const grant = "fleet/tenants/acme.yaml"
	before := map[string]string{grant: f.exampleFile(t, grant),
		guardsFile: looserGuards(guardsFile, f.exampleFile(t, guardsFile))}
	files[grant] = strings.NewReplacer("regions: [eu]", "regions: [eu, burst]",
		"deployments: 200", "deployments: 900", "applications: 500", "applications: 1500").
		Replace(before[grant])
	files[guardsFile] = before[guardsFile] + fmt.Sprintf(`  placement:
    churn: {atOnce: 4, perHour: 100}
  rings:
    - name: stable
      version: %s
      manifests: {directory: argocd/%s, digest: %q}
      soak: 5s
`, version, version, fleet.ManifestsDigest(manifests))
	files[poolFile] = p.file(p.capacity, 3)
	started := time.Now()
	f.commit(t, "a pool of engines", files)
	f.poolHas(t, 1)
	t.Logf("the first instance serves after %s", time.Since(started).Round(time.Second))

	staging := f.exampleFile(t, "tenants/acme/environments/staging.yaml")
	checkout := f.exampleFile(t, "tenants/acme/deployments/checkout-staging.yaml")
	workloads := map[string]string{}
	var environments, deployments, ids, namespaces []string
	for i := range p.environments {
		name := fmt.Sprintf("pool-%d", i)
		token, err := f.Place("eu-1").Cluster.TenantToken(t.Context(), "acme", "acme-"+name)
		check(t, err)
		check(t, f.WriteSecret("acme", name, "token", token))
		path := "tenants/acme/environments/" + name + ".yaml"
		workloads[path] = strings.NewReplacer("name: staging", "name: "+name, "acme-staging",
			"acme-"+name, "{tier: staging}", "{tier: dev}", "region: eu", "region: burst").
			Replace(staging)
		environments, namespaces = append(environments, path), append(namespaces, "acme-"+name)
	}
	for i := range p.applications {
		name, in := fmt.Sprintf("pool-%d", i), fmt.Sprintf("pool-%d", i%p.environments)
		path := "tenants/acme/deployments/" + name + ".yaml"
		workloads[path] = strings.NewReplacer("name: checkout-staging", "name: "+name, "kustomize:",
			fmt.Sprintf("kustomize:\n      nameSuffix: \"-%d\"", i), "[staging]", "["+in+"]",
			"namespace: acme-staging", "namespace: acme-"+in).Replace(checkout)
		deployments, ids = append(deployments, path), append(ids, "acme/"+name+"@"+in)
	}
	began := time.Now()
	f.commit(t, "load comes", workloads)
	f.poolHas(t, p.instances)
	t.Logf("%d instances serve %s after the load", p.instances,
		time.Since(began).Round(time.Second))
	f.awaitsHealthy(t, ids...)
	t.Logf("%d Applications are Healthy after %s", p.applications,
		time.Since(began).Round(time.Second))
	t.Log(f.must(t, "get", "pools", "-o", "wide"))
	if p.sizes {
		f.instanceHas(t, 1, "large", 2)
		f.awaitsHealthy(t, ids...)
		t.Logf("an instance has grown in itself %s after the load",
			time.Since(began).Round(time.Second))
		t.Log(f.must(t, "describe", "pool", "burst"))
	}
	if p.instances == 2 {
		f.must(t, "pools", "pause", "burst", "--reason", "lunch")
	}

	kept := f.workloadsIn(t, "eu-1", namespaces...)
	audited := len(f.auditedIn(t, "eu-1", namespaces...))
	began = time.Now()
	f.commit(t, "the load is low for larger instances", map[string]string{
		poolFile: p.file(4*p.applications, 3)})
	if p.instances == 2 {
		eventually(t, "the pool is paused", func() string {
			if s := f.pool(t); s.State != mirror.PoolPaused || !strings.HasSuffix(s.Message,
				": lunch") {
				return fmt.Sprintf("%+v", s)
			}
			return ""
		})
		f.must(t, "pools", "resume", "burst")
	}
	f.poolHas(t, 1)
	t.Logf("the pool has shrunk to 1 instance after %s", time.Since(began).Round(time.Second))
	if p.sizes {
		f.instanceHas(t, 1, "small", 1)
		t.Logf("it is small again after %s", time.Since(began).Round(time.Second))
	}
	f.awaitsHealthy(t, ids...)
	if now := f.workloadsIn(t, "eu-1", namespaces...); !slices.Equal(kept, now) {
		t.Error("the workloads have changed")
	}
	events := f.auditedIn(t, "eu-1", namespaces...)[audited:]
	t.Logf("workload events while the pool shrank: %d", len(events))
	for _, e := range events {
		t.Errorf("while the pool shrank: %s", e)
	}
	described := f.must(t, "describe", "pool", "burst")
	if !strings.Contains(described, "burst-1") || !strings.Contains(described, "1 to 3 instances") {
		t.Errorf("describe pool:\n%s", described)
	}

	if removed := f.remove(t, "no more workloads", deployments...); p.applications >= guarded {
		f.must(t, "release", string(removed))
	}
	f.allHealthy(t)
	f.remove(t, "nor environments", environments...)
	f.remove(t, "nor a pool", poolFile)
	eventuallyLong(t, "the pool is gone with its instances", func() string {
		if all := list[mirror.Pool](t, f, "pools"); len(all) > 0 {
			return fmt.Sprintf("%+v", all)
		}
		return ""
	})
	for n := 1; n <= 3; n++ {
		_, err := us.Cluster.Client().CoreV1().ConfigMaps(fleet.InstanceNamespace("burst", n)).Get(
			t.Context(), "argosy-instance", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("instance %d has an inventory: %v", n, err)
		}
	}
	f.commit(t, "as before", before)
	f.allHealthy(t)
}

func (f *system) pool(t *testing.T) mirror.Pool {
	t.Helper()
	for _, p := range list[mirror.Pool](t, f, "pools") {
		return p
	}
	return mirror.Pool{}
}

// poolHas waits until the pool has so many instances, and all of them serve.
func (f *system) poolHas(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	if left := stack.Until(ctx, func() string {
		p := f.pool(t)
		serving := 0
		for _, m := range p.Instances {
			if m.State == fleet.MemberServing {
				serving++
			}
		}
		if len(p.Instances) != n || serving != n {
			return fmt.Sprintf("%+v\n%s", p, f.must(t, "get", "rings"))
		}
		return ""
	}); left != "" {
		t.Fatalf("the pool has %d instances: %s", n, left)
	}
}

// instanceHas waits until an instance of the pool has a size and so many application-controllers,
// which answer their probes.
func (f *system) instanceHas(t *testing.T, n int, size string, shards int) {
	t.Helper()
	name := string(fleet.InstanceName("burst", n))
	eventuallyLong(t, name+" is "+size, func() string {
		p := f.pool(t)
		for _, m := range p.Instances {
			if m.Number == n && m.Size != size {
				return fmt.Sprintf("%+v", p)
			}
		}
		s, err := f.Place("us-1").Cluster.Client().AppsV1().StatefulSets(fleet.InstanceNamespace(
			"burst", n)).Get(t.Context(), ringController, metav1.GetOptions{})
		if err != nil || int(s.Status.ReadyReplicas) != shards ||
			int(s.Status.UpdatedReplicas) != shards {
			return fmt.Sprintf("%+v, %v", s.Status, err)
		}
		for _, e := range list[view.Engine](t, f, "engines") {
			if string(e.Name) == name && (e.Work == nil || e.Work.State != mirror.Working) {
				return fmt.Sprintf("%s: %+v", name, e.Work)
			}
		}
		return ""
	})
}

// runInstances starts a real Argo CD for each instance of a pool whose Pods a kubelet would start,
// and ends it when its StatefulSet is gone.
func runInstances(t *testing.T, cluster *stack.Cluster, pool string, most int,
	refresh time.Duration) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	for n := 1; n <= most; n++ {
		all.Go(func() { runInstance(ctx, t, cluster, pool, n, refresh) })
	}
	t.Cleanup(func() {
		stop()
		all.Wait()
		if err := cluster.InstallArgoCRDs(context.WithoutCancel(t.Context()), "3.5"); err != nil {
			t.Error(err)
		}
	})
}

func runInstance(ctx context.Context, t *testing.T, cluster *stack.Cluster, pool string, n int,
	refresh time.Duration) {
	namespace := fleet.InstanceNamespace(pool, n)
	var running *stack.ArgoCD
	has := 0 // application-controllers
	end := func() {
		if running != nil {
			if err := running.Stop(); err != nil {
				t.Error(err)
			}
			running = nil
		}
	}
	defer end()
	for tick := time.NewTicker(200 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		shards, err := readyShards(ctx, cluster, namespace)
		switch {
		case err != nil:
		case shards == 0:
			end()
		case running == nil:
			has = shards
			running, err = stack.StartArgoCD(ctx, stack.ArgoOptions{Cluster: cluster,
				Version: "3.5", Namespace: namespace, Shards: shards,
				InstallationID: string(fleet.InstanceName(pool, n)), Refresh: refresh})
		case has != shards:
			has = shards
			err = running.Reshard(ctx, shards)
		}
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
}

// readyShards returns how many application-controllers run, once all of them do; 0 if none does.
func readyShards(ctx context.Context, cluster *stack.Cluster, namespace string) (int, error) {
	pods, err := cluster.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=" + ringController})
	if err != nil {
		return 0, err
	}
	want := 1
	for _, p := range pods.Items {
		if p.Status.Phase != corev1.PodRunning {
			return 0, nil
		}
		for _, e := range p.Spec.Containers[0].Env {
			if n, err := strconv.Atoi(e.Value); err == nil &&
				e.Name == "ARGOCD_CONTROLLER_REPLICAS" {
				want = n
			}
		}
	}
	if len(pods.Items) < want {
		return 0, nil
	}
	return want, nil
}
