// Package recovery restores what neither Git nor an empty mirror knows: where environments are
// placed, which sync holds apply and which emergency stops are in force. The live objects on the
// engines know it. Until they were read, nothing new is placed.
package recovery

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// EngineReader reads what an engine already has. It writes nothing.
type EngineReader interface {
	// Find returns all objects and stops of the engine, or an error; never a part of them.
	Find(ctx context.Context, name fleet.EngineName, spec fleet.EngineSpec) (
		objects []engine.Live, stops []mirror.Stop, err error)
}

// AgentReports are the reports of agents, whose engines no replica can read.
type AgentReports interface {
	Agents(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) (
		[]view.Agent, string, error)
	Engines(ctx context.Context, scope view.Scope, by view.Filter, page view.Page) (
		[]view.Engine, string, error)
	// OrphanEnvironments are the environments of an engine's orphans; reported is false when its
	// agent does not report them.
	OrphanEnvironments(ctx context.Context, engine fleet.EngineName) (of []fleet.EnvironmentID,
		reported bool, err error)
}

// StopRestorer puts a stop back that an engine remembers, unless the stop has ended since.
type StopRestorer interface {
	RestoreStop(ctx context.Context, stop mirror.Stop) error
}

// Config is what a recovery needs.
type Config struct {
	Engines EngineReader
	Agents  AgentReports // nil: agents report nothing
	Stops   StopRestorer
	Wake    func() // called when the read of an engine has ended
	Log     *slog.Logger
}

// Recovery is one recovery, of the replica that leads. All methods are called by one goroutine.
type Recovery struct {
	Config
	needed bool // the engines must be read before anything new is placed
	begun  bool

	found   map[fleet.EnvironmentID]presence // which engines have objects of it
	holds   []mirror.SyncHold
	shown   *mirror.Recovered // nil once a plan has recorded it
	unread  []fleet.EngineName
	silent  []fleet.EngineName // engines whose agents have not reported their orphans
	pools   []string           // whose instances are not known
	known   bool               // a pool is known since the last Continue
	reads   map[fleet.EngineName]*read
	reading sync.WaitGroup

	// orphans are the environments that agents report objects of without a row.
	orphans map[fleet.EngineName][]fleet.EnvironmentID
	// conflicting engines report the same environment as another one. Their agents are asked again.
	conflicting []fleet.EngineName
}

// New returns a recovery that is not needed yet.
func New(c Config) *Recovery { return &Recovery{Config: c} }

// Require sets whether the engines must be read before anything new is placed: a snapshot was
// loaded that lacks placements.
func (r *Recovery) Require(needed bool) { r.needed = needed }

// Required reports whether something waits for engines or agents.
func (r *Recovery) Required() bool { return r.needed }

// Pending reports whether a required recovery has not begun.
func (r *Recovery) Pending() bool { return r.needed && !r.begun }

// Unread are the engines that a required recovery has not read.
func (r *Recovery) Unread() []fleet.EngineName {
	if !r.needed {
		return nil
	}
	return slices.Clone(r.unread)
}

// SilentAgents are the engines whose agents have not reported their orphans, while something waits
// for these reports.
func (r *Recovery) SilentAgents() []fleet.EngineName {
	if !r.needed {
		return nil
	}
	return slices.Clone(r.silent)
}

// AwaitPools names the pools whose instances are not known, because a cluster was not read yet. An
// environment may be on one of them.
func (r *Recovery) AwaitPools(pools []string) {
	r.known = r.known || len(pools) < len(r.pools)
	r.pools = pools
}

// UnreadPools are the pools of AwaitPools, while a recovery is required.
func (r *Recovery) UnreadPools() []string {
	if !r.needed {
		return nil
	}
	return slices.Clone(r.pools)
}

// Found adds the instance of a pool to the engines to read, once it is known. Its environments must
// not be placed anywhere else before.
func (r *Recovery) Found(name fleet.EngineName) {
	if r.begun && r.reads[name] == nil {
		r.unread = append(r.unread, name)
	}
}

// Undecided are the environments that engines have, of which an instance of UnreadPools may decide
// where they are: they were being moved, or are split.
func (r *Recovery) Undecided() (all []fleet.EnvironmentID) {
	if !r.needed || len(r.pools) == 0 {
		return nil
	}
	for id := range r.found {
		if len(r.placements(id)) == 0 {
			all = append(all, id)
		}
	}
	return all
}

