package e2e

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

const ringController = "argocd-application-controller"

// Two real Argo CDs, 2.14 and 3.5, are taken over without a restart. The first ring then goes from
// 2.14 to 3.5: once the new version does not begin, once an Application is Degraded under it, which
// both halt and return the ring, and once it works. No workload is written.
func TestARingGoesToTheNextArgoCD(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	eu, us := f.Place("eu-1"), f.Place("us-1")
	engines := map[string]string{"fleet/engines/eu-1.yaml": "", "fleet/engines/us-1.yaml": "",
		"fleet/fleet.yaml": ""}
	for file := range engines {
		engines[file] = f.exampleFile(t, file)
	}
	files, rings := ringVersions(t)
	const soon, patient = "1m", "3m" // the time that a machine with much to do needs
	declare := func(canary, stable, within string) map[string]string {
		gates := "      soak: 15s\n      gates: {within: " + within + "}\n"
		return map[string]string{"fleet/fleet.yaml": looserGuards("fleet/fleet.yaml",
			engines["fleet/fleet.yaml"]) + "  rings:\n    - name: canary\n" + rings[canary] +
			gates + "    - name: stable\n" + rings[stable] + gates}
	}
	runners := map[string]*podRunner{}
	for _, p := range []*example.Place{eu, us} {
		installRights(t, p)
		runners[p.Engine] = runPods(t, p)
	}
	untouched := f.untouched(t, eu.Cluster, "acme-staging")

	f.commit(t, "the manifests of Argo CD", files)
	began := map[string]*stack.Process{"eu-1": eu.ArgoCD.Controller, "us-1": us.ArgoCD.Controller}
	change := declare("2.14", "3.5", patient)
	for file, ring := range map[string]string{"fleet/engines/eu-1.yaml": "canary",
		"fleet/engines/us-1.yaml": "stable"} {
		change[file] = strings.NewReplacer("  region:", "  ring: "+ring+"\n  region:",
			"    installationID:", "    managed: true\n    installationID:").Replace(engines[file])
	}
	f.commit(t, "Argosy takes over two Argo CDs", change)
	f.ringIs(t, "stable", mirror.RingDone, "3.5.7")
	f.ringIs(t, "canary", mirror.RingDone, "2.14.21")
	f.allHealthy(t)
	for engine, p := range map[string]*example.Place{"eu-1": eu, "us-1": us} {
		if p.ArgoCD.Controller != began[engine] {
			t.Errorf("the controller of %s was replaced", engine)
		}
	}

	runners["eu-1"].fail("3.5")
	f.commit(t, "canary gets a version that does not begin", declare("3.5", "3.5", soon))
	f.ringIs(t, "canary", mirror.RingHalted, "3.5.7")
	halted := f.ringNamed(t, "canary")
	if !strings.Contains(halted.Message, "engine eu-1 does not run 3.5.7 after 1m0s") ||
		!strings.Contains(halted.Message, "github:example/platform") {
		t.Errorf("it halts with %q", halted.Message)
	}
	f.runsAgain(t, "canary", "eu-1", "2.14.21")
	f.allHealthy(t)
	if v := runners["eu-1"].runs(); v != "2.14" {
		t.Errorf("eu-1 runs %s", v)
	}

	runners["eu-1"].fail("")
	f.commit(t, "canary gets more time", declare("3.5", "3.5", patient))
	nightly := f.nightly(t, "staging", "acme-staging")
	f.allHealthy(t, nightly)
	f.must(t, "rings", "resume", "canary", "--reason", "the node has space again")
	f.ringIs(t, "canary", mirror.RingMoving, "3.5.7")
	f.ringIs(t, "canary", mirror.RingHalted, "3.5.7")
	if halted := f.ringNamed(t, "canary"); !strings.Contains(halted.Message, "engine eu-1 has 1 "+
		"Degraded Applications under 3.5.7, and had 0") {
		t.Errorf("it halts with %q", halted.Message)
	}
	f.runsAgain(t, "canary", "eu-1", "2.14.21")
	f.allHealthy(t, nightly)
	f.remove(t, "no CronJob", nightlyFile)
	f.allHealthy(t)

	started := time.Now()
	f.must(t, "rings", "resume", "canary", "--reason", "the CronJob is gone")
	f.ringIs(t, "canary", mirror.RingDone, "3.5.7")
	t.Logf("eu-1 went from 2.14 to 3.5 in %s", time.Since(started).Round(time.Second))
	f.allHealthy(t)
	if v := runners["eu-1"].runs(); v != "3.5" {
		t.Errorf("eu-1 runs %s", v)
	}
	untouched("after the upgrade")
	if out := f.must(t, "describe", "ring", "canary"); !strings.Contains(out, "3.5.7") {
		t.Errorf("describe ring:\n%s", out)
	}

	// as before
	f.commit(t, "canary gets 2.14 again", declare("2.14", "3.5", patient))
	f.ringIs(t, "canary", mirror.RingDone, "2.14.21")
	engines["fleet/fleet.yaml"] = looserGuards("fleet/fleet.yaml", engines["fleet/fleet.yaml"])
	f.commit(t, "Argosy gives them back", engines)
	eventually(t, "both are given back", func() string {
		for _, p := range []*example.Place{eu, us} {
			_, err := p.Cluster.Client().CoreV1().ConfigMaps(p.ArgoCD.Namespace).Get(t.Context(),
				"argosy-instance", metav1.GetOptions{})
			if err == nil {
				return p.Engine + " has an inventory"
			}
		}
		if all := list[mirror.Ring](t, f, "rings"); len(all) > 0 {
			return fmt.Sprintf("%+v", all)
		}
		return ""
	})
	f.allHealthy(t)
}

