package apitest

import (
	"context"
	"fmt"
	"sync"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

var _ engine.Inspector = (*Inspector)(nil)

// Resources is what an Inspector has of one Application.
type Resources struct {
	Tree    mirror.Tree
	Details []mirror.ResourceDetail
	Diff    mirror.ApplicationDiff
	Events  []mirror.ResourceEvent
	Logs    map[string][]mirror.LogLine // by Pod and container: "checkout-1/app"
	Syncs   []mirror.PastSync
}

// Inspector is an api.Inspector over resources in memory, safe for concurrent use. A followed log
// ends with the reader's context.
type Inspector struct {
	mu    sync.Mutex
	of    map[fleet.ApplicationID]Resources
	fails error
	asked []mirror.InspectedApplication
}

// NewInspector returns an Inspector with these resources.
func NewInspector(of map[fleet.ApplicationID]Resources) *Inspector { return &Inspector{of: of} }

// Set replaces what the Inspector has of one Application.
func (i *Inspector) Set(id fleet.ApplicationID, r Resources) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.of == nil {
		i.of = map[fleet.ApplicationID]Resources{}
	}
	i.of[id] = r
}

// Fail makes every read fail with err until it is nil.
func (i *Inspector) Fail(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fails = err
}

// Asked returns the Applications that were read, in their order.
func (i *Inspector) Asked() []mirror.InspectedApplication {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]mirror.InspectedApplication(nil), i.asked...)
}

func (i *Inspector) read(app mirror.InspectedApplication) (Resources, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked = append(i.asked, app)
	if i.fails != nil {
		return Resources{}, i.fails
	}
	r, ok := i.of[app.ID]
	if !ok {
		return r, fmt.Errorf("application %s: %w; refresh it", app.ID, mirror.ErrNoTree)
	}
	return r, nil
}

// Tree returns the tree.
func (i *Inspector) Tree(_ context.Context, app mirror.InspectedApplication) (mirror.Tree, error) {
	r, err := i.read(app)
	return r.Tree, err
}

// Resource returns the detail of the resource, or a detail without manifests of a node without one.
func (i *Inspector) Resource(_ context.Context, app mirror.InspectedApplication,
	ref mirror.ResourceRef) (mirror.ResourceDetail, error) {
	r, err := i.read(app)
	if err != nil {
		return mirror.ResourceDetail{}, err
	}
	for _, d := range r.Details {
		if d.SameObject(ref) {
			return d, nil
		}
	}
	node, err := nodeOf(r.Tree, ref)
	return mirror.ResourceDetail{ResourceRef: node.ResourceRef, Version: node.Version}, err
}

func nodeOf(t mirror.Tree, ref mirror.ResourceRef) (mirror.TreeNode, error) {
	for _, n := range t.Nodes {
		if n.SameObject(ref) {
			return n, nil
		}
	}
	return mirror.TreeNode{}, fmt.Errorf("%s: %w", ref, mirror.ErrNotInTree)
}

// Diff returns the differences.
func (i *Inspector) Diff(_ context.Context, app mirror.InspectedApplication) (
	mirror.ApplicationDiff, error) {
	r, err := i.read(app)
	return r.Diff, err
}

// ResourceEvents returns the events of the resource, or all.
func (i *Inspector) ResourceEvents(_ context.Context, app mirror.InspectedApplication,
	ref *mirror.ResourceRef) ([]mirror.ResourceEvent, error) {
	r, err := i.read(app)
	if err != nil || ref == nil {
		return r.Events, err
	}
	if _, err := nodeOf(r.Tree, *ref); err != nil {
		return nil, err
	}
	var of []mirror.ResourceEvent
	for _, e := range r.Events {
		if e.Resource.SameObject(*ref) {
			of = append(of, e)
		}
	}
	return of, nil
}

// Logs sends the lines, each by itself.
func (i *Inspector) Logs(ctx context.Context, app mirror.InspectedApplication,
	request mirror.LogRequest, sink func([]mirror.LogLine) error) (mirror.LogEnd, error) {
	r, err := i.read(app)
	if err != nil {
		return "", err
	}
	if _, err := nodeOf(r.Tree, request.Pod); err != nil {
		return "", err
	}
	lines := r.Logs[request.Pod.Name+"/"+request.Container]
	if n := len(lines) - request.Tail; request.Tail > 0 && n > 0 {
		lines = lines[n:]
	}
	for _, line := range lines {
		if err := sink([]mirror.LogLine{line}); err != nil {
			return mirror.LogCancelled, nil
		}
	}
	if request.Follow {
		<-ctx.Done()
		return mirror.LogCancelled, nil
	}
	return mirror.LogComplete, nil
}

// Syncs returns the syncs.
func (i *Inspector) Syncs(_ context.Context, app mirror.InspectedApplication) (
	[]mirror.PastSync, error) {
	r, err := i.read(app)
	return r.Syncs, err
}
