package instance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"argosy.dev/argosy/fleet"
)

// removable are the kinds of the inventory that a removal deletes, in this order: the processes end
// before their rights.
var removable = []string{"StatefulSet", "Deployment", "Service", "NetworkPolicy", "ConfigMap",
	"RoleBinding", "Role", "ServiceAccount"}

// Remove deletes the objects of the inventory and then the inventory. It deletes no
// CustomResourceDefinition, no AppProject and no Namespace, no Secret but those of probes, and only
// objects with our label. It returns why it has to be repeated; "" once nothing is left. An
// Application in the namespace keeps everything: its finalizers need the controller. One with the
// label probe is Argosy's own.
func (t *Target) Remove(ctx context.Context, epoch int64, probe string) (waits string, err error) {
	inv, err := t.inventory(ctx)
	if err != nil || inv.version == "" {
		return "", err
	}
	if last, _ := strconv.ParseInt(inv.data[keyEpoch], 10, 64); last > epoch {
		return "", fmt.Errorf("%w: epoch %d is before %d", ErrSuperseded, epoch, last)
	}
	if waits, err = t.used(ctx, probe); err != nil || waits != "" {
		return waits, err
	}
	objects, err := decodeIDs(inv.data[keyObjects])
	if err != nil {
		return "", err
	}
	data := maps.Clone(inv.data)
	data[keyEpoch] = strconv.FormatInt(epoch, 10)
	if err := t.record(ctx, &inv, data); err != nil { // a former writer fails from now on
		return "", err
	}
	for _, kind := range removable {
		for _, o := range objects {
			if o.Kind != kind {
				continue
			}
			left, err := t.remove(ctx, o)
			if err != nil {
				return "", err
			}
			if left && waits == "" {
				waits = o.Kind + " " + o.Name + " is being deleted"
			}
		}
		if waits != "" {
			return waits, nil
		}
	}
	if err := t.removeProbes(ctx, probe); err != nil {
		return "", err
	}
	return "", t.Release(ctx, epoch)
}

// used returns an Application of the namespace besides probes; "" if there is none.
func (t *Target) used(ctx context.Context, probe string) (string, error) {
	all, err := t.labelled(ctx, applications, "!"+probe, 1)
	if err != nil || len(all) == 0 {
		return "", err
	}
	return "Application " + all[0].GetName() + " is in its namespace", nil
}

var (
	applications = schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1",
		Kind: "ApplicationList"}
	secrets = schema.GroupVersionKind{Version: "v1", Kind: "SecretList"}
)

// labelled returns the objects of the namespace that a selector selects.
func (t *Target) labelled(ctx context.Context, list schema.GroupVersionKind, selector string,
	most int64) ([]unstructured.Unstructured, error) {
	by, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(list)
	err = t.client.List(ctx, all, client.InNamespace(t.namespace), client.Limit(most),
		client.MatchingLabelsSelector{Selector: by})
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil // the kind is not defined: the installation had begun only
	}
	return all.Items, refused(err, "list "+strings.TrimSuffix(list.Kind, "List")+"s")
}

// removeProbes deletes the probes of all shards, which have no finalizer, and their clusters.
func (t *Target) removeProbes(ctx context.Context, probe string) error {
	all, err := t.labelled(ctx, applications, probe, fleet.MaxShards)
	if err != nil {
		return err
	}
	clusters, err := t.labelled(ctx, secrets, probe, fleet.MaxShards)
	if err != nil {
		return err
	}
	all = append(all, clusters...)
	for i := range all {
		uid := all[i].GetUID()
		err := t.client.Delete(ctx, &all[i], client.Preconditions{UID: &uid})
		if err != nil && !apierrors.IsNotFound(err) {
			return refused(err, "delete "+name(&all[i]))
		}
	}
	return nil
}

// remove deletes an object that is ours, with its UID and its resourceVersion. It reports whether
// the object is still there.
func (t *Target) remove(ctx context.Context, of id) (left bool, err error) {
	if !slices.Contains(removable, of.Kind) {
		return false, nil
	}
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(of.APIVersion)
	o.SetKind(of.Kind)
	o.SetNamespace(t.namespace)
	o.SetName(of.Name)
	live, err := t.get(ctx, o)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, refused(err, "get "+name(o))
	case live.GetLabels()[labelInstance] != t.id:
		return false, nil
	case live.GetDeletionTimestamp() != nil:
		return true, nil
	}
	uid, version := live.GetUID(), live.GetResourceVersion()
	err = t.client.Delete(ctx, live, client.Preconditions{UID: &uid, ResourceVersion: &version},
		client.PropagationPolicy(metav1.DeletePropagationForeground))
	if err != nil && !apierrors.IsNotFound(err) {
		return false, refused(err, "delete "+name(o))
	}
	_, err = t.get(ctx, o)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return true, refused(err, "get "+name(o))
}
