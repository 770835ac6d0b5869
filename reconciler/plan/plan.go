// Package plan computes what a commit of the config repo changes on the engines, and whether it
// may. It is pure: values in, values out.
//
//	AppliedState  declarations in effect, placements, an index of the rows, waiting changes
//	Compute       AppliedState + changed files -> Plan; the AppliedState stays as it is
//	Commit        applies a recorded Plan to the AppliedState
//
// Compute runs the phases in their order, each in a package of its own: effective > place >
// guard > diff. A phase's result may defer or refuse a change of the commit; then the phases run
// again without it (see converge). The package report has the forms of a plan for readers.
//
// Rules:
//   - a plan costs what it changes. Some changes touch much: a change of Fleet.defaults every
//     Application, since each inherits them; a change of a Tenant all of its placements; a
//     change of an Engine all environments that it serves;
//   - the rows computed from any applied state equal the rows computed from nothing, given the
//     same placements;
//   - manifests are rendered when they change and are not kept: memory holds their hashes;
//   - a deleted Application keeps what it needs until its object is proven deleted. Argo CD
//     strips the finalizers of an Application whose cluster Secret is missing, and leaves out of
//     the cascade whatever its AppProject no longer permits (getPermittedAppLiveObjects): a
//     Cluster or AppProject that shrinks too early silently orphans workloads. So a removal
//     takes two plans: the first makes the Applications' rows unwanted, and when workers have
//     proven the objects deleted (Request.Deleted) the next one removes the rest. Until then the
//     environment stays in effect, with its claims on namespaces;
//   - deletions beyond the guards are held, each on its own, until the revision that asked for
//     them is approved or no longer asks for them. If reviews are required
//     (Request.DeletionReviews), deletions without a known review are held too.
//
// A worker must apply rows to an engine in the order of ObjectKind.Rank, and unwanted rows in
// the opposite order. It must not delete the object of an unwanted Cluster, Repository or
// AppProject row while an Application on the engine still refers to it.
package plan

import (
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/diff"
	"argosy.dev/argosy/reconciler/plan/place"
	"argosy.dev/argosy/reconciler/plan/report"
)

// Plan is the changes of one revision. Its slices are sorted, and equal for equal AppliedStates and
// Requests. It stays readable after later Commits.
type Plan struct {
	Base, Head fleet.Revision

	// RevisionHold is set when the whole revision waits for an approval: it does not continue the
	// applied history, or it is empty. Its Items are the Applications that the revision would
	// delete. Then nothing else of the plan is applied, and Base stays the applied revision.
	RevisionHold *mirror.Hold

	Declarations []catalog.Change
	Quarantined  []fleet.Quarantine // new or changed
	Cleared      []fleet.Key        // quarantines that end
	Checked      []fleet.Key        // Problems replaces their earlier problems
	Problems     []fleet.Problem

	Placements []fleet.Placement     // new or changed; without an Engine, Reason explains why
	Unplaced   []fleet.EnvironmentID // environments that are removed
	Relabelled []fleet.SliceID       // slices that were split or joined

	// NeedsEngines reports whether an environment that the change concerns stays unplaced until the
	// engines of Request.Unread are read.
	NeedsEngines bool

	Rows  []diff.RowChange
	Freed []fleet.ObjectKey // rows that are no longer held
	// deletions of Rows that an approval released: they do not count against the guards
	Approved []fleet.ObjectKey
	Holds    []mirror.Hold // new or changed
	Ended    []mirror.HoldID

	Begun   []place.Move             // moves that begin
	Refused map[fleet.SliceID]string // requested moves, with the reason

	Syncs          []mirror.SyncRequest
	SyncHolds      []mirror.SyncHold // new
	EndedSyncHolds []fleet.ApplicationID
	Rollbacks      []string // actions that the plan has taken

	Rollouts []mirror.Rollout // that begin, take a step or end
	LastGood []mirror.RolloutManifest

	Counts report.Counts
	Hash   string // hexadecimal SHA-256 of the changes, without revisions, times and messages

	outcome *outcome // that Commit applies
}

