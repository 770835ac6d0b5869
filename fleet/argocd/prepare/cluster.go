package prepare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// fieldManager signs what the procedure writes.
const fieldManager = "argosy-prepare"

// inFlight is the number of concurrent requests to a cluster.
const inFlight = 8

// home is the server of the cluster that Argo CD runs on, as Applications name it.
const (
	homeServer = "https://kubernetes.default.svc"
	homeName   = "in-cluster"
)

var errNoKind = errors.New("the cluster does not know the kind")

// cluster is a connection to a cluster with resources of Applications.
type cluster struct {
	name     string
	dynamic  dynamic.Interface
	metadata metadata.Interface
	kinds    discovery.DiscoveryInterface

	mu     sync.Mutex
	groups *metav1.APIGroupList
	known  map[schema.GroupVersion][]metav1.APIResource
}

func connect(name string, config *rest.Config) (*cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.UserAgent = 100, 200, "argosy"
	c := &cluster{name: name, known: map[schema.GroupVersion][]metav1.APIResource{}}
	var err error
	if c.dynamic, err = dynamic.NewForConfig(config); err == nil {
		c.kinds, err = discovery.NewDiscoveryClientForConfig(config)
	}
	if err == nil {
		c.metadata, err = metadata.NewForConfig(config)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	return c, nil
}

// find returns the resource of a kind, in the version or in another that the cluster serves.
// errNoKind if it serves none.
func (c *cluster) find(group, version, kind string) (schema.GroupVersionResource, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, namespaced, err := c.findIn(schema.GroupVersion{Group: group, Version: version}, kind)
	if !errors.Is(err, errNoKind) {
		return found, namespaced, err
	}
	if c.groups == nil {
		if c.groups, err = c.kinds.ServerGroups(); err != nil {
			return found, false, err
		}
	}
	for _, g := range c.groups.Groups {
		for _, v := range g.Versions {
			if g.Name != group || v.Version == version {
				continue
			}
			found, namespaced, err = c.findIn(schema.GroupVersion{Group: group, Version: v.Version},
				kind)
			if !errors.Is(err, errNoKind) {
				return found, namespaced, err
			}
		}
	}
	return found, false, errNoKind
}

func (c *cluster) findIn(gv schema.GroupVersion, kind string) (schema.GroupVersionResource, bool,
	error) {
	all, ok := c.known[gv]
	if !ok {
		list, err := c.kinds.ServerResourcesForGroupVersion(gv.String())
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return schema.GroupVersionResource{}, false, err
		default:
			all = list.APIResources
		}
		c.known[gv] = all
	}
	for _, r := range all {
		if r.Kind == kind && !strings.Contains(r.Name, "/") {
			return gv.WithResource(r.Name), r.Namespaced, nil
		}
	}
	return schema.GroupVersionResource{}, false, errNoKind
}

func (r *resource) objects() metadata.ResourceInterface {
	all := r.cluster.metadata.Resource(r.plural)
	if r.namespaced {
		return all.Namespace(r.key.namespace)
	}
	return all
}

// access is a cluster by its Secret: a connection, or why there is none.
type access struct {
	cluster *cluster
	err     error
}

// readClusters reads the cluster Secrets, whose credentials are those with which Argo CD itself
// writes. A context of the kubeconfig that the caller names takes their place.
func (p *preparer) readClusters(ctx context.Context) error {
	if p.clusters != nil {
		return nil
	}
	found := map[string]access{}
	for _, name := range []string{homeServer, homeName} {
		found[name] = access{cluster: p.home}
	}
	list, err := p.home.dynamic.Resource(secrets).Namespace(p.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: "argocd.argoproj.io/secret-type=cluster"})
	if err != nil {
		return fmt.Errorf("failed to list the cluster Secrets: %w", err)
	}
	for i := range list.Items {
		secret, err := secretOf(&list.Items[i])
		if err != nil {
			return err
		}
		name, exact := string(secret.Data["name"]), string(secret.Data["server"])
		server := serverURL(exact)
		one := access{cluster: p.home}
		config, given := p.Clusters[name]
		if !given {
			config, given = p.Clusters[server]
		}
		switch {
		case given:
		case server == homeServer:
		default:
			config, one.err = restConfig(server, secret.Data["config"])
		}
		if one.err == nil && config != nil {
			one.cluster, one.err = connect(first(name, server), config)
		}
		if one.err != nil {
			one.err = fmt.Errorf("cluster %s: %w; name a context of the kubeconfig for it with "+
				"--cluster %s=CONTEXT", first(name, server), one.err, first(name, server))
		}
		found[exact] = one
		if _, known := found[server]; !known {
			found[server] = one
		}
		if name != "" {
			found[name] = one
		}
	}
	p.clusters = found
	return nil
}

func (p *preparer) clusterOf(server string) (*cluster, error) {
	one, ok := p.clusters[server]
	if !ok {
		one, ok = p.clusters[serverURL(server)]
	}
	if !ok {
		return nil, fmt.Errorf("no cluster Secret in namespace %s has the server or name %q; "+
			"correct its destination, or leave it out with --leave-out", p.Namespace, server)
	}
	return one.cluster, one.err
}

// serverURL is a server without the query that distinguishes credentials for it.
func serverURL(server string) string {
	server, _, _ = strings.Cut(server, "?")
	return strings.TrimSuffix(server, "/")
}

// restConfig is the connection that a cluster Secret describes. Programs that fetch tokens are not
// run.
func restConfig(server string, text []byte) (*rest.Config, error) {
	var c struct {
		Username, Password, BearerToken string
		TLSClientConfig                 struct {
			Insecure                  bool
			ServerName                string
			CAData, CertData, KeyData []byte
		}
		AWSAuthConfig, ExecProviderConfig json.RawMessage
		ProxyURL                          string `json:"proxyUrl"`
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &c); err != nil {
			return nil, errors.New("its config is not JSON")
		}
	}
	if c.AWSAuthConfig != nil || c.ExecProviderConfig != nil {
		return nil, errors.New("its Secret has a program for its token, which is not run here")
	}
	if c.ProxyURL != "" {
		return nil, errors.New("its Secret has a proxy")
	}
	if c.BearerToken == "" && c.Username == "" && len(c.TLSClientConfig.CertData) == 0 {
		return nil, errors.New("its Secret has no credential")
	}
	t := c.TLSClientConfig
	return &rest.Config{Host: server, Username: c.Username, Password: c.Password,
		BearerToken: c.BearerToken, TLSClientConfig: rest.TLSClientConfig{Insecure: t.Insecure,
			ServerName: t.ServerName, CAData: t.CAData, CertData: t.CertData,
			KeyData: t.KeyData}}, nil
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// each calls do for every index with a bounded concurrency, and returns the error of each.
func each(ctx context.Context, n int, do func(int) error) []error {
	errs := make([]error, n)
	free := make(chan struct{}, inFlight)
	var all sync.WaitGroup
	for i := range n {
		select {
		case <-ctx.Done():
			errs[i] = ctx.Err()
			continue
		case free <- struct{}{}:
		}
		all.Go(func() {
			defer func() { <-free }()
			errs[i] = do(i)
		})
	}
	all.Wait()
	return errs
}
