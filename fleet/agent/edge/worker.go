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
)

// This is the Follower as a worker sees it: its Rows, Leases, Secrets and StopReader.

// read gives the mirror to f, or says that there is none yet.
func (f *Follower) read(name fleet.EngineName, use func(*mirror) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mirror == nil {
		return ErrNotRead
	}
	if name != f.mirror.engine {
		return fmt.Errorf("engine %s is not the agent's, which is %s", name, f.mirror.engine)
	}
	return use(f.mirror)
}

// Changed are the rows above after, in their order, at most limit. fleet.ErrFenced when after is of
// a mirror that is no more.
func (f *Follower) Changed(_ context.Context, name fleet.EngineName, after int64,
	limit int) (rows []fleet.Row, err error) {
	err = f.read(name, func(m *mirror) error {
		if f.leased != f.generation {
			return fmt.Errorf("%w: %w", errAnew, fleet.ErrFenced)
		}
		rows = m.changed(after, limit)
		return nil
	})
	return rows, err
}

// RowHeads visits the head of every row as it stood at one moment.
func (f *Follower) RowHeads(_ context.Context, name fleet.EngineName,
	visit func(fleet.RowHead) error) error {
	var rows []fleet.Row
	if err := f.read(name, func(m *mirror) error { rows = m.all(); return nil }); err != nil {
		return err
	}
	for _, row := range rows {
		if err := visit(row.Head()); err != nil {
			return err
		}
	}
	return nil
}

// Row is one row as it stands.
func (f *Follower) Row(_ context.Context, key fleet.ObjectKey) (row fleet.Row, ok bool, err error) {
	err = f.read(key.Engine, func(m *mirror) error {
		have, there := m.rows[key]
		row, ok = have.row, there
		return nil
	})
	return row, ok, err
}

// LeasedRow is Row for whoever holds the session's lease.
func (f *Follower) LeasedRow(ctx context.Context, lease fleet.Lease,
	key fleet.ObjectKey) (row fleet.Row, ok bool, err error) {
	if err := f.under(lease); err != nil {
		return row, false, err
	}
	return f.Row(ctx, key)
}

// Lookup is the rows of these objects; objects without one are left out.
func (f *Follower) Lookup(_ context.Context, name fleet.EngineName,
	keys []fleet.ObjectKey) (rows []fleet.Row, err error) {
	err = f.read(name, func(m *mirror) error {
		for _, key := range keys {
			if have, ok := m.rows[key]; ok {
				rows = append(rows, have.row)
			}
		}
		return nil
	})
	return rows, err
}

// OrphanKeys are none: the hub keeps the list, from what the agent reports.
func (f *Follower) OrphanKeys(context.Context, fleet.EngineName) ([]fleet.ObjectKey, error) {
	return nil, nil
}

// ReportOrphans says that the strays have changed: how the agent stands has all of them.
func (f *Follower) ReportOrphans(_ context.Context, lease fleet.Lease, _ []fleet.Orphan,
	_ []fleet.ObjectKey) error {
	if err := f.under(lease); err != nil {
		return err
	}
	f.stand()
	return nil
}

// CredentialRows are the rows that need a secret.
func (f *Follower) CredentialRows(_ context.Context, name fleet.EngineName, tenant fleet.TenantName,
	secret string) (rows []fleet.Row, err error) {
	err = f.read(name, func(m *mirror) error {
		for _, have := range m.rows {
			if c := have.row.Credential; c != nil && c.Tenant == tenant && c.Name == secret {
				rows = append(rows, have.row)
			}
		}
		return nil
	})
	return rows, err
}

