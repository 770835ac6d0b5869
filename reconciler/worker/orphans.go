package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// recheck asks for the rows of these objects to be read at the next turn. It never waits.
func (s *session) recheck(keys []fleet.ObjectKey) {
	s.mu.Lock()
	for _, key := range keys {
		s.looks[key] = true
	}
	s.mu.Unlock()
	s.Wake()
}

// look reads the rows of the objects that a recheck was asked for. An object of ours without a row
// is a stray. What could not be read is read at the next turn.
func (s *session) look(ctx context.Context) error {
	s.mu.Lock()
	keys := slices.Collect(maps.Keys(s.looks))
	clear(s.looks)
	s.mu.Unlock()
	for len(keys) > 0 {
		part := keys[:min(len(keys), readBatch)]
		if err := s.check(ctx, part); err != nil {
			s.recheck(keys)
			return err
		}
		keys = keys[len(part):]
	}
	return nil
}

// check puts the rows of these objects, and reports those that have none.
func (s *session) check(ctx context.Context, keys []fleet.ObjectKey) error {
	rows, err := s.Rows.RowsByKey(ctx, s.Engine, keys)
	if err != nil {
		return fmt.Errorf("read rows of engine %s: %w", s.Engine, err)
	}
	named := map[fleet.ObjectKey]bool{}
	for _, row := range rows {
		named[row.Key] = true
		if err := s.take(row); err != nil {
			return err
		}
	}
	var found []mirror.Orphan
	var gone []fleet.ObjectKey
	for _, key := range keys {
		live, there := s.target.Live(key)
		switch {
		case !named[key] && there && live.Ours:
			found = append(found, mirror.Orphan{
				Key: key, Tenant: live.Tenant, Environment: live.Environment,
				Deployment: live.Deployment,
				UID:        live.UID, Revision: live.Revision, Epoch: live.Epoch,
				Pure: !live.Drifted && live.Manager == "",
			})
		case s.listed(key):
			gone = append(gone, key)
		}
	}
	if len(found)+len(gone) == 0 {
		return nil
	}
	if err := s.Rows.ReportOrphans(ctx, s.lease.Lease(), found, gone); err != nil {
		return fmt.Errorf("report strays of engine %s: %w", s.Engine, err)
	}
	for _, f := range found {
		if !s.listed(f.Key) {
			s.Log.Warn("an object of ours has no row", "engine", s.Engine, "kind", f.Key.Kind,
				"name", f.Key.Name, "uid", f.UID)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range found {
		s.orphans[f.Key] = true
	}
	for _, key := range gone {
		delete(s.orphans, key)
	}
	return nil
}

// listed reports whether an object is known as a stray.
func (s *session) listed(key fleet.ObjectKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orphans[key]
}

// inventory is every object of ours that the engine shows.
func (s *session) inventory() map[fleet.ObjectKey]bool {
	all := map[fleet.ObjectKey]bool{}
	for _, live := range s.target.Inventory() {
		all[live.Key] = true
	}
	return all
}

// lookAgain rechecks the objects that a verifying pass has met no row of, and those that are listed
// as strays: a row may have come, and an object gone, while nobody watched.
func (s *session) lookAgain(ctx context.Context, rowless map[fleet.ObjectKey]bool) error {
	listed, err := s.Rows.OrphanKeys(ctx, s.Engine)
	if err != nil {
		return fmt.Errorf("verify engine %s: %w", s.Engine, err)
	}
	s.mu.Lock()
	s.orphans = map[fleet.ObjectKey]bool{}
	for _, key := range listed {
		s.orphans[key] = true
	}
	s.mu.Unlock()
	s.recheck(append(listed, slices.Collect(maps.Keys(rowless))...))
	return nil
}

// withdraw takes back that a row is applied when its object is not what the row wants: it says
// nothing of an object that was deleted, changed, or lost with the engine's state.
func (s *session) withdraw(row mirror.RowHead) {
	if row.Unwanted || row.Apply != mirror.ApplyApplied {
		return
	}
	message := "the engine has another version of it; it is applied again"
	if _, there := s.target.Live(row.Key); !there {
		message = "the engine no longer has it; it is created again"
	}
	s.acks.Add(mirror.Ack{Key: row.Key, Seq: row.Seq, Hash: row.Hash, State: mirror.ApplyPending,
		Message: message})
}

// reportBack says that the engine's whole state is from before what it has shown: rows are held
// against it anew.
func (s *session) reportBack(ctx context.Context, how string) {
	s.Log.Warn("the engine went back in time, as after a restore from a backup; it is verified",
		"engine", s.Engine, "how", how)
	if err := s.Rows.ReportWentBack(ctx, s.lease.Lease(), short(how)); err != nil {
		s.Log.Warn("failed to record that the engine went back in time", "engine", s.Engine,
			"error", err)
	}
}
