package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"argosy.dev/argosy/test/bench/corpus"
	"argosy.dev/argosy/test/bench/observe"
	"argosy.dev/argosy/test/stack"
)

// ground is what everything is measured on: two API servers that know Argo CD's kinds and have no
// Argo CD, a PostgreSQL that writes through, and a Git server.
type ground struct {
	dir      string
	clusters []*stack.Cluster
	admins   []*observe.Server
	postgres *stack.Postgres
	git      *stack.GitServer
	proxy    *stack.Proxy // before the second API server; nil: none
	arenas   int
	host     *gitHost
}

func startGround(ctx context.Context) (_ *ground, err error) {
	g := &ground{host: startGitHost()}
	if g.dir, err = os.MkdirTemp("", "argosy-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.stop())
		}
	}()
	for _, name := range []string{"a", "b"} {
		progress("starting API server %s", name)
		c, err := stack.StartCluster(ctx, stack.ClusterOptions{Name: "bench-" + name})
		if err != nil {
			return nil, err
		}
		g.clusters = append(g.clusters, c)
		if err := c.InstallArgoCRDs(ctx, "3.5"); err != nil {
			return nil, err
		}
		admin, err := observe.NewServer(c.REST())
		if err != nil {
			return nil, err
		}
		g.admins = append(g.admins, admin)
	}
	progress("starting PostgreSQL (fsync on) and a Git server")
	if g.postgres, err = stack.StartPostgresWith(ctx, stack.PostgresOptions{
		Durable: true}); err != nil {
		return nil, err
	}
	g.git, err = stack.StartGit(ctx, "")
	return g, err
}

func (g *ground) stop() error {
	g.host.Close()
	var errs []error
	for _, c := range g.clusters {
		errs = append(errs, c.Stop())
	}
	if g.postgres != nil {
		errs = append(errs, g.postgres.Stop())
	}
	if g.git != nil {
		errs = append(errs, g.git.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(g.dir))...)
}

// arena is a namespace on each API server with the objects of an Argo CD, and a control plane's
// account.
type arena struct {
	name        string
	engines     []corpus.Engine
	kubeconfigs [][]byte
	watched     []observe.Place // as an administrator, to read
	written     []observe.Place // as the account, to write
}

func (g *ground) arena(ctx context.Context) (*arena, error) {
	g.arenas++
	a := &arena{name: fmt.Sprintf("arena-%d", g.arenas)}
	for i, c := range g.clusters {
		engine := corpus.Engine{Name: []string{"engine-a", "engine-b"}[i], Namespace: a.name + "-" +
			[]string{"a", "b"}[i]}
		token, err := c.TenantToken(ctx, a.name, engine.Namespace)
		if err != nil {
			return nil, err
		}
		settings := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "argocd-cm", Namespace: engine.Namespace},
			Data: map[string]string{"application.resourceTrackingMethod": "annotation",
				"installationID": engine.Name,
				"jsonnet.enable": "false", "helm.valuesFileSchemes": ""}}
		locked := &unstructured.Unstructured{
			Object: map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
				"metadata": map[string]any{"name": "default", "namespace": engine.Namespace},
				"spec":     map[string]any{"sourceRepos": []any{}, "destinations": []any{}}}}
		if err := c.Apply(ctx, settings, locked); err != nil {
			return nil, err
		}
		kubeconfig, err := c.KubeconfigFor(token, engine.Namespace)
		if g.proxy != nil && i == 1 {
			kubeconfig, err = g.proxy.KubeconfigFor(token, engine.Namespace)
		}
		if err != nil {
			return nil, err
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		if err != nil {
			return nil, err
		}
		writer, err := observe.NewServer(config)
		if err != nil {
			return nil, err
		}
		a.engines, a.kubeconfigs = append(a.engines, engine), append(a.kubeconfigs, kubeconfig)
		a.watched = append(a.watched, observe.Place{Server: g.admins[i],
			Namespace: engine.Namespace})
		a.written = append(a.written, observe.Place{Server: writer, Namespace: engine.Namespace})
	}
	return a, nil
}

// clear removes what Argosy or a floor has put into the arena.
func (a *arena) clear(ctx context.Context) error {
	return both(a.watched, func(_ int, p observe.Place) error { return p.Clear(ctx) })
}

// both does something on all API servers at the same time.
func both(places []observe.Place, f func(i int, p observe.Place) error) error {
	errs := make(chan error)
	for i, p := range places {
		go func() { errs <- f(i, p) }()
	}
	var all []error
	for range places {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

func writeFile(content []byte, path ...string) error {
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}
