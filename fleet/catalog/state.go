package catalog

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// state is the catalog's knowledge: the base itself, or the differences of a changeset to its base.
// It does not lock.
type state struct {
	under       *state
	entries     *table[fleet.Key, entry]
	index       *index
	used        *table[fleet.TenantName, fleet.Quota] // effective declarations of each tenant
	effective   int
	quarantined int
	// the next changeset judges them, without a change of their dependencies
	pending map[fleet.Key]bool
}

// entry is the knowledge about one key. An entry in a state is immutable; a new one replaces it.
type entry struct {
	key        fleet.Key
	path, blob string             // of the head; of a removed file, the last ones
	effective  *fleet.Declaration // nil: never good so far
	head       *fleet.Declaration // nil: removed or not decoded
	removed    bool
	notes      []fleet.Problem // of decoding: why head is nil, or warnings
	quarantine []fleet.Problem // reasons against the head; empty: the head is in effect
	advice     []fleet.Problem // warnings of policies about the effective declaration
}

// term is a key of the reverse index. A term may name an object that does not exist: a deployment
// is indexed under its missing environment, and is found when that appears.
type term struct {
	what   what
	tenant fleet.TenantName
	a, b   string
}

type what uint8

func newState() *state {
	return &state{entries: newTable[fleet.Key, entry](nil), index: newIndex(nil),
		used:    newTable[fleet.TenantName, fleet.Quota](nil),
		pending: map[fleet.Key]bool{}}
}

func (s *state) over() *state {
	return &state{under: s, entries: newTable(s.entries), index: newIndex(s.index),
		used:      newTable(s.used),
		effective: s.effective, quarantined: s.quarantined}
}

func (s *state) fold() {
	s.entries.fold()
	s.index.fold()
	s.used.fold()
	s.under.effective, s.under.quarantined, s.under.pending = s.effective, s.quarantined, s.pending
}

// putCounting is put that keeps each tenant's use as well.
func (s *state) putCounting(k fleet.Key, e *entry) {
	before, after := effectiveOf(s.entries.get(k)), effectiveOf(e)
	if before == after || k.Tenant == "" {
		s.put(k, e)
		return
	}
	used := s.usedBy(k.Tenant)
	used.Applications -= s.applications(before)
	s.put(k, e)
	used.Applications += s.applications(after)
	used.Environments += count(after != nil && after.Environment != nil) - count(
		before != nil && before.Environment != nil)
	used.Deployments += count(after != nil && after.Deployment != nil) - count(
		before != nil && before.Deployment != nil)
	s.used.set(k.Tenant, &used)
}

// put sets the entry of a key (nil: none) and keeps the index.
func (s *state) put(k fleet.Key, e *entry) {
	old := s.entries.get(k)
	if !sameTerms(old, e) {
		for _, t := range old.terms() {
			s.index.put(t, k, false)
		}
		for _, t := range e.terms() {
			s.index.put(t, k, true)
		}
	}
	s.effective += count(effectiveOf(e) != nil) - count(effectiveOf(old) != nil)
	s.quarantined += count(e.quarantined()) - count(old.quarantined())
	s.entries.set(k, e)
}

// sameTerms reports whether two entries of a key certainly have the same terms, as when a head
// takes effect.
func sameTerms(a, b *entry) bool {
	return a != nil && b != nil && hasCode(a.quarantine, codeQuota) == hasCode(
		b.quarantine, codeQuota) && heldByPolicy(a) == heldByPolicy(b) &&
		hasCode(a.quarantine, CodeSharedClone) == hasCode(b.quarantine, CodeSharedClone) &&
		hasCode(a.quarantine, CodeArtifact) == hasCode(b.quarantine, CodeArtifact) &&
		slices.Equal(a.versions(), b.versions())
}

