package catalog

import (
	"reflect"
	"slices"

	"argosy.dev/argosy/fleet"
)

// wake queues what a change of one key may make good or bad. It follows the index, never the whole state, but for Fleet's hosts.
func (w *work) wake(before, after *entry) {
	if b, a := effectiveOf(before), effectiveOf(after); b != a {
		w.wakeDependents(b, a)
	}
	for _, e := range []*entry{before, after} {
		w.wakeRivals(e)
		w.wakeTargets(e)
	}
}

func (w *work) wakeDependents(before, after *fleet.Declaration) {
	d := before
	if d == nil {
		d = after
	}
	switch d.Key.Kind {
	case fleet.KindFleet:
		w.wakeFleet(before, after)
	case fleet.KindTenant:
		w.wakeTenant(before, after)
	case fleet.KindEngine:
		w.wakeRegions(before, after)
	case fleet.KindManagedEnvironment:
		w.enqueueAll(referrersOf(d.Key))
		for _, env := range []*fleet.Declaration{before, after} {
			if env == nil {
				continue
			}
			for k, v := range env.Labels {
				w.enqueueAll(term{what: selecting, tenant: d.Key.Tenant, a: k, b: v})
			}
		}
	case fleet.KindGitOpsDeployment:
		w.enqueueAll(referrersOf(d.Key))
		if before != nil && before.Deployment.Destination.EnvironmentSelector != nil {
			w.wakeWaiting(d.Key.Tenant) // an environment that it no longer selects brings less
		}
	}
}

func (w *work) enqueueAll(t term) {
	for k := range w.st.index.each(t) {
		w.enqueue(k)
	}
}

// wakeFleet queues every declaration that names a host when the hosts that may be named change. Guards and defaults decide no reference.
func (w *work) wakeFleet(before, after *fleet.Declaration) {
	if before != nil && after != nil && slices.Equal(before.Fleet.GitHosts, after.Fleet.GitHosts) &&
		slices.Equal(before.Fleet.ClusterHosts, after.Fleet.ClusterHosts) {
		return
	}
	for k := range w.st.entries.all() {
		switch k.Kind {
		case fleet.KindManagedEnvironment, fleet.KindRepositoryCredential, fleet.KindGitOpsDeployment:
			w.enqueue(k)
		}
	}
}

var tenantKinds = []fleet.Kind{fleet.KindManagedEnvironment, fleet.KindRepositoryCredential, fleet.KindSealedSecret,
	fleet.KindGitOpsDeployment, fleet.KindSyncRun}

// wakeTenant queues everything of a tenant whose grant changes.
func (w *work) wakeTenant(before, after *fleet.Declaration) {
	if before != nil && after != nil {
		b, a := *before.Tenant, *after.Tenant
		b.Owners, a.Owners = nil, nil
		if reflect.DeepEqual(b, a) {
			return
		}
	}
	k := fleet.Key{}
	if k = keyOf(before, after); (before == nil) != (after == nil) {
		w.enqueueAll(referrersOf(k))
	}
	for _, kind := range tenantKinds {
		w.enqueueAll(membersOf(fleet.TenantName(k.Name), kind))
	}
}

func keyOf(before, after *fleet.Declaration) fleet.Key {
	if before != nil {
		return before.Key
	}
	return after.Key
}

// wakeRegions queues the environments of a region that gets its first engine or loses its last one.
func (w *work) wakeRegions(before, after *fleet.Declaration) {
	k := keyOf(before, after)
	in := func(d *fleet.Declaration, region string) bool { return d != nil && d.Engine.Region == region }
	for _, d := range []*fleet.Declaration{before, after} {
		if d == nil || in(before, d.Engine.Region) == in(after, d.Engine.Region) {
			continue
		}
		if !w.served(d.Engine.Region, k) {
			w.enqueueAll(term{what: wantedIn, a: d.Engine.Region})
		}
	}
}

// served reports whether an engine other than one is in a region.
func (w *work) served(region string, other fleet.Key) bool {
	for k := range w.st.index.each(term{what: servedIn, a: region}) {
		if d := w.st.get(k); k != other && d != nil && d.Engine.Region == region {
			return true
		}
	}
	return false
}

// wakeRivals queues the quarantined ones that want what an entry wants or has wanted.
func (w *work) wakeRivals(e *entry) {
	for _, d := range e.versions() {
		for _, t := range rivalTerms(d) {
			for k := range w.st.index.each(t) {
				if k != e.key && w.st.entries.get(k).quarantined() {
					w.enqueue(k)
				}
			}
		}
	}
}

// wakeTargets queues the quarantined ones that an entry refers to: a removal that waits for it.
func (w *work) wakeTargets(e *entry) {
	for _, d := range e.versions() {
		for _, k := range references(d) {
			if w.st.entries.get(k).quarantined() {
				w.enqueue(k)
			}
		}
		if t := tenantKey(d.Key.Tenant); w.st.entries.get(t).quarantined() {
			w.enqueue(t)
		}
	}
}

// wakeWaiting queues a tenant's newcomers that wait for room. All of them are judged: which of them fits is decided in the order of
// their paths.
func (w *work) wakeWaiting(t fleet.TenantName) { w.enqueueAll(term{what: overQuota, tenant: t}) }

// wakeFreed queues what waits for room when a tenant's use went down.
func (w *work) wakeFreed(t fleet.TenantName, before fleet.Quota) {
	now := w.st.usedBy(t)
	if now.Environments >= before.Environments && now.Deployments >= before.Deployments && now.Applications >= before.Applications {
		return
	}
	w.wakeWaiting(t)
	if d := w.st.get(tenantKey(t)); d != nil && exceeds(before, d.Tenant.Quota) {
		w.checked[d.Key] = true // its warning changes or goes
	}
}

func exceeds(used, quota fleet.Quota) bool {
	return used.Environments > quota.Environments || used.Deployments > quota.Deployments || used.Applications > quota.Applications
}
