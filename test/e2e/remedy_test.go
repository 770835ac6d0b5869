package e2e

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

var (
	wedges = flag.Int("remedy.rounds", 1, "how often the application-controller gets stuck")

	silences = flag.Int("remedy.silences", 0,
		"how often the repo-server gets silent; each takes 12 minutes")
)

// component is a part of Argo CD that a remedy restarts.
type component struct {
	remedy, kind string
	repoServer   bool
	fault        mirror.WorkState
}

var (
	applicationController = component{remedy: "restartController",
		kind: "application-controller", fault: mirror.ControllerStuck}
	repoServer = component{remedy: "restartRepoServer", kind: "repo-server", repoServer: true,
		fault: mirror.RepoServerSilent}
)

func (c component) name() string { return "argocd-" + c.kind }

func (c component) process(a *stack.ArgoCD) *stack.Process {
	if c.repoServer {
		return a.RepoServer
	}
	return a.Controller
}

// The application-controller of a real Argo CD stops, Argosy restarts its Pod, and the test starts
// the process again, as a kubelet would. The test prints how long each part takes.
func TestAStuckArgoCDIsRestarted(t *testing.T) {
	restarted(t, *wedges, applicationController)
}

// The same for the repo-server, whose silence Argo CD reports after minutes.
func TestASilentRepoServerIsRestarted(t *testing.T) {
	if *silences == 0 {
		t.Skip("make load-remedies runs it: a silence counts as a fault after seven minutes")
	}
	restarted(t, *silences, repoServer)
}

func restarted(t *testing.T, rounds int, c component) {
	f := platform.use(t)
	f.allHealthy(t)
	const engine = "us-1"
	place, file := f.Place(engine), "fleet/engines/"+engine+".yaml"
	before := f.exampleFile(t, file)
	runs := c.pod(t, place)
	f.commit(t, "restart the "+c.kind+" of "+engine, map[string]string{
		file: before + "  remedies:\n    " + c.remedy + ": {mode: Allowed, after: 2m}\n" +
			"    perHour: 60\n"})
	known := len(list[mirror.Remedy](t, f, "remedies", "--engine", engine))
	var noticed, requested, remedied []time.Duration
	for round := range rounds {
		f.awaits(t, "the engine works", func(e view.Engine) bool {
			return e.Work != nil && e.Work.State == mirror.Working
		})
		began := time.Now()
		c.process(place.ArgoCD).Pause()
		since := func(what string, ok func(view.Engine) bool) time.Duration {
			f.awaits(t, what, ok)
			return time.Since(began)
		}
		noticed = append(noticed, since("the fault is noticed", func(e view.Engine) bool {
			return e.Work != nil && e.Work.State == c.fault
		}))
		requested = append(requested, since("a restart is requested", func(e view.Engine) bool {
			return e.Remedy != nil
		}))
		remedied = append(remedied, since("the engine works again", func(e view.Engine) bool {
			return e.Work != nil && e.Work.State == mirror.Working && e.Remedy == nil
		}))
		all := list[mirror.Remedy](t, f, "remedies", "--engine", engine)
		if len(all) != known+round+1 || all[0].State != mirror.RemedyHelped || runs() != round+1 {
			t.Fatalf("%d restarts: %+v", runs(), all)
		}
		t.Logf("round %d: noticed after %s, requested after %s, works after %s", round+1,
			noticed[round].Round(time.Second), requested[round].Round(time.Second),
			remedied[round].Round(time.Second))
	}
	for what, took := range map[string][]time.Duration{"noticed": noticed,
		"requested": requested, "remedied": remedied} {
		slices.Sort(took)
		t.Logf("%-9s p50 %s, max %s", what, took[len(took)/2].Round(time.Second),
			took[len(took)-1].Round(time.Second))
	}
	f.commit(t, "as before", map[string]string{file: before})
	f.allHealthy(t)
}

// awaits waits longer than other tests: a fault has to last.
func (f *system) awaits(t *testing.T, what string, ok func(view.Engine) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	if missing := stack.Until(ctx, func() string {
		for _, e := range list[view.Engine](t, f, "engines") {
			switch {
			case e.Name != "us-1":
			case ok(e):
				return ""
			default:
				return fmt.Sprintf("%+v, %+v, next: %s", e.Work, e.Remedy, e.NextRemedy)
			}
		}
		return "no answer"
	}); missing != "" {
		t.Fatalf("%s: %s", what, missing)
	}
}

