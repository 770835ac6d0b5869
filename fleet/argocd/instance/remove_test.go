package instance_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/test/stack"
)

// An instance is removed with everything that Argosy has applied in its namespace, and with nothing
// else; not while an Application is there.
func TestAnInstanceIsRemovedOnceItsNamespaceHasNoApplication(t *testing.T) {
	l := newLab(t, "removed")
	l.settle("3.5")
	ctx := t.Context()
	_, err := l.client.CoreV1().ConfigMaps(l.namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}, metav1.CreateOptions{})
	check(t, err)
	apps := projects
	apps.Resource = "applications"
	app := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "argoproj.io/v1alpha1",
		"kind": "Application", "metadata": map[string]any{"name": "left"},
		"spec": map[string]any{"project": "default", "destination": map[string]any{},
			"source": map[string]any{"repoURL": "https://git.example.com/a", "path": "a"}}}}
	_, err = l.dynamic.Resource(apps).Namespace(l.namespace).Create(ctx, app,
		metav1.CreateOptions{})
	check(t, err)
	probe := app.DeepCopy()
	probe.SetName("probe")
	probe.SetLabels(map[string]string{"argosy.dev/probe": "true"})
	_, err = l.dynamic.Resource(apps).Namespace(l.namespace).Create(ctx, probe,
		metav1.CreateOptions{})
	check(t, err)
	for name, labels := range map[string]map[string]string{
		"probe": {"argosy.dev/probe": "true"}, "theirs": nil} {
		_, err = l.client.CoreV1().Secrets(l.namespace).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
		check(t, err)
	}
	waits, err := l.target.Remove(ctx, l.epoch, "argosy.dev/probe")
	if err != nil || !strings.Contains(waits, "Application left") || len(l.pods()) != 3 {
		t.Fatalf("with an Application: %q, %v, %d Pods", waits, err, len(l.pods()))
	}
	check(t, l.dynamic.Resource(apps).Namespace(l.namespace).Delete(ctx, "left",
		metav1.DeleteOptions{}))
	if _, err := l.target.Remove(ctx, l.epoch-1, "argosy.dev/probe"); !errors.Is(err,
		instance.ErrSuperseded) {
		t.Errorf("a former writer: %v", err)
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if left := stack.Until(within, func() string {
		waits, err := l.target.Remove(ctx, l.epoch, "argosy.dev/probe")
		check(t, err)
		return waits
	}); left != "" {
		t.Fatal(left)
	}
	if n := len(l.pods()); n > 0 {
		t.Errorf("%d Pods are left", n)
	}
	left, err := l.dynamic.Resource(apps).Namespace(l.namespace).List(ctx, metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("%d probes are left, %v", len(left.Items), err)
	}
	if _, err := l.client.CoreV1().Secrets(l.namespace).Get(ctx, "probe",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the cluster of a probe is left: %v", err)
	}
	if _, err := l.client.CoreV1().Secrets(l.namespace).Get(ctx, "theirs",
		metav1.GetOptions{}); err != nil {
		t.Errorf("the Secret of others: %v", err)
	}
	roles, err := l.client.RbacV1().Roles(l.namespace).List(ctx, metav1.ListOptions{})
	check(t, err)
	maps, err := l.client.CoreV1().ConfigMaps(l.namespace).List(ctx, metav1.ListOptions{})
	check(t, err)
	for _, m := range maps.Items {
		if m.Name != "theirs" && m.Name != "kube-root-ca.crt" {
			t.Errorf("ConfigMap %s is left", m.Name)
		}
	}
	if _, err := l.client.CoreV1().ConfigMaps(l.namespace).Get(ctx, "theirs",
		metav1.GetOptions{}); err != nil || len(roles.Items) > 0 {
		t.Errorf("theirs: %v; %d Roles are left", err, len(roles.Items))
	}
	if _, err := l.client.CoreV1().Namespaces().Get(ctx, l.namespace,
		metav1.GetOptions{}); err != nil {
		t.Errorf("the namespace: %v", err)
	}
	if epoch, err := l.target.Epoch(ctx); epoch != 0 || err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("an inventory is left: %d, %v", epoch, err)
	}
	if len(l.key()) < 40 {
		t.Error("the Secrets are gone")
	}
	l.settle("3.5") // once more
}
