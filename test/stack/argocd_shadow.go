package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// RedisName is the name of the Secret and of the Deployment that ForwardRedis creates.
const RedisName = "argocd-redis"

// ForwardRedis creates what an Argo CD in Pods has for its Redis: the Secret with the password, and
// a Pod to which the API server forwards. The Pod leads to the running process.
func (a *ArgoCD) ForwardRedis(ctx context.Context) error {
	client := a.options.Cluster.Client()
	_, redis, password := a.Internal()
	_, err := client.CoreV1().Secrets(a.Namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: RedisName},
		StringData: map[string]string{"auth": password}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Secret %s: %w", RedisName, err)
	}
	labels := map[string]string{"app.kubernetes.io/name": RedisName}
	_, err = client.AppsV1().Deployments(a.Namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: RedisName},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{
					"lab.argosy.dev/forward-6379": redis}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "redis",
					Image: "redis"}}}}}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Deployment %s: %w", RedisName, err)
	}
	return nil
}