// Empty reports whether recording the revision is all that is left to do.
func (p *Plan) Empty() bool {
	r := p.Record()
	return r.Empty()
}

// FileBlob returns the blob of the file of a set or a pool that generates a declaration, given its
// path. It is empty for a declaration with a file of its own.
func (p *Plan) FileBlob(k fleet.Key, path string) string {
	from, generated := fleet.PoolOf(k, path)
	if set, ofSet := fleet.SetOf(k, path); ofSet {
		from, generated = fleet.SetKey(k.Tenant, set), true
	}
	if !generated || p.outcome == nil || p.outcome.declared == nil {
		return ""
	}
	d := p.outcome.declared.After.Declaration(from)
	if d == nil {
		return ""
	}
	return d.Blob
}

// Record returns the plan for the store. The caller adds the commit's author, subject and time, and
// the ciphertexts of sealed files.
func (p *Plan) Record() mirror.Record {
	r := mirror.Record{Base: p.Base, Revision: p.Head, PlanHash: p.recordKey(), Holds: p.Holds,
		EndedHold: p.Ended, Memory: p.outcome.memory}
	if p.RevisionHold != nil {
		r.RevisionHeld = true
		return r
	}
	r.Created, r.Changed, r.Deleted, r.HeldBack = p.Counts.Created, p.Counts.Changed,
		p.Counts.Deleted, p.Counts.Held
	for _, c := range p.Declarations {
		if c.After == nil {
			r.Removed = append(r.Removed, c.Key)
		} else {
			r.Declarations = append(r.Declarations, *c.After)
		}
	}
	r.Quarantined = p.Quarantined
	r.Cleared, r.Checked, r.Problems = p.Cleared, p.Checked, p.Problems
	r.Placements = p.Placements
	r.Unplaced = p.noLongerPlaced()
	r.Released, r.Syncs, r.SyncHolds, r.EndedSyncHolds = p.Freed, p.Syncs, p.SyncHolds,
		p.EndedSyncHolds
	r.Rollbacks = p.Rollbacks
	for _, m := range p.Begun {
		r.Moves = append(r.Moves, mirror.Move{MoveRequest: mirror.MoveRequest{
			Environment: m.Environment, Slice: m.Slice, Split: m.Split, To: m.To, Undo: m.Undo,
			Evacuates: m.Evacuates},
			From:         m.From,
			Applications: m.Applications})
	}
	r.Rollouts, r.LastGood = p.Rollouts, p.LastGood
	approved := map[fleet.ObjectKey]bool{}
	for _, k := range p.Approved {
		approved[k] = true
	}
	for _, c := range p.Rows {
		if c.Action == report.Hold || c.Action == report.Freeze {
			r.Held = append(r.Held, c.Row.Key)
			continue
		}
		if c.Action == report.Wave {
			continue
		}
		r.Rows = append(r.Rows, c.Row)
		if c.Action == report.Delete && c.Row.Key.Kind == fleet.ObjectApplication &&
			!approved[c.Row.Key] {
			r.Deletions = append(
				r.Deletions, mirror.Deletion{
					Key: c.Row.Key, Tenant: c.Row.Tenant, Environment: c.Row.Environment,
					Deployment: c.Row.Deployment, Revision: p.Head})
		}
	}
	return r
}

// noLongerPlaced returns the slices whose placements the store forgets, sorted. After a rebuild,
// the store may have an environment without an engine as a whole, and the engines its slices.
func (p *Plan) noLongerPlaced() []fleet.SliceID {
	out := slices.Clone(p.Relabelled)
	for _, id := range p.Unplaced {
		out = append(out, p.outcome.base.state.SlicesOf(id)...)
	}
	for _, pl := range p.Placements {
		for s := pl.Slice; s != ""; {
			s = s.Parent()
			out = append(out, pl.Environment.Slice(s))
		}
	}
	slices.SortFunc(out, fleet.SliceID.Compare)
	return slices.Compact(out)
}
