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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

var wedges = flag.Int("remedy.rounds", 1, "how often the application-controller gets stuck")

const controllerName = "argocd-application-controller"

// The application-controller of a real Argo CD stops, Argosy restarts its Pod, and the test starts
// the process again, as a kubelet would. The test prints how long each part takes.
func TestAStuckArgoCDIsRestarted(t *testing.T) {
	f := platform.use(t)
	f.allHealthy(t)
	const engine = "us-1"
	place, file := f.Place(engine), "fleet/engines/"+engine+".yaml"
	before := f.exampleFile(t, file)
	runs := controllerPod(t, place)
	f.commit(t, "restart the application-controller of "+engine, map[string]string{
		file: before + "  remedies:\n    restartController: {mode: Allowed, after: 2m}\n" +
			"    perHour: 60\n"})
	var noticed, requested, remedied []time.Duration
	for round := range *wedges {
		f.awaits(t, "the engine works", func(e view.Engine) bool {
			return e.Work != nil && e.Work.State == mirror.Working
		})
		began := time.Now()
		place.ArgoCD.Controller.Pause()
		since := func(what string, ok func(view.Engine) bool) time.Duration {
			f.awaits(t, what, ok)
			return time.Since(began)
		}
		noticed = append(noticed, since("the fault is noticed", func(e view.Engine) bool {
			return e.Work != nil && e.Work.State == mirror.ControllerStuck
		}))
		requested = append(requested, since("a restart is requested", func(e view.Engine) bool {
			return e.Remedy != nil
		}))
		remedied = append(remedied, since("the engine works again", func(e view.Engine) bool {
			return e.Work != nil && e.Work.State == mirror.Working && e.Remedy == nil
		}))
		all := list[mirror.Remedy](t, f, "remedies", "--engine", engine)
		if len(all) != round+1 || all[0].State != mirror.RemedyHelped || runs() != round+1 {
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
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
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

// controllerPod creates a StatefulSet whose Pod represents the process of the
// application-controller: the end of the Pod kills the process, and a new Pod starts it again. It
// returns how often that has happened.
func controllerPod(t *testing.T, p *example.Place) (runs func() int) {
	t.Helper()
	client, namespace := p.Cluster.Client(), p.ArgoCD.Namespace
	meta := metav1.ObjectMeta{Name: "argosy-restarts", Namespace: namespace}
	_, err := client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"apps"}, Resources: []string{"statefulsets", "deployments",
				"replicasets"}, Verbs: []string{"list"}},
			{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"},
				ResourceNames: []string{controllerName}, Verbs: []string{"patch"}},
			{APIGroups: []string{""}, Resources: []string{"pods"},
				Verbs: []string{"list", "delete"}}}}, metav1.CreateOptions{})
	check(t, err)
	_, err = client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName,
			Name: "system:serviceaccounts:" + namespace}}}, metav1.CreateOptions{})
	check(t, err)
	labels := map[string]string{"app.kubernetes.io/name": controllerName}
	_, err = client.AppsV1().StatefulSets(namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: controllerName, Labels: map[string]string{
			"app.kubernetes.io/name":      controllerName,
			"app.kubernetes.io/part-of":   "argocd",
			"app.kubernetes.io/component": "application-controller"}},
		Spec: appsv1.StatefulSetSpec{ServiceName: controllerName,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
					Image: "quay.io/argoproj/argocd:v3.5.7"}}}}}}, metav1.CreateOptions{})
	check(t, err)
	pod := func() (uid string, gone bool) {
		got, err := client.CoreV1().Pods(namespace).Get(context.WithoutCancel(t.Context()),
			controllerName+"-0", metav1.GetOptions{})
		if err != nil || got.Status.Phase != corev1.PodRunning {
			return "", apierrors.IsNotFound(err)
		}
		return string(got.UID), false
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
				p.ArgoCD.Controller.Kill()
				first = ""
			}
			if now == "" || now == first {
				continue
			}
			first = now
			p.ArgoCD.Controller.Kill()
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
		p.ArgoCD.Controller.Resume()
		if err := client.AppsV1().StatefulSets(namespace).Delete(ctx, controllerName,
			metav1.DeleteOptions{}); err != nil {
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
