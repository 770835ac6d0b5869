package chaos

import (
	"fmt"
	"maps"
	"slices"
	"time"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan"
	"argosy.dev/argosy/reconciler/postgres"
)

// maxDeletes is the guard of the histories' fleet: so many deletions of a tenant's Applications
// within guardWindow need no approval. The window is longer than any history.
const (
	maxDeletes  = 3
	guardWindow = time.Hour
)

// judge checks the store after the fleet converged.
func (w *setup) judge() error {
	store, err := postgres.Open(w.ctx, *w.direct.Load(), postgres.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := w.withinGuards(store); err != nil {
		return err
	}
	return w.fromNothing(store)
}

// withinGuards: what was deleted without an approval stayed within the guards.
func (w *setup) withinGuards(store *postgres.Store) error {
	recent, err := store.Plans.Recent(w.ctx, guardWindow)
	if err != nil {
		return err
	}
	// Deletions that an approval released do not count against the guards and are not in this list.
	of := map[fleet.TenantName]int{}
	for _, d := range recent.Deleted {
		of[d.Tenant]++
	}
	for tenant, n := range of {
		if n > maxDeletes {
			return fmt.Errorf(
				"%d Applications of tenant %s were deleted without an approval; the guard allows %d", n, tenant, maxDeletes)
		}
	}
	return nil
}

// fromNothing plans the head into an empty AppliedState that knows the placements only: its rows
// are the current ones.
func (w *setup) fromNothing(store *postgres.Store) error {
	now, err := store.Plans.Load(w.ctx)
	if err != nil {
		return err
	}
	empty, err := plan.RestoreAppliedState(mirror.Snapshot{Placements: now.Placements,
		SyncHolds: now.SyncHolds})
	if err != nil {
		return err
	}
	var files []catalog.Input
	for _, path := range slices.Sorted(maps.Keys(w.content)) {
		if _, ours, _ := configschema.Classify(path); ours {
			d := configschema.Decode(configschema.File{Path: path, Bytes: []byte(w.content[path])})
			files = append(files, catalog.Input{Key: d.Key, Path: d.Path,
				Declaration: d.Declaration, Problems: d.Problems})
		}
	}
	p, err := empty.Compute(plan.Request{Revision: fleet.Revision(w.head), Files: files,
		Now: time.Now()}, argocd.Renderer{})
	if err != nil {
		return err
	}
	applied := map[fleet.ObjectKey]mirror.Row{}
	for name := range w.engines {
		rows, err := store.Work.Changed(w.ctx, fleet.EngineName(name), 0, 10_000)
		if err != nil {
			return err
		}
		for _, r := range rows {
			applied[r.Key] = r
		}
	}
	for _, c := range p.Rows {
		row, ok := applied[c.Row.Key]
		if !ok || row.Manifest.Hash != c.Row.Manifest.Hash {
			return fmt.Errorf("%s %s of %s: a plan from nothing has\n%s\nand the store has\n%s",
				c.Row.Key.Kind, c.Row.Key.Name, c.Row.Key.Engine, c.Row.Manifest.Body,
				row.Manifest.Body)
		}
		delete(applied, c.Row.Key)
	}
	for key := range applied {
		return fmt.Errorf("%s %s is applied, and a plan from nothing does not have it", key.Kind,
			key.Name)
	}
	return nil
}
