package argocd

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/argoproj/argo-cd/v2/common"
	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	"github.com/redis/go-redis/v9"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/fleet/argocd/shadow"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

var _ engine.Shadower = (*Engine)(nil)

// Ports of Argo CD's Pods.
const (
	repoServerPort = 8081
	redisPort      = 6379
)

// StartShadow takes a step towards the next version's repo-server: see instance.Target.
func (e *Engine) StartShadow(ctx context.Context, m mirror.RingManifests, epoch int64) (string,
	error) {
	manifests, err := instance.Parse(m.Version, m.Files)
	if err != nil {
		return "", fmt.Errorf("%w: Argo CD %s: %w", engine.ErrRefused, m.Version, err)
	}
	t, err := e.target()
	if err != nil {
		return "", e.installError(err)
	}
	waits, err := t.StartShadow(ctx, instance.Order{Manifests: manifests, Digest: m.Digest,
		Epoch: epoch})
	return waits, e.installError(err)
}

// EndShadow removes the shadow.
func (e *Engine) EndShadow(ctx context.Context) (string, error) {
	t, err := e.target()
	if err != nil {
		return "", e.installError(err)
	}
	waits, err := t.EndShadow(ctx)
	return waits, e.installError(err)
}

const (
	redisSecret     = "argocd-redis"            // has the password of Argo CD's Redis
	mutualTLSSecret = "argocd-repo-server-mtls" // has the repo-server's CA, and its clients' key
)

// comparison is a shadow that renders beside the present repo-server.
type comparison struct {
	*Engine
	target       *instance.Target
	settings     shadow.Settings
	present, new *shadow.Server
	redis        *redis.Client

	mu           sync.Mutex
	repositories *shadow.Repositories // read once, with the first Application
	projects     map[string]*v1alpha1.AppProject
	versions     map[string]shadow.Versions // by server
}

// OpenShadow connects to both repo-servers.
func (e *Engine) OpenShadow(ctx context.Context) (engine.Comparison, error) {
	t, err := e.target()
	if err != nil {
		return nil, e.installError(err)
	}
	c := &comparison{Engine: e, target: t, projects: map[string]*v1alpha1.AppProject{},
		versions: map[string]shadow.Versions{}}
	if err := c.open(ctx); err != nil {
		return nil, e.installError(errors.Join(err, c.Close()))
	}
	return c, nil
}

func (c *comparison) open(ctx context.Context) error {
	cm, err := c.target.ConfigMap(ctx, "argocd-cm")
	if err != nil {
		return err
	}
	c.settings = cm
	params, err := c.target.ConfigMap(ctx, "argocd-cmd-params-cm")
	if err != nil {
		return err
	}
	plain := params["reposerver.disable.tls"] == "true"
	present, next := c.dial(c.target, "argocd-repo-server", repoServerPort),
		c.dial(c.target, instance.Shadow, repoServerPort)
	client, err := c.clientCertificates(ctx)
	if err != nil {
		return err
	}
	if c.present, err = shadow.Open(present, plain, client); err != nil {
		return err
	}
	if c.new, err = shadow.Open(next, false, client); err != nil {
		return err
	}
	c.redis, err = c.openRedis(ctx, c.target, params)
	return err
}

// clientCertificates returns the certificate with which Argo CD's components connect to a
// repo-server with mutual TLS (from 3.5 on): they mount the same Secret. There is none without the
// Secret, or without a right on Secrets.
func (c *comparison) clientCertificates(ctx context.Context) ([]tls.Certificate, error) {
	if c.options.Public {
		return nil, nil
	}
	secret, err := c.target.Secret(ctx, mutualTLSSecret)
	if err != nil || len(secret["client.crt"]) == 0 {
		return nil, err
	}
	pair, err := tls.X509KeyPair(secret["client.crt"], secret["client.key"])
	if err != nil {
		return nil, fmt.Errorf("%w: Secret %s: %w", instance.ErrRefused, mutualTLSSecret, err)
	}
	return []tls.Certificate{pair}, nil
}

// Close ends the connections.
func (c *comparison) Close() error {
	var all []error
	for _, s := range []*shadow.Server{c.present, c.new} {
		if s != nil {
			all = append(all, s.Close())
		}
	}
	if c.redis != nil {
		all = append(all, c.redis.Close())
	}
	return errors.Join(all...)
}

