package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/worker"
)

// engines connects to Argo CD instances.
type engines struct {
	secrets  worker.Secrets
	inFlight int
	thorough bool          // a preflight reads every Application
	silence  time.Duration // of an engine that is read for a rebuild; default findSilence
}

// findSilence is the longest pause between two pages of an engine, after which reading it starts
// again. It exceeds the timeout of one request.
const findSilence = time.Minute

// dial prepares one engine's connection with the credential as it is now.
func (e engines) dial(ctx context.Context, name fleet.EngineName, spec fleet.EngineSpec,
	stopped func(fleet.TenantName) bool) (engine.Engine, error) {
	target, err := e.connect(ctx, name, spec, stopped)
	if err != nil {
		return nil, err
	}
	return target, nil
}

func (e engines) connect(ctx context.Context, name fleet.EngineName, spec fleet.EngineSpec,
	stopped func(fleet.TenantName) bool) (*argocd.Engine, error) {
	config, err := e.config(ctx, name, spec)
	if err != nil {
		return nil, err
	}
	return argocd.Connect(name, spec, config, argocd.Options{
		Stopped: stopped, InFlight: 2 * e.inFlight, Thorough: e.thorough,
		Restarts: spec.Remedies.Restarts(), Fences: spec.Remedies.Fences(),
		Shadows: true, Inspects: true})
}

func (e engines) config(ctx context.Context, name fleet.EngineName,
	spec fleet.EngineSpec) (*rest.Config, error) {
	if spec.Connection.Agent != nil || name.OfEnvironment() {
		return nil, fmt.Errorf("engine %s is behind an agent, and is not reached from here", name)
	}
	if spec.Connection.InCluster {
		return argocd.InCluster()
	}
	ref := spec.Connection.KubeconfigRef
	if ref == nil {
		return nil,
			fmt.Errorf("engine %s: its connection names neither inCluster nor kubeconfigRef", name)
	}
	secret, err := e.secrets.Get(ctx, fleet.CredentialSource{Name: ref.Name})
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", name, err)
	}
	if !secret.Has("kubeconfig") {
		return nil, fmt.Errorf("engine %s: the secret %s has no key \"kubeconfig\"", name, ref.Name)
	}
	config, err := argocd.Kubeconfig(secret.Value("kubeconfig"))
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", name, err)
	}
	return config, nil
}

// Installed reports whether Argosy has installed an Argo CD as the engine, and its size. It writes
// nothing.
func (e engines) Installed(ctx context.Context, name fleet.EngineName,
	spec fleet.EngineSpec) (size string, is bool, err error) {
	target, err := e.connect(ctx, name, spec, func(fleet.TenantName) bool { return true })
	if err != nil {
		return "", false, err
	}
	epoch, err := target.InstalledEpoch(ctx)
	if err != nil || epoch == 0 {
		return "", false, err
	}
	size, err = target.InstalledSize(ctx)
	return size, err == nil, err
}

// Find reads what an engine holds, completely, and writes nothing: everything counts as stopped. It
// takes as long as pages arrive.
func (e engines) Find(ctx context.Context, name fleet.EngineName,
	spec fleet.EngineSpec) ([]engine.Live, []mirror.Stop, error) {
	target, err := e.connect(ctx, name, spec, func(fleet.TenantName) bool { return true })
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stops, err := target.ReadStops(ctx)
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = target.Watch(ctx, engine.Sink{Observe: func([]mirror.Observation) {},
			Wake: func([]fleet.ObjectKey) {}})
	}()
	defer func() { cancel(); <-ended }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	silence := cmp.Or(e.silence, findSilence)
	pages, since := target.Pages(), time.Now()
	for !target.Synced() {
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("engine %s: not read: %w", name, ctx.Err())
		case <-tick.C:
		}
		if now := target.Pages(); now != pages {
			pages, since = now, time.Now()
		}
		if time.Since(since) > silence {
			return nil, nil, fmt.Errorf("engine %s: nothing of it was read for %s: %w", name,
				silence, cmp.Or(target.Health(), errSlow))
		}
	}
	return target.Inventory(), stops, nil
}

var errSlow = errors.New("its API server does not answer in time")