const (
	ofKind   what = iota // tenant, kind: every such key
	refersTo             // tenant, kind, name: the declarations that name this key
	// server, entry of namespaces, or everyNamespace: environments that deploy there
	claimOf
	// server, first word of an entry: environments that deploy to a namespace that begins with it
	claimUnder
	// namespace: environments that deploy to one of this name, on any server
	namespaceOf
	// namespace: engines whose Argo CD serves Applications in a namespace of this name
	argoCDIn
	argoCDUnder // first word of a namespace: the same engines
	// tenant, region: environments on engines with cluster-scoped resources
	clusterWide
	installation // installationID: engines
	instance     // connection, namespace: engines
	accessTo     // tenant, repository or folder: credentials
	sourceFrom   // tenant, repository: deployments
	labelled     // tenant, label, value: environments
	carrying     // tenant, label: environments
	// the terms of which a deployment's selector has an anchor; see anchors
	selectingValue // tenant, label, value: deployments
	selectingLabel // tenant, label: deployments
	selectingAny   // tenant: deployments
	servedIn       // region: engines and pools
	wantedIn       // region: environments
	overQuota      // tenant: newcomers that wait for room
	clusterServer  // API server: Clusters
	grantsServer   // an entry of Tenant.clusters: tenants
	onServer       // an entry that would grant it: environments
	generatedName  // tenant, deployment: the sets that generate it
	adopts         // object of an Application, or "<namespace>/": the deployments that adopt it
	asksFor        // tenant, repository, request: the sets that ask for the listing
	underPolicy    // tenant, or every tenant: declarations that a policy blocks or warns about
	sharingClone   // declarations rejected with CodeSharedClone
	ofArtifact     // deployments rejected with CodeArtifact
	notifying      // declarations whose channels the Fleet allows
	subscribing    // tenant: deployments with subscriptions of their own
)

// terms returns the terms of an entry: of its effective declaration and of its head.
func (e *entry) terms() []term {
	if e == nil {
		return nil
	}
	ts := []term{membersOf(e.key.Tenant, e.key.Kind)}
	for _, d := range e.versions() {
		ts = append(ts, terms(d)...)
	}
	if hasCode(e.quarantine, codeQuota) {
		ts = append(ts, term{what: overQuota, tenant: e.key.Tenant})
	}
	if hasCode(e.quarantine, CodeSharedClone) {
		ts = append(ts, term{what: sharingClone})
	}
	if hasCode(e.quarantine, CodeArtifact) {
		ts = append(ts, term{what: ofArtifact})
	}
	if heldByPolicy(e) {
		ts = append(ts, term{what: underPolicy, tenant: e.key.Tenant}, term{what: underPolicy})
	}
	return ts
}

func membersOf(t fleet.TenantName, k fleet.Kind) term {
	return term{what: ofKind, tenant: t, a: string(k)}
}

// versions returns the declarations of the key, in effect and at the head: none, one or both.
func (e *entry) versions() []*fleet.Declaration {
	if e == nil {
		return nil
	}
	v := make([]*fleet.Declaration, 0, 2)
	if e.effective != nil {
		v = append(v, e.effective)
	}
	if e.head != nil && e.head != e.effective {
		v = append(v, e.head)
	}
	return v
}