// ringVersions returns the files of the tested versions of Argo CD for the config repo, and the
// version and the manifests of a ring by minor version.
func ringVersions(t *testing.T) (files, rings map[string]string) {
	t.Helper()
	files, rings = map[string]string{}, map[string]string{}
	for _, minor := range fleet.TestedArgoCD {
		version, manifests, err := stack.ArgoManifests(minor)
		check(t, err)
		for p, text := range manifests {
			files[path.Join("argocd", version, p)] = string(text)
		}
		rings[minor] = fmt.Sprintf("      version: %s\n      manifests: {directory: argocd/%s, "+
			"digest: %q}\n", version, version, fleet.ManifestsDigest(manifests))
	}
	return files, rings
}

const nightlyFile = "tenants/acme/deployments/nightly.yaml"

// nightly deploys a CronJob whose last run has failed. Argo CD 2.14 does not judge CronJobs, and
// Argo CD 3.5 does: the Application is Healthy before the upgrade and Degraded after it.
func (f *system) nightly(t *testing.T, environment, namespace string) (id string) {
	t.Helper()
	_, err := f.Apps["acme/storefront"].Commit(t.Context(), "a CronJob", map[string]string{
		"cron/nightly.yaml": `apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: run, image: registry.example.com/nightly}]
`})
	check(t, err)
	f.commit(t, "a CronJob", map[string]string{nightlyFile: strings.NewReplacer("v2.0.1", "main",
		"path: deploy", "path: cron").Replace(f.deployment("nightly", environment, namespace,
		""))})
	jobs, now := f.Place("eu-1").Cluster.Client().BatchV1().CronJobs(namespace), time.Now()
	eventually(t, "the CronJob has failed", func() string {
		job, err := jobs.Get(t.Context(), "nightly", metav1.GetOptions{})
		if err == nil {
			job.Status.LastSuccessfulTime = &metav1.Time{Time: now.Add(-2 * time.Hour)}
			job.Status.LastScheduleTime = &metav1.Time{Time: now.Add(-time.Hour)}
			_, err = jobs.UpdateStatus(t.Context(), job, metav1.UpdateOptions{})
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	return "acme/nightly@" + environment
}

// runsAgain waits until an engine of a halted ring has returned to a version.
func (f *system) runsAgain(t *testing.T, ring string, engine fleet.EngineName, version string) {
	t.Helper()
	eventuallyLong(t, string(engine)+" runs "+version+" again", func() string {
		for _, i := range f.ringNamed(t, ring).Engines {
			if i.Engine == engine && i.State == mirror.InstanceRunning && i.Version == version {
				return ""
			}
		}
		return fmt.Sprintf("%+v", f.ringNamed(t, ring))
	})
}

func (f *system) ringNamed(t *testing.T, name string) mirror.Ring {
	t.Helper()
	for _, r := range list[mirror.Ring](t, f, "rings") {
		if r.Name == name {
			return r
		}
	}
	return mirror.Ring{}
}

// ringIs waits until a ring has a state with a version.
func (f *system) ringIs(t *testing.T, name string, want mirror.RingState, version string) {
	t.Helper()
	eventuallyLong(t, fmt.Sprintf("ring %s is %s with %s", name, want, version), func() string {
		if r := f.ringNamed(t, name); r.State != want || r.Version != version {
			return fmt.Sprintf("%+v", r)
		}
		return ""
	})
}

// eventuallyLong waits longer than eventually: a gate has a time of its own.
func eventuallyLong(t *testing.T, what string, missing func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	if left := stack.Until(ctx, missing); left != "" {
		t.Fatalf("%s: %s", what, left)
	}
}

// installRights grants the engine's account the rights of docs/rings.md, by cluster-admin: the page
// itself is tested with fleet/argocd/instance.
func installRights(t *testing.T, p *example.Place) {
	t.Helper()
	client := p.Cluster.Client()
	name := "install-" + p.Engine
	_, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName,
			Name: "system:serviceaccounts:" + p.ArgoCD.Namespace}}}, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() {
		_ = client.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(t.Context()), name,
			metav1.DeleteOptions{})
	})
}

