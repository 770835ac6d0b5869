package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"argosy.dev/argosy/test/stack"
)

var applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
	Resource: "applications"}

// onEngine are the Applications of an engine's namespace.
func (f *system) onEngine(engine string) dynamic.ResourceInterface {
	p := f.Place(engine)
	return p.Cluster.Dynamic().Resource(applications).Namespace(p.ArgoCD.Namespace)
}

// live is the Application of a deployment in an environment, as its engine has it.
func (f *system) live(t *testing.T, engine, tenant, deployment,
	environment string) *unstructured.Unstructured {
	t.Helper()
	found, err := f.onEngine(engine).List(t.Context(), metav1.ListOptions{
		LabelSelector: "argosy.dev/tenant=" + tenant + ",argosy.dev/deployment=" + deployment +
			",argosy.dev/environment=" + environment})
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Items) != 1 {
		t.Fatalf("%d Applications for %s/%s@%s on %s", len(found.Items), tenant, deployment,
			environment, engine)
	}
	return &found.Items[0]
}

// workload reports whether a Deployment exists, and its UID.
func (f *system) workload(t *testing.T, engine, namespace, name string) (uid string, ok bool) {
	t.Helper()
	d, err := f.Place(engine).Cluster.Client().AppsV1().Deployments(namespace).Get(t.Context(),
		name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", false
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(d.UID), true
}

// writes counts the requests that changed something in an engine's namespace and came from Argosy's
// account, so far, without those of the probe.
func (f *system) writes(t *testing.T, engine string) int {
	t.Helper()
	log, err := stack.ReadAudit(filepath.Join(f.Dir, engine+".audit"))
	if err != nil {
		t.Fatal(err)
	}
	namespace, n := f.Place(engine).ArgoCD.Namespace, 0
	for _, e := range log {
		if e.Stage == "ResponseComplete" && e.ObjectRef.Namespace == namespace && e.Writes() &&
			strings.Contains(e.User.Username, "argosy") && !strings.Contains(e.ObjectRef.Resource,
			"reviews") && e.ObjectRef.Name != "argosy-probe" {
			n++
		}
	}
	return n
}

func nestedString(o *unstructured.Unstructured, path ...string) (string, bool, error) {
	return unstructured.NestedString(o.Object, path...)
}
