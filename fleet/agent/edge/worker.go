package edge

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

// This file implements the interfaces of a worker.

// read calls use with the mirror, or returns ErrNotRead.
func (f *Follower) read(name fleet.EngineName, use func(*rowCache) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mirror == nil {
		return ErrNotRead
	}
	if name != f.mirror.engine {
		return fmt.Errorf("engine %s is not the agent's engine %s", name, f.mirror.engine)
	}
	return use(f.mirror)
}

// Changed returns the rows above after, in order, at most limit; mirror.ErrFenced if after belongs
// to a replaced mirror.
func (f *Follower) Changed(_ context.Context, name fleet.EngineName, after int64,
	limit int) (rows []mirror.Row, err error) {
	err = f.read(name, func(m *rowCache) error {
		if f.leasedGeneration != f.generation {
			return fmt.Errorf("%w: %w", errResync, mirror.ErrFenced)
		}
		rows = f.markLocked(m.changed(after, limit)...)
		return nil
	})
	return rows, err
}

// RowHeads visits the heads of all rows at one moment.
func (f *Follower) RowHeads(_ context.Context, name fleet.EngineName,
	visit func(mirror.RowHead) error) error {
	var rows []mirror.Row
	if err := f.read(name, func(m *rowCache) error { rows = m.all(); return nil }); err != nil {
		return err
	}
	for _, row := range rows {
		if err := visit(row.Head()); err != nil {
			return err
		}
	}
	return nil
}

// Row returns one row.
func (f *Follower) Row(_ context.Context, key fleet.ObjectKey) (row mirror.Row, ok bool,
	err error) {
	err = f.read(key.Engine, func(m *rowCache) error {
		have, there := m.rows[key]
		row, ok = have.row, there
		row.Moving = f.movingLocked(have)
		return nil
	})
	return row, ok, err
}

// LeasedRow is Row under the session's lease.
func (f *Follower) LeasedRow(ctx context.Context, lease mirror.Lease,
	key fleet.ObjectKey) (row mirror.Row, ok bool, err error) {
	if err := f.checkLease(lease); err != nil {
		return row, false, err
	}
	return f.Row(ctx, key)
}

// RowsByKey returns the rows of these objects and skips objects without one.
func (f *Follower) RowsByKey(_ context.Context, name fleet.EngineName,
	keys []fleet.ObjectKey) (rows []mirror.Row, err error) {
	err = f.read(name, func(m *rowCache) error {
		for _, key := range keys {
			if have, ok := m.rows[key]; ok {
				rows = append(rows, have.row)
			}
		}
		f.markLocked(rows...)
		return nil
	})
	return rows, err
}

// OrphanKeys returns none: the hub maintains the list from the agent's status.
func (f *Follower) OrphanKeys(context.Context, fleet.EngineName) ([]fleet.ObjectKey, error) {
	return nil, nil
}

// ReportOrphans reports the agent's status, which has the complete list of orphans.
func (f *Follower) ReportOrphans(_ context.Context, lease mirror.Lease, _ []mirror.Orphan,
	_ []fleet.ObjectKey) error {
	if err := f.checkLease(lease); err != nil {
		return err
	}
	f.reportStatus()
	return nil
}

// CredentialRows returns the rows that need a secret.
func (f *Follower) CredentialRows(_ context.Context, name fleet.EngineName, tenant fleet.TenantName,
	secret string) (rows []mirror.Row, err error) {
	err = f.read(name, func(m *rowCache) error {
		for _, have := range m.rows {
			if c := have.row.Credential; c != nil && c.Tenant == tenant && c.Name == secret {
				rows = append(rows, have.row)
			}
		}
		return nil
	})
	return rows, err
}

// checkLease returns ErrFenced unless the lease is the session's.
func (f *Follower) checkLease(lease mirror.Lease) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.validLocked(lease) {
		return mirror.ErrFenced
	}
	return nil
}

// validLocked reports whether the lease was granted by the last session. It stays valid during an
// outage.
func (f *Follower) validLocked(lease mirror.Lease) bool {
	return f.final == nil && f.misplaced == nil && f.mirror != nil &&
		lease.Epoch == f.hello.Epoch && f.leasedGeneration == f.generation
}

