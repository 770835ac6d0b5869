package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// work is one round of judging. It accepts each good change at once, dependencies first, and judges
// its dependents afterwards; it reverts no accepted change within the round. A file may be good
// only because of another file of its commit (a deployment leaves a namespace that its environment
// drops), so a removal is accepted if no head names the removed key, and the drop of a namespace
// always. verify checks both at the end, rejects the wrong ones, and the next round judges without
// them.
type work struct {
	st       *state
	rejected map[fleet.Key]fleet.Problem
	queue    [ranks]map[fleet.Key]bool
	checked  map[fleet.Key]bool
	accepted map[fleet.Key]bool // keys whose effective state changed
	idle     map[fleet.Key]bool // judged again without a change of its dependencies
	policies *policySet
	check    *checker
}

// maxRounds bounds what a crafted chain of narrowings that need each other can cost. After it,
// every removal and narrowing in the tenants concerned waits.
const maxRounds = 8

func (s *Changeset) converge() {
	rejected := maps.Clone(s.refused)
	if rejected == nil {
		rejected = map[fleet.Key]fleet.Problem{}
	}
	inputs, retried := merge(s.in), map[fleet.Key]bool{}
	for round := 1; ; round++ {
		w := &work{st: s.base.st.over(), rejected: rejected, checked: map[fleet.Key]bool{},
			accepted: map[fleet.Key]bool{}, idle: map[fleet.Key]bool{}, policies: s.policySet()}
		w.check = &checker{st: w.st, policies: w.policies, guess: map[string]string{}}
		w.load(inputs, s.again)
		w.run()
		broken := w.verify()
		if len(broken) > 0 {
			if round >= maxRounds {
				w.rejectTenants(broken)
			}
			maps.Copy(rejected, broken)
			continue
		}
		if round >= maxRounds || !w.retry(s.refused, retried) {
			s.finish(w)
			return
		}
	}
}

// merge sorts the inputs and merges those that share a key: a removal yields to a present file, two
// present files are an error.
func merge(in []Input) []Input {
	in = slices.Clone(in)
	slices.SortStableFunc(in, func(a, b Input) int {
		return cmp.Or(compareKeys(a.Key, b.Key), count(b.Removed)-count(a.Removed),
			strings.Compare(a.Path, b.Path))
	})
	var out []Input
	for _, i := range in {
		last := len(out) - 1
		switch {
		case last < 0 || out[last].Key != i.Key:
			out = append(out, i)
		case i.Removed:
		case out[last].Path == i.Path || out[last].Removed:
			out[last] = i
		default:
			out[last].Declaration = nil
			out[last].Problems = append(slices.Clone(out[last].Problems), fleet.Problem{
				Key: i.Key, Path: out[last].Path, Severity: fleet.SeverityError,
				Code: codeDuplicate, Message: i.Key.String() + " is declared in " + i.Path +
					" as well", Fix: "remove one of the two files"})
		}
	}
	return out
}

// load sets every head before the first verdict, since the commit as a whole decides which removals
// are safe.
func (w *work) load(in []Input, again []fleet.Key) {
	generated := map[fleet.Key]bool{}
	for _, i := range in {
		w.generatedBy(i.Key, generated)
		w.set(i)
		w.generatedBy(i.Key, generated)
	}
	for _, k := range slices.SortedFunc(maps.Keys(generated), compareKeys) {
		w.derive(k)
	}
	for _, k := range again {
		w.enqueue(k)
	}
	for k := range w.st.under.pending {
		if r := rank(k.Kind); !w.queue[r][k] && w.st.entries.get(k) != nil {
			w.enqueue(k)
			w.idle[k] = true
		}
	}
}

// set sets the head of one key.
func (w *work) set(i Input) {
	old := w.st.entries.get(i.Key)
	if i.Removed && old == nil {
		return
	}
	i = ofPool(i, effectiveOf(old))
	e := &entry{key: i.Key, path: i.Path, blob: i.Blob, effective: effectiveOf(old),
		head: i.Declaration, removed: i.Removed, notes: i.Problems}
	switch {
	case i.Removed:
		e.head, e.notes = nil, nil
	case i.Declaration == nil || len(onlyErrors(i.Problems)) > 0:
		e.head, e.notes = nil, undecodedNotes(i)
	}
	if old != nil {
		e.head, e.quarantine = same(e.head, e.effective), old.quarantine
	}
	w.st.put(i.Key, e)
	w.wake(old, e)
	w.enqueue(i.Key)
}

