package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/reconciler/postgres/embedded"
	"argosy.dev/argosy/reconciler/secrets"
)

// database is a URL, and the child that serves it when it is embedded.
type database struct {
	url         string
	migrate     bool
	connections postgres.Connections
	child       *embedded.Server
	log         *slog.Logger
}

func openDatabase(ctx context.Context, s settings.Database, log *slog.Logger) (*database, error) {
	d := &database{url: s.URL, migrate: s.Migrate, log: log}
	c := s.Connections
	d.connections = postgres.Connections{Control: int32(c.Control), Workers: int32(c.Workers),
		Readers: int32(c.Readers)} //nolint:gosec // at most 1000
	switch {
	case s.URLFile != "":
		b, err := os.ReadFile(s.URLFile)
		if err != nil {
			return nil, fmt.Errorf("database.urlFile: %w", err)
		}
		d.url = trim(b)
	case s.Embedded != "":
		child, err := embedded.Start(ctx, s.Embedded)
		if err != nil {
			return nil, fmt.Errorf("database.embedded: %w", err)
		}
		d.child, d.url = child, child.URL
	}
	return d, nil
}

// open brings the schema up to this version, unless that is somebody else's to do, and opens the
// store, which checks it. Migrations only add: replicas of the previous version go on working.
func (d *database) open(ctx context.Context) (*postgres.Store, error) {
	if d.migrate {
		if _, err := postgres.Migrate(ctx, d.url); err != nil {
			return nil, err
		}
	}
	return postgres.Open(ctx, d.url, postgres.Options{Log: d.log, Connections: d.connections})
}

// await opens the store once the database is there. An embedded database is our own: it is there,
// or its failure is an error.
func (d *database) await(ctx context.Context, waiting func(why string)) (*postgres.Store, error) {
	if d.child != nil {
		return d.open(ctx)
	}
	return await(ctx, postgres.Host(d.url), d.log, waiting, func() (*postgres.Store, error) {
		return d.open(ctx)
	})
}

func (d *database) close() {
	if d.child == nil {
		return
	}
	if err := d.child.Stop(); err != nil {
		d.log.Warn("the embedded database did not stop cleanly", "error", err)
	}
}

func openSecrets(s settings.Secrets, sealed secrets.Ciphertexts) (*secrets.Resolver, error) {
	r := &secrets.Resolver{}
	if s.Directory != "" {
		if err := r.AddDirectory(s.Directory); err != nil {
			return nil, err
		}
	}
	if s.Age != nil {
		if err := r.AddAge(secrets.Age{IdentityFile: s.Age.IdentityFile,
			TenantIdentities: s.Age.TenantIdentities}, sealed); err != nil {
			return nil, err
		}
	}
	if s.Kubernetes == nil {
		return r, nil
	}
	config, err := clusterConfig(s.Kubernetes.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("secrets.kubernetes: %w", err)
	}
	if err := r.AddKubernetes(config, s.Kubernetes.Namespace); err != nil {
		return nil, fmt.Errorf("secrets.kubernetes: %w", err)
	}
	return r, nil
}

func clusterConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}