// Acknowledge queues the results of handled rows.
func (f *Follower) Acknowledge(_ context.Context, lease mirror.Lease, acks []mirror.Ack) error {
	if err := f.checkLease(lease); err != nil {
		return err
	}
	reports := make([]agent.Ack, 0, len(acks))
	heldChanged := false // the set of held deletions has changed
	for _, a := range acks {
		if f.Held != nil && !a.Removed && (a.State == mirror.ApplyFailed ||
			a.State == mirror.ApplyDeleting) {
			if why, waits := f.Held(a.Key); waits {
				a.State, a.Message = mirror.ApplyHeld, why
			}
		}
		was, sent, known := f.recordState(a)
		if !known {
			continue
		}
		heldChanged = heldChanged || (was == mirror.ApplyHeld) != (a.State == mirror.ApplyHeld)
		reports = append(reports, agent.Ack{Kind: a.Key.Kind, Name: a.Key.Name, Seq: a.Seq,
			State: a.State, Message: a.Message,
			Removed: a.Removed, Hash: sent})
	}
	f.Outbox.Acknowledge(reports...)
	if heldChanged {
		f.reportStatus()
	}
	return nil
}

// recordState stores the new state of a row. It returns the old one, and the hash by which the hub
// knows an acknowledged manifest; false if the row has changed.
func (f *Follower) recordState(a mirror.Ack) (was mirror.ApplyState, sent string, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	have, ok := f.mirror.rows[a.Key]
	if !ok || have.row.Seq != a.Seq || a.Hash != "" && a.Hash != have.row.Manifest.Hash {
		return "", "", false
	}
	if a.Hash != "" {
		sent = have.sent
	}
	was, have.row.Apply = have.row.Apply, a.State
	f.mirror.rows[a.Key] = have
	return was, sent, true
}

// accepted handles an acknowledgement that the hub has accepted: it drops a row whose removal the
// hub knows.
func (f *Follower) accepted(a agent.Ack) {
	if !a.Removed {
		return
	}
	f.mu.Lock()
	dropped := false
	var key fleet.ObjectKey
	if f.mirror != nil {
		key = fleet.ObjectKey{Engine: f.mirror.engine, Kind: a.Kind, Name: a.Name}
		dropped = f.mirror.drop(key, a.Seq)
	}
	f.mu.Unlock()
	if dropped {
		f.Outbox.forget(key)
		f.reportStatus()
	}
}

// Observe queues the state of Applications.
func (f *Follower) Observe(_ context.Context, lease mirror.Lease, seen []mirror.Observation) error {
	if err := f.checkLease(lease); err != nil {
		return err
	}
	reports := make([]agent.Observed, len(seen))
	for i, o := range seen {
		reports[i] = agent.Observed{Name: o.Key.Name, UID: o.UID, Sync: o.Sync, Health: o.Health,
			SyncedRevision: o.SyncedRevision, OperationPhase: o.OperationPhase,
			OperationID: o.OperationID, OperationError: o.OperationError, Message: o.Message,
			Resources: o.Resources, ReconciledAt: o.ReconciledAt,
			ResourceVersion: o.ResourceVersion, Compared: o.Compared, Gone: o.Deleted,
			OperationRevision: o.OperationRevision}
		if o.Images.Reported() {
			reports[i].Images = append([]string{}, o.Images.List()...)
		}
	}
	f.Outbox.Observe(reports...)
	return nil
}

// ReportEngine reports the state of the cluster's Argo CD together with the agent's own.
func (f *Follower) ReportEngine(_ context.Context, lease mirror.Lease,
	report mirror.EngineReport) error {
	if err := f.checkLease(lease); err != nil {
		return err
	}
	f.mu.Lock()
	if report.ArgoCD == "" {
		report.ArgoCD = f.report.ArgoCD
	}
	f.report = report
	f.mu.Unlock()
	f.reportStatus()
	return nil
}

// ReportLocal queues the agent's status after a change of Local.
func (f *Follower) ReportLocal() { f.reportStatus() }

// reportStatus queues the agent's status, once there is one.
func (f *Follower) reportStatus() {
	var local Local
	if f.Local != nil {
		local = f.Local()
	}
	f.mu.Lock()
	if f.report.Engine == "" && f.misplaced == nil {
		f.mu.Unlock()
		return
	}
	s := agent.AgentStatus{Reachable: f.report.Reachable, Message: f.report.Message,
		Unfit: f.report.Unfit, ArgoCD: f.report.ArgoCD, Version: f.Version,
		HeldDeletions: local.Held}
	if local.Hold != "" {
		s.Message = strings.TrimSuffix(local.Hold+"; "+s.Message, "; ")
	}
	if work := f.report.Work; !work.Since.IsZero() {
		s.Work = &work
	}
	s.Load = f.report.Load
	if f.misplaced != nil {
		s.Work, s.Load = nil, nil
		s.Reachable, s.Message, s.Unfit = false, f.misplaced.Error(), ""
	}
	if f.mirror != nil {
		s.PendingDeletions = len(f.deletionsLocked())
		var listed []agent.Orphan
		if s.Orphans, s.Environments, listed = f.mirror.orphans(
			local.Inventory); local.Inventory != nil {
			s.Listed = listed
		}
	}
	s.Unreachable = unreachableList(f.reach)
	f.mu.Unlock()
	f.Outbox.SetStatus(s)
}

