package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AnnotationFence marks a workload that a fence has scaled to zero, with the ID of the request. Its
// replicas belong to the fence.
const AnnotationFence = "argosy.dev/fence"

// shardsOf returns the number of application-controllers that the instance is to have; 0 if others
// set it. An instance whose number Argosy has set goes back to one before others may set it.
func shardsOf(o Order, inv inventory) int {
	switch {
	case o.Size != nil:
		return o.Size.ShardCount()
	case inv.data[keyShards] != "":
		return 1
	}
	return 0
}

// end ends the application-controllers before their number changes, and returns why it has to be
// repeated. Each of them knows the number from its environment, and serves the clusters that it
// has by that number: two with different numbers would serve one cluster at once.
func (t *Target) end(ctx context.Context, shards int) (waits string, err error) {
	if shards == 0 {
		return "", nil
	}
	live, err := t.controller(ctx)
	if err != nil || live == nil || servedBy(live) == shards {
		return "", err
	}
	if replicas(live) != 0 {
		err = t.setReplicas(ctx, live, 0)
		return fmt.Sprintf("its application-controllers end: from %d to %d", servedBy(live),
			shards), err
	}
	if live.Status.ObservedGeneration < live.Generation {
		return "Kubernetes has not seen yet that " + controllerName + " has no replicas", nil
	}
	pods := &corev1.PodList{}
	err = t.client.List(ctx, pods, client.InNamespace(t.namespace),
		client.MatchingLabels(live.Spec.Selector.MatchLabels), client.Limit(1))
	if err != nil {
		return "", refused(err, "list Pods")
	}
	for _, p := range pods.Items {
		return "Pod " + p.Name + " has not ended", nil
	}
	return "", nil
}

// scale sets the number of Pods of the application-controller to that of its environment.
func (t *Target) scale(ctx context.Context, shards int) (waits string, err error) {
	if shards == 0 {
		return "", nil
	}
	live, err := t.controller(ctx)
	switch {
	case err != nil || live == nil || replicas(live) == shards:
		return "", err
	case live.Annotations[AnnotationFence] != "":
		return "a fence has scaled " + controllerName + " to zero", nil
	}
	return fmt.Sprintf("its application-controllers begin: %d", shards),
		t.setReplicas(ctx, live, shards)
}

// controller returns the StatefulSet of the application-controller; nil if there is none.
func (t *Target) controller(ctx context.Context) (*appsv1.StatefulSet, error) {
	live := &appsv1.StatefulSet{}
	err := t.client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: controllerName}, live)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, refused(err, "get StatefulSet "+controllerName)
}

func replicas(s *appsv1.StatefulSet) int {
	if s.Spec.Replicas == nil {
		return 1
	}
	return int(*s.Spec.Replicas)
}

// servedBy returns the number of application-controllers by which each of them knows its part.
// Without a number, each serves every cluster.
func servedBy(s *appsv1.StatefulSet) int {
	for _, c := range s.Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			if n, err := strconv.Atoi(e.Value); c.Name == controllerName && e.Name == envShards &&
				err == nil && n > 1 {
				return n
			}
		}
	}
	return 1
}

// setReplicas writes the replicas of a StatefulSet as it was read: a fence in between makes the
// write fail, and the next step reads it again.
func (t *Target) setReplicas(ctx context.Context, s *appsv1.StatefulSet, n int) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": s.UID, "resourceVersion": s.ResourceVersion},
		"spec":     map[string]any{"replicas": n}})
	if err != nil {
		return err
	}
	err = t.client.Patch(ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: t.namespace, Name: s.Name}}, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(fieldManager))
	if apierrors.IsConflict(err) {
		return nil
	}
	return refused(err, "scale StatefulSet "+s.Name)
}
