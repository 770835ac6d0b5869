package stack

import (
	"context"
	"errors"
	"fmt"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// fieldManager signs what this package applies.
const fieldManager = "argosy-stack"

// Apply makes the objects what they say by server-side apply, in their order and
// against every other owner. They are Kubernetes' own types or unstructured.
func (c *Cluster) Apply(ctx context.Context, objects ...runtime.Object) error {
	client := c.Dynamic()
	for _, o := range objects {
		u, err := toUnstructured(o)
		if err != nil {
			return fmt.Errorf("%s: apply %T: %w", c.Name, o, err)
		}
		_, err = resource(client, u).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		if err != nil {
			return fmt.Errorf("%s: apply %s %s/%s: %w", c.Name, u.GetKind(), u.GetNamespace(), u.GetName(), err)
		}
	}
	return nil
}

// Get reads the live object that has o's kind, namespace and name.
func (c *Cluster) Get(ctx context.Context, o runtime.Object) (*unstructured.Unstructured, error) {
	u, err := toUnstructured(o)
	if err != nil {
		return nil, err
	}
	return resource(c.Dynamic(), u).Get(ctx, u.GetName(), metav1.GetOptions{})
}

func toUnstructured(o runtime.Object) (*unstructured.Unstructured, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u, nil
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kinds[0])
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(u.Object, "status")
	return u, nil
}

// resource guesses the resource's name from the kind, as is right for every kind
// that a stack applies, so that no discovery is needed.
func resource(client dynamic.Interface, u *unstructured.Unstructured) dynamic.ResourceInterface {
	plural, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	if u.GetNamespace() == "" {
		return client.Resource(plural)
	}
	return client.Resource(plural).Namespace(u.GetNamespace())
}

func readManifest(file string) (*unstructured.Unstructured, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &u.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return u, nil
}

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// installCRDs applies the CRDs in the files and waits until the API server
// serves them. A cluster that has them of a newer release keeps those: they
// serve the older Argo CD too, and not the other way round.
func (c *Cluster) installCRDs(ctx context.Context, files []string, release string) error {
	const annotation = "stack.argosy.dev/release"
	var names []string
	for _, file := range files {
		crd, err := readManifest(file)
		if err != nil {
			return err
		}
		names = append(names, crd.GetName())
		live, err := c.Get(ctx, crd)
		if err == nil && !older(live.GetAnnotations()[annotation], release) {
			continue
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err := unstructured.SetNestedField(crd.Object, release, "metadata", "annotations", annotation); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := c.Apply(ctx, crd); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := c.Await(ctx, func(ctx context.Context) error { return c.established(ctx, name) }); err != nil {
			return err
		}
	}
	return nil
}

// older says whether version a is below b; what is no version is below all.
func older(a, b string) bool {
	va, err := version.ParseSemantic(a)
	return err != nil || va.LessThan(version.MustParseSemantic(b))
}

func (c *Cluster) established(ctx context.Context, name string) error {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(crdKind)
	crd.SetName(name)
	live, err := c.Get(ctx, crd)
	if err != nil {
		return err
	}
	conditions, _, err := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, condition := range conditions {
		if c, ok := condition.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("CRD %s is not established", name), err)
}