func terms(d *fleet.Declaration) []term {
	var ts []term
	for _, k := range references(d) {
		ts = append(ts, referrersOf(k))
	}
	t := d.Key.Tenant
	switch {
	case d.Engine != nil:
		for _, n := range served(d.Engine) {
			ts = append(ts, servesIn(d.Engine, n.Namespace),
				term{what: argoCDIn, a: n.Namespace},
				term{what: argoCDUnder, a: firstWord(n.Namespace)})
		}
		return append(ts, term{what: servedIn, a: d.Engine.Region},
			term{what: installation, a: d.Engine.ArgoCD.InstallationID})
	case d.Cluster != nil:
		ts = append(ts, clusterAt(d.Cluster.Server))
	case d.Tenant != nil:
		for _, g := range d.Tenant.Clusters {
			ts = append(ts, term{what: grantsServer, a: g})
		}
	case d.Environment != nil:
		if c := d.Environment.Cluster; c != nil {
			for _, g := range fleet.ServerGrants(c.Address()) {
				ts = append(ts, term{what: onServer, a: g})
			}
		}
		ts = append(ts, term{what: wantedIn, a: d.Environment.Region})
		ts = append(ts, claims(d)...)
		for k, v := range d.Labels {
			ts = append(ts, term{what: labelled, tenant: t, a: k, b: v},
				term{what: carrying, tenant: t, a: k})
		}
	case d.Credential != nil:
		ts = append(ts, term{what: accessTo, tenant: t, a: d.Credential.Scope()})
	case d.Pool != nil:
		ts = append(ts, term{what: servedIn, a: d.Pool.Template.Region})
	case d.Notifications != nil:
		ts = append(ts, term{what: notifying})
	case d.Set != nil:
		for _, g := range d.Set.Generated {
			ts = append(ts, generates(t, g.Name))
		}
		for _, r := range d.Set.Requests(t) {
			ts = append(ts, askedBy(r))
		}
	case d.Deployment != nil:
		if len(d.Deployment.Subscriptions) > 0 {
			ts = append(ts, term{what: subscribing, tenant: t}, term{what: subscribing})
		}
		for _, key := range repositoryKeys(d.Deployment) {
			ts = append(ts, term{what: sourceFrom, tenant: t, a: key})
		}
		for _, a := range anchors(t, d.Deployment.Destination.EnvironmentSelector) {
			ts = append(ts, selecting(a))
		}
		for _, a := range d.Deployment.Adopt {
			ts = append(ts, term{what: adopts, a: a.Application})
			if namespace, _ := fleet.SplitObject(a.Application); namespace != "" {
				ts = append(ts, term{what: adopts, a: namespace + "/"})
			}
		}
	}
	return ts
}

// references returns the keys that a declaration refers to by name. A tenant's declaration also
// refers to its Tenant, through its own key.
func references(d *fleet.Declaration) []fleet.Key {
	var ks []fleet.Key
	env := func(n fleet.EnvironmentName) {
		ks = append(ks, environmentKey(fleet.EnvironmentID{Tenant: d.Key.Tenant, Name: n}))
	}
	switch {
	case d.Engine != nil:
		for _, t := range d.Engine.DedicatedTo {
			ks = append(ks, tenantKey(t))
		}
		if t := d.Engine.PlatformTenant; t != "" {
			ks = append(ks, tenantKey(t))
		}
		for _, n := range d.Engine.ApplicationNamespaces {
			ks = append(ks, tenantKey(n.Tenant))
		}
		if m := d.Engine.Pool; m != nil {
			ks = append(ks, fleet.PoolKey(m.Pool))
		}
	case d.Pool != nil:
		for _, t := range d.Pool.Template.DedicatedTo {
			ks = append(ks, tenantKey(t))
		}
	case d.Policy != nil:
		for _, t := range d.Policy.Tenants {
			ks = append(ks, tenantKey(t))
		}
	case d.Environment != nil:
		switch c := d.Environment.Cluster; {
		case c != nil && c.Engine != "":
			ks = append(ks, engineKey(c.Engine))
		case c != nil && c.Ref != "":
			ks = append(ks, clusterKey(c.Ref))
		}
	case d.Deployment != nil:
		for _, n := range d.Deployment.Destination.Environments {
			env(n)
		}
		for _, o := range d.Deployment.Overrides {
			if o.Environment != "" {
				env(o.Environment)
			}
		}
	case d.SyncRun != nil:
		ks = append(
			ks, deploymentKey(fleet.DeploymentID{Tenant: d.Key.Tenant, Name: d.SyncRun.Deployment}))
		for _, n := range d.SyncRun.Environments {
			env(n)
		}
	}
	return ks
}

func tenantKey(n fleet.TenantName) fleet.Key {
	return fleet.Key{Kind: fleet.KindTenant, Name: string(n)}
}

