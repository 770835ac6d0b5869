package reconciler

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/reconciler/plan"
)

// Finder reads what an engine already holds. It writes nothing.
type Finder interface {
	// Find is complete or an error: never a part.
	Find(ctx context.Context, name fleet.EngineName, spec fleet.EngineSpec) (objects []engine.Live,
		stops []fleet.Stop, err error)
}

// AgentFinder tells of engines behind agents, which nobody here can read.
type AgentFinder interface {
	Agents(ctx context.Context, scope fleet.Scope, by fleet.Filter, page fleet.Page) (
		[]fleet.AgentView, string, error)
	Engines(ctx context.Context, scope fleet.Scope, by fleet.Filter, page fleet.Page) (
		[]fleet.EngineView, string, error)
	// OrphanEnvironments are those that the strays on an engine are of; told is false when its agent
	// does not tell.
	OrphanEnvironments(ctx context.Context, engine fleet.EngineName) (of []fleet.EnvironmentID,
		told bool, err error)
}

// hearFor is how long an agent's engine has to be reached before what the agent says of it counts:
// it counts its objects with each report, and the first ones come before it has read them all.
const hearFor = 4 * reportEvery

// findPatience is how long a pass waits for engines that it begins to read. Those that take longer
// are read beside the loop.
const findPatience = 3 * time.Second

// found is what the engines hold, after a start without a mirror: where environments are placed,
// which holds are in force, what is stopped. Git does not know these, and the mirror is a cache:
// they come back from the live objects, or nothing new is placed.
type found struct {
	placements map[fleet.EnvironmentID]fleet.EngineName
	holds      []fleet.SyncHold
	unread     []fleet.EngineName
	unheard    []fleet.EngineName // behind agents
	// there, as their agents say, without a row
	stands map[fleet.EngineName][]fleet.EnvironmentID
	// of stands: they and another say the same; they are asked again
	contested []fleet.EngineName
	search    search
}

// load restores the AppliedState from the store, once.
func (l *Loop) load(ctx context.Context) error {
	if l.state != nil {
		return nil
	}
	at, err := l.Store.Mirror(ctx)
	if err != nil {
		return err
	}
	snapshot, err := l.Store.Load(ctx)
	if err != nil {
		return fmt.Errorf("load the mirror: %w", err)
	}
	l.base, l.proven = at, false // what was recorded in between shows in the next pass
	if l.found != nil {
		l.found.fill(&snapshot)
	}
	if l.state, err = plan.RestoreAppliedState(snapshot); err != nil {
		return fmt.Errorf("%w; run `argosy rebuild`", err)
	}
	l.state.Judging(l.Judge)
	l.fresh = snapshot.Applied == "" || l.state.Blocked()
	if l.asker != nil {
		l.asker.forget()
	}
	l.followReviews()
	defer l.publish()
	l.awaits, l.waiting, l.judged, l.leaving = l.state.Awaits(), "", "", map[fleet.ObjectKey]bool{}
	l.folders = unreadable(l.state.Catalog())
	for _, key := range l.state.Leaving() {
		l.leaving[key] = true
	}
	return nil
}

// forget drops what the engines hold, after it has ended reading them.
func (l *Loop) forget() {
	if l.found != nil {
		l.found.search.stop()
		l.found = nil
	}
}

// find reads the engines when the mirror cannot know what they hold. It costs nothing otherwise.
func (l *Loop) find(ctx context.Context, r *plan.Request) error {
	if !l.fresh {
		r.Stands = l.stands() // what was found counts until it was recorded
		return nil
	}
	specs := l.declared(r.Files)
	if l.found == nil {
		l.found = &found{placements: map[fleet.EnvironmentID]fleet.EngineName{},
			stands: map[fleet.EngineName][]fleet.EnvironmentID{}}
		for name, spec := range specs {
			if spec.Connection.Agent != nil {
				l.found.unheard = append(l.found.unheard, name)
			} else {
				l.found.unread = append(l.found.unread, name)
			}
		}
	}
	if err := l.hear(ctx, specs, r.Now); err != nil {
		return err
	}
	r.Unheard, r.Stands = l.found.unheard, l.stands()
	before := len(l.found.unread)
	l.read(ctx, specs)
	r.Unread = l.found.unread
	for _, name := range r.Unread {
		l.Log.Warn(
			"engine is not read yet; nothing new is placed until it is, for it may stand there already", "engine", name)
	}
	l.fresh = len(r.Unread)+len(r.Unheard)+len(l.found.contested) > 0
	if len(r.Unread) == before {
		return nil
	}
	l.state = nil
	return l.load(ctx)
}

