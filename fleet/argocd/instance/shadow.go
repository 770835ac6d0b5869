package instance

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Shadow is the name of the Deployment with the next version's repo-server, and the value of the
// label app.kubernetes.io/name of its Pod: no Service of Argo CD selects it (ADR 0072).
const Shadow = "argosy-shadow-repo-server"

const labelName = "app.kubernetes.io/name"

// Shadow returns the repo-server of the version with a Redis of its own, as one Pod. Both listen on
// the Pod's loopback interface: a port forward reaches them, and no other Pod.
func (m *Manifests) Shadow(s Settings) (*unstructured.Unstructured, error) {
	var repo, redis *unstructured.Unstructured
	for _, o := range m.objects {
		if o.GetKind() == "Deployment" && o.GetName() == "argocd-repo-server" {
			repo = o.DeepCopy()
		}
		if o.GetKind() == "Deployment" && o.GetName() == "argocd-redis" {
			redis = o.DeepCopy()
		}
	}
	if repo == nil || redis == nil {
		return nil, errors.New("the manifests have no repo-server or no Redis") // see check
	}
	if err := s.overlay(repo); err != nil {
		return nil, err
	}
	pod, _ := at(repo.Object, "spec", "template", "spec")
	delete(pod, "affinity")
	for _, c := range containers(repo) {
		if c["name"] != workloads["argocd-repo-server"] {
			continue
		}
		setEnv(c, "REDIS_PASSWORD", "")
		setEnv(c, "REDISDB", "")
		setEnv(c, "REDIS_SERVER", "127.0.0.1:6379")
		setEnv(c, "ARGOCD_REPO_SERVER_LISTEN_ADDRESS", "127.0.0.1")
		setEnv(c, "ARGOCD_REPO_SERVER_DISABLE_TLS", "false")
	}
	cache, err := shadowRedis(redis)
	if err != nil {
		return nil, err
	}
	add(pod, "containers", cache)
	labels := map[string]any{labelName: Shadow}
	spec, _ := at(repo.Object, "spec")
	spec["selector"] = map[string]any{"matchLabels": maps.Clone(labels)}
	spec["replicas"] = int64(1)
	template, _ := at(repo.Object, "spec", "template")
	meta, ok := template["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		template["metadata"] = meta
	}
	meta["labels"] = labels
	out := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1",
		"kind": "Deployment", "spec": spec,
		"metadata": map[string]any{"name": Shadow, "namespace": s.Namespace,
			"labels": map[string]any{labelName: Shadow, "app.kubernetes.io/version": m.Version}}}}
	s.label(out)
	return out, nil
}

// shadowRedis is the Redis as a container of the shadow's Pod. It has no password, because it
// listens on the loopback interface alone.
func shadowRedis(o *unstructured.Unstructured) (map[string]any, error) {
	pod, _ := at(o.Object, "spec", "template", "spec")
	for _, c := range containers(o) {
		if c["name"] != workloads["argocd-redis"] {
			continue
		}
		delete(c, "env")
		delete(c, "ports")
		c["args"] = []any{"--save", "", "--appendonly", "no", "--bind", "127.0.0.1"}
		// the Pod of the repo-server has another user
		security, ok := c["securityContext"].(map[string]any)
		if !ok {
			security = map[string]any{}
			c["securityContext"] = security
		}
		if of, ok := at(pod, "securityContext"); ok {
			for _, field := range []string{"runAsUser", "runAsGroup", "runAsNonRoot",
				"seccompProfile"} {
				if value, ok := of[field]; ok {
					security[field] = value
				}
			}
		}
		return c, nil
	}
	return nil, fmt.Errorf("%s has no container %s", o.GetName(), workloads["argocd-redis"])
}

// StartShadow takes a step towards the shadow of a version: it returns why it has to be repeated,
// or "" once the Pod is ready. A Deployment of that name that Argosy has not applied is refused.
func (t *Target) StartShadow(ctx context.Context, o Order) (string, error) {
	inv, err := t.inventory(ctx)
	if err != nil {
		return "", err
	}
	settings := Settings{Namespace: t.namespace, InstallationID: t.id, Base: inv.data[keyBase]}
	want, err := o.Manifests.Shadow(settings)
	if err != nil {
		return "", err
	}
	annotate(want, annotationDigest, o.Digest)
	live, err := t.get(ctx, want)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return "", refused(err, "get "+name(want))
	case live.GetLabels()[labelInstance] != t.id:
		return "", fmt.Errorf("%w: %s is not Argosy's", ErrRefused, name(want))
	case live.GetDeletionTimestamp() != nil:
		return name(want) + " is being deleted", nil
	case live.GetAnnotations()[annotationDigest] != o.Digest:
		// containers of another version would stay with their fields
		return name(want) + " of another version is being deleted", t.deleteShadow(ctx, live)
	}
	if _, err := t.manager.Apply(ctx, want, options()); err != nil {
		return "", refused(err, "apply "+name(want))
	}
	if live, err = t.get(ctx, want); err != nil {
		return "", refused(err, "get "+name(want))
	}
	s, err := status.Compute(live)
	if err != nil {
		return "", fmt.Errorf("status of %s: %w", name(want), err)
	}
	if s.Status != status.CurrentStatus {
		return name(want) + ": " + s.Message, nil
	}
	return "", nil
}

// annotationDigest of the shadow is the digest of its manifests.
const annotationDigest = "argosy.dev/manifests"

// EndShadow removes the shadow. It returns why it has to be repeated, or "" once it is gone.
func (t *Target) EndShadow(ctx context.Context) (string, error) {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("apps/v1")
	o.SetKind("Deployment")
	o.SetNamespace(t.namespace)
	o.SetName(Shadow)
	live, err := t.get(ctx, o)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", refused(err, "get "+name(o))
	}
	if live.GetLabels()[labelInstance] != t.id {
		return "", nil // of others
	}
	return name(o) + " is being deleted", t.deleteShadow(ctx, live)
}

func (t *Target) deleteShadow(ctx context.Context, live *unstructured.Unstructured) error {
	uid, version := live.GetUID(), live.GetResourceVersion()
	err := t.client.Delete(ctx, live, client.Preconditions{UID: &uid, ResourceVersion: &version},
		client.PropagationPolicy(metav1.DeletePropagationForeground))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return refused(err, "delete "+name(live))
	}
	return nil
}

// Pod returns the name of a ready Pod with a label app.kubernetes.io/name, and "" without one.
func (t *Target) Pod(ctx context.Context, called string) (string, error) {
	var pods corev1.PodList
	if err := t.client.List(ctx, &pods, client.InNamespace(t.namespace),
		client.MatchingLabels{labelName: called}); err != nil {
		return "", refused(err, "list Pods of "+called)
	}
	for _, p := range pods.Items {
		for _, c := range p.Status.Conditions {
			if p.DeletionTimestamp == nil && c.Type == corev1.PodReady &&
				c.Status == corev1.ConditionTrue {
				return p.Name, nil
			}
		}
	}
	return "", nil
}

// ConfigMap returns the data of a ConfigMap of the instance.
func (t *Target) ConfigMap(ctx context.Context, called string) (map[string]string, error) {
	var live corev1.ConfigMap
	err := t.client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: called}, &live)
	return live.Data, refused(err, "get ConfigMap "+called)
}

// Secret returns the data of a Secret of the instance; nil if there is none.
func (t *Target) Secret(ctx context.Context, called string) (map[string][]byte, error) {
	var live corev1.Secret
	err := t.client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: called}, &live)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live.Data, refused(err, "get Secret "+called)
}