// undecodedNotes makes sure that a file that did not decode has a reason.
func undecodedNotes(i Input) []fleet.Problem {
	if len(onlyErrors(i.Problems)) > 0 {
		return i.Problems
	}
	return append(slices.Clone(i.Problems), fleet.Problem{
		Key: i.Key, Path: i.Path, Severity: fleet.SeverityError, Code: codeUndecoded,
		Message: "the file did not decode, and no reason is known",
		Fix:     "run argosy validate on the file"})
}

// run judges the queue, always the lowest rank first, until it is empty. It ends, since only a
// change of another key's effective state queues a key, and that state changes at most once in a
// round.
func (w *work) run() {
	for r := 0; r < ranks; {
		batch := w.queue[r]
		if len(batch) == 0 {
			r++
			continue
		}
		w.queue[r] = nil
		for _, k := range slices.SortedFunc(maps.Keys(batch), compareKeys) {
			if e := w.st.entries.get(k); e != nil {
				w.accept(e)
			}
		}
		r = w.lowest()
	}
}

// accept judges one key, and puts its head into effect if it is good.
func (w *work) accept(old *entry) {
	w.checked[old.key] = true
	e := *old
	problems := sortProblems(w.judge(old))
	e.quarantine, e.advice = limited(onlyErrors(problems)), nil
	var next *entry
	switch {
	case len(e.quarantine) > 0:
		next = &e
	case !e.removed:
		e.effective = e.head
		e.advice = limited(problems)
		next = &e
	}
	used := w.st.usedBy(old.key.Tenant)
	w.st.putCounting(old.key, next)
	switch {
	case next == nil || next.effective != old.effective:
		w.accepted[old.key] = true
		w.wake(old, next)
		w.wakeFreed(old.key.Tenant, used)
	case barred(old) != barred(next):
		w.wakeRivals(next)
	}
}

// judge returns the reasons against a head; without any it takes effect.
func (w *work) judge(e *entry) []fleet.Problem {
	if p, rejected := w.rejected[e.key]; rejected {
		return []fleet.Problem{p}
	}
	switch {
	case e.removed:
		return w.checkRemoval(e)
	case e.head == nil:
		return w.check.withHosts(onlyErrors(e.notes))
	}
	problems := append(w.check.checkOwn(e, e.head), w.check.checkShared(e)...)
	if e.key.Tenant != "" {
		problems = append(problems, w.check.checkPolicies(e, problems)...)
	}
	if len(onlyErrors(problems)) == 0 {
		// last: a file with another error needs no quota
		problems = append(problems, w.check.checkQuota(e)...)
	}
	return problems
}

// limited keeps a file with a thousand errors from filling the mirror.
func limited(problems []fleet.Problem) []fleet.Problem {
	const most = 50
	if len(problems) <= most {
		return problems
	}
	if last := problems[len(problems)-1]; last.Code == fleet.CodeMoreProblems {
		return append(slices.Clone(problems[:most]), last)
	}
	return problems[:most]
}