// rest ends the asking once every engine is read and no environment waits for an agent: what is
// declared later stood nowhere before.
func (l *Loop) rest() {
	if l.found != nil && len(l.found.unread) == 0 && !l.state.Blocked() {
		l.fresh, l.found.unheard, l.found.contested = false, nil, nil
		clear(l.found.stands)
	}
}

// stands is Request.Stands.
func (l *Loop) stands() map[fleet.EnvironmentID][]fleet.EngineName {
	if l.found == nil || len(l.found.stands) == 0 {
		return nil
	}
	out := map[fleet.EnvironmentID][]fleet.EngineName{}
	for _, name := range slices.Sorted(maps.Keys(l.found.stands)) {
		for _, id := range l.found.stands[name] {
			out[id] = append(out[id], name)
		}
	}
	return out
}

// hear takes the engines off the list whose agents say what of ours stands there that no row names.
// An agent is never dialed, and the environments that are its engine's by their own declaration
// need no word of it.
func (l *Loop) hear(ctx context.Context, specs map[fleet.EngineName]fleet.EngineSpec,
	now time.Time) error {
	var left []fleet.EngineName
	for _, name := range slices.Compact(
		slices.Sorted(slices.Values(slices.Concat(l.found.unheard, l.found.contested)))) {
		if spec, declared := specs[name]; !declared || spec.Connection.Agent == nil {
			continue
		}
		heard, err := l.heard(ctx, name, now)
		if err != nil {
			return fmt.Errorf("what the agent of engine %s says: %w", name, err)
		}
		if !heard {
			left = append(left, name)
		}
	}
	l.found.unheard, l.found.contested = left, nil
	for id, names := range l.stands() {
		if len(names) > 1 {
			l.Log.Warn(
				"an environment stands on several engines, as their agents say; its objects are "+
					"to be removed from all but one",
				"tenant", id.Tenant, "environment", id.Name, "engines", names)
			l.found.contested = append(l.found.contested, names...)
		}
	}
	return nil
}

// heard reports whether the agent of an engine has told all that stands there, and keeps it. One
// that tells of no environments is taken at its word only when there is no stray at all; of one
// that tells of as many as it may, others may be left.
func (l *Loop) heard(ctx context.Context, name fleet.EngineName, now time.Time) (bool, error) {
	delete(l.found.stands, name)
	if l.AgentFinder == nil {
		return false, nil
	}
	by := fleet.Filter{Engine: name}
	agents, _, err := l.AgentFinder.Agents(ctx, fleet.Scope{}, by, fleet.Page{Limit: 2})
	i := slices.IndexFunc(agents, func(a fleet.AgentView) bool {
		return a.Engine == name &&
			a.Connected
	})
	if err != nil || i < 0 {
		return false, err
	}
	engines, _, err := l.AgentFinder.Engines(ctx, fleet.Scope{}, by, fleet.Page{Limit: 1})
	if err != nil || !slices.ContainsFunc(engines, func(e fleet.EngineView) bool {
		return e.Name == name && e.Reachable && e.Since != nil && now.Sub(*e.Since) >= hearFor
	}) {
		return false, err
	}
	if agents[i].Orphans == 0 {
		return true, nil
	}
	of, told, err := l.AgentFinder.OrphanEnvironments(ctx, name)
	if err != nil || !told {
		return false, err
	}
	l.found.stands[name] = of
	return len(of) < fleet.MaxOrphanEnvironments, nil
}

// declared are the engines of the head and of the AppliedState.
func (l *Loop) declared(files []catalog.Input) map[fleet.EngineName]fleet.EngineSpec {
	specs := map[fleet.EngineName]fleet.EngineSpec{}
	view := l.state.Catalog()
	for _, name := range view.Engines() {
		specs[name] = *view.Engine(name).Engine
	}
	for _, f := range files {
		if f.Declaration != nil && f.Declaration.Engine != nil {
			specs[fleet.EngineName(f.Key.Name)] = *f.Declaration.Engine
		}
	}
	return specs
}

// search reads engines beside the loop, each for itself and for as long as it takes.
type search struct {
	ends map[fleet.EngineName]*searched
	all  sync.WaitGroup
}

