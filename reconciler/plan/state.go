package plan

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/applied"
	"argosy.dev/argosy/reconciler/plan/reviews"
)

// AppliedState is the applied state, in memory. Any number of Computes may run at once; Commit
// waits for them.
type AppliedState struct {
	mu      sync.RWMutex
	version int // grows with every Commit: a plan computed before is stale
	state   *applied.State
}

// NewAppliedState returns a AppliedState in which nothing is applied.
func NewAppliedState() *AppliedState { return &AppliedState{state: applied.New()} }

// RestoreAppliedState returns the AppliedState that was stored. It neither checks declarations nor
// renders. After a rebuild, a Snapshot with only the placements and sync holds that engines
// reported keeps every environment on its engine.
//
// An error means that the snapshot is inconsistent: run argosy rebuild.
func RestoreAppliedState(s mirror.Snapshot) (*AppliedState, error) {
	state, err := applied.Restore(s)
	if err != nil {
		return nil, err
	}
	return &AppliedState{state: state}, nil
}

// Judging sets the judge of the AppliedState's policies, and returns the AppliedState. Without a
// judge, no policy is judged. No Compute may run at the same time.
func (w *AppliedState) Judging(j catalog.Judge) *AppliedState {
	w.state.Catalog.Judging(j)
	return w
}

// Revision is the applied revision, "" before the first.
func (w *AppliedState) Revision() fleet.Revision {
	return read(w, func(s *applied.State) fleet.Revision { return s.Revision })
}

// Catalog is the declarations in effect. It follows every Commit, and may be read at any time.
func (w *AppliedState) Catalog() *catalog.Catalog { return w.state.Catalog }

// Terminating lists, sorted, the unwanted rows whose objects are not proven deleted. Rows that the
// store no longer has belong into Request.Deleted. It costs the whole index: it is for a start and
// for the verifying reconcile.
func (w *AppliedState) Terminating() []fleet.ObjectKey {
	return read(w, (*applied.State).Terminations)
}

// Blocked reports whether the applied plan left environments unplaced, because an engine was not
// read (Request.Unread) or its agent did not report (Request.SilentAgents).
func (w *AppliedState) Blocked() bool {
	return read(w, func(s *applied.State) bool { return s.Blocked })
}

// SlicesOn lists the slices of environments that an engine serves or is losing in a move, sorted.
func (w *AppliedState) SlicesOn(engine fleet.EngineName) []fleet.SliceID {
	return read(w, func(s *applied.State) (on []fleet.SliceID) {
		for _, env := range s.EnvironmentsOn.Keys(engine) {
			for _, pl := range s.PlacementsOf(env) {
				if pl.Engine == engine || pl.From == engine {
					on = append(on, pl.ID())
				}
			}
		}
		slices.SortFunc(on, fleet.SliceID.Compare)
		return on
	})
}

// PlacedOn reports which of the slices an engine serves. A slice whose move has begun is on its new
// engine.
func (w *AppliedState) PlacedOn(engine fleet.EngineName, of []fleet.SliceID) []fleet.SliceID {
	return read(w, func(s *applied.State) (on []fleet.SliceID) {
		for _, id := range of {
			if pl, ok := s.Placements.Get(id); ok && pl.Engine == engine {
				on = append(on, id)
			}
		}
		return on
	})
}

// AwaitsApproval reports whether something waits for an approval: then approvals are worth reading.
func (w *AppliedState) AwaitsApproval() bool { return read(w, (*applied.State).AwaitsApproval) }

// Freezes reports whether a freeze holds changes or deletions.
func (w *AppliedState) Freezes() bool {
	return read(w, func(s *applied.State) bool {
		for _, h := range s.Held.Base() {
			if h.Reason == mirror.HoldFrozen {
				return true
			}
		}
		return s.HasFrozen() || s.Unknown()
	})
}

// Rollouts lists the rollouts that have not ended, sorted.
func (w *AppliedState) Rollouts() []mirror.Rollout {
	return read(w, func(s *applied.State) []mirror.Rollout {
		return slices.SortedFunc(maps.Values(s.Rollouts.Base()), func(a, b mirror.Rollout) int {
			return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Deployment, b.Deployment))
		})
	})
}

// RollbackRefusal returns why an Application cannot be rolled back now; "": it can.
func (w *AppliedState) RollbackRefusal(a mirror.Action) string {
	return read(w, func(s *applied.State) string {
		id := a.Application()
		pl, _ := s.PlacementOf(id)
		row, exists := s.Rows.Get(applied.ApplicationKey(pl.Engine, id))
		hold, held := s.SyncHolds.Get(id)
		switch r, rolling := s.Rollouts.Get(id.Deployed()); {
		case pl.Engine == "" || !exists || row.Unwanted:
			return "no engine has it"
		case pl.From != "":
			return "its environment moves to another engine"
		case a.Options.End && (!held || mirror.RollbackOf(hold.SyncRun) == ""):
			return mirror.ErrNotRolledBack.Error()
		case a.Options.End:
			return ""
		case rolling:
			return "rollout " + r.ID + " of its deployment is under way: abort it, or wait"
		}
		if f, waits := s.Frozen.Get(id); waits {
			return "a change of it waits: " + f.Why
		}
		if h, waits := s.Held.Get(id); waits {
			return "its deletion waits for an approval: " + string(h.Reason)
		}
		return ""
	})
}

