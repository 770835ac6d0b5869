package plan

import (
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// Judging gives the AppliedState the judge of its policies, and returns the AppliedState. Without one, policies
// judge nothing. It is not called beside a Compute.
func (w *AppliedState) Judging(j catalog.Judge) *AppliedState {
	w.catalog.Judging(j)
	return w
}

// judged stages what the catalog is shown. Where something of ours stands already, or may stand on
// an engine that was not read, the first revision of a AppliedState is that of a rebuild, and brings
// nothing that did not stand before.
func (w *AppliedState) judged(in []catalog.Input, again []fleet.Key, d *draft) *catalog.Changeset {
	if !d.started && (len(d.r.Unread)+len(d.r.Unheard)+len(d.r.Stands) > 0 ||
		len(w.placements.base)+len(w.syncHolds.base) > 0) {
		return w.catalog.Resume(in, again...)
	}
	return w.catalog.Prepare(in, again...)
}
