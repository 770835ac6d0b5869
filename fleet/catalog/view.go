package catalog

import (
	"slices"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
)

// Repository is a repository as an environment's deployments read it. Argo CD keeps credentials by
// URL, so an engine must not hold one URL with two tenants' credentials.
type Repository struct {
	Key        string             // of the URL: fleet.NormalizeRepoURL
	Credential fleet.CredentialID // zero: read without one
}

// View reads the effective state of a Catalog, or the state after a Changeset, under the catalog's
// lock. A single declaration is nil if it is not in effect; lists are sorted and contain effective
// declarations only.
type View struct {
	mu *sync.RWMutex
	st *state
}

// Identity is the repository and the credential, if any, in one comparable string; two are in each
// other's way when their keys are equal and their identities are not.
func (r Repository) Identity() string {
	if r.Credential == (fleet.CredentialID{}) {
		return r.Key
	}
	return r.Key + " " + r.Credential.String()
}

// Engine returns an engine.
func (v *View) Engine(n fleet.EngineName) *fleet.Declaration { return v.Declaration(engineKey(n)) }

// PlatformCluster returns the Cluster that an environment names; nil if it names none.
func (v *View) PlatformCluster(env *fleet.EnvironmentSpec) *fleet.PlatformClusterSpec {
	if env.Cluster == nil || env.Cluster.Ref == "" {
		return nil
	}
	if d := v.Declaration(clusterKey(env.Cluster.Ref)); d != nil {
		return d.Cluster
	}
	return nil
}

// EnvironmentsOn returns the environments that name a Cluster.
func (v *View) EnvironmentsOn(cluster fleet.Key) []fleet.EnvironmentID {
	return members(v, referrersOf(cluster), environmentID)
}

// Tenant returns a tenant.
func (v *View) Tenant(n fleet.TenantName) *fleet.Declaration { return v.Declaration(tenantKey(n)) }

// Environment returns an environment.
func (v *View) Environment(id fleet.EnvironmentID) *fleet.Declaration {
	return v.Declaration(environmentKey(id))
}

// Deployment returns a deployment.
func (v *View) Deployment(id fleet.DeploymentID) *fleet.Declaration {
	return v.Declaration(deploymentKey(id))
}

// Credential returns a credential.
func (v *View) Credential(id fleet.CredentialID) *fleet.Declaration {
	return v.Declaration(credentialKey(id))
}

// SyncRun returns a SyncRun.
func (v *View) SyncRun(id fleet.SyncRunID) *fleet.Declaration {
	return v.Declaration(syncRunKey(id))
}

// Sealed returns the encrypted file <name>.sops.yaml in folder "environments" or "credentials".
func (v *View) Sealed(tenant fleet.TenantName, folder, name string) *fleet.Declaration {
	return v.Declaration(SealedKey(tenant, folder, name))
}

// Fleet returns the fleet's guards and defaults with every field resolved.
func (v *View) Fleet() fleet.FleetSpec {
	var spec fleet.FleetSpec
	if d := v.Declaration(fleetKey()); d != nil {
		spec = *d.Fleet
	}
	orInt := func(n *int, otherwise int) {
		if *n == 0 {
			*n = otherwise
		}
	}
	orInt(&spec.Guards.MaxDeletes, 20)
	orInt(&spec.Guards.MaxDeletePercent, 20)
	orInt(&spec.Guards.AlwaysAllowed, 5)
	if spec.Guards.Window == 0 {
		spec.Guards.Window = fleet.Duration(time.Hour)
	}
	orBool := func(b **bool, otherwise bool) {
		if *b == nil {
			*b = &otherwise
		}
	}
	sync := &spec.Defaults.Sync
	if sync.Mode == "" {
		sync.Mode = fleet.SyncAutomated
	}
	orBool(&sync.Prune, true)
	orBool(&sync.SelfHeal, true)
	orBool(&sync.CreateNamespace, false)
	return spec
}

// Defaults returns what the deployments of a tenant inherit.
func (v *View) Defaults(t fleet.TenantName) fleet.Defaults {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.st.defaults(t)
}

// Declaration returns the declaration of a key.
func (v *View) Declaration(k fleet.Key) *fleet.Declaration {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.st.get(k)
}

// Engines lists the engines.
func (v *View) Engines() []fleet.EngineName {
	return members(v, membersOf("", fleet.KindEngine), func(k fleet.Key) fleet.EngineName {
		return fleet.EngineName(k.Name)
	})
}

// Pools lists the pools of engines.
func (v *View) Pools() []string {
	return members(v, membersOf("", fleet.KindEnginePool), func(k fleet.Key) string {
		return k.Name
	})
}

