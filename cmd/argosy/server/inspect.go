package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

const (
	// reads of resources at this replica, besides streams of logs: an answer takes memory
	inspectsAtOnce = 8
	inspectWait    = 3 * time.Second
	// a connection is replaced after that by one with the credential as it is then
	inspectLife = 5 * time.Minute
)

// inspector reads the resources of Applications on the engine that serves them (ADR 0084). Its
// connections are its own: a read takes no place of a worker's request, and writes nothing.
type inspector struct {
	connect engines
	// spec returns the engine's spec if this control plane reaches it by itself.
	spec   func(fleet.EngineName) (fleet.EngineSpec, bool)
	agents engine.Inspector // for engines behind agents; nil: they cannot be read
	log    *slog.Logger
	places chan struct{}

	mu   sync.Mutex
	open map[fleet.EngineName]*inspected
}

// inspected is one engine's connection.
type inspected struct {
	*argocd.Engine
	spec fleet.EngineSpec
	at   time.Time
}

var _ engine.Inspector = (*inspector)(nil)

func newInspector(connect engines, spec func(fleet.EngineName) (fleet.EngineSpec, bool),
	log *slog.Logger) *inspector {
	return &inspector{connect: connect, spec: spec, log: log,
		places: make(chan struct{}, inspectsAtOnce), open: map[fleet.EngineName]*inspected{}}
}

// of returns the Inspector of an engine.
func (i *inspector) of(ctx context.Context, name fleet.EngineName) (engine.Inspector, error) {
	spec, push := i.spec(name)
	if !push && i.agents != nil {
		return i.agents, nil
	}
	if !push {
		return nil, &mirror.InspectError{Kind: mirror.ErrInspectRefused, Text: fmt.Sprintf(
			"engine %s is behind an agent, which reads no resources; use Argo CD on its cluster",
			name)}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	had := i.open[name]
	if had != nil && sameTarget(had.spec, spec) && time.Since(had.at) < inspectLife {
		return had.Engine, nil
	}
	if had != nil {
		had.CloseInspection()
		delete(i.open, name)
	}
	e, err := i.connect.connect(ctx, name, spec, func(fleet.TenantName) bool { return true })
	if err != nil {
		return nil, &mirror.InspectError{Kind: mirror.ErrInspectUnreachable, Text: fmt.Sprintf(
			"engine %s cannot be reached now", name), Cause: err}
	}
	i.open[name] = &inspected{Engine: e, spec: spec, at: time.Now()}
	return e, nil
}

func sameTarget(a, b fleet.EngineSpec) bool {
	return reflect.DeepEqual(a.ArgoCD, b.ArgoCD) &&
		reflect.DeepEqual(a.Connection, b.Connection) &&
		reflect.DeepEqual(a.ApplicationNamespaces, b.ApplicationNamespaces)
}

// inspecting calls read with the engine's Inspector, and logs the cause of a failure, which the
// caller must not learn.
func inspecting[T any](ctx context.Context, i *inspector, app mirror.InspectedApplication,
	read func(engine.Inspector) (T, error)) (T, error) {
	return readFrom(ctx, i, app, func(e engine.Inspector) (out T, err error) {
		if _, push := e.(*argocd.Engine); push {
			leave, err := i.enter(ctx)
			if err != nil {
				return out, err
			}
			defer leave()
		}
		return read(e)
	})
}

// enter takes one of this replica's places, so that the memory for answers is bounded.
func (i *inspector) enter(ctx context.Context) (leave func(), err error) {
	timer := time.NewTimer(inspectWait)
	defer timer.Stop()
	select {
	case i.places <- struct{}{}:
		return func() { <-i.places }, nil
	case <-timer.C:
		return nil, &mirror.InspectError{Kind: mirror.ErrInspectBusy,
			Text: "this replica reads for others; ask again in a few seconds"}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func readFrom[T any](ctx context.Context, i *inspector, app mirror.InspectedApplication,
	read func(engine.Inspector) (T, error)) (out T, err error) {
	from, err := i.of(ctx, app.Engine)
	if err == nil {
		out, err = read(from)
	}
	var failed *mirror.InspectError
	if errors.As(err, &failed) && failed.Cause != nil && ctx.Err() == nil {
		i.log.InfoContext(ctx, "failed to read resources of an Application", "application",
			app.ID.String(), "engine", app.Engine, "error", failed, "cause", failed.Cause)
	}
	return out, err
}

// Tree implements engine.Inspector, as do the others.
func (i *inspector) Tree(ctx context.Context, app mirror.InspectedApplication) (mirror.Tree,
	error) {
	return inspecting(ctx, i, app, func(e engine.Inspector) (mirror.Tree, error) {
		return e.Tree(ctx, app)
	})
}

// Resource reads one resource.
func (i *inspector) Resource(ctx context.Context, app mirror.InspectedApplication,
	ref mirror.ResourceRef) (mirror.ResourceDetail, error) {
	return inspecting(ctx, i, app, func(e engine.Inspector) (mirror.ResourceDetail, error) {
		return e.Resource(ctx, app, ref)
	})
}

// Diff reads the differences.
func (i *inspector) Diff(ctx context.Context, app mirror.InspectedApplication) (
	mirror.ApplicationDiff, error) {
	return inspecting(ctx, i, app, func(e engine.Inspector) (mirror.ApplicationDiff, error) {
		return e.Diff(ctx, app)
	})
}

// ResourceEvents reads events.
func (i *inspector) ResourceEvents(ctx context.Context, app mirror.InspectedApplication,
	ref *mirror.ResourceRef) ([]mirror.ResourceEvent, error) {
	return inspecting(ctx, i, app, func(e engine.Inspector) ([]mirror.ResourceEvent, error) {
		return e.ResourceEvents(ctx, app, ref)
	})
}

// Syncs reads the last syncs.
func (i *inspector) Syncs(ctx context.Context, app mirror.InspectedApplication) (
	[]mirror.PastSync, error) {
	return inspecting(ctx, i, app, func(e engine.Inspector) ([]mirror.PastSync, error) {
		return e.Syncs(ctx, app)
	})
}

// Logs streams a container's log. The API bounds the streams.
func (i *inspector) Logs(ctx context.Context, app mirror.InspectedApplication,
	r mirror.LogRequest, sink func([]mirror.LogLine) error) (mirror.LogEnd, error) {
	return readFrom(ctx, i, app, func(e engine.Inspector) (mirror.LogEnd, error) {
		return e.Logs(ctx, app, r, sink)
	})
}
