package instance_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/test/stack"
)

// shade takes steps until the shadow of a version is ready.
func (l *lab) shade(minor string) {
	l.Helper()
	m, digest := published(l.T, minor)
	l.until(func() (string, error) {
		return l.target.StartShadow(l.Context(), instance.Order{Manifests: m, Digest: digest,
			Epoch: l.epoch})
	})
}

func (l *lab) until(step func() (string, error)) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	if left := stack.Until(ctx, func() string {
		waits, err := step()
		check(l.T, err)
		return waits
	}); left != "" {
		l.Fatal(left)
	}
}

func TestAShadowRunsBesideTheInstanceAndIsRemoved(t *testing.T) {
	l := newLab(t, "shaded")
	l.settle("2.14")
	before := l.pods()
	ctx := t.Context()
	l.shade("3.5")
	name, err := l.target.Pod(ctx, instance.Shadow)
	check(t, err)
	pod, err := l.client.CoreV1().Pods("shaded").Get(ctx, name, metav1.GetOptions{})
	check(t, err)
	if len(pod.Spec.Containers) != 2 || pod.Labels["app.kubernetes.io/name"] != instance.Shadow {
		t.Fatalf("%+v", pod.Spec)
	}
	for _, c := range pod.Spec.Containers {
		env := map[string]string{}
		for _, e := range c.Env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				t.Errorf("container %s has the Secret of %s", c.Name, e.Name)
			}
			env[e.Name] = e.Value
		}
		switch c.Name {
		case "redis":
			if !slices.Contains(c.Args, "127.0.0.1") || c.SecurityContext.RunAsUser == nil {
				t.Errorf("Redis: %v, %+v", c.Args, c.SecurityContext)
			}
		case "argocd-repo-server":
			if !strings.HasSuffix(c.Image, ":v3.5.7") ||
				env["ARGOCD_REPO_SERVER_LISTEN_ADDRESS"] != "127.0.0.1" ||
				env["REDIS_SERVER"] != "127.0.0.1:6379" || env["GIT_CONFIG_GLOBAL"] == "" {
				t.Errorf("repo-server %s: %v", c.Image, env)
			}
		default:
			t.Errorf("container %s", c.Name)
		}
	}
	selected, err := l.client.CoreV1().Services("shaded").Get(ctx, "argocd-repo-server",
		metav1.GetOptions{})
	check(t, err)
	if selected.Spec.Selector["app.kubernetes.io/name"] == instance.Shadow {
		t.Error("the Service of the present repo-server selects the shadow")
	}
	l.shade("2.14") // another version takes its place
	if changed := l.settle("2.14"); len(changed) > 0 {
		t.Errorf("beside a shadow, the instance changes %v", changed)
	}
	l.until(func() (string, error) { return l.target.EndShadow(ctx) })
	l.until(func() (string, error) {
		if after := l.pods(); !slices.Equal(before, after) {
			return "Pods are left", nil
		}
		return "", nil
	})
	check(t, second(l.target.EndShadow(ctx)))
}

func second[T any](_ T, err error) error { return err }

func TestAForeignDeploymentOfTheShadowsNameIsLeftAlone(t *testing.T) {
	l := newLab(t, "foreign")
	l.settle("2.14")
	m, digest := published(t, "3.5")
	o, err := m.Shadow(instance.Settings{Namespace: l.namespace, InstallationID: "another"})
	check(t, err)
	check(t, l.cluster.Apply(t.Context(), o))
	_, err = l.target.StartShadow(t.Context(), instance.Order{Manifests: m, Digest: digest})
	wantError(t, err, "Deployment argosy-shadow-repo-server is not Argosy's")
	check(t, second(l.target.EndShadow(t.Context())))
	if _, err := l.client.AppsV1().Deployments(l.namespace).Get(t.Context(), instance.Shadow,
		metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