// Following lists the managed engines of each ring, by name. No ring installs the Argo CD again of
// an instance that its pool removes.
func (v *View) Following() map[string][]fleet.EngineName {
	all := map[string][]fleet.EngineName{}
	for _, name := range v.Engines() {
		d := v.Engine(name)
		if d == nil || !d.Engine.ArgoCD.Managed ||
			d.Engine.Pool != nil && d.Engine.Pool.State == fleet.MemberRemoving {
			continue
		}
		all[d.Engine.RingName()] = append(all[d.Engine.RingName()], name)
	}
	for _, names := range all {
		slices.Sort(names)
	}
	return all
}

// AgentsFollowing lists the engines of each ring, by name, whose agent alone follows it: declared
// ones behind an agent whose Argo CD is not managed, and environments with an agent of their own
// whose tenant names the ring.
func (v *View) AgentsFollowing() map[string][]fleet.EngineName {
	all := map[string][]fleet.EngineName{}
	for _, name := range v.Engines() {
		d := v.Engine(name)
		if d != nil && d.Engine.Connection.Agent != nil && !d.Engine.ArgoCD.Managed {
			all[d.Engine.RingName()] = append(all[d.Engine.RingName()], name)
		}
	}
	for _, t := range v.Tenants() {
		d := v.Tenant(t)
		if d == nil || len(agentRings(d.Tenant)) == 0 {
			continue
		}
		for _, id := range v.EnvironmentsOf(t) {
			env := v.Environment(id)
			if ring := d.Tenant.AgentRingOf(id.Name); ring != "" && env != nil &&
				env.Environment.Agent != nil {
				all[ring] = append(all[ring], fleet.AgentEngine(id))
			}
		}
	}
	for _, names := range all {
		slices.Sort(names)
	}
	return all
}

// InstancesOf lists the engines that are instances of a pool, by number.
func (v *View) InstancesOf(pool string) (all []fleet.PoolMember) {
	for _, name := range v.Engines() {
		if d := v.Engine(name); d != nil && d.Engine.Pool != nil && d.Engine.Pool.Pool == pool {
			all = append(all, *d.Engine.Pool)
		}
	}
	slices.SortFunc(all, func(a, b fleet.PoolMember) int { return a.Number - b.Number })
	return all
}

// Tenants lists the tenants.
func (v *View) Tenants() []fleet.TenantName {
	return members(v, membersOf("", fleet.KindTenant), func(k fleet.Key) fleet.TenantName {
		return fleet.TenantName(k.Name)
	})
}

// EnvironmentsOf lists the environments of a tenant.
func (v *View) EnvironmentsOf(t fleet.TenantName) []fleet.EnvironmentID {
	return members(v, membersOf(t, fleet.KindManagedEnvironment), environmentID)
}

// DeploymentsOf lists the deployments of a tenant.
func (v *View) DeploymentsOf(t fleet.TenantName) []fleet.DeploymentID {
	return members(v, membersOf(t, fleet.KindGitOpsDeployment), deploymentID)
}

// CredentialsOf lists the credentials of a tenant.
func (v *View) CredentialsOf(t fleet.TenantName) []fleet.CredentialID {
	return members(v, membersOf(t, fleet.KindRepositoryCredential), credentialID)
}

func members[T any](v *View, t term, id func(fleet.Key) T) []T {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var ids []T
	for _, k := range v.st.index.list(t) {
		if v.st.get(k) != nil {
			ids = append(ids, id(k))
		}
	}
	return ids
}

// Targets returns the environments that a deployment names or selects: one Application each.
func (v *View) Targets(id fleet.DeploymentID) []fleet.EnvironmentID {
	v.mu.RLock()
	defer v.mu.RUnlock()
	d := v.st.get(deploymentKey(id))
	if d == nil {
		return nil
	}
	return v.st.targets(d)
}

// DeploymentsIn returns the deployments that name or select an environment.
func (v *View) DeploymentsIn(id fleet.EnvironmentID) []fleet.DeploymentID {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.st.deploymentsIn(id)
}

// Adopters returns the deployments of every tenant that adopt an Application, in effect or
// quarantined, sorted. The object is that of fleet.Adoption, or "<namespace>/" for all of one.
func (v *View) Adopters(object string) []fleet.DeploymentID {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var ids []fleet.DeploymentID
	for _, k := range v.st.index.list(term{what: adopts, a: object}) {
		ids = append(ids, deploymentID(k))
	}
	return ids
}

// SharingClones returns the declarations of every tenant that are rejected with CodeSharedClone,
// sorted.
func (v *View) SharingClones() []fleet.Key {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.st.index.list(term{what: sharingClone})
}

// RejectedArtifacts returns the deployments of every tenant that are rejected with CodeArtifact,
// sorted.
func (v *View) RejectedArtifacts() []fleet.Key {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.st.index.list(term{what: ofArtifact})
}