// allRead reports whether everything that may have an environment was read.
func (r *Recovery) allRead() bool { return len(r.unread)+len(r.pools) == 0 }

// Orphaned maps environments to the engines whose agents report objects of them without a row.
func (r *Recovery) Orphaned() map[fleet.EnvironmentID][]fleet.EngineName {
	if len(r.orphans) == 0 {
		return nil
	}
	out := map[fleet.EnvironmentID][]fleet.EngineName{}
	for _, name := range slices.Sorted(maps.Keys(r.orphans)) {
		for _, id := range r.orphans[name] {
			out[id] = append(out[id], name)
		}
	}
	return out
}

// Shown returns what the engines have shown of Applications, until a plan has recorded it. nil: the
// mirror was not lost, or the fleet is new.
func (r *Recovery) Shown() *mirror.Recovered {
	if !r.FoundObjects() && len(r.silent) == 0 {
		return nil
	}
	return r.shown
}

// FoundObjects reports whether an engine has an object of this fleet. Without one, nothing was ever
// applied.
func (r *Recovery) FoundObjects() bool { return len(r.found) > 0 || len(r.orphans) > 0 }

// Continue reads engines and asks agents, and does not wait for slow ones: reads go on in the
// background and wake the loop. It reports whether engines were read that the loaded state lacks.
func (r *Recovery) Continue(ctx context.Context, specs map[fleet.EngineName]fleet.EngineSpec,
	now time.Time) (reload bool, err error) {
	r.begin(specs)
	if err := r.askAgents(ctx, specs, now); err != nil {
		return false, err
	}
	before := len(r.unread)
	r.readEngines(ctx, specs)
	for _, name := range r.unread {
		r.Log.Warn("engine is not read yet; nothing new is placed until it is, because it may "+
			"have the environment already", "engine", name)
	}
	r.needed = len(r.unread)+len(r.silent)+len(r.conflicting)+len(r.pools) > 0
	reload, r.known = r.known || len(r.unread) != before, false
	return reload, nil
}

func (r *Recovery) begin(specs map[fleet.EngineName]fleet.EngineSpec) {
	if r.begun {
		return
	}
	r.begun = true
	r.found = map[fleet.EnvironmentID]presence{}
	r.shown = &mirror.Recovered{Read: map[fleet.EngineName]bool{},
		Hashes: map[fleet.ObjectKey]string{}, Deployments: map[fleet.DeploymentID]bool{}}
	r.orphans = map[fleet.EngineName][]fleet.EnvironmentID{}
	r.reads = map[fleet.EngineName]*read{}
	for name, spec := range specs {
		if spec.Connection.Agent != nil {
			r.silent = append(r.silent, name)
		} else {
			r.unread = append(r.unread, name)
		}
	}
}

// Finish stops asking agents once every engine and pool is read and no environment waits for an
// agent: environments that are declared later had no engine before.
func (r *Recovery) Finish() {
	if !r.begun || !r.allRead() {
		return
	}
	r.needed, r.silent, r.conflicting, r.shown = false, nil, nil, nil
	clear(r.orphans)
}

// Stop ends the reads under way and forgets their results.
func (r *Recovery) Stop() {
	for _, e := range r.reads {
		e.cancel()
	}
	r.reading.Wait()
	*r = Recovery{Config: r.Config, needed: r.needed}
}

// Complete adds to a snapshot what the engines have shown and the store does not know.
func (r *Recovery) Complete(s *mirror.Snapshot) {
	if !r.begun {
		return
	}
	known := map[fleet.EnvironmentID]bool{}
	var placements []fleet.Placement
	for _, p := range s.Placements {
		known[p.Environment] = true
		var found []fleet.Placement
		switch {
		case p.Engine != "":
		case p.Slice == "":
			found = r.placements(p.Environment)
		default:
			found = r.recovered(p.ID())
		}
		if len(found) == 0 {
			found = []fleet.Placement{p}
		}
		placements = append(placements, found...)
	}
	for environment := range r.found {
		if !known[environment] {
			placements = append(placements, r.placements(environment)...)
		}
	}
	s.Placements = placements
	if len(s.SyncHolds) == 0 {
		s.SyncHolds = r.holds
	}
}

