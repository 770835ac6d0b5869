// Package plan says what a commit of the config repo changes on the engines, and whether it may. It
// is pure: values in, values out.
//
//	AppliedState    what is applied: declarations, placements, an index of the rows, what waits
//	Compute  AppliedState + changed files -> Plan; the AppliedState stays as it is
//	Commit   folds a recorded Plan into the AppliedState
//
// Rules:
//   - a plan costs what it changes. What honestly touches everything: a change of Fleet.defaults (every Application inherits it); of a Tenant
//     (all of that tenant's placements are looked at again); of an Engine (those that it serves);
//   - computing from any base gives the rows that computing from nothing gives, with the same placements;
//   - manifests are rendered when they change and are not kept: memory holds their hashes;
//   - an Application that goes keeps what it needs until it is proven gone. Argo CD strips the finalizers of an Application whose cluster
//     Secret is missing, and leaves out of the cascade whatever its AppProject no longer permits (getPermittedAppLiveObjects): a Cluster or
//     AppProject that shrinks too early orphans workloads without a word. So a removal takes two plans: the first makes the rows of the
//     Applications absent, and when workers have proven the objects gone (Request.Gone) the next lets go of the rest. Until then the
//     environment stays in force, and so do its claims on namespaces;
//   - deletions beyond the guards are held, one by one, until the revision that asked for them is approved or they are no longer asked for.
//     So are those that nobody reviewed, if reviews are asked for (Request.Review), until somebody turns out to have.
//
// What a worker has to see to: rows are brought to an engine in the order of ObjectKind.Rank,
// absent ones in the opposite order, and the object of an absent Cluster, Repository or AppProject
// row is not deleted while an Application on the engine still refers to it.
package plan

import (
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// Action is what happens to a row.
type Action string

// Actions. A Create or Update is always to be written, also when the stored row has the same hash:
// it may be absent, or differ in its deletion policy or in where its credential is found.
const (
	Create Action = "create"
	Update Action = "update"
	Delete Action = "delete" // the row becomes absent; it goes when the object is proven gone
	Hold   Action = "hold"   // the deletion waits for an approval; the row stays as it is
)

// RowChange is one row that changes.
type RowChange struct {
	Action Action
	// what people call it: deployment@environment, the environment's, credential's or tenant's name
	Subject    string
	Row        fleet.Row // of a Delete or Hold: without manifest
	BeforeHash string    // of the manifest that stood; empty on Create
	Before     []byte    // that manifest, when Request.Explain asked for it

	note string // what a reader should know beside its fields
}

// Counts is what a plan comes to.
type Counts struct {
	Created int `json:"created"` // Applications, as the next three
	Changed int `json:"changed"`
	Deleted int `json:"deleted"`
	Held    int `json:"held"`   // new in this plan
	Rows    int `json:"rows"`   // of every kind that are written
	Placed  int `json:"placed"` // environments that got an engine
}

// Plan is what one revision changes. Its slices are sorted, and the same for the same AppliedState and
// Request. It can be read while the AppliedState goes on: only Commit looks back into it.
type Plan struct {
	Base, Head fleet.Revision

	// Waiting is set when the whole revision waits for an approval: its history is no continuation,
	// or it is empty. Its Items are the Applications that the revision would delete. Nothing else
	// of the plan is then applied, and Base stays the applied revision.
	Waiting *fleet.Hold

	Declarations []catalog.Change
	Quarantined  []catalog.Quarantine // new or changed
	Cleared      []fleet.Key          // quarantines that end
	// whose earlier problems are out of date: theirs are in Problems
	Checked  []fleet.Key
	Problems []fleet.Problem

	// new or changed; Engine "" while there is none, and Reason why
	Placements []fleet.Placement
	Unplaced   []fleet.EnvironmentID // whose environment is gone

	// NeedsEngines reports whether an environment that the change concerns is not placed before the
	// engines of Request.Unread are read.
	NeedsEngines bool

	Rows  []RowChange
	Freed []fleet.ObjectKey // rows that were held and no longer are
	// those of Rows' deletions that an approval let through: they do not count against the guards
	Approved []fleet.ObjectKey
	Holds    []fleet.Hold // new or changed
	Ended    []fleet.HoldID

	Syncs          []fleet.SyncRequest
	SyncHolds      []fleet.SyncHold // new
	EndedSyncHolds []fleet.ApplicationID

	Counts Counts
	Hash   string // hexadecimal SHA-256 of what is to be done: free of revisions, times and words

	memory   []byte // the AppliedState's memory after this plan, when it is another one
	timeless []byte // the same without its times
	draft    *draft // what Commit folds in
	quotas   []QuotaUse
	moves    map[fleet.EnvironmentID]Move
	awaited  []fleet.Effect // of Waiting
}

// Empty reports whether there is nothing to do but to record the revision.
func (p *Plan) Empty() bool {
	r := p.Record()
	return r.Empty()
}

// Record is the plan as the store takes it. The caller adds what only it knows: the commit's
// author, subject and time, and the ciphertexts of sealed files.
func (p *Plan) Record() fleet.Record {
	r := fleet.Record{Base: p.Base, Revision: p.Head, PlanHash: p.recordKey(), Holds: p.Holds,
		EndedHold: p.Ended, Memory: p.memory}
	if p.Waiting != nil {
		r.Withheld = true
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
	for _, q := range p.Quarantined {
		r.Quarantined = append(r.Quarantined, fleet.Quarantine(q))
	}
	r.Cleared, r.Checked, r.Problems = p.Cleared, p.Checked, p.Problems
	r.Placements, r.Unplaced = p.Placements, p.Unplaced
	r.Released, r.Syncs, r.SyncHolds, r.EndedSyncHolds = p.Freed, p.Syncs, p.SyncHolds,
		p.EndedSyncHolds
	approved := map[fleet.ObjectKey]bool{}
	for _, k := range p.Approved {
		approved[k] = true
	}
	for _, c := range p.Rows {
		if c.Action == Hold {
			r.Held = append(r.Held, c.Row.Key)
			continue
		}
		r.Rows = append(r.Rows, c.Row)
		if c.Action == Delete && c.Row.Key.Kind == fleet.ObjectApplication && !approved[c.Row.Key] {
			r.Deletions = append(r.Deletions, fleet.Deletion{Key: c.Row.Key, Tenant: c.Row.Tenant,
				Environment: c.Row.Environment, Deployment: c.Row.Deployment, Revision: p.Head})
		}
	}
	return r
}
