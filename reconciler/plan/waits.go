package plan

import (
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
)

// Blocked reports whether the applied plan placed nothing because an engine was not read
// (Request.Unread), or not all because the agent of one was not heard (Request.Unheard).
func (w *AppliedState) Blocked() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.blocked
}

// Awaits reports whether anything waits for an approval: approvals are worth reading.
func (w *AppliedState) Awaits() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.waiting != nil || len(w.held.base)+len(w.unreviewed) > 0
}

// waits says why the whole revision waits for an approval, or "".
func (d *draft) waits() (fleet.HoldReason, string) {
	switch {
	case !d.started && d.r.Rebuilt != "":
		return fleet.HoldUnreviewed, d.r.Rebuilt
	case !d.started || d.r.Revision == d.w.revision:
		return "", ""
	}
	switch d.r.Relation {
	case RelationSame, RelationDescendant:
	case RelationOlder:
		return fleet.HoldOlder, fmt.Sprintf("the branch went back from %s to the older %s",
			d.w.revision.Short(), d.r.Revision.Short())
	default:
		return fleet.HoldRewritten,
			fmt.Sprintf("the branch was rewritten: %s does not descend from %s",
				d.r.Revision.Short(), d.w.revision.Short())
	}
	switch was, now := d.w.files, d.filesNow; {
	case was.tenants > 0 && now.tenants == 0:
		return fleet.HoldEmpty,
			fmt.Sprintf("the revision holds no declaration under tenants/, where there were %d",
				was.tenants)
	case was.fleet > 0 && now.fleet == 0:
		return fleet.HoldEmpty,
			fmt.Sprintf("the revision holds no declaration under fleet/, where there were %d",
				was.fleet)
	}
	return "", ""
}

// waitsFor is the hold of the whole revision, or nil. One that was listed before keeps its date;
// one that was approved since is over. It lists the Applications that the revision would delete, so
// that the approval lets exactly those go.
func (w *AppliedState) waitsFor(d *draft) *fleet.Hold {
	reason, why := d.waits()
	if reason == "" {
		return nil
	}
	h := &fleet.Hold{Revision: d.r.Revision, Reason: reason, Message: why, Since: d.r.Now}
	if was := w.waiting; was != nil && was.ID() == h.ID() {
		if d.approvedSince(was.Revision, was.Since) {
			return nil
		}
		h.Since = was.Since
	}
	for _, u := range d.unwanted {
		if u.was == nil { // what was held before was asked for by another revision
			h.Items = append(h.Items, u.key)
		}
	}
	slices.SortFunc(h.Items, compareKeys)
	return h
}

// files counts the declarations that stand at the head, good or bad.
type files struct{ fleet, tenants int }

func (f *files) add(k fleet.Key, n int) {
	switch {
	case k.Kind == fleet.KindFile: // is no declaration
	case k.Tenant == "":
		f.fleet += n
	default:
		f.tenants += n
	}
}

func (d *draft) filesAtHead() files {
	now := d.w.files
	present := map[fleet.Key]bool{}
	for _, i := range d.r.Files {
		present[i.Key] = present[i.Key] || !i.Removed
	}
	for k, is := range present {
		now.add(k, use(b2i(is))-use(b2i(d.w.atHead(k))))
	}
	return now
}

// atHead reports whether the base revision has the file.
func (w *AppliedState) atHead(k fleet.Key) bool {
	if x, ok := w.deferred[k]; ok {
		return !x.Input.Removed
	}
	if q, ok := w.catalog.Quarantine(k); ok {
		return !q.Removed
	}
	return w.catalog.Declaration(k) != nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
