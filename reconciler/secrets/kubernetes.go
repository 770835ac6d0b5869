package secrets

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"argosy.dev/argosy/fleet"
)

// namespacePrefix precedes the tenant's name in the namespace that holds the tenant's Secrets.
const namespacePrefix = "argosy-tenant-"

// namespaces reads Secrets of the control plane's cluster: those of a tenant from its own namespace, the platform's from the control
// plane's. It watches a namespace from the first read on, so that a rotation is seen without a poll. Get, list and watch on Secrets are
// needed, in those namespaces only: a watch begins with a list.
type namespaces struct {
	client   kubernetes.Interface
	platform string

	mu      sync.Mutex
	ctx     context.Context
	changed func(fleet.TenantName, string)
	watched map[string]bool
}

// AddKubernetes adds the Secrets of a cluster; platformNamespace is the control plane's own namespace.
func (r *Resolver) AddKubernetes(client kubernetes.Interface, platformNamespace string) {
	r.places = append(r.places, &namespaces{client: client, platform: platformNamespace, watched: map[string]bool{}})
}

func (n *namespaces) namespace(tenant fleet.TenantName) string {
	if tenant == "" {
		return n.platform
	}
	return namespacePrefix + string(tenant)
}

func (n *namespaces) describe(tenant fleet.TenantName, name string) string {
	return fmt.Sprintf("Secret %s in namespace %s", name, n.namespace(tenant))
}

func (n *namespaces) get(ctx context.Context, tenant fleet.TenantName, name string) (fleet.Secret, error) {
	s, err := n.client.CoreV1().Secrets(n.namespace(tenant)).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		n.follow(tenant)
		return fleet.Secret{}, ErrNotFound
	}
	if err != nil {
		return fleet.Secret{}, fmt.Errorf("%s: %w", n.describe(tenant, name), err)
	}
	n.follow(tenant)
	return fleet.NewSecret(s.Data), nil
}

func (n *namespaces) watch(ctx context.Context, changed func(fleet.TenantName, string)) {
	n.mu.Lock()
	n.ctx, n.changed = ctx, changed
	already := n.watched
	n.watched = map[string]bool{}
	n.mu.Unlock()
	for tenant := range already {
		n.follow(fleet.TenantName(tenant))
	}
}

// follow starts the watch of the tenant's namespace, once. Before Watch was called it only remembers the tenant.
func (n *namespaces) follow(tenant fleet.TenantName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watched[string(tenant)] {
		return
	}
	n.watched[string(tenant)] = true
	if n.ctx == nil {
		return
	}
	factory := informers.NewSharedInformerFactoryWithOptions(n.client, 0, informers.WithNamespace(n.namespace(tenant)), informers.WithTransform(withoutContent))
	changed := n.changed
	tell := func(obj any) {
		if s, ok := obj.(*corev1.Secret); ok {
			changed(tenant, s.Name)
		}
	}
	// AddEventHandler fails only on an informer that was stopped, which this new one cannot be.
	_, _ = factory.Core().V1().Secrets().Informer().AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if !isInInitialList {
				tell(obj)
			}
		},
		UpdateFunc: func(before, after any) {
			b, isB := before.(*corev1.Secret)
			a, isA := after.(*corev1.Secret)
			if isA && isB && b.ResourceVersion != a.ResourceVersion {
				tell(a)
			}
		},
	})
	factory.Start(n.ctx.Done())
}

// withoutContent keeps the watch cache free of contents: only that something changed matters.
func withoutContent(obj any) (any, error) {
	if s, ok := obj.(*corev1.Secret); ok {
		s.Data, s.StringData, s.ManagedFields = nil, nil, nil
	}
	return obj, nil
}
