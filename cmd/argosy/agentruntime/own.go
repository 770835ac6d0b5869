package agentruntime

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// own reports the Applications that the people of an autonomous cluster made, and asks Argo CD for
// the syncs that were requested at the hub. It writes nothing else.
type own struct {
	a        *Agent
	changes  pacing.Signal // something must be reported, or a sync advanced
	reopened pacing.Signal // a session began: everything must be reported

	mu      sync.Mutex
	known   map[string]mirror.OwnApplication // by name, as the cluster shows them
	changed map[string]mirror.OwnApplication // not reported yet
	whole   bool                             // changed has all of them
	read    bool                             // the first complete list was read
}

const ownRetry = 5 * time.Second // before a failed report or sync is tried again

func newOwn(a *Agent) *own {
	return &own{a: a, changes: pacing.NewSignal(), reopened: pacing.NewSignal(),
		known: map[string]mirror.OwnApplication{}, changed: map[string]mirror.OwnApplication{}}
}

// wake advances the open syncs. It never blocks.
func (o *own) wake() { o.changes.Set() }

// opened handles the begin of a session. It never blocks.
func (o *own) opened() { o.reopened.Set() }

// run follows the Applications while the cluster is autonomous.
func (o *own) run(ctx context.Context) {
	for ctx.Err() == nil {
		if o.autonomous() {
			if err := o.follow(ctx); err != nil && ctx.Err() == nil {
				o.a.log.Warn("the cluster's own Applications are not followed; it is tried again",
					"error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-o.changes:
		case <-o.reopened:
		case <-time.After(ownRetry):
		}
	}
}

func (o *own) autonomous() bool {
	hello, ok := o.a.declared()
	return ok && hello.Mode == fleet.AgentAutonomous
}

// follow works until ctx ends or the cluster is no longer autonomous.
func (o *own) follow(ctx context.Context) error {
	hello, _ := o.a.declared()
	target, err := argocd.Connect(hello.Engine, o.a.spec(hello), o.a.c.Cluster, argocd.Options{
		Stopped: o.stopped, Public: true})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	// it ends with ctx, and recovers from errors by itself
	watching.Go(func() { _ = target.WatchOwn(ctx, o.observe) })
	reported := map[string]mirror.OperationState{}
	for ctx.Err() == nil && o.autonomous() {
		o.report(ctx)
		o.sync(ctx, target, reported)
		select {
		case <-ctx.Done():
		case <-o.changes:
		case <-o.reopened:
			o.reportAll()
		case <-time.After(ownRetry):
		}
	}
	return nil
}

// stopped reports whether an emergency stop is in force. The hub sends the stops of this cluster,
// which belongs to one tenant.
func (o *own) stopped(tenant fleet.TenantName) bool {
	hello, _ := o.a.declared()
	return o.a.stops.Stopped(hello.Engine)(tenant) || len(o.a.stops.On(hello.Engine)) > 0
}

// observe takes Applications from the cluster's watch.
func (o *own) observe(apps []mirror.OwnApplication, whole bool) {
	o.mu.Lock()
	if whole {
		clear(o.known)
		clear(o.changed)
		o.whole, o.read = true, true
	}
	for _, app := range apps {
		o.changed[app.Name] = app
		if o.known[app.Name] = app; app.Gone {
			delete(o.known, app.Name)
		}
	}
	o.mu.Unlock()
	o.wake()
}

// reportAll makes the next report complete: under a new session's lease the hub knows nothing.
func (o *own) reportAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.whole = o.read
	maps.Copy(o.changed, o.known)
}

// report sends changes. A report that is refused, because the lease is missing, waits for the next
// one.
func (o *own) report(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.changed) == 0 && !o.whole {
		return
	}
	if o.whole {
		maps.Copy(o.changed, o.known)
	}
	if err := o.a.follower.ReportOwn(ctx, o.a.lease(), slices.Collect(maps.Values(o.changed)),
		o.whole); err != nil {
		return
	}
	clear(o.changed)
	o.whole = false
}

// sync advances the open syncs and reports their states. reported has the last reported state of
// each.
func (o *own) sync(ctx context.Context, target *argocd.Engine,
	reported map[string]mirror.OperationState) {
	open, err := o.a.follower.OwnSyncs()
	if err != nil {
		return // not received yet
	}
	current := map[string]bool{}
	for _, q := range open {
		current[q.ID] = true
		state, text := o.advance(ctx, target, q)
		if reported[q.ID] == state {
			continue
		}
		if err := o.a.follower.UpdateSync(ctx, o.a.lease(), q.ID, state, text); err == nil {
			reported[q.ID] = state
		}
	}
	maps.DeleteFunc(reported, func(id string, _ mirror.OperationState) bool { return !current[id] })
}

// advance takes one sync a step further and reports its state.
func (o *own) advance(ctx context.Context, target *argocd.Engine,
	q agent.Sync) (mirror.OperationState, string) {
	if q.Namespace != o.a.c.ArgoCDNamespace {
		return mirror.OperationFailed, "the agent serves Applications in namespace " +
			o.a.c.ArgoCDNamespace + " alone"
	}
	o.mu.Lock()
	seen := o.known[q.Name]
	o.mu.Unlock()
	if seen.OperationID == q.ID {
		switch seen.OperationPhase {
		case "Succeeded":
			return mirror.OperationSucceeded, ""
		case "Failed", "Error":
			return mirror.OperationFailed, seen.Message
		}
	}
	hello, _ := o.a.declared()
	key := fleet.ObjectKey{Engine: hello.Engine, Kind: fleet.ObjectApplication, Name: q.Name}
	out, err := target.SyncOwn(ctx, engine.SyncRequest{Key: key, ID: q.ID, Revision: q.Revision,
		Prune: q.Prune})
	switch {
	case errors.Is(err, engine.ErrUnreachable), errors.Is(err, engine.ErrStopped), ctx.Err() != nil:
		return mirror.OperationPending, "it is tried again"
	case err != nil:
		return mirror.OperationFailed, err.Error()
	case out.State == mirror.ApplyApplied:
		return mirror.OperationRunning, ""
	}
	return mirror.OperationPending, out.Message
}
