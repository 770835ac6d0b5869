package plan

import (
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
)

// Judging gives the World the judge of its policies, and returns the World. Without one, policies
// judge nothing. It is not called beside a Compute.
func (w *World) Judging(j catalog.Judge) *World {
	w.catalog.Judging(j)
	return w
}

// judged stages what the catalog is shown. Where something of ours stands already, or may stand on
// an engine that was not read, the first revision of a World is that of a rebuild, and brings
// nothing that did not stand before.
func (w *World) judged(in []catalog.Input, again []fleet.Key, d *draft) *catalog.Stage {
	if !d.started && (len(d.r.Unread)+len(d.r.Unheard)+len(d.r.Stands) > 0 ||
		len(w.placements.base)+len(w.syncHolds.base) > 0) {
		return w.catalog.Resume(in, again...)
	}
	return w.catalog.Stage(in, again...)
}