// reachMessage bounds the bytes of each error: a status lists up to a thousand.
const reachMessage = 256

// ReportReach reports the agent's status, which has the environments whose clusters cannot be read.
func (f *Follower) ReportReach(_ context.Context, lease mirror.Lease, reports []mirror.Reach,
	whole bool) error {
	if err := f.checkLease(lease); err != nil {
		return err
	}
	f.mu.Lock()
	if whole || f.reach == nil {
		f.reach = map[fleet.EnvironmentID]mirror.Unreachable{}
	}
	for _, r := range reports {
		if delete(f.reach, r.Environment); r.Unreachable != nil {
			f.reach[r.Environment] = *r.Unreachable
		}
	}
	f.mu.Unlock()
	f.reportStatus()
	return nil
}

// ReportWentBack reports the agent's status, which shows what the cluster has lost.
func (f *Follower) ReportWentBack(_ context.Context, lease mirror.Lease, _ string) error {
	if err := f.checkLease(lease); err != nil {
		return err
	}
	f.reportStatus()
	return nil
}

// PendingSyncs returns the open syncs of Applications of the config repo.
func (f *Follower) PendingSyncs(_ context.Context,
	name fleet.EngineName) (pending []mirror.SyncRequest, err error) {
	err = f.read(name, func(m *rowCache) error {
		if !f.syncsRead {
			return ErrNotRead
		}
		for _, s := range f.syncs {
			if s.Namespace != "" {
				continue
			}
			q := mirror.SyncRequest{
				ID: s.ID, Key: fleet.ObjectKey{Engine: name, Kind: fleet.ObjectApplication,
					Name: s.Name}, Revision: s.Revision, Prune: s.Prune, State: f.syncStates[s.ID]}
			if row := m.rows[q.Key].row; row.Key == q.Key {
				q.Tenant, q.Environment, q.Deployment = row.Tenant, row.Environment, row.Deployment
			}
			if q.State == "" {
				q.State = mirror.OperationPending
			}
			pending = append(pending, q)
		}
		return nil
	})
	return pending, err
}

// OwnSyncs returns the open syncs of the cluster's own Applications (fleet.AgentAutonomous);
// ErrNotRead before the first list.
func (f *Follower) OwnSyncs() (own []agent.Sync, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.syncsRead {
		return nil, ErrNotRead
	}
	for _, s := range f.syncs {
		if s.Namespace != "" {
			own = append(own, s)
		}
	}
	return own, nil
}

// UpdateSync queues the state of a sync.
func (f *Follower) UpdateSync(_ context.Context, lease mirror.Lease, id string,
	state mirror.OperationState, message string) error {
	if err := f.checkLease(lease); err != nil {
		return err
	}
	f.mu.Lock()
	f.syncStates[id] = state
	f.mu.Unlock()
	f.Outbox.UpdateSync(agent.SyncStatus{ID: id, State: state, Message: message})
	return nil
}

// ReportOwn queues the cluster's own Applications: the changed ones, or with whole set all of them.
func (f *Follower) ReportOwn(_ context.Context, lease mirror.Lease, own []mirror.OwnApplication,
	whole bool) error {
	if err := f.checkLease(lease); err != nil {
		return err
	}
	f.Outbox.ReportOwn(own, whole)
	return nil
}

// Notify does nothing: the hub wakes its replicas when a report proves a removal.
func (f *Follower) Notify(context.Context, string) error { return nil }

// Deletions lists the Applications that rows ask to delete, or fails before the rows are read; for
// DeletionLimiterConfig.Pending.
func (f *Follower) Deletions() ([]fleet.ObjectKey, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mirror == nil {
		return nil, ErrNotRead
	}
	return f.deletionsLocked(), nil
}

// Leases grants a worker the lease of the Follower's session.
type Leases struct{ f *Follower }

// LeasesOf returns the leases of a worker.
func LeasesOf(f *Follower) Leases { return Leases{f} }

// Acquire returns the session's lease; false before the first complete snapshot and after the end
// of the identity.
func (l Leases) Acquire(_ context.Context, name, _ string, ttl time.Duration) (mirror.Lease, bool,
	error) {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	switch {
	case l.f.final != nil:
		return mirror.Lease{}, false, l.f.final
	case l.f.misplaced != nil:
		return mirror.Lease{}, false, l.f.misplaced
	case l.f.mirror == nil:
		return mirror.Lease{}, false, nil
	}
	l.f.leasedGeneration = l.f.generation
	return l.leaseLocked(name, ttl), true, nil
}

// Renew reports whether the lease is still the session's.
func (l Leases) Renew(_ context.Context, lease mirror.Lease, _ time.Duration) (bool, error) {
	return l.f.checkLease(lease) == nil, nil
}

