package edge

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"argosy.dev/argosy/test/stack"
)

// secretIn returns a Secret with labels.
func secretIn(namespace, name string, labels map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: labels}, StringData: map[string]string{"a": "b"}}
}

// The test applies the manifest and tries, as the agent's service account, the allowed and the
// forbidden requests.
func TestTheAgentsRightsOnARealAPIServer(t *testing.T) {
	ctx := t.Context()
	c, err := stack.StartCluster(ctx, stack.ClusterOptions{Name: "agent-rights"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	})
	for _, ns := range []string{"argocd", "other"} {
		if err := c.CreateNamespace(ctx, ns); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.InstallArgoCRDs(ctx, "3.5"); err != nil {
		t.Fatal(err)
	}
	objects, err := install().Objects()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(ctx, objects...); err != nil {
		t.Fatal(err)
	}
	admin := c.Client()
	for _, ns := range []string{"argocd", "other"} {
		if _, err := admin.CoreV1().Secrets(ns).Create(ctx, secretIn(ns, "argocd-secret", nil),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	config := c.REST()
	config.Impersonate.UserName = install().withDefaults().username()
	config.Impersonate.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + Name,
		"system:authenticated"}
	as := kubernetes.NewForConfigOrDie(config)
	awaitPolicy(t, as)

	t.Run("the check of rights finds all of them", func(t *testing.T) {
		check := &ClusterCheck{Client: as, Install: install().withDefaults()}
		if r := check.checkRights(ctx); r.Level != LevelOK {
			t.Errorf("%+v", r)
		}
		if r := check.checkPolicy(ctx); r.Level != LevelOK {
			t.Errorf("%+v", r)
		}
	})
	if _, err := admin.CoreV1().Secrets(Name).Create(ctx, secretIn(Name, Name, nil),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Run("its own Secret and ConfigMap", func(t *testing.T) { keepsItsOwn(t, as) })
	t.Run("the Secrets that it makes", func(t *testing.T) { writesLabelled(t, as) })
	t.Run("nothing else", func(t *testing.T) { refusedElsewhere(t, as) })
}

// awaitPolicy waits until the API server enforces the policy.
func awaitPolicy(t *testing.T, as kubernetes.Interface) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := as.CoreV1().Secrets("argocd").Create(t.Context(),
			secretIn("argocd", "probe", nil), metav1.CreateOptions{
				DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the policy does not take hold: %v", err)
		}
		<-tick.C
	}
}

func keepsItsOwn(t *testing.T, as kubernetes.Interface) {
	for _, cell := range []ObjectStore{SecretStore(as, Name, Name),
		ConfigMapStore(as, Name, DeletionsName)} {
		_, version, err := cell.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if version == "" {
			if version, err = cell.Save(t.Context(), map[string][]byte{"a": []byte("1")},
				""); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := cell.Save(t.Context(), map[string][]byte{"a": []byte("2")},
			version); err != nil {
			t.Fatal(err)
		}
		if values, _, err := cell.Load(t.Context()); err != nil || string(values["a"]) != "2" {
			t.Errorf("%v, %v", values, err)
		}
		if _, err := cell.Save(t.Context(), map[string][]byte{"a": []byte("3")},
			version); err == nil {
			t.Error("a stale write is taken")
		}
	}
	if uid, err := ClusterUID(t.Context(), as); err != nil || uid == "" {
		t.Errorf("the cluster's UID: %q, %v", uid, err)
	}
}

func writesLabelled(t *testing.T, as kubernetes.Interface) {
	ours := map[string]string{"app.kubernetes.io/managed-by": "argosy",
		"argocd.argoproj.io/secret-type": "repository"}
	secrets := as.CoreV1().Secrets("argocd")
	if _, err := secrets.Create(t.Context(), secretIn("argocd", "ours", ours),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := secrets.Patch(t.Context(), "ours", types.MergePatchType,
		[]byte(`{"stringData":{"a":"c"}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := secrets.Patch(t.Context(), "ours", types.MergePatchType,
		[]byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{}); err == nil {
		t.Error("it lets go of a Secret by taking the labels off")
	}
	if err := secrets.Delete(t.Context(), "ours", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

func refusedElsewhere(t *testing.T, as kubernetes.Interface) {
	ctx := context.Background()
	core := as.CoreV1()
	adopt := []byte(
		`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"argosy","argocd.argoproj.io/secret-type":"repository"}}}`)
	for name, try := range map[string]func() error{
		"a Secret without labels": func() error {
			_, err := core.Secrets("argocd").Create(ctx, secretIn("argocd", "x", nil),
				metav1.CreateOptions{})
			return err
		},
		"Argo CD's own Secret, changed": func() error {
			_, err := core.Secrets("argocd").Patch(ctx, "argocd-secret", types.MergePatchType,
				[]byte(`{"stringData":{"admin.password":"x"}}`), metav1.PatchOptions{})
			return err
		},
		"Argo CD's own Secret, taken over": func() error {
			_, err := core.Secrets("argocd").Patch(ctx, "argocd-secret", types.MergePatchType,
				adopt, metav1.PatchOptions{})
			return err
		},
		"Argo CD's own Secret, deleted": func() error {
			return core.Secrets("argocd").Delete(ctx, "argocd-secret", metav1.DeleteOptions{})
		},
		"all Secrets, deleted": func() error {
			return core.Secrets("argocd").DeleteCollection(ctx, metav1.DeleteOptions{},
				metav1.ListOptions{})
		},
		"Secrets of another namespace": func() error {
			_, err := core.Secrets("other").List(ctx, metav1.ListOptions{})
			return err
		},
		"Secrets of the whole cluster": func() error {
			_, err := core.Secrets("").List(ctx, metav1.ListOptions{})
			return err
		},
		"a Secret beside its own": func() error {
			_, err := core.Secrets(Name).Create(ctx, secretIn(Name, "x", nil),
				metav1.CreateOptions{})
			return err
		},
		"an Application, replaced": func() error {
			return as.Discovery().RESTClient().Put().AbsPath(
				"/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/x").Body(
				[]byte("{}")).Do(ctx).Error()
		},
		"Secrets beside its own": func() error {
			_, err := core.Secrets(Name).List(ctx, metav1.ListOptions{})
			return err
		},
		"Argo CD's settings, changed": func() error {
			_, err := core.ConfigMaps("argocd").Patch(ctx, "argocd-cm", types.MergePatchType,
				[]byte(`{"data":{"x":"y"}}`), metav1.PatchOptions{})
			return err
		},
		"Pods": func() error {
			_, err := core.Pods("argocd").List(ctx, metav1.ListOptions{})
			return err
		},
		"Nodes": func() error {
			_, err := core.Nodes().List(ctx, metav1.ListOptions{})
			return err
		},
		"another namespace": func() error {
			_, err := core.Namespaces().Get(ctx, "argocd", metav1.GetOptions{})
			return err
		},
		"rights": func() error {
			_, err := as.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
			return err
		},
		"the policy, deleted": func() error {
			return as.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx,
				secretsPolicy, metav1.DeleteOptions{})
		},
		"its own Deployment": func() error {
			return as.AppsV1().Deployments(Name).Delete(ctx, Name, metav1.DeleteOptions{})
		},
		"a token of its account": func() error {
			_, err := core.ServiceAccounts(Name).Get(ctx, Name,
				metav1.GetOptions{})
			return err
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
