package stack_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"argosy.dev/argosy/test/stack"
)

func startCluster(t *testing.T, o stack.ClusterOptions) *stack.Cluster {
	t.Helper()
	c, err := stack.StartCluster(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func podTemplate(app string, restart corev1.RestartPolicy) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{RestartPolicy: restart, Containers: []corev1.Container{
			{Name: "c", Image: "example.com/app:1"}}},
	}
}

func TestCluster(t *testing.T) {
	audit := filepath.Join(t.TempDir(), "audit.log")
	c := startCluster(t, stack.ClusterOptions{AuditLog: audit, Durable: true})
	client := c.Client()

	t.Run("a Deployment becomes available, and its Pods go with it", func(t *testing.T) {
		if err := c.CreateNamespace(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
		replicas := int32(3)
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "web"},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"app": "web"}},
				Template: podTemplate("web", corev1.RestartPolicyAlways),
			},
		}
		if err := c.Apply(t.Context(), deployment); err != nil {
			t.Fatal(err)
		}
		eventually(t, "three replicas are available", func() bool {
			d, err := client.AppsV1().Deployments("web").Get(t.Context(), "web",
				metav1.GetOptions{})
			return err == nil && d.Status.AvailableReplicas == replicas
		})
		if err := client.AppsV1().Deployments("web").Delete(t.Context(), "web",
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "its Pods are gone", func() bool {
			pods, err := client.CoreV1().Pods("web").List(t.Context(), metav1.ListOptions{})
			return err == nil && len(pods.Items) == 0
		})
	})

	t.Run("a Job completes, and one that fails, fails", func(t *testing.T) {
		none := int32(0)
		for name, command := range map[string][]string{"good": {"migrate"}, "bad": {"false"}} {
			template := podTemplate(name, corev1.RestartPolicyNever)
			template.Spec.Containers[0].Command = command
			job := &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
				Spec:       batchv1.JobSpec{Template: template, BackoffLimit: &none},
			}
			if err := c.Apply(t.Context(), job); err != nil {
				t.Fatal(err)
			}
		}
		for name, want := range map[string]batchv1.JobConditionType{"good": batchv1.JobComplete,
			"bad": batchv1.JobFailed} {
			eventually(t, name+" is "+string(want), func() bool {
				job, err := client.BatchV1().Jobs("default").Get(t.Context(), name,
					metav1.GetOptions{})
				if err != nil {
					return false
				}
				for _, condition := range job.Status.Conditions {
					if condition.Type == want && condition.Status == corev1.ConditionTrue {
						return true
					}
				}
				return false
			})
		}
	})

	t.Run("a tenant's token reaches its namespaces and nothing else", func(t *testing.T) {
		token, err := c.TenantToken(t.Context(), "acme", "shop", "cart")
		if err != nil {
			t.Fatal(err)
		}
		tenant := tenantClient(t, c, token)
		for namespace, allowed := range map[string]bool{"shop": true, "cart": true,
			"default": false, "kube-system": false} {
			_, err := tenant.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
			if allowed && err != nil || !allowed && !apierrors.IsForbidden(err) {
				t.Errorf("list secrets in %s: %v, want allowed %v", namespace, err, allowed)
			}
		}
		if _, err := tenant.CoreV1().Nodes().List(t.Context(),
			metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("list nodes: %v, want forbidden", err)
		}
		eventually(t, "the audit log names who was refused", func() bool {
			log, err := os.ReadFile(audit)
			return err == nil &&
				bytes.Contains(log,
					[]byte(`"user":{"username":"system:serviceaccount:stack-tenants:acme"`)) &&
				bytes.Contains(log, []byte(`"authorization.k8s.io/decision":"forbid"`))
		})
	})

	t.Run("after an outage it is back at its address with its data and tokens", func(t *testing.T) {
		token, err := c.TenantToken(t.Context(), "later", "later")
		if err != nil {
			t.Fatal(err)
		}
		server := c.Server
		c.Kill()
		if _, err := client.Discovery().ServerVersion(); err == nil {
			t.Error("it answers after Kill")
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c.Server != server {
			t.Errorf("it was at %s and is at %s", server, c.Server)
		}
		if _, err := tenantClient(t, c, token).CoreV1().Secrets("later").List(t.Context(),
			metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func tenantClient(t *testing.T, c *stack.Cluster, token string) kubernetes.Interface {
	t.Helper()
	text, err := c.KubeconfigFor(token, "")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	config.WarningHandler = rest.NoWarnings{}
	return kubernetes.NewForConfigOrDie(config)
}
