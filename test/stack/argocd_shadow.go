package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
)

// RepoServer is a repo-server with a Redis of its own, beside an Argo CD.
type RepoServer struct {
	Address string // where it serves gRPC with TLS
	of      *ArgoCD
}

// StartRepoServer runs the repo-server of one of ArgoVersions beside the instance, as the Pod of a
// shadow does. With a file of certificates, it accepts only clients with one of them (mutual TLS).
func (a *ArgoCD) StartRepoServer(ctx context.Context, version, clientCA string) (*RepoServer,
	error) {
	b := &ArgoCD{Namespace: a.Namespace, options: a.options, password: rand.Text()}
	b.options.Version = version
	r := &RepoServer{of: b}
	var err error
	if b.folder, err = openFolder("", "argocd-shadow"); err != nil {
		return nil, err
	}
	b.Dir = b.folder.path
	if err := b.startRepoServer(ctx, clientCA); err != nil {
		return nil, errors.Join(fmt.Errorf("repo-server %s: %w", version, err), r.Stop())
	}
	r.Address = net.JoinHostPort("127.0.0.1", strconv.Itoa(b.ports.repo))
	return r, nil
}

func (a *ArgoCD) startRepoServer(ctx context.Context, clientCA string) error {
	if err := a.prepare(); err != nil {
		return err
	}
	redis, err := part("redis", filepath.Join("bin", "redis"))
	if err != nil {
		return err
	}
	address := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	if err := a.ensure(ctx, &a.Redis, "redis", redis, []string{strconv.Itoa(a.ports.redis)},
		func(ctx context.Context) error {
			return dials(ctx, a.options.Cluster.options.Behind, address(a.ports.redis))
		}); err != nil {
		return err
	}
	args := []string{
		"--address", "127.0.0.1", "--port", strconv.Itoa(a.ports.repo),
		"--metrics-address", "127.0.0.1", "--metrics-port", strconv.Itoa(a.ports.repoMetrics),
		"--redis", address(a.ports.redis),
	}
	if clientCA != "" {
		args = append(args, "--client-ca-path", clientCA)
	}
	health := func(ctx context.Context) error {
		return answers(ctx, a.options.Cluster.options.Behind,
			"http://"+address(a.ports.repoMetrics)+"/healthz")
	}
	return a.ensure(ctx, &a.RepoServer, "repo-server", a.binary, args, health)
}

// Stop ends the processes and removes their folder.
func (r *RepoServer) Stop() error { return r.of.Stop() }

// Internal are the addresses of the repo-server's gRPC, without TLS, and of Redis, with its
// password.
func (a *ArgoCD) Internal() (repoServer, redis, password string) {
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	return at(a.ports.repo), at(a.ports.redis), a.password
}
