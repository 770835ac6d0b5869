package secrets

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"argosy.dev/argosy/fleet"
)

const (
	readTimeout = 10 * time.Second // of one Secret
	mostReads   = 64               // concurrent reads of Secrets
	// a namespace without a read for so long is no longer watched
	idleAfter = 3 * time.Hour
	idleCheck = 10 * time.Minute
)

// namespaces reads Secrets of the control plane's cluster: a tenant's from the tenant's namespace,
// the platform's from the control plane's. The first read of a namespace starts a watch of its
// Secrets' metadata, which reports rotations without a poll. The watch ends when no row has read
// the namespace for idleAfter: engines compare every credential once an hour, so that only the
// namespaces of removed tenants and of other replicas' engines become idle. It needs get, list and
// watch on Secrets in those namespaces only: a watch begins with a list.
type namespaces struct {
	client   kubernetes.Interface
	metadata metadata.Interface
	platform string
	reads    chan struct{}

	mu      sync.Mutex
	ctx     context.Context
	changed func(fleet.TenantName, string)
	watched map[fleet.TenantName]*watched
}

// watched is the watch of one tenant's namespace.
type watched struct {
	read time.Time          // last read of a Secret of the namespace
	stop context.CancelFunc // nil until the watch has started
}

// AddKubernetes adds the Secrets of a cluster; platformNamespace is the control plane's own
// namespace. mostReads and the API server (429) limit the requests, not client-go's 5 requests a
// second: a takeover reads thousands of credentials.
func (r *Resolver) AddKubernetes(config *rest.Config, platformNamespace string) error {
	unlimited := rest.CopyConfig(config)
	unlimited.QPS = -1
	client, err := kubernetes.NewForConfig(unlimited)
	if err != nil {
		return err
	}
	meta, err := metadata.NewForConfig(unlimited)
	if err != nil {
		return err
	}
	r.places = append(r.places, newNamespaces(client, meta, platformNamespace))
	return nil
}

func newNamespaces(client kubernetes.Interface, meta metadata.Interface,
	platform string) *namespaces {
	return &namespaces{
		client: client, metadata: meta, platform: platform,
		reads: make(chan struct{}, mostReads), watched: map[fleet.TenantName]*watched{},
	}
}

func (n *namespaces) namespace(tenant fleet.TenantName) string {
	if tenant == "" {
		return n.platform
	}
	return fleet.TenantNamespace(tenant)
}

func (n *namespaces) describe(tenant fleet.TenantName, name string) string {
	return fmt.Sprintf("Secret %s in namespace %s", name, n.namespace(tenant))
}

func (n *namespaces) get(ctx context.Context, tenant fleet.TenantName, name string) (fleet.Secret,
	error) {
	n.follow(tenant)
	s, err := n.read(ctx, tenant, name)
	if apierrors.IsNotFound(err) {
		return fleet.Secret{}, ErrNotFound
	}
	if err != nil {
		return fleet.Secret{}, fmt.Errorf("%s: %w", n.describe(tenant, name), err)
	}
	return fleet.NewSecret(s.Data), nil
}

// read ends after readTimeout: an API server that does not answer blocks no worker for longer.
func (n *namespaces) read(ctx context.Context, tenant fleet.TenantName,
	name string) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout,
		fmt.Errorf("the API server did not answer within %s", readTimeout))
	defer cancel()
	select {
	case n.reads <- struct{}{}:
		defer func() { <-n.reads }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s, err := n.client.CoreV1().Secrets(n.namespace(tenant)).Get(ctx, name, metav1.GetOptions{})
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return s, err
}

func (n *namespaces) watch(ctx context.Context, changed func(fleet.TenantName, string)) {
	n.begin(ctx, changed)
	tick := time.NewTicker(idleCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.endIdle()
		}
	}
}

// begin starts the watches of the namespaces that were read before.
func (n *namespaces) begin(ctx context.Context, changed func(fleet.TenantName, string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ctx, n.changed = ctx, changed
	for tenant, w := range n.watched {
		n.start(tenant, w)
	}
}

// endIdle stops the watches of namespaces that no row reads any more.
func (n *namespaces) endIdle() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, tenant := range slices.Collect(maps.Keys(n.watched)) {
		if w := n.watched[tenant]; time.Since(w.read) > idleAfter {
			if w.stop != nil {
				w.stop()
			}
			delete(n.watched, tenant)
		}
	}
}

// follow starts the watch of the tenant's namespace, unless it runs. Before the call of Watch it
// only records the tenant.
func (n *namespaces) follow(tenant fleet.TenantName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w, ok := n.watched[tenant]
	if !ok {
		w = &watched{}
		n.watched[tenant] = w
	}
	w.read = time.Now()
	if n.ctx != nil && w.stop == nil {
		n.start(tenant, w)
	}
}

var secretsResource = corev1.SchemeGroupVersion.WithResource("secrets")

// start watches metadata only: contents are neither sent nor kept in memory.
func (n *namespaces) start(tenant fleet.TenantName, w *watched) {
	var ctx context.Context
	ctx, w.stop = context.WithCancel(n.ctx)
	informer := metadatainformer.NewFilteredMetadataInformer(n.metadata, secretsResource,
		n.namespace(tenant), 0, cache.Indexers{}, nil).Informer()
	changed := n.changed
	report := func(obj any) {
		if s, ok := obj.(*metav1.PartialObjectMetadata); ok {
			changed(tenant, s.Name)
		}
	}
	// AddEventHandler fails only on a stopped informer; this one is new.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if !isInInitialList {
				report(obj)
			}
		},
		UpdateFunc: func(before, after any) {
			b, isB := before.(*metav1.PartialObjectMetadata)
			a, isA := after.(*metav1.PartialObjectMetadata)
			if isA && isB && b.ResourceVersion != a.ResourceVersion {
				report(a)
			}
		},
	})
	go informer.Run(ctx.Done())
}