// Get opens the credential of one row. The reference must come from a row of this Follower: it
// names the row that the credential was sealed for.
func (f *Follower) Get(_ context.Context, ref fleet.CredentialSource) (fleet.Secret, error) {
	kind, name, ok := strings.Cut(ref.Sealed, "/")
	var have held
	var key fleet.ObjectKey
	if ok {
		f.mu.Lock()
		if f.mirror != nil {
			key = fleet.ObjectKey{Engine: f.mirror.engine, Kind: fleet.ObjectKind(kind), Name: name}
			have, ok = f.mirror.rows[key]
		}
		f.mu.Unlock()
	}
	c := have.credential
	switch {
	case !ok || c == nil || c.Tenant != ref.Tenant || c.Name != ref.Name:
		return fleet.Secret{},
			fmt.Errorf("secret %s of tenant %s is not among what the hub has sent", ref.Name,
				ref.Tenant)
	case c.Problem != "":
		return fleet.Secret{}, fmt.Errorf("secret %s of tenant %s: the hub says: %s", ref.Name,
			ref.Tenant, plain(c.Problem))
	}
	var err error
	for _, keys := range f.Client.keeper.opening() {
		var secret fleet.Secret
		if secret, err = agent.Open(keys, key, c.Sealed); err == nil {
			return secret, nil
		}
	}
	return fleet.Secret{}, fmt.Errorf("secret %s of tenant %s: %w", ref.Name, ref.Tenant, err)
}

// StopRecords are the emergency stops that concern the engine, as last heard. Until they were heard
// it is an error, which forbids every write.
func (f *Follower) StopRecords(context.Context) (fleet.StopRecords, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopsRead {
		return fleet.StopRecords{}, ErrNotRead
	}
	return fleet.StopRecords{Stops: f.stops, Ends: f.ends, Unended: !f.endsRead}, nil
}

// under refuses what was done under a lease that is not the session's.
func (f *Follower) under(lease fleet.Lease) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.validLocked(lease) {
		return fleet.ErrFenced
	}
	return nil
}

// validLocked reports whether a lease is the one that the last session gave. It stands through an
// outage.
func (f *Follower) validLocked(lease fleet.Lease) bool {
	return f.final == nil && f.misplaced == nil && f.mirror != nil &&
		lease.Epoch == f.hello.Epoch && f.leased == f.generation
}

// Acquire gives the session's lease; false before the first complete snapshot, and once the
// identity has ended.
func (f *Follower) Acquire(_ context.Context, name, _ string, ttl time.Duration) (fleet.Lease, bool,
	error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.final != nil:
		return fleet.Lease{}, false, f.final
	case f.misplaced != nil:
		return fleet.Lease{}, false, f.misplaced
	case f.mirror == nil:
		return fleet.Lease{}, false, nil
	}
	f.leased = f.generation
	return f.leaseLocked(name, ttl), true, nil
}

func (f *Follower) leaseLocked(name string, ttl time.Duration) fleet.Lease {
	return fleet.Lease{Name: name, Holder: f.hello.Holder, Epoch: f.hello.Epoch,
		Expires: time.Now().Add(ttl)}
}

// Renew reports whether the lease is still the session's.
func (f *Follower) Renew(_ context.Context, lease fleet.Lease, _ time.Duration) (bool, error) {
	return f.under(lease) == nil, nil
}

