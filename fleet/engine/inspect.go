package engine

import (
	"context"

	"argosy.dev/argosy/fleet/mirror"
)

// Inspector reads the resources of one Application on demand (ADR 0084). It reads nothing but the
// objects in that Application's tree, and keeps the bounds in package mirror. Every call ends with
// its context and after mirror.InspectTime, Logs after mirror.MaxLogTime. Secret values are masked
// before a value is returned. Its errors wrap mirror.ErrNoTree, ErrNotInTree, ErrInspectRefused,
// ErrInspectBusy or ErrInspectUnreachable. Its methods are safe for concurrent use.
type Inspector interface {
	// Tree returns the resources down to the Pods.
	Tree(ctx context.Context, app mirror.InspectedApplication) (mirror.Tree, error)
	// Resource returns one resource. A ref without a UID finds the one of its name in the tree.
	Resource(ctx context.Context, app mirror.InspectedApplication, ref mirror.ResourceRef) (
		mirror.ResourceDetail, error)
	// Diff returns the managed resources that a sync would change.
	Diff(ctx context.Context, app mirror.InspectedApplication) (mirror.ApplicationDiff, error)
	// ResourceEvents returns the events of one resource, or with a nil ref those of all, newest
	// first.
	ResourceEvents(ctx context.Context, app mirror.InspectedApplication, ref *mirror.ResourceRef) (
		[]mirror.ResourceEvent, error)
	// Logs calls sink with lines as they come until the stream ends, and returns why it has. An
	// error of the sink ends it with LogCancelled. An error means that the stream has not begun.
	Logs(ctx context.Context, app mirror.InspectedApplication, request mirror.LogRequest,
		sink func([]mirror.LogLine) error) (mirror.LogEnd, error)
	// Syncs returns the last syncs, newest first.
	Syncs(ctx context.Context, app mirror.InspectedApplication) ([]mirror.PastSync, error)
}