// wake queues the keys whose verdict a change of one key may alter. It follows the index, never the
// whole state, except for Fleet's hosts.
func (w *work) wake(before, after *entry) {
	k := entryKey(before, after)
	if b, a := effectiveOf(before), effectiveOf(after); b != a {
		w.wakeDependents(k, b, a)
	} else if (before == nil) != (after == nil) {
		w.wakeReferrers(k) // their message changes: "quarantined" is not "unknown"
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
		w.policies.after = nil
		w.enqueueAll(term{what: underPolicy})
	case fleet.KindTenant:
		w.wakeTenant(k, before, after)
	case fleet.KindCluster:
		w.wakeCluster(k, before, after)
	case fleet.KindEnginePool:
		w.render(after)
		w.wakeRegions(k, before, after)
	case fleet.KindEngine:
		w.enqueueAll(referrersOf(k))
		w.wakeRegions(k, before, after)
		w.wakeNamesake(k)
		if f := fleetKey(); w.st.entries.get(f).quarantined() {
			w.enqueue(f) // it may drop the ring that the engine followed
		}
	case fleet.KindManagedEnvironment:
		w.enqueueAll(referrersOf(k))
		for _, env := range []*fleet.Declaration{before, after} {
			if env == nil {
				continue
			}
			for _, a := range anchorsOf(env) {
				w.enqueueAll(selecting(a))
			}
		}
	case fleet.KindGitOpsDeployment:
		w.enqueueAll(referrersOf(k))
		if selectsByLabel(before) || selectsByLabel(after) {
			// an environment that it no longer selects adds fewer Applications, and one that it
			// selects now frees more
			w.wakeWaiting(k.Tenant)
		}
	case fleet.KindTenantDefaults:
		w.enqueueAll(membersOf(k.Tenant, fleet.KindGitOpsDeployment)) // for the policies
	case fleet.KindTenantNotifications:
		w.enqueueAll(term{what: subscribing, tenant: k.Tenant})
	}
}

// wakeFleet queues every declaration that names a host when the hosts that may be named change.
// Guards and defaults decide no reference.
func (w *work) wakeFleet(before, after *fleet.Declaration) {
	if before == nil || after == nil ||
		!reflect.DeepEqual(before.Fleet.Defaults, after.Fleet.Defaults) {
		w.enqueueAll(term{what: underPolicy})
	}
	if !reflect.DeepEqual(notificationsOf(before), notificationsOf(after)) {
		w.enqueueAll(term{what: notifying})
	}
	if ringsOf(before) != ringsOf(after) {
		for k := range w.st.entries.all() {
			if k.Kind == fleet.KindEngine || k.Kind == fleet.KindEnginePool ||
				k.Kind == fleet.KindTenant {
				w.enqueue(k)
			}
		}
	}
	if before != nil && after != nil && slices.Equal(before.Fleet.GitHosts, after.Fleet.GitHosts) &&
		slices.Equal(before.Fleet.ClusterHosts, after.Fleet.ClusterHosts) &&
		before.Fleet.RefusePrivateClusters == after.Fleet.RefusePrivateClusters {
		return
	}
	for k := range w.st.entries.all() {
		switch k.Kind {
		case fleet.KindManagedEnvironment, fleet.KindRepositoryCredential,
			fleet.KindGitOpsDeployment, fleet.KindGitOpsDeploymentSet, fleet.KindCluster:
			w.enqueue(k)
		}
	}
}

// ringsOf returns the names of a Fleet's rings, as one text.
func ringsOf(d *fleet.Declaration) string {
	if d == nil {
		return ""
	}
	return strings.Join(ringNames(d.Fleet), " ")
}

