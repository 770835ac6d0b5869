package argocd

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/fleet/engine"
)

// redisTime bounds one step with Argo CD's Redis.
const redisTime = 10 * time.Second

// redisComponent returns the component whose Pods are Argo CD's Redis, by its parameter
// redis.server: Argo CD's own manifests, argo-helm's, and the proxy of the HA manifests.
func redisComponent(server string) (string, error) {
	host, _, _ := strings.Cut(server, ":")
	host, _, _ = strings.Cut(host, ".")
	switch {
	case host == "", host == "argocd-redis", strings.HasSuffix(host, "-argocd-redis"):
		return "argocd-redis", nil
	case host == "argocd-redis-ha-haproxy":
		return host, nil
	}
	return "", fmt.Errorf("%w: argocd-cmd-params-cm names another Redis, %s, which Argosy does not "+
		"read", instance.ErrRefused, host)
}

// openRedis returns a client of Argo CD's Redis, which it reaches by port forwards. params are
// those of argocd-cmd-params-cm. It sends no request to Redis.
func (e *Engine) openRedis(ctx context.Context, t *instance.Target, params map[string]string) (
	*redis.Client, error) {
	component, err := redisComponent(params["redis.server"])
	if err != nil {
		return nil, err
	}
	secret, err := t.Secret(ctx, redisSecret)
	if err != nil {
		return nil, err
	}
	dial := e.dial(t, component, redisPort)
	return redis.NewClient(&redis.Options{Password: string(secret["auth"]), PoolSize: 1,
		MaxRetries: -1, Protocol: 2, DisableIdentity: true, DialTimeout: redisTime,
		ReadTimeout: redisTime, WriteTimeout: redisTime, PoolTimeout: redisTime,
		ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, redisTime)
			defer cancel()
			return dial(ctx)
		}}), nil
}

// dial connects to a ready Pod of a component.
func (e *Engine) dial(t *instance.Target, component string,
	port int) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		pod, err := t.Pod(ctx, component)
		if err != nil {
			return nil, err
		}
		if pod == "" {
			return nil, fmt.Errorf("%w: no Pod of %s is ready", engine.ErrUnreachable, component)
		}
		return e.forward(ctx, pod, port)
	}
}
