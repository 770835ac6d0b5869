package recovery

import (
	"context"
	"reflect"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
)

// readPatience is how long Continue waits for engines whose read it begins. A longer read goes on
// in the background.
const readPatience = 3 * time.Second

// read is the read of one engine, which is repeated until it succeeds.
type read struct {
	spec    fleet.EngineSpec
	cancel  context.CancelFunc
	done    chan struct{} // closed when the engine was read, or when the read was cancelled
	ok      bool          // valid once done is closed
	objects []engine.Live
}

// complete reports whether the engine was read.
func (e *read) complete() bool {
	select {
	case <-e.done:
		return e.ok
	default:
		return false
	}
}

// readEngines reads every unread engine and takes the results that are there by now. It forgets an
// engine that is no longer declared.
func (r *Recovery) readEngines(ctx context.Context,
	specs map[fleet.EngineName]fleet.EngineSpec) {
	patience := time.NewTimer(0)
	defer patience.Stop()
	for _, name := range r.unread {
		spec, declared := specs[name]
		e := r.reads[name]
		if e != nil && (!declared || !reflect.DeepEqual(e.spec, spec)) {
			e.cancel()
			e = nil
		}
		if e == nil && declared {
			r.reads[name] = r.read(ctx, name, spec)
			patience.Reset(readPatience)
		}
	}
	var unread []fleet.EngineName
	for _, name := range r.unread {
		e := r.reads[name]
		if _, declared := specs[name]; !declared {
			continue
		}
		select {
		case <-e.done:
		default:
			select {
			case <-e.done:
			case <-patience.C:
				patience.Reset(0)
			}
		}
		if !e.complete() {
			unread = append(unread, name)
			continue
		}
		r.take(name, e.objects)
		e.objects = nil
	}
	r.unread = unread
}

// read reads one engine in the background until that succeeds.
func (r *Recovery) read(ctx context.Context, name fleet.EngineName, spec fleet.EngineSpec) *read {
	e := &read{spec: spec, done: make(chan struct{})}
	ctx, e.cancel = context.WithCancel(ctx)
	r.reading.Go(func() {
		defer func() { close(e.done); r.Wake() }()
		for attempts := 1; ctx.Err() == nil; attempts++ {
			objects, stops, err := r.Engines.Find(ctx, name, spec)
			if err == nil {
				err = r.restoreStops(ctx, stops)
			}
			if err == nil {
				e.ok, e.objects = true, objects
				return
			}
			if ctx.Err() == nil {
				r.Log.Warn("failed to read an engine; trying again", "engine", name, "error", err)
			}
			pacing.Sleep(ctx, pacing.Backoff(min(attempts, 5)))
		}
	})
	return e
}

func (r *Recovery) restoreStops(ctx context.Context, stops []mirror.Stop) error {
	for _, s := range stops {
		if s.At.IsZero() {
			continue // an unreadable note: it stops its own engine
		}
		if err := r.Stops.RestoreStop(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// take keeps what the objects of an engine show.
func (r *Recovery) take(name fleet.EngineName, objects []engine.Live) {
	r.shown.Read[name] = true
	for _, o := range objects {
		if !o.Ours || o.Environment == "" {
			continue
		}
		environment := fleet.EnvironmentID{Tenant: o.Tenant, Name: o.Environment}
		on := r.found[environment]
		on.add(name, o)
		r.found[environment] = on
		if o.Key.Kind == fleet.ObjectApplication {
			r.shown.Add(o.Key, fleet.DeploymentID{Tenant: o.Tenant, Name: o.Deployment}, o.Hash)
		}
		if o.Hold != "" {
			r.holds = append(r.holds, mirror.SyncHold{
				SyncRun: o.Hold,
				Application: fleet.ApplicationID{Tenant: o.Tenant, Deployment: o.Deployment,
					Environment: o.Environment},
			})
		}
	}
}