// Basis identifies the settings that go into every request.
func (c *comparison) Basis() string {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(c.settings)) {
		fmt.Fprintf(sum, "%q %q\n", key, c.settings[key])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Compare renders one Application with both versions. An error means that nothing is known of it.
func (c *comparison) Compare(ctx context.Context, task mirror.ShadowTask) (r mirror.ShadowResult,
	times engine.Times, err error) {
	r.ShadowTask = task
	key := fleet.ObjectKey{Engine: c.name, Kind: fleet.ObjectApplication, Name: task.Name}
	app := &v1alpha1.Application{}
	err = c.client.do(ctx, request{method: http.MethodGet,
		path: c.places.path(applications, c.objectName(key))}, app)
	if err != nil {
		return r, times, fmt.Errorf("read Application %s: %w", task.Name, err)
	}
	requests, err := c.requests(ctx, app)
	var none noConnection
	if errors.As(err, &none) && app.Status.Sync.Status == v1alpha1.SyncStatusCodeUnknown {
		r.Unrendered = err.Error()
		return r, times, nil
	}
	if err != nil {
		return r, times, fmt.Errorf("render Application %s: %w", task.Name, err)
	}
	began := time.Now()
	before, revisions, err := c.present.Render(ctx, requests, nil)
	times.Present = time.Since(began)
	if err != nil {
		return r, times, fmt.Errorf("render Application %s by the present version: %w", task.Name,
			err)
	}
	r.Revision = strings.Join(revisions, ",")
	if before.Error != "" {
		if app.Status.Sync.Status != v1alpha1.SyncStatusCodeUnknown {
			return r, times, fmt.Errorf("the present version does not render Application %s, which "+
				"Argo CD has compared: %s", task.Name, clip(before.Error, 512))
		}
		r.Unrendered = clip(before.Error, 1024)
		return r, times, nil
	}
	began = time.Now()
	after, _, err := c.new.Render(ctx, requests, revisions)
	times.Next = time.Since(began)
	switch {
	case err != nil:
		return r, times, fmt.Errorf("render Application %s by the next version: %w", task.Name, err)
	case after.Error != "":
		r.Error, r.Hash = clip(after.Error, 1024), shadow.FailureHash(after.Error)
		return r, times, nil
	}
	d, err := shadow.Compare(before.Manifests, after.Manifests)
	if err != nil {
		return r, times, fmt.Errorf("render Application %s: %w", task.Name, err)
	}
	r.Hash, r.Resources, r.MoreResources = d.Hash, d.Resources, d.MoreResources
	return r, times, nil
}

func (c *comparison) requests(ctx context.Context, app *v1alpha1.Application) ([]*shadow.Request,
	error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.readRepositories(ctx); err != nil {
		return nil, err
	}
	project := c.projects[app.Spec.Project]
	if project == nil {
		project = &v1alpha1.AppProject{}
		if err := c.client.do(ctx, request{method: http.MethodGet,
			path: projects.object(c.namespace, app.Spec.Project)}, project); err != nil {
			return nil, fmt.Errorf("read AppProject %s: %w", app.Spec.Project, err)
		}
		c.projects[app.Spec.Project] = project
	}
	versions, err := c.clusterVersions(ctx, app.Spec.Destination.Server)
	if err != nil {
		return nil, err
	}
	return shadow.Requests(app, project, c.settings, versions, c.repositories, c.namespace)
}

// readRepositories reads the Secrets that the application-controller chooses from. They are
// forgotten with the comparison. Without a right on Secrets, all repositories are public: one that
// is not fails to render by the present version, which fails the shadow.
func (c *comparison) readRepositories(ctx context.Context) error {
	if c.repositories != nil {
		return nil
	}
	all := &shadow.Repositories{}
	if c.options.Public {
		c.repositories = all
		return nil
	}
	for next := ""; ; {
		var list struct {
			Metadata struct{ Continue string }
			Items    []struct {
				Metadata struct{ Labels map[string]string }
				Data     map[string][]byte
			}
		}
		query := url.Values{"labelSelector": {labelSecretType + " in (repository,repo-creds)"},
			"limit": {"500"}}
		if next != "" {
			query.Set("continue", next)
		}
		if err := c.client.do(ctx, request{method: http.MethodGet,
			path: secrets.collection(c.namespace), query: query}, &list); err != nil {
			return fmt.Errorf("list repositories: %w", err)
		}
		for _, s := range list.Items {
			if err := all.Add(s.Metadata.Labels[labelSecretType], s.Data); err != nil {
				return err
			}
		}
		if next = list.Metadata.Continue; next == "" {
			c.repositories = all
			return nil
		}
	}
}

// noConnection is a cluster of which Argo CD knows no versions.
type noConnection struct{ server string }

// Error names the cluster.
func (n noConnection) Error() string {
	return "Argo CD has no connection to its cluster " + cmp.Or(n.server, "without a server")
}

// clusterVersions returns what the application-controller has found on a cluster. It writes that
// into Redis every ten seconds.
func (c *comparison) clusterVersions(ctx context.Context, server string) (v shadow.Versions,
	err error) {
	if v, ok := c.versions[server]; ok {
		return v, nil
	}
	var info v1alpha1.ClusterInfo
	name := "cluster|info|" + server + "|" + common.CacheVersion
	found := false
	for _, suffix := range []string{".gz", ""} { // Redis compression
		text, err := c.redis.Get(ctx, name+suffix).Bytes()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err == nil && suffix != "" {
			text, err = gunzip(text)
		}
		if err == nil {
			err = json.Unmarshal(text, &info)
		}
		if err != nil {
			return v, fmt.Errorf("read from Argo CD's Redis: %w", err)
		}
		found = true
		break
	}
	if !found || info.ServerVersion == "" || len(info.APIVersions) == 0 {
		return v, noConnection{server}
	}
	v = shadow.Versions{Kubernetes: info.ServerVersion, APIs: info.APIVersions}
	c.versions[server] = v
	return v, nil
}

func gunzip(in []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(in))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(z, 16<<20))
	if errors.Is(err, io.ErrUnexpectedEOF) { // Argo CD flushes without a trailer
		err = nil
	}
	return out, err
}