// Carried returns what a plan of moves has to know (Request.Manifests): the Applications that move
// with the manifest that they have, since their change waits for its wave, and the rollouts that
// may return Applications which move. It costs the deployments of the environments that move.
func (w *AppliedState) Carried(moves map[fleet.SliceID]mirror.MoveRequest) (rows []fleet.ObjectKey,
	of []mirror.Rollout) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	listed := map[fleet.DeploymentID]bool{}
	for id := range moves {
		for _, dep := range w.state.Catalog.DeploymentsIn(id.In()) {
			app := applied.ApplicationID(dep, id.In())
			if f, waits := w.state.Frozen.Get(app); waits && f.Rollout {
				rows = append(rows, f.Key)
			}
			if r, i := w.state.Rolling(app); i >= 0 && !listed[dep] {
				listed[dep] = true
				of = append(of, r)
			}
		}
	}
	return rows, of
}

// FrozenIn returns the freeze that holds changes in the environments of a rollout now, by the keys
// of its members.
func (w *AppliedState) FrozenIn(r mirror.Rollout, now time.Time) map[fleet.ObjectKey]string {
	return read(w, func(s *applied.State) map[fleet.ObjectKey]string {
		calendar, out := s.Freezes(now), map[fleet.ObjectKey]string{}
		for _, m := range r.Members {
			id := applied.ApplicationID(r.Of(),
				fleet.EnvironmentID{Tenant: r.Tenant, Name: m.Environment})
			if h, held := s.HeldBy(calendar, fleet.FreezeChanges, id); held {
				out[m.Key] = h.String()
			}
		}
		return out
	})
}

// Thaws reports whether a freeze that held changes or deletions is over.
func (w *AppliedState) Thaws(now time.Time) bool {
	return read(w, func(s *applied.State) bool { return s.Thaws(now) })
}

// Rebuilt reports whether argosy rebuild dropped the mirror and nothing was applied since.
func (w *AppliedState) Rebuilt() bool {
	return read(w, func(s *applied.State) bool { return s.Rebuilt && !s.Started() })
}

// AwaitsReview lists, sorted, the spans of files or deletions that are held without a known review.
// It costs what is held.
func (w *AppliedState) AwaitsReview() []reviews.Span {
	return read(w, func(s *applied.State) []reviews.Span {
		seen := map[reviews.Span]bool{}
		var out []reviews.Span
		add := func(span reviews.Span) {
			if !seen[span] {
				seen[span] = true
				out = append(out, span)
			}
		}
		for _, h := range s.Held.Base() {
			if h.Reason == mirror.HoldUnreviewed {
				add(h.Span())
			}
		}
		for _, h := range s.Unreviewed {
			add(h.Span())
		}
		slices.SortFunc(out, func(a, b reviews.Span) int {
			return cmp.Or(cmp.Compare(a.Base, b.Base), cmp.Compare(a.Head, b.Head))
		})
		return out
	})
}

// HeldSets lists, sorted by path, the files of sets that are held without a known review. It costs
// what is held.
func (w *AppliedState) HeldSets() []catalog.Input {
	return read(w, func(s *applied.State) (sets []catalog.Input) {
		for _, path := range slices.Sorted(maps.Keys(s.Unreviewed)) {
			in := s.Unreviewed[path].Input
			if in.Key.Kind == fleet.KindGitOpsDeploymentSet && !in.Removed {
				sets = append(sets, in)
			}
		}
		return sets
	})
}

func read[T any](w *AppliedState, from func(*applied.State) T) T {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return from(w.state)
}

// Commit applies a recorded plan of this AppliedState. It panics if another plan was committed
// since the plan was computed: the plan's base is gone, and the store refuses its record too
// (mirror.ErrStale).
func (w *AppliedState) Commit(p *Plan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := p.outcome
	if o == nil || o.base != w || o.version != w.version {
		panic(
			"plan: a plan was committed to a AppliedState that it was not computed from; " +
				"compute it again")
	}
	w.version++
	s := w.state
	if p.outcome.memory != nil {
		s.Memory = p.outcome.memory
	}
	s.RevisionHold = o.revisionHold
	if p.RevisionHold != nil {
		return
	}
	o.declared.After.Commit()
	o.placed.Layers.Commit()
	s.Deferred, s.Blocked, s.Files = o.declared.Deferred, o.placed.Blocked, o.files
	s.Revision, s.Unreviewed, s.Rebuilt, s.Restored = p.Head, o.admission.Held, false, false
}