// podRunner ties the Pods of an Argo CD to its real processes: when the image of the
// application-controller's Pod changes, it starts the processes of that version.
type podRunner struct {
	place   *example.Place
	now     chan string // the version that runs
	failing chan string // the version whose processes do not begin
	// the shadow's, of the goroutine
	shadow   *stack.RepoServer
	shadowOf string // its version
	clientCA string // of the shadow; "": it asks for no certificate
}

func runPods(t *testing.T, p *example.Place) *podRunner {
	t.Helper()
	openInternal(t, p)
	r := &podRunner{place: p, now: make(chan string, 1), failing: make(chan string, 1)}
	r.now <- strings.Join(strings.Split(strings.TrimPrefix(p.ArgoCD.Version, "v"), ".")[:2], ".")
	r.failing <- ""
	stop, done := make(chan struct{}), make(chan struct{})
	ctx := context.WithoutCancel(t.Context())
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if err := errors.Join(r.follow(ctx), r.reach(ctx)); err != nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
		if err := r.stopShadow(); err != nil {
			t.Error(err)
		}
		r.remove(ctx, t)
	})
	return r
}

// follow starts the version of the Pod unless it runs.
func (r *podRunner) follow(ctx context.Context) error {
	pod, err := r.place.Cluster.Client().CoreV1().Pods(r.place.ArgoCD.Namespace).Get(ctx,
		ringController+"-0", metav1.GetOptions{})
	if err != nil || pod.Status.Phase != corev1.PodRunning {
		return nil // not yet
	}
	_, tag, _ := strings.Cut(pod.Spec.Containers[0].Image, ":v")
	version := strings.Join(strings.Split(tag, ".")[:2], ".")
	now, failing := <-r.now, <-r.failing
	defer func() { r.now <- now; r.failing <- failing }()
	start := version
	if version == failing {
		start = ""
	}
	if start == now {
		return nil
	}
	now = start
	return r.place.ArgoCD.Switch(ctx, start)
}

func (r *podRunner) fail(version string) { <-r.failing; r.failing <- version }

func (r *podRunner) runs() string {
	now := <-r.now
	r.now <- now
	return now
}

// remove deletes the workloads, whose Pods no other test expects.
func (r *podRunner) remove(ctx context.Context, t *testing.T) {
	client, in := r.place.Cluster.Client().AppsV1(), r.place.ArgoCD.Namespace
	if err := client.StatefulSets(in).Delete(ctx, ringController,
		metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	for _, name := range []string{"argocd-repo-server", "argocd-redis"} {
		if err := client.Deployments(in).Delete(ctx, name, metav1.DeleteOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	if err := r.place.Cluster.InstallArgoCRDs(ctx, r.place.Version); err != nil {
		t.Error(err)
	}
}