// searched is the search of one engine.
type searched struct {
	spec   fleet.EngineSpec
	cancel context.CancelFunc
	done   chan struct{} // closed when the engine was read, or when the search was cancelled
	read   bool          // valid once done is closed
	holds  []engine.Live // what it holds
}

// stop ends what is under way.
func (s *search) stop() {
	for _, e := range s.ends {
		e.cancel()
	}
	s.all.Wait()
}

// read has every unread engine read, and takes what was read by now. It waits findPatience for
// those that it begins with. An engine that is no longer declared is not waited for.
func (l *Loop) read(ctx context.Context, specs map[fleet.EngineName]fleet.EngineSpec) {
	s := &l.found.search
	if s.ends == nil {
		s.ends = map[fleet.EngineName]*searched{}
	}
	patience := time.NewTimer(0)
	defer patience.Stop()
	for _, name := range l.found.unread {
		spec, ok := specs[name]
		e := s.ends[name]
		if e != nil && (!ok || !reflect.DeepEqual(e.spec, spec)) {
			e.cancel()
			e = nil
		}
		if e == nil && ok {
			s.ends[name] = l.search(ctx, name, spec)
			patience.Reset(findPatience)
		}
	}
	var unread []fleet.EngineName
	for _, name := range l.found.unread {
		e := s.ends[name]
		if _, ok := specs[name]; !ok {
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
		if !e.finished() {
			unread = append(unread, name)
			continue
		}
		l.found.take(name, e.holds)
		e.holds = nil
	}
	l.found.unread = unread
}

// finished reports whether the engine was read.
func (e *searched) finished() bool {
	select {
	case <-e.done:
		return e.read
	default:
		return false
	}
}

// search reads one engine until it was read completely, and wakes the loop then.
func (l *Loop) search(ctx context.Context, name fleet.EngineName, spec fleet.EngineSpec) *searched {
	e := &searched{spec: spec, done: make(chan struct{})}
	ctx, e.cancel = context.WithCancel(ctx)
	l.found.search.all.Go(func() {
		defer func() { close(e.done); l.Wake() }()
		for attempts := 1; ctx.Err() == nil; attempts++ {
			objects, stops, err := l.Finder.Find(ctx, name, spec)
			if err == nil {
				err = l.restoreStops(ctx, stops)
			}
			if err == nil {
				e.read, e.holds = true, objects
				return
			}
			if ctx.Err() == nil {
				l.Log.Warn("failed to read an engine; trying again", "engine", name, "error", err)
			}
			wait(ctx, backoff(min(attempts, 5)))
		}
	})
	return e
}

func (l *Loop) restoreStops(ctx context.Context, stops []fleet.Stop) error {
	for _, s := range stops {
		if s.At.IsZero() {
			continue // a note that cannot be read: it stops its own engine
		}
		if err := l.Store.RestoreStop(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (f *found) take(name fleet.EngineName, objects []engine.Live) {
	for _, o := range objects {
		if !o.Ours || o.Environment == "" {
			continue
		}
		environment := fleet.EnvironmentID{Tenant: o.Tenant, Name: o.Environment}
		f.placements[environment] = name
		if o.Hold != "" {
			f.holds = append(f.holds, fleet.SyncHold{
				SyncRun: o.Hold,
				Application: fleet.ApplicationID{Tenant: o.Tenant, Deployment: o.Deployment,
					Environment: o.Environment},
			})
		}
	}
}

// fill completes a snapshot with what the store does not know.
func (f *found) fill(s *fleet.Snapshot) {
	known := map[fleet.EnvironmentID]bool{}
	for i, p := range s.Placements {
		known[p.Environment] = true
		if at, ok := f.placements[p.Environment]; ok && p.Engine == "" {
			s.Placements[i] = recovered(p.Environment, at)
		}
	}
	for environment, at := range f.placements {
		if !known[environment] {
			s.Placements = append(s.Placements, recovered(environment, at))
		}
	}
	if len(s.SyncHolds) == 0 {
		s.SyncHolds = f.holds
	}
}

func recovered(environment fleet.EnvironmentID, at fleet.EngineName) fleet.Placement {
	return fleet.Placement{Environment: environment, Engine: at, Reason: "its objects stand on " +
		string(at) + "; found there when the mirror was rebuilt"}
}