func deploymentKey(id fleet.DeploymentID) fleet.Key {
	return fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: id.Tenant, Name: string(id.Name)}
}

func referrersOf(k fleet.Key) term {
	return term{what: refersTo, tenant: k.Tenant, a: string(k.Kind), b: k.Name}
}

func instanceOf(e *fleet.EngineSpec) term { return servesIn(e, e.ArgoCD.Namespace) }

// served returns the namespaces whose Applications an engine's Argo CD serves: its own one, which
// belongs to no tenant, and those that it gives to tenants.
func served(e *fleet.EngineSpec) []fleet.ApplicationNamespace {
	return append([]fleet.ApplicationNamespace{{Namespace: e.ArgoCD.Namespace}},
		e.ApplicationNamespaces...)
}

// servedBy returns the terms of the namespaces whose Applications an engine's Argo CD serves.
func servedBy(e *fleet.EngineSpec) (ts []term) {
	for _, n := range served(e) {
		ts = append(ts, servesIn(e, n.Namespace))
	}
	return ts
}

// servesIn returns the term of the engines whose Argo CD is in a namespace of the connection, or
// serves Applications there.
func servesIn(e *fleet.EngineSpec, namespace string) term {
	connection := "in-cluster"
	switch {
	case e.Connection.KubeconfigRef != nil:
		connection = "kubeconfig " + e.Connection.KubeconfigRef.Name
	// only its agent knows its address: the installationID, which is unique, identifies it
	case e.Connection.Agent != nil:
		connection = "agent of " + e.ArgoCD.InstallationID
	}
	return term{what: instance, a: connection, b: namespace}
}

// repositoryKey returns an invalid URL unchanged: a refused URL never matches another one.
func repositoryKey(url string) string {
	key, err := fleet.NormalizeRepoURL(url)
	if err != nil {
		return url
	}
	return key
}