// DeploymentsFrom returns the tenant's deployments that read that repository, in any
// spelling.
func (v *View) DeploymentsFrom(t fleet.TenantName, repoURL string) []fleet.DeploymentID {
	key := repositoryKey(repoURL)
	v.mu.RLock()
	defer v.mu.RUnlock()
	var ids []fleet.DeploymentID
	for _, k := range v.st.index.list(term{what: sourceFrom, tenant: t, a: key}) {
		if d := v.st.get(k); d != nil && slices.Contains(repositoryKeys(d.Deployment), key) {
			ids = append(ids, deploymentID(k))
		}
	}
	return ids
}

// CredentialFor returns the tenant's credential for a repository, or else for the nearest folder
// above it; nil if it has none.
func (v *View) CredentialFor(t fleet.TenantName, repoURL string) *fleet.Declaration {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.st.credentialFor(t, repositoryKey(repoURL))
}

// Repositories returns the repositories that the deployments of an environment read, each with its
// credential.
func (v *View) Repositories(id fleet.EnvironmentID) []Repository {
	v.mu.RLock()
	defer v.mu.RUnlock()
	seen := map[string]bool{}
	var rs []Repository
	for _, dep := range v.st.deploymentsIn(id) {
		for _, key := range repositoryKeys(v.st.get(deploymentKey(dep)).Deployment) {
			if seen[key] {
				continue
			}
			seen[key] = true
			r := Repository{Key: key}
			if c := v.st.credentialFor(id.Tenant, key); c != nil {
				r.Credential = credentialID(c.Key)
			}
			rs = append(rs, r)
		}
	}
	slices.SortFunc(rs, func(a, b Repository) int { return strings.Compare(a.Key, b.Key) })
	return rs
}

func (s *state) deploymentsIn(id fleet.EnvironmentID) []fleet.DeploymentID {
	env := s.get(environmentKey(id))
	if env == nil || env.Environment.Agent.Autonomous() {
		return nil
	}
	var ids []fleet.DeploymentID
	for k := range s.index.each(referrersOf(env.Key)) {
		if d := s.get(k); d != nil && d.Deployment != nil &&
			slices.Contains(d.Deployment.Destination.Environments, id.Name) {
			ids = append(ids, deploymentID(k))
		}
	}
	for _, k := range s.selecting(env) {
		ids = append(ids, deploymentID(k))
	}
	slices.SortFunc(ids, func(a, b fleet.DeploymentID) int {
		return strings.Compare(string(a.Name), string(b.Name))
	})
	return slices.Compact(ids)
}

func deploymentID(k fleet.Key) fleet.DeploymentID {
	return fleet.DeploymentID{Tenant: k.Tenant, Name: fleet.DeploymentName(k.Name)}
}

func (s *state) credentialFor(t fleet.TenantName, key string) *fleet.Declaration {
	for _, scope := range fleet.RepoScopes(key) {
		for k := range s.index.each(term{what: accessTo, tenant: t, a: scope}) {
			if d := s.get(k); d != nil && d.Credential.Scope() == scope {
				return d // no other of the scope is in effect: contested
			}
		}
	}
	return nil
}

func credentialID(k fleet.Key) fleet.CredentialID {
	return fleet.CredentialID{Tenant: k.Tenant, Name: fleet.CredentialName(k.Name)}
}

// Used returns the part of its quota that a tenant uses.
func (v *View) Used(t fleet.TenantName) fleet.Quota {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.st.usedBy(t)
}

// Effective returns every declaration in effect; it costs the whole fleet.
func (v *View) Effective() []*fleet.Declaration {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var ds []*fleet.Declaration
	for _, e := range v.st.entries.all() {
		if e.effective != nil {
			ds = append(ds, e.effective)
		}
	}
	slices.SortFunc(ds, func(a, b *fleet.Declaration) int { return compareKeys(a.Key, b.Key) })
	return ds
}

// Quarantines returns every quarantined file; it costs the whole fleet.
func (v *View) Quarantines() []fleet.Quarantine {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var qs []fleet.Quarantine
	for _, e := range v.st.entries.all() {
		if e.quarantined() {
			qs = append(qs, e.public())
		}
	}
	slices.SortFunc(qs, func(a, b fleet.Quarantine) int { return compareKeys(a.Key, b.Key) })
	return qs
}

// Quarantine returns the quarantined file of a key, if there is one.
func (v *View) Quarantine(k fleet.Key) (fleet.Quarantine, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e := v.st.entries.get(k)
	if !e.quarantined() {
		return fleet.Quarantine{}, false
	}
	return e.public(), true
}

// Count returns the numbers of effective declarations and of quarantined files.
func (v *View) Count() (effective, quarantined int) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.st.effective, v.st.quarantined
}
