package onsite

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

// own follows the Applications that the people of an autonomous cluster made, reports them, and
// asks Argo CD for the syncs that were asked for at the hub. It writes nothing else.
type own struct {
	a     *Agent
	look  pacing.Signal // something is to be reported, or a sync to be looked at
	again pacing.Signal // a session began: everything is told anew

	mu      sync.Mutex
	known   map[string]mirror.OwnApplication // by name, as the cluster shows them
	changed map[string]mirror.OwnApplication // that are to be reported
	whole   bool                             // all of them are
	read    bool                             // they were read completely
}

const ownLook = 5 * time.Second // between looks at what could not be reported or asked for

func newOwn(a *Agent) *own {
	return &own{a: a, look: pacing.NewSignal(), again: pacing.NewSignal(),
		known: map[string]mirror.OwnApplication{}, changed: map[string]mirror.OwnApplication{}}
}

// wake has the open syncs looked at. It never blocks.
func (o *own) wake() { o.look.Set() }

// opened says that a session began. It never blocks.
func (o *own) opened() { o.again.Set() }

// run works while the cluster is autonomous, and waits otherwise.
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
		case <-o.look:
		case <-o.again:
		case <-time.After(ownLook):
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
	// it ends with ctx, and heals by itself
	watching.Go(func() { _ = target.WatchOwn(ctx, o.told) })
	said := map[string]mirror.OperationState{}
	for ctx.Err() == nil && o.autonomous() {
		o.report(ctx)
		o.sync(ctx, target, said)
		select {
		case <-ctx.Done():
		case <-o.look:
		case <-o.again:
			o.retell()
		case <-time.After(ownLook):
		}
	}
	return nil
}

// stopped reports whether an emergency stop is in force. The hub sends those that concern this
// cluster, which is one tenant's.
func (o *own) stopped(tenant fleet.TenantName) bool {
	hello, _ := o.a.declared()
	return o.a.stops.Stopped(hello.Engine)(tenant) || len(o.a.stops.On(hello.Engine)) > 0
}

// told takes what the cluster shows.
func (o *own) told(apps []mirror.OwnApplication, whole bool) {
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

// retell has everything reported anew: under the lease of a new session nothing is known yet.
func (o *own) retell() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.whole = o.read
	maps.Copy(o.changed, o.known)
}

// report hands over what has changed. What is refused, for the lease is not there at present, waits
// for the next look.
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

// sync asks for the syncs that are open and says how they stand. said remembers what was said of
// each.
func (o *own) sync(ctx context.Context, target *argocd.Engine,
	said map[string]mirror.OperationState) {
	open, err := o.a.follower.OwnSyncs()
	if err != nil {
		return // not heard yet
	}
	current := map[string]bool{}
	for _, q := range open {
		current[q.ID] = true
		state, text := o.advance(ctx, target, q)
		if said[q.ID] == state {
			continue
		}
		if err := o.a.follower.UpdateSync(ctx, o.a.lease(), q.ID, state, text); err == nil {
			said[q.ID] = state
		}
	}
	maps.DeleteFunc(said, func(id string, _ mirror.OperationState) bool { return !current[id] })
}

// advance brings one sync a step on and says how it stands.
func (o *own) advance(ctx context.Context, target *argocd.Engine,
	q agent.Sync) (mirror.OperationState, string) {
	if q.Namespace != o.a.c.ArgoCDNamespace {
		return mirror.OperationFailed, "the agent looks after Applications in namespace " +
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
