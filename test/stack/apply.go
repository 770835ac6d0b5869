package stack

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
)

// fieldManager signs what this package applies.
const fieldManager = "argosy-stack"

// Apply gives the objects this content by server-side apply, in their order and against every other
// owner. They are Kubernetes' own types or unstructured.
func (c *Cluster) Apply(ctx context.Context, objects ...runtime.Object) error {
	client := c.Dynamic()
	for _, o := range objects {
		u, err := toUnstructured(o)
		if err != nil {
			return fmt.Errorf("%s: apply %T: %w", c.Name, o, err)
		}
		_, err = resource(client, u).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{
			FieldManager: fieldManager, Force: true})
		if err != nil {
			return fmt.Errorf("%s: apply %s %s/%s: %w", c.Name, u.GetKind(), u.GetNamespace(),
				u.GetName(), err)
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
