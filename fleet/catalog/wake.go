package catalog

import (
	"reflect"
	"slices"

	"argosy.dev/argosy/fleet"
)

// wake queues what a change of one key may make good or bad. It follows the index, never the whole
// state, but for Fleet's hosts.
func (w *work) wake(before, after *entry) {
	k := entryKey(before, after)
	if b, a := effectiveOf(before), effectiveOf(after); b != a {
		w.wakeDependents(k, b, a)
	} else if (before == nil) != (after == nil) {
		w.wakeReferrers(k) // for what they are told: "quarantined" is not "unknown"
	}
	for _, e := range []*entry{before, after} {
		w.wakeRivals(e)
		w.wakeTargets(e)
	}
}

func entryKey(before, after *entry) fleet.Key {
	if before != nil {
		return before.key
	}
	return after.key
}

func (w *work) wakeDependents(k fleet.Key, before, after *fleet.Declaration) {
	switch k.Kind {
	case fleet.KindFleet:
		w.wakeFleet(before, after)
	case fleet.KindPolicy:
		w.bench.after = nil
		w.enqueueAll(term{what: underPolicy})
	case fleet.KindTenant:
		w.wakeTenant(k, before, after)
	case fleet.KindEngine:
		w.wakeRegions(k, before, after)
	case fleet.KindManagedEnvironment:
		w.enqueueAll(referrersOf(k))
		for _, env := range []*fleet.Declaration{before, after} {
			if env == nil {
				continue
			}
			for label, v := range env.Labels {
				w.enqueueAll(term{what: selecting, tenant: k.Tenant, a: label, b: v})
			}
		}
	case fleet.KindGitOpsDeployment:
		w.enqueueAll(referrersOf(k))
		if selectsByLabel(before) || selectsByLabel(after) {
			// an environment that it no longer selects brings less, and one that it selects now
			// gives up more
			w.wakeWaiting(k.Tenant)
		}
	}
}

func selectsByLabel(d *fleet.Declaration) bool {
	return d != nil && d.Deployment != nil && d.Deployment.Destination.EnvironmentSelector != nil
}

func (w *work) enqueueAll(t term) {
	for k := range w.st.index.each(t) {
		w.enqueue(k)
	}
}

// wakeFleet queues every declaration that names a host when the hosts that may be named change.
// Guards and defaults decide no reference.
func (w *work) wakeFleet(before, after *fleet.Declaration) {
	if before == nil || after == nil || !reflect.DeepEqual(before.Fleet.Defaults,
		after.Fleet.Defaults) {
		w.enqueueAll(term{what: underPolicy})
	}
	if before != nil && after != nil && slices.Equal(before.Fleet.GitHosts, after.Fleet.GitHosts) &&
		slices.Equal(before.Fleet.ClusterHosts, after.Fleet.ClusterHosts) &&
		before.Fleet.RefusePrivateClusters == after.Fleet.RefusePrivateClusters {
		return
	}
	for k := range w.st.entries.all() {
		switch k.Kind {
		case fleet.KindManagedEnvironment, fleet.KindRepositoryCredential,
			fleet.KindGitOpsDeployment:
			w.enqueue(k)
		}
	}
}

var tenantKinds = []fleet.Kind{fleet.KindManagedEnvironment, fleet.KindRepositoryCredential,
	fleet.KindSealedSecret,
	fleet.KindGitOpsDeployment, fleet.KindSyncRun}

// wakeTenant queues everything of a tenant whose grant changes.
func (w *work) wakeTenant(k fleet.Key, before, after *fleet.Declaration) {
	w.enqueueAll(term{what: underPolicy, tenant: fleet.TenantName(k.Name)})
	w.wakeGranted(before, after)
	if before != nil && after != nil {
		b, a := *before.Tenant, *after.Tenant
		b.Owners, a.Owners = nil, nil
		if reflect.DeepEqual(b, a) {
			return
		}
	}
	w.wakeReferrers(k)
}

// wakeGranted queues the quarantined environments on API servers that a tenant is granted now and
// was not, or the other way round, and the quarantined engines, which may wait for a namespace of
// such a server.
func (w *work) wakeGranted(before, after *fleet.Declaration) {
	grants := func(d, other *fleet.Declaration) (only []string) {
		if d == nil {
			return nil
		}
		for _, g := range d.Tenant.Clusters {
			if other == nil || !slices.Contains(other.Tenant.Clusters, g) {
				only = append(only, g)
			}
		}
		return only
	}
	changed := append(grants(before, after), grants(after, before)...)
	for _, g := range changed {
		for k := range w.st.index.each(term{what: onServer, a: g}) {
			if w.st.entries.get(k).quarantined() {
				w.enqueue(k)
			}
		}
	}
	if len(changed) == 0 {
		return
	}
	for k := range w.st.index.each(membersOf("", fleet.KindEngine)) {
		if w.st.entries.get(k).quarantined() {
			w.enqueue(k)
		}
	}
}

// wakeReferrers queues what names a key, and all of a tenant's files for their Tenant.
func (w *work) wakeReferrers(k fleet.Key) {
	w.enqueueAll(referrersOf(k))
	if k.Kind != fleet.KindTenant {
		return
	}
	for _, kind := range tenantKinds {
		w.enqueueAll(membersOf(fleet.TenantName(k.Name), kind))
	}
}

// wakeRegions queues the environments of a region that gets its first engine or loses its last one.
func (w *work) wakeRegions(k fleet.Key, before, after *fleet.Declaration) {
	in := func(d *fleet.Declaration, region string) bool {
		return d != nil && d.Engine.Region == region
	}
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
		if selectsByLabel(d) {
			w.wakeSelected(d)
		}
		if t := tenantKey(d.Key.Tenant); w.st.entries.get(t).quarantined() {
			w.enqueue(t)
		}
	}
}

// wakeSelected queues the quarantined environments that a deployment may select: a policy may hold
// them back because of it.
func (w *work) wakeSelected(d *fleet.Declaration) {
	label, v, _ := firstLabel(d.Deployment.Destination.EnvironmentSelector)
	for k := range w.st.index.each(term{what: labelled, tenant: d.Key.Tenant, a: label, b: v}) {
		if w.st.entries.get(k).quarantined() {
			w.enqueue(k)
		}
	}
}

// wakeWaiting queues a tenant's newcomers that wait for room. All of them are judged: which of them
// fits is decided in the order of their paths.
func (w *work) wakeWaiting(t fleet.TenantName) { w.enqueueAll(term{what: overQuota, tenant: t}) }

// wakeFreed queues what waits for room when a tenant's use went down.
func (w *work) wakeFreed(t fleet.TenantName, before fleet.Quota) {
	now := w.st.usedBy(t)
	if now.Environments >= before.Environments && now.Deployments >= before.Deployments &&
		now.Applications >= before.Applications {
		return
	}
	w.wakeWaiting(t)
	if d := w.st.get(tenantKey(t)); d != nil && exceeds(before, d.Tenant.Quota) {
		w.checked[d.Key] = true // its warning changes or goes
	}
}

func exceeds(used, quota fleet.Quota) bool {
	return used.Environments > quota.Environments || used.Deployments > quota.Deployments ||
		used.Applications > quota.Applications
}