// RaiseEpoch asks the hub for a session whose epoch is above floor, and waits for it. Without the
// hub there is none, and ctx's end is the error: then the objects show that another has written
// here, and nothing may be written.
func (f *Follower) RaiseEpoch(ctx context.Context, lease fleet.Lease, floor int64) (fleet.Lease,
	error) {
	f.Outbox.pauseSession() // what is on its way bears the old epoch
	f.mu.Lock()
	f.floor = max(f.floor, floor)
	cut := f.cut
	f.mu.Unlock()
	if cut != nil {
		cut(errRaise)
	}
	for {
		f.mu.Lock()
		now, changed, final := f.leaseLocked(lease.Name, time.Until(lease.Expires)), f.changed,
			f.final
		if final == nil && now.Epoch > floor {
			f.leased = f.generation
		}
		f.mu.Unlock()
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

// Release gives nothing up: the lease is the process's, and passes on when another one opens a
// session.
func (f *Follower) Release(context.Context, fleet.Lease, string) error { return nil }

// Acknowledge takes what was done with rows, to be reported.
func (f *Follower) Acknowledge(_ context.Context, lease fleet.Lease, acks []fleet.Ack) error {
	if err := f.under(lease); err != nil {
		return err
	}
	said := make([]agent.Ack, 0, len(acks))
	others := false // other deletions than before wait for the cluster's admin
	for _, a := range acks {
		if f.Held != nil && !a.Removed && (a.State == fleet.ApplyFailed ||
			a.State == fleet.ApplyDeleting) {
			if why, waits := f.Held(a.Key); waits {
				a.State, a.Message = fleet.ApplyHeld, why
			}
		}
		was, known := f.keep(a)
		if !known {
			continue
		}
		others = others || (was == fleet.ApplyHeld) != (a.State == fleet.ApplyHeld)
		said = append(said, agent.Ack{Kind: a.Key.Kind, Name: a.Key.Name, Seq: a.Seq,
			State: a.State, Message: a.Message,
			Removed: a.Removed, Hash: a.Hash})
	}
	f.Outbox.Acknowledge(said...)
	if others {
		f.stand()
	}
	return nil
}

// keep remembers how a row stands, and tells how it stood; false when it is not that row any more.
func (f *Follower) keep(a fleet.Ack) (was fleet.ApplyState, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	have, ok := f.mirror.rows[a.Key]
	if !ok || have.row.Seq != a.Seq || a.Hash != "" && a.Hash != have.row.Manifest.Hash {
		return "", false
	}
	was, have.row.Apply = have.row.Apply, a.State
	f.mirror.rows[a.Key] = have
	return was, true
}

// taken hears that the hub has taken an acknowledgement: a row whose removal it knows of is no
// more.
func (f *Follower) taken(a agent.Ack) {
	if !a.Removed {
		return
	}
	f.mu.Lock()
	gone := false
	var key fleet.ObjectKey
	if f.mirror != nil {
		key = fleet.ObjectKey{Engine: f.mirror.engine, Kind: a.Kind, Name: a.Name}
		gone = f.mirror.drop(key, a.Seq)
	}
	f.mu.Unlock()
	if gone {
		f.Outbox.forget(key)
		f.stand()
	}
}

// Observe takes what the cluster shows of Applications, to be reported.
func (f *Follower) Observe(_ context.Context, lease fleet.Lease, seen []fleet.Observation) error {
	if err := f.under(lease); err != nil {
		return err
	}
	said := make([]agent.Observed, len(seen))
	for i, o := range seen {
		said[i] = agent.Observed{Name: o.Key.Name, UID: o.UID, Sync: o.Sync, Health: o.Health,
			SyncedRevision: o.SyncedRevision, OperationPhase: o.OperationPhase,
			OperationID: o.OperationID, OperationError: o.OperationError, Message: o.Message,
			Resources: o.Resources, ReconciledAt: o.ReconciledAt,
			ResourceVersion: o.ResourceVersion, Gone: o.Deleted}
	}
	f.Outbox.Observe(said...)
	return nil
}

// ReportEngine takes how the cluster's Argo CD stands, to be reported with what the agent knows of
// itself.
func (f *Follower) ReportEngine(_ context.Context, lease fleet.Lease,
	report fleet.EngineReport) error {
	if err := f.under(lease); err != nil {
		return err
	}
	f.mu.Lock()
	if report.ArgoCD == "" {
		report.ArgoCD = f.report.ArgoCD
	}
	f.report = report
	f.mu.Unlock()
	f.stand()
	return nil
}

// stand reports how the agent stands, once there is something to be said.
func (f *Follower) stand() {
	var local Local
	if f.Local != nil {
		local = f.Local()
	}
	f.mu.Lock()
	if f.report.Engine == "" && f.misplaced == nil {
		f.mu.Unlock()
		return
	}
	s := agent.Standing{Reachable: f.report.Reachable, Message: f.report.Message,
		ArgoCD: f.report.ArgoCD, Version: f.Version, HeldDeletions: local.Held}
	if f.misplaced != nil {
		s.Reachable, s.Message = false, f.misplaced.Error()
	}
	if f.mirror != nil {
		s.PendingDeletions = len(f.mirror.deletions())
		var listed []agent.Orphan
		if s.Orphans, s.Environments, listed = f.mirror.orphans(
			local.Inventory); local.Inventory != nil {
			s.Listed = listed
		}
	}
	s.Unreachable = f.unreachableLocked()
	f.mu.Unlock()
	f.Outbox.Stand(s)
}

// reachMessage is how many bytes of each error are told: a report holds a thousand of them.
const reachMessage = 256

// unreachableLocked lists the environments whose clusters cannot be read, by name; nil while that
// is not known.
func (f *Follower) unreachableLocked() []agent.Unreachable {
	if f.reach == nil {
		return nil
	}
	all := make([]agent.Unreachable, 0, len(f.reach))
	for id, u := range f.reach {
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
	return all[:min(len(all), fleet.MaxReach)]
}

// ReportReach says how the agent stands: the environments whose clusters cannot be read are a part
// of it.
func (f *Follower) ReportReach(_ context.Context, lease fleet.Lease, reports []fleet.Reach,
	whole bool) error {
	if err := f.under(lease); err != nil {
		return err
	}
	f.mu.Lock()
	if whole || f.reach == nil {
		f.reach = map[fleet.EnvironmentID]fleet.Unreachable{}
	}
	for _, r := range reports {
		if delete(f.reach, r.Environment); r.Unreachable != nil {
			f.reach[r.Environment] = *r.Unreachable
		}
	}
	f.mu.Unlock()
	f.stand()
	return nil
}

// ReportWentBack says how the agent stands: what the cluster lost shows in it.
func (f *Follower) ReportWentBack(_ context.Context, lease fleet.Lease, _ string) error {
	if err := f.under(lease); err != nil {
		return err
	}
	f.stand()
	return nil
}

// PendingSyncs are the open syncs of Applications that the config repo owns.
func (f *Follower) PendingSyncs(_ context.Context,
	name fleet.EngineName) (pending []fleet.SyncRequest, err error) {
	err = f.read(name, func(m *mirror) error {
		if !f.syncsRead {
			return ErrNotRead
		}
		for _, s := range f.syncs {
			if s.Namespace != "" {
				continue
			}
			q := fleet.SyncRequest{
				ID: s.ID, Key: fleet.ObjectKey{Engine: name, Kind: fleet.ObjectApplication,
					Name: s.Name}, Revision: s.Revision, Prune: s.Prune, State: f.syncStates[s.ID]}
			if row := m.rows[q.Key].row; row.Key == q.Key {
				q.Tenant, q.Environment, q.Deployment = row.Tenant, row.Environment, row.Deployment
			}
			if q.State == "" {
				q.State = fleet.OperationPending
			}
			pending = append(pending, q)
		}
		return nil
	})
	return pending, err
}

// OwnSyncs are the open syncs of the cluster's own Applications (fleet.AgentAutonomous), and
// ErrNotRead until they were heard.
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

// UpdateSync takes how a sync stands, to be reported.
func (f *Follower) UpdateSync(_ context.Context, lease fleet.Lease, id string,
	state fleet.OperationState, message string) error {
	if err := f.under(lease); err != nil {
		return err
	}
	f.mu.Lock()
	f.syncStates[id] = state
	f.mu.Unlock()
	f.Outbox.UpdateSync(agent.SyncEnd{ID: id, State: state, Message: message})
	return nil
}

// ReportOwn takes the cluster's own Applications: those that changed, or with whole all that there
// are.
func (f *Follower) ReportOwn(_ context.Context, lease fleet.Lease, own []fleet.OwnApplication,
	whole bool) error {
	if err := f.under(lease); err != nil {
		return err
	}
	f.Outbox.Own(own, whole)
	return nil
}

// Notify does nothing here: the hub wakes its replicas itself when a report says that objects are
// proven gone.
func (f *Follower) Notify(context.Context, string) error { return nil }

// Deletions are the Applications that rows ask to delete, and whether the rows are read: see Cap.
func (f *Follower) Deletions() ([]fleet.ObjectKey, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mirror == nil {
		return nil, ErrNotRead
	}
	return f.mirror.deletions(), nil
}