// wakeTenant queues everything of a tenant whose grant changes.
func (w *work) wakeTenant(k fleet.Key, before, after *fleet.Declaration) {
	w.enqueueAll(term{what: underPolicy, tenant: fleet.TenantName(k.Name)})
	w.wakeGranted(before, after)
	w.wakeNeighbours(before, after)
	if before != nil && after != nil {
		b, a := *before.Tenant, *after.Tenant
		b.Owners, a.Owners = nil, nil
		b.Members, a.Members, b.Viewers, a.Viewers = nil, nil, nil, nil
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

// wakeNeighbours queues the quarantined environments of other tenants on a cluster that one
// environment of a tenant is granted wholly, or no longer.
func (w *work) wakeNeighbours(before, after *fleet.Declaration) {
	for _, d := range []*fleet.Declaration{before, after} {
		if d == nil {
			continue
		}
		for _, g := range d.Tenant.Environments {
			if g.AllClusterResources {
				w.wakeRivals(w.st.entries.get(environmentKey(fleet.EnvironmentID{
					Tenant: fleet.TenantName(d.Key.Name), Name: g.Name})))
			}
		}
	}
}

// wakeRegions queues the environments of a region that gets its first engine or loses its last one.
func (w *work) wakeRegions(k fleet.Key, before, after *fleet.Declaration) {
	in := func(d *fleet.Declaration, region string) bool {
		return regionOf(d) == region
	}
	for _, d := range []*fleet.Declaration{before, after} {
		if d == nil || in(before, regionOf(d)) == in(after, regionOf(d)) {
			continue
		}
		if !w.check.served(regionOf(d), k) {
			w.enqueueAll(term{what: wantedIn, a: regionOf(d)})
		}
	}
}

var tenantKinds = []fleet.Kind{fleet.KindManagedEnvironment, fleet.KindRepositoryCredential,
	fleet.KindSealedSecret, fleet.KindGitOpsDeploymentSet,
	fleet.KindGitOpsDeployment, fleet.KindSyncRun, fleet.KindTenantDefaults,
	fleet.KindTenantNotifications}

// wakeReferrers queues the declarations that name a key; for a Tenant, all of its files.
func (w *work) wakeReferrers(k fleet.Key) {
	w.enqueueAll(referrersOf(k))
	if k.Kind != fleet.KindTenant {
		return
	}
	for _, kind := range tenantKinds {
		w.enqueueAll(membersOf(fleet.TenantName(k.Name), kind))
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
		if k := DefaultsKey(d.Key.Tenant); d.Deployment != nil &&
			w.st.entries.get(k).quarantined() {
			w.enqueue(k)
		}
	}
}

func selectsByLabel(d *fleet.Declaration) bool {
	return d != nil && d.Deployment != nil && d.Deployment.Destination.EnvironmentSelector != nil
}

// wakeSelected queues the quarantined environments that a deployment may select: a policy may keep
// them in quarantine because of it.
func (w *work) wakeSelected(d *fleet.Declaration) {
	for _, a := range anchors(d.Key.Tenant, d.Deployment.Destination.EnvironmentSelector) {
		for k := range w.st.index.each(a) {
			if w.st.entries.get(k).quarantined() {
				w.enqueue(k)
			}
		}
	}
}

// wakeFreed queues the declarations that wait for quota when a tenant's use decreases.
func (w *work) wakeFreed(t fleet.TenantName, before fleet.Quota) {
	now := w.st.usedBy(t)
	if now.Environments >= before.Environments && now.Deployments >= before.Deployments &&
		now.Applications >= before.Applications {
		return
	}
	w.wakeWaiting(t)
	if d := w.st.get(tenantKey(t)); d != nil && exceeds(before, d.Tenant.Quota) {
		w.checked[d.Key] = true // its warning changes or ends
	}
}

// wakeWaiting queues a tenant's newcomers that wait for room. All of them are judged: which of them
// fits is decided in the order of their paths.
func (w *work) wakeWaiting(t fleet.TenantName) { w.enqueueAll(term{what: overQuota, tenant: t}) }

func (w *work) enqueueAll(t term) {
	for k := range w.st.index.each(t) {
		w.enqueue(k)
	}
}

func exceeds(used, quota fleet.Quota) bool {
	return used.Environments > quota.Environments || used.Deployments > quota.Deployments ||
		used.Applications > quota.Applications
}

// wakeRivals queues the quarantined entries that want the same things as an entry now or before.
func (w *work) wakeRivals(e *entry) {
	for _, d := range e.versions() {
		w.wakeOnCluster(d)
		for _, t := range rivalTerms(d) {
			for k := range w.st.index.each(t) {
				if k != e.key && w.st.entries.get(k).quarantined() {
					w.enqueue(k)
				}
			}
		}
	}
}

func (w *work) enqueue(k fleet.Key) {
	delete(w.idle, k)
	r := rank(k.Kind)
	if w.queue[r] == nil {
		w.queue[r] = map[fleet.Key]bool{}
	}
	w.queue[r][k] = true
}

func (w *work) lowest() int {
	for r := range w.queue {
		if len(w.queue[r]) > 0 {
			return r
		}
	}
	return ranks
}

// verify rejects removals and narrowings whose dependents did not change as their heads promised.
func (w *work) verify() map[fleet.Key]fleet.Problem {
	broken := map[fleet.Key]fleet.Problem{}
	for k := range w.accepted {
		before := w.st.under.get(k)
		if before == nil {
			continue
		}
		if p := w.brokenReference(k, before, w.st.get(k)); p != nil {
			broken[k] = *p
		}
	}
	maps.Copy(broken, w.reached())
	return broken
}

// rejectTenants adds every removal and narrowing of the tenants in which one is broken.
func (w *work) rejectTenants(broken map[fleet.Key]fleet.Problem) {
	tenants := map[fleet.TenantName]bool{}
	for k := range broken {
		tenants[owner(k)] = true
	}
	for k := range w.accepted {
		before, after := w.st.under.get(k), w.st.get(k)
		_, known := broken[k]
		if known || before == nil || !tenants[owner(k)] || after != nil &&
			(after.Environment == nil || !narrows(before, after)) {
			continue
		}
		e := &entry{key: k, path: before.Path}
		broken[k] = e.problem("", codeReferenced, "remove less in one commit",
			"too many removals of this commit wait for one another; this one waits as well")
	}
}

func owner(k fleet.Key) fleet.TenantName {
	if k.Kind == fleet.KindTenant {
		return fleet.TenantName(k.Name)
	}
	return k.Tenant
}

// narrows reports whether an environment drops a namespace, or all of them by becoming autonomous.
func narrows(before, after *fleet.Declaration) bool {
	return closes(before.Environment, after.Environment) ||
		before.Environment.AllNamespaces && !after.Environment.AllNamespaces ||
		slices.ContainsFunc(before.Environment.Namespaces, func(ns string) bool {
			return !after.Environment.Lists(ns)
		})
}

// retry reverts rejections whose cause another rejection removed, once each, and reports whether
// there are any.
func (w *work) retry(refused map[fleet.Key]fleet.Problem, retried map[fleet.Key]bool) bool {
	found := false
	for k := range w.rejected {
		if _, fixed := refused[k]; fixed || retried[k] || !w.unfounded(w.st.entries.get(k)) {
			continue
		}
		retried[k], found = true, true
		delete(w.rejected, k)
	}
	return found
}

// unfounded reports whether a rejected removal or narrowing would break no effective declaration
// now.
func (w *work) unfounded(e *entry) bool {
	switch {
	case w.wouldBring(e):
		return false
	case e.removed:
		return len(w.checkRemoval(e)) == 0 && w.brokenReference(e.key, e.effective, nil) == nil
	}
	return e.effective == nil || w.brokenReference(e.key, e.effective, e.head) == nil
}

// checkRemoval returns the reasons against a removal: the Fleet is required, and a declaration must
// stay while a file at the head names it, good or quarantined. verify checks the effective
// references at the end.
func (w *work) checkRemoval(e *entry) []fleet.Problem {
	if e.effective == nil {
		return nil
	}
	switch e.key.Kind {
	case fleet.KindFleet:
		return []fleet.Problem{
			e.problem("", codeFleetRequired, "restore "+e.path, "the Fleet cannot be removed")}
	case fleet.KindTenant:
		if p := w.inhabited(e, func(other *entry) bool { return !other.removed }); p != nil {
			return []fleet.Problem{*p}
		}
	case fleet.KindEnginePool:
		if p := w.serving(e, func(other *entry) bool { return !other.removed }); p != nil {
			return []fleet.Problem{*p}
		}
		return nil
	}
	for _, k := range w.st.index.list(referrersOf(e.key)) {
		if other := w.st.entries.get(k); mentions(other.head, e.key) {
			return []fleet.Problem{referenced(e, other, other.head)}
		}
	}
	return nil
}

// brokenReference explains why an accepted change must be rejected after all: an effective
// declaration still needs what it removes.
func (w *work) brokenReference(k fleet.Key, before, after *fleet.Declaration) *fleet.Problem {
	e := &entry{key: k, path: before.Path, effective: before}
	if after != nil {
		e.path = after.Path
	}
	if after == nil && before.Pool != nil {
		return w.serving(e, func(other *entry) bool { return other.effective != nil })
	}
	if after == nil && before.Tenant != nil {
		if p := w.inhabited(
			e, func(other *entry) bool { return other.effective != nil }); p != nil {
			return p
		}
	}
	if after != nil && after.Environment != nil && closes(before.Environment, after.Environment) {
		if keys := w.st.matching(after); len(keys) > 0 {
			p := inUse(e, w.st.entries.get(slices.MinFunc(keys, compareKeys)), after)
			return &p
		}
	}
	if after != nil && after.Fleet != nil {
		return w.ringInUse(e, before, after)
	}
	for _, r := range w.st.index.list(referrersOf(k)) {
		other := w.st.entries.get(r)
		switch {
		case after == nil && mentions(other.effective, k):
			p := referenced(e, other, other.effective)
			return &p
		case after != nil && after.Environment != nil &&
			stranded(other.effective, before, after):
			p := inUse(e, other, after)
			return &p
		}
	}
	return nil
}

// inhabited returns a problem if declarations remain of a Tenant that is removed.
func (w *work) inhabited(e *entry, stays func(*entry) bool) *fleet.Problem {
	var paths []string
	for _, kind := range tenantKinds {
		for k := range w.st.index.each(membersOf(fleet.TenantName(e.key.Name), kind)) {
			if other := w.st.entries.get(k); stays(other) {
				paths = append(paths, other.path)
			}
		}
	}
	if len(paths) == 0 {
		return nil
	}
	slices.Sort(paths)
	p := e.problem("", codeReferenced,
		"restore it, or remove the tenant's declarations in the same commit",
		"tenant %q still has %d declarations, e.g. %s", e.key.Name, len(paths), paths[0])
	return &p
}

// ringInUse returns a problem if the Fleet drops a ring that a managed engine follows, or that a
// tenant names for its agents.
func (w *work) ringInUse(e *entry, before, after *fleet.Declaration) *fleet.Problem {
	if ringsOf(before) == ringsOf(after) {
		return nil
	}
	names := ringNames(after.Fleet)
	for _, k := range w.st.index.list(membersOf("", fleet.KindEngine)) {
		d := w.st.get(k)
		if d == nil || !d.Engine.ArgoCD.Managed || slices.Contains(names, d.Engine.RingName()) {
			continue
		}
		p := e.problem("spec.rings", codeReferenced, "restore it, or give the engine another ring "+
			"or managed: false in the same commit", "ring %q is removed while engine %s follows it "+
			"(%s)", d.Engine.RingName(), k.Name, d.Path)
		return &p
	}
	for _, k := range w.st.index.list(membersOf("", fleet.KindTenant)) {
		d := w.st.get(k)
		if d == nil {
			continue
		}
		for _, r := range agentRings(d.Tenant) {
			if !slices.Contains(names, r.name) {
				p := e.problem("spec.rings", codeReferenced, "restore it, or give the agents "+
					"another ring in the same commit", "ring %q is removed while %s of tenant %s "+
					"names it (%s)", r.name, r.field, k.Name, d.Path)
				return &p
			}
		}
	}
	return nil
}

func inUse(e, other *entry, after *fleet.Declaration) fleet.Problem {
	if after.Environment.Agent.Autonomous() {
		return e.problem("spec.agent.mode", codeAutonomous, "take it out of "+other.path+
			", and change the mode when its Applications are gone",
			"the environment becomes autonomous while %s deploys to it", other.path)
	}
	was, _ := other.effective.NamespaceIn(e.effective)
	if ns, _ := other.effective.NamespaceIn(after); ns != was {
		return e.problem("metadata.labels", codeNamespaceInUse,
			"add it to spec.namespaces, or correct the deployment in the same commit",
			"with these labels %s deploys to namespace %q, which the environment does not list",
			other.path, ns)
	}
	return e.problem("spec.namespaces", codeNamespaceInUse,
		"keep it, or move the deployment to another namespace in the same commit",
		"namespace %q is dropped while %s deploys to it", was, other.path)
}

func mentions(d *fleet.Declaration, k fleet.Key) bool {
	return d != nil && slices.Contains(references(d), k)
}

func referenced(e, other *entry, d *fleet.Declaration) fleet.Problem {
	return e.problem("", codeReferenced, "restore it, or correct "+other.path+" in the same commit",
		"%s is still named by %s (%s)", e.key, other.path, mention(d, e.key))
}

// mention is the field in which a declaration names a key.
func mention(d *fleet.Declaration, k fleet.Key) string {
	i := 0
	indexed := func(format string) string { return fmt.Sprintf(format, i) }
	switch i = slices.Index(references(d), k); {
	case d.Engine != nil && i < len(d.Engine.DedicatedTo):
		return indexed("spec.dedicatedTo[%d]")
	case d.Pool != nil:
		return indexed("spec.template.dedicatedTo[%d]")
	case d.Engine != nil:
		if d.Engine.PlatformTenant == fleet.TenantName(k.Name) {
			return "spec.platformTenant"
		}
		for i = range d.Engine.ApplicationNamespaces {
			if d.Engine.ApplicationNamespaces[i].Tenant == fleet.TenantName(k.Name) {
				break
			}
		}
		return indexed("spec.applicationNamespaces[%d].tenant")
	case d.Policy != nil:
		return indexed("spec.tenants[%d]")
	case d.Environment != nil && k.Kind == fleet.KindCluster:
		return "spec.cluster.ref"
	case d.Environment != nil:
		return "spec.cluster.engine"
	case d.SyncRun != nil && i == 0:
		return "spec.deployment"
	case d.SyncRun != nil:
		i--
		return indexed("spec.environments[%d]")
	case i < len(d.Deployment.Destination.Environments):
		return indexed("spec.destination.environments[%d]")
	default:
		i = slices.IndexFunc(d.Deployment.Overrides, func(o fleet.Override) bool {
			return string(o.Environment) == k.Name
		})
		return indexed("spec.overrides[%d].environment")
	}
}

// stranded reports whether a deployment names an environment that no longer lists its namespace
// there, or takes no deployment.
func stranded(d, before, after *fleet.Declaration) bool {
	if d == nil || d.Deployment == nil || !slices.Contains(d.Deployment.Destination.Environments,
		fleet.EnvironmentName(before.Key.Name)) {
		return false
	}
	return closes(before.Environment, after.Environment) || lists(before, d) && !lists(after, d)
}

// closes reports whether an environment becomes autonomous: nothing may be deployed there any more.
func closes(before, after *fleet.EnvironmentSpec) bool {
	return !before.Agent.Autonomous() && after.Agent.Autonomous()
}

// finish reads the result of the last round, before the base changes.
func (s *Changeset) finish(w *work) {
	s.st = w.st
	s.st.pending = w.notReady()
	w.forgetIdle()
	s.checked = slices.SortedFunc(maps.Keys(w.checked), compareKeys)
	for _, k := range s.checked {
		e, old := w.st.entries.get(k), w.st.under.entries.get(k)
		if before, after := effectiveOf(old), effectiveOf(e); before != after {
			s.changes = append(s.changes, Change{Key: k, Before: before, After: after})
		}
		switch {
		case e.quarantined() && !sameQuarantine(e, old):
			s.quarantined = append(s.quarantined, e.public())
			s.problems = append(s.problems, e.quarantine...)
		case old.quarantined() && !e.quarantined():
			s.cleared = append(s.cleared, k)
		}
		if e != nil {
			s.problems = append(s.problems, w.check.warnings(e)...)
		}
	}
	sortProblems(s.problems)
}

// forgetIdle restores the entries that were judged again with the same verdict, including the
// message: another of several reasons may have come first.
func (w *work) forgetIdle() {
	for k := range w.idle {
		e, old := w.st.entries.get(k), w.st.under.entries.get(k)
		if effectiveOf(e) != effectiveOf(old) || e == nil || !slices.Equal(e.advice, old.advice) ||
			!slices.EqualFunc(e.quarantine, old.quarantine, func(a, b fleet.Problem) bool {
				return a.Code == b.Code && a.Field == b.Field
			}) {
			continue
		}
		w.st.put(k, old)
		delete(w.checked, k)
	}
}

func sameQuarantine(e, old *entry) bool {
	return e.quarantined() && old.quarantined() && slices.Equal(e.quarantine, old.quarantine) &&
		e.blob == old.blob && e.path == old.path &&
		e.removed == old.removed && (e.effective == nil) == (old.effective == nil)
}
