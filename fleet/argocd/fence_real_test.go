package argocd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

const controllerName = "argocd-application-controller"

// applicationSets creates the ApplicationSet controller.
func (l *restartLab) applicationSets(replicas int32) {
	l.Helper()
	pods := map[string]string{"app.kubernetes.io/name": "argocd-applicationset-controller"}
	_, err := l.cluster.Client().AppsV1().Deployments(l.namespace).Create(l.Context(),
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "argocd-applicationset-controller",
			Labels: map[string]string{"app.kubernetes.io/part-of": "argocd",
				"app.kubernetes.io/component": "applicationset-controller"}},
			Spec: appsv1.DeploymentSpec{Replicas: &replicas,
				Selector: &metav1.LabelSelector{MatchLabels: pods},
				Template: podTemplate(pods, false)}}, metav1.CreateOptions{})
	if err != nil {
		l.Fatal(err)
	}
}

// replicas returns those of both workloads, and their annotations of a fence.
func (l *restartLab) replicas() string {
	l.Helper()
	s, err := l.cluster.Client().AppsV1().StatefulSets(l.namespace).Get(l.Context(),
		controllerName, metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	d, err := l.cluster.Client().AppsV1().Deployments(l.namespace).Get(l.Context(),
		"argocd-applicationset-controller", metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	return fmt.Sprintf("%d %d%s%s", *s.Spec.Replicas, *d.Spec.Replicas,
		annotated(s.Annotations), annotated(d.Annotations))
}

func annotated(all map[string]string) (text string) {
	for _, name := range []string{annotationFence, annotationReplicas} {
		if v, ok := all[name]; ok {
			text += " " + v
		}
	}
	return text
}

// fenced scales and waits until no writer is left. It returns what was left on the way.
func (l *restartLab) fenced(request string) (lefts []string) {
	l.Helper()
	waitUntil(l.T, func() bool {
		waits, err := l.e.ScaleToZero(l.Context(), request)
		if err != nil {
			l.Fatal(err)
		}
		return waits == ""
	})
	waitUntil(l.T, func() bool {
		left, back := l.prove()
		if back {
			l.Fatalf("scaled back: %s", left)
		}
		if left != "" && !slices.Contains(lefts, left) {
			lefts = append(lefts, left)
		}
		return left == ""
	})
	return lefts
}

func (l *restartLab) prove() (left string, back bool) {
	l.Helper()
	left, back, err := l.e.ProveFence(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	return left, back
}

func (l *restartLab) lift(before []mirror.FencedWorkload) {
	l.Helper()
	waitUntil(l.T, func() bool {
		waits, err := l.e.LiftFence(l.Context(), before)
		if err != nil {
			l.Fatal(err)
		}
		return waits == ""
	})
}

// both creates three shards of the application-controller and the ApplicationSet controller.
func (l *restartLab) both() {
	l.Helper()
	l.controllers(3, false)
	l.applicationSets(1)
	l.ready(fleet.ApplicationController, 3)
	waitUntil(l.T, func() bool {
		list, err := l.cluster.Client().CoreV1().Pods(l.namespace).List(l.Context(),
			metav1.ListOptions{})
		return err == nil && len(list.Items) == 4
	})
	l.fit()
}

// Every shard and the ApplicationSet controller end, and get their replicas back.
func TestAFenceScalesEveryControllerToZeroAndBack(t *testing.T) {
	l := newRestartLab(t)
	l.both()
	found, err := l.e.CheckFence(t.Context())
	if want := []mirror.FencedWorkload{{Kind: "Deployment",
		Name: "argocd-applicationset-controller", Replicas: 1}, {Kind: "StatefulSet",
		Name: controllerName, Replicas: 3}}; err != nil || !slices.Equal(found, want) {
		t.Fatalf("%+v, %v", found, err)
	}
	if left, back := l.prove(); !back || !strings.Contains(left, "has 1 replicas") {
		t.Errorf("controllers that run are fenced: %q", left)
	}
	l.stopped = true
	if _, err := l.e.ScaleToZero(t.Context(), "f1"); !errors.Is(err, engine.ErrStopped) {
		t.Errorf("during a stop: %v", err)
	}
	l.stopped = false
	t.Logf("%q", l.fenced("f1"))
	if got := l.replicas(); got != "0 0 f1 3 f1 1" {
		t.Errorf("fenced: %s", got)
	}
	if pods := l.pods(fleet.ApplicationController); len(pods) > 0 {
		t.Errorf("Pods are left: %v", pods)
	}
	l.fenced("f1")
	l.fenced("f2") // another request remembers what the first one has found
	if found, err := l.e.CheckFence(t.Context()); err != nil || found[1].Replicas != 3 {
		t.Errorf("a fence forgets the replicas: %+v, %v", found, err)
	}
	if err := l.e.CheckRestart(t.Context(), fleet.ApplicationController); !errors.Is(err,
		engine.ErrRefused) || !strings.Contains(err.Error(), "a fence has scaled") {
		t.Errorf("a restart of a fenced engine: %v", err)
	}
	l.lift(nil)
	if got := l.replicas(); got != "3 1" {
		t.Errorf("lifted: %s", got)
	}
	l.ready(fleet.ApplicationController, 3)
}

// No workload counts such a Pod: its containers may be running.
func TestAPodThatMayRunIsAWriter(t *testing.T) {
	pods := map[string]*corev1.Pod{
		"belongs to no workload, but has the labels of one": {
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
				"app.kubernetes.io/name": controllerName}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
				Image: "example.com/c"}}}},
		"has the command alone": {Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
			Image: "example.com/c", Command: []string{"/usr/local/bin/" + controllerName}}}}},
		"runs the ApplicationSet controller by its arguments": {Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "example.com/c",
				Args: []string{"/usr/bin/tini", "--", "argocd-applicationset-controller"}}}}},
	}
	for name, pod := range pods {
		t.Run(name, func(t *testing.T) {
			l := newRestartLab(t)
			l.both()
			l.fenced("f1")
			pod.Name = "other"
			client := l.cluster.Client().CoreV1().Pods(l.namespace)
			if _, err := client.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if left, back := l.prove(); back || !strings.Contains(left, "Pod other is there") {
				t.Errorf("it is proven gone: %q", left)
			}
		})
	}
}

