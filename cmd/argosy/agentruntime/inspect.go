package agentruntime

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// inspector reads the resources of Applications for people (ADR 0085), over a connection of its
// own, which takes no request of the worker and writes nothing.
type inspector struct {
	a *Agent

	mu   sync.Mutex
	spec fleet.EngineSpec
	open *argocd.Engine // nil: not connected yet
}

var _ engine.Inspector = (*inspector)(nil)

// of returns the Inspector of the local Argo CD.
func (i *inspector) of() (engine.Inspector, error) {
	if !i.a.c.Reads {
		return nil, &mirror.InspectError{Kind: mirror.ErrInspectRefused, Text: "the admin of " +
			"its cluster does not let the agent read resources; they set argocd.reads of the " +
			"chart argosy-agent (--reads)"}
	}
	hello, ok := i.a.declared()
	if !ok {
		return nil, &mirror.InspectError{Kind: mirror.ErrInspectUnreachable,
			Text: "the agent has just started"}
	}
	spec := i.a.spec(hello)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.open != nil && reflect.DeepEqual(i.spec, spec) {
		return i.open, nil
	}
	options := i.a.options(spec, func(fleet.TenantName) bool { return true })
	made, err := argocd.Connect(hello.Engine, spec, rest.CopyConfig(i.a.c.Cluster), options)
	if err != nil {
		return nil, &mirror.InspectError{Kind: mirror.ErrInspectUnreachable,
			Text: "the agent cannot connect to its cluster", Cause: err}
	}
	if i.open != nil {
		i.open.CloseInspection()
	}
	i.open, i.spec = made, spec
	return made, nil
}

// close closes the connection.
func (i *inspector) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.open != nil {
		i.open.CloseInspection()
		i.open = nil
	}
}

// reading calls read, and logs the cause of a failure: the reader is not to learn it.
func reading[T any](i *inspector, app mirror.InspectedApplication,
	read func(engine.Inspector) (T, error)) (out T, err error) {
	from, err := i.of()
	if err == nil {
		out, err = read(from)
	}
	var failed *mirror.InspectError
	if errors.As(err, &failed) && failed.Cause != nil {
		i.a.log.Info("failed to read the resources of an Application", "application", app.Name,
			"error", failed, "cause", failed.Cause)
	}
	return out, err
}

// atCluster calls read for something that the agent reads from its cluster in the namespaces that
// its admin allows. A refusal names the setting.
func atCluster[T any](i *inspector, app mirror.InspectedApplication,
	read func(engine.Inspector) (T, error)) (T, error) {
	out, err := reading(i, app, read)
	if errors.Is(err, mirror.ErrInspectRefused) && strings.Contains(err.Error(), "; grant it ") {
		err = fmt.Errorf("%w; the admin of the agent's cluster adds the namespace to "+
			"argocd.readNamespaces of the chart argosy-agent (--read-namespaces)", err)
	}
	return out, err
}

// Tree implements engine.Inspector, as do the others.
func (i *inspector) Tree(ctx context.Context, app mirror.InspectedApplication) (mirror.Tree,
	error) {
	return reading(i, app, func(e engine.Inspector) (mirror.Tree, error) {
		return e.Tree(ctx, app)
	})
}

// Resource reads one resource.
func (i *inspector) Resource(ctx context.Context, app mirror.InspectedApplication,
	ref mirror.ResourceRef) (mirror.ResourceDetail, error) {
	return atCluster(i, app, func(e engine.Inspector) (mirror.ResourceDetail, error) {
		return e.Resource(ctx, app, ref)
	})
}

// Diff reads the differences.
func (i *inspector) Diff(ctx context.Context, app mirror.InspectedApplication) (
	mirror.ApplicationDiff, error) {
	return reading(i, app, func(e engine.Inspector) (mirror.ApplicationDiff, error) {
		return e.Diff(ctx, app)
	})
}

// ResourceEvents reads events.
func (i *inspector) ResourceEvents(ctx context.Context, app mirror.InspectedApplication,
	ref *mirror.ResourceRef) ([]mirror.ResourceEvent, error) {
	return atCluster(i, app, func(e engine.Inspector) ([]mirror.ResourceEvent, error) {
		return e.ResourceEvents(ctx, app, ref)
	})
}

// Logs streams the log of a container.
func (i *inspector) Logs(ctx context.Context, app mirror.InspectedApplication,
	request mirror.LogRequest, sink func([]mirror.LogLine) error) (mirror.LogEnd, error) {
	return atCluster(i, app, func(e engine.Inspector) (mirror.LogEnd, error) {
		return e.Logs(ctx, app, request, sink)
	})
}

// Syncs reads the last syncs.
func (i *inspector) Syncs(ctx context.Context, app mirror.InspectedApplication) (
	[]mirror.PastSync, error) {
	return reading(i, app, func(e engine.Inspector) ([]mirror.PastSync, error) {
		return e.Syncs(ctx, app)
	})
}