// repositoryKeys returns the repositories that a deployment reads, each once.
func repositoryKeys(d *fleet.DeploymentSpec) []string {
	var keys []string
	for url := range d.RepoURLs().All() {
		if key := repositoryKey(url); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// heldByPolicy reports whether a change of policies, or of their other inputs, must judge the entry
// again.
func heldByPolicy(e *entry) bool {
	return e != nil &&
		(hasCode(e.quarantine, codePolicy) || hasCode(e.quarantine, codePolicyReached) ||
			len(e.advice) > 0)
}

func hasCode(problems []fleet.Problem, code string) bool {
	return slices.ContainsFunc(problems, func(p fleet.Problem) bool { return p.Code == code })
}

func (e *entry) quarantined() bool { return e != nil && len(e.quarantine) > 0 }

// recount counts every tenant's use from nothing.
func (s *state) recount() {
	s.used = newTable[fleet.TenantName, fleet.Quota](nil)
	for k, e := range s.entries.all() {
		if e.effective == nil || k.Tenant == "" {
			continue
		}
		used := s.usedBy(k.Tenant)
		switch {
		case e.effective.Environment != nil:
			used.Environments++
		case e.effective.Deployment != nil:
			used.Deployments++
			used.Applications += s.applications(e.effective)
		}
		s.used.set(k.Tenant, &used)
	}
}

func (s *state) usedBy(t fleet.TenantName) fleet.Quota {
	if u := s.used.get(t); u != nil {
		return *u
	}
	return fleet.Quota{}
}

// applications returns the number of Applications that a declaration causes: a deployment's
// targets, or the deployments that select an environment. A deployment that names an environment
// counts it even if it does not exist: within a changeset the environment may be removed before the
// deployment that no longer names it is judged.
func (s *state) applications(d *fleet.Declaration) int {
	switch {
	case d == nil:
		return 0
	case d.Deployment != nil && d.Deployment.Destination.EnvironmentSelector == nil:
		return distinct(d.Deployment.Destination.Environments)
	case d.Deployment != nil:
		return len(s.targets(d))
	case d.Environment != nil:
		return len(s.selecting(d))
	}
	return 0
}

func distinct(names []fleet.EnvironmentName) int {
	n := 0
	for i, name := range names {
		n += count(!slices.Contains(names[:i], name))
	}
	return n
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// targets returns the effective environments that a deployment names or selects, sorted. A selector
// never matches an environment that does not list the deployment's namespace. Autonomous
// environments are never targets.
func (s *state) targets(d *fleet.Declaration) []fleet.EnvironmentID {
	var ids []fleet.EnvironmentID
	dst := d.Deployment.Destination
	for _, n := range dst.Environments {
		id := fleet.EnvironmentID{Tenant: d.Key.Tenant, Name: n}
		if env := s.get(environmentKey(id)); env != nil && !env.Environment.Agent.Autonomous() {
			ids = append(ids, id)
		}
	}
	for _, a := range anchors(d.Key.Tenant, dst.EnvironmentSelector) {
		for key := range s.index.each(a) {
			if selects(d, s.get(key)) {
				ids = append(ids, environmentID(key))
			}
		}
	}
	slices.SortFunc(ids, func(a, b fleet.EnvironmentID) int {
		return strings.Compare(string(a.Name), string(b.Name))
	})
	return slices.Compact(ids)
}

func environmentKey(id fleet.EnvironmentID) fleet.Key {
	return fleet.Key{Kind: fleet.KindManagedEnvironment, Tenant: id.Tenant, Name: string(id.Name)}
}

func selects(d, env *fleet.Declaration) bool {
	return matches(d, env) && !env.Environment.Agent.Autonomous()
}

func environmentID(k fleet.Key) fleet.EnvironmentID {
	return fleet.EnvironmentID{Tenant: k.Tenant, Name: fleet.EnvironmentName(k.Name)}
}

// selecting returns the effective deployments that select an environment, effective or not,
// unsorted.
func (s *state) selecting(env *fleet.Declaration) []fleet.Key {
	if env.Environment.Agent.Autonomous() {
		return nil
	}
	return s.matching(env)
}

// matching returns the deployments whose selector matches an environment, autonomous or not.
func (s *state) matching(env *fleet.Declaration) []fleet.Key {
	var keys []fleet.Key
	for _, a := range anchorsOf(env) {
		for key := range s.index.each(selecting(a)) {
			if d := s.get(key); d != nil && matches(d, env) && slices.Contains(anchors(
				d.Key.Tenant, d.Deployment.Destination.EnvironmentSelector), a) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

func (s *state) get(k fleet.Key) *fleet.Declaration { return effectiveOf(s.entries.get(k)) }

func effectiveOf(e *entry) *fleet.Declaration {
	if e == nil {
		return nil
	}
	return e.effective
}

// matches reports whether an environment has the labels that a deployment selects, and the
// deployment's namespace there.
func matches(d, env *fleet.Declaration) bool {
	return env != nil && env.Environment != nil &&
		d.Deployment.Destination.EnvironmentSelector.Matches(env.Labels) && lists(env, d)
}

// lists reports whether an environment lists the namespace that a deployment has there.
func lists(env, d *fleet.Declaration) bool {
	ns, _ := d.NamespaceIn(env)
	return env.Environment.Lists(ns)
}

// anchors returns the terms of environments that index a selector: an environment that it matches
// is under exactly one of them. They are one label and value, each value of one In, one label of an
// Exists, or, for a selector that only excludes, every environment of the tenant. A change of an
// environment reaches the selectors with an anchor among its own terms, and no other.
func anchors(t fleet.TenantName, s *fleet.LabelSelector) []term {
	if s == nil {
		return nil
	}
	if len(s.MatchLabels) > 0 {
		k := slices.Min(slices.Collect(maps.Keys(s.MatchLabels)))
		return []term{{what: labelled, tenant: t, a: k, b: s.MatchLabels[k]}}
	}
	for _, r := range s.MatchExpressions {
		if r.Operator != fleet.SelectorIn {
			continue
		}
		var ts []term
		for _, v := range r.Values {
			ts = append(ts, term{what: labelled, tenant: t, a: r.Key, b: v})
		}
		return ts
	}
	for _, r := range s.MatchExpressions {
		if r.Operator == fleet.SelectorExists {
			return []term{{what: carrying, tenant: t, a: r.Key}}
		}
	}
	if len(s.MatchExpressions) == 0 {
		return nil // an empty selector matches nothing
	}
	return []term{membersOf(t, fleet.KindManagedEnvironment)}
}

// anchorsOf returns the terms of an environment that may be a selector's anchor.
func anchorsOf(env *fleet.Declaration) []term {
	t := env.Key.Tenant
	ts := []term{membersOf(t, fleet.KindManagedEnvironment)}
	for k, v := range env.Labels {
		ts = append(ts, term{what: labelled, tenant: t, a: k, b: v},
			term{what: carrying, tenant: t, a: k})
	}
	return ts
}

// selecting returns the term of the deployments whose selector has an anchor.
func selecting(anchor term) term {
	switch anchor.what {
	case labelled:
		anchor.what = selectingValue
	case carrying:
		anchor.what = selectingLabel
	default:
		anchor = term{what: selectingAny, tenant: anchor.tenant}
	}
	return anchor
}

// same returns the effective declaration if the head is equal to it, so that comparing pointers
// detects a change.
func same(head, effective *fleet.Declaration) *fleet.Declaration {
	if head != nil && effective != nil && reflect.DeepEqual(head, effective) {
		return effective
	}
	return head
}

func (e *entry) public() fleet.Quarantine {
	return fleet.Quarantine{Key: e.key, Path: e.path, Blob: e.blob, Declaration: e.head,
		Problems:    e.quarantine,
		HasLastGood: e.effective != nil, Removed: e.removed}
}

func onlyErrors(problems []fleet.Problem) []fleet.Problem {
	var errs []fleet.Problem
	for _, p := range problems {
		if p.Severity != fleet.SeverityWarning {
			errs = append(errs, p)
		}
	}
	return errs
}

func sortProblems(problems []fleet.Problem) []fleet.Problem {
	slices.SortStableFunc(problems, fleet.CompareProblems)
	return problems
}

// The keys of referenced declarations.
func fleetKey() fleet.Key { return fleet.Key{Kind: fleet.KindFleet, Name: "fleet"} }

// DefaultsKey is the key of a tenant's defaults.
func DefaultsKey(t fleet.TenantName) fleet.Key {
	return fleet.Key{Kind: fleet.KindTenantDefaults, Tenant: t, Name: fleet.TenantDefaultsName}
}

// NotificationsKey is the key of a tenant's NotificationSettings.
func NotificationsKey(t fleet.TenantName) fleet.Key {
	return fleet.Key{Kind: fleet.KindTenantNotifications, Tenant: t,
		Name: fleet.TenantNotificationsName}
}

func engineKey(n fleet.EngineName) fleet.Key {
	return fleet.Key{Kind: fleet.KindEngine, Name: string(n)}
}

func credentialKey(id fleet.CredentialID) fleet.Key {
	return fleet.Key{Kind: fleet.KindRepositoryCredential, Tenant: id.Tenant, Name: string(id.Name)}
}

func syncRunKey(id fleet.SyncRunID) fleet.Key {
	return fleet.Key{Kind: fleet.KindSyncRun, Tenant: id.Tenant, Name: string(id.Name)}
}

// SealedKey is the key of an encrypted file beside a declaration. Files of one name in two folders
// are two files, so the folder is part of the name.
func SealedKey(tenant fleet.TenantName, folder, name string) fleet.Key {
	return fleet.Key{Kind: fleet.KindSealedSecret, Tenant: tenant, Name: folder + "/" + name}
}