// pod creates the workload of a component, whose Pod represents the process: the end of the Pod
// kills the process, and a new Pod starts it again. It returns how often that has happened.
func (c component) pod(t *testing.T, p *example.Place) (runs func() int) {
	t.Helper()
	client, namespace := p.Cluster.Client(), p.ArgoCD.Namespace
	meta := metav1.ObjectMeta{Name: "argosy-restarts", Namespace: namespace}
	_, err := client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"apps"}, Resources: []string{"statefulsets", "deployments",
				"replicasets"}, Verbs: []string{"list"}},
			{APIGroups: []string{"apps"}, Resources: []string{"statefulsets", "deployments"},
				ResourceNames: []string{c.name()}, Verbs: []string{"patch"}},
			{APIGroups: []string{""}, Resources: []string{"pods"},
				Verbs: []string{"list", "delete"}}}}, metav1.CreateOptions{})
	check(t, err)
	_, err = client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName,
			Name: "system:serviceaccounts:" + namespace}}}, metav1.CreateOptions{})
	check(t, err)
	remove := c.workload(t, p)
	pods := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + c.name()}
	// pod returns the Pod that runs, the newest one during an update, and whether there is none
	pod := func() (uid string, gone bool) {
		got, err := client.CoreV1().Pods(namespace).List(context.WithoutCancel(t.Context()), pods)
		if err != nil {
			return "", false
		}
		var newest metav1.Time
		for _, p := range got.Items {
			if p.Status.Phase == corev1.PodRunning && !p.CreationTimestamp.Before(&newest) {
				uid, newest = string(p.UID), p.CreationTimestamp
			}
		}
		return uid, len(got.Items) == 0
	}
	var first string
	eventually(t, "the Pod runs", func() string {
		if first, _ = pod(); first == "" {
			return "not yet"
		}
		return ""
	})
	n, stop, done := make(chan int, 1), make(chan struct{}), make(chan struct{})
	n <- 0
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
			now, gone := pod()
			if gone && first != "" {
				c.process(p.ArgoCD).Kill()
				first = ""
			}
			if now == "" || now == first {
				continue
			}
			first = now
			c.process(p.ArgoCD).Kill()
			if err := p.ArgoCD.Start(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
			n <- <-n + 1
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
		ctx := context.WithoutCancel(t.Context())
		c.process(p.ArgoCD).Resume()
		if err := remove(ctx); err != nil {
			t.Error(err)
		}
		_ = client.RbacV1().RoleBindings(namespace).Delete(ctx, meta.Name, metav1.DeleteOptions{})
		_ = client.RbacV1().Roles(namespace).Delete(ctx, meta.Name, metav1.DeleteOptions{})
	})
	return func() int {
		now := <-n
		n <- now
		return now
	}
}

// workload creates the StatefulSet or Deployment of a component, as Argo CD's manifests have it.
func (c component) workload(t *testing.T, p *example.Place) (remove func(context.Context) error) {
	t.Helper()
	apps, namespace := p.Cluster.Client().AppsV1(), p.ArgoCD.Namespace
	labels := map[string]string{"app.kubernetes.io/name": c.name()}
	meta := metav1.ObjectMeta{Name: c.name(), Labels: map[string]string{
		"app.kubernetes.io/name":      c.name(),
		"app.kubernetes.io/part-of":   "argocd",
		"app.kubernetes.io/component": c.kind}}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
			Image: "quay.io/argoproj/argocd:v3.5.7"}}}}
	if c.repoServer {
		_, err := apps.Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
			ObjectMeta: meta,
			Spec:       appsv1.DeploymentSpec{Selector: selector, Template: template},
		}, metav1.CreateOptions{})
		check(t, err)
		return func(ctx context.Context) error {
			return apps.Deployments(namespace).Delete(ctx, c.name(), metav1.DeleteOptions{})
		}
	}
	_, err := apps.StatefulSets(namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{ServiceName: c.name(),
			Selector: selector, Template: template}}, metav1.CreateOptions{})
	check(t, err)
	return func(ctx context.Context) error {
		return apps.StatefulSets(namespace).Delete(ctx, c.name(), metav1.DeleteOptions{})
	}
}