// A Pod on a node that does not answer stays terminating: nothing proves that it ended. Here a
// finalizer keeps the object, as the missing answer of the node would.
func TestATerminatingPodIsAWriter(t *testing.T) {
	l := newRestartLab(t)
	l.both()
	client := l.cluster.Client().CoreV1().Pods(l.namespace)
	keep := func(name, finalizers string) {
		t.Helper()
		if _, err := client.Patch(t.Context(), name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":`+finalizers+`}}`),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	keep(controllerName+"-0", `["example.com/node-does-not-answer"]`)
	if _, err := l.e.ScaleToZero(t.Context(), "f1"); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() bool {
		left, _ := l.prove()
		return strings.HasPrefix(left, "Pod "+controllerName+"-0 is terminating") &&
			!strings.Contains(left, ";")
	})
	if left, back := l.prove(); left == "" || back {
		t.Errorf("a terminating Pod counts as gone: %q, %t", left, back)
	}
	keep(controllerName+"-0", `null`)
	l.fenced("f1")
}

// The writer that scales a controller back is named. One request scales nothing a second time.
func TestAControllerThatIsScaledBackIsNamed(t *testing.T) {
	l := newRestartLab(t)
	l.both()
	apps := l.cluster.Client().AppsV1()
	for name, c := range map[string]struct {
		scale func() error
		names string
	}{
		"an operator": {func() error {
			_, err := apps.StatefulSets(l.namespace).Patch(t.Context(), controllerName,
				types.MergePatchType, []byte(`{"spec":{"replicas":2}}`),
				metav1.PatchOptions{FieldManager: "argocd-operator"})
			return err
		}, "StatefulSet argocd-application-controller has 2 replicas, set by argocd-operator at "},
		"an autoscaler": {func() error {
			_, err := apps.Deployments(l.namespace).UpdateScale(t.Context(),
				"argocd-applicationset-controller", &autoscalingv1.Scale{
					ObjectMeta: metav1.ObjectMeta{Name: "argocd-applicationset-controller",
						Namespace: l.namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: 2}},
				metav1.UpdateOptions{FieldManager: "keda"})
			return err
		}, "set by keda through its scale"},
		"an apply without the annotations": {func() error {
			_, err := apps.StatefulSets(l.namespace).Patch(t.Context(), controllerName,
				types.MergePatchType, []byte(`{"metadata":{"annotations":null},"spec":{"replicas":1}}`),
				metav1.PatchOptions{FieldManager: "flux"})
			return err
		}, "set by flux at "},
	} {
		t.Run(name, func(t *testing.T) {
			l.fenced(name)
			if err := c.scale(); err != nil {
				t.Fatal(err)
			}
			if left, back := l.prove(); !back || !strings.Contains(left, c.names) {
				t.Errorf("%q, %t", left, back)
			}
			if name == "an apply without the annotations" {
				return
			}
			if waits, err := l.e.ScaleToZero(t.Context(), name); waits != "" || err != nil {
				t.Errorf("%q, %v", waits, err)
			}
			if _, back := l.prove(); !back {
				t.Error("one request scales twice")
			}
		})
	}
	l.lift(nil)
	if got := l.replicas(); strings.Contains(got, "an ") || strings.HasPrefix(got, "0") {
		t.Errorf("a lifted fence takes replicas away, or leaves its marks: %s", got)
	}
}

// The annotations may be lost: the store has the replicas too. An annotation without a
// number is named.
func TestAFenceIsLiftedWithoutItsAnnotations(t *testing.T) {
	l := newRestartLab(t)
	l.both()
	before, err := l.e.CheckFence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.fenced("f1")
	patch := func(annotations string) {
		t.Helper()
		if _, err := l.cluster.Client().AppsV1().StatefulSets(l.namespace).Patch(t.Context(),
			controllerName, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":`+annotations+`}}`),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"` + annotationReplicas + `":"many"}`)
	if _, err := l.e.LiftFence(t.Context(), before); !errors.Is(err, engine.ErrRefused) ||
		!strings.Contains(err.Error(), `"many" and no number`) {
		t.Errorf("%v", err)
	}
	patch(`null`)
	l.lift(before)
	if got := l.replicas(); got != "3 1" {
		t.Errorf("lifted: %s", got)
	}
}

// The chart's Role names the workloads. A missing right is named before anything is scaled.
func TestAFenceNeedsItsRights(t *testing.T) {
	l := newRestartLab(t)
	if _, err := l.e.CheckFence(t.Context()); !errors.Is(err, engine.ErrRefused) ||
		!strings.Contains(err.Error(), "has no StatefulSet and no Deployment") {
		t.Errorf("without a workload: %v", err)
	}
	l.both()
	rules := map[string]rbacv1.PolicyRule{
		"patch statefulsets": {APIGroups: []string{"apps"}, Resources: []string{"statefulsets"},
			ResourceNames: []string{controllerName}, Verbs: []string{"patch"}},
		"patch deployments": {APIGroups: []string{"apps"}, Resources: []string{"deployments"},
			ResourceNames: []string{"argocd-applicationset-controller"}, Verbs: []string{"patch"}},
		"list replicasets": {APIGroups: []string{"apps"}, Resources: []string{"replicasets"},
			Verbs: []string{"list"}},
		"list pods": {APIGroups: []string{""}, Resources: []string{"pods"},
			Verbs: []string{"list"}},
		"list statefulsets": {APIGroups: []string{"apps"}, Resources: []string{"statefulsets"},
			Verbs: []string{"list"}},
		"list deployments": {APIGroups: []string{"apps"}, Resources: []string{"deployments"},
			Verbs: []string{"list"}},
	}
	for _, missing := range []string{"patch statefulsets", "patch deployments",
		"list replicasets", "list pods", "list statefulsets", "list deployments", ""} {
		var granted []rbacv1.PolicyRule
		for name, rule := range rules {
			if name != missing {
				granted = append(granted, rule)
			}
		}
		restricted := *l
		restricted.e = l.connect(accountWith(t, l.cluster, l.namespace,
			"fence-without-"+strings.ReplaceAll("x"+missing, " ", "-"), granted...))
		restricted.e.options.Fences = true
		restricted.fit()
		found, err := preflight{restricted.e}.fenceFindings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = restricted.e.CheckFence(t.Context())
		if missing == "" {
			if err != nil || len(found) != 0 {
				t.Errorf("with all rights: %v, %+v", err, found)
			}
			restricted.fenced("f1")
			restricted.lift(nil)
			continue
		}
		_, resource, _ := strings.Cut(missing, " ")
		if !errors.Is(err, engine.ErrRefused) || !strings.Contains(err.Error(), resource) ||
			!strings.Contains(err.Error(), "access.fences") {
			t.Errorf("without %s: %v", missing, err)
		}
		if len(found) != 1 || found[0].Blocks || !strings.Contains(found[0].Message, missing) {
			t.Errorf("without %s: %+v", missing, found)
		}
	}
}