// RaiseEpoch requests a session with an epoch above floor from the hub and waits for it. If the hub
// is unreachable it waits until ctx ends: another process has written to the objects, so nothing
// may be written until then.
func (l Leases) RaiseEpoch(ctx context.Context, lease mirror.Lease, floor int64) (mirror.Lease,
	error) {
	l.f.Outbox.closeSession() // the report in flight has the old epoch
	l.f.mu.Lock()
	l.f.floor = max(l.f.floor, floor)
	cut := l.f.cut
	l.f.mu.Unlock()
	if cut != nil {
		cut(errRaiseEpoch)
	}
	for {
		l.f.mu.Lock()
		now, changed, final := l.leaseLocked(lease.Name, time.Until(lease.Expires)), l.f.changed,
			l.f.final
		if final == nil && now.Epoch > floor {
			l.f.leasedGeneration = l.f.generation
		}
		l.f.mu.Unlock()
		switch {
		case final != nil:
			return lease, final
		case now.Epoch > floor:
			return now, nil
		}
		select {
		case <-ctx.Done():
			return lease, context.Cause(ctx)
		case <-changed:
		}
	}
}

// Release keeps the lease: it belongs to the process until another one opens a session.
func (l Leases) Release(context.Context, mirror.Lease, string) error { return nil }

func (l Leases) leaseLocked(name string, ttl time.Duration) mirror.Lease {
	return mirror.Lease{Name: name, Holder: l.f.hello.Holder, Epoch: l.f.hello.Epoch,
		Expires: time.Now().Add(ttl)}
}

// Credentials opens the credentials of the Follower's rows.
type Credentials struct{ f *Follower }

// CredentialsOf returns the secrets of a worker.
func CredentialsOf(f *Follower) Credentials { return Credentials{f} }

// Get opens the credential of one row. ref must come from a row of the Follower: it names the row
// that the credential is sealed for.
func (s Credentials) Get(_ context.Context, ref fleet.CredentialSource) (fleet.Secret, error) {
	kind, name, ok := strings.Cut(ref.Sealed, "/")
	var have mirrorRow
	var key fleet.ObjectKey
	if ok {
		s.f.mu.Lock()
		if s.f.mirror != nil {
			key = fleet.ObjectKey{Engine: s.f.mirror.engine, Kind: fleet.ObjectKind(kind),
				Name: name}
			have, ok = s.f.mirror.rows[key]
		}
		s.f.mu.Unlock()
	}
	c := have.credential
	switch {
	case !ok || c == nil || c.Tenant != ref.Tenant || c.Name != ref.Name:
		return fleet.Secret{},
			fmt.Errorf("secret %s of tenant %s was not sent by the hub", ref.Name,
				ref.Tenant)
	case c.Problem != "":
		return fleet.Secret{}, fmt.Errorf("secret %s of tenant %s: the hub reports: %s", ref.Name,
			ref.Tenant, plain(c.Problem))
	}
	var err error
	for _, keys := range s.f.Client.identity.decryptionKeys() {
		var secret fleet.Secret
		if secret, err = agent.Open(keys, key, c.Sealed); err == nil {
			return secret, nil
		}
	}
	return fleet.Secret{}, fmt.Errorf("secret %s of tenant %s: %w", ref.Name, ref.Tenant, err)
}

// Stops reads the emergency stops of the Follower.
type Stops struct{ f *Follower }

// StopsOf returns the stop reader of a worker.
func StopsOf(f *Follower) Stops { return Stops{f} }

// StopRecords returns the last known emergency stops of the engine. Until they are known it fails,
// which forbids every write.
func (s Stops) StopRecords(context.Context) (mirror.StopRecords, error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if !s.f.stopsRead {
		return mirror.StopRecords{}, ErrNotRead
	}
	return mirror.StopRecords{Stops: s.f.stops, Ends: s.f.ends, Unended: !s.f.endsRead}, nil
}

// unreachableList lists the environments whose clusters cannot be read, by name; nil before the
// first report.
func unreachableList(reach map[fleet.EnvironmentID]mirror.Unreachable) []agent.Unreachable {
	if reach == nil {
		return nil
	}
	all := make([]agent.Unreachable, 0, len(reach))
	for id, u := range reach {
		if len(u.Message) > reachMessage {
			u.Message = strings.ToValidUTF8(u.Message[:reachMessage], "")
		}
		all = append(all, agent.Unreachable{Environment: id, Unreachable: u})
	}
	slices.SortFunc(all, func(a, b agent.Unreachable) int {
		x, y := a.Environment, b.Environment
		return cmp.Or(strings.Compare(string(x.Tenant), string(y.Tenant)),
			strings.Compare(string(x.Name), string(y.Name)))
	})
	return all[:min(len(all), mirror.MaxReach)]
}
