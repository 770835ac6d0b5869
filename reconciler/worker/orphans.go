package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// orphans finds live objects of ours without a row.
type orphans struct {
	*connection
	enqueue func(mirror.Row) error

	mu      sync.Mutex
	known   map[fleet.ObjectKey]bool // as the store lists them
	pending map[fleet.ObjectKey]bool // objects whose rows must be read again
	// every object of the engine was pending since the session began; its report is recorded
	relisted, recorded bool
}

func newOrphans(c *connection, enqueue func(mirror.Row) error) *orphans {
	return &orphans{connection: c, enqueue: enqueue, known: map[fleet.ObjectKey]bool{},
		pending: map[fleet.ObjectKey]bool{}}
}

// recheck asks check to read the rows of these objects. It never blocks.
func (o *orphans) recheck(keys []fleet.ObjectKey) {
	o.mu.Lock()
	for _, key := range keys {
		o.pending[key] = true
	}
	o.mu.Unlock()
	o.Wake()
}

// check reads the rows of pending objects. An object of ours without a row is an orphan. A failed
// read stays pending.
func (o *orphans) check(ctx context.Context) error {
	o.mu.Lock()
	keys := slices.Collect(maps.Keys(o.pending))
	clear(o.pending)
	record := o.relisted && !o.recorded
	o.mu.Unlock()
	for len(keys) > 0 {
		part := keys[:min(len(keys), readBatch)]
		if err := o.read(ctx, part); err != nil {
			o.recheck(keys)
			return err
		}
		keys = keys[len(part):]
	}
	if store, ok := o.Reports.(Inventories); ok && record {
		if err := store.ReportInventory(ctx, o.lease.Lease()); err != nil {
			return err
		}
		o.mu.Lock()
		o.recorded = true
		o.mu.Unlock()
	}
	return nil
}

// read queues the rows of these objects, and reports objects without a row.
func (o *orphans) read(ctx context.Context, keys []fleet.ObjectKey) error {
	rows, err := o.Rows.RowsByKey(ctx, o.Engine, keys)
	if err != nil {
		return fmt.Errorf("read rows of engine %s: %w", o.Engine, err)
	}
	named := map[fleet.ObjectKey]bool{}
	for _, row := range rows {
		named[row.Key] = true
		if err := o.enqueue(row); err != nil {
			return err
		}
	}
	var found []mirror.Orphan
	var gone []fleet.ObjectKey
	for _, key := range keys {
		live, there := o.target.Live(key)
		switch {
		case !named[key] && there && live.Ours:
			found = append(found, mirror.Orphan{
				Key: key, Tenant: live.Tenant, Environment: live.Environment,
				Deployment: live.Deployment,
				UID:        live.UID, Revision: live.Revision, Epoch: live.Epoch,
				Pure: !live.Drifted && !live.Leaving && !live.Arriving && live.Manager == "",
			})
		case o.listed(key):
			gone = append(gone, key)
		}
	}
	if len(found)+len(gone) == 0 {
		return nil
	}
	if err := o.Reports.ReportOrphans(ctx, o.lease.Lease(), found, gone); err != nil {
		return fmt.Errorf("report orphans of engine %s: %w", o.Engine, err)
	}
	for _, f := range found {
		if !o.listed(f.Key) {
			o.Log.Warn("an object of ours has no row", "engine", o.Engine, "kind", f.Key.Kind,
				"name", f.Key.Name, "uid", f.UID)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range found {
		o.known[f.Key] = true
	}
	for _, key := range gone {
		delete(o.known, key)
	}
	return nil
}

// listed reports whether the store lists an object as an orphan.
func (o *orphans) listed(key fleet.ObjectKey) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[key]
}

// relist rechecks objects without a row and listed orphans: in the meantime a row may have been
// created, or an object deleted.
func (o *orphans) relist(ctx context.Context, rowless map[fleet.ObjectKey]bool) error {
	listed, err := o.Rows.OrphanKeys(ctx, o.Engine)
	if err != nil {
		return fmt.Errorf("verify engine %s: %w", o.Engine, err)
	}
	o.mu.Lock()
	o.known = map[fleet.ObjectKey]bool{}
	for _, key := range listed {
		o.known[key], o.pending[key] = true, true
	}
	for key := range rowless {
		o.pending[key] = true
	}
	o.relisted = true
	o.mu.Unlock()
	o.Wake()
	return nil
}