// placements returns the placements of an environment's slices that the engines have shown; none
// while another engine may decide. A slice that no engine has waits for one.
func (r *Recovery) placements(environment fleet.EnvironmentID) (all []fleet.Placement) {
	of := r.found[environment].partition()
	if len(of) > 1 && !r.allRead() {
		return nil
	}
	found := false
	for _, s := range of {
		placed := r.recovered(environment.Slice(s))
		found = found || len(placed) > 0
		if len(placed) == 0 {
			placed = []fleet.Placement{{Environment: environment, Slice: s,
				Reason: "no engine had it when the mirror was rebuilt"}}
		}
		all = append(all, placed...)
	}
	if !found {
		return nil
	}
	return all
}

// recovered returns the placement of a slice on the engine that has it, or none.
func (r *Recovery) recovered(id fleet.SliceID) []fleet.Placement {
	on := r.found[id.In()].of(id.Slice)
	at := on.engine(r.allRead())
	if at == "" {
		return nil
	}
	return []fleet.Placement{{Environment: id.In(), Slice: id.Slice, Engine: at,
		Evacuated: on.evacuated, Reason: "its objects are on " + string(at) +
			"; found there when the mirror was rebuilt"}}
}

// Engines are the engines of the catalog and of the files of a head.
func Engines(view *catalog.View, files []catalog.Input) map[fleet.EngineName]fleet.EngineSpec {
	specs := map[fleet.EngineName]fleet.EngineSpec{}
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

// askAgents takes the engines off the list whose agents have reported the environments of their
// orphans. No replica dials an agent, and environments that belong to an agent's engine by their
// own declaration need no report.
func (r *Recovery) askAgents(ctx context.Context, specs map[fleet.EngineName]fleet.EngineSpec,
	now time.Time) error {
	var silent []fleet.EngineName
	asked := slices.Sorted(slices.Values(slices.Concat(r.silent, r.conflicting)))
	for _, name := range slices.Compact(asked) {
		if spec, declared := specs[name]; !declared || spec.Connection.Agent == nil {
			continue
		}
		reported, err := r.askAgent(ctx, name, now)
		if err != nil {
			return fmt.Errorf("read the report of the agent of engine %s: %w", name, err)
		}
		if !reported {
			silent = append(silent, name)
		}
	}
	r.silent, r.conflicting = silent, nil
	for id, names := range r.Orphaned() {
		if len(names) > 1 {
			r.Log.Warn("agents of several engines report objects of one environment; "+
				"remove its objects from all engines but one",
				"tenant", id.Tenant, "environment", id.Name, "engines", names)
			r.conflicting = append(r.conflicting, names...)
		}
	}
	return nil
}

// reachableFor is how long an agent's engine must be reachable before its agent's counts are
// complete: the agent counts objects with every report, and the first reports precede the end of
// its first list. Workers report every 30 seconds.
const reachableFor = 2 * time.Minute

// askAgent reports whether an agent has reported all orphans of its engine, and keeps their
// environments. An agent that reports no environments has none only if it counts no orphan at all;
// an agent that reports as many environments as it may can have more.
func (r *Recovery) askAgent(ctx context.Context, name fleet.EngineName, now time.Time) (bool,
	error) {
	delete(r.orphans, name)
	if r.Agents == nil {
		return false, nil
	}
	by := view.Filter{Engine: name}
	agents, _, err := r.Agents.Agents(ctx, view.Scope{}, by, view.Page{Limit: 2})
	i := slices.IndexFunc(agents, func(a view.Agent) bool {
		return a.Engine == name && a.Connected
	})
	if err != nil || i < 0 {
		return false, err
	}
	engines, _, err := r.Agents.Engines(ctx, view.Scope{}, by, view.Page{Limit: 1})
	if err != nil || !slices.ContainsFunc(engines, func(e view.Engine) bool {
		return e.Name == name && e.Reachable && e.Since != nil && now.Sub(*e.Since) >= reachableFor
	}) {
		return false, err
	}
	if agents[i].Orphans == 0 {
		return true, nil
	}
	of, reported, err := r.Agents.OrphanEnvironments(ctx, name)
	if err != nil || !reported {
		return false, err
	}
	r.orphans[name] = of
	return len(of) < mirror.MaxOrphanEnvironments, nil
}
