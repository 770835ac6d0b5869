// Package effective decides which declarations a revision brings into effect: what the catalog
// accepts, without the changes that are deferred, refused or not reviewed.
package effective

import (
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/reconciler/plan/applied"
)

// Input is a revision over the applied state.
type Input struct {
	Applied *applied.State
	Files   []catalog.Input   // changed, and admitted by Admit
	Deleted []fleet.ObjectKey // unwanted objects that workers have proven deleted

	// Thaws is set if a freeze ends, or a person releases what it holds.
	Thaws bool

	UnreadPools []string // whose instances are not known: see plan.Request

	// Resume is set for the first revision after a rebuild. It brings nothing into effect that was
	// not in effect before.
	Resume bool
}

// Declarations is the phase's result.
type Declarations struct {
	After    *catalog.Changeset // the declarations in effect after the plan
	Changes  []catalog.Change
	Fleet    fleet.FleetSpec
	Deferred map[fleet.Key]applied.Deferred // after the plan
	Removing map[fleet.EnvironmentID]bool   // environments whose removal is deferred

	applied *applied.State
	files   []catalog.Input
}

// Compute returns the declarations in effect under the limits that earlier rounds of the plan
// found. The applied state stays as it is.
func Compute(in Input, limits *Limits) *Declarations {
	d := compute(in, limits)
	if limits.keepConnections(d, in.Deleted) {
		d = compute(in, limits)
	}
	return d
}

func compute(in Input, limits *Limits) *Declarations {
	d := &Declarations{
		Deferred: maps.Clone(limits.deferred), applied: in.Applied, files: in.Files,
	}
	d.After = d.stage(d.inputs(in, limits), in, limits)
	d.Changes, d.Fleet = d.After.Changes(), d.After.Fleet()
	for _, x := range d.Deferred {
		if x.Removing {
			applied.Set(&d.Removing, applied.EnvironmentID(x.Input.Key), true)
		}
	}
	return d
}

// inputs returns the files that the catalog judges: the changed files, and the files that were
// deferred before unless they changed again. A plan without any change since the last one cannot
// let a deferred file in: then it stays deferred.
func (d *Declarations) inputs(in Input, limits *Limits) []catalog.Input {
	files := slices.Clone(in.Files)
	changed := map[fleet.Key]bool{}
	for _, i := range in.Files {
		changed[i.Key] = true
	}
	before := d.applied.Deferred
	retry := len(in.Files)+len(in.Deleted) > 0 || in.Thaws || d.applied.Restored
	for _, k := range slices.SortedFunc(maps.Keys(before), applied.CompareDeclarations) {
		if x := before[k]; !changed[k] && retry {
			files = append(files, x.Input)
		} else if !changed[k] {
			applied.Set(&d.Deferred, k, x)
		}
	}
	return reduced(&d.applied.Catalog.View, files, limits.deferred)
}

// stage judges the files. If the result contains refused changes, or changes that would take an
// engine away from existing objects, it judges the files again without these changes.
func (d *Declarations) stage(files []catalog.Input, in Input, limits *Limits) *catalog.Changeset {
	judge := d.applied.Catalog.Prepare
	if in.Resume {
		judge = d.applied.Catalog.Resume
	}
	recheck := slices.SortedFunc(maps.Keys(limits.recheck), applied.CompareDeclarations)
	s := judge(files, recheck...)
	refused := slices.Collect(maps.Values(limits.refused))
	// not only files: a quarantined file may be good because of another
	for _, c := range s.Changes() {
		problem, inUse := d.inUse(c, in.Deleted)
		if !inUse {
			problem, inUse = d.unread(c, in.UnreadPools)
		}
		if inUse {
			refused = append(refused, problem)
			applied.Set(&d.Deferred, c.Key, applied.Deferred{Input: d.head(c.Key)})
		}
	}
	if len(refused) == 0 {
		return s
	}
	return s.Refuse(refused...)
}

// head returns the file that the plan's head has for a key.
func (d *Declarations) head(k fleet.Key) catalog.Input {
	in, found := catalog.Input{}, false
	for _, i := range d.files {
		// a moved file is removed at one path, added at another
		if i.Key == k && (!found || !i.Removed) {
			in, found = i, true
		}
	}
	if !found {
		in = d.applied.Head(k)
	}
	return in
}
